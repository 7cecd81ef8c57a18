//! Environments evaluated anew because an entry of their allowlist ended: by the withdrawal itself, and by a job where an entry
//! expired or the withdrawal broke off before the evaluation.

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
use crate::error::{Error, Result};
use crate::fact::names::Key;
use crate::id::Id;
use crate::lock::locked;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Json, Method, Operation};
use crate::service::{Context, EvidenceService};
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// How long the job rests between two runs: an expired entry counts in no snapshot for longer.
const REST: Duration = Duration::from_secs(10);

/// At least so many ended entries are read at a time.
const PAGE: u64 = 1_000;

/// So many environments are read at a time.
const ENVIRONMENTS: usize = 64;

/// Each run looks this far behind the end of the last one, in microseconds: a server whose clock is behind may have recorded
/// an entry that had ended already by the clock of this one.
const OVERLAP: i64 = 15 * 60 * 1_000_000;

/// As whom the job records snapshots: `operator:evidence`.
const OPERATOR: &str = "evidence";

/// Evaluates what runs in an environment again, in a write of its own. It records nothing where that changes nothing.
pub(super) async fn evaluate_again(name: &EnvironmentName, cx: &Context<'_>) -> Result<()> {
    let evaluated = cx.retry_in_turn(Key::Environment(name.clone()), || async {
        let known = cx.store().environment(cx.org()?, name.as_str()).await?;
        let Some(known) = known.filter(|known| !known.archived) else { return Ok(()) };
        let mut draft = evaluation::evaluate_again(&known, cx).await?;
        draft.guards.push(known.unchanged());
        cx.record(draft).await.map(drop)
    });
    match evaluated.await {
        Err(error @ Error::Invalid { .. }) => {
            tracing::warn!(environment = %name, %error, "an environment is not evaluated anew");
            Ok(())
        }
        evaluated => evaluated,
    }
}

/// The job that evaluates environments anew when an entry of their allowlist has ended.
#[derive(Debug, Default)]
pub struct ReevaluateEnded {
    progress: Mutex<Progress>,
}

/// How far this process has come. Another one begins anew: to evaluate an environment again changes nothing where nothing is
/// to change.
#[derive(Debug, Default, Clone)]
struct Progress {
    /// All that had ended by then was handled.
    until: Option<Timestamp>,
    /// The newest end that was handled of each environment, of those that a later run reads again.
    handled: BTreeMap<(OrgName, Id), Timestamp>,
}

/// The instant before all others.
const BEGINNING: Timestamp = Timestamp::from_micros(i64::MIN);

impl Progress {
    /// From when on ends are read.
    fn from(&self) -> Timestamp {
        self.until
            .map_or(BEGINNING, |until| Timestamp::from_micros(until.as_micros().saturating_sub(OVERLAP)))
    }

    fn is_handled(&self, org: &OrgName, environment: Id, at: Timestamp) -> bool {
        self.handled.get(&(org.clone(), environment)).is_some_and(|handled| *handled >= at)
    }

    /// All that ended by this time was handled.
    fn done_until(&mut self, until: Timestamp) {
        self.until = Some(self.until.map_or(until, |before| before.max(until)));
        let from = self.from();
        self.handled.retain(|_, at| *at > from);
    }
}

#[async_trait]
impl Job for ReevaluateEnded {
    fn name(&self) -> &str {
        "reevaluate-allowlists"
    }

    fn every(&self) -> Duration {
        REST
    }

    async fn run(&self, turn: &Turn) -> Result<()> {
        let (service, mut outcome) = (turn.evidence(), Ok(()));
        let (until, mut progress) = (service.now(), locked(&self.progress).clone());
        let mut after = progress.from();
        while after < until {
            let page = service.store().ended_allowances(after, until, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.at;
            let mut ended: BTreeMap<OrgName, BTreeMap<Id, Timestamp>> = BTreeMap::new();
            for one in page {
                if !progress.is_handled(&one.org, one.environment, one.at) {
                    // By time, so that the last is the newest.
                    ended.entry(one.org).or_default().insert(one.environment, one.at);
                }
            }
            for (org, environments) in ended {
                let ids = environments.keys().copied().collect();
                let again = EvaluateAgain { org: org.clone(), environments: ids };
                match service.call(&Principal::nobody(), again, ()).await {
                    Ok(_) => {
                        let handled = environments.into_iter().map(|(id, at)| ((org.clone(), id), at));
                        progress.handled.extend(handled);
                    }
                    // Another organization is evaluated all the same, and this one again in the next run.
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
            locked(&self.progress).handled.clone_from(&progress.handled);
        }
        if outcome.is_ok() {
            progress.done_until(until);
            *locked(&self.progress) = progress;
        }
        outcome
    }
}

/// Evaluates environments of an organization again. No route leads to it.
#[derive(Debug, Deserialize, JsonSchema)]
struct EvaluateAgain {
    org: OrgName,
    #[serde(skip)]
    #[schemars(skip)]
    environments: Vec<Id>,
}

impl Operation for EvaluateAgain {
    const NAME: &'static str = "reevaluate_allowlists";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/allowlists/{org}/reevaluate";
    const SCOPE: Scope = Scope::Open;
    const SUMMARY: &'static str = "Evaluates environments of an organization anew";
    type Body = ();
    type Output = Json<()>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let operator = OPERATOR.parse().map_err(|error| Error::Store(StoreError::corrupt(error)))?;
        let cx = &cx.as_operator(&operator)?;
        let mut outcome = Ok(());
        for part in self.environments.chunks(ENVIRONMENTS) {
            for known in cx.store().environments_by_id(cx.org()?, part).await? {
                if !known.archived {
                    outcome = outcome.and(evaluate_again(&known.record.name, cx).await);
                }
            }
        }
        outcome.map(Json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_handled_is_known_as_long_as_it_is_read_again() {
        let at = |minutes: i64| Timestamp::from_seconds(minutes * 60);
        let org: OrgName = "acme".parse().unwrap();
        let environments = ["00000000-0000-0000-0000-00000001", "00000000-0000-0000-0000-00000002"];
        let [one, two]: [Id; 2] = environments.map(|id| id.parse().unwrap());
        let mut progress = Progress::default();
        assert_eq!(progress.from(), BEGINNING);
        progress.handled.extend([((org.clone(), one), at(30)), ((org.clone(), two), at(50))]);
        progress.done_until(at(60));
        assert_eq!(progress.from(), at(45));
        let table = [(one, 30, false), (two, 49, true), (two, 50, true), (two, 51, false)];
        for (environment, minutes, handled) in table {
            assert_eq!(
                progress.is_handled(&org, environment, at(minutes)),
                handled,
                "{environment} {minutes}"
            );
        }
        // The clock was set back.
        progress.done_until(at(10));
        assert_eq!(progress.from(), at(45));
    }
}
