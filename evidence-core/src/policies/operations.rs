//! Operations on policies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::{Description, ShortText};
use crate::compute::LONG_YAML;
use crate::context::{Context, Draft};
use crate::decode::UnknownFields;
use crate::decode::{self, InvalidField, given};
use crate::environments::evaluation::Changed;
use crate::environments::reevaluation::reevaluate_all;
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::id::Id;
use crate::json::CheckedJson;
use crate::name::{OrgName, PolicyName};
use crate::operation::versions::Version;
use crate::operation::{Document, Form, FormParts, JsonStream, Method, Operation, Put};
use crate::page::Listed;
use crate::policies::record::{DescriptionChange, Policy, PolicyVersion};
use crate::policies::view::{self, PolicyView};
use crate::rules::policy;
use crate::store::batch::sort_by_ids;
use crate::store::entry::Current;

/// Returns the policies of these names in their order, each once. `field` is the field with the names. Adds
/// preconditions that hold while the names still refer to the same policies.
pub(crate) async fn named(
    names: &[ShortText],
    field: &'static str,
    preconditions: &mut Vec<Precondition>,
    cx: &Context<'_>,
) -> Result<Vec<Current<Policy>>> {
    let asked = Vec::from_iter(names.iter().map(ShortText::as_str));
    let known = cx.store().policies_named(cx.org()?, &asked).await?.into_iter();
    let known: BTreeMap<_, _> = known.map(|known| (known.record.name.to_string(), known)).collect();
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for name in asked {
        let known = known.get(name).ok_or_else(|| cx.missing(Resource::Policy, name).named_by(field))?;
        if seen.insert(known.record.id) {
            preconditions
                .push(Precondition::Denotes(Key::Policy(known.record.name.clone()), known.record.id));
            found.push(known.clone());
        }
    }
    Ok(found)
}

/// Lists the policies of an organization, sorted by name, each with all its versions.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListPolicies {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for ListPolicies {
    const NAME: &'static str = "list_policies";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/policies/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the policies of an organization";
    type Body = ();
    type Output = JsonStream<Vec<PolicyView>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        Ok(JsonStream::new(view::list_text(cx).await?, cx.compute()))
    }
}

/// Gets a policy with all its versions.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetPolicy {
    /// The organization's name.
    pub org: OrgName,
    /// The policy's name.
    pub policy_name: PolicyName,
}

impl Operation for GetPolicy {
    const NAME: &'static str = "get_policy";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/policies/{org}/{policy_name}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a policy";
    type Body = ();
    type Output = JsonStream<PolicyView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let org = cx.org()?;
        let known = cx.store().policy(org, self.policy_name.as_str()).await?;
        let missing = || cx.missing(Resource::Policy, self.policy_name.as_str());
        let policy = known.ok_or_else(missing)?.record;
        Ok(JsonStream::new(view::text(policy, cx).await?, cx.compute()))
    }
}

/// Creates a policy (201), or updates the policy of that name (200). A new policy needs the file; without it,
/// the request is 400. A file with a text other than that of the newest version becomes a new version, and
/// artifacts in environments that use the policy are evaluated again. If that exceeds the host's limit, the
/// artifacts are not compliant, and the snapshot gives the reason. A text that is not a policy, or requires
/// decisions about a control that does not exist, is 400. Versions never change.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutPolicy {
    /// The organization's name.
    pub org: OrgName,
}

/// The `type` of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[non_exhaustive]
pub enum PolicyKind {
    /// A policy for environments, the only kind.
    #[default]
    #[serde(rename = "env")]
    Environment,
}

/// The document that creates or updates a policy.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "PolicyPutInput")]
#[serde(deny_unknown_fields)]
pub struct PolicyInput {
    /// The policy's name. An existing policy of this name is updated.
    pub name: PolicyName,
    /// A description of its purpose. If left out, the present one stays.
    // Skipped when serialized: otherwise the schema would have null as the default, which is refused.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Description")]
    pub description: Option<Description>,
    /// `env`. Optional.
    #[serde(default, rename = "type")]
    pub kind: PolicyKind,
    /// A comment on the change. A new version records it. Without a new version, it becomes an event of the
    /// policy, unless it equals the last comment.
    #[serde(default)]
    pub comment: Description,
}

const FILE: &str = "policy_file";

impl Document for PolicyInput {
    const PARTS: FormParts = FormParts { document: "payload", file: FILE, many: false };

    fn read(text: CheckedJson<'_>) -> Result<Self, InvalidField> {
        decode::from_json(text)
    }
}

impl Operation for PutPolicy {
    const NAME: &'static str = "put_policy";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/policies/{org}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Creates a policy or adds a version to it";
    type Body = Form<PolicyInput>;
    type Output = Put<JsonStream<PolicyView>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, body: Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let (input, text) = body.into_text(FILE, cx.limits().policy).await?;
        let text = match text {
            Some(text) => {
                let heavy = text.len() > LONG_YAML || policy::Policy::is_slow_to_parse(&text);
                Some(cx.compute().run_if(heavy, move || Uploaded::read(text)).await??)
            }
            None => None,
        };
        let Done { created, policy, versioned } = cx.retry(|| put(&input, text.as_ref(), cx)).await?;
        if versioned {
            reevaluate_consumers(&input.name, cx).await?;
        }
        let body = JsonStream::new(view::text(policy, cx).await?, cx.compute());
        Ok(Put { created, body })
    }
}

/// An uploaded text that is a valid policy.
struct Uploaded {
    text: String,
    policy: Arc<policy::Policy>,
}

impl Uploaded {
    /// Parses a text. Refuses one that is not a policy.
    fn read(text: String) -> Result<Self> {
        let policy =
            policy::Policy::parse(&text).map_err(|errors| Error::invalid(FILE, errors.to_string()))?;
        Ok(Self { text, policy: Arc::new(policy) })
    }

    /// Refuses a policy that requires decisions about a control that does not exist: nothing would ever
    /// comply with it. An archived control exists.
    async fn check_controls(&self, cx: &Context<'_>) -> Result<()> {
        let asked = Vec::from_iter(self.policy.controls());
        if asked.is_empty() {
            return Ok(());
        }
        let known = BTreeSet::from_iter(cx.store().controls_named(cx.org()?, &asked).await?);
        match asked.into_iter().find(|control| !known.contains(*control)) {
            None => Ok(()),
            Some(control) => {
                Err(Error::invalid(FILE, format!("for_control: there is no control '{control}'")))
            }
        }
    }
}

/// The result of putting a policy.
struct Done {
    created: bool,
    policy: Policy,
    /// Whether environments with this policy may have to be evaluated against its text. The text may also be that of
    /// an earlier attempt, interrupted before the evaluations.
    versioned: bool,
}

async fn put(input: &PolicyInput, file: Option<&Uploaded>, cx: &Context<'_>) -> Result<Done> {
    let known = cx.store().policy(cx.org()?, input.name.as_str()).await?;
    let Some(Current { revision, record }) = known else {
        let file = file.ok_or_else(|| Error::invalid(FILE, "Field required [input: None]"))?;
        file.check_controls(cx).await?;
        let (record, version) = first(input, &file.text, cx);
        let fact = Fact::PolicyCreated { record: record.clone(), version };
        cx.record(Draft::of(fact, Precondition::Vacant(Key::Policy(input.name.clone())))).await?;
        return Ok(Done { created: true, policy: record, versioned: false });
    };
    let comment = input.comment.as_str();
    let latest = match file.is_some() || !comment.is_empty() {
        true => Some(PolicyVersion::one((record.id, record.version), cx).await?),
        false => None,
    };
    let is_new = |file: &&Uploaded| latest.as_ref().is_some_and(|latest| file.text != latest.policy_yaml);
    let new = file.filter(is_new);
    let last_comment = record.latest_comment().or_else(|| Some(latest.as_ref()?.comment.as_str()));
    let comment = Some(comment).filter(|comment| !comment.is_empty() && Some(*comment) != last_comment);
    let most = cx.limits().policy_versions;
    if new.is_some() && record.version >= most {
        let text = format!("Policy '{}' has {most} versions and takes no more", record.name);
        return Err(Error::invalid(FILE, text));
    }
    if let Some(file) = new {
        file.check_controls(cx).await?;
    }
    let (policy, version) = updated(&record, input, comment, new.map(|file| file.text.as_str()), cx);
    if policy != record {
        let comment = Some(input.comment.clone().into_string());
        let comment = comment.filter(|comment| version.is_none() && !comment.is_empty());
        let fact = Fact::PolicyUpdated { record: policy.clone(), version, comment };
        cx.record(Draft::of(fact, Precondition::Revision(RecordKind::Policy, record.id, revision))).await?;
    }
    Ok(Done { created: false, policy, versioned: file.is_some() })
}

fn first(input: &PolicyInput, text: &str, cx: &Context<'_>) -> (Policy, PolicyVersion) {
    let record = Policy {
        id: cx.new_id(),
        name: input.name.clone(),
        description: input.description.clone().unwrap_or_default().into_string(),
        version: 1,
        created_at: cx.now(),
        created_by: cx.actor(),
        last_modified_at: cx.now(),
        description_changes: Vec::new(),
        unknown: UnknownFields::default(),
    };
    let version = version_of(&record, input, text, cx);
    (record, version)
}

/// Returns the updated policy, with a new version if there is a new text. `comment` is the comment of the
/// input, if it is new.
fn updated(
    known: &Policy,
    input: &PolicyInput,
    comment: Option<&str>,
    text: Option<&str>,
    cx: &Context<'_>,
) -> (Policy, Option<PolicyVersion>) {
    let (mut record, at) = (known.clone(), cx.now_after(known.last_modified_at));
    // A version records its own comment.
    let comment = comment.filter(|_| text.is_none());
    let description = input.description.clone().map(Description::into_string);
    let description = description.filter(|description| *description != record.description);
    if description.is_some() || comment.is_some() {
        let comment = comment.unwrap_or_default().to_owned();
        record.push_change(DescriptionChange { at, by: cx.actor(), version: record.version, comment });
    }
    record.description = description.unwrap_or(record.description);
    if text.is_some() {
        record.version += 1;
    }
    if record != *known {
        record.last_modified_at = at;
    }
    let version = text.map(|text| version_of(&record, input, text, cx));
    (record, version)
}

fn version_of(record: &Policy, input: &PolicyInput, text: &str, cx: &Context<'_>) -> PolicyVersion {
    PolicyVersion {
        policy: record.id,
        version: record.version,
        comment: input.comment.clone().into_string(),
        policy_yaml: text.to_owned(),
        at: record.last_modified_at,
        by: cx.actor(),
    }
}

/// Evaluates the environments with this policy again, against its latest version. Each environment is
/// evaluated in a separate write, one after another, so a conflict affects only one. If this is interrupted,
/// the job [`Reevaluate`](super::Reevaluate) or the next report of an environment does it. Continues after an
/// error, and returns the first.
async fn reevaluate_consumers(policy: &PolicyName, cx: &Context<'_>) -> Result<()> {
    let Some(policy) = cx.store().policy(cx.org()?, policy.as_str()).await? else { return Ok(()) };
    let mut attached = Vec::new();
    for ids in Listed::batches(cx.store().environments_listed(cx.org()?).await?) {
        attached.extend(consumers(policy.record.id, &ids, cx).await?);
    }
    reevaluate_all(attached, Changed::Policies, cx).await
}

/// Returns those of these environments to which the policy is attached, in their order.
async fn consumers(
    policy: Id,
    ids: &[Id],
    cx: &Context<'_>,
) -> Result<impl Iterator<Item = KnownEnvironment> + use<>> {
    let mut environments = cx.store().environments_by_id(cx.org()?, ids).await?;
    sort_by_ids(&mut environments, ids, |known| known.record.id);
    let is_one = move |known: &KnownEnvironment| !known.archived && known.record.policies.contains(&policy);
    Ok(environments.into_iter().filter(is_one))
}
