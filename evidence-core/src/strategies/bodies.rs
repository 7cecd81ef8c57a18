//! The body of every operation that has one.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::request::Requests;
use super::texts::{self, ENVIRONMENT_KINDS, PROVIDERS, ROLES, VISIBILITIES};
use super::{ExistingNames, documents, shared};
use crate::decode;
use crate::name::{
    ActionName, AttestationName, AttestationTypeName, CommitSha, ControlIdentifier, EnvironmentName,
    Fingerprint, FlowName, PolicyName, ServiceAccountName, TagKey, TemplateReferenceName, TrailName,
};
use crate::time::MAX_SECONDS;
use evidence_values::strategies::{Invalid, Object, Shape};

/// An artifact report.
pub fn artifact() -> Shape {
    let file_name = texts::printable().prop_filter("not empty", |name| !name.is_empty());
    Object::new()
        .optional("trail_name", Shape::of::<TrailName>())
        .optional("template_reference_name", Shape::of::<TemplateReferenceName>())
        .required("fingerprint", Shape::of::<Fingerprint>())
        .required("filename", Shape::with_invalid(file_name.prop_map(Value::from), vec![json!(""), json!(7)]))
        .optional("description", shared::description())
        .optional("git_commit", Shape::of::<CommitSha>())
        .optional("git_commit_info", shared::commit())
        .optional("repo_info", shared::repo())
        .optional("commits_list", Shape::list(&shared::commit(), 0..2))
        .optional("repo_url", shared::address())
        .optional("is_compliant", Shape::with_invalid(Just(json!(true)), vec![json!(false), json!("x")]))
        .required("build_url", shared::address())
        .required("commit_url", shared::address())
        .optional("template", template_names())
        .optional("external_urls", shared::external_urls())
        .optional("annotations", shared::any_object())
        .optional("user_data", shared::user_data())
        .shape()
}

fn template_names() -> Shape {
    let names = prop_oneof![
        texts::printable().prop_map(Value::from),
        proptest::collection::vec(texts::printable(), 0..3).prop_map(Value::from),
    ];
    Shape::with_invalid(names, vec![json!(7), json!({}), json!("a".repeat(4097)), json!(["a".repeat(256)])])
}

/// The body that begins a trail.
pub fn trail() -> Shape {
    Object::new()
        .required("name", Shape::of::<TrailName>())
        .optional("description", shared::description())
        .optional("git_commit_info", shared::commit())
        .optional("repo_info", shared::repo())
        .optional("origin_url", shared::web_url())
        .optional("external_urls", shared::external_urls())
        .optional("user_data", shared::user_data())
        .shape()
}

/// Names that a literal path would shadow.
const RESERVED_FLOWS: &[&str] = &["template_file", "list_attestations_for_criteria"];

/// The body that creates a flow.
pub fn flow() -> Shape {
    let reserved = select(RESERVED_FLOWS).prop_map(|name| Invalid::whole(name.into()));
    Object::new()
        .required("name", Shape::of::<FlowName>().or_invalid(reserved))
        .required("description", shared::description())
        .optional("visibility", Shape::choice(VISIBILITIES))
        .shape()
}

/// The body with which older clients create a flow.
pub fn legacy_flow() -> Shape {
    let reserved = select(RESERVED_FLOWS).prop_map(|name| Invalid::whole(name.into()));
    let name = Shape::text_between(0, 255);
    Object::new()
        .required("name", Shape::of::<FlowName>().or_invalid(reserved))
        .required("description", shared::description())
        .optional("visibility", Shape::choice(VISIBILITIES))
        .required("template", Shape::list(&name, 0..4).at_most(&name, 1000))
        .shape()
}

/// The body that renames a flow.
pub fn flow_renaming() -> Shape {
    let reserved = select(RESERVED_FLOWS).prop_map(|name| Invalid::whole(name.into()));
    Object::new().required("new_name", Shape::of::<FlowName>().or_invalid(reserved)).shape()
}

/// An attestation: the common fields, and the claim of one type. It refers to its trail, to an artifact of a
/// commit that is still to be reported, or to a reported artifact of the trail.
fn attestation(claim: &Object, known: &ExistingNames) -> Shape {
    open_attestation(&claim.clone().closed(), known)
}

/// An attestation that rejects unknown fields only if the claim does.
fn open_attestation(claim: &Object, known: &ExistingNames) -> Shape {
    let target =
        || Shape::list(&Shape::of::<AttestationName>(), 1).at_most(&Shape::of::<AttestationName>(), 1);
    let about_trail = with_base(claim.clone()).optional("git_commit_info", shared::commit());
    let commit = shared::commit_of(texts::fitting::<CommitSha>());
    let yet_to_come =
        with_base(claim.clone()).always("target_artifacts", target()).always("git_commit_info", commit);
    let mut shapes = vec![about_trail.shape(), yet_to_come.shape()];
    if !known.fingerprints.is_empty() {
        let fingerprint = Shape::new(
            select(known.fingerprints.clone()).prop_map(Value::from),
            Shape::of::<Fingerprint>().invalid(),
        );
        let about_artifact = with_base(claim.clone())
            .always("artifact_fingerprint", fingerprint)
            .optional("target_artifacts", target())
            .optional("git_commit_info", shared::commit());
        shapes.push(about_artifact.shape());
    }
    Shape::any_of(&shapes)
}

fn with_base(claim: Object) -> Object {
    claim
        .required("attestation_name", Shape::of::<AttestationName>())
        .optional("origin_url", shared::web_url())
        .optional("description", shared::description())
        .optional("repo_info", shared::repo())
        .optional("external_urls", shared::external_urls())
        .optional("annotations", shared::annotations())
        .optional("user_data", shared::user_data())
}

/// An attestation with its own verdict.
pub fn generic(known: &ExistingNames) -> Shape {
    attestation(&Object::new().required("is_compliant", Shape::boolean()), known)
}

/// An attestation of test results.
pub fn junit(known: &ExistingNames) -> Shape {
    let count = || Shape::integer(i64::MIN, i64::MAX).or_valid((0..4).prop_map(Value::from));
    let decimal = |valid: std::ops::Range<f64>| {
        Shape::with_invalid(valid.prop_map(|number| json!(number)), vec![json!("1"), json!(true), json!([])])
    };
    let suite = Object::new()
        .required("name", Shape::text())
        .required("failures", count())
        .required("errors", count())
        .required("skipped", count())
        .required("total", count())
        .required("duration", decimal(0.0..1e6))
        .optional("timestamp", decimal(0.0..4e9))
        .closed();
    attestation(&Object::new().required("junit_results", Shape::list(&suite.shape(), 0..3)), known)
}

/// An attestation of pull requests.
pub fn pull_requests(known: &ExistingNames) -> Shape {
    let provider = Shape::choice(PROVIDERS).or_valid(Just(json!("azure")));
    let list = Shape::list(&pull_request(), 0..3).at_most(&pull_request(), 1000);
    let claim = Object::new().required("git_provider", provider);
    // Null counts as an empty list.
    let list = Shape::new(prop_oneof![1 => Just(Value::Null), 5 => list.valid()], list.invalid());
    attestation(&claim.nullable("pull_requests", list), known)
}

fn pull_request() -> Shape {
    let approver = Object::new()
        .required("username", Shape::text())
        .optional("state", Shape::text())
        .optional("timestamp", shared::sent_seconds())
        .closed();
    // The older form: only a name.
    let approver = Shape::new(
        prop_oneof![approver.shape().valid(), texts::printable().prop_map(Value::from)],
        approver.shape().invalid().prop_filter("not a name", |invalid| !invalid.value.is_string()),
    );
    let commit = Shape::of::<CommitSha>().or_valid(Just(json!("")));
    let merge_commit = Shape::new(
        commit.valid(),
        commit.invalid().prop_filter("an empty one is taken", |invalid| invalid.value != ""),
    );
    Object::new()
        .required("url", Shape::text())
        .required("state", Shape::text())
        .optional("title", Shape::text())
        .optional("author", Shape::text())
        .optional("head_ref", Shape::text())
        .optional("base_ref", Shape::text())
        .optional("merge_commit", merge_commit)
        .optional("created_at", shared::sent_seconds())
        .optional("merged_at", shared::sent_seconds())
        .optional("approvers", Shape::list(&approver, 0..3))
        .optional("commits", Shape::list(&shared::commit(), 0..3))
        .closed()
        .shape()
}

/// An attestation of issues.
pub fn jira(known: &ExistingNames) -> Shape {
    let issue = Object::new()
        .required("issue_id", Shape::text())
        .required("issue_url", shared::address())
        .required("issue_exists", Shape::boolean())
        .defaulted("issue_fields", shared::any_object())
        .closed()
        .shape();
    let issues = Shape::list(&issue, 0..3).at_most(&issue, 1000);
    attestation(&Object::new().required("jira_results", issues), known)
}

/// An attestation of the findings of a security scan.
pub fn snyk(known: &ExistingNames) -> Shape {
    let count = || Shape::integer(i64::MIN, i64::MAX).or_valid((0..3).prop_map(Value::from));
    let location = Object::new().required("uri", Shape::text()).optional("lines", Shape::text()).shape();
    let score = Shape::with_invalid(
        (0.0..1e3).prop_map(|score| json!(score)),
        vec![json!("1"), json!(true), json!([])],
    );
    let finding = Object::new()
        .required("id", Shape::text())
        .required("message", shared::description())
        .optional("locations", Shape::list(&location, 0..2))
        .optional("priority_score", score)
        .shape();
    let findings = || Shape::list(&finding, 0..3);
    let project = Object::new()
        .required("low_count", count())
        .required("medium_count", count())
        .required("high_count", count())
        .optional("low", findings())
        .optional("medium", findings())
        .optional("high", findings())
        .closed()
        .shape();
    let tool = Object::new().required("name", Shape::text()).required("version", Shape::text()).closed();
    let summary = Object::new()
        .defaulted("schema_version", Shape::integer(i64::MIN, i64::MAX))
        .required("tool", tool.shape())
        .required("results", Shape::list(&project, 0..3).at_most(&project, 1000))
        .closed();
    attestation(&Object::new().required("snyk_results", summary.shape()), known)
}

/// An attestation of the result of a code analysis.
pub fn sonar(known: &ExistingNames) -> Shape {
    let condition = Object::new()
        .required("metric", Shape::text())
        .required("errorThreshold", Shape::text())
        .required("operator", Shape::text())
        .required("status", Shape::text())
        .optional("value", Shape::text())
        .optional("onLeakPeriod", Shape::boolean())
        .shape();
    let gate = Object::new()
        .optional("name", Shape::text())
        .required("status", Shape::text().or_valid(Just(json!("OK"))))
        .required("conditions", Shape::list(&condition, 0..3));
    let project = Object::new()
        .optional("name", Shape::text())
        .required("key", Shape::text())
        .required("url", shared::address());
    let results = Object::new()
        .optional("serverUrl", shared::address())
        .optional("taskId", Shape::text())
        .optional("status", Shape::text())
        .required("analysedAt", Shape::text())
        .required("revision", Shape::text())
        .optional("changedAt", Shape::text())
        .required("project", project.shape())
        .optional("qualityGate", gate.shape());
    attestation(&Object::new().required("sonar_results", results.shape()), known)
}

/// An override of the attestations of a name.
pub fn overriding(known: &ExistingNames) -> Shape {
    let kinds =
        ["generic", "junit", "snyk", "pull_request", "jira", "sonar", "custom:review", "system:decision"];
    let wrong = ["", "Generic", "custom", "other:x"].map(Value::from);
    let wrong =
        wrong.into_iter().chain([json!(7), json!("custom:"), json!(format!("custom:{}", "x".repeat(256)))]);
    let claim = Object::new()
        .required("reason", reason())
        .required("new_compliance_status", Shape::boolean())
        .required(
            "original_attestation_type",
            Shape::with_invalid(select(kinds.to_vec()).prop_map(Value::from), wrong.collect()),
        );
    attestation(&claim, known)
}

/// An attestation of a system type.
pub fn system(known: &ExistingNames) -> Shape {
    let of_type = |name: &'static str| {
        let wrong = vec![json!("spdx"), json!(""), json!(7), json!([])];
        Object::new().required("type_name", Shape::with_invalid(Just(json!(name)), wrong))
    };
    let control = || Shape::of::<ControlIdentifier>().or_valid(Just(json!("c1")));
    let verdict = || Object::new().required("is_compliant", Shape::boolean());
    let beside = of_type("decision")
        .required("control", control())
        .required("attestation_data", data(&verdict().shape()));
    // A body without any control is rejected for the field beside the data.
    let with_control = verdict().required("control", control()).shape().valid();
    let invalid = verdict().optional("control", control()).shape().invalid();
    let within = of_type("decision").required("attestation_data", data(&Shape::new(with_control, invalid)));
    let document = Object::new()
        .required("format", Shape::text())
        .required("original_fingerprint", Shape::of::<Fingerprint>())
        .required("document", shared::any_object());
    let sbom = of_type("sbom").required("attestation_data", data(&document.shape()));
    let driver = Object::new().required("name", Shape::text()).optional("version", Shape::text());
    let tool = Object::new().required("driver", driver.shape());
    let result = Object::new()
        .optional("level", Shape::choice(&["none", "note", "warning", "error"]))
        .optional(
            "kind",
            Shape::choice(&["notApplicable", "pass", "fail", "review", "open", "informational"]),
        )
        .optional("ruleIndex", Shape::integer(-1, 9));
    let run =
        Object::new().required("tool", tool.shape()).optional("results", Shape::list(&result.shape(), 0..3));
    let log = Object::new()
        .required("version", Shape::choice(&["2.1.0"]))
        .required("runs", Shape::list(&run.shape(), 0..3));
    let sarif = of_type("sarif").required("attestation_data", data(&log.shape()));
    Shape::any_of(&[beside, within, sbom, sarif].map(|claim| open_attestation(&claim, known)))
}

/// An attestation of a custom type.
pub fn custom(known: &ExistingNames) -> Shape {
    let names = match known.attestation_types.as_slice() {
        [] => texts::fitting::<AttestationTypeName>(),
        known => select(known.to_vec()).boxed(),
    };
    let name = Shape::new(names.prop_map(Value::from), Shape::of::<AttestationTypeName>().invalid());
    let values = shared::json_values()
        .prop_filter("no string, and no null", |value| !value.is_string() && !value.is_null());
    let data = Shape::new(values, no_json())
        .or_valid(shared::json_values().prop_map(|data| data.to_string().into()));
    attestation(&Object::new().required("type_name", name).required("attestation_data", data), known)
}

/// The data of an attestation: JSON, or a string that contains its text.
fn data(shape: &Shape) -> Shape {
    let text = shape.valid().prop_map(|data| data.to_string().into());
    // A string is parsed as JSON.
    let invalid = shape.invalid().prop_filter("no string", |invalid| !invalid.value.is_string());
    Shape::new(shape.valid(), invalid).or_valid(text).or_invalid(no_json())
}

/// Strings that do not contain valid JSON.
fn no_json() -> impl Strategy<Value = Invalid> {
    select(vec!["", "{", "text", "{} {}", r#"{"a":1,"a":1}"#]).prop_map(|text| Invalid::whole(text.into()))
}

/// A list of some of these names.
fn known_names(names: &[String]) -> Shape {
    match names {
        [] => Shape::with_invalid(Just(json!([])), vec![json!(""), json!(1), json!({})]),
        known => Shape::list(
            &Shape::with_invalid(select(known.to_vec()).prop_map(Value::from), vec![json!(7)]),
            0..3,
        ),
    }
}

/// The body that creates an environment.
pub fn environment(known: &ExistingNames) -> Shape {
    // A logical environment runs no artifacts, so it cannot require provenance.
    let provenance = |kinds: &[&str]| match kinds {
        ["logical"] => Shape::with_invalid(Just(json!(false)), vec![json!(true), json!("x")]),
        _ => Shape::boolean(),
    };
    let of = |kinds: &'static [&'static str], members: &[String]| {
        Object::new()
            .required("name", Shape::of::<EnvironmentName>())
            .required("type", Shape::choice(kinds))
            .required("description", shared::description())
            .optional("include_scaling", Shape::boolean())
            .optional("require_provenance", provenance(kinds))
            .optional("included_environments", known_names(members))
            .optional("policies", known_names(&known.policies))
            .closed()
            .shape()
    };
    let physical: &'static [&'static str] =
        ENVIRONMENT_KINDS.split_last().map_or(&[], |(_, physical)| physical);
    Shape::any_of(&[of(physical, &[]), of(&["logical"], &known.environments)])
}

/// The body that updates an environment.
pub fn environment_patch(known: &ExistingNames) -> Shape {
    Object::new()
        .optional("description", shared::description())
        .optional("include_scaling", Shape::boolean())
        .optional("policies", known_names(&known.policies))
        .closed()
        .shape()
}

/// The body that renames an environment.
pub fn environment_renaming() -> Shape {
    Object::new().required("new_name", Shape::of::<EnvironmentName>()).closed().shape()
}

/// A report of everything that runs in an environment of this type.
pub fn report(kind: &'static [&'static str]) -> Shape {
    let created = Shape::integer(0, MAX_SECONDS).or_valid((0..4_102_444_800_i64).prop_map(Value::from));
    let digest = match kind {
        ["docker" | "server" | "S3" | "lambda"] => Shape::of::<Fingerprint>(),
        _ => {
            let digest = Shape::of::<Fingerprint>();
            let invalid = digest.invalid().prop_filter("no empty text", |invalid| invalid.value != json!(""));
            Shape::new(digest.valid(), invalid).or_valid(Just(Value::from("")))
        }
    };
    let digests = Shape::map(&"[a-z][a-z0-9:/.-]{0,12}".boxed(), &digest, 1..3);
    // Elements without digests are skipped.
    let artifact = Object::new().always("digests", digests).nullable("creationTimestamp", created);
    let artifact = match kind {
        ["K8S"] => {
            let owner = Object::new()
                .required("apiVersion", Shape::text())
                .required("kind", Shape::text())
                .required("name", Shape::text())
                .required("uid", Shape::text())
                .optional("controller", Shape::boolean())
                .optional("blockOwnerDeletion", Shape::boolean());
            artifact
                .required("podName", Shape::text())
                .required("namespace", Shape::text())
                .optional("owners", Shape::list(&owner.shape(), 0..3))
        }
        ["ECS"] => artifact
            .required("taskArn", Shape::text())
            .optional("cluster_name", Shape::text())
            .optional("service_name", Shape::text()),
        ["azure-apps"] => artifact
            .required("digests_source", Shape::choice(&["acr", "logs", "kosli-cli"]))
            .required("app_name", Shape::text())
            .required("app_kind", Shape::text()),
        ["cloud-run"] => artifact
            .required("kind", Shape::choice(&["service", "job"]))
            .optional("serviceName", Shape::text())
            .optional("revisionName", Shape::text())
            .optional("jobName", Shape::text()),
        _ => artifact,
    };
    Object::new()
        .defaulted("type", Shape::choice(kind))
        .required("artifacts", Shape::list(&artifact.closed().shape(), 0..4))
        .closed()
        .shape()
}

/// The body that creates a policy, without its text.
pub fn policy() -> Shape {
    Object::new()
        .required("name", Shape::of::<PolicyName>())
        .defaulted("description", shared::description())
        .defaulted("type", Shape::choice(&["env"]))
        .defaulted("comment", shared::description())
        .closed()
        .shape()
}

/// An entry of an allowlist.
pub fn allowlist_entry() -> Shape {
    Object::new()
        .required("artifact_name", Shape::text())
        .required("artifact_fingerprint", Shape::of::<Fingerprint>())
        .required("description", shared::description())
        .optional("expires_at", allowlist_entry_end())
        .closed()
        .shape()
}

/// The reason for an override: a text that is not blank.
fn reason() -> Shape {
    let valid = texts::printable().prop_filter("not blank", |text| !text.trim().is_empty());
    Shape::with_invalid(
        valid.prop_map(Value::from),
        vec![json!(""), json!(" \n"), json!(7), json!("é".repeat(65_537))],
    )
}

/// The end of an allowlist entry: valid seconds are in the future; invalid ones are in the past or in
/// milliseconds.
fn allowlist_entry_end() -> Shape {
    let valid = 3_900_000_000..=253_402_300_799_i64;
    let wrong = vec![
        json!(1),
        json!(-1),
        json!(0),
        json!(1_900_000_000_000_i64),
        json!("1"),
        json!(1.5),
        json!(true),
    ];
    Shape::with_invalid(valid.prop_map(Value::from), wrong)
}

/// The body that creates a custom attestation type, without its schema.
pub fn attestation_type() -> Shape {
    let rules = select(vec![
        json!("."),
        json!(".age >= 21"),
        json!(".tags | any(. == \"ok\")"),
        json!("true"),
        json!("def old: .age > 21; old"),
        json!(".name | gsub(\"[^a-z]+\"; \"-\")"),
        json!("now > 0"),
    ]);
    let not_allowed = ["", "(", "env", "halt", ".a = ", "def f: g; f", "input"].map(|rule| json!(rule));
    let rule = Shape::with_invalid(rules, not_allowed.to_vec());
    let expression = rule.clone();
    let jq = Object::new()
        .optional("content_type", Shape::choice(&["jq"]))
        .always("rules", Shape::list(&rule, 0..3))
        .shape();
    let default = Shape::with_invalid(
        select(vec![json!({}), json!({"content_type": "default"})]),
        vec![json!({"content_type": "jq"}), json!("jq"), json!([])],
    );
    let item =
        Object::new().required("name", Shape::text()).required("expression", expression).closed().shape();
    Object::new()
        .required("name", Shape::of::<AttestationTypeName>())
        .optional("description", shared::description())
        .optional("evaluator", Shape::any_of(&[default, jq]))
        .optional("summary", Shape::list(&item, 0..3))
        .closed()
        .shape()
}

/// Identifiers that cannot be used in a path.
const RESERVED_IDENTIFIERS: &[&str] = &["tags", ".", ".."];

/// The body that creates a control.
pub fn control() -> Shape {
    let identifiers = texts::fitting::<ControlIdentifier>()
        .prop_filter("not a reserved word", |identifier| {
            !RESERVED_IDENTIFIERS.contains(&identifier.as_str())
        });
    let reserved = select(RESERVED_IDENTIFIERS).prop_map(|word| Invalid::whole(word.into()));
    let invalid = Shape::of::<ControlIdentifier>().invalid();
    let identifier = Shape::new(identifiers.prop_map(Value::from), invalid).or_invalid(reserved);
    Object::new()
        .required("identifier", identifier)
        .required("name", Shape::text_between(0, 255))
        .optional("description", shared::description())
        .optional("links", control_links())
        .closed()
        .shape()
}

/// The body that updates a control.
pub fn control_changes() -> Shape {
    Object::new()
        .optional("name", Shape::text_between(0, 255))
        .optional("description", shared::description())
        .optional("links", control_links())
        .closed()
        .shape()
}

fn control_links() -> Shape {
    Shape::map(&"[a-zA-Z][a-zA-Z0-9 ._-]{0,8}".boxed(), &shared::address(), 0..3)
}

/// The body that creates a service account.
pub fn service_account() -> Shape {
    Object::new()
        .required("name", Shape::of::<ServiceAccountName>())
        .optional("description", Shape::text_between(0, 512))
        .defaulted("privilege", Shape::choice(ROLES))
        .shape()
}

/// The body that updates a service account.
pub fn service_account_patch() -> Shape {
    Object::new()
        .optional("description", Shape::text_between(0, 512))
        .optional("privilege", Shape::choice(ROLES))
        .shape()
}

/// The body that creates an API key. The key expires late in this century, or never.
pub fn api_key() -> Shape {
    Object::new()
        .required("description", Shape::text_between(1, 256))
        .optional("expires_at", expiry())
        .shape()
}

/// The body that rotates an API key.
pub fn api_key_rotation() -> Shape {
    Object::new()
        .defaulted("grace_period_hours", Shape::integer(1, 720))
        .optional("expires_at", expiry())
        .shape()
}

fn expiry() -> Shape {
    let valid = prop_oneof![Just(0), 3_900_000_000..=4_102_444_800_i64];
    let wrong = vec![json!(1), json!(-1), json!(4_102_444_801_i64), json!("0"), json!(1.5), json!(true)];
    Shape::with_invalid(valid.prop_map(Value::from), wrong)
}

/// The tags to set and to remove.
pub fn tag_patch() -> Shape {
    let keys = texts::fitting::<TagKey>();
    let bad_keys = texts::misfits::<TagKey>()
        .prop_filter("told by its own text", |key| !key.is_empty() && !key.contains('\u{0}'));
    let bad_key = bad_keys
        .prop_map(|key| Invalid { field: decode::shortened(&key).into_owned(), value: json!({key: "x"}) });
    let removed = Shape::with_invalid("[.-]{1,2}".prop_map(Value::from), vec![json!(7), json!([])]);
    let patch = Object::new()
        .optional("set_tags", Shape::map(&keys, &Shape::text(), 0..3).or_invalid(bad_key))
        .optional("remove_tags", Shape::list(&removed, 0..3))
        .closed()
        .shape();
    let both = keys_both_set_and_removed(&keys);
    patch.or_invalid(both)
}

fn keys_both_set_and_removed(keys: &BoxedStrategy<String>) -> impl Strategy<Value = Invalid> + use<> {
    let invalid = |key: String| Invalid {
        value: json!({"set_tags": {key.clone(): "x"}, "remove_tags": [key]}),
        field: "remove_tags".to_owned(),
    };
    keys.clone().prop_map(invalid)
}

/// An action for environments.
pub fn environment_action(known: &ExistingNames) -> Shape {
    let triggers = Shape::choice(&[
        "ON_STARTED_ARTIFACT",
        "ON_EXITED_ARTIFACT",
        "ON_SCALED_ARTIFACT",
        "ON_ALLOWED_ARTIFACT",
        "ON_NON_COMPLIANT_ENV",
        "ON_COMPLIANT_ENV",
    ]);
    action(&["env"], &triggers)
        .required("environments", Shape::list(&one_of(&known.environments), 0..3))
        .closed()
        .shape()
}

/// An action for flows. Its list of flows is empty, because the names of existing flows are not known here.
pub fn flow_action() -> Shape {
    let triggers = Shape::choice(&["ON_STARTED_TRAIL", "ON_ATTESTED_PROVENANCE", "ON_ATTESTATION"]);
    let none = Shape::with_invalid(Just(json!([])), vec![json!(7), json!("web"), json!({})]);
    action(&["flow"], &triggers).required("flows", none).closed().shape()
}

fn action(kind: &'static [&'static str], trigger: &Shape) -> Object {
    let target = action_target();
    Object::new()
        .required("name", Shape::of::<ActionName>())
        .defaulted("type", Shape::choice(kind))
        .required("triggers", Shape::list(trigger, 0..4).at_most(trigger, 20))
        .required("targets", Shape::list(&target, 0..3).at_most(&target, 20))
}

/// The target of notifications, which must be on the internet.
fn action_target() -> Shape {
    let context = json!({"channel_id": "C1", "channel_name": "releases", "team_id": "T1"});
    let valid = select(vec![
        json!({"type": "WEBHOOK", "webhook": "https://hooks.example.com/a"}),
        json!({"webhook": "https://hooks.example.com:8443/b?c=d", "payload_version": "1.0", "last_success_at": 1.5}),
        json!({"type": "SLACK", "webhook": "https://slack.example.com/services/x", "context": context}),
        json!({"type": "EMAIL", "emails": ["jane@example.com"]}),
    ]);
    let lead_elsewhere = select(vec![
        "http://hooks.example.com/",
        "https://localhost/",
        "https://2130706433/",
        "https://169.254.169.254/latest",
        "https://[::ffff:10.0.0.1]/",
        "https://user:secret@hooks.example.com/",
    ]);
    let refused = lead_elsewhere.prop_map(|url| Invalid {
        value: json!({"type": "WEBHOOK", "webhook": url}),
        field: "webhook".to_owned(),
    });
    let missing = Just(Invalid { value: json!({"type": "SLACK"}), field: "webhook".to_owned() });
    let mail = Just(Invalid {
        value: json!({"type": "EMAIL", "emails": ["jane@example.com", "joe"]}),
        field: "emails[1]".to_owned(),
    });
    Shape::with_invalid(valid, vec![json!(7), json!("x"), json!([])])
        .or_invalid(prop_oneof![refused, missing, mail])
}

/// Returns the requests of the operation of this name, or `None` for one without a body.
pub(super) fn requests(operation: &str, known: &ExistingNames) -> Option<Requests> {
    let attestation = |shape: Shape| Requests::form(&shape, "data_json").with_file(evidence());
    Some(match operation {
        "create_or_update_env_action"
        | "put_environment_notifications"
        | "update_environment_notification" => Requests::json(&environment_action(known)),
        "create_or_update_flow_action" => Requests::json(&flow_action()),
        "allow_artifact_for_env" => Requests::json(&allowlist_entry()),
        "create_artifact" => Requests::json(&artifact()),
        "post_custom_attestation" => attestation(custom(known)),
        "post_generic_attestation" => attestation(generic(known)),
        "post_jira_attestation" => attestation(jira(known)),
        "post_junit_attestation" => attestation(junit(known)),
        "post_override_attestation" => Requests::json(&overriding(known)),
        "post_pull_request_attestation" => attestation(pull_requests(known)),
        "post_snyk_attestation" => attestation(snyk(known)),
        "post_sonar_attestation" => attestation(sonar(known)),
        "post_system_attestation" => attestation(system(known)),
        "post_custom_attestation_type" => {
            let schema = documents::type_schemas();
            let form = Requests::form(&attestation_type(), "data_json");
            form.with_file(proptest::option::of(schema.valid))
                .with_invalid_file(schema.invalid, "type_schema")
        }
        "post_control" => Requests::json(&control()),
        "put_control" => Requests::json(&control_changes()),
        "create_env" => Requests::json(&environment(known)),
        "join_physical_to_logical" => Requests::json(&named_one("physical_env_name", &known.environments)),
        "attach_policy_to_env" => Requests::json(&named_several("policy_names", &known.policies)),
        "detach_policy_from_env" => Requests::json(&named_several("policy_names", &known.policies)),
        "update_env" => Requests::json(&environment_patch(known)),
        "rename_environment" => Requests::json(&environment_renaming()),
        "azure_apps_report" => Requests::json(&report(&["azure-apps"])),
        "cloud_run_report" => Requests::json(&report(&["cloud-run"])),
        "ecs_report" => Requests::json(&report(&["ECS"])),
        "k8s_report" => Requests::json(&report(&["K8S"])),
        "lambda_report" => Requests::json(&report(&["lambda"])),
        "s3_report" => Requests::json(&report(&["S3"])),
        "docker_report" => Requests::json(&report(&["docker"])),
        "server_report" => Requests::json(&report(&["server"])),
        "create_flow_with_template" => with_template(&flow()),
        "create_flow" => Requests::json(&legacy_flow()),
        "rename_flow" => Requests::json(&flow_renaming()),
        "create_trail" => with_template(&trail()),
        "put_policy" => {
            let text = documents::policies(&known.controls);
            let form = Requests::form(&policy(), "payload").with_file(text.valid.prop_map(Some));
            form.with_invalid_file(text.invalid, "policy_file")
        }
        "create_service_account" => Requests::json(&service_account()),
        "update_service_account" => Requests::json(&service_account_patch()),
        "create_service_account_api_key" => Requests::json(&api_key()),
        "rotate_service_account_api_key" => Requests::json(&api_key_rotation()),
        "patch_tags" => Requests::json(&tag_patch()),
        _ => return None,
    })
}

fn evidence() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("\\PC{0,64}")
}

fn with_template(document: &Shape) -> Requests {
    let template = documents::templates();
    let form = Requests::form(document, "data_json").with_file(proptest::option::of(template.valid));
    form.with_invalid_file(template.invalid, "template_file")
}

/// One of these names. If none is known, a valid name that does not exist.
fn one_of(known: &[String]) -> Shape {
    let valid = match known {
        [] => texts::fitting::<EnvironmentName>(),
        known => select(known.to_vec()).boxed(),
    };
    Shape::with_invalid(valid.prop_map(Value::from), vec![json!(7), json!(true), json!([]), json!({})])
}

fn named_one(field: &'static str, known: &[String]) -> Shape {
    Object::new().required(field, one_of(known)).closed().shape()
}

fn named_several(field: &'static str, known: &[String]) -> Shape {
    let none = Just(Invalid::whole(json!([])));
    let list = Shape::list(&one_of(known), 1..3).at_most(&one_of(known), 1000).or_invalid(none);
    Object::new().required(field, list).closed().shape()
}
