//! The coverage of a control: the environments in which a policy requires decisions about it.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Scope;
use crate::bounded::ShortText;
use crate::context::Context;
use crate::controls::view::PER_PAGE;
use crate::environments::record::EnvironmentKind;
use crate::error::Result;
use crate::id::{Id, VersionKey};
use crate::name::{ControlIdentifier, EnvironmentName, OrgName, PolicyName};
use crate::operation::{Envelope, JsonList, Method, Operation, around_last};
use crate::page::{Listed, Page, PageLinks, PageNumber, PerPage};
use crate::store::batch::distinct;

/// Gets the environments that a control covers: those with an attached policy whose latest version requires
/// decisions about the control (`for_control`), whether or not their artifacts have them. Logical and
/// archived environments do not count. The environments are sorted by name, one page at a time. Only the
/// first thousand environments by name count, and only the oldest thousand policies attached to these.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetControlCoverage {
    /// The organization's name.
    pub org: OrgName,
    /// The control's identifier.
    pub identifier: ControlIdentifier,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Environments per page. Defaults to 15.
    pub per_page: Option<PerPage<100>>,
    /// A substring of the environment's name, case-insensitive.
    pub search: Option<ShortText>,
    /// Returns only covered environments, or only others. Without it, returns both.
    pub covered: Option<bool>,
}

/// The coverage of a control, with a page of environments.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ControlCoverage {
    /// The number of environments, regardless of filters.
    pub total: u64,
    /// The number of covered environments.
    pub covered: u64,
    /// The percentage of covered environments; 0 if there are no environments.
    pub coverage_percent: f64,
    /// This page's number, from 1.
    pub page: u64,
    /// Environments per page, as requested.
    pub per_page: u64,
    /// Number of pages.
    pub total_pages: u64,
    /// Number of environments on all pages.
    pub total_count: u64,
    /// This page and its neighbours.
    pub _links: PageLinks,
    /// The environments of the page.
    pub environments: Vec<EnvironmentCoverage>,
}

impl Envelope<EnvironmentCoverage> for ControlCoverage {
    type Document = Self;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        around_last(self)
    }
}

/// The coverage of an environment by a control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EnvironmentCoverage {
    /// The environment's name.
    pub name: EnvironmentName,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: EnvironmentKind,
    /// Whether an attached policy requires decisions about the control.
    pub covered: bool,
    /// The names of those policies, sorted.
    pub policies: Vec<PolicyName>,
}

impl Operation for GetControlCoverage {
    const NAME: &'static str = "get_control_coverage";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/controls/{org}/{identifier}/coverage";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets the environments that a control covers";
    type Body = ();
    type Output = JsonList<EnvironmentCoverage, ControlCoverage>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(PER_PAGE, PerPage::get));
        cx.control(&self.identifier).await?;
        let environments = physical_environments(MAX_ENVIRONMENTS, cx).await?;
        // Ids sort by age.
        let mut attached = distinct(environments.iter().flat_map(|one| &one.policies).copied());
        attached.truncate(MAX_POLICIES);
        let asking = policies_asking_for(&self.identifier, &attached, cx).await?;
        let environments = Vec::from_iter(environments.into_iter().map(|one| one.coverage(&asking)));

        let total = environments.len() as u64;
        let covered = environments.iter().filter(|one| one.covered).count() as u64;
        let coverage_percent = if total == 0 { 0.0 } else { covered as f64 * 100.0 / total as f64 };
        let search = self.search.as_deref().unwrap_or_default().to_ascii_lowercase();
        let admits = |one: &EnvironmentCoverage| {
            one.name.as_str().to_ascii_lowercase().contains(&search)
                && self.covered.is_none_or(|covered| covered == one.covered)
        };
        let admitted = environments.into_iter().filter(admits).collect();
        let slice = Page::of(admitted, page.request(per_page));
        let (total_pages, total_count) = (slice.pages(per_page), slice.total);
        let address = cx.api_url(&format!("controls/{}/{}/coverage", self.org, self.identifier));
        let coverage = ControlCoverage {
            total,
            covered,
            coverage_percent,
            page: page.get(),
            per_page,
            total_pages,
            total_count,
            _links: PageLinks::new(&address, self.query(), page.get(), per_page, total_pages),
            environments: Vec::new(),
        };
        let items = stream::iter(slice.items.into_iter().map(Ok));
        JsonList::with_first_item(items, coverage, &cx.compute()).await
    }
}

impl GetControlCoverage {
    /// Returns the filter parameters, for links to other pages.
    fn query(&self) -> impl Iterator<Item = (&str, &str)> {
        let texts = [
            ("search", self.search.as_deref()),
            ("covered", self.covered.map(|covered| if covered { "true" } else { "false" })),
        ];
        texts.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

/// The most environments that count. Each page reads all of them.
const MAX_ENVIRONMENTS: usize = 1_000;

/// The most policies that are examined.
const MAX_POLICIES: usize = 1_000;

/// The parts of an environment that coverage depends on.
struct Attached {
    name: EnvironmentName,
    kind: EnvironmentKind,
    policies: Vec<Id>,
}

impl Attached {
    /// Returns the coverage. `asking` has the names of the policies that require decisions about the control.
    fn coverage(self, asking: &BTreeMap<Id, PolicyName>) -> EnvironmentCoverage {
        let Self { name, kind, policies } = self;
        let policies: BTreeSet<_> = policies.iter().filter_map(|policy| asking.get(policy)).collect();
        let policies = Vec::from_iter(policies.into_iter().cloned());
        EnvironmentCoverage { name, kind, covered: !policies.is_empty(), policies }
    }
}

/// Returns the physical ones of the organization's first `most` environments by name. Reads their records in
/// batches.
async fn physical_environments(most: usize, cx: &Context<'_>) -> Result<Vec<Attached>> {
    let (store, org) = (cx.store(), cx.org()?);
    let mut listed = store.environments_listed(org).await?;
    listed.truncate(most);
    let mut environments = Vec::new();
    for ids in Listed::batches(listed) {
        let known = store.environments_by_id(org, &ids).await?.into_iter().map(|known| known.record);
        let physical = known.filter(|record| record.kind.is_physical());
        environments.extend(physical.map(|record| {
            let (name, kind, policies) = (record.name, record.kind, record.policies);
            Attached { name, kind, policies }
        }));
    }
    environments.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(environments)
}

/// Returns the names of the policies whose latest versions require decisions about the control, sorted.
pub(super) async fn policies_referencing(
    control: &ControlIdentifier,
    cx: &Context<'_>,
) -> Result<Vec<PolicyName>> {
    let listed = cx.store().policies_listed(cx.org()?).await?;
    let mut policies = distinct(listed.into_iter().map(|policy| policy.id));
    policies.truncate(MAX_POLICIES);
    let mut names = Vec::from_iter(policies_asking_for(control, &policies, cx).await?.into_values());
    names.sort_unstable();
    Ok(names)
}

/// The most policy records that are read at once.
const POLICIES: usize = 64;

/// Returns the names of those of these policies whose latest versions require decisions about the control. A
/// version that cannot be read requires nothing.
async fn policies_asking_for(
    control: &ControlIdentifier,
    policies: &[Id],
    cx: &Context<'_>,
) -> Result<BTreeMap<Id, PolicyName>> {
    let mut latest: BTreeMap<VersionKey, PolicyName> = BTreeMap::new();
    for part in policies.chunks(POLICIES) {
        let known = cx.store().policies_by_id(cx.org()?, part).await?;
        let known = known.into_iter().map(|known| known.record);
        latest.extend(known.map(|policy| ((policy.id, policy.version), policy.name)));
    }
    let versions = Vec::from_iter(latest.keys().copied());
    let mut asking = BTreeMap::new();
    for part in cx.policies_in_parts(&versions).await? {
        for (key, policy) in cx.parsed_policies(&part).await? {
            if let Some(name) = latest.remove(&key).filter(|_| policy.asks_for(control.as_str())) {
                asking.insert(key.0, name);
            }
        }
    }
    Ok(asking)
}
