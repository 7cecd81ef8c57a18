//! Index rows: what a store keeps beside the ledger so that records are found. The core derives them from facts
//! ([`Fact::index_rows`]); a store writes them and knows no fact. So a new fact touches the core alone, and a store
//! that was written before it keeps working: the row kinds are a closed set.
//!
//! A row points at the ledger entry that it follows from. The entry's payload holds the body: its `record`, for
//! [`IndexRow::Version`] its `version`, for [`IndexRow::Snapshot`] its `snapshot`, for [`IndexRow::Text`] its `text`.

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

/// One row to write because of a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum IndexRow<'a> {
    /// A new organization.
    Organization(&'a Organization),
    /// A new user.
    User(&'a User),
    /// A user's role in the organization; `role: None` ends the membership. Replaces the row of the user.
    Member {
        /// The user.
        user: Id,
        /// The role.
        role: Option<Role>,
    },
    /// What becomes of a name. Those of trails, snapshots, organizations and users follow from their own rows.
    Name(NameEffect),
    /// The newest state of a record: the entry's index is its revision from then on. Replaces the row of its kind and
    /// id. Trails have [`IndexRow::Trail`] instead.
    Record {
        /// What it is.
        kind: RecordKind,
        /// Its id.
        id: Id,
        /// The name that lists show and sort it by.
        name: Cow<'a, str>,
        /// Its tags; nothing where it has none.
        tags: Option<&'a Tags>,
        /// Whether lists leave it out.
        archived: bool,
    },
    /// The tags of a record, where the fact may change them. Replaces those of its kind and id.
    Tags {
        /// What it is.
        kind: RecordKind,
        /// Its id.
        id: Id,
        /// Its tags.
        tags: &'a Tags,
    },
    /// An API key, whose hash is kept beside the ledger. Replaces all but the hash and the owner of the key of this id.
    ApiKey {
        /// The key's id.
        id: Id,
        /// Whose it is.
        owner: &'a Actor,
        /// When it was created.
        created_at: Timestamp,
        /// When it ends: it expires, or its grace period is over.
        expires_at: Option<Timestamp>,
        /// When it was revoked.
        revoked_at: Option<Timestamp>,
    },
    /// A trail. Its beginning is its place in lists; a later row replaces its revision alone, and is one of its events.
    Trail {
        /// The trail.
        id: Id,
        /// The flow it lies in.
        flow: Id,
        /// Its name, unique in the flow.
        name: &'a TrailName,
        /// Whether it begins with this entry.
        begins: bool,
    },
    /// An artifact report. The first of its fingerprint is a build.
    Artifact {
        /// The report.
        id: Id,
        /// The flow.
        flow: Id,
        /// The trail, if it was reported to one.
        trail: Option<Id>,
        /// The SHA-256 of the content.
        fingerprint: &'a Fingerprint,
        /// The template's name for it, `""` without one.
        name: &'a str,
        /// The commit it was built from in the reporter's words, `""` without one.
        commit: &'a str,
        /// The branch of that commit.
        branch: Option<&'a str>,
        /// The repo it was built from.
        repo: Option<Id>,
        /// When that commit was made.
        committed_at: Option<Timestamp>,
        /// The template that a report without a trail is evaluated by.
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
        /// The trail it was reported to.
        trail: Id,
        /// Its name.
        name: &'a str,
        /// Its type.
        kind: &'a str,
        /// Its verdict.
        is_compliant: bool,
        /// Of an override: who overrides an attestation, and why.
        override_info: Option<String>,
        /// The identifier of the control that it is a decision about.
        control: Option<&'a str>,
        /// The number of that control's latest version at the time.
        control_version: Option<u64>,
        /// What it is about.
        binding: &'a Binding,
        /// The commit that it names itself; an empty text where it does not name it in full.
        commit: Option<&'a str>,
        /// When it was reported.
        at: Timestamp,
    },
    /// A trail in which the trail itself, an artifact or an attestation names this commit in full. One row for both.
    CommitTrail {
        /// The commit.
        commit: &'a str,
        /// The trail.
        trail: Id,
        /// The flow it lies in.
        flow: Id,
    },
    /// What was reported to the flow names the address of a repo. Replaces the row of the flow.
    FlowRepo {
        /// The flow.
        flow: Id,
        /// The repo's address.
        url: &'a str,
    },
    /// A repo as it was last reported. Replaces the row of its id.
    Repo {
        /// The repo.
        id: Id,
        /// Its name.
        name: &'a str,
        /// Where it is hosted.
        provider: Option<VcsProvider>,
        /// Its id there.
        external_id: Option<&'a str>,
        /// The host of its URL.
        vcs_instance: Option<&'a str>,
        /// The groups it lies in.
        namespace: &'a [String],
    },
    /// A logical environment has a member from this entry on, or no more; or its policies may have changed.
    EnvironmentMember {
        /// The logical environment.
        environment: Id,
        /// The member. It is the logical environment itself where the entry changed its settings and no members.
        member: Id,
        /// Whether it is one now.
        joined: bool,
    },
    /// A snapshot.
    Snapshot {
        /// The environment.
        environment: Id,
        /// The snapshot's number there.
        index: u64,
        /// When it was taken.
        at: Timestamp,
        /// Its verdict.
        compliant: bool,
        /// How many events the environment has with it.
        events: u64,
        /// What it says about logical environments.
        logical: &'a [LogicalVerdict],
    },
    /// The environment was reported on, whatever that told. Replaces the row of the environment unless that is later.
    Reported {
        /// The environment.
        environment: Id,
        /// When.
        at: Timestamp,
    },
    /// What ran in the environment under this key until now is no longer so from snapshot `until` on. Nothing
    /// changes where nothing ran.
    IntervalEnded {
        /// The environment.
        environment: Id,
        /// The artifact.
        artifact: ArtifactKey,
        /// The first snapshot in which it is not so.
        until: u64,
        /// The number of the event that it exited by; nothing where it runs differently.
        exit: Option<u64>,
    },
    /// From snapshot `instance.from` on this runs in the environment.
    IntervalBegun {
        /// The environment.
        environment: Id,
        /// What runs.
        instance: &'a RunningArtifact,
        /// The number of the event that tells of it; nothing where none does.
        event: Option<u64>,
    },
    /// Content that began to run was known by a name in a flow. Replaces the row of the environment, flow, name, snapshot
    /// and artifact.
    Origin {
        /// The environment.
        environment: Id,
        /// The flow.
        flow: Id,
        /// What the report calls it in the template; empty without a name.
        reference: &'a str,
        /// The first snapshot of the run.
        since: u64,
        /// The artifact.
        artifact: ArtifactKey,
        /// The report.
        report: Id,
    },
    /// An artifact began to run in the environment. In each series (all, of the environment, of the repo) it has the next
    /// number.
    Deployment {
        /// The environment.
        environment: Id,
        /// What runs; its run begins with snapshot `instance.from`.
        instance: &'a RunningArtifact,
    },
    /// A version of a policy, of an attestation type or of a control.
    Version {
        /// The record it is a version of.
        of: Id,
        /// Its number, from 1.
        number: u64,
    },
    /// An allowlist entry, or its withdrawal. Older rows of its environment and fingerprint stay.
    Allowed {
        /// The environment.
        environment: Id,
        /// The artifact.
        fingerprint: &'a Fingerprint,
        /// When the entry ends or has ended, if it does.
        ends_at: Option<Timestamp>,
        /// Whether it was withdrawn.
        withdrawn: bool,
    },
    /// A file that the entry names: its content is kept beside the ledger, and is not pending any more
    /// ([`crate::sweep`]). One row a content.
    Attachment(&'a Attachment),
    /// A clock was ahead: every row of an earlier entry of the organization that has a later time than this entry gets the
    /// time of this entry. So the rows of an organization are in the order of their times again.
    TimeCorrected,
    /// The text with this digest. The newest row of a digest replaces older ones.
    Text {
        /// The SHA-256 of the text.
        sha256: Hash,
    },
    /// A text that the entry refers to: an earlier entry keeps it.
    TextUse {
        /// The SHA-256 of the text.
        sha256: Hash,
    },
}

fn commit_row(commit: Option<&str>, trail: Id, flow: Id) -> Option<IndexRow<'_>> {
    Some(IndexRow::CommitTrail { commit: commit?, trail, flow })
}

/// The address of a repo; empty where none was told.
fn address(repo: Option<&RepoInfo>) -> &str {
    repo.map(|repo| repo.url.as_str()).unwrap_or_default()
}

fn member_rows(environment: Id, members: &[Id], joined: bool) -> impl Iterator<Item = IndexRow<'_>> {
    members.iter().map(move |member| IndexRow::EnvironmentMember { environment, member: *member, joined })
}

/// The row of a logical environment whose settings changed and whose members did not.
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
    /// The rows by which the fact is found, in the order in which they are to be written; `at` is its entry's time.
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
            Self::TextKept { text } => rows.push(IndexRow::Text { sha256: Hash::of(text) }),
            Self::ClockCorrected { .. } => rows.push(IndexRow::TimeCorrected),
            // The rows of the record and of its names are all they are found by.
            Self::UserSettingsChanged { .. }
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
            | Self::ActionUpdated { .. }
            | Self::ActionDeleted { .. }
            | Self::PolicyUpdated { version: None, .. } => {}
        }
        rows
    }

    /// The row of the repo that the fact names for its flow.
    fn flow_repo(&self) -> Option<IndexRow<'_>> {
        let (flow, url) = match self {
            Self::TrailBegun { record } => (record.flow, address(record.repo_info.as_ref())),
            // An update repeats what the trail had before.
            Self::TrailUpdated { record, changes } if changes.iter().any(|change| change == "repo_info") => {
                (record.flow, address(record.repo_info.as_ref()))
            }
            Self::ArtifactReported { record } => (record.flow, record.repo_address()),
            Self::AttestationAdded { record } => (record.flow, address(record.repo_info.as_ref())),
            _ => return None,
        };
        (!url.is_empty()).then_some(IndexRow::FlowRepo { flow, url })
    }

    /// The text that the fact refers to.
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

    /// The row of the tags of the record in that row, unless there are none and the fact does not change them: other
    /// facts than those that set tags repeat the ones that the record has.
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

    /// The row of the record that the fact makes or changes.
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
            // They are named by their identifier, and listed by what they are called.
            Self::ControlCreated { record, .. }
            | Self::ControlUpdated { record, .. }
            | Self::ControlArchived { record, .. }
            | Self::ControlUnarchived { record, .. }
            | Self::ControlTagged { record } => (record.name.as_str(), Some(&record.tags)),
            // They are listed by their numbers, which sort as bytes do. What was deleted keeps its number.
            Self::ActionCreated { record }
            | Self::ActionUpdated { record, .. }
            | Self::ActionDeleted { record } => {
                let archived = matches!(self, Self::ActionDeleted { .. });
                let name = Cow::Owned(format!("{:020}", record.number));
                return Some(IndexRow::Record { kind, id, name, tags: None, archived });
            }
            // Nobody names them.
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
            // Trails have a table of their own; the others are no records that change.
            Self::TrailBegun { .. }
            | Self::TrailUpdated { .. }
            | Self::OrganizationCreated { .. }
            | Self::UserCreated { .. }
            | Self::ArtifactReported { .. }
            | Self::AttestationAdded { .. }
            | Self::ArtifactAllowed { .. }
            | Self::AllowanceWithdrawn { .. }
            | Self::TextKept { .. }
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
