//! Environments evaluated anew when a policy that is attached to them says something else: by whoever puts the policy, an
//! environment after the other, and by a job, for those at which that broke off.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::access::Principal;
use crate::auth::actor::Scope;
use crate::background::runner::{Job, Turn};
use crate::environments::evaluation;
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Result};
use crate::fact::names::Key;
use crate::id::Id;
use crate::lock::locked;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Json, Method, Operation};
use crate::service::{Context, EvidenceService};
use crate::store::batch::distinct;
use crate::store::error::StoreError;

/// How long the job rests between two runs.
const REST: Duration = Duration::from_secs(10 * 60);

/// How many organizations are listed, and how many environments are read, at a time.
const PAGE: u64 = 64;

/// As whom the job records snapshots: `operator:evidence`.
const OPERATOR: &str = "evidence";

/// Evaluates what runs in an environment by the latest versions of its policies, in a write of its own; where it was evaluated by
/// them already, it records nothing.
pub(crate) async fn reevaluate(name: &EnvironmentName, cx: &Context<'_>) -> Result<()> {
    let evaluated = cx.retry_in_turn(Key::Environment(name.clone()), || async {
        let known = cx.store().environment(cx.org()?, name.as_str()).await?;
        let Some(known) = known else { return Ok(()) };
        let mut draft = evaluation::reevaluate(&known, Vec::new(), cx).await?;
        draft.guards.push(known.unchanged());
        cx.record(draft).await.map(drop)
    });
    evaluated.await
}

/// Evaluates what runs in the physical ones of these environments and in the members of the logical ones, whose policies count
/// in the snapshots of these: one after the other. Answers the first error, after all.
pub(crate) async fn reevaluate_all(environments: Vec<KnownEnvironment>, cx: &Context<'_>) -> Result<()> {
    let (physical, logical): (Vec<_>, Vec<_>) =
        environments.into_iter().partition(|known| known.record.kind.is_physical());
    let mut names = Vec::from_iter(physical.into_iter().map(|known| known.record.name));
    let members = distinct(logical.into_iter().flat_map(|known| known.record.included));
    for part in members.chunks(PAGE as usize) {
        let known = cx.store().environments_by_id(cx.org()?, part).await?;
        names.extend(known.into_iter().filter(|known| !known.archived).map(|known| known.record.name));
    }
    let mut outcome = Ok(());
    for name in distinct(names) {
        outcome = outcome.and(reevaluate(&name, cx).await);
    }
    outcome
}

/// The job that evaluates anew what runs where a new version of a policy is not counted yet: whoever put it was killed, or
/// lost the right to, before all environments were evaluated by it.
#[derive(Debug, Default)]
pub struct Reevaluate {
    /// The sizes of the ledgers when all environments of their organizations were last evaluated by this job. Until a ledger
    /// grows, there is no new version.
    evaluated: Mutex<BTreeMap<Id, u64>>,
}

#[async_trait]
impl Job for Reevaluate {
    fn name(&self) -> &str {
        "reevaluate-environments"
    }

    fn every(&self) -> Duration {
        REST
    }

    async fn run(&self, turn: &Turn) -> Result<()> {
        let (service, mut outcome) = (turn.evidence(), Ok(()));
        let mut after = Some(String::new());
        while let Some(last) = after {
            let page = service.store().organizations_by_name(&last, PAGE).await?;
            after = page.more;
            let ids: Vec<Id> = page.records.iter().map(|org| org.id).collect();
            let sizes = BTreeMap::from_iter(service.store().ledger_sizes(&ids).await?);
            for org in page.records {
                let size = sizes.get(&org.id).copied();
                if size.is_some() && locked(&self.evaluated).get(&org.id).copied() == size {
                    continue;
                }
                let evaluated =
                    service.call(&Principal::nobody(), ReevaluateEnvironments { org: org.name }, ()).await;
                if let (Ok(_), Some(size)) = (&evaluated, size) {
                    locked(&self.evaluated).insert(org.id, size);
                }
                // What is damaged in one organization is not another's.
                outcome = outcome.and(evaluated.map(drop));
            }
        }
        outcome
    }
}

/// Evaluates the environments of an organization by the latest versions of their policies. No route leads to it.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReevaluateEnvironments {
    org: OrgName,
}

impl Operation for ReevaluateEnvironments {
    const NAME: &'static str = "reevaluate_environments";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/environments/{org}/reevaluate";
    const SCOPE: Scope = Scope::Open;
    const SUMMARY: &'static str = "Evaluates the environments of an organization anew";
    type Body = ();
    type Output = Json<()>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let operator = OPERATOR.parse().map_err(|error| Error::Store(StoreError::corrupt(error)))?;
        let cx = &cx.as_operator(&operator)?;
        let listed = cx.store().environments_listed(cx.org()?).await?;
        let ids: Vec<Id> = listed.into_iter().map(|listed| listed.id).collect();
        let mut outcome = Ok(());
        for part in ids.chunks(PAGE as usize) {
            let mut known = cx.store().environments_by_id(cx.org()?, part).await?;
            known.retain(|known| !known.record.policies.is_empty());
            outcome = outcome.and(reevaluate_all(known, cx).await);
        }
        outcome.map(Json)
    }
}
