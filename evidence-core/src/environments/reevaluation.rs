//! Evaluates environments again after a change of an input. The request that made the change does this. If it
//! did not or was interrupted, the jobs of policies and allowlists do it. Each environment is evaluated in a
//! separate write.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;

use super::evaluation::{self, Changed};
use crate::auth::access::Principal;
use crate::auth::actor::Scope;
use crate::context::Context;
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Result};
use crate::fact::names::Key;
use crate::id::Id;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Json, Method, Operation};
use crate::service::{Evidence, EvidenceService};
use crate::store::batch::distinct;
use crate::store::error::StoreError;

/// The number of environments that are read at a time.
const PAGE: usize = 64;

/// The actor of jobs that record snapshots: the operator `evidence`.
const OPERATOR: &str = "evidence";

/// Evaluates an environment's running artifacts again. Records nothing if the result is the same.
pub(crate) async fn reevaluate(name: &EnvironmentName, changed: Changed, cx: &Context<'_>) -> Result<()> {
    let evaluated = cx.retry_exclusively(Key::Environment(name.clone()), || async {
        let known = cx.store().environment(cx.org()?, name.as_str()).await?;
        let Some(known) = known.filter(|known| !known.archived) else { return Ok(()) };
        let draft = evaluation::reevaluate(&known, changed, Vec::new(), cx).await?;
        cx.record(draft).await.map(drop)
    });
    evaluated.await
}

/// Evaluates the running artifacts of these environments again, one environment after another. For a logical
/// environment, evaluates its members, because its policies count in their snapshots. Continues after an
/// error, and returns the first.
pub(crate) async fn reevaluate_all(
    environments: Vec<KnownEnvironment>,
    changed: Changed,
    cx: &Context<'_>,
) -> Result<()> {
    let (physical, logical): (Vec<_>, Vec<_>) =
        environments.into_iter().partition(|known| known.record.kind.is_physical());
    let mut names = Vec::from_iter(physical.into_iter().map(|known| known.record.name));
    let members = distinct(logical.into_iter().flat_map(|known| known.record.included));
    for part in members.chunks(PAGE) {
        let known = cx.store().environments_by_id(cx.org()?, part).await?;
        names.extend(known.into_iter().map(|known| known.record.name));
    }
    let mut outcome = Ok(());
    for name in distinct(names) {
        outcome = outcome.and(reevaluate(&name, changed, cx).await);
    }
    outcome
}

/// Evaluates these members of a logical environment again, after its new requirements were recorded. If this
/// is interrupted, the job [`Reevaluate`](crate::policies::Reevaluate) or the next report does it. Until
/// then, their compliance with the policies of the logical environment is unknown. Continues after an error,
/// and returns the first.
pub(crate) async fn reevaluate_members(members: BTreeSet<Id>, cx: &Context<'_>) -> Result<()> {
    let mut outcome = Ok(());
    for part in Vec::from_iter(members).chunks(PAGE) {
        let known = cx.store().environments_by_id(cx.org()?, part).await?;
        outcome = outcome.and(reevaluate_all(known, Changed::Policies, cx).await);
    }
    outcome
}

/// Returns those of these environments that have no policies, but whose latest snapshots have verdicts for a
/// logical environment. The logical environment may no longer require anything of them.
async fn with_obsolete_verdicts(known: &[KnownEnvironment], cx: &Context<'_>) -> Result<BTreeSet<Id>> {
    let latest = known.iter().filter(|known| known.record.policies.is_empty() && known.status.snapshots > 0);
    let latest = latest.map(|known| (known.record.id, known.status.snapshots..=known.status.snapshots));
    let latest = Vec::from_iter(latest);
    if latest.is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows = cx.store().snapshots(cx.org()?, &latest).await?;
    Ok(rows.into_iter().filter(|row| !row.logical.is_empty()).map(|row| row.environment).collect())
}

/// Evaluates these environments of an organization again, or all of them, for a job. Continues after an
/// error, and returns the first.
pub(crate) async fn reevaluate_in(
    evidence: &Evidence,
    org: OrgName,
    environments: Option<Vec<Id>>,
    changed: Changed,
) -> Result<()> {
    let again = ReevaluateEnvironments { org, environments, changed };
    evidence.call(&Principal::nobody(), again, ()).await.map(drop)
}

/// Evaluates environments of an organization again. Not reachable through a route.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReevaluateEnvironments {
    org: OrgName,
    #[serde(skip)]
    #[schemars(skip)]
    environments: Option<Vec<Id>>,
    #[serde(skip)]
    #[schemars(skip)]
    changed: Changed,
}

impl Operation for ReevaluateEnvironments {
    const NAME: &'static str = "reevaluate_environments";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/environments/{org}/reevaluate";
    const SCOPE: Scope = Scope::Open;
    const SUMMARY: &'static str = "Evaluates the environments of an organization again";
    type Body = ();
    type Output = Json<()>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let operator = OPERATOR.parse().map_err(|error| Error::Store(StoreError::corrupt(error)))?;
        let cx = &cx.as_operator(&operator)?;
        let ids = match self.environments {
            Some(ids) => ids,
            None => {
                let listed = cx.store().environments_listed(cx.org()?).await?;
                listed.into_iter().map(|listed| listed.id).collect()
            }
        };
        let mut outcome = Ok(());
        for part in ids.chunks(PAGE) {
            let mut known = cx.store().environments_by_id(cx.org()?, part).await?;
            if self.changed == Changed::Policies {
                let obsolete = with_obsolete_verdicts(&known, cx).await?;
                let needs_evaluation = |known: &KnownEnvironment| {
                    !known.record.policies.is_empty() || obsolete.contains(&known.record.id)
                };
                known.retain(needs_evaluation);
            }
            outcome = outcome.and(reevaluate_all(known, self.changed, cx).await);
        }
        outcome.map(Json)
    }
}
