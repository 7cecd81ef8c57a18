//! Every store answers alike: a run of random requests, each of which may mention what earlier ones made, is sent to a
//! service over every store in lock step. Statuses, headers and bodies must be equal after each, and the ledgers at the
//! end. `PROPTEST_CASES` asks for more runs.

mod steps;

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use evidence_conformance::memory::MemoryStore;
use evidence_core::auth::ApiKey;
use evidence_core::environments::replay;
use evidence_core::seed::Seed;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

use self::steps::{Step, Text, Thing, runs};
use crate::support::LEDGERS;
use crate::support::prelude::*;
use crate::support::stubs::SignedInMemory;
use crate::support::{Counter, random_cases};

/// So much time passes in a run at most.
const MOST_DAYS: u64 = 100;

/// Two services over one of the stores, which take turns: each remembers what the other may have changed.
struct Contender {
    name: &'static str,
    apis: [Api; 2],
    store: Arc<dyn Store>,
    _guard: Box<dyn Any + Send>,
}

impl Contender {
    async fn new(
        StoreUnderTest { name, store, guard, .. }: StoreUnderTest,
        clock: &Arc<ManualClock>,
    ) -> Self {
        let random = Arc::new(Counter::default());
        let clock = Arc::clone(clock);
        let signed = SignedInMemory::default();
        let service = || {
            let keys = signed.keys(LEDGERS, 7);
            let (store, clock, random) = (Arc::clone(&store), Arc::clone(&clock), Arc::clone(&random));
            Evidence::with_sources(store, Settings::default(), clock, random).with_ledger_keys(keys)
        };
        let services = [service(), service()];
        for (user, org, key) in [("jane", "acme", JANE), ("john", "foobar", JOHN)] {
            let api_key = Some(ApiKey::imported(key.to_owned()));
            let seed = Seed { user: user.parse().unwrap(), orgs: vec![org.parse().unwrap()], api_key };
            services[0].seed(&seed).await.unwrap();
        }
        let [one, another] = services.map(|service| Api::new(service, Mount::Tower, name));
        Self { name, apis: [one.await, another.await], store, _guard: guard }
    }

    async fn send(&self, number: usize, step: &Step, learned: &LearnedIds) -> Reply {
        let path: Vec<&str> = step.path.iter().map(|text| learned.text(text)).collect();
        let asked = step.asked.as_ref().map(|(name, id)| format!("&{name}={}", learned.text(id)));
        let path = format!("/{}?{}{}", path.join("/"), step.query, asked.unwrap_or_default());
        // A credential that one service revokes can still work at another for half a second.
        let is_of_account = step.path.first().is_some_and(|first| learned.text(first) == "service-accounts")
            || matches!(step.key, Text::Learned(Thing::Secret, _));
        let api = if is_of_account { &self.apis[0] } else { &self.apis[number % 2] };
        let request = api.request(step.method.clone(), &path).key(learned.text(&step.key));
        match (&step.sent, step.parts) {
            (None, _) => request.await,
            (Some(sent), None) => request.json(&sent.document).await,
            (Some(sent), Some((document, file))) => {
                let document = (format!("name=\"{document}\""), sent.document.to_string());
                let file =
                    sent.file.clone().map(|text| (format!("name=\"{file}\"; filename=\"f.txt\""), text));
                let parts: Vec<_> = std::iter::once(document).chain(file).collect();
                let parts: Vec<_> = parts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
                request.form(&parts).await
            }
        }
    }

    /// Evaluates every snapshot again from what the ledger had then.
    async fn replay_snapshots(&self) {
        let acme = acme(&*self.store).await;
        for environment in self.store.environments(acme).await.unwrap() {
            for index in 1..=environment.status.snapshots {
                let differences =
                    replay(&*self.store, (acme, environment.record.id, index), Arc::new(MemoryStore::new()))
                        .await
                        .unwrap();
                assert!(differences.is_empty(), "{}#{index}: {differences:?}", environment.record.name);
            }
        }
    }

    /// The size and the root of every ledger.
    async fn ledgers(&self) -> Vec<(&'static str, u64, String)> {
        let mut ledgers = Vec::new();
        for (org, user) in [("acme", "jane"), ("jane", "jane"), ("foobar", "john"), ("john", "john")] {
            let user = self.store.user(user).await.unwrap().unwrap();
            let standing = self.store.org_role(org, user.id).await.unwrap().unwrap();
            let head = self.store.ledger_head(standing.organization.id).await.unwrap().unwrap();
            ledgers.push((org, head.size(), head.root().to_string()));
        }
        ledgers
    }
}

/// The ids that the answers of a run had so far.
#[derive(Debug, Default)]
struct LearnedIds(BTreeMap<Thing, Vec<String>>);

impl LearnedIds {
    fn text<'a>(&'a self, text: &'a Text) -> &'a str {
        match text {
            Text::Given(text) => text,
            Text::Learned(thing, index) => match self.0.get(thing) {
                Some(known) => index.get::<String>(known),
                None if *thing == Thing::Secret => JANE,
                None => "nothing",
            },
        }
    }

    fn learn(&mut self, operation: &str, body: &[u8]) {
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return };
        match operation {
            "get_trail_attestation" | "get_artifact_attestation" => {
                self.note(Thing::Attestation, body.as_array().into_iter().flatten(), "attestation_id");
            }
            "list_artifacts" => self.note(Thing::Artifact, body.as_array().into_iter().flatten(), "id"),
            "list_repos" => self.note(Thing::Repo, body["repos"].as_array().into_iter().flatten(), "id"),
            "create_service_account_api_key" | "rotate_service_account_api_key" => {
                self.note(Thing::Key, [&body], "id");
                self.note(Thing::Secret, [&body], "key");
            }
            _ => {}
        }
    }

    fn note<'a>(&mut self, thing: Thing, items: impl IntoIterator<Item = &'a Value>, field: &str) {
        for text in items.into_iter().filter_map(|item| item[field].as_str()) {
            let known = self.0.entry(thing).or_default();
            if !known.iter().any(|known| known == text) {
                known.push(text.to_owned());
            }
        }
    }
}

/// How often each operation was answered with each status.
type Tally = BTreeMap<(&'static str, u16), usize>;

async fn run(steps: &[Step], tally: &mut Tally) -> TestCaseResult {
    let (clock, mut passed) = (Arc::new(ManualClock::default()), 0);
    let mut contenders = Vec::new();
    for stored in stores().await {
        contenders.push(Contender::new(stored, &clock).await);
    }
    let Some((first, others)) = contenders.split_first() else { return Ok(()) };
    let mut learned = LearnedIds::default();
    for (number, step) in steps.iter().enumerate() {
        // SQLite's stores refuse what is ahead of the machine's clock.
        if passed + step.pause <= MOST_DAYS * 24 * 60 * 60 {
            passed += step.pause;
            clock.advance(Duration::from_secs(step.pause));
        }
        let expected = first.send(number, step, &learned).await;
        prop_assert!(expected.status.as_u16() < 500, "step {number}: {expected:?}");
        for other in others {
            let found = other.send(number, step, &learned).await;
            let alike = (found.status, &found.headers, &found.body)
                == (expected.status, &expected.headers, &expected.body);
            prop_assert!(alike, "step {number}, {} and {}:\n{expected:?}\n{found:?}", first.name, other.name);
        }
        learned.learn(step.operation, &expected.body);
        *tally.entry((step.operation, expected.status.as_u16())).or_default() += 1;
    }
    first.replay_snapshots().await;
    let expected = first.ledgers().await;
    for other in others {
        prop_assert_eq!(&other.ledgers().await, &expected, "{} and {}", first.name, other.name);
    }
    Ok(())
}

/// Runs when nobody asks for another number.
const CASES: u32 = 24;

#[test]
fn every_store_answers_alike() {
    let config = Config { max_shrink_iters: 500, ..random_cases(CASES) };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tally = std::cell::RefCell::new(Tally::new());
    let checked =
        TestRunner::new(config).run(&runs(), |steps| runtime.block_on(run(&steps, &mut tally.borrow_mut())));
    if let Err(failure) = checked {
        panic!("{failure}");
    }
    for ((operation, status), times) in tally.into_inner() {
        println!("{operation} {status}: {times}");
    }
}
