//! Limits on the evaluation of policies. They are checked before the evaluation, because a few requests can
//! cause a lot of work for one artifact that was reported to many flows.

use std::sync::Arc;

use crate::compute::EVALUATIONS_PER_JOB;
use crate::context::Context;
use crate::error::Result;
use crate::id::VersionKey;
use crate::limits::Limits;
use crate::rules::policy::{Policy, RequiredAttestations};

/// The number of places in which artifacts are evaluated. A place is a flow that an artifact was reported to;
/// an artifact without flows has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Places {
    all: usize,
    /// The additional evaluations of conditions, which are evaluated in each place for each name.
    again: usize,
    /// The most evaluations of a condition for one artifact.
    most: usize,
}

impl FromIterator<(usize, usize)> for Places {
    /// Collects artifacts, each given by its numbers of flows and of names.
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

/// The work of policies for one artifact in one place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// The number of rules and of parts of their conditions.
    parts: usize,
    /// The number of parts of conditions.
    conditions: usize,
    /// The number of rules. The result of each is shown.
    rules: usize,
    /// The number of bytes to record, for results that do not follow from the rest of the record.
    letters: usize,
}

impl Work {
    /// Adds the work of these policies.
    pub(crate) fn add<'p>(&mut self, policies: impl IntoIterator<Item = &'p Arc<Policy>>) {
        for policy in policies {
            self.parts = self.parts.saturating_add(policy.parts());
            self.conditions = self.conditions.saturating_add(policy.parts() - policy.rules());
            self.rules = self.rules.saturating_add(policy.rules());
            // One more byte separates two places.
            let letters = if policy.follows_from_states() { 0 } else { policy.rules() + 1 };
            self.letters = self.letters.saturating_add(letters);
        }
    }

    /// Returns the reason if the rule results in this many places exceed the limit for one artifact.
    pub(crate) fn exceeds_per_artifact(self, places: usize, limits: &Limits) -> Option<String> {
        let most = limits.resolutions;
        let exceeds = self.rules.saturating_mul(places) > most;
        exceeds.then(|| format!("The policies produce more than {most} rule results for one artifact"))
    }

    /// Returns the reason if these places exceed the limit of an evaluation or of its record.
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

/// Returns the reason if the result is too large to be recorded.
pub(crate) fn too_large(most: u64) -> String {
    format!("The artifacts and their origins need more than {most} bytes")
}

/// Splits these policies into jobs, in order. A job has at least one policy, and about as many as it can
/// evaluate for one artifact.
pub(crate) fn for_jobs(policies: &[Arc<Policy>], places: Places) -> impl Iterator<Item = Arc<[Arc<Policy>]>> {
    let evaluations = evaluations(policies).saturating_mul(places.most);
    let at_once = if evaluations > EVALUATIONS_PER_JOB { 1 } else { policies.len() };
    policies.chunks(at_once.max(1)).map(Arc::from)
}

/// Returns how many evaluations these policies take in one place. A policy of two rules and no expression
/// counts as one.
pub(crate) fn evaluations(policies: &[Arc<Policy>]) -> usize {
    policies.iter().map(|policy| policy.parts() / 2).sum()
}

/// Returns the attestations that these versions of policies require.
pub(crate) async fn required_by(
    versions: &[VersionKey],
    cx: &Context<'_>,
) -> Result<Arc<RequiredAttestations>> {
    let mut required = RequiredAttestations::default();
    for part in cx.policies_in_parts(versions).await? {
        cx.parsed_policies(&part).await?.values().for_each(|policy| required.add(policy));
    }
    Ok(Arc::new(required))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(artifacts: &str) -> Arc<Policy> {
        let text = format!("_schema: https://example.com/v1\nartifacts:\n{artifacts}");
        Arc::new(Policy::parse(&text).unwrap())
    }

    /// Policies, the number of flows of each artifact, and the expected reason.
    type Case<'a> = (&'a [&'a Arc<Policy>], &'a [usize], Option<&'a str>);

    #[test]
    fn work_that_is_too_much_is_found_before_it_is_done() {
        let plain = policy("  provenance:\n    required: true\n");
        // Three rules, and an expression of three parts.
        let asking = policy("  attestations:\n    - type: junit\n      if: ${{ flow.name == 'a' }}\n");
        let limits = Limits { evaluations: 60, resolutions: 30, snapshot: 40, ..Limits::default() };
        let resolutions = "The policies produce more than 30 rule results for one artifact";
        let evaluations = "The policies evaluate more than 60 rules and parts of conditions";
        let letters = "The artifacts and their origins need more than 40 bytes";
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
            let of_one = work.exceeds_per_artifact(most, limits);
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
        // Conditions are evaluated for each name, and rules once.
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
