//! Checkpoints, tiles, entries and proofs, verified with `evidence-ledger` alone.

use evidence_core::EvidenceService;
use evidence_core::ledger::cose::verify_receipt;
use evidence_core::ledger::note::{SignedNote, VerifierKey};
use evidence_core::ledger::tile::entries;
use evidence_core::ledger::{
    Checkpoint, Hash, Salt, TlogProof, payload_hash, root_of, verify_consistency, verify_inclusion,
};
use futures_util::future::join_all;
use http::HeaderValue;

use crate::support::LEDGERS;
use crate::support::prelude::*;
use crate::support::stubs::SignedInMemory;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The hash of a leaf (RFC 6962 §2.1).
fn leaf_hash(leaf: &[u8]) -> Hash {
    Hash::of([&[0], leaf].concat())
}

impl Api {
    async fn text(&self, path: &str) -> String {
        let reply = self.get(path).await;
        assert_eq!((reply.status.as_u16(), &reply.headers["content-type"]), (200, &TEXT), "{path}");
        String::from_utf8(reply.body.to_vec()).unwrap()
    }

    /// Returns the keys of all ledgers, without a credential.
    async fn ledger_keys(&self) -> Vec<VerifierKey> {
        let keys = self.get("/ledger/keys").anonymous().await.body;
        std::str::from_utf8(&keys).unwrap().lines().map(|key| key.parse().unwrap()).collect()
    }

    /// Returns the verified checkpoint of acme.
    async fn checkpoint(&self) -> Checkpoint {
        let note: SignedNote = self.text("/ledger/acme/checkpoint").await.parse().unwrap();
        let keys = self.ledger_keys().await;
        let checkpoint: Checkpoint = note.text().parse().unwrap();
        let signed = note.verify(&keys).unwrap();
        assert!(signed.iter().all(|signed| signed.by.name() == checkpoint.origin), "{signed:?}");
        checkpoint
    }
}

#[apply(on_every_store!)]
async fn a_write_answers_where_it_was_recorded(api: Api) {
    let before = api.checkpoint().await.size;
    let reply = api.put_flow("shop").await;
    assert_eq!(reply.status, 201);
    let header =
        |reply: &Reply, name: &str| reply.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(header(&reply, "evidence-ledger-index"), Some(before.to_string()));
    let entry = api.get(&format!("/ledger/acme/entries/{before}")).await.ok();
    assert_eq!(header(&reply, "evidence-leaf-hash").as_deref(), entry["entries"][0]["leaf_hash"].as_str());
    let payload: Value = serde_json::from_str(entry["entries"][0]["payload"].as_str().unwrap()).unwrap();
    assert_eq!(
        header(&reply, "evidence-record-id").as_deref(),
        payload["flow_created"]["record"]["id"].as_str()
    );

    // The record is the one that was asked for, and the entry the first.
    let reply = api.post_artifact("web", fingerprint('1')).in_trail("t").await;
    let id = header(&reply, "evidence-record-id").unwrap();
    let index: u64 = header(&reply, "evidence-ledger-index").unwrap().parse().unwrap();
    assert_eq!(index, before + 1);
    let last = api.checkpoint().await.size - 1;
    let last = api.get(&format!("/ledger/acme/entries/{last}")).await.ok();
    let payload: Value = serde_json::from_str(last["entries"][0]["payload"].as_str().unwrap()).unwrap();
    assert_eq!(payload["artifact_reported"]["record"]["id"], id.as_str());

    // Nothing is recorded by what changes nothing, fails or reads.
    let tags = json!({"set_tags": {"a": "b"}});
    let tag = || api.patch("/tags/acme/flow/shop").json(&tags);
    assert!(header(&tag().await, "evidence-ledger-index").is_some());
    for reply in [tag().await, api.put_flow("not a name").await, api.get("/flows/acme").await] {
        for name in ["evidence-ledger-index", "evidence-leaf-hash", "evidence-record-id"] {
            assert_eq!(header(&reply, name), None, "{name} with {}", reply.status);
        }
    }
}

#[apply(on_every_store!)]
async fn every_record_can_be_proved(api: Api) {
    let mut ids = Vec::new();
    for request in [
        api.put_flow("shop"),
        api.post_artifact("shop", fingerprint('1')).in_trail("t"),
        api.post_generic_attestation("shop", "scan", true),
        api.put_environment("prod", "docker"),
        api.put_policy("p", PROVENANCE),
        api.post_control("C-1"),
        api.post("/service-accounts/acme").json(json!({"name": "bot", "privilege": "member"})),
    ] {
        let reply = request.await;
        ids.push(reply.headers["evidence-record-id"].to_str().unwrap().to_owned());
    }
    // A record that changed has a new entry.
    api.patch("/tags/acme/flow/shop").json(json!({"set_tags": {"a": "b"}})).await.ok();
    let keys = api.ledger_keys().await;
    for id in &ids {
        let path = format!("/ledger/acme/proof/{id}");
        let proof: TlogProof = api.text(&path).await.parse().unwrap();
        assert_eq!(proof.extra, id.as_bytes());
        let json = api.get(&format!("{path}?format=json")).await.ok();
        let (entry, hash) =
            (&json["entry"], |value: &Value| value.as_str().unwrap().parse::<Hash>().unwrap());
        let leaf = leaf_hash(entry["leaf"].as_str().unwrap().as_bytes());
        assert_eq!((hash(&entry["leaf_hash"]), entry["index"].as_u64()), (leaf, Some(proof.index)));
        let (checkpoint, signed) = proof.verify(leaf, &keys).unwrap();
        assert!(proof.verify(leaf_hash(b"another"), &keys).is_err());
        let path_of_json: Vec<Hash> = json["path"].as_array().unwrap().iter().map(hash).collect();
        assert!(verify_inclusion(
            leaf,
            proof.index,
            json["size"].as_u64().unwrap(),
            &path_of_json,
            hash(&json["root"])
        ));

        let receipt = api.get(&format!("{path}?format=cose")).await;
        assert_eq!(receipt.headers["content-type"], "application/cose");
        let verified = verify_receipt(&receipt.body, leaf, signed[0].by);
        assert_eq!(verified, Some((proof.index, checkpoint.size)));
        assert_eq!(verify_receipt(&receipt.body, leaf_hash(b"another"), signed[0].by), None);

        // The leaf names the payload, which is that of the record.
        let salt: Salt = entry["salt"].as_str().unwrap().parse().unwrap();
        let leaf: Value = serde_json::from_str(entry["leaf"].as_str().unwrap()).unwrap();
        let payload = entry["payload"].as_str().unwrap();
        assert_eq!(leaf["payload_hash"], payload_hash(&salt, payload).to_string());
        let payload: Value = serde_json::from_str(payload).unwrap();
        let fact = payload.as_object().unwrap().values().next().unwrap();
        assert_eq!(fact["record"]["id"], id.as_str());
    }
    let flow = api.get(&format!("/ledger/acme/proof/{}?format=json", ids[0])).await.ok();
    assert!(flow["entry"]["payload"].as_str().unwrap().starts_with("{\"flow_tagged\""), "{flow}");
}

#[apply(on_every_store!)]
async fn tiles_and_consistency_proofs_are_those_of_the_checkpoint(api: Api) {
    let first = api.checkpoint().await;
    for n in 0..5 {
        api.put_flow(format!("f{n}")).await.created();
    }
    let now = api.checkpoint().await;
    assert_eq!(now.size, first.size + 5);

    let hashes = api.get(&format!("/ledger/acme/tile/0/000.p/{}", now.size)).await;
    assert_eq!(hashes.headers["content-type"], "application/octet-stream");
    assert_eq!(hashes.headers["cache-control"], "private, max-age=3600");
    let hashes: Vec<Hash> =
        hashes.body.as_chunks::<32>().0.iter().map(|hash| Hash::from_bytes(*hash)).collect();
    assert_eq!(root_of(&hashes), now.root);
    let leaves = api.get(&format!("/ledger/acme/tile/entries/000.p/{}", now.size)).await.body;
    let leaves: Vec<Hash> = entries(&leaves).unwrap().into_iter().map(leaf_hash).collect();
    assert_eq!(leaves, hashes);

    for (from, to) in [(first.size, now.size), (1, first.size), (now.size, now.size), (0, 3)] {
        let proof = api.get(&format!("/ledger/acme/consistency?from={from}&to={to}")).await.ok();
        let hash = |value: &Value| value.as_str().unwrap().parse::<Hash>().unwrap();
        let path: Vec<Hash> = proof["proof"].as_array().unwrap().iter().map(hash).collect();
        let (old, new) = (hash(&proof["from_root"]), hash(&proof["to_root"]));
        assert!(verify_consistency(from, to, old, new, &path), "{from} {to}");
        assert_eq!(new, root_of(&hashes[..usize::try_from(to).unwrap()]));
    }

    let page = api.get(&format!("/ledger/acme/entries/2?to={}", now.size + 100)).await.ok();
    let indexes: Vec<_> =
        page["entries"].as_array().unwrap().iter().map(|entry| entry["index"].as_u64().unwrap()).collect();
    assert_eq!(
        (indexes, &page["next"], page["size"].as_u64()),
        ((2..now.size).collect(), &Value::Null, Some(now.size))
    );
}

#[apply(on_every_store!)]
async fn what_a_ledger_does_not_have_is_told(api: Api) {
    let size = api.checkpoint().await.size;
    for (path, field) in [
        (format!("tile/0/000.p/{}", size + 1), "tile"),
        ("tile/0/000".to_owned(), "tile"),
        ("tile/1/000.p/1".to_owned(), "tile"),
        (format!("tile/entries/000.p/{}", size + 1), "tile"),
        (format!("entries/{size}"), "index"),
        (format!("proof/{size}"), "record_id"),
        ("proof/00000000-0000-0000-0000-00000099".to_owned(), "record_id"),
    ] {
        api.get(&format!("/ledger/acme/{path}")).await.expect_field_error(404, field);
    }
    for (path, field) in [
        ("tile/0/0".to_owned(), "tile"),
        ("tile/8/000".to_owned(), "tile"),
        ("tile/entries/000.p/256".to_owned(), "tile"),
        ("entries/-1".to_owned(), "index"),
        ("entries/a".to_owned(), "index"),
        ("entries/2?to=1".to_owned(), "query.to"),
        ("proof/x".to_owned(), "record_id"),
        ("proof/01".to_owned(), "record_id"),
        ("proof/1?format=xml".to_owned(), "query.format"),
        ("consistency".to_owned(), "query.from"),
        (format!("consistency?from={}", size + 1), "query.from"),
        (format!("consistency?from=1&to={}", size + 1), "query.to"),
        ("consistency?from=3&to=2".to_owned(), "query.from"),
    ] {
        api.get(&format!("/ledger/acme/{path}")).await.expect_field_error(400, field);
    }
    for path in ["checkpoint", "tile/0/000.p/1", "entries/0", "proof/0", "consistency?from=1"] {
        api.get(&format!("/ledger/acme/{path}")).key(JOHN).await.expect_message(403, FORBIDDEN);
    }
}

/// Two services with equal ids and entries, of which one has fewer, as after the restoration of a backup.
#[tokio::test]
async fn nothing_is_signed_that_contradicts_what_was_signed() {
    let signed = SignedInMemory::default();
    let service = async |seed, name: &str| {
        let evidence = in_memory().await.with_ledger_keys(signed.keys(name, seed));
        (Api::new(evidence.clone(), Mount::Tower, "memory").await, evidence)
    };
    let (api, evidence) = service(7, LEDGERS).await;
    api.put_flow("shop").await.created();
    let size = api.checkpoint().await.size;

    let refused = async |(api, evidence): &(Api, Evidence), what: &str| {
        for path in ["checkpoint", "proof/0"] {
            let message = api.get(&format!("/ledger/acme/{path}")).await.error_message(503);
            assert!(message.starts_with("Not signed: ") && message.contains(what), "{message}");
        }
        // The ledger itself can be read.
        api.get("/ledger/acme/entries/0").await.ok();
        let warnings = evidence.warnings().await;
        assert_eq!(warnings, ["the checkpoint of a ledger is not signed; the log says why"]);
    };
    let behind = service(7, LEDGERS).await;
    refused(&behind, &format!("the ledger has {} entries, but a checkpoint of {size} was signed", size - 1))
        .await;
    behind.0.put_flow("another").await.created();
    refused(&behind, &format!("the first {size} entries of the ledger are not those")).await;
    // Another key, which knows nothing of what was signed but what the store has.
    let other_key = evidence.with_ledger_keys(SignedInMemory::default().keys(LEDGERS, 8));
    let other_key = (Api::new(other_key.clone(), Mount::Tower, "memory").await, other_key);
    refused(&other_key, "is of the log 'evidence.example.com/").await;
    let other_name = service(7, "evidence.example.org").await;
    refused(&other_name, "is of the log 'evidence.example.com/").await;

    // The first goes on.
    api.put_flow("more").await.created();
    assert_eq!(api.checkpoint().await.size, size + 1);
}

#[tokio::test]
async fn a_server_without_keys_signs_nothing() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    fixture(Arc::clone(&store), Settings::default()).await;
    let clock = Arc::new(ManualClock::default());
    let random = Arc::new(evidence_core::id::SystemRandom);
    let evidence = Evidence::with_sources(store, Settings::default(), clock, random);
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    let text = "this server has no key for ledgers, so it signs no checkpoints";
    for path in ["/ledger/keys", "/ledger/acme/checkpoint", "/ledger/acme/proof/0"] {
        api.get(path).await.expect_errors(404, "Checkpoint not found", &[("org", text)]);
    }
    assert_eq!(api.get("/ledger/acme/tile/0/000.p/1").await.status, 200);
    api.get("/ledger/acme/entries/0").await.ok();
}

/// Requests that sign at the same time as others write: each checkpoint is one of the ledger's, and nothing is refused.
#[apply(on_every_store!)]
async fn checkpoints_are_signed_while_others_write(api: Api) {
    let write = async |n| {
        api.put_flow(format!("f{n}")).await.created();
    };
    let read = async |_| api.text("/ledger/acme/checkpoint").await;
    let (_, notes) =
        futures_util::future::join(join_all((0..16).map(write)), join_all((0..16).map(read))).await;
    let last = api.checkpoint().await;
    for note in notes {
        let note: SignedNote = note.parse().unwrap();
        let earlier: Checkpoint = note.text().parse().unwrap();
        let (from, to) = (earlier.size, last.size);
        let proof = api.get(&format!("/ledger/acme/consistency?from={from}&to={to}")).await.ok();
        assert_eq!(proof["from_root"], earlier.root.to_string());
        assert_eq!(proof["to_root"], last.root.to_string());
    }
}
