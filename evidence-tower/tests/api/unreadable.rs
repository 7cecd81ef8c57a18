//! Stored templates and policies that this version cannot read: nothing complies with them, and answers say why.

use evidence_core::fact::{Fact, Write};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::policies::PolicyVersion;
use evidence_core::texts::TextRef;

use crate::support::prelude::*;

/// No YAML, as a damaged row or a later version may have left it.
const BROKEN: &str = "trail: ]";

/// How a template cannot be read.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Broken,
    Lost,
}

impl Damage {
    const ALL: [Self; 2] = [Self::Broken, Self::Lost];

    /// Such a template, for a record to refer to.
    async fn template(self, store: &dyn Store, org: Id) -> Option<TextRef> {
        match self {
            Self::Broken => inject(store, org, Fact::TextKept { text: BROKEN.to_owned() }).await,
            Self::Lost => {}
        }
        Some(TextRef::of(BROKEN))
    }
}

/// Runs a case over every store, with the store and the id of `acme` at hand.
#[expect(clippy::needless_pass_by_value, reason = "cases are closures written at the call")]
pub(crate) fn on_every_store_without_rebuild(case: impl AsyncFn(Api, &dyn Store, Id)) {
    block_on(async {
        for StoreUnderTest { name, store, guard, .. } in stores().await {
            let evidence = fixture(store, Settings::default()).await;
            let api = Api::new(evidence.clone(), Mount::Tower, name).await;
            case(api, evidence.store(), acme(evidence.store()).await).await;
            drop(guard);
        }
    });
}

/// Records a fact past every check of the service.
pub(crate) async fn inject(store: &dyn Store, org: Id, fact: Fact) {
    inject_all(store, org, vec![fact]).await;
}

/// The same with several, in one write.
pub(crate) async fn inject_all(store: &dyn Store, org: Id, facts: Vec<Fact>) {
    let by = store.user("jane").await.unwrap().unwrap().actor();
    let write = Write::new(org, by, NOW, facts, &SystemRandom);
    store.record(write).await.unwrap();
}

async fn given_a_compliant_trail(api: &Api) {
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    api.artifact("1", "cli").await;
    api.get("/trails/acme/shop/t").await.expect(200, json!({"compliance_state": "COMPLIANT"}));
}

const ARTIFACT: &str =
    "/artifacts/acme/shop/fingerprint/1111111111111111111111111111111111111111111111111111111111111111";

#[test]
fn nothing_complies_with_a_template_that_cannot_be_read() {
    for damage in Damage::ALL {
        nothing_complies_with(damage);
    }
}

fn nothing_complies_with(damage: Damage) {
    on_every_store_without_rebuild(async |api, store, acme| {
        given_a_compliant_trail(&api).await;
        api.given_environments("docker", &["prod"]).await;
        api.put_policy("compliance", COMPLIANCE).await.created();
        api.attach("prod", "compliance").await;
        api.report_running("prod", &[('1', &[10])]).await.created();
        let pdf = api.get("/trails/acme/shop/t/audit_pdf").await.body;

        let shop = store.flow(acme, "shop").await.unwrap().unwrap().record.id;
        let mut record = store.trail(acme, shop, "t").await.unwrap().unwrap().record;
        record.template = damage.template(store, acme).await;
        inject(store, acme, Fact::TrailUpdated { record, changes: vec![] }).await;

        let trail = api.get("/trails/acme/shop/t").await;
        let trail = trail.expect(200, json!({"compliance_state": "INCOMPLETE", "is_compliant": false})).ok();
        let status = &trail["compliance_status"];
        let why = "The template cannot be read: ";
        for reason in [&status["state_info"], &status["artifacts_statuses"]["cli"]["state_info"]] {
            assert!(reason.as_str().is_some_and(|reason| reason.starts_with(why)), "{trail}");
        }
        assert_eq!(status["artifacts_statuses"]["cli"]["status"], "INCOMPLETE");
        let listed = json!({"data": [{"compliance_state": "INCOMPLETE", "compliance_status": status}]});
        api.get("/trails/acme").await.expect(200, listed);
        api.get("/flows/acme").await.expect(200, json!([{"latest_state": "INCOMPLETE"}]));
        for path in [ARTIFACT.to_owned(), format!("/artifacts/acme/shop/commit_sha/{COMMIT}")] {
            let found = api.get(&path).await.ok();
            let artifact = if found.is_array() { &found[0] } else { &found };
            assert_eq!(artifact["state"], "INCOMPLETE");
            assert!(artifact["state_info"].as_str().unwrap().starts_with(why), "{artifact}");
        }
        assert_ne!(api.get("/trails/acme/shop/t/audit_pdf").await.body, pdf);

        // The next report of the same artifact: no longer may it run, and the decision says why.
        api.report_running("prod", &[('1', &[10])]).await.created();
        let snapshot = api.get("/snapshots/acme/prod/-1").await;
        let snapshot =
            snapshot.expect(200, json!({"compliant": false, "artifacts": [{"compliant": false}]})).ok();
        let rule = &snapshot["artifacts"][0]["policy_decisions"][0]["rule_evaluations"][1];
        let resolution = &rule["resolutions"][0];
        assert_eq!(resolution["type"], "non_compliant_in_trail");
        assert!(resolution["context"]["reason"].as_str().unwrap().starts_with(why), "{resolution}");
    });
}

#[test]
fn nothing_complies_with_a_report_to_a_flow_whose_template_cannot_be_read() {
    for damage in Damage::ALL {
        nothing_complies_in_the_flow_with(damage);
    }
}

fn nothing_complies_in_the_flow_with(damage: Damage) {
    on_every_store_without_rebuild(async |api, store, acme| {
        api.post_artifact("shop", "1".repeat(64)).with(json!({"git_commit": COMMIT})).await.created();
        api.get(ARTIFACT).await.expect(200, json!({"state": "COMPLIANT"}));
        let shop = store.flow(acme, "shop").await.unwrap().unwrap().record.id;
        let filter = evidence_core::artifacts::ArtifactFilter { flow: Some(shop), ..Default::default() };
        let request = evidence_core::page::PageRequest { offset: 0, limit: 1 };
        let mut record = store.artifacts(acme, &filter, request).await.unwrap().items.remove(0);
        record.id = "ffffffff-ffff-4fff-bfff-ffffffff".parse().unwrap();
        record.template = damage.template(store, acme).await;
        inject(store, acme, Fact::ArtifactReported { record }).await;
        let found = api.get(ARTIFACT).await.expect(200, json!({"state": "INCOMPLETE"})).ok();
        assert!(
            found["state_info"].as_str().unwrap().starts_with("The template cannot be read: "),
            "{found}"
        );
    });
}

#[test]
fn nothing_complies_with_a_policy_that_cannot_be_read() {
    on_every_store_without_rebuild(async |api, store, acme| {
        given_a_compliant_trail(&api).await;
        api.given_environments("docker", &["prod"]).await;
        api.put_policy("p", PROVENANCE).await.created();
        api.attach("prod", "p").await;
        api.report_running("prod", &[('1', &[10])]).await.created();
        api.get("/environments/acme/prod").await.expect(200, json!({"state": true}));

        let mut record = store.policy(acme, "p").await.unwrap().unwrap().record;
        record.version += 1;
        let version = PolicyVersion {
            policy: record.id,
            version: record.version,
            comment: String::new(),
            policy_yaml: BROKEN.to_owned(),
            at: NOW,
            by: record.created_by.clone(),
        };
        inject(store, acme, Fact::PolicyUpdated { record, version: Some(version), comment: None }).await;

        api.report_running("prod", &[('1', &[10])]).await.created();
        let decision = json!({"policy_name": "p", "policy_version": 2, "status": "NON-COMPLIANT"});
        let artifact = json!({"compliant": false, "policy_decisions": [decision]});
        let snapshot = api.get("/snapshots/acme/prod/-1").await;
        let snapshot = snapshot.expect(200, json!({"compliant": false, "artifacts": [artifact]})).ok();
        let rule = &snapshot["artifacts"][0]["policy_decisions"][0]["rule_evaluations"][0];
        assert_eq!((&rule["rule"]["type"], &rule["satisfied"]), (&json!("policy"), &json!(false)));
        let resolution = &rule["resolutions"][0];
        let why = "The policy cannot be read: ";
        assert!(resolution["context"]["reason"].as_str().unwrap().starts_with(why), "{resolution}");
        let dump = &snapshot["applied_policies"][0]["policy_dump"];
        assert!(dump["unreadable"].as_str().unwrap().starts_with(why), "{dump}");
        api.get("/environments/acme/prod").await.expect(200, json!({"state": false}));
        api.get("/policies/acme/p").await.expect(200, json!({"versions": [{}, {"policy_yaml": BROKEN}]}));
    });
}
