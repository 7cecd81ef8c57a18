//! Attachments in an object store keep what a store promises of attachments, in memory and in a directory; and go in and
//! out through the service.

use std::sync::Arc;

use evidence_core::Store;
use evidence_core::blobs::Blobs;
use evidence_core::conformance::run_blobs;
use evidence_core::memory::MemoryStore;
use evidence_object_store::{ObjectBlobs, OpenError};

/// A store for the organizations, and a place for their attachments.
fn places(address: &str) -> (Arc<dyn Store>, Arc<dyn Blobs>) {
    (Arc::new(MemoryStore::new()), Arc::new(ObjectBlobs::open(address).unwrap()))
}

#[tokio::test]
async fn memory_keeps_every_promise_of_attachments() {
    run_blobs(async || places("memory:")).await.unwrap();
}

#[tokio::test]
async fn a_directory_keeps_every_promise_of_attachments() {
    let directory = tempfile::tempdir().unwrap();
    let names = std::sync::atomic::AtomicUsize::new(0);
    let report = run_blobs(async || {
        let name = names.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
        let place = directory.path().join(name);
        std::fs::create_dir(&place).unwrap();
        places(&format!("file://{}", place.display()))
    });
    report.await.unwrap();
}

#[test]
fn an_address_that_leads_nowhere_is_one_sentence() {
    let table = [
        ("", "is no place for attachments"),
        ("/var/lib/evidence", "is no place for attachments"),
        ("gs://bucket", "is no place for attachments"),
        ("file://relative/path", "is no place for attachments"),
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
    assert!(!matches!(address, Err(OpenError::UnknownPlace(_))), "{address:?}");
}
