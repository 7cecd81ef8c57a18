//! Operations on snapshots.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::ShortText;
use crate::context::Context;
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Resource, Result};
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Json, JsonList, Method, Operation};
use crate::page::{PageNumber, PageRequest, PerPage};
use crate::snapshots::expression::{Expression, Interval};
use crate::snapshots::timeline::Timeline;
use crate::snapshots::view::{SnapshotArtifact, SnapshotSummary, SnapshotView};

impl Context<'_> {
    /// Returns the snapshots of the environment of this name. The specification reports a missing environment
    /// as a missing flow.
    async fn timeline_of(&self, name: &EnvironmentName) -> Result<Timeline> {
        match self.store().environment(self.org()?, name.as_str()).await? {
            Some(environment) => Timeline::of(environment, self).await,
            None => Err(self.missing_environment(name.as_str()).await?.with_message("Flow not found").into()),
        }
    }
}

/// Lists the snapshots of an environment, newest first, one page at a time. A snapshot is taken if other
/// artifacts run, if their origin or a verdict changes, or if the policies change. A logical environment has
/// the snapshots of its members, and one for each visible change of the members.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListSnapshots {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Snapshots per page. Defaults to 15. A page has at most 1,000, even if more are requested.
    pub per_page: Option<PerPage<{ i64::MAX }>>,
    /// The snapshots to list: one snapshot expression, or two separated by `..`, such as `3..NOW` or
    /// `-5..-1`.
    pub interval: Option<ShortText>,
    /// Whether to sort oldest first.
    pub reverse: Option<bool>,
}

const DEFAULT_PER_PAGE: u64 = 15;

const MAX_SERVED: u64 = 1000;

impl Operation for ListSnapshots {
    const NAME: &'static str = "list_snapshots";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/snapshots/{org}/{env_name}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the snapshots of an environment";
    type Body = ();
    type Output = Json<Vec<SnapshotSummary>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let interval = Interval::parse(self.interval.as_deref().unwrap_or_default())
            .map_err(|bad| Error::invalid("query.interval", bad.to_string()))?;
        let timeline = cx.timeline_of(&self.env_name).await?;
        let Some(range) = timeline.range(&interval, cx).await? else {
            return Ok(Json(Vec::new()));
        };
        let per_page = self.per_page.map_or(DEFAULT_PER_PAGE, PerPage::get).min(MAX_SERVED);
        let request = self.page.unwrap_or_default().request(per_page);
        let ascending = self.reverse.unwrap_or_default();
        let mut rows = timeline.rows(page(range, ascending, request), cx).await?;
        if !ascending {
            rows.reverse();
        }
        Ok(Json(rows.iter().map(|row| SnapshotSummary::new(row, cx.now())).collect()))
    }
}

/// Returns the numbers on a page of one or more items of `first..=last`. Pages begin at the end unless
/// `ascending`. The numbers have no gaps, so a store need not skip items.
pub(crate) fn page(
    (first, last): (u64, u64),
    ascending: bool,
    PageRequest { offset, limit }: PageRequest,
) -> RangeInclusive<u64> {
    let further = limit.saturating_sub(1);
    if ascending {
        let first = first.saturating_add(offset);
        first..=last.min(first.saturating_add(further))
    } else {
        let last = last.saturating_sub(offset);
        first.max(last.saturating_sub(further))..=last
    }
}

/// Gets a snapshot of an environment: the running artifacts, their origin, and the policies' decisions.
/// Artifacts that stopped running with it are included, with the annotation `exited`. For a logical
/// environment, contains the artifacts of its members, one member after another.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetSnapshot {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
    /// The snapshot: `N`, `-N`, `#N`, `~N`, `@{time}`, `@{N.hours.ago}` or `@{now}`.
    pub snapshot_expression: ShortText,
}

impl Operation for GetSnapshot {
    const NAME: &'static str = "get_snapshot";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/snapshots/{org}/{env_name}/{snapshot_expression}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a snapshot of an environment";
    type Body = ();
    type Output = JsonList<SnapshotArtifact, SnapshotView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let expression = Expression::parse(&self.snapshot_expression)
            .map_err(|bad| Error::invalid("snapshot_expression", bad.to_string()))?;
        let timeline = cx.timeline_of(&self.env_name).await?;
        let resolved = timeline.resolve(&expression, cx).await?;
        let index = u64::try_from(resolved).ok().filter(|index| (1..=timeline.count()).contains(index));
        let asked = match expression {
            Expression::Index(index) => format!("#{index}"),
            Expression::Now => "@{now}".to_owned(),
            Expression::Back(_) | Expression::At(_) | Expression::Ago(..) => expression.to_string(),
        };
        let missing =
            || cx.missing(Resource::Snapshot, unresolved(&timeline.environment, &asked, resolved, cx));
        let index = index.ok_or_else(missing)?;
        let row = timeline.rows(index..=index, cx).await?.pop();
        SnapshotView::gather(&timeline, row.ok_or_else(missing)?, cx).await
    }
}

/// Returns the message for an expression that resolves to no snapshot, in the wording that users of the
/// public command-line client know.
pub(super) fn unresolved(
    environment: &KnownEnvironment,
    asked: &str,
    index: i64,
    cx: &Context<'_>,
) -> String {
    let org = cx.org_access().map(|access| access.name.as_str()).unwrap_or_default();
    let (name, count) = (&environment.record.name, environment.status.snapshots);
    format!(
        "Org: '{org}'. Snapshot '{name}{asked}' resolves to '{name}#{index}'. len(snapshots) == {count}. Indexes are 1-based"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::Page;
    use crate::snapshots::store::SnapshotRow;
    use crate::time::{Timestamp, WholeSeconds};

    proptest! {
        #[test]
        fn a_page_of_snapshots_is_that_window_of_all_their_numbers(
            first in 1..9_u64, count in 0..20_u64, ascending: bool, limit in 1..9_u64,
            offset in prop_oneof![0..25_u64, Just(u64::MAX)],
        ) {
            let (last, request) = (first + count, PageRequest { offset, limit });
            let numbers = |range: RangeInclusive<u64>| {
                if ascending { range.collect::<Vec<_>>() } else { range.rev().collect() }
            };
            let wanted = Page::of(numbers(first..=last), request).items;
            prop_assert_eq!(numbers(page((first, last), ascending, request)), wanted);
        }
    }

    #[test]
    fn a_summary_cuts_fractions_off_and_counts_the_current_snapshot_up_to_now() {
        let (at, now) = (Timestamp::from_micros(10_900_000), Timestamp::from_micros(20_000_000));
        let later = Timestamp::from_micros(20_000_001);
        let table = [
            (at, None, 10, 0, 9),
            (at, Some(Timestamp::from_micros(12_100_000)), 10, 12, 1),
            (at, Some(at), 10, 10, 0),
            (later, None, 20, 0, 0),
        ];
        for (at, until, from, to, duration) in table {
            let row = SnapshotRow {
                environment: "00000000-0000-0000-0000-00000001".parse().unwrap(),
                index: 1,
                at,
                until,
                compliant: true,
                events: 0,
                revision: 0,
                logical: Vec::new(),
            };
            let expected = SnapshotSummary {
                index: 1,
                from: WholeSeconds(from),
                to: WholeSeconds(to),
                compliant: true,
                duration: WholeSeconds(duration),
            };
            assert_eq!(SnapshotSummary::new(&row, now), expected);
        }
    }
}
