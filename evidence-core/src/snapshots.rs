//! Snapshots: what ran in an environment, when, and whether it was allowed to. Kept as intervals: an artifact runs
//! from one snapshot until another, so a report costs what changed and not what runs.

mod key;
mod view;

use std::ops::RangeInclusive;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::Scope;
use crate::environments::KnownEnvironment;
use crate::error::{Error, Resource, Result};
use crate::id::Id;
use crate::json::JsonFields;
use crate::ledger::Hash;
use crate::name::{EnvironmentName, Fingerprint, OrgName, PolicyName};
use crate::operation::{Json, Method, Operation};
use crate::page::{PageNumber, PageRequest, PerPage};
use crate::rules::compliance::State;
use crate::rules::policy::RuleEvaluation;
use crate::rules::snapshots::{Expression, Interval, Position};
use crate::service::Context;
use crate::shared::ShortText;
use crate::store::{Current, StoreResult};
use crate::time::{Timestamp, WholeSeconds};

pub use key::ArtifactKey;
pub use view::{
    AppliedPolicyView, ArtifactFlow, FailingArtifacts, GetSnapshot, SnapshotArtifact, SnapshotView,
};

/// A snapshot as it is recorded: what changed since the one before, and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The environment.
    pub environment: Id,
    /// Its number there, from 1.
    pub index: u64,
    /// When it was taken.
    pub at: Timestamp,
    /// Whether everything that runs may.
    pub compliant: bool,
    /// Whether a report led to it, rather than a change of policies.
    pub reported: bool,
    /// The policies it was evaluated by, by id.
    pub policies: Vec<AppliedPolicy>,
    /// Artifacts that began to run, or whose data differ from the snapshot before.
    pub changes: Vec<Instance>,
    /// Artifacts that no longer run.
    pub exits: Vec<ArtifactKey>,
}

/// A policy that a snapshot was evaluated by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedPolicy {
    /// The policy.
    pub policy: Id,
    /// Which version of it.
    pub version: u64,
}

impl AppliedPolicy {
    /// What lists of policies are told apart by: the SHA-256 of their ids and versions. Nothing of no policies.
    pub(crate) fn digest(applied: &[Self]) -> Option<Hash> {
        let line = |one: &Self| format!("{} {}\n", one.policy, one.version);
        (!applied.is_empty()).then(|| Hash::of(applied.iter().map(line).collect::<String>()))
    }
}

/// An artifact running in an environment, unchanged since snapshot `from`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// The SHA-256 of what runs; nothing where the environment knows none, as of some ECS tasks, Azure apps and Cloud
    /// Run services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// Its name, as the environment knows it.
    pub name: String,
    /// When its instances were created, in epoch seconds, ascending; their number is the instance count.
    pub created: Vec<i64>,
    /// What only environments of its kind tell: pods, tasks, containers, revisions. Answers show what is under `pods` and
    /// `ecs_context`. No snapshot is taken because it differs.
    #[serde(default, skip_serializing_if = "JsonFields::is_empty")]
    pub context: JsonFields,
    /// The first snapshot with these data.
    pub from: u64,
    /// The first snapshot of the run that this is a part of.
    pub since: u64,
    /// What made it differ in that snapshot.
    pub annotation: Annotation,
    /// Whether it may run; nothing without policies.
    pub compliant: Option<bool>,
    /// Where it comes from: its newest report in each flow, and its state there.
    pub provenance: Vec<Provenance>,
    /// The digest of the policies that it was evaluated by ([`Snapshot::policies`]): the SHA-256 of a line for each, `<id>
    /// <version>` and a line feed. Nothing without policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_by: Option<Hash>,
    /// Which of these it violates, by their places, ascending. What their rules say of it follows from the provenance and is
    /// evaluated when it is shown: recorded, it would be as long as the policies times the flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violates: Vec<u16>,
}

impl Instance {
    /// What it is told apart by from all else that runs in the environment.
    pub fn key(&self) -> ArtifactKey {
        ArtifactKey::new(self.fingerprint.as_ref(), &self.name)
    }
}

/// What a version of a policy said of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PolicyDecision {
    /// The policy.
    pub policy_name: PolicyName,
    /// Which version of it.
    pub policy_version: u64,
    /// `COMPLIANT` or `NON-COMPLIANT`.
    pub status: State,
    /// What each of its rules said; nothing where that is not known any more.
    pub rule_evaluations: Vec<RuleEvaluation>,
}

/// Where a running artifact comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The artifact report.
    pub artifact: Id,
    /// Its state in that report's trail.
    pub state: State,
    /// Why, where no attestation accounts for it: the template cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What made an artifact differ from the snapshot before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Annotation {
    /// `started-compliant`, `started-non-compliant`, `started-unknown`, `became-compliant`, `became-non-compliant`,
    /// `updated-provenance`, `changed`, `unchanged` or `exited`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Instances in the snapshot before.
    pub was: u64,
    /// Instances in this one.
    pub now: u64,
}

/// An instance in a snapshot: running in it, or gone with it.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotInstance {
    /// The instance.
    pub instance: Instance,
    /// Whether it ran in the snapshot before and no longer runs in this one.
    pub exited: bool,
}

/// A snapshot's line in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRow {
    /// Its number.
    pub index: u64,
    /// When it was taken.
    pub at: Timestamp,
    /// When the next one was taken; nothing for the current one.
    pub until: Option<Timestamp>,
    /// Its verdict.
    pub compliant: bool,
    /// The ledger index of the fact that took it.
    pub revision: u64,
}

/// An uninterrupted run of an artifact in an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The artifact.
    pub fingerprint: Fingerprint,
    /// The environment's id.
    pub environment: Id,
    /// The environment's name.
    pub environment_name: EnvironmentName,
    /// The first snapshot, and when that was taken.
    pub from: (u64, Timestamp),
    /// The snapshot in which it had ended, and when that was taken; nothing while it lasts.
    pub until: Option<(u64, Timestamp)>,
}

/// Queries about snapshots.
#[async_trait]
pub trait SnapshotStore: Send + Sync {
    /// The record of snapshot `index` of an environment, one, with the ledger index of the fact that took it.
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>>;
    /// The lines of the snapshots of an environment with these numbers, by number: all that there are.
    async fn snapshots(
        &self,
        org: Id,
        environment: Id,
        range: RangeInclusive<u64>,
    ) -> StoreResult<Vec<SnapshotRow>>;
    /// The number of the snapshot of an environment taken last at or before `at`, one: that of the latest time, of equal ones
    /// the greatest number; 0 when there is none.
    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64>;
    /// All that runs in snapshot `index` of an environment, and all that exited with it, by artifact key (bytes).
    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<SnapshotInstance>>;
    /// Where and when the artifacts with these digests ran, ordered by environment, fingerprint and first snapshot: of each
    /// artifact in each environment the first run and the `newest` last ones.
    async fn runs(&self, org: Id, fingerprints: &[Fingerprint], newest: u32) -> StoreResult<Vec<Run>>;
}

impl Context<'_> {
    /// The environment whose snapshots are asked for. The specification tells a missing one as a missing flow.
    async fn environment_of_snapshots(&self, name: &EnvironmentName) -> Result<KnownEnvironment> {
        let environment = self.store().environment(self.org()?, name.as_str()).await?;
        let missing = || self.missing(Resource::Environment, name.as_str()).with_message("Flow not found");
        Ok(environment.ok_or_else(missing)?)
    }

    /// Which snapshot an expression names; a number that no snapshot need have.
    async fn resolve_snapshot(&self, environment: &KnownEnvironment, expression: &Expression) -> Result<i64> {
        match expression.position(environment.status.snapshots, self.now()) {
            Position::Index(index) => Ok(index),
            Position::At(at) => {
                let index = self.store().snapshot_at(self.org()?, environment.record.id, at).await?;
                Ok(i64::try_from(index).unwrap_or(i64::MAX))
            }
        }
    }
}

/// Lists the snapshots of an environment, newest first, a page at a time. A snapshot is taken when other
/// artifacts run, where they come from or a verdict changes, or the policies do.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListSnapshots {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
    /// Which page, from 1; the first when left out.
    pub page: Option<PageNumber>,
    /// Snapshots a page: 15 when left out. At most 1,000 are served, however many are asked for.
    pub per_page: Option<PerPage<{ i64::MAX }>>,
    /// Narrows the list: one snapshot expression, or two separated by `..`, such as `3..NOW` or `-5..-1`.
    pub interval: Option<ShortText>,
    /// Oldest first.
    pub reverse: Option<bool>,
}

/// A snapshot of an environment in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SnapshotSummary {
    /// Its number in the environment, from 1.
    pub index: u64,
    /// When it was taken, in epoch seconds.
    pub from: WholeSeconds,
    /// When the next one was taken, in epoch seconds; 0 for the current one.
    pub to: WholeSeconds,
    /// Whether all that ran was allowed to; false without policies.
    pub compliant: bool,
    /// How many seconds it was current, or is by now.
    pub duration: WholeSeconds,
}

impl SnapshotSummary {
    fn new(row: &SnapshotRow, now: Timestamp) -> Self {
        // The clock of the server that took it may be ahead of this one's.
        let until = row.until.unwrap_or(now).max(row.at);
        let lasted = until.as_micros().saturating_sub(row.at.as_micros());
        Self {
            index: row.index,
            from: row.at.whole_seconds(),
            to: row.until.map(Timestamp::whole_seconds).unwrap_or_default(),
            compliant: row.compliant,
            duration: Timestamp::from_micros(lasted).whole_seconds(),
        }
    }
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
        let environment = cx.environment_of_snapshots(&self.env_name).await?;
        let Some(range) = range(&interval, &environment, cx).await? else {
            return Ok(Json(Vec::new()));
        };
        let per_page = self.per_page.map_or(DEFAULT_PER_PAGE, PerPage::get).min(MAX_SERVED);
        let request = self.page.unwrap_or_default().request(per_page);
        let ascending = self.reverse.unwrap_or_default();
        let mut rows =
            cx.store().snapshots(cx.org()?, environment.record.id, page(range, ascending, request)).await?;
        if !ascending {
            rows.reverse();
        }
        Ok(Json(rows.iter().map(|row| SnapshotSummary::new(row, cx.now())).collect()))
    }
}

/// The numbers that a page of one or more items shows of `first..=last`, which it begins at the end of unless
/// `ascending`. There are no gaps, so that no store has to pass over what is not on the page.
fn page(
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

/// The existing snapshots of an interval.
async fn range(
    interval: &Interval,
    environment: &KnownEnvironment,
    cx: &Context<'_>,
) -> Result<Option<(u64, u64)>> {
    let resolved = match interval {
        Interval::Everything => Interval::Everything,
        Interval::Only(one) => Interval::Only(numbered(environment, one, cx).await?),
        Interval::Between(first, last) => {
            Interval::Between(numbered(environment, first, cx).await?, numbered(environment, last, cx).await?)
        }
    };
    Ok(resolved.range(environment.status.snapshots, cx.now(), |_| 0))
}

/// The expression as a number from 1, so that a time needs no second look. What is before the first is 0, which no
/// snapshot has.
async fn numbered(
    environment: &KnownEnvironment,
    expression: &Expression,
    cx: &Context<'_>,
) -> Result<Expression> {
    Ok(Expression::Index(cx.resolve_snapshot(environment, expression).await?.max(0)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::Page;

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
            let row = SnapshotRow { index: 1, at, until, compliant: true, revision: 0 };
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
