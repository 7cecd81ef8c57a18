//! How much policies evaluate, and what that comes to: looked at before they do, for a few requests can have a great deal
//! evaluated of one artifact that was reported to many flows.

use std::sync::Arc;

use crate::compute::EVALUATIONS_PER_JOB;
use crate::error::Result;
use crate::id::VersionKey;
use crate::limits::Limits;
use crate::rules::policy::{Asked, Policy};
use crate::service::Context;

/// Where artifacts are evaluated: each in the flows that it was reported to, and once where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Places {
    all: usize,
    /// Conditions are evaluated in each place by each name: so many times more than once.
    again: usize,
    /// Of the artifact for which conditions are evaluated most often: how often.
    most: usize,
}

impl FromIterator<(usize, usize)> for Places {
    /// Of artifacts that were reported to so many flows and have so many names.
    fn from_iter<I: IntoIterator<Item = (usize, usize)>>(artifacts: I) -> Self {
        artifacts.into_iter().fold(Self::default(), |places, (flows, names)| {
            let (flows, names) = (flows.max(1), names.max(1));
            Self {
                all: places.all.saturating_add(flows),
                again: places.again.saturating_add(flows.saturating_mul(names - 1)),
                most: places.most.max(flows.saturating_mul(names)),
            }
        })
    }
}

/// What policies evaluate of an artifact in one place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Rules, and parts of their conditions.
    parts: usize,
    /// Those of conditions.
    conditions: usize,
    /// Rules: what each comes to is shown.
    rules: usize,
    /// Bytes that are recorded, where what the rules come to does not follow from the rest.
    letters: usize,
}

impl Work {
    /// Counts these policies, too.
    pub(crate) fn add<'p>(&mut self, policies: impl IntoIterator<Item = &'p Arc<Policy>>) {
        for policy in policies {
            self.parts = self.parts.saturating_add(policy.parts());
            self.conditions = self.conditions.saturating_add(policy.parts() - policy.rules());
            self.rules = self.rules.saturating_add(policy.rules());
            // One more stands between two places.
            let letters = if policy.follows_from_states() { 0 } else { policy.rules() + 1 };
            self.letters = self.letters.saturating_add(letters);
        }
    }

    /// Why what the rules come to in so many places is more than is shown of one artifact, if it is.
    pub(crate) fn exceeds_of_one(self, places: usize, limits: &Limits) -> Option<String> {
        let most = limits.resolutions;
        let exceeds = self.rules.saturating_mul(places) > most;
        exceeds.then(|| format!("The rules of the policies come to more than {most} for one artifact"))
    }

    /// Why these places are more than is evaluated or recorded at once, if they are.
    pub(crate) fn exceeds(self, places: Places, limits: &Limits) -> Option<String> {
        let Limits { evaluations, snapshot, .. } = *limits;
        let again = self.conditions.saturating_mul(places.again);
        if self.parts.saturating_mul(places.all).saturating_add(again) > evaluations {
            return Some(format!(
                "The policies evaluate more than {evaluations} rules and parts of conditions"
            ));
        }
        let bytes = self.letters.saturating_mul(places.all) as u64;
        (bytes > snapshot).then(|| too_large(snapshot))
    }
}

/// Why what runs is not evaluated: it could not be recorded.
pub(crate) fn too_large(most: u64) -> String {
    format!("What runs comes to more than {most} bytes, with where it comes from")
}

/// These policies, in order, some for each job: so many as it evaluates of one artifact in these places, and one at least.
pub(crate) fn for_jobs(policies: &[Arc<Policy>], places: Places) -> impl Iterator<Item = Arc<[Arc<Policy>]>> {
    let evaluations = evaluations(policies).saturating_mul(places.most);
    let at_once = if evaluations > EVALUATIONS_PER_JOB { 1 } else { policies.len() };
    policies.chunks(at_once.max(1)).map(Arc::from)
}

/// How many evaluations these policies take in one place: a policy of two rules and no expression counts as one.
pub(crate) fn evaluations(policies: &[Arc<Policy>]) -> usize {
    policies.iter().map(|policy| policy.parts() / 2).sum()
}

/// What these versions of policies ask of attestations.
pub(crate) async fn asked_by(versions: &[VersionKey], cx: &Context<'_>) -> Result<Arc<Asked>> {
    let mut asked = Asked::default();
    for part in cx.policies_in_parts(versions).await? {
        cx.parsed_policies(&part).await?.values().for_each(|policy| asked.add(policy));
    }
    Ok(Arc::new(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(artifacts: &str) -> Arc<Policy> {
        let text = format!("_schema: https://example.com/v1\nartifacts:\n{artifacts}");
        Arc::new(Policy::parse(&text).unwrap())
    }

    /// Policies, to how many flows each artifact was reported, and the refusal.
    type Case<'a> = (&'a [&'a Arc<Policy>], &'a [usize], Option<&'a str>);

    #[test]
    fn work_that_is_too_much_is_found_before_it_is_done() {
        let plain = policy("  provenance:\n    required: true\n");
        // Three rules, and an expression of three parts.
        let asking = policy("  attestations:\n    - type: junit\n      if: ${{ flow.name == 'a' }}\n");
        let limits = Limits { evaluations: 60, resolutions: 30, snapshot: 40, ..Limits::default() };
        let resolutions = "The rules of the policies come to more than 30 for one artifact";
        let evaluations = "The policies evaluate more than 60 rules and parts of conditions";
        let letters = "What runs comes to more than 40 bytes, with where it comes from";
        let table: [Case<'_>; 8] = [
            (&[], &[1_000_000], None),
            (&[&plain], &[15], None),
            (&[&plain], &[16], Some(resolutions)),
            (&[&plain], &[15, 15, 0], Some(evaluations)),
            (&[&asking], &[10], None),
            (&[&asking], &[5, 4, 0, 0], Some(evaluations)),
            (&[&plain, &asking], &[6], None),
            (&[&plain, &asking], &[7], Some(resolutions)),
        ];
        let refusal = |policies: &[&Arc<Policy>], flows: &[usize], limits: &Limits| {
            let mut work = Work::default();
            work.add(policies.iter().copied());
            let most = flows.iter().copied().max().unwrap_or_default();
            let of_one = work.exceeds_of_one(most, limits);
            of_one.or_else(|| work.exceeds(flows.iter().map(|flows| (*flows, 1)).collect(), limits))
        };
        for (policies, flows, expected) in table {
            let refused = refusal(policies, flows, &limits);
            assert_eq!(refused.as_deref(), expected, "{} policies in {flows:?}", policies.len());
        }
        let roomy = Limits { evaluations: 1_000, ..limits };
        assert_eq!(refusal(&[&asking], &[5, 5], &roomy), None);
        assert_eq!(refusal(&[&asking], &[5, 6], &roomy).as_deref(), Some(letters));
        assert_eq!(refusal(&[&plain], &[15, 15, 15], &roomy), None, "nothing is recorded of it");
        // Conditions are evaluated by each name, and rules once.
        for (policy, names, expected) in
            [(&plain, 100, None), (&asking, 19, None), (&asking, 20, Some(evaluations))]
        {
            let mut work = Work::default();
            work.add([policy]);
            let exceeds = work.exceeds([(1, names)].into_iter().collect(), &limits);
            assert_eq!(exceeds.as_deref(), expected, "{names} names");
        }
    }

    #[test]
    fn a_job_evaluates_one_artifact_by_few_policies() {
        let policies =
            [policy("  provenance:\n    required: true\n"), policy("  provenance:\n    required: true\n")];
        let jobs = |flows: usize| {
            Vec::from_iter(for_jobs(&policies, [(flows, 1)].into_iter().collect()).map(|some| some.len()))
        };
        assert_eq!(jobs(5_000), [2]);
        assert_eq!(jobs(5_001), [1, 1]);
        assert_eq!(for_jobs(&[], Places::default()).count(), 0);
    }
}
