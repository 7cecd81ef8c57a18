//! Runs the conformance checks of attachments on an object store, in memory and in a directory, and through
//! the service.
//!
//! No test reaches S3. To try it by hand, use a stand-in and an `evidence-server` built with `--features s3`:
//!
//! ```sh
//! pip install 'moto[server]' && moto_server -p 5577 &
//! export AWS_ENDPOINT=http://127.0.0.1:5577 AWS_ALLOW_HTTP=true AWS_REGION=us-east-1
//! export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b
//! python -c "import boto3; boto3.client('s3', endpoint_url='$AWS_ENDPOINT').create_bucket(Bucket='attachments')"
//! evidence-server serve --attachments s3://attachments/acme
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use evidence_conformance::memory::MemoryStore;
use evidence_conformance::run_blobs;
use evidence_core::blobs::{Blobs, CHUNK, Chunks, OutsideBlobs, Whole};
use evidence_core::digest::sha256_hex;
use evidence_core::id::{Id, SystemRandom};
use evidence_core::name::Fingerprint;
use evidence_core::time::Timestamp;
use evidence_core::{Store, StoreError};
use evidence_object_store::{ObjectBlobs, OpenError};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};

/// Returns a store for the organizations, and an object store for their attachments.
fn stores(attachments: ObjectBlobs) -> (Arc<dyn Store>, Arc<dyn Blobs>) {
    (Arc::new(MemoryStore::new()), Arc::new(attachments))
}

fn in_memory() -> ObjectBlobs {
    ObjectBlobs::new(Arc::new(InMemory::new()), Path::default())
}

fn in_directory(directory: &std::path::Path) -> ObjectBlobs {
    ObjectBlobs::open(&format!("file://{}", directory.display())).unwrap()
}

#[tokio::test]
async fn memory_keeps_every_promise_of_attachments() {
    run_blobs(async || stores(in_memory())).await.unwrap();
}

#[tokio::test]
async fn a_directory_keeps_every_promise_of_attachments() {
    let directory = tempfile::tempdir().unwrap();
    let names = std::sync::atomic::AtomicUsize::new(0);
    let outcome = run_blobs(async || {
        let name = names.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
        let directory = directory.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        stores(in_directory(&directory))
    });
    outcome.await.unwrap();
}

/// Pieces of one MiB each, optionally followed by a failure.
struct Pieces {
    left: usize,
    breaks: bool,
}

#[async_trait]
impl Chunks for Pieces {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(Some(vec![u8::try_from(left).unwrap(); 1 << 20].into()))
            }
            None if self.breaks => Err(std::io::Error::other("the connection broke")),
            None => Ok(None),
        }
    }
}

/// Objects above five MiB are sent in parts.
#[tokio::test]
async fn a_large_attachment_is_there_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let org = Id::new(Timestamp::from_seconds(1), &SystemRandom);
    for (place, blobs) in [("memory", in_memory()), ("directory", in_directory(directory.path()))] {
        let (_, blobs) = stores(blobs);
        for size in [5, 12] {
            let sha256: Fingerprint = format!("{size:064}").parse().unwrap();
            assert!(blobs.put(org, &sha256, &mut Pieces { left: size, breaks: true }).await.is_err());
            assert_eq!(blobs.get_chunk(org, &sha256, 0).await.unwrap(), None, "{place}");

            blobs.put(org, &sha256, &mut Pieces { left: size, breaks: false }).await.unwrap();
            let mut found = Vec::new();
            while let Some(chunk) = blobs.get_chunk(org, &sha256, found.len() as u64).await.unwrap() {
                found.push(chunk[0]);
            }
            let expected: Vec<u8> =
                (0..u8::try_from(size).unwrap()).rev().flat_map(|byte| [byte; 4]).collect();
            assert_eq!(found, expected, "{place}");
        }
    }
}

#[tokio::test]
async fn an_object_that_is_not_whole_is_put_right_by_keeping_it_again() {
    let directory = tempfile::tempdir().unwrap();
    let (_, blobs) = stores(in_directory(directory.path()));
    let org = Id::new(Timestamp::from_seconds(1), &SystemRandom);
    // In one request, and in parts.
    for size in [CHUNK + 1, (5 << 20) + 1] {
        let content = vec![b'x'; size];
        let sha256: Fingerprint = sha256_hex(&content).parse().unwrap();
        let file = directory.path().join(org.to_string()).join(sha256.as_str());
        let keep = async || blobs.put(org, &sha256, &mut Whole::new(content.clone())).await.unwrap();
        keep().await;
        let written = std::fs::metadata(&file).unwrap().modified().unwrap();
        keep().await;
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), written, "it was whole");
        let mut altered = content.clone();
        altered[size / 2] = b'y';
        for damaged in [&content[..size - 1], &[], &altered, &[&content[..], b"x"].concat()] {
            std::fs::write(&file, damaged).unwrap();
            keep().await;
            assert!(std::fs::read(&file).unwrap() == content, "{} of {size} bytes", damaged.len());
        }
    }
}

#[test]
fn an_address_that_leads_nowhere_is_one_sentence() {
    let table = [
        ("", "is no address of an object store"),
        ("/var/lib/evidence", "is no address of an object store"),
        ("gs://bucket", "is no address of an object store"),
        ("file://relative/path", "is no address of an object store"),
        ("file:///nowhere/at/all", "cannot be used for attachments"),
    ];
    for (address, sentence) in table {
        let error = ObjectBlobs::open(address).unwrap_err().to_string();
        assert!(error.contains(sentence), "{address}: {error}");
    }
}

#[cfg(not(feature = "s3"))]
#[test]
fn a_program_without_s3_says_so() {
    assert!(matches!(ObjectBlobs::open("s3://bucket/prefix"), Err(OpenError::WithoutS3)));
}

#[cfg(feature = "s3")]
#[test]
fn a_bucket_is_contacted_with_the_first_attachment_and_not_before() {
    let address = ObjectBlobs::open("s3://bucket/prefix");
    assert!(!matches!(address, Err(OpenError::UnknownAddress(_))), "{address:?}");
}

/// An object store that never answers, and counts the requests.
#[derive(Debug, Default)]
struct Silent(AtomicUsize);

impl Silent {
    async fn never<T>(&self) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }
}

impl std::fmt::Display for Silent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("silent")
    }
}

#[async_trait]
impl ObjectStore for Silent {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult, Error> {
        self.never().await
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>, Error> {
        self.never().await
    }

    async fn get_opts(&self, _: &Path, _: GetOptions) -> Result<GetResult, Error> {
        self.never().await
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path, Error>>,
    ) -> BoxStream<'static, Result<Path, Error>> {
        stream::pending().boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta, Error>> {
        stream::pending().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult, Error> {
        self.never().await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<(), Error> {
        self.never().await
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_not_answered_time_out_and_are_limited_in_number() {
    let silent = Arc::new(Silent::default());
    let blobs = Arc::new(ObjectBlobs::new(Arc::clone(&silent) as _, Path::default()));
    let org: Id = "00000000-0000-0000-0000-00000001".parse().unwrap();
    let sha256: Fingerprint = sha256_hex(b"a").parse().unwrap();
    for _ in 0..2 {
        let mut asked = tokio::task::JoinSet::new();
        for n in 0..100_u64 {
            let (blobs, sha256) = (Arc::clone(&blobs), sha256.clone());
            asked.spawn(async move {
                match n % 2 {
                    0 => blobs.get_chunk(org, &sha256, 0).await.map(drop),
                    _ => blobs.put(org, &sha256, &mut Whole::new("a")).await,
                }
            });
        }
        let begun = tokio::time::Instant::now();
        while let Some(answer) = asked.join_next().await {
            let error = answer.unwrap().unwrap_err();
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        }
        assert_eq!(begun.elapsed().as_secs(), 30);
    }
    // The requests of the first round still wait for their answers.
    assert_eq!(silent.0.load(Ordering::Relaxed), 64);
    // A removal does not start in this state. A removal that has started returns no outcome before it ends.
    assert!(matches!(blobs.remove(org, &sha256).await, Err(StoreError::Unavailable(_))));
    let blobs = ObjectBlobs::new(silent as _, Path::default());
    let hour = Duration::from_secs(60 * 60);
    assert!(tokio::time::timeout(hour, blobs.remove(org, &sha256)).await.is_err());
}

#[tokio::test]
async fn a_directory_that_may_not_be_written_to_says_that_it_removes_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let blobs = ObjectBlobs::open(&format!("file://{}", directory.path().display())).unwrap();
    let org: Id = "00000000-0000-0000-0000-00000001".parse().unwrap();
    let sha256: Fingerprint = sha256_hex(b"a").parse().unwrap();
    blobs.put(org, &sha256, &mut Whole::new("a")).await.unwrap();
    let of_org = directory.path().join(org.to_string());
    let may = |mode| std::fs::set_permissions(&of_org, std::fs::Permissions::from_mode(mode)).unwrap();
    may(0o500);
    let removed = blobs.remove(org, &sha256).await;
    may(0o700);
    // Permissions do not apply to root.
    if blobs.get_chunk(org, &sha256, 0).await.unwrap().is_some() {
        assert!(matches!(removed, Err(StoreError::Unavailable(_))), "{removed:?}");
    } else {
        removed.unwrap();
    }
}
