//! Attestations of an organization's custom types.

use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::attestation_types::compiled::{Compiled, Evaluation};
use crate::attestation_types::operations::refuse_archived;
use crate::attestations::claim::{AttestationInput, Claim, Claimed, Verdict};
use crate::attestations::custom::RuleResult;
use crate::attestations::details::{CustomDetails, Details};
use crate::bounded::AttestationData;
use crate::context::Context;
use crate::error::{Error, Resource, Result};
use crate::fact::names::{Precondition, RecordKind};
use crate::id::VersionKey;
use crate::limits::Limits;
use crate::lock::locked;
use crate::name::AttestationTypeName;
use crate::operation::Form;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// The data must match the schema of the type's latest version. They are compliant if all rules of the
/// version are true; without rules, if they match the schema. A rule that ends in an error or exceeds a limit
/// is not true. An archived type accepts no attestations.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Custom {
    /// The name of the custom attestation type.
    pub type_name: AttestationTypeName,
    /// The data, or a string that holds their JSON text.
    pub attestation_data: AttestationData,
    #[serde(skip)]
    evaluated: Evaluated,
}

/// A version of a type, with the time of the record if the version uses it.
type EvaluatedBy = (VersionKey, Option<Timestamp>);

/// The results of the last evaluation. They are reused if the claim is drafted again with the same version.
#[derive(Debug, Clone, Default)]
struct Evaluated(Arc<Mutex<Option<(EvaluatedBy, Evaluation)>>>);

impl Evaluated {
    /// Returns the results for this version, and evaluates them only if they are not known.
    async fn or(
        &self,
        key: EvaluatedBy,
        evaluate: impl AsyncFnOnce() -> Result<Evaluation>,
    ) -> Result<Evaluation> {
        let known = locked(&self.0).clone();
        match known {
            Some((known, results)) if known == key => Ok(results),
            _ => {
                let results = evaluate().await?;
                *locked(&self.0) = Some((key, results.clone()));
                Ok(results)
            }
        }
    }
}

impl Claim for Custom {
    const OPERATION: &'static str = "post_custom_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/custom";
    const SUMMARY: &'static str = "Adds an attestation of a custom type to a trail";
    const SCHEMA: &'static str = "CustomAttestationPostInput";
    type Body = Form<AttestationInput<Self>>;

    fn document_limit(limits: &Limits) -> u64 {
        limits.attestation
    }

    async fn evaluate(&self, _: &Claimed<'_>, cx: &Context<'_>) -> Result<Verdict> {
        let (name, attestation_data) = (&self.type_name, &self.attestation_data.0);
        let known = cx.store().attestation_type(cx.org()?, name.as_str()).await?;
        let missing = || cx.missing(Resource::AttestationType, name.as_str()).named_by("type_name");
        let known = known.ok_or_else(missing)?;
        refuse_archived(&known.record, "type_name", "An archived type takes no attestations", cx)?;
        let (type_id, type_version) = (known.record.id, known.record.version);
        let key = (type_id, type_version);
        let (compiled, now) = (cx.compiled_type(key).await?, cx.now());
        let by = (key, compiled.asks_for_time().then_some(now));
        let evaluate = async || {
            let data = attestation_data.clone();
            let may_take_long = compiled.may_take_long(&data);
            let limits = *cx.limits();
            let evaluate = move || limits.apply(|| compiled.evaluate(&data, now));
            let compute = cx.compute();
            if may_take_long { compute.run_long(evaluate).await? } else { compute.run(evaluate).await? }
        };
        let Evaluation { rule_results, summary } = self.evaluated.or(by, evaluate).await?;
        let is_compliant = rule_results.iter().all(RuleResult::has_passed);
        let details = Details::Custom(CustomDetails {
            type_name: name.to_string(),
            type_id,
            type_version,
            attestation_data: attestation_data.clone(),
            rule_results,
            summary,
        });
        let precondition = Precondition::Revision(RecordKind::AttestationType, type_id, known.revision);
        Ok(Verdict {
            preconditions: vec![precondition],
            ..Verdict::of(format!("custom:{name}"), is_compliant, details)
        })
    }
}

impl Context<'_> {
    /// Returns this version of a type, from the cache or read and compiled.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this version of the program cannot evaluate it.
    async fn compiled_type(&self, key: VersionKey) -> Result<Arc<Compiled>> {
        let (id, number) = key;
        let load = async {
            let found = self.store().attestation_type_versions_by_number(self.org()?, &[key]).await?.pop();
            let lost =
                || StoreError::corrupt(format_args!("version {number} of attestation type {id} is lost"));
            let version = found.ok_or_else(lost)?;
            let compiled = self.compute().run_long(move || Compiled::recorded(&version)).await?;
            let refused = |why: String| {
                Error::invalid("type_name", format!("Version {number} cannot be evaluated by: {why}"))
            };
            compiled.map_err(refused)
        };
        self.caches().types.get_or_load(key, load).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::id;

    #[tokio::test]
    async fn data_are_evaluated_once_by_a_version() {
        let evaluated = Evaluated::default();
        let mut evaluations = 0;
        for (version, expected) in [(1, 1), (1, 1), (2, 2), (2, 2)] {
            let results = evaluated.or(((id(1), version), None), async || {
                evaluations += 1;
                Ok(Evaluation::default())
            });
            assert_eq!(results.await.unwrap(), Evaluation::default());
            assert_eq!(evaluations, expected);
        }
        let third = ((id(1), 3), None);
        evaluated.or(third, async || Err(Error::Forbidden)).await.unwrap_err();
        let again = evaluated.or(third, async || Ok(Evaluation::default()));
        assert_eq!(again.await.unwrap(), Evaluation::default());
        let mut later = 0;
        for now in [1, 1, 2] {
            let now = Some(Timestamp::from_seconds(now));
            let results = evaluated.or(((id(1), 3), now), async || {
                later += 1;
                Ok(Evaluation::default())
            });
            results.await.unwrap();
        }
        assert_eq!(later, 2, "a rule that asks for the time is evaluated at the time of its record");
    }
}
