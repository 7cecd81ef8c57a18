//! Verifies verdicts by evaluating a snapshot again from its ledger. The entries before the snapshot are
//! imported into an empty store, and the artifacts are evaluated against that by the same rules.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::evaluation;
use crate::auth::access::Principal;
use crate::auth::actor::Scope;
use crate::error::Result;
use crate::id::Id;
use crate::limits::Limits;
use crate::name::OrgName;
use crate::operation::{Json, Method, Operation};
use crate::service::{Context, Evidence, EvidenceService, Settings};
use crate::snapshots::record::{RunningArtifact, Snapshot};
use crate::store::Store;
use crate::store::error::StoreError;
use crate::transfer::{Import, Transfer};

/// The number of ledger entries that are read at once.
const PAGE: u64 = 1_000;

/// Evaluates a snapshot of an environment again, from the ledger as of its evaluation. Returns the
/// differences: none if the verdict follows from the ledger. `past` is an empty store for the entries before the
/// snapshot.
///
/// Limitation: changes of flows and trails themselves (tags, names, templates) between the start of an
/// evaluation and its reads are not reproduced. The digests of the inputs then differ.
///
/// # Errors
/// [`StoreError::Corrupt`] if the snapshot or a part of the ledger is missing, or the snapshot does not
/// record the ledger size that it depends on.
pub async fn replay(
    store: &dyn Store,
    (org, environment, index): (Id, Id, u64),
    past: Arc<dyn Transfer>,
) -> Result<Vec<String>> {
    let missing = || StoreError::corrupt(format_args!("snapshot {index} of environment {environment}"));
    let snapshot = store.snapshot(org, environment, index).await?.ok_or_else(missing)?.record;
    let rests_on = snapshot.rests_on.ok_or_else(missing)?;
    let placed = store.instances(org, environment, index).await?;
    let running = placed.into_iter().filter(|placed| !placed.exited).map(|placed| placed.instance).collect();
    if !past.organizations(None, 1).await?.is_empty() {
        return Err(StoreError::Failed("the store for the past is not empty".into()).into());
    }
    let mut next = 0;
    while next < rests_on {
        let mut entries = store.ledger_entries(org, next, PAGE.min(rests_on - next)).await?;
        entries.retain(|entry| entry.index < rests_on);
        next = entries.last().ok_or_else(missing)?.index + 1;
        past.import(Import::new(org, entries)?).await?;
    }
    let organization = past.organizations(None, 1).await?.pop().ok_or_else(missing)?;
    // The recorded evaluation was within the limits of its host.
    let limits = Limits {
        evaluations: usize::MAX,
        evaluated_attestations: usize::MAX,
        resolutions: usize::MAX,
        snapshot: u64::MAX,
        ..Limits::default()
    };
    let service = Evidence::new(past, Settings { limits, ..Settings::default() });
    let again = EvaluateAgain { org: organization.name, recorded: Some(Recorded { snapshot, running }) };
    let Json(differences) = service.call(&Principal::nobody(), again, ()).await?;
    Ok(differences)
}

/// Evaluates a snapshot again. Not reachable through a route.
#[derive(Debug, Deserialize, JsonSchema)]
struct EvaluateAgain {
    org: OrgName,
    #[serde(skip)]
    #[schemars(skip)]
    recorded: Option<Recorded>,
}

/// The recorded snapshot and its artifacts.
#[derive(Debug)]
struct Recorded {
    snapshot: Snapshot,
    running: Vec<RunningArtifact>,
}

impl Operation for EvaluateAgain {
    const NAME: &'static str = "evaluate_again";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/environments/{org}/evaluate-again";
    const SCOPE: Scope = Scope::Open;
    const SUMMARY: &'static str = "Evaluates a snapshot again";
    type Body = ();
    type Output = Json<Vec<String>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        match self.recorded {
            Some(Recorded { snapshot, running }) => {
                evaluation::differences_again(&snapshot, running, cx).await.map(Json)
            }
            None => Ok(Json(Vec::new())),
        }
    }
}
