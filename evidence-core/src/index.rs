//! Index rows: the data by which a store finds records. The core derives them from facts
//! ([`Fact::index_rows`]), and a store writes them without knowing facts. A new fact therefore changes the
//! core alone. The row kinds are a closed set, so existing stores keep working.
//!
//! A row refers to the ledger entry that it follows from. The entry's payload contains the body: its
//! `record`, for [`IndexRow::Version`] its `version`, for [`IndexRow::Snapshot`] its `snapshot`, for
//! [`IndexRow::Text`] its `text`.

use std::borrow::Cow;

use crate::attestations::record::{Attachment, Binding};
use crate::auth::actor::{Actor, Role};
use crate::environments::record::Environment;
use crate::fact::Fact;
use crate::fact::names::{NameEffect, RecordKind};
use crate::git::GitCommit;
use crate::id::Id;
use crate::ledger::Hash;
use crate::name::{Fingerprint, TrailName};
use crate::orgs::record::{Organization, User};
use crate::repos::record::{RepoInfo, VcsProvider};
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::{LogicalVerdict, Provenance, RunningArtifact, Snapshot};
use crate::tags::record::Tags;
use crate::texts::record::TextRef;
use crate::time::Timestamp;

/// A row to write because of a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum IndexRow<'a> {
    /// A new organization.
    Organization(&'a Organization),
    /// A new user.
    User(&'a User),
    /// A user's role in the organization; `role: None` ends the membership. Replaces the user's row.
    Member {
        /// The user.
        user: Id,
        /// The role.
        role: Option<Role>,
    },
    /// An effect on a name. The names of trails, snapshots, organizations and users follow from their own
    /// rows.
    Name(NameEffect),
    /// The newest state of a record. The index of the entry is its revision from then on. Replaces the row of
    /// its kind and id. Trails have [`IndexRow::Trail`] instead.
    Record {
        /// Its kind.
        kind: RecordKind,
        /// Its id.
        id: Id,
        /// The name that lists show and sort by.
        name: Cow<'a, str>,
        /// Its tags; `None` without tags.
        tags: Option<&'a Tags>,
        /// Whether lists omit it.
        archived: bool,
    },
    /// The tags of a record, if the fact may change them. Replaces the row of its kind and id.
    Tags {
        /// Its kind.
        kind: RecordKind,
        /// Its id.
        id: Id,
        /// Its tags.
        tags: &'a Tags,
    },
    /// An API key, whose hash is stored beside the ledger. Replaces the key's row, except for its hash and
    /// owner.
    ApiKey {
        /// The key's id.
        id: Id,
        /// Its owner.
        owner: &'a Actor,
        /// When it was created.
        created_at: Timestamp,
        /// When it ends: when it expires, or when its grace period is over.
        expires_at: Option<Timestamp>,
        /// When it was revoked.
        revoked_at: Option<Timestamp>,
    },
    /// A trail. Its first entry decides its place in lists. A later row changes only its revision, and is one
    /// of its events.
    Trail {
        /// The trail.
        id: Id,
        /// Its flow.
        flow: Id,
        /// Its name, unique in the flow.
        name: &'a TrailName,
        /// Whether this entry creates it.
        begins: bool,
    },
    /// A report of an artifact. The first report of a fingerprint is a build.
    Artifact {
        /// The report.
        id: Id,
        /// The flow.
        flow: Id,
        /// The trail, if it was reported to one.
        trail: Option<Id>,
        /// The SHA-256 of the content.
        fingerprint: &'a Fingerprint,
        /// Its name in the template; `""` without one.
        name: &'a str,
        /// The commit that it was built from, as reported; `""` without one.
        commit: &'a str,
        /// The branch of that commit.
        branch: Option<&'a str>,
        /// The repo that it was built from.
        repo: Option<Id>,
        /// The time of that commit.
        committed_at: Option<Timestamp>,
        /// The template for a report without a trail.
        template: Option<TextRef>,
        /// When it was reported.
        at: Timestamp,
    },
    /// An attestation.
    Attestation {
        /// The attestation.
        id: Id,
        /// The flow.
        flow: Id,
        /// The trail that it was reported to.
        trail: Id,
        /// Its name.
        name: &'a str,
        /// Its type.
        kind: &'a str,
        /// Its verdict.
        is_compliant: bool,
        /// For an override, who overrides an attestation, and why.
        override_info: Option<String>,
        /// The identifier of the control that it decides on.
        control: Option<&'a str>,
        /// The number of that control's latest version at the time.
        control_version: Option<u64>,
        /// The name of the actor who decided on it.
        decided_by: Option<&'a str>,
        /// Its subject.
        binding: &'a Binding,
        /// The commit that it names; empty if it does not name the commit in full.
        commit: Option<&'a str>,
        /// When it was reported.
        at: Timestamp,
    },
    /// A trail in which the trail itself, an artifact or an attestation names this commit in full. One row
    /// per trail and commit.
    CommitTrail {
        /// The commit.
        commit: &'a str,
        /// The trail.
        trail: Id,
        /// Its flow.
        flow: Id,
    },
    /// The address of the repo that a report to the flow names. Replaces the flow's row.
    FlowRepo {
        /// The flow.
        flow: Id,
        /// The repo's address.
        url: &'a str,
    },
    /// The newest report of a repo. Replaces the row of its id.
    Repo {
        /// The repo.
        id: Id,
        /// Its name.
        name: &'a str,
        /// The host of the repo.
        provider: Option<VcsProvider>,
        /// Its id at that host.
        external_id: Option<&'a str>,
        /// The host of its URL.
        vcs_instance: Option<&'a str>,
        /// The groups that contain it.
        namespace: &'a [String],
    },
    /// A member joined or left a logical environment with this entry, or the policies of the environment may
    /// have changed.
    EnvironmentMember {
        /// The logical environment.
        environment: Id,
        /// The member; the logical environment itself if only its settings changed.
        member: Id,
        /// Whether it is a member now.
        joined: bool,
    },
    /// A snapshot.
    Snapshot {
        /// The environment.
        environment: Id,
        /// Its number in the environment.
        index: u64,
        /// When it was taken.
        at: Timestamp,
        /// Its verdict.
        compliant: bool,
        /// The number of the environment's events, including those of this snapshot.
        events: u64,
        /// Its verdicts for logical environments.
        logical: &'a [LogicalVerdict],
    },
    /// A report about the environment, with or without changes. Replaces the environment's row unless that is
    /// later.
    Reported {
        /// The environment.
        environment: Id,
        /// The time of the report.
        at: Timestamp,
    },
    /// An artifact in the environment changed or exited, so its present interval ends before snapshot
    /// `until`. Does nothing if it was not running.
    IntervalEnded {
        /// The environment.
        environment: Id,
        /// The artifact.
        artifact: ArtifactKey,
        /// The first snapshot after the interval.
        until: u64,
        /// The number of the event by which it exited; `None` if it still runs in another state.
        exit: Option<u64>,
    },
    /// An artifact runs in this state from snapshot `instance.from` on.
    IntervalBegun {
        /// The environment.
        environment: Id,
        /// The artifact and its state.
        instance: &'a RunningArtifact,
        /// The number of its event; `None` without one.
        event: Option<u64>,
    },
    /// The content of an artifact that started had a name in a flow. Replaces the row of the environment,
    /// flow, name, snapshot and artifact.
    Origin {
        /// The environment.
        environment: Id,
        /// The flow.
        flow: Id,
        /// Its name in the template; empty without one.
        reference: &'a str,
        /// The first snapshot of the run.
        since: u64,
        /// The artifact.
        artifact: ArtifactKey,
        /// The report.
        report: Id,
    },
    /// An artifact started in the environment. It gets the next number in each series: all, of the
    /// environment, of the repo.
    Deployment {
        /// The environment.
        environment: Id,
        /// The artifact. Its run begins with snapshot `instance.from`.
        instance: &'a RunningArtifact,
    },
    /// A version of a policy, of an attestation type or of a control.
    Version {
        /// The record.
        of: Id,
        /// Its number, from 1.
        number: u64,
    },
    /// An allowlist entry or its withdrawal. Older rows of the environment and fingerprint stay.
    Allowed {
        /// The environment.
        environment: Id,
        /// The artifact.
        fingerprint: &'a Fingerprint,
        /// When the entry ends or ended, if it does.
        ends_at: Option<Timestamp>,
        /// Whether it was withdrawn.
        withdrawn: bool,
    },
    /// A file that the entry names. Its content is stored beside the ledger, and is no longer pending
    /// ([`crate::sweep`]). One row per content.
    Attachment(&'a Attachment),
    /// A clock was ahead. All rows of earlier entries of the organization with a later time get the time of
    /// this entry. The rows are then again in the order of their times.
    TimeCorrected,
    /// The text with this digest. The newest row of a digest replaces older ones.
    Text {
        /// The SHA-256 of the text.
        sha256: Hash,
    },
    /// A secret URL that no target has any more, and that is deleted.
    RemovedUrl {
        /// Its id.
        id: Id,
    },
    /// The entry refers to a text that an earlier entry recorded.
    TextUse {
        /// The SHA-256 of the text.
        sha256: Hash,
    },
}

fn commit_row(commit: Option<&str>, trail: Id, flow: Id) -> Option<IndexRow<'_>> {
    Some(IndexRow::CommitTrail { commit: commit?, trail, flow })
}

/// Returns the address of a repo; empty without one.
fn address(repo: Option<&RepoInfo>) -> &str {
    repo.map(|repo| repo.url.as_str()).unwrap_or_default()
}

fn member_rows(environment: Id, members: &[Id], joined: bool) -> impl Iterator<Item = IndexRow<'_>> {
    members.iter().map(move |member| IndexRow::EnvironmentMember { environment, member: *member, joined })
}

/// Returns the row of a logical environment whose settings changed, but not its members.
fn settings_row(record: &Environment) -> Option<IndexRow<'_>> {
    let (environment, member) = (record.id, record.id);
    let row = IndexRow::EnvironmentMember { environment, member, joined: true };
    (!record.kind.is_physical()).then_some(row)
}

fn taken(snapshot: &Snapshot) -> Vec<IndexRow<'_>> {
    let Snapshot { environment, index, at, compliant, reported, .. } = *snapshot;
    let mut rows = vec![IndexRow::Snapshot {
        environment,
        index,
        at,
        compliant,
        events: snapshot.events_with(),
        logical: &snapshot.logical,
    }];
    rows.extend(reported.then_some(IndexRow::Reported { environment, at }));
    let ended = |artifact, exit| IndexRow::IntervalEnded { environment, artifact, until: index, exit };
    let first = snapshot.events_before.saturating_add(1);
    for (event, (artifact, instance)) in (first..).zip(snapshot.events()) {
        match instance {
            None => rows.push(ended(artifact, Some(event))),
            Some(instance) => {
                rows.push(ended(artifact, None));
                rows.push(IndexRow::IntervalBegun { environment, instance, event: Some(event) });
            }
        }
    }
    for instance in snapshot.changes.iter().filter(|instance| !instance.annotation.is_event()) {
        rows.push(ended(instance.key(), None));
        rows.push(IndexRow::IntervalBegun { environment, instance, event: None });
    }
    for instance in &snapshot.changes {
        rows.extend(instance.begins_a_run().then_some(IndexRow::Deployment { environment, instance }));
        for Provenance { artifact: report, flow, reference, .. } in &instance.provenance {
            rows.extend(flow.map(|flow| IndexRow::Origin {
                environment,
                flow,
                reference,
                since: instance.since,
                artifact: instance.key(),
                report: *report,
            }));
        }
    }
    rows
}

impl Fact {
    /// Returns the rows of the fact, in the order in which to write them. `at` is the time of its entry.
    pub fn index_rows(&self, at: Timestamp) -> Vec<IndexRow<'_>> {
        let mut rows: Vec<_> = self.name_effects().into_iter().map(IndexRow::Name).collect();
        let record = self.record_row();
        rows.extend(record.as_ref().and_then(|record| self.tags_row(record)));
        rows.extend(record);
        rows.extend(self.text_use().map(|text| IndexRow::TextUse { sha256: text.sha256 }));
        rows.extend(self.flow_repo());
        match self {
            Self::OrganizationCreated { record } => rows.push(IndexRow::Organization(record)),
            Self::UserCreated { record } => rows.push(IndexRow::User(record)),
            Self::MemberAdded { record, .. } => {
                rows.push(IndexRow::Member { user: record.user, role: Some(record.role) });
            }
            Self::MemberRemoved { user, .. } => rows.push(IndexRow::Member { user: *user, role: None }),
            Self::ApiKeyCreated { record } | Self::ApiKeyRevoked { record } => rows.push(IndexRow::ApiKey {
                id: record.id,
                owner: &record.owner,
                created_at: record.created_at,
                expires_at: record.ends_at(),
                revoked_at: record.revoked_at,
            }),
            Self::TrailBegun { record } | Self::TrailUpdated { record, .. } => {
                rows.push(IndexRow::Trail {
                    id: record.id,
                    flow: record.flow,
                    name: &record.name,
                    begins: matches!(self, Self::TrailBegun { .. }),
                });
                let commit = GitCommit::in_full_of(record.git_commit_info.as_ref());
                rows.extend(commit_row(commit, record.id, record.flow));
            }
            Self::ArtifactReported { record } => {
                rows.push(IndexRow::Artifact {
                    id: record.id,
                    flow: record.flow,
                    trail: record.trail,
                    fingerprint: &record.fingerprint,
                    name: &record.template_reference_name,
                    commit: record.commit(),
                    branch: record.git_commit_info.as_ref().and_then(|info| info.branch.as_deref()),
                    repo: record.repo,
                    committed_at: record.committed_at(),
                    template: record.own_template(),
                    at: record.created_at,
                });
                let named = |trail| commit_row(record.commit_in_full(), trail, record.flow);
                rows.extend(record.trail.and_then(named));
            }
            Self::AttestationAdded { record } => {
                rows.push(IndexRow::Attestation {
                    id: record.id,
                    flow: record.flow,
                    trail: record.trail,
                    name: record.name.as_ref(),
                    kind: &record.kind,
                    is_compliant: record.is_compliant,
                    override_info: record.override_info(),
                    control: record.details.control(),
                    control_version: record.details.control_version(),
                    decided_by: record.details.control().map(|_| record.created_by.name.as_str()),
                    binding: &record.binding,
                    commit: record.own_commit(),
                    at: record.created_at,
                });
                let commit = GitCommit::in_full_of(record.git_commit_info.as_ref());
                rows.extend(commit_row(commit, record.trail, record.flow));
                rows.extend(record.attachments.iter().chain(&record.evidence).map(IndexRow::Attachment));
            }
            Self::RepoReported { record } | Self::RepoTagged { record } => rows.push(IndexRow::Repo {
                id: record.id,
                name: &record.info.name,
                provider: record.info.provider,
                external_id: record.info.id.as_deref(),
                vcs_instance: record.vcs_instance.as_deref(),
                namespace: &record.namespace_path,
            }),
            Self::EnvironmentReported { environment } => {
                rows.push(IndexRow::Reported { environment: *environment, at });
            }
            Self::SnapshotTaken { snapshot } => rows.extend(taken(snapshot)),
            Self::PolicyCreated { version, .. } | Self::PolicyUpdated { version: Some(version), .. } => {
                rows.push(IndexRow::Version { of: version.policy, number: version.version });
            }
            Self::AttestationTypeCreated { version, .. } | Self::AttestationTypeVersioned { version, .. } => {
                rows.push(IndexRow::Version { of: version.attestation_type, number: version.version });
            }
            Self::ControlCreated { version, .. }
            | Self::ControlUpdated { version, .. }
            | Self::ControlArchived { version, .. }
            | Self::ControlUnarchived { version, .. } => {
                rows.push(IndexRow::Version { of: version.control, number: version.version });
            }
            Self::ArtifactAllowed { record } | Self::AllowanceWithdrawn { record } => {
                rows.push(IndexRow::Allowed {
                    environment: record.environment,
                    fingerprint: &record.fingerprint,
                    ends_at: record.ends_at(),
                    withdrawn: record.withdrawn.is_some(),
                });
            }
            Self::EnvironmentCreated { record } => {
                rows.extend(member_rows(record.id, &record.included, true));
            }
            Self::EnvironmentUpdated { record, joined, left } => {
                rows.extend(member_rows(record.id, joined, true));
                rows.extend(member_rows(record.id, left, false));
                if joined.is_empty() && left.is_empty() {
                    rows.extend(settings_row(record));
                }
            }
            Self::PoliciesAttached { record, .. } | Self::PoliciesDetached { record, .. } => {
                rows.extend(settings_row(record));
            }
            Self::EnvironmentJoined { record, member } => {
                rows.extend(member_rows(record.id, std::slice::from_ref(member), true));
            }
            Self::ActionUpdated { removed_urls, .. } => {
                rows.extend(removed_urls.iter().map(|id| IndexRow::RemovedUrl { id: *id }));
            }
            Self::ActionDeleted { record } => {
                rows.extend(record.urls().map(|url| IndexRow::RemovedUrl { id: url.id }));
            }
            Self::TextKept { text } => rows.push(IndexRow::Text { sha256: Hash::of(text) }),
            Self::ClockCorrected { .. } => rows.push(IndexRow::TimeCorrected),
            // These are found only by the rows of the record and of its names, or by the ledger alone.
            Self::LedgerNamed { .. }
            | Self::UserSettingsChanged { .. }
            | Self::ServiceAccountCreated { .. }
            | Self::ServiceAccountUpdated { .. }
            | Self::ServiceAccountDeleted { .. }
            | Self::FlowCreated { .. }
            | Self::FlowUpdated { .. }
            | Self::FlowTagged { .. }
            | Self::FlowRenamed { .. }
            | Self::FlowArchived { .. }
            | Self::EnvironmentTagged { .. }
            | Self::EnvironmentRenamed { .. }
            | Self::EnvironmentArchived { .. }
            | Self::AttestationTypeArchived { .. }
            | Self::ControlTagged { .. }
            | Self::ActionCreated { .. }
            | Self::PolicyUpdated { version: None, .. } => {}
        }
        rows
    }

    /// Returns the row of the repo that the fact names for its flow.
    fn flow_repo(&self) -> Option<IndexRow<'_>> {
        let (flow, url) = match self {
            Self::TrailBegun { record } => (record.flow, address(record.repo_info.as_ref())),
            // Other updates repeat the trail's repo.
            Self::TrailUpdated { record, changes } if changes.iter().any(|change| change == "repo_info") => {
                (record.flow, address(record.repo_info.as_ref()))
            }
            Self::ArtifactReported { record } => (record.flow, record.repo_address()),
            Self::AttestationAdded { record } => (record.flow, address(record.repo_info.as_ref())),
            _ => return None,
        };
        (!url.is_empty()).then_some(IndexRow::FlowRepo { flow, url })
    }

    /// Returns the text that the fact refers to.
    const fn text_use(&self) -> Option<TextRef> {
        match self {
            Self::FlowCreated { record }
            | Self::FlowUpdated { record }
            | Self::FlowTagged { record }
            | Self::FlowRenamed { record, .. }
            | Self::FlowArchived { record, .. } => record.template,
            Self::TrailBegun { record } | Self::TrailUpdated { record, .. } => record.template,
            Self::ArtifactReported { record } => record.template,
            Self::AttestationAdded { record } => record.data,
            _ => None,
        }
    }

    /// Returns the row of the record's tags. Returns `None` if it has no tags and the fact cannot change
    /// them: other facts than those that set tags repeat the existing ones.
    fn tags_row<'a>(&self, record: &IndexRow<'a>) -> Option<IndexRow<'a>> {
        let IndexRow::Record { kind, id, tags: Some(tags), .. } = *record else { return None };
        let sets_tags = matches!(
            self,
            Self::FlowTagged { .. }
                | Self::EnvironmentTagged { .. }
                | Self::RepoTagged { .. }
                | Self::ControlTagged { .. }
        );
        (sets_tags || !tags.is_empty()).then_some(IndexRow::Tags { kind, id, tags })
    }

    /// Returns the row of the record that the fact creates or changes.
    fn record_row(&self) -> Option<IndexRow<'_>> {
        let (kind, id) = self.subject()?;
        let (name, tags) = match self {
            Self::ServiceAccountCreated { record }
            | Self::ServiceAccountUpdated { record }
            | Self::ServiceAccountDeleted { record } => (record.name.as_ref(), None),
            Self::FlowCreated { record }
            | Self::FlowUpdated { record }
            | Self::FlowTagged { record }
            | Self::FlowRenamed { record, .. }
            | Self::FlowArchived { record, .. } => (record.name.as_ref(), Some(&record.tags)),
            Self::RepoReported { record } | Self::RepoTagged { record } => {
                (record.identity.as_str(), Some(&record.tags))
            }
            Self::EnvironmentCreated { record }
            | Self::EnvironmentUpdated { record, .. }
            | Self::EnvironmentTagged { record }
            | Self::EnvironmentJoined { record, .. }
            | Self::EnvironmentRenamed { record, .. }
            | Self::EnvironmentArchived { record }
            | Self::PoliciesAttached { record, .. }
            | Self::PoliciesDetached { record, .. } => (record.name.as_ref(), Some(&record.tags)),
            Self::PolicyCreated { record, .. } | Self::PolicyUpdated { record, .. } => {
                (record.name.as_ref(), None)
            }
            Self::AttestationTypeCreated { record, .. }
            | Self::AttestationTypeVersioned { record, .. }
            | Self::AttestationTypeArchived { record } => (record.name.as_ref(), None),
            // Their name is the identifier; lists sort by the display name.
            Self::ControlCreated { record, .. }
            | Self::ControlUpdated { record, .. }
            | Self::ControlArchived { record, .. }
            | Self::ControlUnarchived { record, .. }
            | Self::ControlTagged { record } => (record.name.as_str(), Some(&record.tags)),
            // Lists sort by number, and the numbers sort as bytes do. A deleted action keeps its number.
            Self::ActionCreated { record }
            | Self::ActionUpdated { record, .. }
            | Self::ActionDeleted { record } => {
                let archived = matches!(self, Self::ActionDeleted { .. });
                let name = Cow::Owned(format!("{:020}", record.number));
                return Some(IndexRow::Record { kind, id, name, tags: None, archived });
            }
            // They have no name.
            Self::UserSettingsChanged { .. }
            | Self::MemberAdded { .. }
            | Self::MemberRemoved { .. }
            | Self::ApiKeyCreated { .. }
            | Self::ApiKeyRevoked { .. }
            | Self::EnvironmentReported { .. }
            | Self::SnapshotTaken { .. } => {
                let archived = matches!(self, Self::MemberRemoved { .. });
                let name = Cow::Owned(id.to_string());
                return Some(IndexRow::Record { kind, id, name, tags: None, archived });
            }
            // Trails have their own table. The others do not change.
            Self::TrailBegun { .. }
            | Self::TrailUpdated { .. }
            | Self::OrganizationCreated { .. }
            | Self::UserCreated { .. }
            | Self::ArtifactReported { .. }
            | Self::AttestationAdded { .. }
            | Self::ArtifactAllowed { .. }
            | Self::AllowanceWithdrawn { .. }
            | Self::TextKept { .. }
            | Self::LedgerNamed { .. }
            | Self::ClockCorrected { .. } => return None,
        };
        let archived = match self {
            Self::EnvironmentArchived { .. } | Self::ServiceAccountDeleted { .. } => true,
            Self::FlowCreated { record }
            | Self::FlowUpdated { record }
            | Self::FlowTagged { record }
            | Self::FlowRenamed { record, .. }
            | Self::FlowArchived { record, .. } => record.archived_at.is_some(),
            Self::AttestationTypeCreated { record, .. }
            | Self::AttestationTypeVersioned { record, .. }
            | Self::AttestationTypeArchived { record } => record.archived,
            Self::ControlCreated { record, .. }
            | Self::ControlUpdated { record, .. }
            | Self::ControlArchived { record, .. }
            | Self::ControlUnarchived { record, .. }
            | Self::ControlTagged { record } => record.archived,
            _ => false,
        };
        Some(IndexRow::Record { kind, id, name: Cow::Borrowed(name), tags, archived })
    }
}
