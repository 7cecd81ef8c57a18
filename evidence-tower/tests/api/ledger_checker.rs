//! Reads an organization's ledger fact by fact, and checks each against those before it.

use std::collections::BTreeMap;

use evidence_core::Fact;
use evidence_core::actions::Action;
use evidence_core::artifacts::Artifact;
use evidence_core::attestations::{Attestation, Binding};
use evidence_core::controls::{Control, ControlVersion};
use evidence_core::environments::Environment;
use evidence_core::flows::Flow;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::repos::Repo;
use evidence_core::snapshots::{AppliedPolicy, Snapshot};
use evidence_core::time::Timestamp;
use evidence_core::trails::Trail;

use crate::support::prelude::*;

/// The state of an organization after the facts so far, and what did not fit.
#[derive(Default)]
pub(crate) struct LedgerChecker {
    at: Timestamp,
    environments: BTreeMap<Id, Environment>,
    flows: BTreeMap<Id, Flow>,
    versions: BTreeMap<Id, u64>,
    controls: BTreeMap<Id, Control>,
    actions: BTreeMap<Id, Action>,
    greatest_action: u64,
    /// Number and time of the latest snapshot.
    snapshots: BTreeMap<Id, (u64, Timestamp, u64)>,
    trails: BTreeMap<Id, Trail>,
    repos: BTreeMap<Id, Repo>,
    /// The artifact that has a name in a trail.
    artifacts: BTreeMap<(Id, String), Fingerprint>,
    misfits: Vec<String>,
}

impl LedgerChecker {
    pub(crate) async fn read(store: &dyn Store, org: Id) -> Self {
        let mut checker = Self::default();
        let mut next = 0;
        loop {
            let entries = store.ledger_entries(org, next, 500).await.unwrap();
            let Some(last) = entries.last() else { return checker };
            next = last.index + 1;
            for entry in entries {
                checker.expect("time goes back", checker.at, checker.at.min(entry.at));
                checker.at = entry.at;
                checker.apply(Fact::read(&entry.payload).unwrap());
            }
        }
    }

    fn expect<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, expected: T, found: T) {
        match (expected, found) {
            (expected, found) if expected == found => {}
            (expected, found) => self.misfits.push(format!("{what}: {found:?} in place of {expected:?}")),
        }
    }

    fn apply(&mut self, fact: Fact) {
        match fact {
            Fact::FlowCreated { record } | Fact::FlowUpdated { record } => {
                let tags =
                    self.flows.get(&record.id).map_or(record.tags.clone(), |before| before.tags.clone());
                self.expect("tags of a flow", tags, record.tags.clone());
                self.flows.insert(record.id, record);
            }
            Fact::FlowTagged { record } => {
                let untagged = |flow: &Flow| Flow { tags: record.tags.clone(), ..flow.clone() };
                let before = self.flows.get(&record.id).map(untagged);
                self.expect("a tagged flow", before, Some(record.clone()));
                self.flows.insert(record.id, record);
            }
            Fact::FlowRenamed { record, was } => {
                let renamed = |flow: &Flow| {
                    let (name, former_names) = (record.name.clone(), record.former_names.clone());
                    (flow.name.clone(), Flow { name, former_names, ..flow.clone() })
                };
                assert_eq!(record.former_names.last(), Some(&was), "the names of a renamed flow");
                let before = self.flows.get(&record.id).map(renamed);
                self.expect("a renamed flow", before, Some((was, record.clone())));
                self.flows.insert(record.id, record);
            }
            Fact::FlowArchived { record, was } => {
                let archived = |flow: &Flow| {
                    let (name, archived_at) = (record.name.clone(), record.archived_at);
                    let former_names = record.former_names.clone();
                    let archived = Flow { name, former_names, archived_at, ..flow.clone() };
                    (flow.name.clone(), flow.archived_at, archived)
                };
                assert_eq!(record.former_names.last(), Some(&was), "the names of an archived flow");
                let before = self.flows.get(&record.id).map(archived);
                self.expect("an archived flow", before, Some((was, None, record.clone())));
                self.flows.insert(record.id, record);
            }
            Fact::TrailBegun { record } | Fact::TrailUpdated { record, .. } => {
                let template = self.flows.get(&record.flow).map(|flow| flow.template);
                self.expect("a trail's template", template, Some(record.template));
                self.trails.insert(record.id, record);
            }
            Fact::RepoReported { record } => {
                self.repos.insert(record.id, record);
            }
            Fact::EnvironmentCreated { record } => {
                self.environments.insert(record.id, record);
            }
            Fact::EnvironmentUpdated { record, joined, left } => {
                let before = self.environments.get(&record.id).map(|before| before.included.clone());
                let before = before.unwrap_or_default();
                let beyond = |some: &[Id], others: &[Id]| {
                    Vec::from_iter(some.iter().filter(|id| !others.contains(id)).copied())
                };
                self.expect("the members that joined", beyond(&record.included, &before), joined);
                self.expect("the members that left", beyond(&before, &record.included), left);
                self.environment("an updated environment", record, |before, record| {
                    let Environment {
                        description,
                        included,
                        policies,
                        include_scaling,
                        require_provenance,
                        ..
                    } = record.clone();
                    Environment {
                        description,
                        included,
                        policies,
                        include_scaling,
                        require_provenance,
                        ..before
                    }
                });
            }
            Fact::EnvironmentTagged { record } => {
                self.environment("a tagged environment", record, |before, record| Environment {
                    tags: record.tags.clone(),
                    ..before
                });
            }
            Fact::EnvironmentJoined { record, member } => {
                self.environment("a joined environment", record, |mut before, _| {
                    before.included.push(member);
                    before
                });
            }
            Fact::PoliciesAttached { record, policies } => {
                self.environment("attached policies", record, |mut before, _| {
                    before.policies.extend(policies);
                    before
                });
            }
            Fact::PoliciesDetached { record, policies } => {
                self.environment("detached policies", record, |mut before, _| {
                    before.policies.retain(|policy| !policies.contains(policy));
                    before
                });
            }
            Fact::EnvironmentRenamed { record, was } => {
                let name = self.environments.get(&record.id).map(|before| before.name.clone());
                self.expect("the former name of an environment", name, Some(was));
                self.environment("a renamed environment", record, |before, record| Environment {
                    name: record.name.clone(),
                    ..before
                });
            }
            Fact::EnvironmentArchived { record } => {
                self.environment("an archived environment", record, |before, _| before);
            }
            Fact::PolicyCreated { record, version } => {
                self.expect("a first version", (1, 1), (record.version, version.version));
                self.versions.insert(record.id, 1);
            }
            Fact::PolicyUpdated { record, version, .. } => {
                let next = self.versions.get(&record.id).map(|before| before + 1);
                self.expect("a version", next, version.map(|version| version.version));
                self.versions.insert(record.id, record.version);
            }
            Fact::ControlCreated { record, version } => {
                self.expect("a first version of a control", (1, 1), (record.version, version.version));
                self.controls.insert(record.id, record);
            }
            // A change of one of these leaves the others unchanged.
            Fact::ControlUpdated { record, version } => self.control(record, &version, |before, record| {
                let Control { name, description, links, .. } = record.clone();
                let changes = [before.name != name, before.description != description, before.links != links];
                let is_one = changes.into_iter().filter(|is_changed| *is_changed).count() == 1;
                is_one.then_some(Control { name, description, links, ..before })
            }),
            Fact::ControlArchived { record, version } => self.control(record, &version, |before, _| {
                (!before.archived).then_some(Control { archived: true, ..before })
            }),
            Fact::ControlUnarchived { record, version } => self.control(record, &version, |before, _| {
                before.archived.then_some(Control { archived: false, ..before })
            }),
            Fact::ControlTagged { record } => {
                let tagged = |before: &Control| Control { tags: record.tags.clone(), ..before.clone() };
                let expected = self.controls.get(&record.id).map(tagged);
                self.expect("a tagged control", expected, Some(record.clone()));
                self.controls.insert(record.id, record);
            }
            Fact::ActionCreated { record } => {
                self.expect("the number of an action", self.greatest_action + 1, record.number);
                self.greatest_action = record.number;
                self.actions.insert(record.id, record);
            }
            Fact::ActionUpdated { record, was, .. } => {
                let before = self.actions.insert(record.id, record.clone());
                let kept = |action: &Action| (action.number, action.created_at, action.created_by.clone());
                self.expect("what stays of an action", before.as_ref().map(kept), Some(kept(&record)));
                let name = before.map(|before| before.name).filter(|name| *name != record.name);
                self.expect("the former name of an action", name, was);
            }
            Fact::ActionDeleted { record } => {
                let before = self.actions.remove(&record.id);
                self.expect("a deleted action", before, Some(record));
            }
            Fact::SnapshotTaken { snapshot } => self.snapshot(&snapshot),
            Fact::ArtifactReported {
                record:
                    Artifact {
                        trail: Some(trail),
                        template_reference_name,
                        fingerprint,
                        template,
                        repo,
                        repo_info,
                        ..
                    },
            } => {
                let of_trail = self.trails.get(&trail).map(|trail| trail.template);
                self.expect("an artifact's template", of_trail, Some(template));
                let reported = repo.and_then(|repo| self.repos.get(&repo)).map(|repo| repo.info.clone());
                self.expect("an artifact's repo", reported, repo_info);
                self.artifacts.insert((trail, template_reference_name), fingerprint);
            }
            Fact::AttestationAdded {
                record: Attestation { trail, binding: Binding::Artifact { fingerprint, target }, .. },
            } => {
                let named = self.artifacts.get(&(trail, target)).cloned();
                self.expect("the artifact of an attestation", named, Some(fingerprint));
            }
            _ => {}
        }
    }

    /// An environment that `change` makes of the one before; its time of change may be any.
    fn environment(
        &mut self,
        what: &str,
        record: Environment,
        change: impl FnOnce(Environment, &Environment) -> Environment,
    ) {
        let changed = |before: &Environment| {
            let last_modified_at = record.last_modified_at;
            Environment { last_modified_at, ..change(before.clone(), &record) }
        };
        let expected = self.environments.get(&record.id).map(changed);
        self.expect(what, expected, Some(record.clone()));
        self.environments.insert(record.id, record);
    }

    /// A version of a control that `change` makes of the one before.
    fn control(
        &mut self,
        record: Control,
        version: &ControlVersion,
        change: impl FnOnce(Control, &Control) -> Option<Control>,
    ) {
        let changed = |before: &Control| {
            let (version, last_modified_at) = (before.version + 1, record.last_modified_at);
            change(Control { version, last_modified_at, ..before.clone() }, &record)
        };
        let expected = self.controls.get(&record.id).and_then(changed);
        self.expect("a version of a control", expected, Some(record.clone()));
        self.expect("the number of a version of a control", record.version, version.version);
        self.controls.insert(record.id, record);
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        let id = snapshot.environment;
        let (number, at, events) = self.snapshots.get(&id).copied().unwrap_or_default();
        self.expect("the number of a snapshot", number + 1, snapshot.index);
        self.expect("the time of a snapshot", at, at.min(snapshot.at));
        self.expect("the policies of a snapshot", self.evaluates(id), snapshot.policies.clone());
        self.expect("how many events were before a snapshot", events, snapshot.events_before);
        self.snapshots.insert(id, (snapshot.index, snapshot.at, snapshot.events_with()));
    }

    /// The policies of an environment.
    fn evaluates(&self, environment: Id) -> Vec<AppliedPolicy> {
        let mut policies = self.environments[&environment].policies.clone();
        policies.sort_unstable();
        policies.into_iter().map(|policy| AppliedPolicy { policy, version: self.versions[&policy] }).collect()
    }

    /// Compares the final state of the store and the API, too.
    pub(crate) async fn end(mut self, store: &dyn Store, org: Id, api: &Api) -> Vec<String> {
        for known in store.environments(org).await.unwrap() {
            let (id, name) = (known.record.id, &known.record.name);
            let (latest, _, events) = self.snapshots.get(&id).copied().unwrap_or_default();
            self.expect("how many events there are", events, known.status.events);
            self.expect("how many snapshots there are", latest, known.status.snapshots);
            self.expect("an environment", self.environments.get(&id).cloned(), Some(known.record.clone()));
            if let Some(snapshot) = store.snapshot(org, id, latest).await.unwrap() {
                let evaluates = self.evaluates(id);
                self.expect(&format!("the latest evaluation of {name}"), evaluates, snapshot.record.policies);
            }
            let list = api.get(&format!("/snapshots/acme/{name}?per_page=1000")).await.ok();
            let lines = list.as_array().unwrap();
            self.expect("the length of a list", latest, lines.len() as u64);
            let lasted = |line: &Value| line["duration"].as_i64().unwrap();
            self.expect("durations", None, lines.iter().map(lasted).find(|lasted| *lasted < 0));
        }
        self.misfits
    }
}
