//! From an address to a place for attachments.

use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use url::Url;

use crate::ObjectBlobs;

/// Why an address leads nowhere, each in one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is of no kind that is known.
    #[error("'{0}' is no place for attachments: write file:///directory, s3://bucket/prefix or memory:")]
    UnknownPlace(String),
    /// The directory cannot be used.
    #[error(
        "the directory '{directory}' cannot be used for attachments: make it, and let the server write to it"
    )]
    Directory {
        /// The directory.
        directory: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The program was built without the client of S3.
    #[error("this program was built without S3: build it with the feature 's3', or write file:///directory")]
    WithoutS3,
    /// What S3 needs to know is incomplete.
    #[error("the S3 bucket of '{url}' cannot be used: check the address and the AWS_… environment variables")]
    S3 {
        /// The address.
        url: String,
        /// What is wrong.
        source: object_store::Error,
    },
}

impl ObjectBlobs {
    /// Attachments at an address: `file:///directory`, which must exist; `s3://bucket/prefix` (feature `s3`), with
    /// region, endpoint and credentials from the `AWS_…` environment variables; or `memory:`, gone with the process.
    ///
    /// # Errors
    /// One sentence that says what to do.
    pub fn open(address: &str) -> Result<Self, OpenError> {
        let unknown = || OpenError::UnknownPlace(address.to_owned());
        let url = Url::parse(address).map_err(|_| unknown())?;
        match url.scheme() {
            "memory" => Ok(Self::new(Arc::new(InMemory::new()), Path::default())),
            "file" => directory(&url.to_file_path().map_err(|()| unknown())?),
            "s3" => s3(&url),
            _ => Err(unknown()),
        }
    }
}

fn directory(directory: &std::path::Path) -> Result<ObjectBlobs, OpenError> {
    let unusable = |source| OpenError::Directory { directory: directory.display().to_string(), source };
    // Told now rather than with the first upload. A directory that is missing may be a volume that is not mounted.
    tempfile::tempfile_in(directory).map_err(unusable)?;
    let files = LocalFileSystem::new_with_prefix(directory).map_err(|error| unusable(error.into()))?;
    Ok(ObjectBlobs::new(Arc::new(files.with_fsync(true)), Path::default()))
}

#[cfg(feature = "s3")]
fn s3(url: &Url) -> Result<ObjectBlobs, OpenError> {
    let unusable = |source| OpenError::S3 { url: url.to_string(), source };
    let bucket = object_store::aws::AmazonS3Builder::from_env().with_url(url.as_str()).build();
    let prefix = Path::from_url_path(url.path()).map_err(|error| unusable(error.into()))?;
    Ok(ObjectBlobs::new(Arc::new(bucket.map_err(unusable)?), prefix))
}

#[cfg(not(feature = "s3"))]
fn s3(_: &Url) -> Result<ObjectBlobs, OpenError> {
    Err(OpenError::WithoutS3)
}
