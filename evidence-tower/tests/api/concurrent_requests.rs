//! Requests that read what others write, at the same time, on two servers whose clocks disagree. Whatever the order in
//! which they come through, no request is answered with a server error, and the ledger is consistent: each decision
//! rests on the state that the ledger has before it, no update undoes another, no number is missing, and time never goes back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use evidence_core::RecordKind;
use evidence_core::auth::ApiKey;
use evidence_core::seed::Seed;
use evidence_core::time::{Clock, Timestamp};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep, timeout};

use crate::intercepting_store::{Call, InterceptingStore};
use crate::ledger_checker::LedgerChecker;
use crate::support::Counter;
use crate::support::prelude::*;

/// Goes on by a millisecond with each reading, and is five seconds behind at every third.
#[derive(Default)]
struct JitteringClock(AtomicI64);

impl Clock for JitteringClock {
    fn now(&self) -> Timestamp {
        let reading = self.0.fetch_add(1, Ordering::Relaxed);
        let behind = if reading % 3 == 0 { 5_000 } else { 0 };
        Timestamp::from_micros(NOW.as_micros() + (reading - behind) * 1_000)
    }
}

/// Lets others come between: some turns before each call, and now and then some milliseconds before a write.
fn hesitation() -> impl Fn(Call) -> BoxFuture<'static, ()> + Send + Sync + 'static {
    let calls = AtomicU64::new(1);
    move |call| {
        let dice = calls.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        async move {
            for _ in 0..dice % 4 {
                tokio::task::yield_now().await;
            }
            if call == Call::Write && (dice >> 8).is_multiple_of(2) {
                sleep(Duration::from_millis((dice >> 16) % 16)).await;
            }
        }
        .boxed()
    }
}

/// A server over each of these stores, which are views of one; each with a clock of its own.
async fn servers<const N: usize>(
    stores: [(Arc<dyn Store>, Arc<dyn Clock>); N],
    name: &'static str,
) -> [Api; N] {
    many_servers(stores.into(), name).await.try_into().ok().unwrap()
}

/// The same for so many that they do not fit a stack.
async fn many_servers(stores: Vec<(Arc<dyn Store>, Arc<dyn Clock>)>, name: &'static str) -> Vec<Api> {
    let random = Arc::new(Counter::default());
    // Every report is recorded, also one in which nothing is new.
    let settings = Settings { heartbeat_interval: Duration::ZERO, ..Settings::default() };
    let server =
        |(store, clock)| Evidence::with_sources(store, settings.clone(), clock, Arc::clone(&random) as _);
    let servers: Vec<Evidence> = stores.into_iter().map(server).collect();
    let api_key = Some(ApiKey::imported(JANE.to_owned()));
    let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key };
    servers[0].seed(&seed).await.unwrap();
    join_all(servers.into_iter().map(|server| Api::new(server, Mount::Tower, name))).await
}

/// The text of a policy; odd ones ask for provenance.
fn policy_text(number: usize) -> String {
    let text = if number % 2 == 1 { PROVENANCE } else { "_schema: https://example.com/schemas/policy/v1\n" };
    format!("{text}# {number}\n")
}

/// Asks one server, then the other.
struct Client {
    servers: [Api; 2],
    turn: AtomicUsize,
}

impl Client {
    fn api(&self) -> &Api {
        &self.servers[self.turn.fetch_add(1, Ordering::Relaxed) % 2]
    }

    fn environment(&self, name: &str, kind: &str, more: Value) -> RequestBuilder {
        let mut body = json!({"name": name, "type": kind, "description": ""});
        let Value::Object(more) = more else { panic!("{more}") };
        body.as_object_mut().unwrap().extend(more);
        self.api().put("/environments/acme").json(&body)
    }

    /// A version of a policy.
    fn policy(&self, name: &str, number: usize) -> RequestBuilder {
        let (payload, text) = (json!({ "name": name }).to_string(), policy_text(number));
        self.api().put("/policies/acme").payload(&payload).file("policy_file", "p.yaml", &text)
    }

    fn attach(&self, environment: &str, policy: &str) -> RequestBuilder {
        self.api()
            .post(&format!("/environments/acme/{environment}/policies"))
            .json(json!({"policy_names": [policy]}))
    }

    /// A report of one artifact a digit.
    fn report(&self, environment: &str, digits: &str) -> RequestBuilder {
        let entry = |digit| json!({"digests": {"image": fingerprint(digit)}, "creationTimestamp": 1});
        let artifacts: Vec<Value> = digits.chars().map(entry).collect();
        self.api()
            .put(&format!("/environments/acme/{environment}/report/docker"))
            .json(json!({ "artifacts": artifacts }))
    }

    /// A flow with a template of its own for each number.
    fn flow(&self, name: &str, number: usize) -> RequestBuilder {
        let document = json!({"name": name, "description": ""}).to_string();
        let template = format!("version: 1\n# {number}\n");
        self.api().put("/flows/acme/template_file").data_json(&document).template(template.as_str())
    }

    fn begin(&self, flow: &str, trail: &str) -> RequestBuilder {
        let document = json!({"name": trail, "description": ""}).to_string();
        self.api().put(&format!("/trails/acme/{flow}")).data_json(&document)
    }

    fn artifact(&self, flow: &str, trail: &str) -> RequestBuilder {
        self.built(flow, trail, '1')
    }

    /// An artifact of this digit with the name `api`.
    fn built(&self, flow: &str, trail: &str, digit: char) -> RequestBuilder {
        self.api().post_artifact(flow, fingerprint(digit)).with(json!({
            "trail_name": trail, "template_reference_name": "api", "filename": "api",
            "git_commit": "c".repeat(40), "build_url": "http://b/1", "commit_url": "http://c/1",
        }))
    }

    /// The same, from the repo of the flow, with this description.
    fn built_from(&self, flow: &str, trail: &str, description: &str) -> RequestBuilder {
        self.api().post_artifact(flow, fingerprint('1')).with(json!({
            "trail_name": trail, "filename": "api", "build_url": "http://b/1", "commit_url": "http://c/1",
            "repo_info": {"name": flow, "url": format!("https://git.example.com/{flow}"), "description": description},
        }))
    }

    fn attest(&self, flow: &str, trail: &str) -> RequestBuilder {
        let document = json!({"attestation_name": "test", "is_compliant": true}).to_string();
        self.api().post_attestation(flow, trail, "generic").data_json(&document)
    }

    /// An attestation of whatever artifact has the name `api`.
    fn attest_named(&self, flow: &str, trail: &str) -> RequestBuilder {
        let document = json!({"attestation_name": "test", "is_compliant": true, "target_artifacts": ["api"]})
            .to_string();
        self.api().post_attestation(flow, trail, "generic").data_json(&document)
    }

    fn join(&self, logical: &str, physical: &str) -> RequestBuilder {
        self.api()
            .put(&format!("/environments/acme/{logical}/join"))
            .json(json!({ "physical_env_name": physical }))
    }

    fn control(&self, identifier: &str) -> RequestBuilder {
        self.api().post_control(identifier).with(json!({"name": identifier}))
    }

    fn change_control(&self, identifier: &str, changes: Value) -> RequestBuilder {
        self.api().put(&format!("/controls/acme/{identifier}")).json(changes)
    }

    /// Archives a control, or brings it back.
    fn archive_control(&self, identifier: &str, how: &str) -> RequestBuilder {
        self.api().post(&format!("/controls/acme/{identifier}/{how}"))
    }

    /// Sets a tag with this key, of a flow, an environment or a control.
    fn tag(&self, kind: &str, name: &str, key: &str) -> RequestBuilder {
        let patch = self.api().request(http::Method::PATCH, &format!("/tags/acme/{kind}/{name}"));
        patch.json(json!({"set_tags": {key: "x"}}))
    }
}

/// Requests that prepare the records, and lines of concurrent requests. Within a line requests are sequential.
struct Meeting {
    given: Vec<RequestBuilder>,
    lines: Vec<Vec<RequestBuilder>>,
}

impl Meeting {
    /// Returns the failures.
    async fn hold(self) -> Vec<String> {
        let mut failures = follow(self.given).await;
        let lines = self.lines.into_iter().map(|line| tokio::spawn(follow(line)));
        failures.extend(join_all(lines).await.into_iter().flat_map(Result::unwrap));
        failures
    }
}

async fn follow(line: Vec<RequestBuilder>) -> Vec<String> {
    let mut failures = Vec::new();
    for request in line {
        let reply = request.await;
        if !reply.status.is_success() {
            failures.push(format!("{reply:?}"));
        }
    }
    failures
}

/// Makes a meeting of records whose names end with this suffix.
type Meet = fn(&Client, &str) -> Meeting;

const MEETINGS: [Meet; 12] = [
    // Attaching and a new version.
    |client, suffix| {
        let (env, policy) = (format!("a-env-{suffix}"), format!("a-p-{suffix}"));
        Meeting {
            given: vec![
                client.environment(&env, "docker", json!({})),
                client.policy(&policy, 1),
                client.report(&env, "1"),
            ],
            lines: vec![
                vec![client.attach(&env, &policy)],
                vec![client.policy(&policy, 2), client.policy(&policy, 3)],
            ],
        }
    },
    // Policies of an environment that is put, and new versions of them.
    |client, suffix| {
        let (env, p, q) = (format!("b-env-{suffix}"), format!("b-p-{suffix}"), format!("b-q-{suffix}"));
        Meeting {
            given: vec![
                client.policy(&p, 1),
                client.policy(&q, 1),
                client.environment(&env, "docker", json!({})),
                client.report(&env, "1"),
            ],
            lines: vec![
                vec![
                    client.environment(&env, "docker", json!({"policies": [&p]})),
                    client.environment(&env, "docker", json!({"policies": [&p, &q]})),
                    client.environment(&env, "docker", json!({"policies": [&q]})),
                ],
                vec![client.policy(&p, 2), client.policy(&q, 2)],
                vec![client.policy(&q, 3)],
            ],
        }
    },
    // An environment that begins with policies, and new versions of them.
    |client, suffix| {
        let (env, p) = (format!("c-env-{suffix}"), format!("c-p-{suffix}"));
        Meeting {
            given: vec![client.policy(&p, 1)],
            lines: vec![
                vec![client.environment(&env, "docker", json!({"policies": [&p]})), client.report(&env, "1")],
                vec![client.policy(&p, 2), client.policy(&p, 3)],
            ],
        }
    },
    // Reports, the first one among them, and new versions.
    |client, suffix| {
        let (env, p) = (format!("d-env-{suffix}"), format!("d-p-{suffix}"));
        Meeting {
            given: vec![client.policy(&p, 1), client.environment(&env, "docker", json!({"policies": [&p]}))],
            lines: vec![
                vec![client.report(&env, "1"), client.report(&env, "12"), client.report(&env, "12")],
                vec![client.policy(&p, 2), client.policy(&p, 3)],
                vec![client.report(&env, "13"), client.report(&env, "1")],
            ],
        }
    },
    // Reports and attaching.
    |client, suffix| {
        let (env, p, q) = (format!("e-env-{suffix}"), format!("e-p-{suffix}"), format!("e-q-{suffix}"));
        Meeting {
            given: vec![
                client.policy(&p, 1),
                client.policy(&q, 1),
                client.environment(&env, "docker", json!({})),
            ],
            lines: vec![
                vec![client.report(&env, "1"), client.report(&env, "12"), client.report(&env, "12")],
                vec![client.attach(&env, &p)],
                vec![client.attach(&env, &q), client.report(&env, "2")],
            ],
        }
    },
    // A flow's templates, and trails that begin with them; the second flow comes into being with its trails.
    |client, suffix| {
        let (known, new) = (format!("f-{suffix}"), format!("g-{suffix}"));
        Meeting {
            given: vec![client.flow(&known, 1)],
            lines: vec![
                vec![client.flow(&known, 2), client.flow(&known, 3), client.flow(&known, 4)],
                vec![client.begin(&known, "a"), client.begin(&known, "b"), client.begin(&known, "a")],
                vec![client.artifact(&known, "c"), client.artifact(&known, "d")],
                vec![client.attest(&known, "e"), client.attest(&known, "c")],
                vec![client.flow(&new, 5), client.flow(&new, 6)],
                vec![client.artifact(&new, "a"), client.artifact(&new, "b")],
                vec![client.attest(&new, "a"), client.attest(&new, "c")],
            ],
        }
    },
    // Artifacts, which take the template of a trail that takes its flow's again, and what they report of one repo.
    |client, suffix| {
        let flow = format!("r-{suffix}");
        let built = |from: &str| Vec::from_iter((0..4).map(|_| client.built_from(&flow, "t", from)));
        Meeting {
            given: vec![
                client.flow(&flow, 1),
                client.built_from(&flow, "t", "here"),
                client.built_from(&flow, "t", "here"),
            ],
            lines: vec![
                vec![client.flow(&flow, 2), client.begin(&flow, "t")],
                vec![client.flow(&flow, 3), client.begin(&flow, "t"), client.begin(&flow, "t")],
                built("here"),
                built("here"),
                built("there"),
            ],
        }
    },
    // Artifacts that have a name one after the other, and attestations of whichever has it.
    |client, suffix| {
        let flow = format!("n-{suffix}");
        let built = |digits: &str| digits.chars().map(|digit| client.built(&flow, "t", digit)).collect();
        let attested = || (0..3).map(|_| client.attest_named(&flow, "t")).collect();
        Meeting {
            given: vec![client.flow(&flow, 1), client.artifact(&flow, "t")],
            lines: vec![built("2345"), built("6789"), attested(), attested()],
        }
    },
    // The members of logical environments.
    |client, suffix| {
        let [a, b, c, joined, put] = ["a", "b", "c", "l", "m"].map(|name| format!("m-{name}-{suffix}"));
        let mut given: Vec<RequestBuilder> =
            [&a, &b, &c].map(|name| client.environment(name, "docker", json!({}))).into();
        given.extend([&joined, &put].map(|name| client.environment(name, "logical", json!({}))));
        Meeting {
            given,
            lines: vec![
                vec![client.join(&joined, &a), client.join(&joined, &b)],
                vec![client.join(&joined, &c), client.join(&put, &b)],
                vec![client.environment(&joined, "logical", json!({"description": "d"}))],
                vec![client.join(&put, &a)],
                vec![client.environment(&put, "logical", json!({"included_environments": [&c]}))],
            ],
        }
    },
    // Tags, and what else changes a record.
    |client, suffix| {
        let (env, p, flow) = (format!("t-env-{suffix}"), format!("t-p-{suffix}"), format!("t-{suffix}"));
        Meeting {
            given: vec![
                client.policy(&p, 1),
                client.environment(&env, "docker", json!({})),
                client.flow(&flow, 1),
            ],
            lines: vec![
                vec![client.tag("env", &env, "a"), client.tag("env", &env, "b")],
                vec![client.tag("env", &env, "c"), client.tag("flow", &flow, "c")],
                vec![client.environment(&env, "docker", json!({"description": "d"}))],
                vec![client.attach(&env, &p), client.report(&env, "1")],
                vec![client.tag("flow", &flow, "a"), client.tag("flow", &flow, "b")],
                vec![client.flow(&flow, 2), client.flow(&flow, 3)],
                vec![client.begin(&flow, "a"), client.artifact(&flow, "b")],
            ],
        }
    },
    // Versions of one control, and its tags, of which versions say nothing.
    |client, suffix| {
        let control = format!("k-{suffix}");
        let change = |changes: Value| client.change_control(&control, changes);
        Meeting {
            given: vec![client.control(&control)],
            lines: vec![
                vec![change(json!({"name": "a"})), change(json!({"name": "b"}))],
                vec![change(json!({"description": "a"})), change(json!({"description": "b"}))],
                vec![change(json!({"links": {"a": "b"}})), client.tag("control", &control, "a")],
                vec![client.archive_control(&control, "archive"), client.tag("control", &control, "b")],
                vec![client.tag("control", &control, "c"), client.archive_control(&control, "unarchive")],
            ],
        }
    },
    // Versions of one policy, and two who create one.
    |client, suffix| {
        let (env, p, new) = (format!("v-env-{suffix}"), format!("v-p-{suffix}"), format!("v-n-{suffix}"));
        Meeting {
            given: vec![
                client.policy(&p, 1),
                client.environment(&env, "docker", json!({"policies": [&p]})),
                client.report(&env, "1"),
            ],
            lines: vec![
                vec![client.policy(&p, 2), client.policy(&new, 1)],
                vec![client.policy(&p, 3), client.policy(&new, 2)],
                vec![client.policy(&p, 4), client.report(&env, "2")],
            ],
        }
    },
];

/// How often each meeting is held.
const ROUNDS: usize = 12;

/// How many rounds are held at the same time. Those who meet are the requests of one meeting; several hundred requests at
/// once only wait for processors and connections. On a busy machine that took longer than the half minute in which an
/// attempt follows another, so that whoever lost one race was refused (503), over every store.
const AT_ONCE: usize = 2;

/// Returns the failures on servers that omit the preconditions on records of the kind of `unguarded`. With it, the rounds
/// end at the first failure that begins with its text.
async fn wrong(
    store: &Arc<dyn Store>,
    name: &'static str,
    unguarded: Option<(RecordKind, &str)>,
) -> Vec<String> {
    let hesitant = || {
        let store = InterceptingStore::new(Arc::clone(store), hesitation())
            .without_preconditions(unguarded.map(|(kind, _)| kind));
        (Arc::new(store) as Arc<dyn Store>, Arc::new(JitteringClock::default()) as Arc<dyn Clock>)
    };
    let servers = servers([hesitant(), hesitant()], name).await;
    let client = Client { servers, turn: AtomicUsize::new(0) };
    let org = acme(&**store).await;
    let (mut met, mut of_ledger) = (Vec::new(), Vec::new());
    for first in (0..ROUNDS).step_by(AT_ONCE) {
        let last = ROUNDS.min(first + AT_ONCE);
        let suffixes = (first..last).map(|round| round.to_string());
        let meetings =
            suffixes.flat_map(|suffix| MEETINGS.map(|meet| tokio::spawn(meet(&client, &suffix).hold())));
        met.extend(join_all(meetings).await.into_iter().flat_map(Result::unwrap));
        if unguarded.is_some() || last == ROUNDS {
            of_ledger = LedgerChecker::read(&**store, org).await.end(&**store, org, client.api()).await;
        }
        let is_found = |what| met.iter().chain(&of_ledger).any(|text| text.starts_with(what));
        if unguarded.is_some_and(|(_, what)| is_found(what)) {
            break;
        }
    }
    met.extend(of_ledger);
    met
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_reads_what_another_writes_decides_by_what_is_so() {
    for stored in stores().await {
        let wrong = wrong(&stored.store, stored.name, None).await;
        assert!(wrong.is_empty(), "{}: {wrong:#?}", stored.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_guard_that_is_forgotten_shows() {
    for (kind, what) in [
        (RecordKind::Policy, "the policies of a snapshot"),
        (RecordKind::Flow, "a trail's template"),
        (RecordKind::Environment, "a tagged environment"),
        (RecordKind::Artifact, "the artifact of an attestation"),
        (RecordKind::Trail, "an artifact's template"),
        (RecordKind::Repo, "an artifact's repo"),
        (RecordKind::Control, "a version of a control"),
    ] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let wrong = wrong(&store, "memory", Some((kind, what))).await;
        let found = wrong.iter().filter(|text| text.starts_with(what)).count();
        assert!(found > 0, "{what}: {wrong:#?}");
    }
}

/// An action that runs once, before the next write.
type Interlude = Arc<Mutex<Option<BoxFuture<'static, ()>>>>;

fn interrupted(store: &Arc<dyn Store>, interlude: &Interlude) -> Arc<dyn Store> {
    let interlude = Arc::clone(interlude);
    let before = move |call| {
        let next = if call == Call::Write { interlude.lock().unwrap().take() } else { None };
        async move {
            if let Some(next) = next {
                next.await;
            }
        }
        .boxed()
    };
    Arc::new(InterceptingStore::new(Arc::clone(store), before))
}

#[tokio::test]
async fn who_has_to_decide_again_does_so_at_the_time_that_it_is_then() {
    // The loser's clock, the time of its snapshot, and the duration of the winner's, which is taken at 10.
    for (then, taken, lasted) in
        [(20, 20, 10), (11, 11, 1), (10, 10, 0), (5, 10, 0), (0, 10, 0), (-30, 10, 0)]
    {
        for stored in stores().await {
            let (slow, fast) = (Arc::new(ManualClock::default()), Arc::new(ManualClock::default()));
            let interlude = Interlude::default();
            let views = [
                (interrupted(&stored.store, &interlude), Arc::clone(&slow) as Arc<dyn Clock>),
                (Arc::clone(&stored.store), Arc::clone(&fast) as _),
            ];
            let servers = servers(views, stored.name).await;
            let [loser, winner] = servers.clone();
            loser.given_environments("docker", &["prod"]).await;
            fast.set(10);
            let moves_on = Arc::clone(&slow);
            *interlude.lock().unwrap() = Some(
                async move {
                    winner.report_running("prod", &[('1', &[1])]).await.expect_exactly(201, json!("OK"));
                    moves_on.set(then);
                }
                .boxed(),
            );
            loser.report_running("prod", &[('2', &[1])]).await.expect_exactly(201, json!("OK"));
            let at = |seconds: i64| NOW.whole_seconds().0 + seconds;
            let expected = json!([
                {"index": 2, "from": at(taken), "to": 0, "duration": 0},
                {"index": 1, "from": at(10), "to": at(taken), "duration": lasted},
            ]);
            loser.get("/snapshots/acme/prod").await.expect(200, expected);
            let org = acme(&*stored.store).await;
            let misfits =
                LedgerChecker::read(&*stored.store, org).await.end(&*stored.store, org, &loser).await;
            assert!(misfits.is_empty(), "{}, {then}: {misfits:#?}", stored.name);
        }
    }
}

#[tokio::test]
async fn no_change_is_older_than_the_one_before_it() {
    for stored in stores().await {
        let (slow, fast) = (Arc::new(ManualClock::default()), Arc::new(ManualClock::default()));
        let views =
            [slow, Arc::clone(&fast)].map(|clock| (Arc::clone(&stored.store), clock as Arc<dyn Clock>));
        let [behind, ahead] = servers(views, stored.name).await;
        fast.set(10);
        let at = Timestamp::from_micros(NOW.as_micros() + 10_000_000).seconds();
        ahead.put_policy("p", PROVENANCE).await.expect(201, json!({}));
        ahead.given_environments("docker", &["prod"]).await;
        ahead.put_trail("shop", &json!({"name": "t"})).await.created();
        behind.put_policy("p", &format!("{PROVENANCE}\n")).await.expect(200, json!({}));
        behind.put_environment("prod", "docker").with(json!({"description": "changed"})).await.created();
        behind.put_trail("shop", &json!({"name": "t", "description": "changed"})).await.ok();
        let changes = json!([{"timestamp": at}, {"timestamp": at}]);
        let policy = json!({"last_modified_at": at, "versions": changes, "events": changes});
        behind.get("/policies/acme/p").await.expect(200, policy);
        let environment = json!({"description": "changed", "last_modified_at": at});
        behind.get("/environments/acme/prod").await.expect(200, environment);
        let trail = json!({"description": "changed", "last_modified_at": at});
        behind.get("/trails/acme/shop/t").await.expect(200, trail);
    }
}

const MACHINES: usize = 100;

#[tokio::test]
async fn many_that_report_the_same_at_the_same_time_note_it_once() {
    for stored in stores().await {
        let barrier = Arc::new(Mutex::new(None::<Arc<Barrier>>));
        let meeting = Arc::clone(&barrier);
        let before = move |call| {
            let barrier = if call == Call::Write { meeting.lock().unwrap().clone() } else { None };
            async move {
                if let Some(barrier) = barrier {
                    barrier.wait().await;
                }
            }
            .boxed()
        };
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(InterceptingStore::new(Arc::clone(&stored.store), before)) as Arc<dyn Store>;
        let clocked = |_| (Arc::clone(&store), Arc::clone(&clock) as Arc<dyn Clock>);
        let machines = many_servers((0..MACHINES).map(clocked).collect(), stored.name).await;
        let quiet = &machines[0];
        quiet.given_environments("docker", &["prod"]).await;
        quiet.report_running("prod", &[('1', &[1])]).await.expect_exactly(201, json!("OK"));
        clock.set(100);
        // All have read what the others have before anybody writes.
        *barrier.lock().unwrap() = Some(Arc::new(Barrier::new(MACHINES)));
        let reports = machines.iter().map(|machine| machine.report_running("prod", &[('1', &[1])]));
        for reply in join_all(reports).await {
            reply.expect_exactly(200, json!("OK"));
        }
        let org = acme(&*stored.store).await;
        let entries = stored.store.ledger_entries(org, 0, 10_000).await.unwrap();
        let noted = entries.iter().filter(|entry| entry.kind == "environment_reported").count();
        assert_eq!(noted, 1, "{}", stored.name);
    }
}

const BUSY: usize = 200;

/// How long a busy environment waits after a report, at least, and how much longer than the report took: what is asked of a slow
/// machine is not more than it can do.
const PAUSE: Duration = Duration::from_millis(250);
const SLOWER: u32 = 4;

/// How long a version may take.
const LONGEST: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_policy_of_many_busy_environments_gets_its_versions() {
    for stored in stores().await.into_iter().filter(|stored| stored.name != "postgres") {
        let clocked = || (Arc::clone(&stored.store), Arc::new(JitteringClock::default()) as Arc<dyn Clock>);
        let servers = servers([clocked(), clocked()], stored.name).await;
        let client = Arc::new(Client { servers, turn: AtomicUsize::new(0) });
        client.policy("p", 0).await.created();
        let over = Arc::new(AtomicBool::new(false));
        let reporters = (0..BUSY).map(|number| {
            let (client, over, name) = (Arc::clone(&client), Arc::clone(&over), format!("env-{number}"));
            tokio::spawn(async move {
                client.environment(&name, "docker", json!({"policies": ["p"]})).await.created();
                // In every other report nothing is new.
                for digits in ["1", "1", "12", "12"].iter().cycle() {
                    let began = Instant::now();
                    let reply = client.report(&name, digits).await;
                    assert!(reply.status.is_success(), "{reply:?}");
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    sleep(PAUSE.max(began.elapsed() * SLOWER)).await;
                }
            })
        });
        let reporters: Vec<_> = reporters.collect();
        sleep(PAUSE).await;
        let org = acme(&*stored.store).await;
        for number in 1..4 {
            let put = timeout(LONGEST, client.policy("p", number).into_future()).await;
            put.expect("a version gets through").expect(200, json!({}));
            for known in stored.store.environments(org).await.unwrap() {
                let (id, latest) = (known.record.id, known.status.snapshots);
                if let Some(snapshot) = stored.store.snapshot(org, id, latest).await.unwrap() {
                    let versions: Vec<u64> =
                        snapshot.record.policies.iter().map(|policy| policy.version).collect();
                    assert_eq!(versions, [number as u64 + 1], "{}: {}", stored.name, known.record.name);
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        join_all(reporters).await.into_iter().for_each(Result::unwrap);
        let misfits =
            LedgerChecker::read(&*stored.store, org).await.end(&*stored.store, org, client.api()).await;
        assert!(misfits.is_empty(), "{}: {misfits:#?}", stored.name);
    }
}
