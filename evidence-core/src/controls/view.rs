//! Controls and their versions in responses.

use std::collections::BTreeMap;

use futures_util::{Stream, TryFutureExt, stream};
use schemars::JsonSchema;
use serde::Serialize;

use crate::context::OwnedContext;
use crate::controls::record::{Control, ControlStatus, ControlVersion};
use crate::error::Result;
use crate::id::{Id, VersionKey};
use crate::name::{ControlIdentifier, PolicyName};
use crate::operation::{Envelope, around_last};
use crate::page::PageLinks;
use crate::store::batch::sort_by_ids;
use crate::tags::record::Tags;
use crate::time::Seconds;

/// The default number of controls or versions on a page.
pub(super) const PER_PAGE: u64 = 15;

/// A control in a list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ControlSummary {
    /// Its identifier, unique in the organization. It never changes.
    pub identifier: ControlIdentifier,
    /// Its name.
    pub name: String,
    /// Its requirements; empty if not given.
    pub description: String,
    /// Links to further reading: label to URL.
    pub links: BTreeMap<String, String>,
    /// The number of its latest version, from 1.
    pub version: u64,
    /// When it was created, in epoch seconds.
    pub created_at: Seconds,
    /// The name of the user or service account that created it.
    pub created_by: String,
    /// Its tags: key to value.
    pub tags: Tags,
}

impl From<Control> for ControlSummary {
    fn from(control: Control) -> Self {
        let Control { identifier, name, description, links, version, created_at, created_by, tags, .. } =
            control;
        Self {
            identifier,
            name,
            description,
            links,
            version,
            created_at: created_at.seconds(),
            created_by: created_by.name,
            tags,
        }
    }
}

/// A control: a requirement of an organization for its software and its development.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Control")]
#[non_exhaustive]
pub struct ControlView {
    /// The keys that lists show too.
    #[serde(flatten)]
    pub summary: ControlSummary,
    /// Whether it is archived. Lists leave archived controls out by default.
    pub archived: bool,
    /// The names of the policies whose latest versions require decisions about it (`for_control`), attached
    /// or not, sorted. Only the oldest thousand policies count.
    pub policies_referencing: Vec<PolicyName>,
}

impl ControlView {
    pub(super) fn new(control: Control, policies_referencing: Vec<PolicyName>) -> Self {
        Self { archived: control.archived, policies_referencing, summary: control.into() }
    }
}

/// A page of controls.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ControlList {
    /// This page's number, from 1.
    pub page: u64,
    /// Controls per page, as requested.
    pub per_page: u64,
    /// Number of pages.
    pub total_pages: u64,
    /// Number of controls on all pages.
    pub total_count: u64,
    /// This page and its neighbours.
    pub _links: PageLinks,
    /// The controls of the page.
    pub controls: Vec<ControlSummary>,
}

impl Envelope<ControlSummary> for ControlList {
    type Document = Self;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        around_last(self)
    }
}

/// Streams the controls of a list for a response, in its order.
pub(super) fn summaries(
    ids: Vec<Id>,
    owned: OwnedContext,
) -> impl Stream<Item = Result<ControlSummary>> + Send + 'static {
    let read = async move {
        let cx = owned.context();
        let mut controls = cx.store().controls_by_id(cx.org()?, &ids).await?;
        sort_by_ids(&mut controls, &ids, |control| control.id);
        Ok(stream::iter(controls.into_iter().map(|control| Ok(control.into()))))
    };
    read.try_flatten_stream()
}

/// A version of a control.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ControlVersion")]
#[non_exhaustive]
pub struct ControlVersionView {
    /// The control's identifier.
    pub identifier: ControlIdentifier,
    /// The version's number, from 1.
    pub version: u64,
    /// The control's name.
    pub name: String,
    /// The control's requirements; empty if not given.
    pub description: String,
    /// Links to further reading: label to URL.
    pub links: BTreeMap<String, String>,
    /// When the version was made, in epoch seconds.
    pub created_at: Seconds,
    /// The name of the user or service account that made it.
    pub created_by: String,
    /// The change that created it.
    pub status: ControlStatus,
}

impl ControlVersionView {
    pub(super) fn new(version: ControlVersion, identifier: ControlIdentifier) -> Self {
        let ControlVersion { version, name, description, links, status, at, by, .. } = version;
        Self {
            identifier,
            version,
            name,
            description,
            links,
            created_at: at.seconds(),
            created_by: by.name,
            status,
        }
    }
}

/// A page of a control's versions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ControlVersionList {
    /// This page's number, from 1.
    pub page: u64,
    /// Versions per page, as requested.
    pub per_page: u64,
    /// Number of pages.
    pub total_pages: u64,
    /// Number of versions on all pages.
    pub total_count: u64,
    /// This page and its neighbours.
    pub _links: PageLinks,
    /// The versions of the page.
    pub versions: Vec<ControlVersionView>,
}

impl Envelope<ControlVersionView> for ControlVersionList {
    type Document = Self;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        around_last(self)
    }
}

/// Streams the versions of a list for a response, in its order.
pub(super) fn versions(
    keys: Vec<VersionKey>,
    identifier: ControlIdentifier,
    owned: OwnedContext,
) -> impl Stream<Item = Result<ControlVersionView>> + Send + 'static {
    let read = async move {
        let cx = owned.context();
        let mut versions = cx.store().control_versions_by_number(cx.org()?, &keys).await?;
        versions
            .sort_unstable_by_key(|version| keys.iter().position(|(_, number)| *number == version.version));
        let view = move |version| Ok(ControlVersionView::new(version, identifier.clone()));
        Ok(stream::iter(versions.into_iter().map(view)))
    };
    read.try_flatten_stream()
}
