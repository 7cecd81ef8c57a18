//! Attestations of the built-in system types: decisions about controls, bills of materials, and findings of
//! scanners.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::attestations::claim::{AttestationInput, Claim, Claimed, Verdict};
use crate::attestations::details::{DecisionDetails, Details, SarifDetails, SbomDetails};
use crate::attestations::record::Attachment;
use crate::attestations::sarif::{SarifData, SarifSummary};
use crate::attestations::sbom::SbomSummary;
use crate::bounded::{AttestationData, DataObject, ShortText};
use crate::compute::LONG_JSON;
use crate::context::Context;
use crate::decode::{self, InvalidField};
use crate::error::{Error, Result};
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::json::{self, CheckedJson};
use crate::limits::Limits;
use crate::name::{ControlIdentifier, Fingerprint};
use crate::operation::Form;

/// A decision about a control has the verdict in its data. The organization need not have the control; if it
/// has, the latest version is recorded. A bill of materials is compliant if its document is attached: a
/// non-empty file with the SHA-256 of `original_fingerprint`. A SARIF log is compliant if each run is
/// complete and has no unsuppressed error, warning or note.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct System {
    /// The type of the data.
    pub type_name: SystemType,
    /// The identifier of the control of a decision, unless `attestation_data` has it as `control`.
    pub control: Option<ControlIdentifier>,
    /// The data, or a string that holds their JSON text. `GET /attestations/system-attestation-types` returns
    /// the schema for each type.
    pub attestation_data: AttestationData,
}

/// A built-in system type of attestation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SystemType {
    /// A decision whether the requirements of a control are met.
    Decision,
    /// A software bill of materials.
    Sbom,
    /// The findings of a scanner, as a SARIF log.
    Sarif,
}

/// The data of a decision. Other keys are recorded too.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct DecisionData {
    /// Whether the requirements of the control are met.
    is_compliant: bool,
    /// The control's identifier, if the attestation has no `control` outside the data.
    control: Option<ControlIdentifier>,
}

/// The data of a bill of materials. Other keys are recorded too.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct SbomData {
    /// The format of the attached document.
    format: ShortText,
    /// The SHA-256 of the attached document.
    original_fingerprint: Fingerprint,
    /// A summary of the document.
    document: DataObject,
}

/// A claim with parsed data.
enum Read {
    Decision { control: ControlIdentifier, is_compliant: bool },
    Sbom { original: Fingerprint, summary: SbomSummary },
    Sarif(SarifSummary),
}

/// The name of the field with the data.
const DATA: &str = "attestation_data";

impl System {
    /// Parses the data according to their type.
    fn read_data(&self) -> Result<Read, InvalidField> {
        match self.type_name {
            SystemType::Decision => {
                let DecisionData { is_compliant, control } = self.data()?;
                match (&self.control, control) {
                    (Some(beside), Some(within)) if *beside != within => Err(InvalidField::of(
                        "control",
                        "Input should be the control that attestation_data names",
                    )),
                    (Some(control), _) => Ok(Read::Decision { control: control.clone(), is_compliant }),
                    (None, Some(control)) => Ok(Read::Decision { control, is_compliant }),
                    (None, None) => Err(InvalidField::missing("control")),
                }
            }
            SystemType::Sbom => {
                let SbomData { format, original_fingerprint: original, document } = self.data()?;
                // A document with valid JSON numbers that this parser cannot represent has no summary.
                let document = serde_json::from_str(document.0.as_str()).unwrap_or_default();
                Ok(Read::Sbom { original, summary: SbomSummary::of(&format, &document) })
            }
            SystemType::Sarif => self.data::<SarifData>().map(|log| Read::Sarif(SarifSummary::from(&log))),
        }
    }

    fn data<T: DeserializeOwned>(&self) -> Result<T, InvalidField> {
        let text = json::check(self.attestation_data.0.as_str().as_bytes());
        let text = text.map_err(|why| InvalidField::of(DATA, why))?;
        decode::from_json(text).map_err(|misfit| misfit.within(DATA))
    }
}

impl Claim for System {
    const OPERATION: &'static str = "post_system_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/system";
    const SUMMARY: &'static str = "Adds an attestation of a system type to a trail";
    const SCHEMA: &'static str = "SystemAttestationPostInput";
    type Body = Form<AttestationInput<Self>>;

    fn document_limit(limits: &Limits) -> u64 {
        limits.attestation
    }

    fn read(text: CheckedJson<'_>, is_own: fn(&str) -> bool) -> Result<Self, InvalidField> {
        let claim: Self = decode::from_fields(text, is_own)?;
        claim.read_data().map(|_| claim)
    }

    async fn evaluate(&self, about: &Claimed<'_>, cx: &Context<'_>) -> Result<Verdict> {
        let heavy = self.attestation_data.0.as_str().len() > LONG_JSON;
        let (claim, limits) = (self.clone(), *cx.limits());
        let read = cx.compute().run_if(heavy, move || limits.apply(|| claim.read_data())).await?;
        let attestation_data = self.attestation_data.0.clone();
        match read.map_err(|misfit| Error::invalid_field(&misfit, DATA))? {
            Read::Decision { control, is_compliant } => {
                let (control_version, precondition) = latest_version(&control, cx).await?;
                let control = control.into_string();
                let details =
                    Details::Decision(DecisionDetails { control, control_version, attestation_data });
                let verdict = Verdict::of("system:decision", is_compliant, details);
                Ok(Verdict { preconditions: vec![precondition], ..verdict })
            }
            Read::Sbom { original, mut summary } => {
                summary.reason = missing_document(&original, about.attachments);
                let is_compliant = summary.reason.is_none();
                let details = SbomDetails { attestation_data, processed_sbom: Some(summary) };
                Ok(Verdict::of("system:sbom", is_compliant, Details::Sbom(details)))
            }
            Read::Sarif(processed_sarif_results) => {
                let is_compliant = processed_sarif_results.is_compliant();
                let details = SarifDetails { attestation_data, processed_sarif_results };
                Ok(Verdict::of("system:sarif", is_compliant, Details::Sarif(details)))
            }
        }
    }
}

/// Returns the reason why the document with this SHA-256 is not among the files; `None` if it is.
fn missing_document(original: &Fingerprint, files: &[Attachment]) -> Option<String> {
    match files.iter().find(|file| file.sha256 == *original) {
        _ if files.is_empty() => Some("The document is not attached".to_owned()),
        None => Some("No attachment has the SHA-256 of original_fingerprint".to_owned()),
        Some(document) if document.size == 0 => Some("The attached document is empty".to_owned()),
        Some(_) => None,
    }
}

/// Returns the number of the control's latest version, or `None` without such a control. The precondition
/// holds as long as that result is current.
async fn latest_version(
    control: &ControlIdentifier,
    cx: &Context<'_>,
) -> Result<(Option<u64>, Precondition)> {
    Ok(match cx.store().control(cx.org()?, control.as_str()).await? {
        Some(known) => {
            let precondition = Precondition::Revision(RecordKind::Control, known.record.id, known.revision);
            (Some(known.record.version), precondition)
        }
        None => (None, Precondition::Vacant(Key::Control(control.clone()))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(document: &Value) -> Result<System, InvalidField> {
        System::read(json::check(document.to_string().as_bytes()).unwrap(), |_| true)
    }

    fn sbom() -> Value {
        json!({"format": "cyclonedx", "original_fingerprint": "a".repeat(64), "document": {"package_count": 7}})
    }

    #[test]
    fn a_decision_names_its_control_once_and_its_verdict() {
        let decision = |control: Value, data: Value| {
            read(&json!({"type_name": "decision", "control": control, "attestation_data": data}))
        };
        let data = |control: Value| json!({"is_compliant": false, "control": control, "more": [1]});
        for (control, data) in [
            (json!("C-1"), json!({"is_compliant": false})),
            (json!("C-1"), data(Value::Null)),
            (json!("C-1"), data(json!("C-1"))),
            (Value::Null, data(json!("C-1"))),
            (Value::Null, json!(data(json!("C-1")).to_string())),
        ] {
            let claim = decision(control, data.clone()).unwrap();
            let Ok(Read::Decision { control, is_compliant: false }) = claim.read_data() else {
                panic!("{data}")
            };
            assert_eq!(control.as_str(), "C-1");
        }
        let table = [
            (Value::Null, json!({"is_compliant": true}), "control"),
            (json!("C-1"), data(json!("C-2")), "control"),
            (json!("a b"), json!({"is_compliant": true}), "control"),
            (json!("C-1"), json!({}), "attestation_data.is_compliant"),
            (json!("C-1"), json!({"is_compliant": "true"}), "attestation_data.is_compliant"),
            (Value::Null, data(json!("a b")), "attestation_data.control"),
            (json!("C-1"), json!([]), "attestation_data"),
            (json!("C-1"), json!("{"), "attestation_data"),
            (json!("C-1"), json!("{}"), "attestation_data.is_compliant"),
            (json!("C-1"), json!(r#"{"is_compliant":true,"is_compliant":true}"#), "attestation_data"),
            (json!("C-1"), json!(r#"{"is_compliant":true,"a":"\u0000"}"#), "attestation_data"),
            (json!("C-1"), Value::Null, "attestation_data"),
        ];
        for (control, data, field) in table {
            assert_eq!(decision(control, data.clone()).unwrap_err().field(), field, "{data}");
        }
    }

    #[test]
    fn a_bill_of_materials_has_its_parts() {
        assert!(read(&json!({"type_name": "sbom", "attestation_data": sbom()})).is_ok());
        for name in ["format", "original_fingerprint", "document"] {
            let mut data = sbom();
            data.as_object_mut().unwrap().remove(name);
            let refused = read(&json!({"type_name": "sbom", "attestation_data": data})).unwrap_err();
            assert_eq!(refused.field(), format!("attestation_data.{name}"));
        }
    }

    #[test]
    fn the_document_is_attached_and_has_the_digest_that_is_claimed() {
        let file = |digit: &str, size: u64| Attachment {
            file_name: "bill.json".to_owned(),
            media_type: "application/json".to_owned(),
            size,
            sha256: digit.repeat(64).parse().unwrap(),
        };
        let table = [
            (vec![], Some("The document is not attached")),
            (vec![file("b", 7)], Some("No attachment has the SHA-256 of original_fingerprint")),
            (vec![file("a", 0)], Some("The attached document is empty")),
            (vec![file("a", 7)], None),
            (vec![file("b", 7), file("a", 7)], None),
        ];
        for (files, reason) in table {
            let original = "a".repeat(64).parse().unwrap();
            assert_eq!(missing_document(&original, &files).as_deref(), reason, "{files:?}");
        }
    }

    #[test]
    fn other_types_are_refused_with_those_that_there_are() {
        let refused = read(&json!({"type_name": "spdx", "attestation_data": {}})).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "type_name: Input should be 'decision', 'sbom' or 'sarif' [input: spdx]"
        );
    }
}
