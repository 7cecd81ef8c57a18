//! Custom attestation types in responses, with all their versions.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::attestation_types::record::{AttestationType, AttestationTypeVersion, Evaluator, SummaryItem};
use crate::bounded::List;
use crate::compute::LONG_JSON;
use crate::context::OwnedContext;
use crate::error::Result;
use crate::id::{Id, VersionKey};
use crate::json::{EmptyObject, JsonText};
use crate::name::{AttestationTypeName, OrgName};
use crate::operation::versions::{HistoryItem, Version, Versioned};
use crate::page::Listed;
use crate::store::Store;
use crate::store::batch::sort_by_ids;
use crate::store::error::StoreResult;
use crate::time::Seconds;

/// A custom attestation type. A response with only one version leaves out the type's creator and times.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "CustomAttestationType")]
#[non_exhaustive]
pub struct AttestationTypeView {
    /// The keys before its versions.
    #[serde(flatten)]
    pub before: BeforeVersions,
    /// Its versions, newest first, or only the requested one.
    pub versions: Vec<VersionView>,
}

/// The keys of a custom attestation type that precede its versions in a response.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct BeforeVersions {
    /// Its name, unique in the organization.
    pub name: AttestationTypeName,
    /// A description of its purpose; absent if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The organization's name.
    pub org: OrgName,
    /// Whether it is archived. Lists leave archived types out.
    pub archived: bool,
    /// The author of its first version; absent if one version was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// When its first version was made, in epoch seconds; absent if one version was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Seconds>,
    /// When its newest version was made, in epoch seconds; absent if one version was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified_at: Option<Seconds>,
}

/// One version of a custom attestation type.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "CustomAttestationTypeVersion")]
#[non_exhaustive]
pub struct VersionView {
    /// Its number, from 1.
    pub version: u64,
    /// When it was made, in epoch seconds.
    pub timestamp: Seconds,
    /// The name of the user or service account that made it.
    pub created_by: String,
    /// The JSON Schema; absent if there is none. It is JSON, not a string that holds JSON. Some public
    /// clients read it as an object, and others show its text; JSON serves both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_schema: Option<JsonText>,
    /// The evaluation of the data.
    #[schemars(with = "Evaluator")]
    pub evaluator: Value,
    /// The values to show; null if not given.
    #[schemars(with = "Option<List<SummaryItem>>")]
    pub summary: Option<Value>,
}

impl From<AttestationTypeVersion> for VersionView {
    fn from(version: AttestationTypeVersion) -> Self {
        let AttestationTypeVersion { version, type_schema, evaluator, summary, at, by, .. } = version;
        Self { version, timestamp: at.seconds(), created_by: by.name, type_schema, evaluator, summary }
    }
}

impl Version for AttestationTypeVersion {
    type View = VersionView;
    type Event = ();
    const OF: &'static str = "custom attestation type";

    fn key(&self) -> VersionKey {
        (self.attestation_type, self.version)
    }

    fn creation_event(&self) -> Option<()> {
        None
    }

    async fn sizes(
        store: &dyn Store,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        store.attestation_type_version_sizes(org, versions).await
    }

    async fn by_number(store: &dyn Store, org: Id, versions: &[VersionKey]) -> StoreResult<Vec<Self>> {
        store.attestation_type_versions_by_number(org, versions).await
    }
}

impl AttestationType {
    /// Returns the type for a response, with all its versions.
    pub(super) fn whole(self, org: &OrgName) -> Result<Versioned> {
        let versions = (1..=self.version).rev().map(|number| HistoryItem::<()>::Version((self.id, number)));
        let before = BeforeVersions {
            created_by: Some(self.created_by.name.clone()),
            created_at: Some(self.created_at.seconds()),
            last_modified_at: Some(self.last_modified_at.seconds()),
            ..self.before(org)
        };
        Versioned::new(&before, versions, &EmptyObject {})
    }

    /// Returns the type for a response with one of its versions, and without its creator and times.
    pub(super) fn of_version(&self, number: u64, org: &OrgName) -> Result<Versioned> {
        Versioned::new(&self.before(org), [HistoryItem::<()>::Version((self.id, number))], &EmptyObject {})
    }

    fn before(&self, org: &OrgName) -> BeforeVersions {
        BeforeVersions {
            name: self.name.clone(),
            description: self.description.clone(),
            org: org.clone(),
            archived: self.archived,
            created_by: None,
            created_at: None,
            last_modified_at: None,
        }
    }
}

/// Returns these types for a response, in order, without the archived ones.
pub(super) async fn in_list(ids: Vec<Id>, owned: OwnedContext) -> Result<Vec<Versioned>> {
    let cx = owned.context();
    let mut types = cx.store().attestation_types_by_id(cx.org()?, &ids).await?;
    sort_by_ids(&mut types, &ids, |known| known.id);
    types.retain(|known| !known.archived);
    let size = |known: &AttestationType| known.description.as_deref().map_or(0, str::len);
    let heavy = types.iter().map(size).sum::<usize>() > LONG_JSON;
    let org = cx.org_access()?.name.clone();
    let write = move || types.into_iter().map(|known| known.whole(&org)).collect();
    cx.compute().run_if(heavy, write).await?
}
