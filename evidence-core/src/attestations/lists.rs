//! Lists of attestations, of an organization and of a flow.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use futures_util::{Stream, TryFutureExt, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attestations::claims::OriginalType;
use crate::attestations::details::{DECISION, SARIF, SBOM};
use crate::attestations::record::Attestation;
use crate::attestations::store::{FlowPosition, ListedAttestation, TimeRange};
use crate::attestations::view::{AttestationView, views};
use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText, Text};
use crate::context::{Context, OwnedContext};
use crate::error::{Error, Resource, Result};
use crate::id::Id;
use crate::name::{FlowName, OrgName};
use crate::operation::{Envelope, JsonList, Method, Operation, json_text};
use crate::page::{CursorLinks, Listed, PageNumber, PageRequest, Pagination, PerPage};
use crate::rules::pattern;
use crate::store::batch::{distinct, sort_by_ids};
use crate::time::{SentSeconds, Timestamp};
use crate::trails::record::TrailLabel;

/// The default number of attestations on a page.
const PER_PAGE: u64 = 20;

/// The most flows that a list can be narrowed to.
const MAX_FLOWS: usize = 20;

/// The maximum length of a cursor: a number of up to 20 digits for each flow, with separators.
const MAX_CURSOR: usize = 21 * MAX_FLOWS;

/// Lists the attestations of an organization, newest first, one page at a time. All given filters must match.
/// `_links.next` is the link to the next page. If few attestations match, a page may have fewer than
/// requested, or none: the list ends with the page without `_links.next`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetAttestations {
    /// The organization's name.
    pub org: OrgName,
    /// Returns only the attestation of this id.
    pub attestation_id: Option<ShortText>,
    /// Returns only attestations of this name. Cannot be combined with `name_regex`.
    pub name: Option<ShortText>,
    /// Returns only attestations whose names contain a match of this regular expression.
    pub name_regex: Option<ShortText>,
    /// The name of a flow. Repeatable; any may match. A flow that does not exist is 404.
    #[serde(default)]
    pub flow: List<ShortText, MAX_FLOWS>,
    /// A type: a built-in type, such as `junit` or `decision`, or `custom:` and the name of a custom type.
    /// Repeatable; any may match. A custom type that does not exist is 404.
    #[serde(default, rename = "type")]
    pub kind: List<TypeFilter, 100>,
    /// Returns only compliant or only non-compliant attestations. Without it, returns both.
    pub is_compliant: Option<bool>,
    /// Lists entries recorded at this time or later, in epoch seconds.
    pub from_timestamp: Option<SentSeconds>,
    /// Lists entries recorded at this time or before, in epoch seconds.
    pub to_timestamp: Option<SentSeconds>,
    /// The cursor of the page, from `_links.next`. Without it, the list starts with the newest attestation.
    pub after: Option<Text<MAX_CURSOR>>,
    /// Attestations per page. Defaults to 20.
    pub per_page: Option<PerPage<100>>,
}

/// A filter by attestation type, as sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TypeFilter(String);

/// The types that are recorded with the prefix `system:` and can be requested without it.
const SYSTEM_TYPES: [&str; 3] = [DECISION, SARIF, SBOM];

impl TypeFilter {
    /// Returns whether the filter matches this recorded type.
    pub fn admits(&self, kind: &str) -> bool {
        let is_same = self.0 == kind;
        is_same || SYSTEM_TYPES.contains(&self.0.as_str()) && kind.strip_prefix("system:") == Some(&self.0)
    }
}

impl Context<'_> {
    /// Refuses custom types that the organization does not have. Archived types are accepted. `field` is the
    /// field that named them.
    pub(super) async fn check_types_exist(&self, kinds: &[TypeFilter], field: &'static str) -> Result<()> {
        let named = distinct(kinds.iter().filter_map(|kind| kind.0.strip_prefix("custom:")));
        for name in named {
            if self.store().attestation_type(self.org()?, name).await?.is_none() {
                return Err(self.missing(Resource::AttestationType, name).named_by(field).into());
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for TypeFilter {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if SYSTEM_TYPES.contains(&text.as_str()) {
            return Ok(Self(text));
        }
        let refused = "Input should be 'generic', 'junit', 'snyk', 'pull_request', 'jira', 'sonar', 'decision', \
                       'sarif', 'sbom', 'custom:<name>' or 'system:<name>'";
        Ok(Self(OriginalType::try_from(text).map_err(|_| refused)?.into()))
    }
}

impl JsonSchema for TypeFilter {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TypeFilter".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let original = OriginalType::json_schema(generator);
        schemars::json_schema!({ "anyOf": [{ "type": "string", "enum": SYSTEM_TYPES }, original] })
    }
}

/// A page of attestations.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "AttestationsPaginatedResponse")]
#[non_exhaustive]
pub struct AttestationList {
    /// The attestations of the page.
    pub data: Vec<AttestationView>,
    /// In the list of a flow: the position of the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pagination: Option<Pagination>,
    /// In the list of an organization: links to this page and the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub _links: Option<CursorLinks>,
}

impl Envelope<AttestationView> for CursorLinks {
    type Document = AttestationList;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let after = [b",\"_links\":".to_vec(), json_text(self)?, b"}".to_vec()].concat();
        Ok((b"{\"data\":".to_vec(), after))
    }
}

impl Operation for GetAttestations {
    const NAME: &'static str = "get_attestations";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/attestations/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the attestations of an organization, newest first";
    const CACHED: bool = true;
    type Body = ();
    type Output = JsonList<AttestationView, CursorLinks>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let filter = Arc::new(self.filter()?);
        let flows = self.flows(cx).await?;
        cx.check_types_exist(&self.kind.0, "query.type").await?;
        let after = self.cursor(&flows)?;
        let address = cx.api_url(&format!("attestations/{}", self.org));
        let links =
            |next: Option<&str>| CursorLinks::new(&address, &self.query(), self.after.as_deref(), next);
        if let Some(id) = &self.attestation_id {
            let only = match self.only(id, &flows, &filter, cx).await? {
                Some((one, label)) => Some((one.with_data(cx).await?, label)),
                None => None,
            };
            let only = only.map(|(one, label)| AttestationView::new(one, &label.flow, &label.name, cx));
            let only = stream::iter(only.transpose()?.map(Ok));
            return JsonList::with_first_item(only, links(None), &cx.compute()).await;
        }
        let mut position = self.position(flows, after, cx).await?;
        let per_page = self.per_page.map_or(PER_PAGE, PerPage::get);
        let (chosen, goes_on) = position.choose(filter, per_page, cx).await?;
        let next = goes_on.then(|| position.to_string());
        listed(chosen, links(next.as_deref()), cx).await
    }
}

impl GetAttestations {
    fn filter(&self) -> Result<Filter> {
        if self.name.is_some() && self.name_regex.is_some() {
            return Err(Error::invalid("query.name_regex", "name_regex cannot be combined with name"));
        }
        let regex = self.name_regex.as_deref().map(pattern::compile).transpose();
        Ok(Filter {
            name: self.name.clone(),
            name_regex: regex.map_err(|refused| Error::invalid("query.name_regex", refused))?,
            kinds: self.kind.0.clone(),
            is_compliant: self.is_compliant,
            time: TimeRange {
                from: self.from_timestamp.map(|at| at.0),
                to: self.to_timestamp.map(|at| at.0),
            },
        })
    }

    /// Returns the flows to list attestations of; empty for all flows.
    async fn flows(&self, cx: &Context<'_>) -> Result<Vec<Id>> {
        let mut flows = Vec::new();
        for name in &self.flow.0 {
            let flow = cx.flow(name).await.map_err(|error| error.named_by("query.flow"))?;
            flows.push(flow.record.id);
        }
        Ok(distinct(flows))
    }

    /// Returns the cursor of a page of the list of these flows; `None` for the first page.
    fn cursor(&self, flows: &[Id]) -> Result<Option<Cursor>> {
        let cursor = self.after.as_deref().map(Cursor::from_str).transpose();
        let is_of_list = |cursor: &Option<Cursor>| match cursor {
            None => true,
            Some(Cursor::Org(_)) => flows.is_empty(),
            Some(Cursor::Flows(before)) => !flows.is_empty() && before.len() == flows.len(),
        };
        let cursor = cursor.ok().filter(is_of_list);
        cursor
            .ok_or_else(|| Error::invalid("query.after", "Input should be the cursor of a page of this list"))
    }

    /// Returns the start of the page.
    async fn position(&self, flows: Vec<Id>, after: Option<Cursor>, cx: &Context<'_>) -> Result<Position> {
        let before = match after {
            Some(Cursor::Org(before)) => return Ok(Position::Org { before }),
            Some(Cursor::Flows(before)) => before,
            None if flows.is_empty() => {
                let before = match &self.to_timestamp {
                    Some(SentSeconds(to)) => cx.store().ledger_size_at(cx.org()?, *to).await?,
                    None => u64::MAX,
                };
                return Ok(Position::Org { before });
            }
            None => self.newest(&flows, cx).await?,
        };
        let positions = flows.into_iter().zip(before).map(|(flow, before)| FlowPosition { flow, before });
        Ok(Position::Flows(positions.collect()))
    }

    /// Returns the number in each flow before which the first page begins.
    async fn newest(&self, flows: &[Id], cx: &Context<'_>) -> Result<Vec<u64>> {
        let Some(SentSeconds(to)) = self.to_timestamp else { return Ok(vec![u64::MAX; flows.len()]) };
        let (time, counted) = (TimeRange { from: None, to: Some(to) }, PageRequest { offset: 0, limit: 0 });
        let mut before = Vec::new();
        for flow in flows {
            let until = cx.store().flow_attestations(cx.org()?, *flow, &time, counted).await?;
            before.push(until.total + 1);
        }
        Ok(before)
    }

    /// Returns the attestation of this id with the label of its trail, if the other filters match it.
    async fn only(
        &self,
        id: &str,
        flows: &[Id],
        filter: &Filter,
        cx: &Context<'_>,
    ) -> Result<Option<(Attestation, TrailLabel)>> {
        let Ok(id) = id.parse() else { return Ok(None) };
        let found = cx.store().labelled_attestation(cx.org()?, id).await?;
        let admits = |(one, _): &(Attestation, TrailLabel)| {
            let is_of_flow = flows.is_empty() || flows.contains(&one.flow);
            is_of_flow && filter.admits(one.name.as_str(), &one.kind, one.is_compliant, one.created_at)
        };
        Ok(found.filter(admits))
    }

    /// Returns the parameters besides the cursor, for links to other pages.
    fn query(&self) -> Vec<(&'static str, String)> {
        let text = |text: &Option<ShortText>| text.as_deref().map(str::to_owned);
        let given = [
            ("attestation_id", text(&self.attestation_id)),
            ("name", text(&self.name)),
            ("name_regex", text(&self.name_regex)),
            ("is_compliant", self.is_compliant.map(|is_compliant| is_compliant.to_string())),
            ("from_timestamp", self.from_timestamp.map(|at| at.0.decimal())),
            ("to_timestamp", self.to_timestamp.map(|at| at.0.decimal())),
            ("per_page", self.per_page.map(|per_page| per_page.get().to_string())),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let flows = self.flow.0.iter().map(|flow| ("flow", flow.to_string()));
        let kinds = self.kind.0.iter().map(|kind| ("type", kind.0.clone()));
        given.chain(flows).chain(kinds).collect()
    }
}

/// The filters of a list. All given filters must match.
#[derive(Debug)]
struct Filter {
    name: Option<ShortText>,
    name_regex: Option<regex::bytes::Regex>,
    /// The accepted types; empty for all types.
    kinds: Vec<TypeFilter>,
    is_compliant: Option<bool>,
    time: TimeRange,
}

impl Filter {
    /// Returns whether filtering this many attestations takes about a millisecond or more.
    fn is_heavy(&self, many: u64) -> bool {
        let each = if self.name_regex.is_some() { 50 } else { 1 + self.kinds.len() as u64 };
        many * each > 10_000
    }

    /// Returns whether all attestations after one of this time are too old to match.
    fn is_behind(&self, at: Timestamp) -> bool {
        self.time.from.is_some_and(|from| at < from)
    }

    fn admits(&self, name: &str, kind: &str, is_compliant: bool, at: Timestamp) -> bool {
        self.is_compliant.is_none_or(|asked| asked == is_compliant)
            && self.time.contains(at)
            && (self.kinds.is_empty() || self.kinds.iter().any(|asked| asked.admits(kind)))
            && self.name.as_deref().is_none_or(|asked| asked == name)
            && self.name_regex.as_ref().is_none_or(|asked| asked.is_match(name.as_bytes()))
    }
}

/// A cursor, as in the links of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cursor {
    /// Before this ledger index.
    Org(u64),
    /// Before these numbers in the requested flows.
    Flows(Vec<u64>),
}

/// The text is not a valid cursor.
#[derive(Debug, PartialEq, Eq)]
struct UnknownCursor;

/// The prefix of a cursor with numbers in flows.
const IN_FLOWS: char = 'f';

impl FromStr for Cursor {
    type Err = UnknownCursor;

    fn from_str(text: &str) -> Result<Self, UnknownCursor> {
        let number = |text: &str| text.parse().map_err(|_| UnknownCursor);
        // A flow that no page has shown yet has no number.
        let in_flow = |text: &str| if text.is_empty() { Ok(u64::MAX) } else { number(text) };
        match text.strip_prefix(IN_FLOWS) {
            Some(numbers) => numbers.split('.').map(in_flow).collect::<Result<_, _>>().map(Self::Flows),
            None => number(text).map(Self::Org),
        }
    }
}

/// The position of a list.
#[derive(Debug)]
enum Position {
    Org { before: u64 },
    Flows(Vec<FlowPosition>),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Org { before } => write!(f, "{before}"),
            Self::Flows(flows) => {
                let number = |flow: &FlowPosition| match flow.before {
                    u64::MAX => String::new(),
                    before => before.to_string(),
                };
                let numbers = Vec::from_iter(flows.iter().map(number));
                write!(f, "{IN_FLOWS}{}", numbers.join("."))
            }
        }
    }
}

/// The approximate number of attestations that are examined for a page.
const MAX_EXAMINED: u64 = 50_000;

/// The most attestations that one query examines.
const MAX_PART: u64 = 10_000;

/// The growth factor of the number that successive queries examine.
const GROWTH: u64 = 8;

impl Position {
    /// Returns the next matching attestations, at most `limit`, and whether more may follow. Advances the
    /// position past the examined attestations.
    async fn choose(&mut self, filter: Arc<Filter>, limit: u64, cx: &Context<'_>) -> Result<(Vec<Id>, bool)> {
        let mut chosen = Vec::new();
        // Each query examines this many attestations of each flow.
        let flows = match self {
            Self::Org { .. } => 1,
            Self::Flows(flows) => flows.len() as u64,
        };
        let most = (MAX_PART / flows).max(limit + 1);
        let (mut examined, mut part) = (0, limit + 1);
        loop {
            let rows = self.read(part, cx).await?;
            let read = rows.len() as u64;
            let (of_part, room) = (Arc::clone(&filter), limit - chosen.len() as u64);
            let is_over = rows.last().is_some_and(|row| filter.is_behind(row.at));
            let matching = move || matching(rows, &of_part, room);
            let compute = cx.compute();
            let (passed, matching) = match filter.is_heavy(read) {
                true => compute.run_long(matching).await?,
                false => matching(),
            };
            passed.iter().for_each(|row| self.pass(row));
            chosen.extend(matching);
            let all_passed = passed.len() as u64 == read;
            if all_passed && (read < part || is_over) {
                return Ok((chosen, false));
            }
            examined += part * flows;
            if !all_passed || chosen.len() as u64 == limit || examined >= MAX_EXAMINED {
                return Ok((chosen, true));
            }
            part = (part * GROWTH).min(most);
        }
    }

    async fn read(&self, limit: u64, cx: &Context<'_>) -> Result<Vec<ListedAttestation>> {
        let (store, org) = (cx.store(), cx.org()?);
        Ok(match self {
            Self::Org { before } => store.attestations_before(org, *before, limit).await?,
            Self::Flows(flows) => store.flow_attestations_before(org, flows, limit).await?,
        })
    }

    /// Advances the position past this attestation.
    fn pass(&mut self, row: &ListedAttestation) {
        match self {
            Self::Org { before } => *before = row.index,
            Self::Flows(flows) => {
                if let Some(position) = flows.iter_mut().find(|position| position.flow == row.flow) {
                    position.before = row.flow_ordinal;
                }
            }
        }
    }
}

/// Returns the first rows up to the last of `room` matches, and the ids of the matches.
fn matching(
    mut rows: Vec<ListedAttestation>,
    filter: &Filter,
    room: u64,
) -> (Vec<ListedAttestation>, Vec<Id>) {
    let mut chosen = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        if chosen.len() as u64 == room {
            rows.truncate(place);
            break;
        }
        if filter.admits(&row.name, &row.kind, row.is_compliant, row.at) {
            chosen.push(row.id);
        }
    }
    (rows, chosen)
}

/// Lists these attestations, in order, in an envelope. Their content is read while the response is sent.
async fn listed<E>(ids: Vec<Id>, envelope: E, cx: &Context<'_>) -> Result<JsonList<AttestationView, E>> {
    let mut sizes =
        if ids.is_empty() { vec![] } else { cx.store().attestation_sizes(cx.org()?, &ids).await? };
    sort_by_ids(&mut sizes, &ids, |one| one.id);
    in_envelope(sizes, envelope, cx).await
}

async fn in_envelope<E>(
    listed: Vec<Listed>,
    envelope: E,
    cx: &Context<'_>,
) -> Result<JsonList<AttestationView, E>> {
    let owned = cx.to_owned_context();
    JsonList::in_batches(listed, envelope, &cx.compute(), move |ids| read(ids, owned.clone())).await
}

/// Streams these attestations, in order. One that cannot be read is left out.
pub(super) fn read(
    ids: Vec<Id>,
    owned: OwnedContext,
) -> impl Stream<Item = Result<AttestationView>> + Send + 'static {
    let read = async move {
        let cx = owned.context();
        let mut attestations = cx.store().attestations_by_id(cx.org()?, &ids).await?;
        sort_by_ids(&mut attestations, &ids, |one| one.id);
        Ok(stream::iter(views(attestations, &cx).await?.into_iter().map(Ok)))
    };
    read.try_flatten_stream()
}

/// Lists the attestations of a flow, newest first, one page at a time.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetFlowAttestations {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Attestations per page. Defaults to 20.
    pub per_page: Option<PerPage<100>>,
    /// Lists entries recorded at this time or later, in epoch seconds.
    pub from_timestamp: Option<SentSeconds>,
    /// Lists entries recorded at this time or before, in epoch seconds.
    pub to_timestamp: Option<SentSeconds>,
}

impl Envelope<AttestationView> for Pagination {
    type Document = AttestationList;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        self.around_data()
    }
}

impl Operation for GetFlowAttestations {
    const NAME: &'static str = "get_flow_attestations";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/attestations/{org}/{flow_name}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the attestations of a flow, newest first";
    const CACHED: bool = true;
    type Body = ();
    type Output = JsonList<AttestationView, Pagination>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let flow = cx.flow(self.flow_name.as_str()).await?.record;
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(PER_PAGE, PerPage::get));
        let time =
            TimeRange { from: self.from_timestamp.map(|at| at.0), to: self.to_timestamp.map(|at| at.0) };
        let found = cx.store().flow_attestations(cx.org()?, flow.id, &time, page.request(per_page)).await?;
        let pagination =
            Pagination { total: found.total, page: page.get(), per_page, page_count: found.pages(per_page) };
        in_envelope(found.items, pagination, cx).await
    }
}
