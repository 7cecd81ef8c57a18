//! The cache of environment evaluations changes no result. Random histories are reported to a service that keeps its cache.
//! After each report, a service with empty caches must find nothing new, and a replay of the ledger must give the same
//! snapshots.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use evidence_conformance::memory::MemoryStore;
use evidence_core::allowlists::{AllowArtifact, WithdrawAllowlistEntry};
use evidence_core::artifacts::ReportArtifact;
use evidence_core::attestations::{Generic, Override, PostAttestation};
use evidence_core::auth::{Credential, Principal};
use evidence_core::compute::{ComputePool, Job};
use evidence_core::environments::{
    AttachPolicies, DetachPolicies, Docker, EnvironmentStore, JoinEnvironment, PutEnvironment, ReportRunning,
    replay,
};
use evidence_core::flows::{PutFlow, RenameFlow};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::operation::Operation;
use evidence_core::policies::PutPolicy;
use evidence_core::seed::Seed;
use evidence_core::store::LedgerStore;
use evidence_core::strategies::Sent;
use evidence_core::tags::PatchTags;
use evidence_core::time::{Clock, Timestamp};
use evidence_core::trails::BeginTrail;
use evidence_core::{Error, Evidence, EvidenceService, Settings, decode};
use futures_util::FutureExt;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

const FLOWS: [&str; 2] = ["web", "jobs"];
const TRAILS: [&str; 2] = ["t", "u"];
const POLICIES: [&str; 2] = ["p", "q"];
const ARTIFACTS: u8 = 3;

const RULES: [&str; 5] = [
    "{provenance: {required: true}}",
    "{trail-compliance: {required: true}}",
    "{trail-compliance: {required: true, exceptions: [{if: \"${{ flow.name == 'jobs' }}\"}]}}",
    "{attestations: [{name: scan, type: generic}]}",
    "{attestations: [{type: generic, if: \"${{ flow.tags.kind != 'draft' }}\"}, {name: '*', type: generic, if: \"${{ matches(artifact.name, '^b') }}\"}]}",
];

const TEMPLATES: [&str; 3] = [
    "version: 1\n",
    "version: 1\ntrail:\n  attestations:\n    - {name: review, type: generic}\n",
    "version: 1\ntrail:\n  artifacts:\n    - name: api\n      attestations:\n        - {name: scan, type: generic}\n",
];

/// Something that happens.
#[derive(Debug, Clone)]
enum Step {
    Artifact {
        flow: &'static str,
        trail: Option<&'static str>,
        artifact: u8,
        named: bool,
    },
    Attestation {
        flow: &'static str,
        trail: &'static str,
        artifact: Option<u8>,
        name: &'static str,
        compliant: bool,
    },
    Template {
        flow: &'static str,
        template: &'static str,
    },
    Trail {
        flow: &'static str,
        trail: &'static str,
    },
    Tags {
        flow: &'static str,
        kind: &'static str,
    },
    Rename {
        flow: &'static str,
        name: &'static str,
    },
    Policy {
        policy: &'static str,
        rules: &'static str,
    },
    Override {
        flow: &'static str,
        trail: &'static str,
        name: &'static str,
        compliant: bool,
    },
    Attach {
        environment: &'static str,
        policy: &'static str,
    },
    Detach {
        environment: &'static str,
        policy: &'static str,
    },
    Provenance {
        required: bool,
    },
    Allow {
        artifact: u8,
        minutes: Option<i64>,
    },
    Withdraw {
        artifact: u8,
    },
    OtherEnvironment,
    Wait {
        minutes: i64,
    },
    Report {
        running: Vec<(u8, &'static str)>,
    },
    /// Reports that the same runs as before.
    ReportAgain,
}

fn step() -> impl Strategy<Value = Step> {
    let (flow, trail, policy) = (|| select(&FLOWS[..]), || select(&TRAILS[..]), || select(&POLICIES[..]));
    let artifact = || 0..ARTIFACTS;
    let environment = || select(&["prod", "all"][..]);
    let running = vec((artifact(), select(&["a", "b"][..])), 0..7);
    prop_oneof![
        4 => (flow(), option::weighted(0.8, trail()), artifact(), any::<bool>())
            .prop_map(|(flow, trail, artifact, named)| Step::Artifact { flow, trail, artifact, named }),
        4 => (flow(), trail(), option::of(artifact()), select(&["scan", "review"][..]), any::<bool>())
            .prop_map(|(flow, trail, artifact, name, compliant)| {
                Step::Attestation { flow, trail, artifact, name, compliant }
            }),
        1 => (flow(), select(&TEMPLATES[..])).prop_map(|(flow, template)| Step::Template { flow, template }),
        1 => (flow(), trail()).prop_map(|(flow, trail)| Step::Trail { flow, trail }),
        2 => (flow(), select(&["draft", "final"][..])).prop_map(|(flow, kind)| Step::Tags { flow, kind }),
        2 => (flow(), select(&["jobs", "tasks"][..])).prop_map(|(flow, name)| Step::Rename { flow, name }),
        3 => (policy(), select(&RULES[..])).prop_map(|(policy, rules)| Step::Policy { policy, rules }),
        2 => (flow(), trail(), select(&["scan", "review"][..]), any::<bool>())
            .prop_map(|(flow, trail, name, compliant)| Step::Override { flow, trail, name, compliant }),
        2 => (environment(), policy()).prop_map(|(environment, policy)| Step::Attach { environment, policy }),
        2 => (environment(), policy()).prop_map(|(environment, policy)| Step::Detach { environment, policy }),
        1 => any::<bool>().prop_map(|required| Step::Provenance { required }),
        1 => (artifact(), option::of(1..40_i64)).prop_map(|(artifact, minutes)| Step::Allow { artifact, minutes }),
        1 => artifact().prop_map(|artifact| Step::Withdraw { artifact }),
        1 => Just(Step::OtherEnvironment),
        1 => (0..70_i64).prop_map(|minutes| Step::Wait { minutes }),
        3 => running.prop_map(|running| Step::Report { running }),
        16 => Just(Step::ReportAgain),
    ]
}

/// Returns the result of a future that never waits, because the store is in memory.
fn wait<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a store in memory answers at once")
}

/// Does work where it is requested.
struct InPlace;

impl ComputePool for InPlace {
    fn parallelism(&self) -> usize {
        1
    }

    fn spawn(&self, job: Job) {
        job();
    }
}

/// A clock that stands still, in seconds.
struct Manual(AtomicI64);

impl Clock for Manual {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(self.0.load(Ordering::Relaxed))
    }
}

fn fingerprint(artifact: u8) -> String {
    format!("{artifact:064x}")
}

struct World {
    store: Arc<MemoryStore>,
    clock: Arc<Manual>,
    /// The service that keeps its caches.
    service: Evidence,
    caller: Principal,
    /// A replay runs its own service, with threads.
    runtime: Runtime,
    /// The artifacts of the last report.
    running: Vec<(u8, &'static str)>,
    /// How many snapshots were replayed.
    replayed: u64,
}

impl World {
    fn new() -> Self {
        let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(Manual(AtomicI64::new(1_783_512_000))));
        let service = service(&store, &clock);
        let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
        let key = wait(service.seed(&seed)).unwrap();
        let caller = wait(service.authenticate(Credential::Bearer(key.reveal()))).unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        let running = vec![(0, "a"), (1, "b")];
        let world = Self { store, clock, service, caller, runtime, running, replayed: 0 };
        for policy in POLICIES {
            world.happens(&Step::Policy { policy, rules: RULES[1] });
        }
        for flow in FLOWS {
            world.happens(&Step::Template { flow, template: TEMPLATES[1] });
        }
        world.happens(&Step::Provenance { required: false });
        let logical = json!({"name": "all", "type": "logical", "description": ""});
        world.call::<PutEnvironment>(json!({}), logical, None);
        let member = json!({"physical_env_name": "prod"});
        world.call::<JoinEnvironment>(json!({"env_name": "all"}), member, None);
        world.happens(&Step::Attach { environment: "prod", policy: POLICIES[0] });
        world
    }

    fn call<O: Operation>(&self, parameters: Value, document: Value, file: Option<&str>) {
        if let Err(error) = self.try_call::<O>(&self.service, parameters, document, file) {
            panic!("{}: {error:?}", O::NAME);
        }
    }

    fn try_call<O: Operation>(
        &self,
        service: &Evidence,
        mut parameters: Value,
        document: Value,
        file: Option<&str>,
    ) -> evidence_core::Result<()> {
        parameters["org"] = json!("acme");
        let Value::Object(parameters) = parameters else { panic!("{parameters}") };
        let body = Sent { document, file: file.map(str::to_owned) }.read::<O::Body>()?;
        wait(service.call(&self.caller, decode::from_parameters::<O>(parameters).unwrap(), body)).map(drop)
    }

    fn happens(&self, step: &Step) {
        match step {
            Step::Artifact { flow, trail, artifact, named } => {
                let mut report = json!({"fingerprint": fingerprint(*artifact), "filename": "x", "build_url": "", "commit_url": ""});
                if let Some(trail) = trail {
                    report["trail_name"] = json!(trail);
                }
                if *named {
                    report["template_reference_name"] = json!("api");
                }
                self.call::<ReportArtifact>(json!({"flow_name": flow}), report, None);
            }
            Step::Attestation { flow, trail, artifact, name, compliant } => {
                let parameters = json!({"flow_name": flow, "trail_name": trail});
                let artifact = artifact.map(fingerprint);
                let claim = json!({"attestation_name": name, "artifact_fingerprint": artifact, "is_compliant": compliant});
                let claimed =
                    self.try_call::<PostAttestation<Generic>>(&self.service, parameters, claim, None);
                // The artifact may be unknown.
                assert!(
                    matches!(claimed, Ok(()) | Err(Error::NotFound(_) | Error::Invalid { .. })),
                    "{claimed:?}"
                );
            }
            Step::Template { flow, template } => {
                self.call::<PutFlow>(json!({}), json!({"name": flow, "description": ""}), Some(template));
            }
            Step::Trail { flow, trail } => {
                self.call::<BeginTrail>(json!({"flow_name": flow}), json!({"name": trail}), None);
            }
            Step::Tags { flow, kind } => {
                let parameters = json!({"resource_type": "flow", "resource_id": flow});
                self.call::<PatchTags>(parameters, json!({"set_tags": {"kind": kind}}), None);
            }
            Step::Rename { flow, name } => {
                let (parameters, renaming) = (json!({"flow_name": flow}), json!({"new_name": name}));
                let renamed = self.try_call::<RenameFlow>(&self.service, parameters, renaming, None);
                // The other flow may have the name.
                assert!(matches!(renamed, Ok(()) | Err(Error::Invalid { .. })), "{renamed:?}");
            }
            Step::Policy { policy, rules } => {
                let text = format!("_schema: https://example.com/schemas/policy/v1\nartifacts: {rules}\n");
                self.call::<PutPolicy>(json!({}), json!({"name": policy}), Some(&text));
            }
            Step::Override { flow, trail, name, compliant } => {
                let parameters = json!({"flow_name": flow, "trail_name": trail});
                let document = json!({
                    "attestation_name": name, "original_attestation_type": "generic",
                    "new_compliance_status": compliant, "reason": "known",
                });
                let overridden =
                    self.try_call::<PostAttestation<Override>>(&self.service, parameters, document, None);
                // There may be nothing to override.
                let refused = matches!(overridden, Err(Error::NotFound(_) | Error::Invalid { .. }));
                assert!(refused || overridden.is_ok(), "{overridden:?}");
            }
            Step::Attach { environment, policy } => {
                self.call::<AttachPolicies>(
                    json!({"env_name": environment}),
                    json!({"policy_names": [policy]}),
                    None,
                );
            }
            Step::Detach { environment, policy } => {
                self.call::<DetachPolicies>(
                    json!({"env_name": environment}),
                    json!({"policy_names": [policy]}),
                    None,
                );
            }
            Step::Provenance { required } => {
                let environment = json!({"name": "prod", "type": "docker", "description": "", "require_provenance": required});
                self.call::<PutEnvironment>(json!({}), environment, None);
            }
            Step::Allow { artifact, minutes } => {
                let end = minutes.map(|minutes| self.clock.0.load(Ordering::Relaxed) + 60 * minutes);
                let allowed = json!({
                    "artifact_name": "x", "artifact_fingerprint": fingerprint(*artifact), "description": "known",
                    "expires_at": end,
                });
                self.call::<AllowArtifact>(json!({"env_name": "prod"}), allowed, None);
            }
            Step::Withdraw { artifact } => {
                let parameters = json!({"env_name": "prod", "fingerprint": fingerprint(*artifact)});
                let withdrawn =
                    self.try_call::<WithdrawAllowlistEntry>(&self.service, parameters, Value::Null, None);
                assert!(matches!(withdrawn, Ok(()) | Err(Error::NotFound(_))), "{withdrawn:?}");
            }
            Step::OtherEnvironment => {
                let environment = json!({"name": "test", "type": "docker", "description": ""});
                self.call::<PutEnvironment>(json!({}), environment, None);
            }
            Step::Wait { minutes } => drop(self.clock.0.fetch_add(60 * minutes, Ordering::Relaxed)),
            Step::Report { running } => self.report(&self.service, running),
            Step::ReportAgain => self.report(&self.service, &self.running),
        }
    }

    fn report(&self, service: &Evidence, running: &[(u8, &str)]) {
        let artifact = |(artifact, name): &(u8, &str)| json!({"digests": {*name: fingerprint(*artifact)}, "creationTimestamp": 1});
        let artifacts = Vec::from_iter(running.iter().map(artifact));
        let report = json!({"artifacts": artifacts});
        self.try_call::<ReportRunning<Docker>>(service, json!({"env_name": "prod"}), report, None).unwrap();
    }

    /// The organization's id and the length of its ledger.
    fn ledger(&self) -> (Id, u64) {
        let role = wait(self.service.store().org_role("acme", self.caller.actor().id)).unwrap().unwrap();
        let org = role.organization.id;
        (org, wait(self.store.ledger_head(org)).unwrap().unwrap().size())
    }

    /// Checks the state after a report.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let (org, before) = self.ledger();
        self.report(&service(&self.store, &self.clock), &self.running);
        prop_assert_eq!(self.ledger().1, before, "the evaluation of everything finds something else");
        let known = wait(self.store.environment(org, "prod")).unwrap().unwrap();
        for index in self.replayed + 1..=known.status.snapshots {
            let differences = self
                .runtime
                .block_on(replay(&*self.store, (org, known.record.id, index), Arc::new(MemoryStore::new())))
                .unwrap();
            prop_assert_eq!(differences, Vec::<String>::new(), "snapshot {}", index);
        }
        self.replayed = known.status.snapshots;
        Ok(())
    }
}

fn service(store: &Arc<MemoryStore>, clock: &Arc<Manual>) -> Evidence {
    let (store, clock, random) = (Arc::clone(store), Arc::clone(clock), Arc::new(SystemRandom));
    Evidence::with_sources(store, Settings::default(), clock, random).with_compute_pool(InPlace)
}

/// Returns the configuration, with as many cases as `PROPTEST_CASES` asks for.
fn config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let is_asked = std::env::var_os("PROPTEST_CASES").is_some();
    if is_asked { config } else { ProptestConfig { cases: 48, ..config } }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_cached_evaluation_decides_as_an_evaluation_of_everything(steps in vec(step(), 1..100)) {
        let mut world = World::new();
        for step in &steps {
            if let Step::Report { running } = step {
                world.running.clone_from(running);
            }
            world.happens(step);
            if matches!(step, Step::Report { .. } | Step::ReportAgain) {
                world.check()?;
            }
        }
    }
}
