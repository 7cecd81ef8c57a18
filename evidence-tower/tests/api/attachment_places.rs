//! Attachments in a directory whose volume is not mounted, or that belongs to another database.

use std::fs;
use std::path::Path;

use evidence_core::EvidenceService;
use evidence_core::blobs::{Blobs, Whole};
use evidence_core::digest::sha256_hex;
use evidence_object_store::ObjectBlobs;

use crate::faults::Log;
use crate::support::prelude::*;

/// A server that was just started on this store, with its attachments in this directory.
async fn started(store: &Arc<dyn Store>, directory: &Path) -> (Evidence, Api) {
    let attachments = ObjectBlobs::open(&format!("file://{}", directory.display())).unwrap();
    let evidence = Evidence::new(Arc::clone(store), Settings::default());
    let evidence = evidence.with_attachments(Arc::new(attachments));
    (evidence.clone(), Api::new(evidence, Mount::Tower, "a directory").await)
}

/// The status of an attestation with this file.
async fn attest(api: &Api, file: &str) -> u16 {
    api.post_attestation("shop", "t", "generic")
        .data_json(json!({"attestation_name": "one", "is_compliant": true}))
        .file("attachment_file", "a", file)
        .await
        .status
        .as_u16()
}

fn files_in(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[tokio::test]
async fn a_directory_without_the_marker_takes_no_attachment() {
    for stored in stores().await {
        let (name, store) = (stored.name, Arc::clone(&stored.store));
        fixture(Arc::clone(&store), Settings::default()).await;
        let parent = tempfile::tempdir().unwrap();
        let (directory, away) = (parent.path().join("volume"), parent.path().join("away"));
        fs::create_dir(&directory).unwrap();
        let (evidence, api) = started(&store, &directory).await;
        assert_eq!(attest(&api, "a").await, 201, "{name}");
        // As when the volume is unmounted: its mount point is empty, or not even there.
        fs::rename(&directory, &away).unwrap();
        // A successful check is cached for a second.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        for mount_point in [false, true] {
            if mount_point {
                fs::create_dir(&directory).unwrap();
            }
            assert_eq!(attest(&api, "b").await, 503, "{name}");
            assert!(evidence.ready().await.is_err(), "{name}");
            assert_eq!(directory.exists(), mount_point, "{name}");
        }
        let found = api.get("/attestations/acme/shop/trail/t/one").await.ok();
        let id = found[0]["attestation_id"].as_str().unwrap();
        let download = format!("/attestations/acme/shop/trail/t/attestation/{id}/evidence");
        assert_eq!(api.get(&download).await.status.as_u16(), 503, "{name}: it is not lost");
        let (restarted, other_api) = started(&store, &directory).await;
        assert_eq!(attest(&other_api, "b").await, 503, "{name}");
        assert!(restarted.ready().await.is_err(), "{name}");
        assert_eq!(files_in(&directory), 0, "{name}");
        fs::remove_dir(&directory).unwrap();
        fs::rename(&away, &directory).unwrap();
        for (evidence, api) in [(evidence, api), (restarted, other_api)] {
            evidence.ready().await.unwrap();
            assert_eq!(attest(&api, "b").await, 201, "{name}");
            assert_eq!(api.get(&download).await.body, "a", "{name}");
        }
        drop(stored.guard);
    }
}

#[tokio::test]
async fn a_directory_of_another_database_takes_no_attachment() {
    let directory = tempfile::tempdir().unwrap();
    for (number, stored) in stores().await.into_iter().enumerate() {
        let (name, store) = (stored.name, Arc::clone(&stored.store));
        fixture(Arc::clone(&store), Settings::default()).await;
        let (evidence, api) = started(&store, directory.path()).await;
        if number > 0 {
            assert!(evidence.ready().await.is_err(), "{name}");
            assert_eq!(attest(&api, "a").await, 503, "{name}");
            // As an operator does who moved to another database.
            fs::remove_file(directory.path().join("evidence-marker")).unwrap();
        }
        evidence.ready().await.unwrap();
        assert_eq!(attest(&api, "a").await, 201, "{name}");
        drop(stored.guard);
    }
}

/// As after a copy whose volume is not mounted.
#[tokio::test]
async fn a_place_without_any_attachment_that_the_database_names_is_vouched_for_by_an_operator() {
    for stored in stores().await {
        let (name, store) = (stored.name, Arc::clone(&stored.store));
        let inside = fixture(Arc::clone(&store), Settings::default()).await;
        let api = Api::new(inside, Mount::Tower, name).await;
        assert_eq!(attest(&api, "a").await, 201, "{name}");
        let directory = tempfile::tempdir().unwrap();
        let (evidence, api) = started(&store, directory.path()).await;
        let log = Log::default();
        let guard = log.start();
        assert_eq!(attest(&api, "b").await, 503, "{name}");
        assert!(evidence.ready().await.is_err(), "{name}");
        drop(guard);
        assert_eq!(files_in(directory.path()), 0, "{name}");
        // The log says what to do.
        let text = log.text();
        let (_, content) =
            text.split_once("write the file 'evidence-marker' there, with the content ").expect(&text);
        let id: String = content.chars().take_while(|c| c.is_ascii_hexdigit() || *c == '-').collect();
        fs::write(directory.path().join("evidence-marker"), format!("{id}\r\n")).unwrap();
        evidence.ready().await.unwrap();
        assert_eq!(attest(&api, "b").await, 201, "{name}");
        // Later, the marker alone is lost.
        fs::remove_file(directory.path().join("evidence-marker")).unwrap();
        assert_eq!(attest(&api, "c").await, 503, "{name}");
        fs::write(directory.path().join("evidence-marker"), &id).unwrap();
        assert_eq!(attest(&api, "c").await, 201, "{name}");
        drop(stored.guard);
    }
}

/// As with a directory from before there were markers, or after a copy that leaves attachments where they are.
#[tokio::test]
async fn a_place_with_an_attachment_that_the_database_names_gets_the_marker() {
    let stored = stores().await.remove(0);
    let store = Arc::clone(&stored.store);
    let inside = fixture(Arc::clone(&store), Settings::default()).await;
    assert_eq!(attest(&Api::new(inside, Mount::Tower, stored.name).await, "a").await, 201);
    let directory = tempfile::tempdir().unwrap();
    let place = ObjectBlobs::open(&format!("file://{}", directory.path().display())).unwrap();
    let sha256 = sha256_hex(b"a").parse().unwrap();
    place.put(acme(&*store).await, &sha256, &mut Whole::new("a")).await.unwrap();
    let (evidence, api) = started(&store, directory.path()).await;
    evidence.ready().await.unwrap();
    assert_eq!(attest(&api, "b").await, 201);
    assert!(directory.path().join("evidence-marker").is_file());
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_the_directories_of_attachments() {
    use std::os::unix::fs::PermissionsExt;
    let stored = stores().await.remove(0);
    fixture(Arc::clone(&stored.store), Settings::default()).await;
    let directory = tempfile::tempdir().unwrap();
    let (_, api) = started(&stored.store, directory.path()).await;
    assert_eq!(attest(&api, "a").await, 201);
    let below = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap());
    let below: Vec<_> = below.filter(|entry| entry.file_type().unwrap().is_dir()).collect();
    assert_eq!(below.len(), 1);
    assert_eq!(below[0].metadata().unwrap().permissions().mode() & 0o777, 0o700);
}
