//! Contents of attachments that no record came to name are removed after a while, and no others.

use std::future::{pending, ready};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evidence_conformance::memory::MemoryStore;
use evidence_core::StoreError;
use evidence_core::blobs::Blobs;
use evidence_core::digest::sha256_hex;
use evidence_core::id::{Id, SystemRandom};
use evidence_core::name::Fingerprint;
use evidence_core::sweep::{GRACE, GraceTooShort, LEAST_GRACE, Pending, Sweep};
use evidence_core::time::Clock;
use evidence_object_store::ObjectBlobs;
use futures_util::FutureExt;
use http::header::RETRY_AFTER;
use tempfile::TempDir;

use crate::intercepting_store::InterceptingStore;
use crate::support::prelude::*;
use crate::support::stubs::StubBlobs;
use crate::support::{Marker, org_id};

const MINUTE: Duration = Duration::from_secs(60);

fn sweep() -> Sweep {
    Sweep::after(LEAST_GRACE).unwrap()
}

fn digest(content: &str) -> Fingerprint {
    sha256_hex(content.as_bytes()).parse().unwrap()
}

/// Reports files, and answers the status, and whether to come again.
async fn attest(api: &Api, files: &[&str]) -> (u16, bool) {
    let attest = api.post_attestation("shop", "t", "generic");
    let attest = attest.data_json(json!({"attestation_name": "one", "is_compliant": true}));
    let file = |request: RequestBuilder, (n, file): (usize, &&str)| {
        request.file(&format!("attachment_file.{n}"), &n.to_string(), file)
    };
    let reply = files.iter().enumerate().fold(attest, file).await;
    (reply.status.as_u16(), reply.headers.contains_key(RETRY_AFTER))
}

const CREATED: (u16, bool) = (201, false);
const AWAY: (u16, bool) = (503, true);

/// The service over every store, with the attachments inside of it and in a directory.
async fn everywhere() -> Vec<(StoreUnderTest, Option<TempDir>)> {
    let inside = stores().await.into_iter().map(|stored| (stored, None));
    let outside = stores().await.into_iter().map(|stored| (stored, Some(tempfile::tempdir().unwrap())));
    inside.chain(outside).collect()
}

fn with_attachments_in(evidence: Evidence, directory: &Path) -> (Evidence, Arc<ObjectBlobs>) {
    let attachments = Arc::new(ObjectBlobs::open(&format!("file://{}", directory.display())).unwrap());
    (evidence.with_attachments(Arc::clone(&attachments) as _), attachments)
}

struct Case {
    name: String,
    api: Api,
    evidence: Evidence,
    clock: Arc<ManualClock>,
    refuses: Arc<AtomicBool>,
    store: Arc<dyn Store>,
    blobs: Arc<dyn Blobs>,
    org: Id,
}

impl Case {
    async fn of(stored: &StoreUnderTest, directory: Option<&TempDir>) -> Self {
        let store = Arc::clone(&stored.store);
        fixture(Arc::clone(&store), Settings::default()).await;
        let (clock, refuses) = (Arc::new(ManualClock::default()), Arc::new(AtomicBool::new(false)));
        let whole =
            InterceptingStore::new(Arc::clone(&store), |_| async {}.boxed()).refusing(Arc::clone(&refuses));
        let (settings, random) = (Settings::default(), Arc::new(SystemRandom));
        let evidence = Evidence::with_sources(Arc::new(whole), settings, clock.clone(), random);
        let (evidence, blobs) = match directory {
            None => (evidence, Arc::clone(&store) as Arc<dyn Blobs>),
            Some(directory) => {
                let (evidence, attachments) = with_attachments_in(evidence, directory.path());
                (evidence, attachments as _)
            }
        };
        let api = Api::new(evidence.clone(), Mount::Tower, stored.name).await;
        let name = format!("{}, in a directory: {}", stored.name, directory.is_some());
        Self { name, api, evidence, clock, refuses, org: acme(&*store).await, store, blobs }
    }

    /// Reports files that are kept, and whose record is not.
    async fn refused(&self, files: &[&str]) {
        self.refuses.store(true, Ordering::SeqCst);
        assert_eq!(attest(&self.api, files).await, AWAY, "{}", self.name);
        self.refuses.store(false, Ordering::SeqCst);
    }

    async fn swept(&self) -> u64 {
        sweep().pass(&self.evidence).await.unwrap()
    }

    async fn has(&self, content: &str) -> bool {
        self.blobs.get_chunk(self.org, &digest(content), 0).await.unwrap().is_some()
    }

    async fn notes(&self) -> usize {
        self.store.pending(None, 100).await.unwrap().len()
    }
}

#[tokio::test]
async fn what_a_refused_attestation_left_is_removed_and_what_an_accepted_one_has_stays() {
    for (stored, directory) in everywhere().await {
        let case = Case::of(&stored, directory.as_ref()).await;
        let Case { name, api, .. } = &case;
        case.refused(&["refused", "both"]).await;
        // Two files, and their archive.
        assert_eq!(case.notes().await, 3, "{name}");
        assert_eq!(attest(api, &["accepted"]).await, CREATED, "{name}");
        assert_eq!(attest(api, &["both"]).await, CREATED, "{name}");
        case.refused(&["accepted"]).await;
        assert_eq!(case.notes().await, 2, "{name}");
        case.clock.advance(LEAST_GRACE - MINUTE);
        assert_eq!((case.swept().await, case.has("refused").await), (0, true), "{name}: before the grace");
        case.clock.advance(MINUTE);
        assert_eq!((case.swept().await, case.notes().await), (2, 0), "{name}");
        for (content, stays) in [("refused", false), ("accepted", true), ("both", true)] {
            assert_eq!(case.has(content).await, stays, "{name}: {content}");
        }
        let found = api.get("/attestations/acme/shop/trail/t/one").await.ok();
        let id = found[0]["attestation_id"].as_str().unwrap();
        let download = format!("/attestations/acme/shop/trail/t/attestation/{id}/evidence");
        assert_eq!(api.get(&download).await.body, "both", "{name}");
        if let Some(directory) = directory {
            let files = std::fs::read_dir(directory.path().join(case.org.to_string())).unwrap().count();
            assert_eq!(files, 2, "{name}");
        }
        drop(stored.guard);
    }
}

#[tokio::test]
async fn what_is_uploaded_again_is_kept_for_another_grace() {
    for (stored, directory) in everywhere().await {
        let case = Case::of(&stored, directory.as_ref()).await;
        let Case { name, api, .. } = &case;
        for _ in 0..2 {
            case.refused(&["a"]).await;
            case.clock.advance(LEAST_GRACE - MINUTE);
            assert_eq!((case.swept().await, case.has("a").await), (0, true), "{name}");
        }
        case.clock.advance(MINUTE);
        assert_eq!((case.swept().await, case.has("a").await), (1, false), "{name}");
        assert_eq!(attest(api, &["a"]).await, CREATED, "{name}");
        case.clock.advance(2 * GRACE);
        assert_eq!((case.swept().await, case.has("a").await), (0, true), "{name}");
        drop(stored.guard);
    }
}

#[tokio::test]
async fn what_is_being_removed_elsewhere_is_answered_503_until_that_is_done_by_whoever_comes_next() {
    for stored in stores().await {
        let directory = tempfile::tempdir().unwrap();
        let case = Case::of(&stored, Some(&directory)).await;
        let Case { name, api, .. } = &case;
        case.refused(&["a"]).await;
        let note = case.store.pending(None, 1).await.unwrap().remove(0);
        case.clock.advance(LEAST_GRACE);
        // As a server does that is killed then.
        assert!(case.store.begin_removal(&note, case.clock.now()).await.unwrap(), "{name}");
        assert_eq!(attest(api, &["a"]).await, AWAY, "{name}");
        assert_eq!((case.swept().await, case.notes().await), (0, 1), "{name}: it may still be at it");
        case.clock.advance(GRACE);
        assert_eq!((case.swept().await, case.has("a").await), (1, false), "{name}");
        assert_eq!(attest(api, &["a"]).await, CREATED, "{name}");
        assert!(case.has("a").await, "{name}");
        drop(stored.guard);
    }
}

#[tokio::test]
async fn lost_rows_lead_to_no_removal() {
    for (stored, directory) in everywhere().await {
        let Some(tables) = stored.tables.clone() else { continue };
        let case = Case::of(&stored, directory.as_ref()).await;
        let Case { name, api, .. } = &case;
        assert_eq!(attest(api, &["a"]).await, CREATED, "{name}");
        case.refused(&["b"]).await;
        case.clock.advance(LEAST_GRACE);
        // The table that names contents alone: the same is uploaded once more, and refused.
        tables.execute("DELETE FROM attachment").await;
        case.refused(&["a"]).await;
        case.clock.advance(GRACE);
        tables.execute("UPDATE _evidence_migrations SET done = NOT done").await;
        assert_eq!(case.swept().await, 0, "{name}: while tables are brought up to date");
        tables.execute("UPDATE _evidence_migrations SET done = NOT done").await;
        assert_eq!((case.swept().await, case.has("a").await), (1, true), "{name}");
        case.refused(&["b"]).await;
        case.clock.advance(GRACE);
        tables.lose().await;
        assert_eq!(case.swept().await, 0, "{name}: without an organization");
        tables.rebuild().await;
        assert_eq!(
            (case.swept().await, case.has("a").await, case.has("b").await),
            (1, true, false),
            "{name}"
        );
        drop(stored.guard);
    }
}

#[tokio::test]
async fn a_note_that_was_left_behind_goes_without_the_content() {
    for (stored, directory) in everywhere().await {
        let Some(tables) = stored.tables.clone() else { continue };
        let case = Case::of(&stored, directory.as_ref()).await;
        let Case { name, api, .. } = &case;
        assert_eq!(attest(api, &["a"]).await, CREATED, "{name}");
        tables
            .execute(
                "INSERT INTO attachment_pending (org, sha256, kept_at) SELECT org, sha256, 1 FROM attachment",
            )
            .await;
        assert_eq!(case.notes().await, 1, "{name}");
        case.swept().await;
        assert_eq!((case.notes().await, case.has("a").await), (0, true), "{name}");
        drop(stored.guard);
    }
}

#[tokio::test]
async fn what_cannot_be_removed_keeps_nothing_else() {
    for stored in stores().await {
        let store = Arc::clone(&stored.store);
        fixture(Arc::clone(&store), Settings::default()).await;
        let (org, clock) = (acme(&*store).await, Arc::new(ManualClock::default()));
        let mut contents = ["a", "b", "c"].map(digest).to_vec();
        contents.sort_unstable();
        for content in &contents {
            assert!(store.put_pending(org, content, clock.now()).await.unwrap(), "{}", stored.name);
        }
        clock.advance(LEAST_GRACE);
        let (settings, random) = (Settings::default(), Arc::new(SystemRandom));
        let evidence = Evidence::with_sources(Arc::clone(&store), settings, clock, random);
        let evidence = evidence.with_attachments(Arc::new(StubBlobs::stubborn(&contents[..1])));
        let error = sweep().pass(&evidence).await.unwrap_err();
        assert!(matches!(error, evidence_core::Error::Store(StoreError::Unavailable(_))), "{error:?}");
        let left: Vec<_> =
            store.pending(None, 9).await.unwrap().into_iter().map(|note| note.sha256).collect();
        assert_eq!(left, contents[..1], "{}", stored.name);
        drop(stored.guard);
    }
}

#[tokio::test]
async fn what_cannot_be_removed_of_one_organization_keeps_nothing_of_another() {
    for stored in stores().await {
        let store = Arc::clone(&stored.store);
        fixture(Arc::clone(&store), Settings::default()).await;
        let own = org_id(&*store, "jane", "jane").await;
        let (acme, random) = (acme(&*store).await, Arc::new(SystemRandom));
        let marker = Marker::default();
        for (stuck, other) in [(acme, own), (own, acme)] {
            let clock = Arc::new(ManualClock::default());
            let contents: Vec<_> = (0..40).map(|n| digest(&format!("{stuck}{n}"))).collect();
            for content in &contents {
                assert!(store.put_pending(stuck, content, clock.now()).await.unwrap(), "{}", stored.name);
            }
            assert!(store.put_pending(other, &digest("a"), clock.now()).await.unwrap(), "{}", stored.name);
            clock.advance(LEAST_GRACE);
            let settings = Settings::default();
            let evidence =
                Evidence::with_sources(Arc::clone(&store), settings, clock.clone(), random.clone());
            let evidence = evidence.with_attachments(Arc::new(StubBlobs {
                marker: marker.clone(),
                ..StubBlobs::stubborn(contents)
            }));
            sweep().pass(&evidence).await.unwrap_err();
            let notes = store.pending(None, 100).await.unwrap();
            assert!(
                notes.iter().all(|note| note.org != other || note.sha256 != digest("a")),
                "{}",
                stored.name
            );
            let tried = |note: &&Pending| note.org == stuck && note.kept_at == clock.now();
            assert_eq!(notes.iter().filter(tried).count(), 16, "{}", stored.name);
        }
        drop(stored.guard);
    }
}

#[tokio::test]
async fn a_place_that_removes_nothing_refuses_no_upload() {
    for stored in stores().await {
        let store = Arc::clone(&stored.store);
        fixture(Arc::clone(&store), Settings::default()).await;
        let (org, clock) = (acme(&*store).await, Arc::new(ManualClock::default()));
        let names: Vec<_> = (0..40).map(|n| n.to_string()).collect();
        let contents: Vec<_> = names.iter().map(|name| digest(name)).collect();
        for content in &contents {
            assert!(store.put_pending(org, content, clock.now()).await.unwrap(), "{}", stored.name);
        }
        clock.advance(LEAST_GRACE);
        let random = Arc::new(SystemRandom);
        let evidence = Evidence::with_sources(Arc::clone(&store), Settings::default(), clock.clone(), random);
        let evidence = evidence.with_attachments(Arc::new(StubBlobs::stubborn(contents)));
        let api = Api::new(evidence.clone(), Mount::Tower, stored.name).await;
        // Those that were tried rest for another grace, so that each has its turn.
        for rests in [16, 32, 40] {
            sweep().pass(&evidence).await.map(drop).unwrap_or_default();
            let notes = store.pending(None, 100).await.unwrap();
            assert!(notes.iter().all(|note| note.removing_at.is_none()), "{}", stored.name);
            let resting = notes.iter().filter(|note| note.kept_at == clock.now()).count();
            assert_eq!(resting, rests, "{}", stored.name);
        }
        for name in [&names[0], &names[39]] {
            assert_eq!(attest(&api, &[name]).await, CREATED, "{}", stored.name);
        }
        drop(stored.guard);
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_still_be_removed_is_not_kept_meanwhile() {
    // The outcome of a removal is unknown: it fails, or is not answered.
    for fails in [true, false] {
        let failed = || Err(StoreError::Failed("cut off".into()));
        let outcome = move || if fails { ready(failed()).boxed() } else { pending().boxed() };
        may_still_be_removed(StubBlobs { remove: Box::new(move |_| outcome()), ..StubBlobs::default() })
            .await;
    }
}

async fn may_still_be_removed(attachments: StubBlobs) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    fixture(Arc::clone(&store), Settings::default()).await;
    let (org, clock) = (acme(&*store).await, Arc::new(ManualClock::default()));
    assert!(store.put_pending(org, &digest("a"), clock.now()).await.unwrap());
    clock.advance(LEAST_GRACE);
    let random = Arc::new(SystemRandom);
    let evidence = Evidence::with_sources(Arc::clone(&store), Settings::default(), clock.clone(), random);
    let evidence = evidence.with_attachments(Arc::new(attachments));
    sweep().pass(&evidence).await.unwrap_err();
    clock.advance(2 * LEAST_GRACE);
    assert!(!store.put_pending(org, &digest("a"), clock.now()).await.unwrap());
}

#[tokio::test]
async fn what_was_kept_too_long_ago_is_not_recorded() {
    let store = stores().await.remove(0).store;
    fixture(Arc::clone(&store), Settings::default()).await;
    let clock = Arc::new(ManualClock::default());
    let evidence = Evidence::with_sources(store, Settings::default(), clock.clone(), Arc::new(SystemRandom));
    let slow = StubBlobs { put: Box::new(move |_| clock.advance(30 * MINUTE)), ..StubBlobs::default() };
    let evidence = evidence.with_attachments(Arc::new(slow));
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    assert_eq!(attest(&api, &["a"]).await, AWAY);
    assert_eq!(attest(&api, &[]).await, CREATED);
    api.get("/attestations/acme/shop/trail/t/one").await.expect(200, json!([{"attachments": []}]));
}

#[tokio::test]
async fn a_grace_is_no_shorter_than_a_record_may_take() {
    let short = LEAST_GRACE - Duration::from_nanos(1);
    assert_eq!(Sweep::after(short).unwrap_err(), GraceTooShort(short));
    let evidence = in_memory().await;
    assert_eq!(sweep().pass(&evidence).await.unwrap(), 0);
}
