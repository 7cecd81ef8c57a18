//! The tables of an organization, as derived from its facts.

use std::collections::{BTreeMap, BTreeSet};

use evidence_core::actions::Action;
use evidence_core::allowlists::AllowlistEntry;
use evidence_core::artifacts::Artifact;
use evidence_core::attestation_types::{AttestationType, AttestationTypeVersion};
use evidence_core::attestations::Attestation;
use evidence_core::auth::Role;
use evidence_core::controls::{Control, ControlVersion};
use evidence_core::environments::{Environment, MemberChange};
use evidence_core::fact::Fact;
use evidence_core::flows::Flow;
use evidence_core::id::Id;
use evidence_core::ledger::Hash;
use evidence_core::name::TrailName;
use evidence_core::orgs::UserSettings;
use evidence_core::policies::{Policy, PolicyVersion};
use evidence_core::repos::Repo;
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount};
use evidence_core::snapshots::{ArtifactKey, RunningArtifact, Snapshot};
use evidence_core::store::Current;
use evidence_core::time::Timestamp;
use evidence_core::trails::Trail;

use super::ledger::Ledger;

/// The records of an organization. Records that change are stored by id, others in the order of recording.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) ledger: Ledger,
    pub(super) members: BTreeMap<Id, Current<Role>>,
    pub(super) user_settings: BTreeMap<Id, Current<UserSettings>>,
    pub(super) service_accounts: BTreeMap<Id, Current<ServiceAccount>>,
    pub(super) keys: BTreeMap<Id, Current<ApiKeyRecord>>,
    pub(super) flows: BTreeMap<Id, Current<Flow>>,
    pub(super) trails: BTreeMap<(Id, TrailName), Current<Trail>>,
    /// The keys of `trails`, oldest first.
    pub(super) trails_begun: Vec<(Id, TrailName)>,
    pub(super) artifacts: Vec<Current<Artifact>>,
    pub(super) attestations: Vec<Current<Attestation>>,
    /// The trails in which something names a commit in full, with their flows.
    pub(super) commit_trails: BTreeMap<String, BTreeMap<Id, Id>>,
    pub(super) repos: BTreeMap<Id, Current<Repo>>,
    /// The address of the repo that was named last, by flow.
    pub(super) flow_repos: BTreeMap<Id, String>,
    pub(super) environments: BTreeMap<Id, Current<Environment>>,
    /// The changes of the members of logical environments.
    pub(super) member_changes: Vec<(Id, MemberChange)>,
    /// The time of the last report about each environment, and its entry.
    pub(super) reported: BTreeMap<Id, Current<Timestamp>>,
    /// The environments that lists omit.
    pub(super) archived: BTreeSet<Id>,
    pub(super) snapshots: BTreeMap<(Id, u64), Current<Snapshot>>,
    pub(super) intervals: Vec<Interval>,
    pub(super) policies: BTreeMap<Id, Current<Policy>>,
    pub(super) policy_versions: Vec<PolicyVersion>,
    pub(super) allowlist_entries: Vec<Current<AllowlistEntry>>,
    pub(super) attestation_types: BTreeMap<Id, Current<AttestationType>>,
    pub(super) attestation_type_versions: Vec<AttestationTypeVersion>,
    pub(super) controls: BTreeMap<Id, Current<Control>>,
    pub(super) control_versions: Vec<ControlVersion>,
    pub(super) actions: BTreeMap<Id, Current<Action>>,
    /// Includes deleted actions.
    pub(super) greatest_action_number: u64,
    pub(super) texts: BTreeMap<Hash, String>,
}

/// The interval in which an artifact had one state.
#[derive(Debug)]
pub(super) struct Interval {
    pub(super) environment: Id,
    pub(super) artifact: ArtifactKey,
    pub(super) instance: RunningArtifact,
    /// The number of the event at its start.
    pub(super) event: Option<u64>,
    /// The first snapshot after it, and the time of that snapshot.
    pub(super) until: Option<(u64, Timestamp)>,
    pub(super) exited: bool,
    /// The number of the event at its end.
    pub(super) exit_event: Option<u64>,
}

impl Tables {
    /// Applies the fact that was recorded at ledger index `revision` at this time. Organizations and users
    /// belong to no single organization.
    pub(super) fn apply(&mut self, fact: Fact, revision: u64, at: Timestamp) {
        match fact {
            Fact::OrganizationCreated { .. } | Fact::UserCreated { .. } => {}
            Fact::UserSettingsChanged { record } => {
                self.user_settings.insert(record.user, Current { revision, record });
            }
            Fact::MemberAdded { record, .. } => {
                self.members.insert(record.user, Current { revision, record: record.role });
            }
            Fact::MemberRemoved { user, .. } => {
                self.members.remove(&user);
            }
            Fact::ServiceAccountCreated { record } | Fact::ServiceAccountUpdated { record } => {
                self.service_accounts.insert(record.id, Current { revision, record });
            }
            Fact::ServiceAccountDeleted { record } => {
                self.service_accounts.remove(&record.id);
            }
            Fact::ApiKeyCreated { record } | Fact::ApiKeyRevoked { record } => {
                self.keys.insert(record.id, Current { revision, record });
            }
            Fact::FlowCreated { record }
            | Fact::FlowUpdated { record }
            | Fact::FlowTagged { record }
            | Fact::FlowRenamed { record, .. }
            | Fact::FlowArchived { record, .. } => {
                self.flows.insert(record.id, Current { revision, record });
            }
            Fact::TrailBegun { record } | Fact::TrailUpdated { record, .. } => {
                self.put_trail(record, revision)
            }
            Fact::ArtifactReported { record } => self.artifacts.push(Current { revision, record }),
            Fact::AttestationAdded { record } => self.attestations.push(Current { revision, record }),
            Fact::RepoReported { record } | Fact::RepoTagged { record } => {
                self.repos.insert(record.id, Current { revision, record });
            }
            Fact::EnvironmentCreated { record } => {
                self.change_members(record.id, &record.included, true, revision);
                self.put_environment(record, revision);
            }
            Fact::EnvironmentUpdated { record, joined, left } => {
                self.change_members(record.id, &joined, true, revision);
                self.change_members(record.id, &left, false, revision);
                if joined.is_empty() && left.is_empty() {
                    self.change_settings(&record, revision);
                }
                self.put_environment(record, revision);
            }
            Fact::EnvironmentJoined { record, member } => {
                self.change_members(record.id, &[member], true, revision);
                self.put_environment(record, revision);
            }
            Fact::PoliciesAttached { record, .. } | Fact::PoliciesDetached { record, .. } => {
                self.change_settings(&record, revision);
                self.put_environment(record, revision);
            }
            Fact::EnvironmentTagged { record } | Fact::EnvironmentRenamed { record, .. } => {
                self.put_environment(record, revision)
            }
            Fact::EnvironmentArchived { record } => {
                self.archived.insert(record.id);
                self.put_environment(record, revision);
            }
            Fact::EnvironmentReported { environment } => self.report(environment, revision, at),
            Fact::SnapshotTaken { snapshot } => {
                if snapshot.reported {
                    self.report(snapshot.environment, revision, snapshot.at);
                }
                self.take(snapshot, revision);
            }
            Fact::PolicyCreated { record, version } => self.put_policy(record, Some(version), revision),
            Fact::PolicyUpdated { record, version, .. } => self.put_policy(record, version, revision),
            Fact::ArtifactAllowed { record } | Fact::AllowanceWithdrawn { record } => {
                self.allowlist_entries.push(Current { revision, record });
            }
            Fact::AttestationTypeCreated { record, version }
            | Fact::AttestationTypeVersioned { record, version } => {
                self.attestation_types.insert(record.id, Current { revision, record });
                self.attestation_type_versions.push(version);
            }
            Fact::AttestationTypeArchived { record } => {
                self.attestation_types.insert(record.id, Current { revision, record });
            }
            Fact::ControlCreated { record, version }
            | Fact::ControlUpdated { record, version }
            | Fact::ControlArchived { record, version }
            | Fact::ControlUnarchived { record, version } => {
                self.controls.insert(record.id, Current { revision, record });
                self.control_versions.push(version);
            }
            Fact::ControlTagged { record } => {
                self.controls.insert(record.id, Current { revision, record });
            }
            Fact::ActionCreated { record } | Fact::ActionUpdated { record, .. } => {
                self.greatest_action_number = self.greatest_action_number.max(record.number);
                self.actions.insert(record.id, Current { revision, record });
            }
            Fact::ActionDeleted { record } => {
                self.actions.remove(&record.id);
            }
            Fact::TextKept { text } => {
                self.texts.insert(Hash::of(&text), text);
            }
            Fact::LedgerNamed { .. } => {}
            Fact::ClockCorrected { .. } => self.correct_times(at),
            unknown => panic!("the memory store cannot record the fact {}", unknown.kind()),
        }
    }

    fn put_trail(&mut self, record: Trail, revision: u64) {
        let key = (record.flow, record.name.clone());
        if self.trails.insert(key.clone(), Current { revision, record }).is_none() {
            self.trails_begun.push(key);
        }
    }

    /// Limits the effective times of everything recorded before to this time.
    fn correct_times(&mut self, at: Timestamp) {
        for (_, until) in self.intervals.iter_mut().filter_map(|interval| interval.until.as_mut()) {
            *until = at.min(*until);
        }
        for reported in self.reported.values_mut() {
            reported.record = reported.record.min(at);
        }
    }

    fn report(&mut self, environment: Id, revision: u64, at: Timestamp) {
        let last = self.reported.entry(environment).or_insert(Current { revision, record: at });
        *last = Current { revision, record: at.max(last.record) };
    }

    fn change_members(&mut self, environment: Id, members: &[Id], joined: bool, entry: u64) {
        let change = |member: &Id| (environment, MemberChange { entry, member: *member, joined });
        self.member_changes.extend(members.iter().map(change));
    }

    /// Records that the settings of a logical environment changed, but not its members.
    fn change_settings(&mut self, record: &Environment, entry: u64) {
        if !record.kind.is_physical() {
            self.change_members(record.id, &[record.id], true, entry);
        }
    }

    fn put_environment(&mut self, record: Environment, revision: u64) {
        self.environments.insert(record.id, Current { revision, record });
    }

    fn put_policy(&mut self, record: Policy, version: Option<PolicyVersion>, revision: u64) {
        self.policies.insert(record.id, Current { revision, record });
        self.policy_versions.extend(version);
    }

    /// Applies the changes and exits of a snapshot. A change ends the artifact's interval and starts another;
    /// an exit only ends it.
    fn take(&mut self, snapshot: Snapshot, revision: u64) {
        let changed: BTreeSet<ArtifactKey> = snapshot.changes.iter().map(RunningArtifact::key).collect();
        let first = snapshot.events_before.saturating_add(1);
        let numbered = (first..).zip(snapshot.events());
        let events: BTreeMap<(ArtifactKey, bool), u64> =
            numbered.map(|(number, (artifact, told))| ((artifact, told.is_none()), number)).collect();
        for interval in self.intervals.iter_mut().filter(|one| one.lasts_in(snapshot.environment)) {
            let exited = snapshot.exits.contains(&interval.artifact);
            if exited || changed.contains(&interval.artifact) {
                interval.until = Some((snapshot.index, snapshot.at));
                interval.exited = exited;
                interval.exit_event = events.get(&(interval.artifact.clone(), true)).copied();
            }
        }
        let begun = |instance: &RunningArtifact| Interval {
            environment: snapshot.environment,
            artifact: instance.key(),
            instance: instance.clone(),
            event: events.get(&(instance.key(), false)).copied(),
            until: None,
            exited: false,
            exit_event: None,
        };
        self.intervals.extend(snapshot.changes.iter().map(begun));
        self.snapshots.insert((snapshot.environment, snapshot.index), Current { revision, record: snapshot });
    }
}

impl Interval {
    fn lasts_in(&self, environment: Id) -> bool {
        self.environment == environment && self.until.is_none()
    }

    /// Returns whether snapshot `index` is in the interval.
    pub(super) fn covers(&self, index: u64) -> bool {
        self.instance.from <= index && self.until.is_none_or(|(until, _)| index < until)
    }

    /// Returns whether the artifact exited with snapshot `index`.
    pub(super) fn exited_in(&self, index: u64) -> bool {
        self.exited && self.until.is_some_and(|(until, _)| until == index)
    }
}
