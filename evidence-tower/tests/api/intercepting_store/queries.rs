//! The queries of a store that [`InterceptingStore`] passes on, a line each.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::Current;
use evidence_core::actions::{Action, ActionStore, StoredUrl};
use evidence_core::allowlists::{AllowedArtifact, AllowlistEntry, AllowlistStore, EndedAllowlistEntry};
use evidence_core::artifacts::{
    Artifact, ArtifactFilter, ArtifactPage, ArtifactQuery, ArtifactRow, ArtifactStore, ArtifactWithRuns,
    Found, GivenName, Matches, Origin,
};
use evidence_core::attestation_types::{AttestationType, AttestationTypeStore, AttestationTypeVersion};
use evidence_core::attestations::{
    Attestation, AttestationStore, DecisionFilter, DecisionRow, FlowPosition, ListedAttestation,
    NamedAttestation, TimeRange,
};
use evidence_core::auth::KeyHash;
use evidence_core::blobs::{Blobs, Chunks};
use evidence_core::builds::{Build, BuildFilter, BuildStore};
use evidence_core::checkpoints::CheckpointStore;
use evidence_core::controls::{Control, ControlFilter, ControlStore, ControlVersion};
use evidence_core::deployments::{Deployment, DeploymentFilter, DeploymentStore, DeploymentTime};
use evidence_core::environments::{EnvironmentStore, KnownEnvironment, MemberChange};
use evidence_core::flows::{Flow, FlowFilter, FlowStore};
use evidence_core::id::Id;
use evidence_core::leases;
use evidence_core::ledger::{Frontier, LedgerHashes, Needs};
use evidence_core::name::{CommitSha, Fingerprint};
use evidence_core::notifications::{Channel, Delivery, DeliveryStore};
use evidence_core::orgs::{ByName, KeyHolder, Member, OrgRole, OrgStore, Organization, User, UserSettings};
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::policies::{Policy, PolicyStore, PolicyVersion, VersionKey};
use evidence_core::repos::{Repo, RepoFacet, RepoFilter, RepoStore, VcsProvider};
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use evidence_core::snapshots::{
    Event, EventSize, LiveBuild, Progress, Replaced, Run, Snapshot, SnapshotEntry, SnapshotRow,
    SnapshotStore, Start,
};
use evidence_core::store::{Health, Leaf, LedgerStore, StoreResult, StoredEntry};
use evidence_core::sweep::{AttachmentPlace, AttachmentState, Pending, PendingStore};
use evidence_core::tags::{TagChoice, TagStore, TaggedKind};
use evidence_core::time::Timestamp;
use evidence_core::trails::{
    Reported, Trail, TrailContents, TrailEntry, TrailFilter, TrailLabel, TrailStore, TrailVersion,
};

use super::InterceptingStore;

/// Implements traits of stores: each query waits for [`InterceptingStore::intercept`] under its name, and goes on to the inner store.
macro_rules! intercept {
    ($($store:ident { $($query:ident($($name:ident: $type:ty),*) -> $answer:ty;)* })*) => {$(
        #[async_trait]
        impl $store for InterceptingStore {
            $(async fn $query(&self, $($name: $type),*) -> StoreResult<$answer> {
                self.intercept(stringify!($query), self.inner.$query($($name),*)).await
            })*
        }
    )*};
}

intercept! {
    TagStore {
        tag_choices(org: Id, kind: TaggedKind, after: Option<&TagChoice>, limit: u64) -> Vec<TagChoice>;
    }

    Health {
        ready() -> ();
        check_clock(now: Timestamp) -> ();
        newest_entry() -> Option<Timestamp>;
    }

    Blobs {
        put(org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> ();
        get_chunk(org: Id, sha256: &Fingerprint, number: u64) -> Option<Bytes>;
    }

    PendingStore {
        attachment_state(org: Id, sha256: &Fingerprint) -> AttachmentState;
        put_pending(org: Id, sha256: &Fingerprint, at: Timestamp) -> bool;
        pending(after: Option<&Pending>, limit: u64) -> Vec<Pending>;
        begin_removal(pending: &Pending, at: Timestamp) -> bool;
        abandon_removal(pending: &Pending, at: Timestamp) -> bool;
        end_removal(pending: &Pending) -> bool;
        attachment_place() -> Option<AttachmentPlace>;
        named_attachments(limit: u64) -> Vec<(Id, Fingerprint)>;
        put_attachment_place(place: AttachmentPlace) -> bool;
    }

    CheckpointStore {
        signed_checkpoint(org: Id) -> Option<String>;
        has_signed_checkpoints() -> bool;
        replace_signed_checkpoint(org: Id, old: Option<&str>, new: Option<&str>) -> bool;
    }

    LedgerStore {
        ledger_head(org: Id) -> Option<Frontier>;
        ledger_sizes(orgs: &[Id]) -> Vec<(Id, u64)>;
        ledger_entries(org: Id, first: u64, limit: u64) -> Vec<StoredEntry>;
        ledger_times(org: Id, indexes: &[u64]) -> Vec<(u64, Timestamp)>;
        ledger_size_at(org: Id, at: Timestamp) -> u64;
        ledger_leaves(org: Id, first: u64, limit: u64) -> Vec<Leaf>;
        ledger_entries_at(org: Id, indexes: &[u64]) -> Vec<StoredEntry>;
        record_entry(org: Id, record: Id) -> Option<u64>;
        ledger_hashes(org: Id, needs: &Needs) -> LedgerHashes;
    }

    OrgStore {
        org_role(org: &str, user: Id) -> Option<OrgRole>;
        user(name: &str) -> Option<User>;
        users_by_name(after: &str, limit: u64) -> ByName<User>;
        organizations_by_name(after: &str, limit: u64) -> ByName<Organization>;
        members(org: Id) -> Vec<Current<Member>>;
        users_by_id(ids: &[Id]) -> Vec<User>;
        membership_entries(org: Id, first: u64, limit: u64) -> Vec<StoredEntry>;
        membership_page(org: Id, direction: SortDirection, request: PageRequest) -> Page<StoredEntry>;
        user_settings(org: Id, user: Id) -> Option<Current<UserSettings>>;
        key_holder(hash: &KeyHash) -> Option<KeyHolder>;
    }

    ServiceAccountStore {
        service_account(org: Id, name: &str) -> Option<Current<ServiceAccount>>;
        service_accounts(org: Id) -> Vec<ServiceAccount>;
        api_key(org: Id, id: Id) -> Option<Current<ApiKeyRecord>>;
        api_keys(org: Id, owner: Id, at: Timestamp) -> Vec<Current<ApiKeyRecord>>;
        api_key_count(org: Id, owner: Id, at: Timestamp) -> u64;
    }

    FlowStore {
        flow(org: Id, name: &str) -> Option<Current<Flow>>;
        flows_by_id(org: Id, ids: &[Id]) -> Vec<Flow>;
        flow_repo_urls(org: Id, flows: &[Id]) -> Vec<(Id, String)>;
        flows(org: Id, filter: &FlowFilter, request: PageRequest) -> Page<Listed>;
    }

    TrailStore {
        trail(org: Id, flow: Id, name: &str) -> Option<Current<Trail>>;
        trails(org: Id, filter: &TrailFilter, request: PageRequest) -> Page<Listed>;
        newest_trails(org: Id, flows: &[Id]) -> Vec<Id>;
        trail_versions(org: Id, trails: &[Id]) -> Vec<TrailVersion>;
        trail_contents(org: Id, trails: &[Id]) -> Vec<TrailContents>;
        trail_labels(org: Id, trails: &[Id]) -> Vec<(Id, TrailLabel)>;
        trail_report_count(org: Id, trail: Id, kind: Reported, most: u64) -> u64;
        trail_entries(org: Id, trail: Id) -> Vec<TrailEntry>;
    }

    ArtifactStore {
        fingerprints(org: Id, flow: Id, prefix: &str, limit: u64) -> Matches;
        search(org: Id, prefix: &str, limit: u64) -> Found;
        artifacts(org: Id, filter: &ArtifactFilter, request: PageRequest) -> Page<Artifact>;
        artifacts_listed(org: Id, filter: &ArtifactFilter, request: PageRequest) -> ArtifactPage;
        artifact_of_flow(org: Id, query: ArtifactQuery<'_>) -> Option<(Flow, Option<ArtifactWithRuns>)>;
        latest_artifact(org: Id, filter: &ArtifactFilter) -> Option<Artifact>;
        artifacts_by_id(org: Id, ids: &[Id]) -> Vec<Artifact>;
        artifact_sizes(org: Id, ids: &[Id]) -> Vec<Listed>;
        reports(org: Id, flow: Id, fingerprint: &Fingerprint) -> Vec<ArtifactRow>;
        provenance(org: Id, fingerprints: &[Fingerprint], entries: u64) -> Vec<Origin>;
        given_names(org: Id, asked: &[(Id, Fingerprint)]) -> Vec<GivenName>;
    }

    AttestationStore {
        attestation(org: Id, id: Id) -> Option<Attestation>;
        labelled_attestation(org: Id, id: Id) -> Option<(Attestation, TrailLabel)>;
        attestations_by_id(org: Id, ids: &[Id]) -> Vec<Attestation>;
        attestations_before(org: Id, before: u64, limit: u64) -> Vec<ListedAttestation>;
        flow_attestations_before(org: Id, flows: &[FlowPosition], limit: u64) -> Vec<ListedAttestation>;
        flow_attestations(org: Id, flow: Id, time: &TimeRange, request: PageRequest) -> Page<Listed>;
        attestation_sizes(org: Id, ids: &[Id]) -> Vec<Listed>;
        commit_trails(
            org: Id, commit: &CommitSha, flow: Option<Id>, before: Option<Id>, limit: u64
        ) -> Vec<Id>;
        attestations(org: Id, trails: &[Id], name: &str) -> Vec<NamedAttestation>;
        decisions(org: Id, control: &str, filter: &DecisionFilter, request: PageRequest) -> Page<DecisionRow>;
    }

    BuildStore {
        builds(org: Id, filter: &BuildFilter, request: PageRequest) -> Page<Build>;
        build_times(org: Id, filter: &BuildFilter, limit: u64) -> Page<Timestamp>;
    }

    DeploymentStore {
        deployments(org: Id, filter: &DeploymentFilter, request: PageRequest) -> Page<Deployment>;
        deployment_times(org: Id, filter: &DeploymentFilter, limit: u64) -> Page<DeploymentTime>;
        latest_deployment(org: Id, environment: Id, fingerprint: &Fingerprint) -> Option<Deployment>;
    }

    RepoStore {
        repo_by_identity(org: Id, identity: &str) -> Option<Current<Repo>>;
        repo(org: Id, id: Id) -> Option<Current<Repo>>;
        repos_by_id(org: Id, ids: &[Id]) -> Vec<Repo>;
        repos(org: Id, filter: &RepoFilter, request: PageRequest) -> Page<Repo>;
        repo_ids(org: Id, filter: &RepoFilter, request: PageRequest) -> Vec<Id>;
        newest_repo(org: Id, name: &str, provider: Option<VcsProvider>) -> Option<Repo>;
        repos_named(org: Id, names: &[&str], most: u64) -> Vec<(String, Id)>;
        repo_values(org: Id, filter: &RepoFilter, facet: RepoFacet, limit: u64) -> Vec<String>;
    }

    EnvironmentStore {
        environment(org: Id, name: &str) -> Option<KnownEnvironment>;
        archived_environment(org: Id, name: &str) -> bool;
        environments(org: Id) -> Vec<KnownEnvironment>;
        environments_listed(org: Id) -> Vec<Listed>;
        member_changes(org: Id, environment: Id) -> Vec<MemberChange>;
        logical_environments(org: Id, members: &[Id]) -> Vec<Id>;
        environments_by_id(org: Id, ids: &[Id]) -> Vec<KnownEnvironment>;
    }

    SnapshotStore {
        snapshot(org: Id, environment: Id, index: u64) -> Option<Current<Snapshot>>;
        snapshots(org: Id, ranges: &[(Id, RangeInclusive<u64>)]) -> Vec<SnapshotRow>;
        progress(org: Id, asked: &[(Id, u64)]) -> Vec<Progress>;
        snapshot_at(org: Id, environment: Id, at: Timestamp) -> u64;
        instances(org: Id, environment: Id, index: u64) -> Vec<SnapshotEntry>;
        live_builds(org: Id, repo: Id, reports: u64, limit: u64) -> Vec<LiveBuild>;
        event_sizes(org: Id, asked: &[(Id, u64)]) -> Vec<EventSize>;
        events(org: Id, asked: &[(Id, u64)]) -> Vec<Event>;
        event_numbers(
            org: Id, environment: Id, range: (RangeInclusive<u64>, SortDirection), repos: &[Id],
            request: PageRequest
        ) -> Page<u64>;
        replaced(org: Id, starts: &[Start]) -> Vec<Replaced>;
        runs(org: Id, fingerprints: &[Fingerprint], newest: u32) -> Vec<Run>;
    }

    ActionStore {
        action(org: Id, name: &str) -> Option<Current<Action>>;
        action_numbered(org: Id, number: u64) -> Option<Current<Action>>;
        actions_listed(org: Id) -> Vec<Listed>;
        actions_by_id(org: Id, ids: &[Id]) -> Vec<Current<Action>>;
        greatest_action_number(org: Id) -> u64;
        secret_urls(org: Id, ids: &[Id]) -> Vec<(Id, StoredUrl)>;
    }

    DeliveryStore {
        deliveries(org: Id, targets: &[Id]) -> Vec<Delivery>;
        due_deliveries(
            channel: Channel, now: Timestamp, after: Option<Id>, limit: u64
        ) -> Option<(Id, Vec<Delivery>)>;
        put_delivery(delivery: &Delivery, lease: Option<&leases::HeldLease>) -> bool;
        forget_delivery(org: Id, target: Id) -> ();
    }

    PolicyStore {
        policy(org: Id, name: &str) -> Option<Current<Policy>>;
        policies_named(org: Id, names: &[&str]) -> Vec<Current<Policy>>;
        policies_listed(org: Id) -> Vec<Listed>;
        policies_by_id(org: Id, ids: &[Id]) -> Vec<Current<Policy>>;
        policy_version_sizes(org: Id, versions: &[VersionKey]) -> Vec<Listed<VersionKey>>;
        policy_versions_by_number(org: Id, versions: &[VersionKey]) -> Vec<PolicyVersion>;
    }

    AllowlistStore {
        allowlist_entries_listed(org: Id, in_force_at: Option<Timestamp>) -> Vec<Listed<u64>>;
        allowlist_entries(org: Id, indexes: &[u64]) -> Vec<AllowlistEntry>;
        allowed(
            org: Id, environment: Id, fingerprints: &[Fingerprint], entries: u64, at: Timestamp
        ) -> Vec<AllowedArtifact>;
        allowlist_entry_count(org: Id, environment: Id, at: Timestamp, most: u64) -> u64;
        ended_allowlist_entries(after: Timestamp, until: Timestamp, limit: u64) -> Vec<EndedAllowlistEntry>;
    }

    AttestationTypeStore {
        attestation_type(org: Id, name: &str) -> Option<Current<AttestationType>>;
        attestation_types_listed(org: Id) -> Vec<Listed>;
        attestation_types_by_id(org: Id, ids: &[Id]) -> Vec<AttestationType>;
        attestation_type_version_sizes(org: Id, versions: &[VersionKey]) -> Vec<Listed<VersionKey>>;
        attestation_type_versions_by_number(org: Id, versions: &[VersionKey]) -> Vec<AttestationTypeVersion>;
    }

    ControlStore {
        control(org: Id, identifier: &str) -> Option<Current<Control>>;
        controls_named(org: Id, identifiers: &[&str]) -> Vec<String>;
        controls(org: Id, filter: &ControlFilter, request: PageRequest) -> Page<Listed>;
        controls_by_id(org: Id, ids: &[Id]) -> Vec<Control>;
        control_version_sizes(org: Id, versions: &[VersionKey]) -> Vec<Listed<VersionKey>>;
        control_versions_by_number(org: Id, versions: &[VersionKey]) -> Vec<ControlVersion>;
    }
}
