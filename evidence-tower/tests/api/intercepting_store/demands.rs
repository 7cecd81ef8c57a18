//! The same of what reports are judged by: policies, allowlists, attestation types and controls.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::allowlists::{AllowedArtifact, AllowlistEntry, AllowlistStore, EndedAllowlistEntry};
use evidence_core::attestation_types::{AttestationType, AttestationTypeStore, AttestationTypeVersion};
use evidence_core::controls::{Control, ControlFilter, ControlStore, ControlVersion};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::policies::{Policy, PolicyStore, PolicyVersion, VersionKey};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use super::InterceptingStore;

#[async_trait]
impl PolicyStore for InterceptingStore {
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>> {
        self.ask("policy", self.inner.policy(org, name)).await
    }

    async fn policies_named(&self, org: Id, names: &[&str]) -> StoreResult<Vec<Current<Policy>>> {
        self.ask("policies_named", self.inner.policies_named(org, names)).await
    }

    async fn policies_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        self.ask("policies_listed", self.inner.policies_listed(org)).await
    }

    async fn policies_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Policy>>> {
        self.ask("policies_by_id", self.inner.policies_by_id(org, ids)).await
    }

    async fn policy_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        self.ask("policy_version_sizes", self.inner.policy_version_sizes(org, versions)).await
    }

    async fn policy_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<PolicyVersion>> {
        self.ask("policy_versions_by_number", self.inner.policy_versions_by_number(org, versions)).await
    }
}

#[async_trait]
impl AllowlistStore for InterceptingStore {
    async fn allowances_listed(
        &self,
        org: Id,
        in_force_at: Option<Timestamp>,
    ) -> StoreResult<Vec<Listed<u64>>> {
        self.ask("allowances_listed", self.inner.allowances_listed(org, in_force_at)).await
    }

    async fn allowances(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<AllowlistEntry>> {
        self.ask("allowances", self.inner.allowances(org, indexes)).await
    }

    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
        at: Timestamp,
    ) -> StoreResult<Vec<AllowedArtifact>> {
        self.ask("allowed", self.inner.allowed(org, environment, fingerprints, entries, at)).await
    }

    async fn allowance_count(&self, org: Id, environment: Id, at: Timestamp, most: u64) -> StoreResult<u64> {
        self.ask("allowance_count", self.inner.allowance_count(org, environment, at, most)).await
    }

    async fn ended_allowances(
        &self,
        after: Timestamp,
        until: Timestamp,
        limit: u64,
    ) -> StoreResult<Vec<EndedAllowlistEntry>> {
        self.ask("ended_allowances", self.inner.ended_allowances(after, until, limit)).await
    }
}

#[async_trait]
impl AttestationTypeStore for InterceptingStore {
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>> {
        self.ask("attestation_type", self.inner.attestation_type(org, name)).await
    }

    async fn attestation_types_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        self.ask("attestation_types_listed", self.inner.attestation_types_listed(org)).await
    }

    async fn attestation_types_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<AttestationType>> {
        self.ask("attestation_types_by_id", self.inner.attestation_types_by_id(org, ids)).await
    }

    async fn attestation_type_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        self.ask("attestation_type_version_sizes", self.inner.attestation_type_version_sizes(org, versions))
            .await
    }

    async fn attestation_type_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<AttestationTypeVersion>> {
        self.ask(
            "attestation_type_versions_by_number",
            self.inner.attestation_type_versions_by_number(org, versions),
        )
        .await
    }
}

#[async_trait]
impl ControlStore for InterceptingStore {
    async fn control(&self, org: Id, identifier: &str) -> StoreResult<Option<Current<Control>>> {
        self.ask("control", self.inner.control(org, identifier)).await
    }

    async fn controls_named(&self, org: Id, identifiers: &[&str]) -> StoreResult<Vec<String>> {
        self.ask("controls_named", self.inner.controls_named(org, identifiers)).await
    }

    async fn controls(
        &self,
        org: Id,
        filter: &ControlFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>> {
        self.ask("controls", self.inner.controls(org, filter, request)).await
    }

    async fn controls_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Control>> {
        self.ask("controls_by_id", self.inner.controls_by_id(org, ids)).await
    }

    async fn control_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        self.ask("control_version_sizes", self.inner.control_version_sizes(org, versions)).await
    }

    async fn control_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<ControlVersion>> {
        self.ask("control_versions_by_number", self.inner.control_versions_by_number(org, versions)).await
    }
}
