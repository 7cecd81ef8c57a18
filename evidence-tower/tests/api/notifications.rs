//! The job that notifies, by what a sender of the host is given: over every store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use evidence_conformance::memory::MemoryStore;
use evidence_core::actions::{Destination, SecretUrl, UrlKey};
use evidence_core::background::Background;
use evidence_core::id::{Id, SystemRandom};
use evidence_core::leases::Lease;
use evidence_core::notifications::{Delivery, Message, NotSent, Notify, Sender, replay};
use evidence_core::seed::Seed;
use evidence_core::time::{Clock, Timestamp};
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::intercepting_store::{Call, InterceptingStore, take_counts, take_queries};
use crate::support::TEST_TIMEOUT;
use crate::support::prelude::*;

const ENVIRONMENTS: &str = "/actions/acme/environments";

/// An attempt, as the sender was given it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Attempt {
    /// The last segment of the URL, or the mail address.
    whom: String,
    id: String,
    /// The environment, or the flow.
    place: String,
    /// The first digit of the artifact's fingerprint, or the name of the trail.
    what: String,
}

/// Writes attempts down, and answers them: some fail, and some wait until they are let go.
#[derive(Default)]
struct Postbox {
    attempts: Mutex<Vec<Attempt>>,
    down: Mutex<BTreeSet<String>>,
    /// Whom the next attempt to panics at, when it is let go.
    panics: Mutex<BTreeSet<String>>,
    held: Mutex<BTreeSet<String>>,
    released: watch::Sender<()>,
    /// How many are under way, and were at most, to each.
    under_way: Mutex<BTreeMap<String, (usize, usize)>>,
}

fn whom(destination: &Destination<SecretUrl>) -> String {
    match destination {
        Destination::Webhook { url } | Destination::Slack { url, .. } => {
            url.expose().rsplit('/').next().unwrap().to_owned()
        }
        Destination::Email { addresses } => addresses.join(","),
    }
}

#[async_trait]
impl Sender for Postbox {
    async fn send(&self, message: &Message) -> Result<(), NotSent> {
        let payload: Value = serde_json::from_str(&message.payload).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = if payload["flow"].is_string() { &payload["flow"] } else { &payload["environment"] };
        let what = match &payload["trail"]["name"] {
            Value::String(trail) => trail.clone(),
            _ => text(&payload["artifact"]["fingerprint"]).chars().take(1).collect(),
        };
        let whom = whom(&message.destination);
        let attempt = Attempt { whom: whom.clone(), id: message.id.clone(), place: text(place), what };
        self.attempts.lock().unwrap().push(attempt);
        // Whose attempts count together begins alike.
        let whose: String = whom.chars().take(1).collect();
        {
            let mut under_way = self.under_way.lock().unwrap();
            let (now, most) = under_way.entry(whose.clone()).or_default();
            *now += 1;
            *most = (*most).max(*now);
        }
        let mut released = self.released.subscribe();
        while self.held.lock().unwrap().contains(&whose) {
            released.changed().await.unwrap();
        }
        self.under_way.lock().unwrap().get_mut(&whose).unwrap().0 -= 1;
        let panics = self.panics.lock().unwrap().remove(&whom);
        assert!(!panics, "the sender breaks off");
        if self.down.lock().unwrap().contains(&whom) {
            return Err(NotSent::new("it is down"));
        }
        Ok(())
    }
}

impl Postbox {
    fn attempts(&self) -> Vec<Attempt> {
        self.attempts.lock().unwrap().clone()
    }

    fn of(&self, whom: &str) -> Vec<Attempt> {
        self.attempts().into_iter().filter(|attempt| attempt.whom == whom).collect()
    }

    /// The notifications of one target, in order.
    fn told(&self, whom: &str) -> Vec<String> {
        self.of(whom).into_iter().map(|attempt| attempt.what).collect()
    }

    fn hold(&self, whose: &str) {
        self.held.lock().unwrap().insert(whose.to_owned());
    }

    fn release(&self) {
        self.held.lock().unwrap().clear();
        self.released.send_replace(());
    }

    fn at_once(&self, whose: &str) -> usize {
        self.under_way.lock().unwrap().get(whose).map_or(0, |(_, most)| *most)
    }
}

/// Waits until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

/// A server with the job, over a store.
struct Bench {
    api: Api,
    store: Arc<dyn Store>,
    service: Evidence,
    clock: Arc<ManualClock>,
    postbox: Arc<Postbox>,
    background: Background,
}

impl Bench {
    async fn over(store: Arc<dyn Store>, name: &'static str) -> Self {
        fixture(Arc::clone(&store), Settings::default()).await;
        let clock = Arc::new(ManualClock::default());
        let now = Arc::clone(&clock) as Arc<dyn Clock>;
        let service =
            Evidence::with_sources(Arc::clone(&store), Settings::default(), now, Arc::new(SystemRandom));
        let postbox = Arc::new(Postbox::default());
        let job = Notify::new(Arc::clone(&postbox) as _);
        let background = service.background(Duration::from_secs(60), vec![Arc::new(job)]);
        let api = Api::new(service.clone(), Mount::Tower, name).await;
        Self { api, store, service, clock, postbox, background }
    }

    /// Lets a second pass.
    fn tick(&self) {
        self.clock.advance(Duration::from_secs(1));
    }

    /// Reports that these run, and no other.
    async fn runs(&self, environment: &str, digits: &str) {
        self.tick();
        let running: Vec<_> = digits.chars().map(|digit| (digit, &[1_i64][..])).collect();
        self.api.report_running(environment, &running).await.created();
        self.tick();
    }

    async fn until_told(&self, whom: &str, what: &[&str]) {
        let told = async || self.postbox.told(whom).len() >= what.len();
        until(&format!("{whom} is told {what:?}"), told).await;
        assert_eq!(self.postbox.told(whom), what, "{whom}");
    }

    /// Waits until nothing is left that one of these targets is to be told of.
    async fn until_at_rest(&self, targets: &[Id]) {
        let org = acme(&*self.store).await;
        until("nothing is left", async || {
            let known = self.store.deliveries(org, targets).await.unwrap();
            known.iter().all(|known| known.due_at.is_none())
        })
        .await;
    }

    /// The ids of the targets of an action.
    async fn targets(&self, number: u64) -> Vec<Id> {
        let org = acme(&*self.store).await;
        let action = self.store.action_numbered(org, number).await.unwrap().unwrap().record;
        action.targets.into_iter().map(|target| target.id).collect()
    }
}

fn with_every_store(case: impl AsyncFn(Bench)) {
    block_on(async {
        for stored in stores().await {
            case(Bench::over(stored.store, stored.name).await).await;
            drop(stored.guard);
        }
    });
}

fn hook(whom: &str) -> Value {
    json!({"type": "WEBHOOK", "webhook": format!("https://hooks.example.com/{whom}")})
}

fn started(name: &str, environments: &[&str], targets: &[Value]) -> Value {
    json!({"name": name, "environments": environments, "triggers": ["ON_STARTED_ARTIFACT"], "targets": targets})
}

#[test]
fn what_waits_for_a_target_is_told_at_the_address_that_it_is_given_and_a_new_one_is_told_from_then_on() {
    with_every_store(async |bench| {
        let (api, postbox) = (&bench.api, &bench.postbox);
        api.given_environments("docker", &["prod"]).await;
        postbox.down.lock().unwrap().insert("a".to_owned());
        let chat = json!({"type": "SLACK", "webhook": "https://hooks.example.com/b"});
        let first = started("alert", &["prod"], &[hook("a"), chat.clone()]);
        api.put(ENVIRONMENTS).json(first).await.created();
        bench.runs("prod", "1").await;
        bench.until_told("b", &["1"]).await;
        until("an attempt failed", async || {
            api.get("/actions/acme/1").await.ok()["is_failing"] == json!(true)
        })
        .await;
        bench.runs("prod", "12").await;
        let failed = postbox.of("a").len();
        assert!(failed > 0 && postbox.told("a").iter().all(|what| what == "1"));
        bench.until_told("b", &["1", "2"]).await;
        // The same targets, in another order, with other triggers: nothing is lost, and nothing is told twice.
        let mut again = started("alert", &["prod"], &[chat.clone(), hook("a")]);
        again["triggers"] = json!(["ON_EXITED_ARTIFACT", "ON_STARTED_ARTIFACT"]);
        api.put(ENVIRONMENTS).json(again).await.ok();
        bench.runs("prod", "123").await;
        bench.until_told("b", &["1", "2", "3"]).await;
        // Another artifact fails now, and another one is new.
        let mail = json!({"type": "EMAIL", "emails": ["d@example.com"]});
        let last = started("alert", &["prod"], &[hook("c"), chat, mail]);
        api.put(ENVIRONMENTS).json(last).await.ok();
        bench.until_told("c", &["1", "2", "3"]).await;
        bench.runs("prod", "1234").await;
        bench.until_told("c", &["1", "2", "3", "4"]).await;
        bench.until_told("b", &["1", "2", "3", "4"]).await;
        bench.until_told("d@example.com", &["4"]).await;
        assert_eq!(postbox.of("a")[0].id, postbox.of("c")[0].id, "the same event");
        let shown = api.get("/actions/acme/1").await.ok();
        assert_eq!(shown["is_failing"], json!(false), "{shown}");
        assert_eq!(shown["targets"][0]["last_failure_at"], json!(null), "of the former address");

        let org = acme(&*bench.store).await;
        assert_eq!(replay(&bench.service, org, 1, NOW).await.unwrap(), 3);
        bench.until_told("c", &["1", "2", "3", "4", "1", "2", "3", "4"]).await;
        bench.until_told("d@example.com", &["4", "4"]).await;
        let ids: Vec<_> = postbox.of("c").into_iter().map(|attempt| attempt.id).collect();
        assert_eq!(ids[..4], ids[4..]);
        // Some may have been made when the address was changed, but none later.
        assert!(postbox.told("a").iter().all(|what| what == "1"));
    });
}

#[test]
fn a_mail_that_the_relay_refused_comes_again_to_all_of_its_addresses() {
    with_every_store(async |bench| {
        let (api, postbox) = (&bench.api, &bench.postbox);
        api.given_environments("docker", &["prod"]).await;
        let both = "a@example.com,b@example.com";
        postbox.down.lock().unwrap().insert(both.to_owned());
        let mail = json!({"type": "EMAIL", "emails": ["a@example.com", "b@example.com"]});
        api.put(ENVIRONMENTS).json(started("alert", &["prod"], &[mail])).await.created();
        bench.runs("prod", "1").await;
        bench.until_told(both, &["1"]).await;
        let is_failing = async || api.get("/actions/acme/1").await.ok()["is_failing"] == json!(true);
        until("it is failing", async || is_failing().await).await;
        postbox.down.lock().unwrap().clear();
        bench.clock.advance(Duration::from_secs(60 * 60));
        bench.until_told(both, &["1", "1"]).await;
        until("all have it", async || !is_failing().await).await;
        let attempts = postbox.attempts();
        assert_eq!((attempts.len(), &attempts[0]), (2, &attempts[1]));
    });
}

#[test]
fn a_url_that_another_key_encrypted_fails_until_it_is_sent_again() {
    with_every_store(async |bench| {
        let (api, postbox) = (&bench.api, &bench.postbox);
        api.given_environments("docker", &["prod"]).await;
        let settings = Settings { url_key: Some(UrlKey::new([1; 32])), ..Settings::default() };
        let now = Arc::clone(&bench.clock) as Arc<dyn Clock>;
        let other = Evidence::with_sources(Arc::clone(&bench.store), settings, now, Arc::new(SystemRandom));
        let other = Api::new(other, Mount::Tower, "with a key").await;
        let alert = started("alert", &["prod"], &[hook("a"), hook("b")]);
        other.put(ENVIRONMENTS).json(&alert).await.created();
        other.put(ENVIRONMENTS).json(&alert).await.expect_exactly(200, json!("OK"));
        bench.runs("prod", "1").await;
        let is_failing = async || api.get("/actions/acme/1").await.ok()["is_failing"] == json!(true);
        until("it is failing", async || is_failing().await).await;
        let targets = bench.targets(1).await;
        api.put(ENVIRONMENTS).json(&alert).await.ok();
        assert_eq!(bench.targets(1).await, targets, "the same targets");
        bench.clock.advance(Duration::from_secs(60 * 60));
        bench.until_told("a", &["1"]).await;
        bench.until_told("b", &["1"]).await;
        assert_eq!(postbox.attempts().len(), 2, "nothing was sent before");
    });
}

#[test]
fn mails_that_take_long_hold_up_no_webhook() {
    with_every_store(async |bench| {
        let (api, postbox) = (&bench.api, &bench.postbox);
        api.given_environments("docker", &["prod"]).await;
        postbox.hold("m");
        let mail = |number| json!({"type": "EMAIL", "emails": [format!("m{number}@example.com")]});
        let mails: Vec<_> = (0..20).map(mail).collect();
        api.put(ENVIRONMENTS).json(started("mails", &["prod"], &mails)).await.created();
        api.put(ENVIRONMENTS).json(started("hook", &["prod"], &[hook("w")])).await.created();
        bench.runs("prod", "1").await;
        bench.until_told("w", &["1"]).await;
        until("mails are under way", async || postbox.at_once("m") == 8).await;
        bench.runs("prod", "12").await;
        bench.until_told("w", &["1", "2"]).await;
        assert_eq!(postbox.at_once("m"), 8);
        postbox.release();
        bench.until_at_rest(&bench.targets(1).await).await;
    });
}

#[test]
fn what_is_known_of_a_target_goes_with_it() {
    with_every_store(async |bench| {
        let (api, org) = (&bench.api, acme(&*bench.store).await);
        api.given_environments("docker", &["prod"]).await;
        let put = async |targets: &[Value]| {
            bench.tick();
            assert!(
                api.put(ENVIRONMENTS).json(started("alert", &["prod"], targets)).await.status.is_success()
            );
        };
        put(&[hook("a"), hook("b")]).await;
        let targets = bench.targets(1).await;
        bench.runs("prod", "1").await;
        bench.until_told("a", &["1"]).await;
        bench.until_told("b", &["1"]).await;
        put(&[hook("b")]).await;
        let known = async || bench.store.deliveries(org, &targets).await.unwrap().len();
        until("one is forgotten", async || known().await == 1).await;
        bench.runs("prod", "2").await;
        bench.until_told("b", &["1", "2"]).await;
        assert_eq!(bench.postbox.told("a"), ["1"]);
        // The last one goes with the last action.
        bench.until_at_rest(&targets).await;
        assert_eq!(known().await, 1);
        api.delete("/actions/acme/1").await.ok();
        until("the other is forgotten", async || known().await == 0).await;
    });
}

/// No server is at work when it is deleted, nor while more is recorded than is gone through at a time.
#[tokio::test]
async fn what_is_known_of_a_target_goes_though_much_happens_before_that_is_noticed() {
    let bench = Bench::over(Arc::new(MemoryStore::new()), "memory").await;
    bench.api.given_environments("docker", &["prod"]).await;
    bench.api.given_flow("shop", "version: 1").await;
    bench.api.put(ENVIRONMENTS).json(started("alert", &["prod"], &[hook("a")])).await.created();
    let targets = bench.targets(1).await;
    bench.runs("prod", "1").await;
    bench.until_told("a", &["1"]).await;
    bench.until_at_rest(&targets).await;
    let Bench { api, store, service, clock, postbox, background } = bench;
    background.stop().await;
    api.delete("/actions/acme/1").await.ok();
    for number in 0..300 {
        api.put("/trails/acme/shop")
            .data_json(json!({"name": format!("t{number}"), "description": ""}))
            .await
            .created();
    }
    clock.advance(Duration::from_secs(1));
    api.put(ENVIRONMENTS).json(started("another", &["prod"], &[hook("b")])).await.created();
    let org = acme(&*store).await;
    let known = async || store.deliveries(org, &targets).await.unwrap().len();
    assert_eq!(known().await, 1);
    let background = service.background(Duration::from_secs(60), vec![Arc::new(Notify::new(postbox as _))]);
    until("it is forgotten", async || known().await == 0).await;
    background.stop().await;
}

/// Each step, and whether it makes the environment non-compliant or compliant: the state before may be unknown.
#[test]
fn that_an_environment_becomes_non_compliant_is_told_whatever_it_was_before() {
    with_every_store(async |bench| {
        let api = &bench.api;
        api.given_environments("docker", &["prod", "last"]).await;
        for (name, text) in
            [("empty", "_schema: https://example.com/v1"), ("strict", PROVENANCE), ("strict2", PROVENANCE)]
        {
            api.put_policy(name, text).await.created();
        }
        api.attach("last", "strict").await;
        for (name, trigger, environment) in [
            ("bad", "ON_NON_COMPLIANT_ENV", "prod"),
            ("good", "ON_COMPLIANT_ENV", "prod"),
            ("end", "ON_NON_COMPLIANT_ENV", "last"),
        ] {
            let action = json!({"name": name, "environments": [environment], "triggers": [trigger], "targets": [hook(name)]});
            api.put(ENVIRONMENTS).json(action).await.created();
        }
        let attach = async |policy: &str| api.attach("prod", policy).await;
        let detach = async |policy: &str| {
            let names = json!({"policy_names": [policy]});
            api.delete("/environments/acme/prod/policies").json(names).await.ok();
        };
        // How often each was told after so many steps.
        let (mut bad, mut good) = (0, 0);
        let table: [(&str, &str, usize, usize); 12] = [
            ("runs", "1", 0, 0),
            ("attach", "strict", 1, 0),
            ("runs", "12", 0, 0),
            ("attach", "strict2", 0, 0),
            ("runs", "", 0, 1),
            ("runs", "1", 1, 0),
            ("detach", "strict", 0, 0),
            ("detach", "strict2", 0, 0),
            ("attach", "strict", 1, 0),
            ("detach", "strict", 0, 0),
            ("attach", "empty", 0, 0),
            ("attach", "strict", 1, 0),
        ];
        for (step, with, more_bad, more_good) in table {
            match step {
                "runs" => bench.runs("prod", with).await,
                "attach" => attach(with).await,
                _ => detach(with).await,
            }
            (bad, good) = (bad + more_bad, good + more_good);
        }
        // Its first verdict, after all that.
        bench.runs("last", "1").await;
        let last = || bench.postbox.told("end").len() == 1;
        until("the first verdict is told", async || last()).await;
        until("all is told", async || {
            (bench.postbox.told("bad").len(), bench.postbox.told("good").len()) == (bad, good)
        })
        .await;
    });
}

#[test]
fn a_logical_environment_stands_for_its_members() {
    with_every_store(async |bench| {
        let api = &bench.api;
        api.given_environments("docker", &["prod", "test"]).await;
        let all =
            json!({"name": "all", "type": "logical", "description": "", "included_environments": ["prod"]});
        api.put("/environments/acme").json(all).await.created();
        api.put(ENVIRONMENTS).json(started("group", &["all"], &[hook("group")])).await.created();
        api.put(ENVIRONMENTS).json(started("both", &["all", "prod"], &[hook("both")])).await.created();
        api.put(ENVIRONMENTS).json(started("mixed", &["all", "test"], &[hook("mixed")])).await.created();
        bench.runs("prod", "1").await;
        bench.until_told("group", &["1"]).await;
        assert_eq!(bench.postbox.of("group")[0].place, "prod");
        // No member yet.
        bench.runs("test", "2").await;
        bench.until_told("mixed", &["1", "2"]).await;
        let join = json!({"physical_env_name": "test"});
        api.put("/environments/acme/all/join").json(join).await.ok();
        bench.runs("test", "23").await;
        bench.until_told("group", &["1", "3"]).await;
        bench.runs("prod", "14").await;
        bench.until_told("group", &["1", "3", "4"]).await;
        bench.until_told("both", &["1", "3", "4"]).await;
        bench.until_told("mixed", &["1", "2", "3", "4"]).await;
        bench.runs("prod", "147").await;
        bench.until_told("group", &["1", "3", "4", "7"]).await;
        // An archived environment is not watched.
        api.put("/environments/acme/all/archive").await.ok();
        bench.runs("prod", "145").await;
        bench.runs("test", "236").await;
        bench.until_told("mixed", &["1", "2", "3", "4", "7", "6"]).await;
        bench.until_told("both", &["1", "3", "4", "7", "5"]).await;
        assert_eq!(bench.postbox.told("group"), ["1", "3", "4", "7"]);
    });
}

/// Each step, and whether what runs in the member then violates the policies of the logical environment or complies with them,
/// and did not before.
#[test]
fn that_a_member_violates_the_policies_of_a_logical_environment_is_told_who_watches_that() {
    with_every_store(async |bench| {
        let api = &bench.api;
        api.given_environments("docker", &["prod"]).await;
        for (name, text) in [("own", "_schema: https://example.com/v1"), ("strict", PROVENANCE)] {
            api.put_policy(name, text).await.created();
        }
        api.attach("prod", "own").await;
        let all = json!({
            "name": "all", "type": "logical", "description": "", "included_environments": ["prod"],
            "policies": ["strict"],
        });
        api.put("/environments/acme").json(all).await.created();
        for (name, trigger, environment) in [
            ("bad", "ON_NON_COMPLIANT_ENV", "all"),
            ("good", "ON_COMPLIANT_ENV", "all"),
            ("member", "ON_NON_COMPLIANT_ENV", "prod"),
        ] {
            let action = json!({"name": name, "environments": [environment], "triggers": [trigger], "targets": [hook(name)]});
            api.put(ENVIRONMENTS).json(action).await.created();
        }
        let told = |whom: &str| bench.postbox.told(whom).len();
        // The running artifacts, and the number of notifications of each target.
        for (digits, bad, good) in [("1", 1, 0), ("12", 1, 0), ("", 1, 1), ("3", 2, 1)] {
            bench.runs("prod", digits).await;
            until("it is told", async || (told("bad"), told("good")) == (bad, good)).await;
        }
        let sent = bench.postbox.of("bad");
        assert!(sent.iter().all(|one| one.place == "prod"));
        assert_eq!(told("member"), 0);
    });
}

#[test]
fn what_becomes_of_an_attempt_is_not_that_of_the_target_that_came_meanwhile() {
    with_every_store(async |bench| {
        let (api, postbox) = (&bench.api, &bench.postbox);
        let org = acme(&*bench.store).await;
        api.given_environments("docker", &["prod"]).await;
        api.put(ENVIRONMENTS).json(started("alert", &["prod"], &[hook("a")])).await.created();
        postbox.hold("a");
        bench.runs("prod", "12").await;
        until("an attempt is under way", async || postbox.told("a").len() == 1).await;
        let targets = bench.targets(1).await;
        let before = bench.store.deliveries(org, &targets).await.unwrap().remove(0);
        api.put(ENVIRONMENTS).json(started("alert", &["prod"], &[hook("b")])).await.ok();
        until("the delivery is that of the other", async || {
            bench.store.deliveries(org, &targets).await.unwrap()[0].revision > before.revision
        })
        .await;
        postbox.release();
        bench.until_told("b", &["1", "2"]).await;
        assert_eq!(postbox.told("a"), ["1"]);
        assert_eq!(postbox.of("a")[0].id, postbox.of("b")[0].id);

        // One that is taken away is told nothing more, and nothing of it is kept.
        postbox.hold("b");
        bench.runs("prod", "1234").await;
        until("an attempt is under way", async || postbox.told("b").len() == 3).await;
        api.put(ENVIRONMENTS).json(started("marker", &["prod"], &[hook("m")])).await.created();
        api.delete("/actions/acme/1").await.ok();
        until("the delivery is forgotten", async || {
            bench.store.deliveries(org, &targets).await.unwrap().is_empty()
        })
        .await;
        postbox.release();
        bench.runs("prod", "12345").await;
        bench.until_told("m", &["5"]).await;
        assert_eq!(postbox.told("b"), ["1", "2", "3"]);
        assert!(bench.store.deliveries(org, &targets).await.unwrap().is_empty());
    });
}

#[test]
fn one_organization_holds_up_no_other() {
    with_every_store(async |bench| {
        let (api, postbox) = (&bench.api, &bench.postbox);
        api.given_environments("docker", &["prod"]).await;
        let theirs = json!({"name": "prod", "type": "docker", "description": ""});
        api.put("/environments/foobar").key(JOHN).json(theirs).await.created();
        let ten = |from: usize| (from..from + 10).map(|n| hook(&format!("a{n}"))).collect::<Vec<_>>();
        api.put(ENVIRONMENTS).json(started("x", &["prod"], &ten(10))).await.created();
        api.put(ENVIRONMENTS).json(started("y", &["prod"], &ten(20))).await.created();
        let one = started("z", &["prod"], &[hook("other")]);
        api.put("/actions/foobar/environments").key(JOHN).json(one).await.created();
        postbox.hold("a");
        bench.runs("prod", "1").await;
        until("attempts are under way", async || postbox.attempts().len() == 8).await;
        let digests = json!({"app": fingerprint('2')});
        let report = json!({"artifacts": [{"digests": digests, "creationTimestamp": 1}]});
        api.put("/environments/foobar/prod/report/docker").key(JOHN).json(report).await.created();
        bench.tick();
        bench.until_told("other", &["2"]).await;
        assert_eq!(postbox.at_once("a"), 8);
        postbox.release();
        until("all are told", async || postbox.attempts().len() == 21).await;
        let told: BTreeSet<_> = postbox.attempts().into_iter().map(|attempt| attempt.whom).collect();
        assert_eq!(told.len(), 21, "{told:?}");
        assert_eq!(postbox.at_once("a"), 8);
    });
}

/// More than is planned, and more than is told, in one go.
#[tokio::test]
async fn a_target_comes_to_the_end_of_what_waits_for_it() {
    const TRAILS: usize = 1_100;
    let bench = Bench::over(Arc::new(MemoryStore::new()), "memory").await;
    let (api, postbox) = (&bench.api, &bench.postbox);
    api.given_flow("shop", "version: 1").await;
    let action = json!({
        "name": "begun", "flows": ["shop"], "triggers": ["ON_STARTED_TRAIL"], "targets": [hook("a"), hook("b")],
    });
    api.put("/actions/acme/flows").json(action).await.created();
    postbox.down.lock().unwrap().insert("b".to_owned());
    for number in 0..TRAILS {
        api.put("/trails/acme/shop")
            .data_json(json!({"name": format!("t{number}"), "description": ""}))
            .await
            .created();
    }
    until("all is told", async || postbox.told("a").len() == TRAILS).await;
    let expected: Vec<_> = (0..TRAILS).map(|number| format!("t{number}")).collect();
    assert_eq!(postbox.told("a"), expected);
    // An unreachable target gets the same notifications later.
    postbox.down.lock().unwrap().clear();
    bench.clock.advance(Duration::from_secs(60 * 60));
    until("all is told", async || postbox.told("b").last() == expected.last()).await;
    let mut told = postbox.told("b");
    told.dedup();
    assert_eq!(told, expected);
    let ids: BTreeSet<_> = postbox.attempts().into_iter().map(|attempt| attempt.id).collect();
    assert_eq!(ids.len(), 2 * TRAILS);
}

#[test]
fn an_attempt_that_breaks_off_puts_off_nothing_that_was_moved_back_meanwhile() {
    with_every_store(async |bench| {
        let (api, postbox) = (&bench.api, &bench.postbox);
        let org = acme(&*bench.store).await;
        api.given_environments("docker", &["prod"]).await;
        api.put(ENVIRONMENTS).json(started("alert", &["prod"], &[hook("a")])).await.created();
        bench.runs("prod", "1").await;
        bench.until_told("a", &["1"]).await;
        postbox.hold("a");
        bench.runs("prod", "12").await;
        bench.until_told("a", &["1", "2"]).await;
        assert_eq!(replay(&bench.service, org, 1, NOW).await.unwrap(), 1);
        postbox.panics.lock().unwrap().insert("a".to_owned());
        postbox.release();
        bench.until_told("a", &["1", "2", "1", "2"]).await;
    });
}

/// As after a failed attempt while the clock was three years ahead.
#[test]
fn a_delivery_put_off_by_a_clock_that_was_ahead_is_sent_with_the_next_event() {
    with_every_store(async |bench| {
        let (api, postbox, store) = (&bench.api, &bench.postbox, &bench.store);
        let org = acme(&**store).await;
        api.given_environments("docker", &["prod"]).await;
        api.put(ENVIRONMENTS).json(started("alert", &["prod"], &[hook("a")])).await.created();
        let targets = bench.targets(1).await;
        postbox.down.lock().unwrap().insert("a".to_owned());
        bench.runs("prod", "1").await;
        until("it is put off", async || {
            let known = store.deliveries(org, &targets).await.unwrap().pop();
            let Some(known) = known.filter(|known| known.state.attempts > 0) else { return false };
            let far = Delivery { due_at: Some(in_seconds(3 * 365 * 86_400)), ..known };
            // An attempt may end meanwhile.
            store.put_delivery(&far, None).await.unwrap()
        })
        .await;
        postbox.down.lock().unwrap().clear();
        bench.runs("prod", "12").await;
        until("both are told", async || postbox.told("a").ends_with(&["1".to_owned(), "2".to_owned()])).await;
        bench.until_at_rest(&targets).await;
    });
}

/// Right before the job notes the first event of a target, somebody else has it told again.
#[tokio::test]
async fn a_row_that_somebody_else_made_meanwhile_is_kept() {
    for stored in stores().await {
        let (inner, puts) = (Arc::clone(&stored.store), AtomicUsize::new(0));
        let forgotten = Arc::new(AtomicUsize::new(0));
        let forgets = Arc::clone(&forgotten);
        let make = move |call| {
            let is_forgotten = call == Call::Query("forget_delivery");
            forgets.fetch_add(usize::from(is_forgotten), Ordering::SeqCst);
            let is_first = call == Call::Query("put_delivery") && puts.fetch_add(1, Ordering::SeqCst) == 0;
            let inner = Arc::clone(&inner);
            Box::pin(async move {
                if is_first {
                    let org = acme(&*inner).await;
                    let clock = Arc::new(ManualClock::default()) as Arc<dyn Clock>;
                    let random = Arc::new(SystemRandom);
                    let other = Evidence::with_sources(inner, Settings::default(), clock, random);
                    assert_eq!(replay(&other, org, 1, NOW).await.unwrap(), 1);
                }
            }) as BoxFuture<'static, ()>
        };
        let store = Arc::new(InterceptingStore::new(Arc::clone(&stored.store), make));
        let bench = Bench::over(store, stored.name).await;
        bench.api.given_environments("docker", &["prod"]).await;
        bench.api.put(ENVIRONMENTS).json(started("x", &["prod"], &[hook("a")])).await.created();
        bench.runs("prod", "1").await;
        bench.until_told("a", &["1"]).await;
        assert_eq!(forgotten.load(Ordering::SeqCst), 0, "{}", stored.name);
        drop(stored.guard);
    }
}

/// It stalls before it notes that nothing is left, and another one takes the lease meanwhile: that one may have planned more.
#[tokio::test]
async fn a_server_that_was_taken_over_notes_no_target_to_have_nothing_left() {
    /// One when the event is planned, one when it was told, and one when nothing is left.
    const LAST: usize = 3;
    for stored in stores().await {
        let (inner, puts) = (Arc::clone(&stored.store), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&puts);
        let take_over = move |call| {
            let is_last =
                call == Call::Query("put_delivery") && counted.fetch_add(1, Ordering::SeqCst) + 1 == LAST;
            let inner = Arc::clone(&inner);
            Box::pin(async move {
                if is_last {
                    let now = in_seconds(500);
                    let lease = Lease {
                        name: "notify".to_owned(),
                        holder: OTHER.parse().unwrap(),
                        expires_at: in_seconds(560),
                    };
                    assert!(inner.acquire_lease(&lease, now).await.unwrap());
                }
            }) as BoxFuture<'static, ()>
        };
        let store = Arc::new(InterceptingStore::new(Arc::clone(&stored.store), take_over));
        let bench = Bench::over(store, stored.name).await;
        bench.api.given_environments("docker", &["prod"]).await;
        bench.api.put(ENVIRONMENTS).json(started("x", &["prod"], &[hook("a")])).await.created();
        bench.runs("prod", "1").await;
        bench.until_told("a", &["1"]).await;
        until("it tries again", async || puts.load(Ordering::SeqCst) > LAST).await;
        let targets = bench.targets(1).await;
        let known = stored.store.deliveries(acme(&*stored.store).await, &targets).await.unwrap();
        assert!(known.iter().all(|known| known.due_at.is_some()), "{}: {known:?}", stored.name);
        assert_eq!((known.len(), bench.postbox.attempts().len()), (1, 1), "{}", stored.name);
        drop(stored.guard);
    }
}

#[tokio::test]
async fn organizations_in_which_nothing_happens_cost_no_query_each() {
    const ORGS: usize = 40;
    let (store, answered) = InterceptingStore::measured(Arc::new(MemoryStore::new()));
    let bench = Bench::over(Arc::new(store), "measured").await;
    let orgs = (0..ORGS).map(|number| format!("idle-{number}").parse().unwrap()).collect();
    let seed = Seed { user: "jane".parse().unwrap(), orgs, api_key: None };
    bench.service.seed(&seed).await.unwrap();
    until("the ledgers were read", async || {
        let [read] = take_counts(&answered, ["ledger_entries"]);
        sleep(Duration::from_secs(2)).await;
        read == 0
    })
    .await;
    take_queries(&answered);
    sleep(Duration::from_secs(3)).await;
    let queries = take_queries(&answered);
    assert!(queries.contains(&"ledger_sizes") && queries.len() < ORGS, "{queries:?}");
}

/// A process that no test starts.
const OTHER: &str = "00000000-0000-0000-0000-00000099";

/// So long after the time at which tests begin.
fn in_seconds(seconds: i64) -> Timestamp {
    Timestamp::from_micros(NOW.as_micros() + seconds * 1_000_000)
}
