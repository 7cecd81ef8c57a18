//! The types of attestations: the type's own part of a report, and the evaluation of its verdict. A verdict
//! is computed once, when the attestation is recorded.

mod custom;
mod system;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attestations::claim::{AttestationInput, Claim, Claimed, Verdict};
use crate::attestations::details::{
    Details, JiraDetails, JunitDetails, JunitSuite, OverrideDetails, PullRequestDetails, SnykDetails,
    SonarDetails,
};
use crate::attestations::jira::{self, JiraItem};
use crate::attestations::pull_requests::{GitProvider, PullRequest, null_as_empty};
use crate::attestations::snyk::SnykResultsSummary;
use crate::attestations::sonar::SonarResults;
use crate::bounded::{LenientList, List, Text, limited_lists};
use crate::compute::MANY_EVALUATIONS;
use crate::context::Context;
use crate::decode::{self, InvalidField};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::json::CheckedJson;
use crate::limits::{self, Limits};
use crate::name::AttestationTypeName;
use crate::operation::{Form, JsonDocument};
use crate::rules::compliance::{self, ReportedArtifact, ReportedAttestation};
use crate::store::error::StoreError;
use crate::trails::store::TrailContents;

pub use custom::Custom;
pub(crate) use system::{DecisionData, SbomData};
pub use system::{System, SystemType};

/// The reporter provides the verdict.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Generic {
    /// The verdict.
    pub is_compliant: bool,
}

impl Claim for Generic {
    const OPERATION: &'static str = "post_generic_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/generic";
    const SUMMARY: &'static str = "Adds a generic attestation to a trail";
    const SCHEMA: &'static str = "GenericAttestationPostInput";
    type Body = Form<AttestationInput<Self>>;

    async fn evaluate(&self, _: &Claimed<'_>, _: &Context<'_>) -> Result<Verdict> {
        Ok(Verdict::of("generic", self.is_compliant, Details::Generic))
    }
}

limited_lists! {
    /// Test suites. Their number is [limited](crate::Limits).
    Suites(JunitSuite) = junit_suites;
}

/// Test results are compliant if no suite has a failure or an error; skipped tests do not matter. A suite
/// with inconsistent numbers, such as more skipped tests than tests, is not compliant.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Junit {
    /// The test suites.
    pub junit_results: Suites,
}

impl Claim for Junit {
    const OPERATION: &'static str = "post_junit_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/junit";
    const SUMMARY: &'static str = "Adds test results to a trail";
    const SCHEMA: &'static str = "JUnitAttestationPostInput";
    type Body = Form<AttestationInput<Self>>;

    fn document_limit(limits: &Limits) -> u64 {
        limits.attestation
    }

    async fn evaluate(&self, _: &Claimed<'_>, _: &Context<'_>) -> Result<Verdict> {
        let junit_results = self.junit_results.0.clone();
        let passed = junit_results.iter().all(JunitSuite::is_compliant);
        Ok(Verdict::of("junit", passed, Details::Junit(JunitDetails { junit_results })))
    }
}

/// Pull requests are compliant if at least one has a URL, whatever its state. A null among the pull requests
/// or their approvers is skipped. The response header `Evidence-Skipped-Elements` contains the number of
/// skipped elements.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullRequests {
    /// The kind of host of the pull requests.
    pub git_provider: GitProvider,
    /// The pull requests of the change. Null means none; a null element is skipped.
    #[serde(deserialize_with = "null_as_empty")]
    #[schemars(extend("type" = ["array", "null"]))]
    pub pull_requests: LenientList<PullRequest>,
}

impl Claim for PullRequests {
    const OPERATION: &'static str = "post_pull_request_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/pull_request";
    const SUMMARY: &'static str = "Adds a pull-request attestation to a trail";
    const SCHEMA: &'static str = "PullRequestAttestationPostInput";
    const IS_COLLECTED: bool = true;
    type Body = Form<AttestationInput<Self>>;

    fn document_limit(limits: &Limits) -> u64 {
        limits.attestation
    }

    fn skipped(&self) -> usize {
        let approvers = self.pull_requests.items.iter().map(|one| one.approvers.skipped());
        self.pull_requests.skipped() + approvers.sum::<usize>()
    }

    async fn evaluate(&self, _: &Claimed<'_>, _: &Context<'_>) -> Result<Verdict> {
        let Self { git_provider, pull_requests: LenientList { items: pull_requests, .. } } = self.clone();
        let found = pull_requests.iter().any(|one| !one.url.is_empty());
        let details = PullRequestDetails { git_provider, pull_requests };
        Ok(Verdict::of("pull_request", found, Details::PullRequest(details)))
    }
}

/// Issues are compliant if there is at least one, and each has a key and exists.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jira {
    /// The issues that the change refers to.
    pub jira_results: List<JiraItem>,
}

impl Claim for Jira {
    const OPERATION: &'static str = "post_jira_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/jira";
    const SUMMARY: &'static str = "Adds a Jira attestation to a trail";
    const SCHEMA: &'static str = "JiraAttestationPostInput";
    type Body = Form<AttestationInput<Self>>;

    fn document_limit(limits: &Limits) -> u64 {
        limits.attestation
    }

    async fn evaluate(&self, _: &Claimed<'_>, _: &Context<'_>) -> Result<Verdict> {
        let jira_results = self.jira_results.0.clone();
        let found = jira::is_compliant(&jira_results);
        Ok(Verdict::of("jira", found, Details::Jira(JiraDetails { jira_results })))
    }
}

/// A scan is compliant if it has no findings of any severity: all counts are 0 and all lists are empty.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Snyk {
    /// The results of the scan.
    pub snyk_results: SnykResultsSummary,
}

impl Claim for Snyk {
    const OPERATION: &'static str = "post_snyk_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/snyk";
    const SUMMARY: &'static str = "Adds the results of a Snyk scan to a trail";
    const SCHEMA: &'static str = "SnykAttestationPostInput";
    type Body = Form<AttestationInput<Self>>;

    fn document_limit(limits: &Limits) -> u64 {
        limits.attestation
    }

    fn read(text: CheckedJson<'_>, is_own: fn(&str) -> bool) -> Result<Self, InvalidField> {
        let claim: Self = decode::from_fields(text, is_own)?;
        let (found, most) = (claim.snyk_results.findings(), limits::in_force().findings);
        if found > most {
            let excess = format!("There should be at most {most} findings, not {found} (limit findings)");
            return Err(InvalidField::of("results", excess).within("snyk_results"));
        }
        Ok(claim)
    }

    async fn evaluate(&self, _: &Claimed<'_>, _: &Context<'_>) -> Result<Verdict> {
        let snyk_results = self.snyk_results.clone();
        let clean = snyk_results.is_compliant();
        Ok(Verdict::of("snyk", clean, Details::Snyk(SnykDetails { snyk_results })))
    }
}

/// An analysis is compliant if the code passed the project's quality gate. Then the gate's status is `OK`, as
/// is the status of each condition that has a value. Without a quality gate, or with a task status other than
/// `SUCCESS`, it is not compliant.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sonar {
    /// The results of the analysis.
    pub sonar_results: SonarResults,
}

impl Claim for Sonar {
    const OPERATION: &'static str = "post_sonar_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/sonar";
    const SUMMARY: &'static str = "Adds the results of a Sonar analysis to a trail";
    const SCHEMA: &'static str = "SonarAttestationPostInput";
    type Body = Form<AttestationInput<Self>>;

    fn document_limit(limits: &Limits) -> u64 {
        limits.attestation
    }

    async fn evaluate(&self, _: &Claimed<'_>, _: &Context<'_>) -> Result<Verdict> {
        let sonar_results = self.sonar_results.clone();
        let passed = sonar_results.is_compliant();
        Ok(Verdict::of("sonar", passed, Details::Sonar(Box::new(SonarDetails { sonar_results }))))
    }
}

/// An override replaces the verdict of the attestations of a name. It applies to the trail, to an artifact,
/// or to an artifact that is not reported yet, whether or not such an attestation exists. It is sent as JSON,
/// without files.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// The reason. A reason of white space only is refused.
    pub reason: Text<{ 64 << 10 }, 1>,
    /// The new verdict. It applies until the name is reported again.
    pub new_compliance_status: bool,
    /// The type of the overridden attestation.
    pub original_attestation_type: OriginalType,
}

/// A type of attestation that can be overridden: `generic`, `junit`, `snyk`, `pull_request`, `jira`, `sonar`,
/// `custom:<name>` or `system:<name>`. The name must be a valid name of a custom attestation type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OriginalType(String);

impl JsonSchema for OriginalType {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OriginalType".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "anyOf": [
            { "type": "string", "enum": Self::NAMED },
            { "type": "string", "pattern": Self::pattern(), "maxLength": Self::MAX_LEN },
        ]})
    }
}

impl OriginalType {
    const MAX_LEN: usize = "custom:".len() + AttestationTypeName::MAX_LEN;
    const PREFIXES: [&'static str; 2] = ["custom:", "system:"];
    const NAMED: [&'static str; 6] = ["generic", "junit", "snyk", "pull_request", "jira", "sonar"];

    /// Returns the pattern for a prefix followed by a type's name.
    fn pattern() -> String {
        AttestationTypeName::PATTERN.replacen('^', &format!("^({})", Self::PREFIXES.join("|")), 1)
    }
}

impl From<OriginalType> for String {
    fn from(kind: OriginalType) -> Self {
        kind.0
    }
}

impl TryFrom<String> for OriginalType {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let name = Self::PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix));
        let is_named = name.is_some_and(|name| name.parse::<AttestationTypeName>().is_ok());
        if is_named || Self::NAMED.contains(&text.as_str()) {
            return Ok(Self(text));
        }
        Err(
            "Input should be 'generic', 'junit', 'snyk', 'pull_request', 'jira', 'sonar', 'custom:<name>' or \
             'system:<name>'",
        )
    }
}

impl Claim for Override {
    const OPERATION: &'static str = "post_override_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/override";
    const SUMMARY: &'static str = "Overrides the compliance of an attestation in a trail";
    const SCHEMA: &'static str = "OverrideAttestationPostInput";
    type Body = JsonDocument<AttestationInput<Self>>;

    async fn evaluate(&self, about: &Claimed<'_>, cx: &Context<'_>) -> Result<Verdict> {
        if self.reason.trim().is_empty() {
            return Err(Error::invalid("reason", "The reason why the attestation is overridden is empty"));
        }
        let kind = String::from(self.original_attestation_type.clone());
        let details = OverrideDetails {
            reason: self.reason.clone().into_string(),
            original_attestation_type: kind.clone(),
            original_attestation_id: original(about, cx).await?,
        };
        Ok(Verdict::of(kind, self.new_compliance_status, Details::Override(details)))
    }
}

/// Returns the attestation that the trail will show as overridden. It needs no precondition: of the override
/// and a concurrent report, the newer ledger entry decides.
async fn original(about: &Claimed<'_>, cx: &Context<'_>) -> Result<Option<Id>> {
    let Some(trail) = about.trail else { return Ok(None) };
    let found = cx.trail_contents(&[trail]).await?.pop();
    let lost = || StoreError::corrupt("a trail cannot be read any more");
    let TrailContents { artifacts, attestations: rows, earlier_names, .. } = found.ok_or_else(lost)?;
    let (name, binding) = (about.name.clone(), about.binding.into());
    let heavy = artifacts.len() + rows.len() > MANY_EVALUATIONS;
    let find = move || {
        let artifacts = Vec::from_iter(artifacts.iter().map(ReportedArtifact::from));
        let attestations = Vec::from_iter(rows.iter().map(ReportedAttestation::from));
        let original =
            compliance::overridden(name.as_str(), &binding, &artifacts, &attestations, &earlier_names)?;
        rows.iter().find(|row| row.index == original.index).map(|row| row.id)
    };
    cx.compute().run_if(heavy, find).await
}
