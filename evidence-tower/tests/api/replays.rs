//! Verdicts of a long history, each reached again from what the ledger had when it was recorded.

use std::collections::BTreeMap;

use evidence_core::auth::{Access, Credential, Principal, Target};
use evidence_core::compute::BlockingPool;
use evidence_core::compute::Compute;
use evidence_core::environments::replay;
use evidence_core::operation::{Answer, Operation};
use evidence_core::service::Call;
use evidence_core::{EvidenceService, Result};

use crate::support::every_store_itself;
use crate::support::prelude::*;
use crate::support::stubs::decorates;

/// So many verdicts at least are reached again.
const VERDICTS: usize = 1_000;

const ARTIFACTS: [char; 16] =
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
const FLOWS: [&str; 3] = ["web", "shop", "jobs"];
/// Much runs of each.
const FEW_TRAILS: [&str; 2] = ["t", "u"];

/// Policies with each sort of rule, with conditions and exceptions.
const RULES: [&str; 8] = [
    "{provenance: {required: true}}",
    "{trail-compliance: {required: true}}",
    "{provenance: {required: true, exceptions: [{if: \"${{ matches(artifact.name, '^image-[0-3]$') }}\"}]}}",
    "{trail-compliance: {required: true, exceptions: [{if: \"${{ flow.name == 'jobs' }}\"}]}}",
    "{attestations: [{name: scan, type: generic}]}",
    "{attestations: [{type: generic, must_be_compliant: false}, {name: scan, type: '*'}]}",
    "{attestations: [{type: generic, if: \"${{ flow.tags.kind != 'draft' }}\"}]}",
    "{attestations: [{type: decision, for_control: C-1, if: \"${{ flow.name in ['web', 'shop'] }}\"}]}",
];

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    /// The next one below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

impl Api {
    async fn given_rules(&self, policy: &str, rules: &str) {
        let text = format!("_schema: https://example.com/schemas/policy/v1\nartifacts: {rules}\n");
        assert!(self.put_policy(policy, &text).await.status.is_success(), "{rules}");
    }

    async fn attests(&self, path: &str, kind: &str, data: serde_json::Value) {
        let path = format!("/attestations/acme/{path}/{kind}");
        self.post(&path).data_json(&data).await.created();
    }

    /// Changes something that verdicts rest on.
    async fn happens(&self, numbers: &mut Numbers, trails: &[&str]) {
        let (flow, trail) = (numbers.one_of(&FLOWS), numbers.one_of(trails));
        let (artifact, is_compliant) = (fingerprint(numbers.one_of(&ARTIFACTS)), numbers.below(3) > 0);
        let at_trail = format!("{flow}/trail/{trail}");
        match numbers.below(12) {
            0..=3 => {
                let mut report = json!({
                    "trail_name": trail, "fingerprint": artifact, "filename": "x", "build_url": "", "commit_url": "",
                });
                if numbers.below(2) == 0 {
                    report["template_reference_name"] = json!("api");
                }
                self.post(&format!("/artifacts/acme/{flow}")).json(report).await.created();
                if numbers.below(2) == 0 {
                    let data = json!({
                        "attestation_name": "scan", "artifact_fingerprint": artifact, "is_compliant": is_compliant,
                    });
                    self.attests(&at_trail, "generic", data).await;
                }
            }
            4 | 5 => {
                let name = numbers.one_of(&["scan", "test", "review"]);
                let data = json!({"attestation_name": name, "is_compliant": is_compliant});
                self.attests(&at_trail, "generic", data).await;
            }
            6 => {
                let data = json!({
                    "attestation_name": "go", "type_name": "decision", "control": "C-1",
                    "attestation_data": {"is_compliant": is_compliant},
                });
                self.attests(&at_trail, "system", data).await;
            }
            7 => {
                let tags = json!({"set_tags": {"kind": numbers.one_of(&["draft", "final"])}});
                self.patch(&format!("/tags/acme/flow/{flow}")).json(tags).await.ok();
            }
            8 => {
                let asked = numbers.one_of(&["scan", "test"]);
                let template =
                    format!("version: 1\ntrail:\n  attestations:\n    - {{name: {asked}, type: generic}}\n");
                let begin = self.put(&format!("/trails/acme/{flow}"));
                assert!(
                    begin
                        .data_json(json!({"name": trail}))
                        .template(template.as_str())
                        .await
                        .status
                        .is_success()
                );
            }
            9 if numbers.below(2) == 0 => {
                self.post_artifact(flow, artifact).await.created();
            }
            9 => {
                let former = json!({"new_name": format!("{flow}-before")});
                self.put(&format!("/flows/acme/{flow}/rename")).json(former).await.ok();
                let now = json!({"new_name": flow});
                self.put(&format!("/flows/acme/{flow}-before/rename")).json(now).await.ok();
            }
            10 if numbers.below(4) == 0 => {
                let allowed =
                    json!({"artifact_name": "x", "artifact_fingerprint": artifact, "description": "known"});
                self.put("/allowlists/acme/prod").json(allowed).await.created();
            }
            10 => {
                let (policy, rules) = (numbers.one_of(&["p", "q", "r"]), numbers.one_of(&RULES));
                self.given_rules(policy, rules).await;
            }
            _ => {
                let named = json!({"policy_names": [numbers.one_of(&["q", "r"])]});
                let path = "/environments/acme/prod/policies";
                if numbers.below(2) == 0 { self.post(path) } else { self.delete(path) }
                    .json(named)
                    .await
                    .ok();
            }
        }
    }
}

/// The recorded verdict of each artifact in each snapshot.
type Verdicts = BTreeMap<(u64, String), Option<bool>>;

/// Lets so much happen that there are this many verdicts, and reaches each again.
async fn history(api: &Api, store: &dyn Store, trails: &[&str], count: usize) -> Verdicts {
    let template = "version: 1\ntrail:\n  artifacts:\n    - name: api\n      attestations:\n        - {name: scan, type: generic}\n";
    for flow in FLOWS {
        api.given_flow(flow, template).await;
    }
    api.post_control("C-1").await.created();
    api.given_environments("docker", &["prod"]).await;
    for (policy, rules) in [("p", RULES[0]), ("q", RULES[1]), ("r", RULES[4])] {
        api.given_rules(policy, rules).await;
    }
    api.attach("prod", "p").await;
    let (mut numbers, mut verdicts) = (Numbers(11), Verdicts::new());
    let (org, mut snapshots) = (acme(store).await, 0);
    while verdicts.len() < count {
        for _ in 0..numbers.below(6) {
            api.happens(&mut numbers, trails).await;
        }
        let running = Vec::from_iter(ARTIFACTS.iter().filter(|_| numbers.below(4) > 0));
        let running =
            Vec::from_iter(running.into_iter().map(|digit| -> ReportedArtifact<'_> { (*digit, &[1]) }));
        assert!(api.report_running("prod", &running).await.status.is_success());
        let known = store.environment(org, "prod").await.unwrap().unwrap();
        // Policies that changed take snapshots, too.
        for index in snapshots + 1..=known.status.snapshots {
            for placed in store.instances(org, known.record.id, index).await.unwrap() {
                let instance = placed.instance;
                if !placed.exited {
                    verdicts.insert((index, instance.key().to_string()), instance.compliant);
                }
            }
            let differences =
                replay(store, (org, known.record.id, index), Arc::new(MemoryStore::new())).await.unwrap();
            assert_eq!(differences, Vec::<String>::new(), "snapshot {index}");
        }
        snapshots = known.status.snapshots;
    }
    let of = |verdict: bool| verdicts.values().filter(|one| **one == Some(verdict)).count();
    assert!(of(true) > count / 10 && of(false) > count / 10, "{} and {}", of(true), of(false));
    verdicts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_verdicts_are_reached_again_and_are_the_same_on_every_store() {
    let found = std::sync::Mutex::new(Vec::new());
    every_store_itself(async |api, store| {
        let verdicts = history(&api, &*store, &FEW_TRAILS, VERDICTS).await;
        found.lock().unwrap().push(verdicts);
    })
    .await;
    let found = found.into_inner().unwrap();
    assert!(found.len() > 1 && found.iter().all(|verdicts| *verdicts == found[0]), "the stores differ");
}

/// A service that remembers nothing from one operation to the next.
#[derive(Clone)]
pub(crate) struct Forgetful(pub(crate) Evidence);

impl Forgetful {
    fn anew(&self) -> Evidence {
        self.0.clone().with_compute_pool(BlockingPool::default())
    }
}

impl EvidenceService for Forgetful {
    async fn authenticate(&self, credential: Credential<'_>) -> Result<Principal> {
        self.anew().authenticate(credential).await
    }

    async fn authorize(&self, caller: &Principal, target: &Target) -> Result<Access> {
        self.anew().authorize(caller, target).await
    }

    async fn run<O: Operation>(&self, access: &Access, operation: O, body: O::Body) -> Result<O::Output> {
        self.anew().run(access, operation, body).await
    }

    async fn answer(&self, access: &Access, call: Call, request: &str, compute: &Compute) -> Result<Answer> {
        self.anew().answer(access, call, request, compute).await
    }

    decorates!(0);

    async fn ready(&self) -> Result<()> {
        self.0.ready().await
    }
}
