//! Audit packages, verified as an outsider does.

use std::io::Read;

use evidence_core::ledger::note::{NoteSigner, VerifierKey};
use evidence_verify::{Policy, Report, verify};

use crate::support::LEDGERS;
use crate::support::prelude::*;

const TRAIL: &str = "/trails/acme/shop/t/audit_package";

/// A trail with an artifact, attestations and files.
async fn given(api: &Api) {
    api.given_flow("shop", TEMPLATE).await;
    api.post_artifact("shop", fingerprint('1')).in_trail("t").await.created();
    let attest = |name: &str| api.post_generic_attestation("shop", name, true);
    attest("scan").file("attachment_file", "a.txt", "content of a").await.created();
    let two = attest("unit").file("attachment_file.1", "b.txt", "content of b");
    two.file("attachment_file.2", "c.txt", "content of c").await.created();
    attest("foo").with(json!({"user_data": {"sha256": "0".repeat(64), "file_name": "x"}})).await.created();
    // Of another trail: not in the package.
    api.post_artifact("shop", fingerprint('2')).in_trail("u").await.created();
}

async fn keys(api: &Api) -> Vec<VerifierKey> {
    let keys = api.get("/ledger/keys").anonymous().await.body;
    std::str::from_utf8(&keys).unwrap().lines().map(|key| key.parse().unwrap()).collect()
}

async fn download(api: &Api, path: &str) -> Vec<u8> {
    let reply = api.get(path).await;
    assert_eq!(reply.status, 200, "{path}: {:?}", reply.body);
    assert_eq!(reply.headers["content-type"], "application/x-tar");
    reply.body.to_vec()
}

/// The files of a tar.
fn files(package: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(package);
    let read = |file: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut file = file.unwrap();
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        (file.path().unwrap().to_str().unwrap().to_owned(), content)
    };
    archive.entries().unwrap().map(read).collect()
}

fn tarred(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn checked(package: &[u8], keys: Vec<VerifierKey>) -> Report {
    verify(package, &Policy::of_logs(keys)).unwrap()
}

#[apply(on_every_store!)]
async fn a_package_holds_for_those_who_know_the_key(api: Api) {
    given(&api).await;
    let id = api.get("/attestations/acme/shop/trail/t/scan").await.ok()[0]["attestation_id"].clone();
    let keys = keys(&api).await;
    for path in [
        TRAIL.to_owned(),
        format!("/artifacts/acme/shop/{}/audit_package", fingerprint('1')),
        format!("/artifacts/acme/shop/{}/audit_package", &fingerprint('1')[..6]),
        format!("/attestations/acme/{}/audit_package", id.as_str().unwrap()),
    ] {
        let package = download(&api, &path).await;
        let report = checked(&package, keys.clone());
        assert!(report.holds(), "{path}: {report}");
        assert!(
            report
                .holding
                .iter()
                .any(|line| line
                    .ends_with("entries are in the ledger of that checkpoint, with these payloads")),
            "{report}"
        );
        assert!(
            report.holding.iter().any(|line| line.contains(" attachments and texts have the digests")),
            "{report}"
        );
        // The same state gives the same bytes.
        assert_eq!(download(&api, &path).await, package, "{path}");
        let names: Vec<String> = files(&package).into_iter().map(|(name, _)| name).collect();
        for name in ["README.txt", "checkpoint.txt", "keys.txt", "manifest.json"] {
            assert!(names.iter().any(|found| found == name), "{path}: {names:?}");
        }
        let attachments = names.iter().filter(|name| name.starts_with("attachments/")).count();
        assert_eq!(attachments, 4, "three files and an archive of two: {names:?}");
    }
    // The page is that of the PDF.
    let page = api.get("/trails/acme/shop/t/audit_pdf").await.body;
    let package = download(&api, TRAIL).await;
    let (_, shown) = files(&package).into_iter().find(|(name, _)| name == "trail-page.pdf").unwrap();
    assert_eq!(shown, page);

    // Whoever knows no key, or another one, is told.
    let report = checked(&package, Vec::new());
    assert!(!report.holds() && report.problems[0].starts_with("no key was given"), "{report}");
    let stranger = NoteSigner::new(&format!("{LEDGERS}/x"), &[1; 32]).unwrap();
    let report = checked(&package, vec![stranger.verifier().clone()]);
    assert!(
        report.problems.iter().any(|line| line.starts_with("the checkpoint: none of the given keys")),
        "{report}"
    );

    api.get("/trails/acme/shop/none/audit_package").await.expect_message(404, "Flow or trail not found");
    api.get("/artifacts/acme/shop/99999/audit_package").await.expect_field_error(404, "fingerprint");
    api.get("/attestations/acme/x/audit_package").await.expect_field_error(404, "attestation_id");
}

#[tokio::test]
async fn every_change_of_a_package_is_named() {
    let api = Api::new(in_memory().await, Mount::Tower, "memory").await;
    given(&api).await;
    let keys = keys(&api).await;
    let whole = files(&download(&api, TRAIL).await);
    assert!(checked(&tarred(&whole), keys.clone()).holds());
    for number in 0..whole.len() {
        let (name, content) = &whole[number];
        // The manifest is not signed: what it lists is compared, and what it says besides is for reading.
        if name == "manifest.json" {
            continue;
        }
        let mut changed = whole.clone();
        changed[number].1[content.len() / 2] ^= 1;
        let report = checked(&tarred(&changed), keys.clone());
        assert!(report.problems.iter().any(|line| line.contains(name)), "{name}: {report}");

        // The same, where the manifest goes along.
        let listed = |files: &[(String, Vec<u8>)]| {
            let mut files = files.to_vec();
            let (_, manifest) = files.last_mut().unwrap();
            let mut document: Value = serde_json::from_slice(manifest).unwrap();
            let digest = evidence_core::digest::sha256_hex(&changed[number].1);
            let listed = document["files"].as_array_mut().unwrap();
            listed.iter_mut().find(|file| file["path"] == name.as_str()).unwrap()["sha256"] = digest.into();
            *manifest = document.to_string().into_bytes();
            tarred(&files)
        };
        let report = checked(&listed(&changed), keys.clone());
        let is_proved = !["README.txt", "keys.txt", "trail-page.pdf", "trail.json"].contains(&name.as_str());
        assert_eq!(report.holds(), !is_proved, "{name}: {report}");

        let mut without = whole.clone();
        without.remove(number);
        let report = checked(&tarred(&without), keys.clone());
        assert!(report.problems.iter().any(|line| *line == format!("{name} is missing")), "{name}: {report}");
        let mut twice = whole.clone();
        twice.insert(number, (name.clone(), content.clone()));
        assert!(!checked(&tarred(&twice), keys.clone()).holds(), "{name} twice");
    }
    let mut more = whole.clone();
    more.insert(0, ("entries/000000000099.json".to_owned(), b"{}".to_vec()));
    let report = checked(&tarred(&more), keys.clone());
    assert!(report.problems.iter().any(|line| line.starts_with("entry 000000000099: ")), "{report}");
    for not_a_package in [b"".as_slice(), b"x", &[0; 2048], &tarred(&[])] {
        assert!(verify(not_a_package, &Policy::default()).is_err(), "{not_a_package:?}");
    }
}

#[tokio::test]
async fn a_lost_attachment_is_named_and_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = crate::support::sqlite(&directory).await;
    let api = Api::new(fixture(Arc::new(store), Settings::default()).await, Mount::Tower, "sqlite").await;
    given(&api).await;
    let database =
        evidence_store_sqlite::rusqlite::Connection::open(directory.path().join("evidence.db")).unwrap();
    let of = |content: &str| evidence_core::digest::sha256_hex(content.as_bytes());
    let lost = format!("DELETE FROM blob_chunk WHERE sha256 = '{}'", of("content of a"));
    assert_eq!(database.execute(&lost, []).unwrap(), 1);
    let report = checked(&download(&api, TRAIL).await, keys(&api).await);
    let problem =
        format!("attachments/{}: the attachment is missing or damaged, says the server", of("content of a"));
    assert_eq!(report.problems, [problem]);
}
