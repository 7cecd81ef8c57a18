//! What the strategies call valid is accepted by the service, and what they call refused is refused for the field they
//! name, and changes nothing. An operation that reads a body and has no strategy fails.

use std::cell::Cell;
use std::sync::Arc;

use evidence_conformance::memory::MemoryStore;
use evidence_core::auth::{Credential, Principal};
use evidence_core::compute::{ComputePool, Job};
use evidence_core::operation::{Body, BodyKind, Operation, Visitor};
use evidence_core::seed::Seed;
use evidence_core::strategies::{ExistingNames, Requests, Sent};
use evidence_core::{Error, Evidence, EvidenceService, Limits, Settings, Store, api, decode};
use futures_util::FutureExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseResult, TestRunner};
use serde_json::{Map, Value, json};

/// The outcome of a future that waits for nothing: a store in memory never does.
fn wait<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a store in memory answers at once")
}

/// Does work at once, where it is asked for.
struct InPlace;

impl ComputePool for InPlace {
    fn parallelism(&self) -> usize {
        1
    }

    fn spawn(&self, job: Job) {
        job();
    }
}

/// What the bodies may mention.
fn known() -> ExistingNames {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    ExistingNames {
        environments: names(&["prod", "test"]),
        policies: names(&["p", "q"]),
        fingerprints: vec!["a".repeat(64)],
        attestation_types: names(&["review"]),
        controls: names(&["c1"]),
    }
}

const POLICY: &str = "_schema: https://example.com/v1";

/// A service in which everything that a path or a body names exists.
struct World {
    service: Evidence,
    caller: Principal,
    parameters: Map<String, Value>,
}

impl World {
    fn new() -> Self {
        // Many requests change the same few resources.
        let limits = Limits { tags: usize::MAX, ..Limits::default() };
        let settings = Settings { limits, ..Settings::default() };
        let service = Evidence::new(Arc::new(MemoryStore::new()), settings).with_compute_pool(InPlace);
        let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
        let key = wait(service.seed(&seed)).unwrap();
        let caller = wait(service.authenticate(Credential::Bearer(key.reveal()))).unwrap();
        let parameters = json!({
            "org": "acme", "flow_name": "web", "trail_name": "t", "name": "ci", "resource_type": "flow",
            "resource_id": "web", "env_name": "prod", "identifier": "c1",
            "notification_number": 1,
        });
        let Value::Object(parameters) = parameters else { unreachable!() };
        let mut world = Self { service, caller, parameters };
        world.furnish();
        world
    }

    fn furnish(&mut self) {
        for (name, kind) in [
            ("prod", "docker"),
            ("test", "server"),
            ("all", "logical"),
            ("apps", "azure-apps"),
            ("services", "cloud-run"),
            ("tasks", "ECS"),
            ("cluster", "K8S"),
            ("functions", "lambda"),
            ("objects", "S3"),
        ] {
            self.given::<evidence_core::environments::PutEnvironment>(
                json!({"name": name, "type": kind, "description": ""}),
                None,
            );
        }
        for name in known().policies {
            self.given::<evidence_core::policies::PutPolicy>(json!({ "name": name }), Some(POLICY));
        }
        self.new_artifact();
        self.given::<evidence_core::attestation_types::PostAttestationType>(json!({"name": "review"}), None);
        self.given::<evidence_core::controls::PostControl>(json!({"identifier": "c1", "name": "c"}), None);
        self.given::<evidence_core::service_accounts::CreateServiceAccount>(json!({"name": "ci"}), None);
        let action = json!({"name": "a", "environments": ["prod"], "triggers": [], "targets": []});
        self.given::<evidence_core::actions::PutNotification>(action, None);
        self.new_key();
    }

    /// An artifact, its flow and its trail.
    fn new_artifact(&self) {
        let artifact = json!({
            "trail_name": "t", "fingerprint": known().fingerprints[0], "filename": "x", "build_url": "", "commit_url": "",
        });
        self.given::<evidence_core::artifacts::ReportArtifact>(artifact, None);
    }

    /// A fresh flow, since one that was renamed often cannot be renamed again.
    fn new_flow(&mut self) {
        self.parameters.insert("flow_name".to_owned(), format!("web-{}", self.facts()).into());
        self.new_artifact();
    }

    /// A fresh API key, since one that was rotated cannot be rotated for long.
    fn new_key(&mut self) {
        self.given::<evidence_core::api_keys::CreateApiKey>(json!({"description": "x"}), None);
        let keys = wait(async {
            let operation = self.operation::<evidence_core::api_keys::ListApiKeys>();
            self.service.call(&self.caller, operation, ()).await
        });
        let newest = keys.unwrap().0.pop().unwrap();
        self.parameters.insert("key_id".to_owned(), newest.id.to_string().into());
    }

    fn operation<O: Operation>(&self) -> O {
        let mut parameters = self.parameters.clone();
        let environment = match O::NAME {
            "server_report" => "test",
            "azure_apps_report" => "apps",
            "cloud_run_report" => "services",
            "ecs_report" => "tasks",
            "k8s_report" => "cluster",
            "lambda_report" => "functions",
            "s3_report" => "objects",
            "join_physical_to_logical" => "all",
            _ => "prod",
        };
        parameters.insert("env_name".to_owned(), environment.into());
        decode::from_parameters(parameters).unwrap()
    }

    fn call<O: Operation>(&self, sent: &Sent) -> evidence_core::Result<()> {
        let body = sent.read::<O::Body>()?;
        wait(self.service.call(&self.caller, self.operation::<O>(), body)).map(drop)
    }

    fn given<O: Operation>(&self, document: Value, file: Option<&str>) {
        self.call::<O>(&Sent { document, file: file.map(str::to_owned) }).unwrap();
    }

    /// How many facts the organization has.
    fn facts(&self) -> u64 {
        let store: &dyn Store = self.service.store();
        let standing = wait(store.org_role("acme", self.caller.actor().id)).unwrap().unwrap();
        wait(store.ledger_head(standing.organization.id)).unwrap().unwrap().size()
    }

    fn accepts<O: Operation>(&self, sent: &Sent) -> TestCaseResult {
        match self.call::<O>(sent) {
            Ok(()) => Ok(()),
            // What was made by an earlier case stays, and its type cannot change.
            Err(error) if is_taken(&error) => Err(TestCaseError::reject("the name is taken")),
            Err(error) => Err(TestCaseError::fail(format!("{} refuses it: {error:?}", O::NAME))),
        }
    }

    fn refuses<O: Operation>(&self, sent: &Sent, field: &str) -> TestCaseResult {
        let before = self.facts();
        match self.call::<O>(sent) {
            Err(Error::Invalid { fields, .. }) => {
                prop_assert_eq!(fields.keys().collect::<Vec<_>>(), [field], "{}", O::NAME);
            }
            other => prop_assert!(false, "{} does not refuse {field}: {other:?}", O::NAME),
        }
        prop_assert_eq!(self.facts(), before, "{} recorded what it refused", O::NAME);
        Ok(())
    }
}

fn is_taken(error: &Error) -> bool {
    let Error::Invalid { fields, .. } = error else { return matches!(error, Error::DuplicateControl(_)) };
    let taken = ["already exists", "cannot change", "is the name of"];
    fields.values().any(|text| taken.iter().any(|part| text.contains(part)))
}

/// Runs a property of every operation that reads a body, over a world of its own.
struct Every<P> {
    property: P,
    seen: Cell<usize>,
}

/// A property of one operation.
trait Property {
    fn check<O: Operation>(&self, requests: &Requests, world: &mut World, runner: &mut TestRunner);
}

impl<P: Property> Visitor for Every<P> {
    fn visit<O: Operation>(&mut self) {
        let requests = Requests::of(O::NAME, &known());
        let reads = <O::Body as Body>::KIND != BodyKind::Empty;
        let bodies = "evidence-core/src/strategies/bodies.rs";
        assert_eq!(
            requests.is_some(),
            reads,
            "{} reads a body: {reads}; requests() in {bodies} differs",
            O::NAME
        );
        let Some(requests) = requests else { return };
        let persistence = FileFailurePersistence::Off;
        let config = Config { failure_persistence: Some(Box::new(persistence)), ..Config::default() };
        self.property.check::<O>(&requests, &mut World::new(), &mut TestRunner::new(config));
        self.seen.set(self.seen.get() + 1);
    }
}

fn of_every_operation(property: impl Property) {
    let mut every = Every { property, seen: Cell::new(0) };
    api::operations(&mut every);
    assert!(every.seen.get() > 15, "only {} operations read a body", every.seen.get());
}

struct ValidIsAccepted;

impl Property for ValidIsAccepted {
    fn check<O: Operation>(&self, requests: &Requests, world: &mut World, runner: &mut TestRunner) {
        let world = std::cell::RefCell::new(world);
        let checked = runner.run(&requests.valid(), |sent| {
            let mut world = world.borrow_mut();
            match O::NAME {
                "rotate_service_account_api_key" => world.new_key(),
                "rename_flow" => world.new_flow(),
                _ => {}
            }
            world.accepts::<O>(&sent)
        });
        checked.unwrap_or_else(|failure| panic!("{}: {failure}", O::NAME));
    }
}

struct RefusedChangesNothing;

impl Property for RefusedChangesNothing {
    fn check<O: Operation>(&self, requests: &Requests, world: &mut World, runner: &mut TestRunner) {
        let checked =
            runner.run(&requests.refused(), |refused| world.refuses::<O>(&refused.sent, &refused.field));
        checked.unwrap_or_else(|failure| panic!("{}: {failure}", O::NAME));
    }
}

#[test]
fn every_valid_body_is_accepted() {
    of_every_operation(ValidIsAccepted);
}

#[test]
fn every_body_with_one_thing_wrong_is_refused_for_it_and_changes_nothing() {
    of_every_operation(RefusedChangesNothing);
}
