//! Operations on controls.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::{Description, List, ShortText, TagText};
use crate::context::{Context, Draft};
use crate::controls::coverage::policies_referencing;
use crate::controls::record::{Control, ControlLinks, ControlStatus, ControlVersion};
use crate::controls::store::ControlFilter;
use crate::controls::view::{
    ControlList, ControlSummary, ControlVersionList, ControlVersionView, ControlView, PER_PAGE, summaries,
    versions,
};
use crate::decode::UnknownFields;
use crate::error::{DuplicateControl, Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::id::VersionKey;
use crate::name::{ControlIdentifier, OrgName};
use crate::operation::{Created, Json, JsonList, Method, Operation};
use crate::page::{Listed, PageLinks, PageNumber, PerPage, SortDirection};
use crate::store::entry::Current;
use crate::store::error::StoreError;
use crate::tags::operations::list_choices;
use crate::tags::record::{TagChoice, TagFilter, TaggedKind, Tags};

/// Identifiers that cannot be used in a path. A literal path would shadow the first, and clients resolve the
/// others.
const RESERVED: [&str; 3] = ["tags", ".", ".."];

impl Context<'_> {
    /// Returns the control of this identifier, or [`Error::NotFound`].
    pub(crate) async fn control(&self, identifier: &ControlIdentifier) -> Result<Current<Control>> {
        let control = self.store().control(self.org()?, identifier.as_str()).await?;
        Ok(control.ok_or_else(|| self.missing(Resource::Control, identifier.as_str()))?)
    }
}

/// Lists the controls of an organization, sorted by name, one page at a time: either those that are not
/// archived, or only archived ones.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListControls {
    /// The organization's name.
    pub org: OrgName,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Controls per page. Defaults to 15.
    pub per_page: Option<PerPage<100>>,
    /// The order by name: `asc` (the default) or `desc`.
    pub sort_direction: Option<SortDirection>,
    /// A substring of the name or of the identifier, case-insensitive.
    pub search: Option<ShortText>,
    /// `key` or `key:value`. Repeatable; all must match.
    #[serde(default)]
    pub tag: List<TagText>,
    /// Whether to list archived controls instead of the others. Defaults to false.
    pub archived: Option<bool>,
}

impl Operation for ListControls {
    const NAME: &'static str = "list_controls";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/controls/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the controls of an organization";
    type Body = ();
    type Output = JsonList<ControlSummary, ControlList>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(PER_PAGE, PerPage::get));
        let found = cx.store().controls(cx.org()?, &self.filter(), page.request(per_page)).await?;
        let (total_pages, total_count) = (found.pages(per_page), found.total);
        let address = cx.api_url(&format!("controls/{}", self.org));
        let _links = PageLinks::new(&address, self.query(), page.get(), per_page, total_pages);
        let controls = Vec::new();
        let list = ControlList { page: page.get(), per_page, total_pages, total_count, _links, controls };
        let owned = cx.to_owned_context();
        let read = move |ids| summaries(ids, owned.clone());
        JsonList::in_batches(found.items, list, &cx.compute(), read).await
    }
}

impl ListControls {
    fn filter(&self) -> ControlFilter {
        ControlFilter {
            search: self.search.as_deref().map(str::to_owned),
            tags: self.tag.0.iter().map(|tag| TagFilter::parse(tag, ':')).collect(),
            archived: self.archived.unwrap_or_default(),
            direction: self.sort_direction.unwrap_or_default(),
        }
    }

    /// Returns the filter and sort parameters, for links to other pages.
    fn query(&self) -> impl Iterator<Item = (&str, &str)> {
        let texts = [
            ("sort_direction", self.sort_direction.map(SortDirection::as_str)),
            ("search", self.search.as_deref()),
            ("archived", self.archived.map(|archived| if archived { "true" } else { "false" })),
        ];
        let given = texts.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.chain(self.tag.0.iter().map(|tag| ("tag", tag.as_str())))
    }
}

/// Creates a control. If a control, archived or not, already has the identifier, the response is 409 and
/// nothing changes. `tags`, `.` and `..` are not valid identifiers, because paths could not contain them.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PostControl {
    /// The organization's name.
    pub org: OrgName,
}

/// The document that creates a control.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ControlPostInput")]
pub struct ControlInput {
    /// Its identifier, unique in the organization. It never changes.
    pub identifier: ControlIdentifier,
    /// Its name.
    pub name: ShortText,
    /// Its requirements.
    pub description: Option<Description>,
    /// Links to further reading: label to URL.
    pub links: Option<ControlLinks>,
}

impl Operation for PostControl {
    const NAME: &'static str = "post_control";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/controls/{org}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Creates a control";
    const ERRORS: &'static [u16] = &[409];
    type Body = Json<ControlInput>;
    type Output = Created<ControlView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        if RESERVED.contains(&input.identifier.as_str()) {
            let text = format!("'{}' is a reserved word of the API", input.identifier);
            return Err(Error::invalid("identifier", text));
        }
        // No policy can refer to a control that does not exist yet.
        Ok(Created(ControlView::new(cx.retry(|| create(&input, cx)).await?, Vec::new())))
    }
}

/// Converts links to their recorded form.
fn texts(links: &ControlLinks) -> BTreeMap<String, String> {
    links.0.iter().map(|(label, address)| (label.to_string(), address.to_string())).collect()
}

async fn create(input: &ControlInput, cx: &Context<'_>) -> Result<Control> {
    if cx.store().control(cx.org()?, input.identifier.as_str()).await?.is_some() {
        let (identifier, org) = (input.identifier.to_string(), cx.org_access()?.name.to_string());
        return Err(DuplicateControl { identifier, org }.into());
    }
    let control = Control {
        id: cx.new_id(),
        identifier: input.identifier.clone(),
        name: input.name.to_string(),
        description: input.description.clone().unwrap_or_default().into_string(),
        links: input.links.as_ref().map(texts).unwrap_or_default(),
        version: 1,
        archived: false,
        tags: Tags::new(),
        created_at: cx.now(),
        created_by: cx.actor(),
        last_modified_at: cx.now(),
        unknown: UnknownFields::default(),
    };
    let version = control.latest(ControlStatus::Created, cx.actor());
    let fact = Fact::ControlCreated { record: control.clone(), version };
    cx.record(Draft::of(fact, Precondition::Vacant(Key::Control(input.identifier.clone())))).await?;
    Ok(control)
}

/// Lists the tags of an organization's controls, archived ones included, for use as filters. Each key has
/// each of its values once, sorted by key and value.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListControlTags {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for ListControlTags {
    const NAME: &'static str = "list_control_tag_choices";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/controls/{org}/tags";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the tags that controls have";
    type Body = ();
    type Output = JsonList<TagChoice>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        list_choices(TaggedKind::Control, cx).await
    }
}

/// Gets a control by its identifier, archived or not.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetControl {
    /// The organization's name.
    pub org: OrgName,
    /// The control's identifier.
    pub identifier: ControlIdentifier,
}

impl Operation for GetControl {
    const NAME: &'static str = "get_control";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/controls/{org}/{identifier}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a control";
    type Body = ();
    type Output = Json<ControlView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        shown(cx.control(&self.identifier).await?.record, cx).await
    }
}

/// Changes the name, the description or the links of a control, which creates a new version. Fields that are
/// left out or null keep their values; links replace all previous links. A request that changes nothing
/// creates no version.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutControl {
    /// The organization's name.
    pub org: OrgName,
    /// The control's identifier.
    pub identifier: ControlIdentifier,
}

/// The document that changes a control.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ControlPutInput")]
pub struct ControlChanges {
    /// Its name. Null or left out keeps the present one.
    pub name: Option<ShortText>,
    /// Its requirements. Null or left out keeps the present ones.
    pub description: Option<Description>,
    /// Links to further reading: label to URL. They replace all previous links. Null or left out keeps these.
    pub links: Option<ControlLinks>,
}

impl ControlChanges {
    fn apply(&self, control: &Control) -> Control {
        let mut changed = control.clone();
        if let Some(name) = &self.name {
            changed.name = name.to_string();
        }
        if let Some(description) = &self.description {
            changed.description = description.to_string();
        }
        if let Some(links) = &self.links {
            changed.links = texts(links);
        }
        changed
    }
}

impl Operation for PutControl {
    const NAME: &'static str = "put_control";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/controls/{org}/{identifier}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Changes a control";
    type Body = Json<ControlChanges>;
    type Output = Json<ControlView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(changes): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let edited = |record, version| Fact::ControlUpdated { record, version };
        let change = |control: &Control| changes.apply(control);
        change_control(&self.identifier, change, (ControlStatus::Edited, edited), cx).await
    }
}

/// Creates a new version of the control with this status, and records it as this fact, unless `change`
/// changes nothing.
async fn change_control(
    identifier: &ControlIdentifier,
    change: impl Fn(&Control) -> Control,
    (status, fact): (ControlStatus, fn(Control, ControlVersion) -> Fact),
    cx: &Context<'_>,
) -> Result<Json<ControlView>> {
    let attempt = async || {
        let Current { revision, record } = cx.control(identifier).await?;
        let mut changed = change(&record);
        if changed == record {
            return Ok(record);
        }
        changed.version += 1;
        changed.last_modified_at = cx.now_after(record.last_modified_at);
        let fact = fact(changed.clone(), changed.latest(status.clone(), cx.actor()));
        cx.record(Draft::of(fact, Precondition::Revision(RecordKind::Control, record.id, revision))).await?;
        Ok(changed)
    };
    shown(cx.retry_exclusively(Key::Control(identifier.clone()), attempt).await?, cx).await
}

/// Returns the control, with the policies that require decisions about it.
async fn shown(control: Control, cx: &Context<'_>) -> Result<Json<ControlView>> {
    let policies = policies_referencing(&control.identifier, cx).await?;
    Ok(Json(ControlView::new(control, policies)))
}

/// Archives a control, which creates a new version. Lists leave it out, and its identifier stays in use.
/// Archiving an archived control changes nothing.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ArchiveControl {
    /// The organization's name.
    pub org: OrgName,
    /// The control's identifier.
    pub identifier: ControlIdentifier,
}

impl Operation for ArchiveControl {
    const NAME: &'static str = "archive_control";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/controls/{org}/{identifier}/archive";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Archives a control";
    type Body = ();
    type Output = Json<ControlView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let archived = |record, version| Fact::ControlArchived { record, version };
        let change = |control: &Control| Control { archived: true, ..control.clone() };
        change_control(&self.identifier, change, (ControlStatus::Archived, archived), cx).await
    }
}

/// Restores an archived control, which creates a new version. Restoring a control that is not archived
/// changes nothing.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct UnarchiveControl {
    /// The organization's name.
    pub org: OrgName,
    /// The control's identifier.
    pub identifier: ControlIdentifier,
}

impl Operation for UnarchiveControl {
    const NAME: &'static str = "unarchive_control";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/controls/{org}/{identifier}/unarchive";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Restores an archived control";
    type Body = ();
    type Output = Json<ControlView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let unarchived = |record, version| Fact::ControlUnarchived { record, version };
        let change = |control: &Control| Control { archived: false, ..control.clone() };
        change_control(&self.identifier, change, (ControlStatus::Unarchived, unarchived), cx).await
    }
}

/// Lists the versions of a control, newest first by default, one page at a time.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListControlVersions {
    /// The organization's name.
    pub org: OrgName,
    /// The control's identifier.
    pub identifier: ControlIdentifier,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Versions per page. Defaults to 15.
    pub per_page: Option<PerPage<100>>,
    /// The order by number: `desc` (the default) or `asc`.
    pub sort_direction: Option<SortDirection>,
}

impl Operation for ListControlVersions {
    const NAME: &'static str = "list_control_versions";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/controls/{org}/{identifier}/versions";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the versions of a control";
    type Body = ();
    type Output = JsonList<ControlVersionView, ControlVersionList>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(PER_PAGE, PerPage::get));
        let control = cx.control(&self.identifier).await?.record;
        let keys = self.keys(&control, page, per_page);
        let mut sizes = cx.store().control_version_sizes(cx.org()?, &keys).await?;
        sizes.sort_unstable_by_key(|listed| keys.iter().position(|key| *key == listed.id));

        let total_pages = control.version.div_ceil(per_page);
        let address = cx.api_url(&format!("controls/{}/{}/versions", self.org, self.identifier));
        let query = self.sort_direction.map(|direction| ("sort_direction", direction.as_str()));
        let list = ControlVersionList {
            page: page.get(),
            per_page,
            total_pages,
            total_count: control.version,
            _links: PageLinks::new(&address, query, page.get(), per_page, total_pages),
            versions: Vec::new(),
        };
        let (identifier, owned) = (self.identifier, cx.to_owned_context());
        let read = move |keys| versions(keys, identifier.clone(), owned.clone());
        let items = stream::iter(Listed::batches(sizes)).flat_map(read);
        JsonList::with_first_item(items, list, &cx.compute()).await
    }
}

impl ListControlVersions {
    /// Returns the versions of the page. Version numbers have no gaps.
    fn keys(&self, control: &Control, page: PageNumber, per_page: u64) -> Vec<VersionKey> {
        let request = page.request(per_page);
        let before = request.offset.min(control.version);
        let end = before.saturating_add(request.limit).min(control.version);
        let numbers = (before..end).map(|place| match self.sort_direction {
            Some(SortDirection::Asc) => place + 1,
            Some(SortDirection::Desc) | None => control.version - place,
        });
        numbers.map(|number| (control.id, number)).collect()
    }
}

/// Gets a version of a control by its number.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetControlVersion {
    /// The organization's name.
    pub org: OrgName,
    /// The control's identifier.
    pub identifier: ControlIdentifier,
    /// The version's number, from 1.
    pub version_number: i64,
}

impl Operation for GetControlVersion {
    const NAME: &'static str = "get_control_version";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/controls/{org}/{identifier}/versions/{version_number}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a version of a control";
    type Body = ();
    type Output = Json<ControlVersionView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let Self { identifier, version_number: wanted, .. } = self;
        let control = cx.control(&identifier).await?.record;
        let number = u64::try_from(wanted).ok().filter(|number| (1..=control.version).contains(number));
        let missing = || {
            let text = format!("version {wanted} does not exist for control '{identifier}'");
            cx.missing(Resource::ControlVersion, text)
        };
        let key = (control.id, number.ok_or_else(missing)?);
        let version = cx.store().control_versions_by_number(cx.org()?, &[key]).await?.pop();
        let lost = || StoreError::corrupt(format_args!("version {wanted} of control {} is lost", control.id));
        Ok(Json(ControlVersionView::new(version.ok_or_else(lost)?, identifier)))
    }
}
