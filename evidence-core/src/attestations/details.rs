//! The type-specific part of an attestation, as recorded. Each type has its own variant, so values that a
//! type needs are never looked up in free-form data from reporters.

use std::io;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::attestations::custom::{RuleResult, SummaryRow};
use crate::attestations::jira::JiraItem;
use crate::attestations::pull_requests::{GitProvider, PullRequest, PullRequestView};
use crate::attestations::sarif::SarifSummary;
use crate::attestations::sbom::SbomSummary;
use crate::attestations::snyk::{ProcessedSnykResults, SnykResultsSummary};
use crate::attestations::sonar::SonarResults;
use crate::bounded::ShortText;
use crate::decode::{closed_in_requests, is_recorded, recorded};
use crate::id::Id;
use crate::json::{EmptyObject, JsonFields, JsonText};
use crate::time::check_seconds;

/// The results of one test suite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
#[schemars(rename = "JUnitResult")]
pub struct JunitSuite {
    /// The suite's name.
    pub name: ShortText,
    /// The number of tests that failed.
    pub failures: i64,
    /// The number of tests that ended in an error.
    pub errors: i64,
    /// The number of tests that were skipped.
    pub skipped: i64,
    /// The number of all tests.
    pub total: i64,
    /// The duration of the suite, in seconds.
    pub duration: f64,
    /// When the suite ran, in epoch seconds.
    #[serde(default, deserialize_with = "sent_seconds")]
    pub timestamp: Option<f64>,
}

closed_in_requests!(JunitSuite);

impl JunitSuite {
    /// Returns whether no test failed or ended in an error. Inconsistent numbers are not compliant: none may
    /// be negative, and the number of skipped tests may not exceed the number of tests.
    pub(crate) const fn is_compliant(&self) -> bool {
        let Self { failures, errors, skipped, total, .. } = *self;
        failures == 0 && errors == 0 && 0 <= skipped && skipped <= total
    }
}

/// Reads a time in epoch seconds, as sent.
fn sent_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let seconds = Option::<f64>::deserialize(deserializer)?;
    if let Some(seconds) = seconds.filter(|_| !is_recorded()) {
        #[expect(clippy::cast_possible_truncation, reason = "a larger number is the largest")]
        check_seconds(seconds as i64).map_err(serde::de::Error::custom)?;
    }
    Ok(seconds)
}

/// The type-specific part of an attestation. It is recorded as an object with a `type`, the variant's name,
/// beside its fields. A type that this version does not know is preserved as recorded.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "JsonText")]
#[non_exhaustive]
pub enum Details {
    /// No further data: the verdict is everything.
    Generic,
    /// Test results.
    Junit(JunitDetails),
    /// Pull requests.
    PullRequest(PullRequestDetails),
    /// Issues.
    Jira(JiraDetails),
    /// The findings of a scan.
    Snyk(SnykDetails),
    /// The results of an analysis.
    Sonar(Box<SonarDetails>),
    /// A decision about a control.
    Decision(DecisionDetails),
    /// A bill of materials.
    Sbom(SbomDetails),
    /// The findings of a scanner, as a SARIF log.
    Sarif(SarifDetails),
    /// Data of a custom type of the organization.
    Custom(CustomDetails),
    /// An override of the verdict of other attestations.
    Override(OverrideDetails),
    /// A type that this version of the program does not know.
    Other(JsonText),
}

/// The results of test suites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JunitDetails {
    /// The suites, in the order of the report.
    pub junit_results: Vec<JunitSuite>,
}

/// The pull requests of a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullRequestDetails {
    /// The kind of host.
    pub git_provider: GitProvider,
    /// The pull requests, in the order of the report.
    pub pull_requests: Vec<PullRequest>,
}

/// The issues that a change refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JiraDetails {
    /// The issues, in the order of the report.
    pub jira_results: Vec<JiraItem>,
}

/// The findings of a security scan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnykDetails {
    /// The findings, as reported.
    pub snyk_results: SnykResultsSummary,
}

/// The results of a code analysis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SonarDetails {
    /// The results, as reported.
    pub sonar_results: SonarResults,
}

/// A decision whether the requirements of a control are met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionDetails {
    /// The control's identifier, whether or not the organization has such a control.
    pub control: String,
    /// The number of the control's latest version at the time of the decision. `None` without such a control.
    pub control_version: Option<u64>,
    /// The decision, as reported.
    pub attestation_data: JsonText,
}

/// A software bill of materials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SbomDetails {
    /// The bill of materials, as reported.
    pub attestation_data: JsonText,
    /// Its summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processed_sbom: Option<SbomSummary>,
}

/// The findings of a scanner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SarifDetails {
    /// The SARIF log, as reported.
    pub attestation_data: JsonText,
    /// The counts of the findings.
    pub processed_sarif_results: SarifSummary,
}

/// Data of a custom attestation type, with the results of its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomDetails {
    /// The type's name.
    pub type_name: String,
    /// The type's id.
    pub type_id: Id,
    /// The number of the version that the data were evaluated against.
    pub type_version: u64,
    /// The data, as reported.
    pub attestation_data: JsonText,
    /// The results of the version's rules, in their order.
    pub rule_results: Vec<RuleResult>,
    /// The results of the version's summary expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<SummaryRow>,
}

/// A decision about the verdict of the attestations of a name in a scope, whether or not one was reported. A
/// later attestation has its own verdict again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverrideDetails {
    /// The reason.
    pub reason: String,
    /// The type of the overridden attestation, as the reporter named it; also the type of the record.
    pub original_attestation_type: String,
    /// The id of the attestation whose verdict is replaced; null if there was none.
    pub original_attestation_id: Option<Id>,
}

const GENERIC: &str = "generic";

const JUNIT: &str = "junit";

const PULL_REQUEST: &str = "pull_request";

const JIRA: &str = "jira";

const SNYK: &str = "snyk";

const SONAR: &str = "sonar";

pub(crate) const DECISION: &str = "decision";

pub(crate) const SBOM: &str = "sbom";

pub(crate) const SARIF: &str = "sarif";

const CUSTOM: &str = "custom";

const OVERRIDE: &str = "override";

/// The data of a type that are longer than this, in bytes, are stored separately from the record.
const LONG_DATA: usize = 64 << 10;

/// Counts the written bytes, up to [`LONG_DATA`].
struct Counter {
    left: usize,
}

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len());
        self.left = left.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The potentially long data of a type: one field of its details.
enum Data<'a> {
    Json(&'a mut JsonText),
    Junit(&'a mut Vec<JunitSuite>),
    PullRequests(&'a mut Vec<PullRequest>),
    Jira(&'a mut Vec<JiraItem>),
    Snyk(&'a mut SnykResultsSummary),
    Sonar(&'a mut SonarResults),
}

impl Data<'_> {
    fn write(&self, to: impl io::Write) -> serde_json::Result<()> {
        match self {
            Self::Json(data) => serde_json::to_writer(to, data),
            Self::Junit(data) => serde_json::to_writer(to, data),
            Self::PullRequests(data) => serde_json::to_writer(to, data),
            Self::Jira(data) => serde_json::to_writer(to, data),
            Self::Snyk(data) => serde_json::to_writer(to, data),
            Self::Sonar(data) => serde_json::to_writer(to, data),
        }
    }

    /// Reduces the data to the part that lists show.
    fn shorten(self) {
        match self {
            Self::Json(data) => *data = JsonText::default(),
            Self::Junit(data) => data.clear(),
            Self::PullRequests(data) => data.clear(),
            Self::Jira(data) => data.clear(),
            Self::Snyk(data) => data.leave_counts(),
            Self::Sonar(data) => data.quality_gate.iter_mut().for_each(|gate| gate.conditions.0.clear()),
        }
    }

    fn read(self, text: &str) -> serde_json::Result<()> {
        fn read<T: DeserializeOwned>(into: &mut T, text: &str) -> serde_json::Result<()> {
            *into = recorded(|| serde_json::from_str(text))?;
            Ok(())
        }
        match self {
            Self::Json(data) => read(data, text),
            Self::Junit(data) => read(data, text),
            Self::PullRequests(data) => read(data, text),
            Self::Jira(data) => read(data, text),
            Self::Snyk(data) => read(data, text),
            Self::Sonar(data) => read(data, text),
        }
    }
}

impl Details {
    fn data(&mut self) -> Option<Data<'_>> {
        match self {
            Self::Generic | Self::Override(_) | Self::Other(_) => None,
            Self::Junit(details) => Some(Data::Junit(&mut details.junit_results)),
            Self::PullRequest(details) => Some(Data::PullRequests(&mut details.pull_requests)),
            Self::Jira(details) => Some(Data::Jira(&mut details.jira_results)),
            Self::Snyk(details) => Some(Data::Snyk(&mut details.snyk_results)),
            Self::Sonar(details) => Some(Data::Sonar(&mut details.sonar_results)),
            Self::Decision(details) => Some(Data::Json(&mut details.attestation_data)),
            Self::Sbom(details) => Some(Data::Json(&mut details.attestation_data)),
            Self::Sarif(details) => Some(Data::Json(&mut details.attestation_data)),
            Self::Custom(details) => Some(Data::Json(&mut details.attestation_data)),
        }
    }

    /// Returns the key of the data in responses.
    pub(crate) const fn data_key(&self) -> Option<&'static str> {
        match self {
            Self::Generic | Self::Override(_) | Self::Other(_) => None,
            Self::Snyk(_) => Some("processed_snyk_results"),
            Self::Junit(_) => Some("junit_results"),
            Self::PullRequest(_) => Some("pull_requests"),
            Self::Jira(_) => Some("jira_results"),
            Self::Sonar(_) => Some("sonar_results"),
            Self::Decision(_) | Self::Sbom(_) | Self::Sarif(_) | Self::Custom(_) => Some("attestation_data"),
        }
    }

    /// Returns whether the data are long enough to be stored separately.
    pub(crate) fn has_long_data(&mut self) -> bool {
        self.data().is_some_and(|data| data.write(Counter { left: LONG_DATA }).is_err())
    }

    /// Takes the data out, as JSON text.
    pub(crate) fn take_data(&mut self) -> serde_json::Result<String> {
        let Some(data) = self.data() else { return Ok(String::new()) };
        let mut text = Vec::new();
        data.write(&mut text)?;
        data.shorten();
        String::from_utf8(text).map_err(serde::ser::Error::custom)
    }

    /// Returns the keys for a response after the data were taken out: the key of the data is null. A Snyk
    /// scan keeps its counts.
    pub(crate) fn view_without_data(self) -> DetailsView {
        match self.data_key() {
            Some(key) if !matches!(self, Self::Snyk(_)) => self.view().without(key),
            _ => self.view(),
        }
    }

    /// Puts data back that were taken out.
    pub(crate) fn put_data(&mut self, text: &str) -> serde_json::Result<()> {
        self.data().map_or(Ok(()), |data| data.read(text))
    }

    /// Returns the reason of an override; `None` for other types.
    pub(crate) const fn override_reason(&self) -> Option<&str> {
        match self {
            Self::Override(details) => Some(details.reason.as_str()),
            _ => None,
        }
    }

    /// Returns whether it overrides other attestations.
    pub const fn is_override(&self) -> bool {
        matches!(self, Self::Override(_))
    }

    /// Returns the identifier of a decision's control; `None` for other types.
    pub fn control(&self) -> Option<&str> {
        match self {
            Self::Decision(details) => Some(&details.control),
            _ => None,
        }
    }

    /// Returns the number of that control's latest version at the time of the decision. `None` without such a
    /// control.
    pub const fn control_version(&self) -> Option<u64> {
        match self {
            Self::Decision(details) => details.control_version,
            _ => None,
        }
    }

    /// Returns the type's own keys, as recorded (`junit_results`, `pull_requests`, …).
    pub fn fields(&self) -> JsonFields {
        match self {
            Self::Generic => JsonFields::default(),
            Self::Junit(details) => fields_of(details),
            Self::PullRequest(details) => fields_of(details),
            Self::Jira(details) => fields_of(details),
            Self::Snyk(details) => fields_of(details),
            Self::Sonar(details) => fields_of(details),
            Self::Decision(details) => fields_of(details),
            Self::Sbom(details) => fields_of(details),
            Self::Sarif(details) => fields_of(details),
            Self::Custom(details) => fields_of(details),
            Self::Override(details) => fields_of(details),
            Self::Other(text) => fields_of(text),
        }
    }

    /// Returns the type's own keys for a response.
    pub(crate) fn view(self) -> DetailsView {
        match self {
            Self::Generic => DetailsView::Generic {},
            Self::Junit(details) => DetailsView::Junit(details),
            Self::PullRequest(details) => DetailsView::PullRequest {
                git_provider: details.git_provider,
                pull_requests: details.pull_requests.iter().map(PullRequestView::from).collect(),
            },
            Self::Jira(details) => DetailsView::Jira(details),
            Self::Snyk(details) => {
                DetailsView::Snyk { processed_snyk_results: (&details.snyk_results).into() }
            }
            Self::Sonar(details) => DetailsView::Sonar(details),
            Self::Decision(DecisionDetails { control, control_version, attestation_data }) => {
                DetailsView::Decision { type_name: DECISION, control, control_version, attestation_data }
            }
            Self::Sbom(SbomDetails { attestation_data, processed_sbom }) => {
                DetailsView::Sbom { type_name: SBOM, attestation_data, processed_sbom }
            }
            Self::Sarif(SarifDetails { attestation_data, processed_sarif_results }) => {
                DetailsView::Sarif { type_name: SARIF, attestation_data, processed_sarif_results }
            }
            Self::Custom(details) => DetailsView::Custom {
                type_name: details.type_name,
                type_version: details.type_version,
                attestation_data: details.attestation_data,
                rule_results: details.rule_results,
                summary: details.summary,
            },
            Self::Override(details) => DetailsView::Override(details),
            Self::Other(text) => DetailsView::Other(fields_of(&text)),
        }
    }
}

/// The type-specific keys of an attestation.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum DetailsView {
    /// A type without keys of its own.
    Generic {},
    /// Test results.
    Junit(JunitDetails),
    /// Pull requests.
    PullRequest {
        /// The kind of their host.
        git_provider: GitProvider,
        /// The pull requests, in the order of the report.
        pull_requests: Vec<PullRequestView>,
    },
    /// Issues.
    Jira(JiraDetails),
    /// The findings of a scan.
    Snyk {
        /// The counts of the findings.
        processed_snyk_results: ProcessedSnykResults,
    },
    /// The results of an analysis.
    Sonar(Box<SonarDetails>),
    /// A decision about a control.
    Decision {
        /// The type's name: `decision`.
        type_name: &'static str,
        /// The control's identifier.
        control: String,
        /// The number of the control's latest version at the time of the decision; null without such a
        /// control.
        control_version: Option<u64>,
        /// The decision, as reported.
        attestation_data: JsonText,
    },
    /// A bill of materials.
    Sbom {
        /// The type's name: `sbom`.
        type_name: &'static str,
        /// The bill of materials, as reported.
        attestation_data: JsonText,
        /// Its summary.
        #[serde(skip_serializing_if = "Option::is_none")]
        processed_sbom: Option<SbomSummary>,
    },
    /// The findings of a scanner.
    Sarif {
        /// The type's name: `sarif`.
        type_name: &'static str,
        /// The SARIF log, as reported.
        attestation_data: JsonText,
        /// The counts of the findings.
        processed_sarif_results: SarifSummary,
    },
    /// Data of a custom type of the organization.
    Custom {
        /// The type's name.
        type_name: String,
        /// The number of the version that the data were evaluated against.
        type_version: u64,
        /// The data, as reported.
        attestation_data: JsonText,
        /// The results of the version's rules, in their order.
        rule_results: Vec<RuleResult>,
        /// The results of the type's summary expressions, in their order. If the data are a list, each
        /// element has its own rows, one element after another. Absent if the type has no summary.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        summary: Vec<SummaryRow>,
    },
    /// An override of the verdict of other attestations.
    Override(OverrideDetails),
    /// A type that this version of the program does not know.
    #[schemars(skip)]
    Other(JsonFields),
    /// Details without their long data: the key of the data is null.
    #[schemars(skip)]
    Shortened(JsonFields),
}

impl DetailsView {
    /// Returns the details with null as the value of `key`.
    pub(crate) fn without(self, key: &str) -> Self {
        let fields = self.fields();
        let mut shortened = JsonFields::default();
        for (name, value) in fields.iter() {
            let value = if name == key { JsonText::default() } else { value.clone() };
            shortened.push(name.to_owned(), value);
        }
        Self::Shortened(shortened)
    }

    /// Returns the keys with their values.
    pub(crate) fn fields(&self) -> JsonFields {
        fields_of(self)
    }
}

/// Returns the fields of serializable details. A value that is not an object has no fields.
fn fields_of(details: &impl Serialize) -> JsonFields {
    let text = serde_json::to_string(details).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Details in their recorded form.
#[derive(Serialize)]
struct Typed<'a, T> {
    #[serde(flatten)]
    details: &'a T,
    #[serde(rename = "type")]
    name: &'static str,
}

impl Serialize for Details {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Generic => Typed { details: &EmptyObject {}, name: GENERIC }.serialize(serializer),
            Self::Junit(details) => Typed { details, name: JUNIT }.serialize(serializer),
            Self::PullRequest(details) => Typed { details, name: PULL_REQUEST }.serialize(serializer),
            Self::Jira(details) => Typed { details, name: JIRA }.serialize(serializer),
            Self::Snyk(details) => Typed { details, name: SNYK }.serialize(serializer),
            Self::Sonar(details) => Typed { details, name: SONAR }.serialize(serializer),
            Self::Decision(details) => Typed { details, name: DECISION }.serialize(serializer),
            Self::Sbom(details) => Typed { details, name: SBOM }.serialize(serializer),
            Self::Sarif(details) => Typed { details, name: SARIF }.serialize(serializer),
            Self::Custom(details) => Typed { details, name: CUSTOM }.serialize(serializer),
            Self::Override(details) => Typed { details, name: OVERRIDE }.serialize(serializer),
            Self::Other(text) => text.serialize(serializer),
        }
    }
}

impl From<JsonText> for Details {
    fn from(text: JsonText) -> Self {
        #[derive(Deserialize)]
        struct Type {
            #[serde(rename = "type")]
            name: String,
        }
        fn read<T: DeserializeOwned>(text: &JsonText) -> Option<T> {
            recorded(|| serde_json::from_str(text.as_str())).ok()
        }
        let name = read::<Type>(&text).map(|kind| kind.name).unwrap_or_default();
        let known = match name.as_str() {
            GENERIC if text.as_str() == r#"{"type":"generic"}"# => Some(Self::Generic),
            JUNIT => read(&text).map(Self::Junit),
            PULL_REQUEST => read(&text).map(Self::PullRequest),
            JIRA => read(&text).map(Self::Jira),
            SNYK => read(&text).map(Self::Snyk),
            SONAR => read(&text).map(Self::Sonar),
            DECISION => read(&text).map(Self::Decision),
            SBOM => read(&text).map(Self::Sbom),
            SARIF => read(&text).map(Self::Sarif),
            CUSTOM => read(&text).map(Self::Custom),
            OVERRIDE => read(&text).map(Self::Override),
            _ => None,
        };
        known.unwrap_or(Self::Other(text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::attestations::claims::PullRequests;
    use crate::decode::from_value;

    #[test]
    fn details_read_back_as_they_are_recorded_and_what_is_unknown_stays() {
        let suite =
            json!({"name": "s", "failures": 1, "errors": 0, "skipped": 0, "total": 2, "duration": 0.5});
        let pull_request = json!({"url": "u", "state": "open", "merge_commit": "", "approvers": ["ann"]});
        let reported = json!({"git_provider": "azure", "pull_requests": [pull_request]});
        let reported: PullRequests = from_value(&reported).unwrap();
        let read = |text: &str| serde_json::from_str::<Details>(text).unwrap();
        let other = |text: &str| Details::Other(serde_json::from_str(text).unwrap());
        let pull_requests = PullRequestDetails {
            git_provider: reported.git_provider,
            pull_requests: reported.pull_requests.items,
        };
        let overriding = OverrideDetails {
            reason: "r".to_owned(),
            original_attestation_type: "junit".to_owned(),
            original_attestation_id: Some("01234567-89ab-cdef-0123-456789ab".parse().unwrap()),
        };
        let table = [
            Details::Generic,
            read(&json!({"type": "junit", "junit_results": [suite]}).to_string()),
            Details::PullRequest(pull_requests),
            read(
                r#"{"type":"jira","jira_results":[{"issue_id":"a","issue_url":"u","issue_exists":true,"issue_fields":{"n":1e400}}]}"#,
            ),
            read(r#"{"type":"snyk","snyk_results":{"tool":{"name":"n","version":"v"},"results":[]}}"#),
            read(
                r#"{"type":"sonar","sonar_results":{"analysedAt":"1","revision":"r","project":{"key":"k","url":"u"},"branch":1e400}}"#,
            ),
            read(
                r#"{"type":"decision","control":"C-1","control_version":3,"attestation_data":{"is_compliant":true,"n":1e400}}"#,
            ),
            read(r#"{"type":"sbom","attestation_data":{"n":[1e400]}}"#),
            read(
                r#"{"type":"sbom","attestation_data":{"n":[1e400]},"processed_sbom":{"format":"spdx","component_count":3,"tools":["syft"]}}"#,
            ),
            read(
                r#"{"type":"sarif","attestation_data":{"n":[1e400]},"processed_sarif_results":{"tools":[{"name":"scan"}],"error_count":1,"warning_count":0,"note_count":0,"none_count":0,"suppressed_count":0,"failed_run_count":0}}"#,
            ),
            read(
                r#"{"type":"custom","type_name":"t","type_id":"01234567-89ab-cdef-0123-456789ab","type_version":2,"attestation_data":1e400,"rule_results":[{"outcome":"passed"},{"outcome":"limit","message":"fuel"}]}"#,
            ),
            Details::Override(overriding),
            other(r#"{"type":"of tomorrow","a":[1e400,-0,null]}"#),
            // Details that do not match their type are preserved.
            other(r#"{"type":"junit","junit_results":"none"}"#),
            other(r#"{"type":"generic","more":1}"#),
            other("{}"),
            other("null"),
        ];
        let known = table.iter().filter(|details| !matches!(details, Details::Other(_)));
        assert_eq!(known.count(), 12);
        for details in table {
            let text = serde_json::to_string(&details).unwrap();
            assert_eq!(serde_json::from_str::<Details>(&text).unwrap(), details, "{text}");
        }
    }

    #[test]
    fn what_another_version_recorded_is_read_without_the_limits_of_requests() {
        let long = "x".repeat(3 << 10);
        let more_than = |most: usize, item: &str| vec![item; most + 1].join(",");
        let issue = format!(r#"{{"issue_id":"{long}","issue_url":"{long}","issue_exists":true,"more":1}}"#);
        let suite =
            r#"{"name":"s","failures":0,"errors":0,"skipped":0,"total":1,"duration":1,"more":{"a":[1e400]}}"#;
        let finding = r#"{"id":"i","message":"m","locations":[]}"#;
        let project = format!(
            r#"{{"low_count":1,"medium_count":0,"high_count":0,"critical_count":0,"low":[{}]}}"#,
            more_than(10_000, finding)
        );
        let pull_request = format!(
            r#"{{"url":"u","state":"{long}","merge_commit":"{}","more":null,"approvers":[{{"username":"{long}","more":1}}]}}"#,
            "c".repeat(64)
        );
        let condition = r#"{"metric":"m","errorThreshold":"1","operator":"o","status":"OK"}"#;
        let table = [
            format!(r#"{{"type":"jira","jira_results":[{issue}],"more":1}}"#),
            format!(r#"{{"type":"junit","junit_results":[{suite}]}}"#),
            format!(
                r#"{{"type":"snyk","snyk_results":{{"schema_version":2,"tool":{{"name":"{long}","version":"1","more":1}},"results":[{project}],"more":1}}}}"#
            ),
            format!(r#"{{"type":"pull_request","git_provider":"github","pull_requests":[{pull_request}]}}"#),
            format!(
                r#"{{"type":"sonar","sonar_results":{{"analysedAt":"{long}","revision":"r","project":{{"key":"k","url":"{long}"}},"qualityGate":{{"status":"OK","conditions":[{}]}}}}}}"#,
                more_than(1_000, condition)
            ),
        ];
        for text in table {
            let details = serde_json::from_str::<Details>(&text).unwrap();
            assert!(!matches!(details, Details::Other(_)), "{}", &text[..60]);
            let kept = serde_json::to_string(&details).unwrap();
            assert!(kept.contains(&long) || text.contains("junit"), "{}", &kept[..60]);
        }
        // Requests still have limits.
        assert_eq!(
            from_value::<JiraItem>(&json!({"issue_id": long, "issue_url": "", "issue_exists": true}))
                .unwrap_err()
                .field(),
            "issue_id"
        );
    }

    #[test]
    fn what_reporters_say_makes_no_override() {
        for said in [r#"{"override":true}"#, r#"{"type":"override"}"#, r#"{"type":"override","reason":1}"#] {
            assert!(!serde_json::from_str::<Details>(said).unwrap().is_override(), "{said}");
        }
    }
}
