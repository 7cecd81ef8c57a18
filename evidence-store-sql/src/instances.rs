//! The stored form of running artifacts. A row of `instance` has columns for the artifact and its start, and
//! `state` with the rest, a JSON array. Each change is a row, so field names would take a third of the space.

use evidence_core::id::Id;
use evidence_core::json::JsonFields;
use evidence_core::ledger::Hash;
use evidence_core::rules::compliance::State;
use evidence_core::snapshots::{
    Annotation, ArtifactKey, DeploymentSource, PolicyOutcome, Provenance, RunningArtifact,
};
use evidence_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The JSON of a row that [`StoredInstance`] deserializes.
macro_rules! instance_json {
    ($row:literal) => {
        concat!(
            "'[\"' || ",
            $row,
            ".artifact || '\",' || ",
            $row,
            ".from_idx || ',' || ",
            $row,
            ".since_idx || ',' || ",
            $row,
            ".state || ']'"
        )
    };
}
pub(crate) use instance_json;

/// The artifact, `from_idx`, `since_idx` and `state`.
#[derive(Deserialize)]
pub(crate) struct StoredInstance(ArtifactKey, u64, u64, StoredState);

/// The column `state`. Statements access it by position: the name is its first element, the provenance its
/// sixth. The other names are last, and omitted if empty.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredState(
    String,
    Vec<i64>,
    JsonFields,
    StoredAnnotation,
    Option<bool>,
    Vec<StoredProvenance>,
    Option<StoredSource>,
    Option<StoredVerdict>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")] Vec<String>,
);

/// The kind, the number of instances before, and the number after.
type StoredAnnotation = (String, u64, u64);

/// The report, its state and the reason, the flow, and the artifact's name in the flow.
type StoredProvenance = (Id, State, Option<String>, Option<Id>, String);

/// The report with its flow (`None` if they are the first of the provenance), the repo, and the commit time.
type StoredSource = (Option<(Id, Id)>, Option<Id>, Option<Timestamp>);

/// The result of the policies: their digest, the violated ones, the outcomes of their rules, the digest of
/// the inputs, the reason for a skipped evaluation, and the ledger index of the allowlist entry.
type StoredVerdict = (Option<Hash>, Vec<u16>, Vec<PolicyOutcome>, Option<Hash>, Option<String>, Option<u64>);

impl From<RunningArtifact> for StoredState {
    fn from(instance: RunningArtifact) -> Self {
        let RunningArtifact {
            fingerprint: _,
            name,
            other_names,
            created,
            context,
            from: _,
            since: _,
            annotation: Annotation { kind, was, now },
            compliant,
            provenance,
            source,
            judged_by,
            violates,
            outcomes,
            inputs,
            not_evaluated,
            allowed_by,
        } = instance;
        let first = provenance.first().and_then(|first| Some((first.artifact, first.flow?)));
        let source = source.map(|DeploymentSource { report, flow, repo, committed_at }| {
            (Some((report, flow)).filter(|named| Some(*named) != first), repo, committed_at)
        });
        let provenance = provenance
            .into_iter()
            .map(|Provenance { artifact, state, reason, flow, reference }| {
                (artifact, state, reason, flow, reference)
            })
            .collect();
        let is_judged =
            judged_by.is_some() || inputs.is_some() || !violates.is_empty() || !outcomes.is_empty();
        let is_judged = is_judged || not_evaluated.is_some() || allowed_by.is_some();
        let verdict = is_judged.then_some((judged_by, violates, outcomes, inputs, not_evaluated, allowed_by));
        Self(name, created, context, (kind, was, now), compliant, provenance, source, verdict, other_names)
    }
}

impl From<StoredInstance> for RunningArtifact {
    fn from(StoredInstance(artifact, from, since, state): StoredInstance) -> Self {
        let StoredState(
            name,
            created,
            context,
            annotation,
            compliant,
            provenance,
            source,
            verdict,
            other_names,
        ) = state;
        let (kind, was, now) = annotation;
        let provenance =
            Vec::from_iter(provenance.into_iter().map(|(artifact, state, reason, flow, reference)| {
                Provenance { artifact, state, reason, flow, reference }
            }));
        let first = provenance.first().and_then(|first| Some((first.artifact, first.flow?)));
        let source = source.and_then(|(named, repo, committed_at)| {
            let (report, flow) = named.or(first)?;
            Some(DeploymentSource { report, flow, repo, committed_at })
        });
        let (judged_by, violates, outcomes, inputs, not_evaluated, allowed_by) = verdict.unwrap_or_default();
        Self {
            fingerprint: artifact.fingerprint(),
            name,
            other_names,
            created,
            context,
            from,
            since,
            annotation: Annotation { kind, was, now },
            compliant,
            provenance,
            source,
            judged_by,
            violates,
            outcomes,
            inputs,
            not_evaluated,
            allowed_by,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes the JSON in the form that a statement builds.
    fn read_back(instance: &RunningArtifact) -> RunningArtifact {
        let state = serde_json::to_string(&StoredState::from(instance.clone())).unwrap();
        let row = format!("[\"{}\",{},{},{state}]", instance.key(), instance.from, instance.since);
        serde_json::from_str::<StoredInstance>(&row).unwrap().into()
    }

    #[test]
    fn what_is_stored_reads_back() {
        let id = |last: u8| -> Id { format!("00000000-0000-0000-0000-000000{last:02x}").parse().unwrap() };
        let provenance = |last: u8, flow: Option<u8>| Provenance {
            artifact: id(last),
            state: State::Compliant,
            reason: (last == 2).then(|| "\"lost\"".to_owned()),
            flow: flow.map(id),
            reference: "api".to_owned(),
        };
        let source = |report: u8, flow: u8, repo: Option<u8>| {
            Some(DeploymentSource {
                report: id(report),
                flow: id(flow),
                repo: repo.map(id),
                committed_at: None,
            })
        };
        let hash = Hash::of("policies");
        let plain = RunningArtifact {
            fingerprint: "a".repeat(64).parse().ok(),
            name: "registry.example.com/api:1".to_owned(),
            other_names: vec![],
            created: vec![1, 2],
            context: serde_json::from_str(r#"{"a":[1e400,-0,1.0],"":{}}"#).unwrap(),
            from: 7,
            since: 3,
            annotation: Annotation { kind: "started-unknown".to_owned(), was: 0, now: 2 },
            compliant: None,
            provenance: vec![provenance(1, Some(8)), provenance(2, None)],
            source: source(1, 8, None),
            judged_by: None,
            violates: vec![],
            outcomes: vec![],
            inputs: None,
            not_evaluated: None,
            allowed_by: None,
        };
        let other = |change: fn(&mut RunningArtifact)| {
            let mut other = plain.clone();
            change(&mut other);
            other
        };
        let mut judged = RunningArtifact { judged_by: Some(hash), inputs: Some(hash), ..plain.clone() };
        judged.violates = vec![0, 9];
        let cases = [
            plain.clone(),
            other(|instance| instance.fingerprint = None),
            other(|instance| instance.other_names = vec!["api".to_owned(), "web".to_owned()]),
            other(|instance| instance.provenance = vec![]),
            other(|instance| instance.source = None),
            RunningArtifact { source: source(1, 9, Some(4)), ..plain.clone() },
            RunningArtifact { source: source(2, 8, None), ..plain.clone() },
            RunningArtifact { compliant: Some(false), violates: vec![3], ..plain.clone() },
            RunningArtifact { not_evaluated: Some("too much".to_owned()), ..plain.clone() },
            RunningArtifact { compliant: Some(true), allowed_by: Some(1 << 40), ..plain.clone() },
            judged,
        ];
        for instance in cases {
            assert_eq!(read_back(&instance), instance);
        }
    }

    #[test]
    fn the_stored_form_has_no_names_of_fields_and_stays() {
        let id = "00000000-0000-0000-0000-00000000";
        let stored = format!(
            r#"["registry.example.com/api:1",[1700000000],{{}},["started-unknown",0,1],null,[["{id}","COMPLIANT",null,"{id}","api"]],[null,null,null],null]"#
        );
        let hash = "ab".repeat(32);
        let judged = format!(
            r#"["api",[],{{"pods":[1.50]}},["unchanged",1,1],false,[["{id}","INCOMPLETE","lost",null,""]],[["{id}","{id}"],"{id}",1700000000000000],["{hash}",[0,7],[{{"policy":3,"rules":"+-"}}],"{hash}",null,null]]"#
        );
        for stored in [stored, judged] {
            let state: StoredState = serde_json::from_str(&stored).unwrap();
            assert_eq!(serde_json::to_string(&state).unwrap(), stored);
        }
    }
}
