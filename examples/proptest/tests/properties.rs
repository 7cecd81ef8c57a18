//! Property-based tests of your own client or store with the strategies of `evidence_core::strategies`.
//!
//! Add to your `Cargo.toml`:
//!
//! ```toml
//! [dev-dependencies]
//! evidence-conformance = "0.1"
//! evidence-core = { version = "0.1", features = ["proptest"] }
//! proptest = "1"
//! ```

use std::sync::Arc;

use evidence_conformance::memory::MemoryStore;
use evidence_core::artifacts::{GetArtifact, ReportArtifact};
use evidence_core::auth::{Credential, Principal};
use evidence_core::environments::PutEnvironment;
use evidence_core::environments::{Docker, ReportRunning};
use evidence_core::name::Fingerprint;
use evidence_core::operation::Operation;
use evidence_core::seed::Seed;
use evidence_core::strategies::{ExistingNames, Requests, Sent, bodies};
use evidence_core::{Error, Evidence, EvidenceService, Result, Settings, Store, decode};
use evidence_example_proptest::{Container, Report};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns the store under test. Put your own here.
fn fresh_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// A service with a new store and a caller. There is no HTTP in between. [`Service::call`] does what a
/// transport would do: it selects the operation and decodes the body.
struct Service {
    runtime: tokio::runtime::Runtime,
    service: Evidence,
    caller: Principal,
}

impl Service {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let service = Evidence::new(fresh_store(), Settings::default());
        let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
        let key = runtime.block_on(service.seed(&seed)).unwrap();
        let caller = runtime.block_on(service.authenticate(Credential::Bearer(key.reveal()))).unwrap();
        Self { runtime, service, caller }
    }

    /// Calls an operation with the parameters of its path and query.
    fn call<O: Operation>(&self, parameters: Value, sent: &Sent) -> Result<O::Output> {
        let Value::Object(parameters) = parameters else { panic!("parameters have names") };
        let operation: O = decode::from_parameters(parameters).unwrap();
        self.runtime.block_on(self.service.call(&self.caller, operation, sent.read::<O::Body>()?))
    }
}

/// Returns a JSON body.
fn body(document: Value) -> Sent {
    Sent { document, file: None }
}

// Your client. Small types are `Arbitrary`: here a `Fingerprint` is part of the client's input.
prop_compose! {
    fn containers()(
        containers in vec((any::<Fingerprint>(), "[a-z]{1,8}:[0-9]{1,3}", any::<u32>()), 0..5)
    ) -> Vec<Container> {
        let container = |(fingerprint, image, started_at)| {
            Container { image, image_id: format!("sha256:{fingerprint}"), started_at }
        };
        containers.into_iter().map(container).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The service accepts what the client sends, for any output of the host.
    #[test]
    fn the_service_takes_every_report_of_our_client(containers in containers()) {
        let service = Service::new();
        let environment = json!({"name": "prod", "type": "docker", "description": ""});
        service.call::<PutEnvironment>(json!({"org": "acme"}), &body(environment)).unwrap();

        let report = serde_json::to_value(Report::of(&containers)).unwrap();
        let taken = service.call::<ReportRunning<Docker>>(json!({"org": "acme", "env_name": "prod"}), &body(report));
        prop_assert!(taken.is_ok(), "{taken:?}");
    }

    /// The store returns what was recorded, for every report that the service accepts.
    #[test]
    fn a_reported_artifact_is_found_by_its_fingerprint(report in bodies::artifact().valid()) {
        let service = Service::new();
        service.call::<ReportArtifact>(json!({"org": "acme", "flow_name": "web"}), &body(report.clone())).unwrap();

        let parameters = json!({"org": "acme", "flow_name": "web", "fingerprint": report["fingerprint"]});
        let found = service.call::<GetArtifact>(parameters, &body(Value::Null)).unwrap().0;
        prop_assert_eq!(json!(found.fingerprint), report["fingerprint"].clone());
        prop_assert_eq!(json!(found.filename), report["filename"].clone());
    }

    /// A request with exactly one error is rejected, and the response names the field. A client can rely on
    /// it to tell its users what to correct.
    #[test]
    fn a_refusal_names_what_is_wrong(
        refused in Requests::of(ReportArtifact::NAME, &ExistingNames::default()).unwrap().refused()
    ) {
        let service = Service::new();
        let answer = service.call::<ReportArtifact>(json!({"org": "acme", "flow_name": "web"}), &refused.sent);
        let Err(Error::Invalid { fields, .. }) = answer else { panic!("{answer:?}") };
        prop_assert_eq!(fields.keys().collect::<Vec<_>>(), [&refused.field]);
    }
}
