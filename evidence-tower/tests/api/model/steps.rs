//! The requests of a run: of every operation of the API, about few names, so that they meet.

use std::fmt;

use evidence_core::api;
use evidence_core::operation::{Body, BodyKind, Operation, Visitor};
use evidence_core::strategies::{ExistingNames, Requests, Sent, texts};
use http::Method;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use proptest::strategy::Union;

use crate::support::prelude::*;

/// Random requests of a run, at most.
const MAX_STEPS: usize = 120;

/// Names that requests choose from: few, so that they meet. The last of each kind is of nothing.
const FLOWS: &[&str] = &["web", "shop", "nothing"];
const TRAILS: &[&str] = &["t1", "t2", "nothing"];
const ENVIRONMENTS: &[&str] = &["prod", "test", "server", "all", "nothing"];
const POLICIES: &[&str] = &["p", "q", "nothing"];
const ACCOUNTS: &[&str] = &["ci", "cd", "nothing"];
const TYPES: &[&str] = &["review", "audit", "nothing"];
const CONTROLS: &[&str] = &["c1", "c2", "nothing"];
/// Names of attestations, and of the artifacts that templates ask for.
const PARTS: &[&str] = &["test", "api", "scan"];
const TAGS: &[&str] = &["team", "tier"];
/// Fingerprints; two of them begin alike.
const FINGERPRINTS: &[&str] = &[
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
];
const COMMITS: &[&str] =
    &["1111111111111111111111111111111111111111", "1111122222222222222222222222222222222222"];

/// Templates that the names above can fulfil.
const TEMPLATES: &[&str] = &[
    "version: 1",
    "version: 1\ntrail:\n  attestations:\n    - {name: test, type: generic}\n",
    "version: 1\ntrail:\n  artifacts:\n    - name: api\n      attestations:\n        - {name: test, type: '*'}\n",
];

/// A policy that the names above can fulfil, and violate.
const POLICY: &str = "_schema: https://e/v1\nartifacts: {provenance: {required: true}, attestations: [\
    {name: test, type: generic, if: \"${{ flow.tags.team != 'y' }}\"}]}";

/// The kind of record that an id of an earlier response names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Artifact,
    Attestation,
    Repo,
    Key,
    /// The text of an API key.
    Secret,
}

/// A text of a request.
#[derive(Debug, Clone)]
pub(super) enum Text {
    Given(String),
    /// One from earlier answers, whichever the index hits.
    Learned(Thing, Index),
}

/// One request, with gaps for ids from earlier answers.
#[derive(Clone)]
pub(super) struct Step {
    /// Seconds since the step before.
    pub(super) pause: u64,
    pub(super) key: Text,
    pub(super) operation: &'static str,
    pub(super) method: Method,
    /// The path below the base, by its segments.
    pub(super) path: Vec<Text>,
    pub(super) query: String,
    /// A parameter of the query whose value comes from earlier answers.
    pub(super) asked: Option<(&'static str, Text)>,
    pub(super) sent: Option<Sent>,
    pub(super) parts: Option<(&'static str, &'static str)>,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pause, key, operation, path, query, asked, sent, .. } = self;
        write!(f, "after {pause} s {key:?}: {operation} {path:?}?{query} {asked:?}")?;
        match sent {
            Some(Sent { document, file }) => write!(f, " {document} {file:?}"),
            None => Ok(()),
        }
    }
}

/// The requests of every operation of the API.
#[derive(Default)]
struct Steps(Vec<(u32, BoxedStrategy<Step>)>);

impl Visitor for Steps {
    fn visit<O: Operation>(&mut self) {
        let method: Method = format!("{:?}", O::METHOD).to_uppercase().parse().unwrap();
        let parts = match <O::Body as Body>::KIND {
            BodyKind::Form(parts) => Some((parts.document, parts.file)),
            BodyKind::Empty | BodyKind::Json | BodyKind::Raw => None,
        };
        let path: Vec<_> = O::PATH.split('/').skip(1).map(|segment| texts_of(segment, O::NAME)).collect();
        let step = (pauses(), keys(), path, queries(O::NAME), asked(O::NAME), sent(O::NAME));
        let step = step.prop_map(move |(pause, key, path, query, asked, sent)| Step {
            pause,
            key,
            operation: O::NAME,
            method: method.clone(),
            path,
            query,
            asked,
            sent,
            parts,
        });
        self.0.push((if O::METHOD == evidence_core::operation::Method::Get { 2 } else { 5 }, step.boxed()));
    }
}

fn steps() -> Union<BoxedStrategy<Step>> {
    let mut steps = Steps::default();
    api::operations(&mut steps);
    Union::new_weighted(steps.0)
}

/// Requests that make what most others need. A run begins with some of them.
fn setup_steps() -> Vec<Step> {
    let json = |method: Method, path: &[&str], document: Value| given(method, path, document, None);
    let environment = |name: &str, kind: &str| {
        let document = json!({"name": name, "type": kind, "description": "", "policies": null});
        json(Method::PUT, &["environments", "acme"], document)
    };
    let artifact = json!({
        "trail_name": "t1", "template_reference_name": "api", "fingerprint": FINGERPRINTS[0], "filename": "api",
        "git_commit": COMMITS[0], "build_url": "", "commit_url": "",
        "repo_info": {"name": "a/a", "url": "https://git.example.com/a/a", "provider": "github", "id": "1"},
    });
    let running = json!({"artifacts": [{"digests": {"api": FINGERPRINTS[0]}, "creationTimestamp": 1}]});
    let attestation = json!({"attestation_name": "test", "is_compliant": true});
    let file = Some(("data_json", "attachment_file", "evidence"));
    let flow = Some(("data_json", "template_file", TEMPLATES[2]));
    let policy = Some(("payload", "policy_file", POLICY));
    let keys = ["service-accounts", "acme", "ci", "api-keys"];
    vec![
        given(
            Method::PUT,
            &["flows", "acme", "template_file"],
            json!({"name": "web", "description": ""}),
            flow,
        ),
        json(Method::POST, &["artifacts", "acme", "web"], artifact),
        environment("prod", "docker"),
        environment("server", "server"),
        environment("all", "logical"),
        given(Method::PUT, &["policies", "acme"], json!({"name": "p"}), policy),
        json(Method::POST, &["environments", "acme", "prod", "policies"], json!({"policy_names": ["p"]})),
        json(Method::PUT, &["environments", "acme", "all", "join"], json!({"physical_env_name": "prod"})),
        json(Method::PUT, &["environments", "acme", "prod", "report", "docker"], running),
        given(Method::POST, &["attestations", "acme", "web", "trail", "t1", "generic"], attestation, file),
        Step {
            operation: "get_trail_attestation",
            sent: None,
            ..json(Method::GET, &["attestations", "acme", "web", "trail", "t1", "test"], Value::Null)
        },
        json(Method::POST, &["controls", "acme"], json!({"identifier": "c1", "name": "Review"})),
        json(Method::POST, &["service-accounts", "acme"], json!({"name": "ci", "privilege": "member"})),
        json(Method::POST, &keys, json!({"description": "x"})),
    ]
}

/// A request by jane, as a form where it has the names of its parts, and the text of its file.
fn given(
    method: Method,
    path: &[&str],
    document: Value,
    form: Option<(&'static str, &'static str, &str)>,
) -> Step {
    Step {
        pause: 0,
        key: Text::Given(JANE.to_owned()),
        operation: if path.last() == Some(&"api-keys") { "create_service_account_api_key" } else { "setup" },
        method,
        path: path.iter().map(|segment| Text::Given((*segment).to_owned())).collect(),
        query: String::new(),
        asked: None,
        sent: Some(Sent { document, file: form.map(|(.., text)| text.to_owned()) }),
        parts: form.map(|(document, file, _)| (document, file)),
    }
}

/// Runs: the setup steps, or some of them, and random requests.
pub(super) fn runs() -> impl Strategy<Value = Vec<Step>> {
    let setup_steps = setup_steps();
    let count = setup_steps.len();
    let begun = prop_oneof![3 => Just(setup_steps.clone()), 1 => subsequence(setup_steps, 0..=count)];
    (begun, vec(steps(), 20..=MAX_STEPS)).prop_map(|(begun, steps)| [begun, steps].concat())
}

fn pauses() -> BoxedStrategy<u64> {
    prop_oneof![6 => Just(0), 2 => 1..5_u64, 1 => select(vec![3600, 86_400, 40 * 86_400])].boxed()
}

fn keys() -> BoxedStrategy<Text> {
    let given = |key: &str| Just(Text::Given(key.to_owned()));
    prop_oneof![16 => given(JANE), 1 => given(JOHN), 3 => learned(Thing::Secret), 1 => given("unknown")]
        .boxed()
}

fn learned(thing: Thing) -> BoxedStrategy<Text> {
    any::<Index>().prop_map(move |index| Text::Learned(thing, index)).boxed()
}

fn one_of(names: &'static [&'static str]) -> BoxedStrategy<Text> {
    // The last one names nothing, and is rarely meant.
    let known = names.split_last().map_or(names, |(_, known)| known);
    let text = prop_oneof![9 => select(known), 1 => select(names)];
    text.prop_map(|name| Text::Given(name.to_owned())).boxed()
}

/// The possible segments of a path.
fn texts_of(segment: &str, operation: &str) -> BoxedStrategy<Text> {
    let Some(parameter) = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')) else {
        return Just(Text::Given(segment.to_owned())).boxed();
    };
    match parameter {
        "org" => prop_oneof![20 => one_of(&["acme", ""]), 1 => one_of(&["foobar", "jane", ""])].boxed(),
        // The attestation of the setup steps, with its file, is there.
        "flow_name" if operation == "get_attestation_evidence" => one_of(&["web", "shop"]),
        "trail_name" if operation == "get_attestation_evidence" => one_of(&["t1", "t2"]),
        "flow_name" => one_of(FLOWS),
        "trail_name" => one_of(TRAILS),
        "env_name" if operation == "server_report" => one_of(&["server", "nothing"]),
        "env_name" if operation == "join_physical_to_logical" => one_of(&["all", "prod"]),
        "env_name" if operation == "docker_report" => one_of(&["prod", "test", "all"]),
        "env_name" => one_of(ENVIRONMENTS),
        "policy_name" => one_of(POLICIES),
        "name" => one_of(ACCOUNTS),
        "custom_attestation_type_name" => one_of(TYPES),
        "identifier" => one_of(CONTROLS),
        "action_number" | "notification_number" => one_of(&["1", "2", "3", "0", "x"]),
        "version_number" => one_of(&["1", "2", "0", "x"]),
        "attestation_name" => one_of(PARTS),
        "fingerprint" => prop_oneof![
            one_of(FINGERPRINTS),
            one_of(&[
                "aaaaa",
                "aaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
                "ccccc",
                "ddddd"
            ])
        ]
        .boxed(),
        "commit_sha" => prop_oneof![one_of(COMMITS), one_of(&["11111", "111111", "22222"])].boxed(),
        "search_value" => {
            prop_oneof![one_of(FINGERPRINTS), one_of(COMMITS), one_of(&["aaaaa", "11111", "ccccc", "fffff"])]
                .boxed()
        }
        "repo" => prop_oneof![learned(Thing::Repo), one_of(&["a/a", "x"])].boxed(),
        "repo_name" => one_of(&["a/a", "a%2Fa", "b/a", "a/a/", "tags"]),
        "attestation_id" | "decision_id" => learned(Thing::Attestation),
        "key_id" => learned(Thing::Key),
        "resource_type" => one_of(texts::TAGGED_KINDS),
        "resource_id" => {
            prop_oneof![one_of(FLOWS), one_of(ENVIRONMENTS), one_of(CONTROLS), learned(Thing::Repo)].boxed()
        }
        "snapshot_expression" => {
            one_of(&["1", "2", "-1", "~1", "NOW", "%231", "@%7B1.hours.ago%7D", "0", "9", "x"])
        }
        "index" | "record_id" => one_of(&["0", "3", "99999", "x"]),
        "tile" => one_of(&["0/000.p/1", "0/000.p/9", "entries/000.p/2", "1/000.p/1", "x"]),
        other => panic!("{operation}: say what may stand for '{other}' in a path, in {}", file!()),
    }
}

/// Some of the parameters that an operation knows.
fn queries(operation: &str) -> BoxedStrategy<String> {
    let known: &'static [&'static str] = match operation {
        "get_flows" => &[
            "page=1",
            "page=2",
            "per_page=1",
            "per_page=2",
            "per_page=0",
            "search_by_name=E",
            "search_by_name=",
            "case_sensitive=false",
            "tag=team",
            "tag=team:x",
            "space_id=s",
        ],
        "list_trails_for_org" => &[
            "page=1",
            "page=2",
            "per_page=1",
            "per_page=101",
            "flow=web",
            "flow=shop",
            "flow_tag=team",
            "flow_tag=team=x",
            "fingerprint=aaaaa",
            "fingerprint=ccccc",
            "fingerprint=x",
        ],
        "get_attestations" => &[
            "per_page=1",
            "per_page=2",
            "name=bar",
            "name_regex=^b",
            "name_regex=(",
            "flow=web",
            "flow=shop",
            "type=generic",
            "type=x",
            "is_compliant=true",
            "from_timestamp=1",
            "to_timestamp=1",
            "after=3",
            "after=f2",
            "after=x",
        ],
        "get_flow_attestations" => &["page=1", "page=2", "per_page=1", "per_page=101", "from_timestamp=1"],
        "list_attestations_for_criteria" => &[
            "commit_list=0123456789abcdef0123456789abcdef01234567",
            "commit_list=x",
            "flow_name=web",
            "attestation_name=bar",
            "attestation_type=generic",
        ],
        "get_ledger_consistency" => {
            &["from=0", "from=1", "from=3", "from=99999", "from=x", "to=2", "to=99999"]
        }
        "get_ledger_entries" => &["to=0", "to=3", "to=99999", "to=x"],
        "get_ledger_proof" => &["format=json", "format=cose", "format=x"],
        "get_trail" => &["expand=attestations"],
        "list_trails" => &["page=1", "page=2", "per_page=1", "per_page=2", "per_page=101"],
        "list_artifacts" => &[
            "page=1",
            "page=2",
            "per_page=1",
            "per_page=2",
            "flow_name=web",
            "flow_name=nothing",
            "repo_name=a/a",
            "repo_name=b/a",
        ],
        "list_envs" => &[
            "page=1",
            "page=2",
            "per_page=2",
            "sort=last_modified_at",
            "sort=last_changed_at",
            "sort_direction=desc",
            "name=PRO",
            "type=docker",
            "type=logical",
            "tag=team",
            "tag=tier:x",
        ],
        "list_repos" => &[
            "page=1",
            "page=2",
            "per_page=1",
            "per_page=3",
            "name=a/a",
            "search=A",
            "provider=github",
            "provider=git",
            "repo_id=1",
            "repo_id=",
            "vcs_instance=git.example.com",
            "namespace=a",
            "namespace=a/b",
            "sort_direction=desc",
            "tag=team",
            "tag=tier:x",
        ],
        "list_repo_filter_options" => &[
            "provider=github",
            "vcs_instance=git.example.com",
            "namespace=a",
            "namespace=",
            "tag=team",
            "tag=tier:x",
        ],
        "list_builds" | "build_statistics" => &[
            "page=1",
            "page=2",
            "per_page=0",
            "per_page=1",
            "per_page=51",
            "repo_name=a/a",
            "repo_name=b/a",
            "repo_id=1",
            "repo_id=",
            "repo_inner_id=x",
            "start_ts=0",
            "end_ts=1776252300.5",
        ],
        "list_deployments" => &[
            "page=1",
            "page=2",
            "per_page=0",
            "per_page=1",
            "repo_name=a/a",
            "repo_name=b/a",
            "env_name=prod",
            "env_name=all",
            "repo_name=a/a&env_name=test",
            "start_ts=0",
            "end_ts=1776252300.5",
        ],
        "list_repo_deployments" | "get_repo_deployment_statistics" => {
            &["page=2", "per_page=0", "per_page=1", "env=prod", "env=all", "env=prod&env=test", "start_ts=0"]
        }
        "list_env_deployments" => &[
            "page=1",
            "page=2",
            "page_size=1",
            "page_size=0",
            "from=2020-01-01",
            "from=2020-01-01T00:00:00Z",
            "to=2026-04-15T12:00:00",
            "to=x",
        ],
        "get_deployment_frequency" => &["flow_id=x", "flow_id="],
        "get_repo" | "get_repo_live_artifacts" => &["provider=github", "provider=git", "id=x"],
        "list_snapshots" => &[
            "page=1",
            "page=2",
            "per_page=1",
            "per_page=2",
            "reverse=true",
            "interval=1..2",
            "interval=-2..",
            "interval=@%7B1.hours.ago%7D..NOW",
            "interval=@%7B2.days.ago%7D",
            "interval=x",
        ],
        "get_env_events" => &[
            "page=2",
            "per_page=1",
            "per_page=2",
            "per_page=101",
            "reverse=true",
            "interval=1..2",
            "interval=x",
            "repo_name=a/a",
            "repo_name=x",
            "start=-2",
            "start=1hour&end=NOW",
            "start=2&end=1",
            "start=",
            "start_ts=0",
            "end_ts=1776252300.5",
        ],
        "get_env_auditlog" => &[
            "event_types=started",
            "event_types=exited,changed",
            "event_types=scaled",
            "flow_names=web,no%20provenance",
            "flow_names=shop",
            "repo_names=a/a",
            "repo_names=x",
            "from_timestamp=1776252300.5",
            "to_timestamp=0",
        ],
        "environment_diff" => &[
            "snappish1=prod&snappish2=prod",
            "snappish1=prod%231&snappish2=prod",
            "snappish1=prod%7E1&snappish2=server",
            "snappish1=server&snappish2=prod@%7Bnow%7D",
            "snappish1=&snappish2=prod",
            "snappish1=prod&snappish2=nothing",
        ],
        "assert_artifact" => &[
            "flow_name=web",
            "flow_name=shop",
            "environment_name=prod",
            "environment_name=server",
            "policy_name=p",
            "policy_name=q",
        ],
        "get_artifact_by_fingerprint" | "get_artifact_by_commit_sha" => {
            &["trail=t1", "trail=t2", "trail=nothing"]
        }
        "get_latest_artifact_commit" => &["branch=main", "branch=release"],
        "list_controls" => &[
            "page=1",
            "page=2",
            "per_page=1",
            "sort_direction=desc",
            "search=C",
            "archived=true",
            "archived=false",
            "tag=team",
            "tag=tier:x",
        ],
        "list_audit_log" => &[
            "page=2",
            "per_page=1",
            "search=J",
            "event_type=added",
            "role=admin",
            "source=script",
            "from_timestamp=1",
            "to_timestamp=1.5",
            "sort_by=changed_by",
            "sort_dir=asc",
        ],
        "list_control_versions" => &["page=1", "page=2", "per_page=1", "per_page=101", "sort_direction=asc"],
        "list_control_decisions" => &[
            "page=1",
            "page=2",
            "per_page=1",
            "is_compliant=true",
            "is_compliant=false",
            "from_timestamp=1783538510",
            "to_timestamp=1783538510.5",
            "flow_id=x",
            "sort_direction=asc",
        ],
        "get_control_coverage" => {
            &["page=1", "page=2", "per_page=1", "search=P", "covered=true", "covered=false"]
        }
        "get_custom_attestation_type" => &["version=1", "version=2", "version=-1"],
        _ => &[],
    };
    subsequence(known, 0..=known.len().min(3)).prop_map(|query| query.join("&")).boxed()
}

/// An id that the query asks for.
fn asked(operation: &str) -> BoxedStrategy<Option<(&'static str, Text)>> {
    let thing = match operation {
        "get_attestations" => Thing::Attestation,
        "get_artifact_by_fingerprint" => Thing::Artifact,
        _ => return Just(None).boxed(),
    };
    let asked = learned(thing).prop_map(|id| Some(("attestation_id", id)));
    if thing == Thing::Artifact { prop_oneof![Just(None), asked].boxed() } else { asked.boxed() }
}

/// The body of a request; mostly one that is accepted.
fn sent(operation: &'static str) -> BoxedStrategy<Option<Sent>> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let known = ExistingNames {
        environments: names(&["prod", "test"]),
        policies: names(&["p", "q"]),
        fingerprints: names(FINGERPRINTS),
        attestation_types: names(TYPES),
        controls: names(&["c1"]),
    };
    let Some(requests) = Requests::of(operation, &known) else { return Just(None).boxed() };
    let valid = requests.valid().prop_map(move |sent| familiar(sent, operation));
    let template = (requests.valid(), select(TEMPLATES)).prop_map(move |(sent, template)| {
        let is_templated = matches!(operation, "create_flow_with_template" | "create_trail");
        let file = if is_templated { Some(template.to_owned()) } else { sent.file };
        familiar(Sent { file, document: sent.document }, operation)
    });
    let refused = requests.refused().prop_map(|refused| refused.sent);
    prop_oneof![8 => valid, 6 => template, 1 => refused].prop_map(Some).boxed()
}

/// The same, with the names that other requests use.
fn familiar(mut sent: Sent, operation: &str) -> Sent {
    let names = match operation {
        "create_flow_with_template" | "create_flow" => FLOWS,
        "create_trail" => TRAILS,
        "create_env" if sent.document["type"] == "server" => &["server", "server"],
        "create_env" if sent.document["type"] == "logical" => &["all", "all"],
        "create_env" => {
            sent.document["type"] = json!("docker");
            &["prod", "test"]
        }
        "put_policy" => POLICIES,
        "create_service_account" => ACCOUNTS,
        "post_custom_attestation_type" => TYPES,
        _ => &[],
    };
    if !names.is_empty() {
        choose(&mut sent.document["name"], names);
    }
    if operation == "post_control" {
        choose(&mut sent.document["identifier"], &["c1", "c2"]);
    }
    make_familiar(&mut sent.document);
    sent
}

/// One of these in the place of a text, always the same for the same text.
fn choose(text: &mut Value, names: &[&str]) {
    if let Value::String(found) = text {
        let sum: usize = found.bytes().map(usize::from).sum();
        *text = names[sum % names.len()].into();
    }
}

fn make_familiar(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(make_familiar),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match name.as_str() {
                    "fingerprint" | "artifact_fingerprint" => choose(value, FINGERPRINTS),
                    "git_commit" | "sha1" => choose(value, COMMITS),
                    "new_name" => choose(value, FLOWS),
                    "trail_name" => choose(value, TRAILS),
                    "attestation_name" | "template_reference_name" => choose(value, PARTS),
                    "physical_env_name" => choose(value, ENVIRONMENTS),
                    "target_artifacts" => {
                        value.as_array_mut().into_iter().flatten().for_each(|item| choose(item, PARTS))
                    }
                    "digests" => {
                        value
                            .as_object_mut()
                            .into_iter()
                            .flatten()
                            .for_each(|(_, digest)| choose(digest, FINGERPRINTS));
                    }
                    "set_tags" => familiar_tags(value),
                    "remove_tags" => {
                        value.as_array_mut().into_iter().flatten().for_each(|item| choose(item, TAGS))
                    }
                    _ => make_familiar(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The first of the tags under one of the usual keys, with one of few values.
fn familiar_tags(tags: &mut Value) {
    let first = tags.as_object().and_then(|tags| tags.iter().next());
    let Some((mut key, mut value)) = first.map(|(key, value)| (json!(key), value.clone())) else { return };
    choose(&mut key, TAGS);
    choose(&mut value, &["x", "y"]);
    *tags = json!({ key.as_str().unwrap_or_default(): value });
}
