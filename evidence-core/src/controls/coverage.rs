//! The coverage of a control: in which environments a policy asks for decisions about it.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Scope;
use crate::bounded::ShortText;
use crate::controls::operations::PER_PAGE;
use crate::environments::record::EnvironmentKind;
use crate::error::Result;
use crate::id::{Id, VersionKey};
use crate::name::{ControlIdentifier, EnvironmentName, OrgName, PolicyName};
use crate::operation::{Envelope, JsonList, Method, Operation, around_last};
use crate::page::{Listed, Page, PageLinks, PageNumber, PerPage};
use crate::service::Context;
use crate::store::batch::distinct;

/// Tells which environments a control covers: those with an attached policy whose latest version asks for decisions about
/// the control (`for_control`), whether what runs there has them or not. Logical and archived environments do not count. The
/// environments are listed by name, a page at a time. Of more than a thousand environments the first thousand by name count,
/// and of more than a thousand policies that are attached to these the oldest thousand.
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
    /// A substring of the environment's name, whatever its case.
    pub search: Option<ShortText>,
    /// Whether to list the environments that are covered, or those that are not; all of them when left out.
    pub covered: Option<bool>,
}

/// Which environments a control covers, and a page of them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ControlCoverage {
    /// Number of environments, whichever are listed.
    pub total: u64,
    /// How many of them are covered.
    pub covered: u64,
    /// How many of a hundred are covered; 0 where there are none.
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

/// Whether a control covers an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EnvironmentCoverage {
    /// The environment's name.
    pub name: EnvironmentName,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: EnvironmentKind,
    /// Whether an attached policy asks for decisions about the control.
    pub covered: bool,
    /// The names of those policies, sorted.
    pub policies: Vec<PolicyName>,
}

impl Operation for GetControlCoverage {
    const NAME: &'static str = "get_control_coverage";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/controls/{org}/{identifier}/coverage";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Tells which environments a control covers";
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
    /// The parameters that narrow, for the links to other pages.
    fn query(&self) -> impl Iterator<Item = (&str, &str)> {
        let texts = [
            ("search", self.search.as_deref()),
            ("covered", self.covered.map(|covered| if covered { "true" } else { "false" })),
        ];
        texts.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

/// More environments do not count, for each page reads them all.
const MAX_ENVIRONMENTS: usize = 1_000;

/// More policies are not looked at.
const MAX_POLICIES: usize = 1_000;

/// What coverage depends on of an environment.
struct Attached {
    name: EnvironmentName,
    kind: EnvironmentKind,
    policies: Vec<Id>,
}

impl Attached {
    /// `asking` has the names of the policies that ask for decisions about the control.
    fn coverage(self, asking: &BTreeMap<Id, PolicyName>) -> EnvironmentCoverage {
        let Self { name, kind, policies } = self;
        let policies: BTreeSet<_> = policies.iter().filter_map(|policy| asking.get(policy)).collect();
        let policies = Vec::from_iter(policies.into_iter().cloned());
        EnvironmentCoverage { name, kind, covered: !policies.is_empty(), policies }
    }
}

/// The physical ones of the first `most` environments of the organization, by name; their records are read some at a time.
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

/// The names of the policies whose latest versions ask for decisions about the control, sorted.
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

/// More records of policies are not read at once.
const POLICIES: usize = 64;

/// The names of those of these policies whose latest versions ask for decisions about the control; a version that cannot be
/// read asks for nothing.
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
