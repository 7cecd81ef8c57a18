//! Opens an object store by its address.

use std::sync::Arc;
#[cfg(feature = "s3")]
use std::time::Duration;

#[cfg(feature = "s3")]
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
#[cfg(feature = "s3")]
use object_store::{ClientConfigKey, RetryConfig};
use url::Url;

use crate::ObjectBlobs;

/// An error of opening an object store. Each message is one sentence that includes the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address has no known scheme.
    #[error("'{0}' is no address of an object store: write file:///directory or s3://bucket/prefix")]
    UnknownAddress(String),
    /// The directory cannot be used.
    #[error(
        "the directory '{directory}' cannot be used for attachments: make it, and let the server write to it"
    )]
    Directory {
        /// The directory.
        directory: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The program was built without the S3 client.
    #[error("this program was built without S3: build it with the feature 's3', or write file:///directory")]
    WithoutS3,
    /// The endpoint is plain HTTP, which is not allowed.
    #[error("the S3 endpoint '{0}' is not encrypted: write https://, or set AWS_ALLOW_HTTP=true")]
    PlainHttp(String),
    /// The S3 configuration is incomplete.
    #[error("the S3 bucket of '{url}' cannot be used: check the address and the AWS_… environment variables")]
    S3 {
        /// The address.
        url: String,
        /// The error of the S3 client.
        source: object_store::Error,
    },
}

impl ObjectBlobs {
    /// Opens the attachments at an address. `file:///directory` must exist. `s3://bucket/prefix` (feature
    /// `s3`) takes its region, endpoint and credentials from the `AWS_…` environment variables.
    ///
    /// # Errors
    /// Returns an [`OpenError`], which explains the problem and the remedy.
    pub fn open(address: &str) -> Result<Self, OpenError> {
        let unknown = || OpenError::UnknownAddress(address.to_owned());
        let url = Url::parse(address).map_err(|_| unknown())?;
        match url.scheme() {
            "file" => directory(&url.to_file_path().map_err(|()| unknown())?),
            "s3" => s3(&url),
            _ => Err(unknown()),
        }
    }
}

fn directory(directory: &std::path::Path) -> Result<ObjectBlobs, OpenError> {
    let unusable = |source| OpenError::Directory { directory: directory.display().to_string(), source };
    // Fail now and not at the first upload. A missing directory may be a volume that is not mounted.
    tempfile::tempfile_in(directory).map_err(unusable)?;
    let files = LocalFileSystem::new_with_prefix(directory).map_err(|error| unusable(error.into()))?;
    let blobs = ObjectBlobs::new(Arc::new(files.with_fsync(true)), Path::default());
    Ok(ObjectBlobs { directory: Some(directory.into()), ..blobs })
}

#[cfg(feature = "s3")]
fn s3(url: &Url) -> Result<ObjectBlobs, OpenError> {
    let unusable = |source| OpenError::S3 { url: url.to_string(), source };
    let bucket = AmazonS3Builder::from_env().with_url(url.as_str()).with_retry(retries());
    // A bulk delete returns 200 even if it refuses items, and a refusal must be distinguishable from an
    // unknown outcome.
    let bucket = bucket.with_disable_bulk_delete(true);
    if let Some(endpoint) = plain_http(&bucket) {
        return Err(OpenError::PlainHttp(endpoint));
    }
    let prefix = Path::from_url_path(url.path()).map_err(|error| unusable(error.into()))?;
    Ok(ObjectBlobs::new(Arc::new(bucket.build().map_err(unusable)?), prefix))
}

/// Few retries, because a client is waiting: the default of ten may take three minutes.
#[cfg(feature = "s3")]
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 3, retry_timeout: Duration::from_secs(10), ..RetryConfig::default() }
}

/// Returns the endpoint if it is plain HTTP and that is not allowed. The client would refuse every request to
/// it.
#[cfg(feature = "s3")]
fn plain_http(bucket: &AmazonS3Builder) -> Option<String> {
    let allowed = bucket.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let endpoint = bucket
        .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| bucket.get_config_value(&AmazonS3ConfigKey::Endpoint))?;
    // The spellings of `true` that `object_store` accepts.
    let allowed = allowed.is_some_and(|allowed| {
        ["1", "true", "on", "yes", "y"].iter().any(|spelling| allowed.eq_ignore_ascii_case(spelling))
    });
    (endpoint.starts_with("http://") && !allowed).then_some(endpoint)
}

#[cfg(not(feature = "s3"))]
fn s3(_: &Url) -> Result<ObjectBlobs, OpenError> {
    Err(OpenError::WithoutS3)
}

#[cfg(all(test, feature = "s3"))]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_encryption_has_to_be_allowed() {
        use AmazonS3ConfigKey::{Endpoint, S3Endpoint};
        let (encrypted, plain) = ("https://s3.example.com", "http://s3.example.com");
        let allow_http = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
        let table = [
            (None, "false", false),
            (Some((Endpoint, encrypted)), "false", false),
            (Some((Endpoint, plain)), "true", false),
            (Some((Endpoint, plain)), "1", false),
            (Some((Endpoint, plain)), "Yes", false),
            (Some((Endpoint, plain)), "false", true),
            (Some((S3Endpoint, plain)), "false", true),
        ];
        for (endpoint, allowed, refused) in table {
            let bucket = AmazonS3Builder::new().with_config(allow_http, allowed);
            let bucket = endpoint.iter().fold(bucket, |bucket, (key, url)| bucket.with_config(*key, *url));
            let expected = refused.then_some(plain);
            assert_eq!(plain_http(&bucket).as_deref(), expected, "{endpoint:?}, allowed: {allowed}");
        }
    }
}
