//! The report of each kind of environment.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded::{LenientList, LongText, ShortText};
use crate::environments::record::EnvironmentKind;
use crate::json::{JsonFields, JsonText};
use crate::name::{Fingerprint, InvalidText};
use crate::time::{MAX_SECONDS, check_seconds};

/// A kind of environment that gets reports, as the `type` of its reports. The type has only this value.
pub trait ReportType:
    Serialize + DeserializeOwned + JsonSchema + Default + Debug + Send + Sync + 'static
{
    /// The kind.
    const KIND: EnvironmentKind;
    /// The id of the operation that accepts its reports.
    const NAME: &'static str;
    /// The path of the operation.
    const PATH: &'static str;
    /// The summary of the operation.
    const SUMMARY: &'static str;
    /// The form of its running instances.
    type Instance: Instance;
}

/// A running instance, such as a container, a pod or a task, with its artifacts.
pub trait Instance: DeserializeOwned + JsonSchema + Debug + Send + Sync + 'static {
    /// The data about an artifact that only instances of this kind have.
    type Context: Default + Send;

    /// Returns the names of its artifacts, with the SHA-256 of each if known.
    fn artifacts(&self) -> impl Iterator<Item = (&LongText, Option<&Fingerprint>)>;
    /// Returns when it was created.
    fn created(&self) -> Creation;
    /// Adds its data to those of the artifact's other instances.
    fn describe(&self, context: &mut Self::Context);
    /// Returns about how many bytes it adds to the data of an artifact. 0 if only the newest instance's data
    /// are recorded.
    fn context_bytes(&self) -> usize {
        0
    }
    /// Converts the data to recorded fields, with the keys that responses use.
    ///
    /// # Errors
    /// Returns an error if the data cannot be written as JSON.
    fn fields(context: Self::Context) -> serde_json::Result<JsonFields>;
}

/// A report of all running artifacts of an environment.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, bound = "T: ReportType")]
#[schemars(rename = "{T}Report")]
pub struct EnvironmentReport<T: ReportType> {
    /// The environment's type. Optional.
    #[serde(default, rename = "type")]
    pub kind: T,
    /// The running artifacts. An artifact that is listed several times counts as one with several instances.
    /// Elements that are null or have no digest are skipped.
    pub artifacts: LenientList<T::Instance, MAX_RUNNING>,
}

/// The most instances in one report. Each has more than a hundred bytes of JSON, and
/// [`Limits::report`](crate::Limits::report) allows 16 MiB by default.
const MAX_RUNNING: usize = (1 << 17) - 1;

/// The most artifacts of one instance.
const MAX_DIGESTS: usize = 1000;

/// The artifacts of an instance: the SHA-256 of each, by name. Empty or null if the instance has none, such
/// as an evicted pod.
// Fields of this type use `Deserialize::deserialize`, so that serde does not treat a missing field as null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Digests<D = Fingerprint>(pub BTreeMap<LongText, D>);

impl<'de, D: Deserialize<'de>> Deserialize<'de> for Digests<D> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        let digests = Option::<BTreeMap<LongText, D>>::deserialize(deserializer)?.unwrap_or_default();
        if digests.len() > MAX_DIGESTS {
            let text = format_args!("Dictionary should have at most {MAX_DIGESTS} items");
            return Err(serde::de::Error::custom(text));
        }
        Ok(Self(digests))
    }
}

impl<D: JsonSchema> JsonSchema for Digests<D> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Digests".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let digest = generator.subschema_for::<D>();
        let name = generator.subschema_for::<LongText>();
        schemars::json_schema!({
            "type": ["object", "null"], "maxProperties": MAX_DIGESTS, "propertyNames": name,
            "additionalProperties": digest,
        })
    }
}

impl Digests {
    fn iter(&self) -> impl Iterator<Item = (&LongText, Option<&Fingerprint>)> {
        self.0.iter().map(|(name, digest)| (name, Some(digest)))
    }
}

impl Digests<DigestOrNone> {
    fn iter(&self) -> impl Iterator<Item = (&LongText, Option<&Fingerprint>)> {
        self.0.iter().map(|(name, digest)| (name, digest.0.as_ref()))
    }
}

/// The SHA-256 of an artifact: 64 lower-case hex digits. An empty string or null if the environment does not
/// know it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Option<String>")]
pub struct DigestOrNone(pub Option<Fingerprint>);

impl TryFrom<Option<String>> for DigestOrNone {
    type Error = InvalidText;

    fn try_from(text: Option<String>) -> Result<Self, InvalidText> {
        text.filter(|text| !text.is_empty()).map(TryInto::try_into).transpose().map(Self)
    }
}

impl JsonSchema for DigestOrNone {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "DigestOrNone".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": ["string", "null"], "pattern": "^([a-f0-9]{64})?$", "maxLength": 64 })
    }
}

/// A creation time: an integer of epoch seconds, 0 or later. Null means 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Creation(pub i64);

impl<'de> Deserialize<'de> for Creation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = Option::<i64>::deserialize(deserializer)?.unwrap_or_default();
        if seconds < 0 {
            return Err(serde::de::Error::custom("Input should be greater than or equal to 0"));
        }
        check_seconds(seconds).map_err(serde::de::Error::custom)?;
        Ok(Self(seconds))
    }
}

impl JsonSchema for Creation {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Creation".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": ["integer", "null"], "minimum": 0, "maximum": MAX_SECONDS })
    }
}

/// A running instance of which only the digests and the creation time are known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlainArtifact {
    /// The SHA-256 of its artifacts, by name. Without one it is skipped.
    #[serde(deserialize_with = "Deserialize::deserialize")]
    pub digests: Digests,
    /// When it was created, in epoch seconds: 0 or later.
    #[serde(rename = "creationTimestamp", deserialize_with = "Deserialize::deserialize")]
    pub created: Creation,
}

impl Instance for PlainArtifact {
    type Context = ();

    fn artifacts(&self) -> impl Iterator<Item = (&LongText, Option<&Fingerprint>)> {
        self.digests.iter()
    }
    fn created(&self) -> Creation {
        self.created
    }
    fn describe(&self, (): &mut ()) {}
    fn fields((): ()) -> serde_json::Result<JsonFields> {
        Ok(JsonFields::default())
    }
}

/// A pod of a Kubernetes environment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "K8SArtifact")]
pub struct Pod {
    /// Its name.
    #[serde(rename = "podName")]
    pub name: ShortText,
    /// The namespace that contains it.
    pub namespace: ShortText,
    /// The SHA-256 of its containers' images, by name; empty if not known. Without an image, the pod is
    /// skipped.
    #[serde(deserialize_with = "Deserialize::deserialize")]
    pub digests: Digests<DigestOrNone>,
    /// When it was created, in epoch seconds: 0 or later.
    #[serde(rename = "creationTimestamp", deserialize_with = "Deserialize::deserialize")]
    pub created: Creation,
    /// The objects that own it, as reported by Kubernetes.
    pub owners: Option<LenientList<PodOwner, 100>>,
}

/// An object that owns a pod. Other fields are accepted but not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "K8SOwner")]
pub struct PodOwner {
    /// The version of its API.
    pub api_version: ShortText,
    /// Its kind, such as `ReplicaSet`.
    pub kind: ShortText,
    /// Its name.
    pub name: ShortText,
    /// Its id in the cluster.
    pub uid: ShortText,
    /// Whether it controls the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether it cannot be removed before the pod is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl PodOwner {
    /// Returns its approximate size in memory, in bytes.
    fn bytes(&self) -> usize {
        size_of_val(self) + self.api_version.len() + self.kind.len() + self.name.len() + self.uid.len()
    }
}

/// A pod in responses, by its name.
#[derive(Debug, Serialize)]
pub struct PodContext {
    namespace: String,
    #[serde(rename = "creationTimestamp")]
    created: Creation,
    owners: Vec<PodOwner>,
}

impl Instance for Pod {
    type Context = BTreeMap<String, PodContext>;

    fn artifacts(&self) -> impl Iterator<Item = (&LongText, Option<&Fingerprint>)> {
        self.digests.iter()
    }
    fn created(&self) -> Creation {
        self.created
    }
    /// Adds the pod. The namespace distinguishes pods with the same name.
    fn describe(&self, pods: &mut Self::Context) {
        let is_taken = |pod: &PodContext| pod.namespace != *self.namespace;
        let name = if pods.get(&*self.name).is_some_and(is_taken) {
            format!("{}/{}", &*self.namespace, &*self.name)
        } else {
            self.name.to_string()
        };
        let owners = self.owners.as_ref().map(|owners| owners.items.clone()).unwrap_or_default();
        pods.insert(
            name,
            PodContext { namespace: self.namespace.to_string(), created: self.created, owners },
        );
    }
    fn context_bytes(&self) -> usize {
        let owners = self.owners.iter().flat_map(|owners| &owners.items).map(PodOwner::bytes);
        size_of::<PodContext>() + self.name.len() + self.namespace.len() + owners.sum::<usize>()
    }
    fn fields(pods: Self::Context) -> serde_json::Result<JsonFields> {
        one_field("pods", &pods)
    }
}

/// A task of an ECS environment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ECSArtifact")]
pub struct EcsTask {
    /// The SHA-256 of its containers' images, by name; empty if not known. Without an image, the task is
    /// skipped.
    #[serde(deserialize_with = "Deserialize::deserialize")]
    pub digests: Digests<DigestOrNone>,
    /// Its ARN.
    #[serde(rename = "taskArn")]
    pub task_arn: LongText,
    /// The name of its cluster.
    #[serde(alias = "clusterName")]
    pub cluster_name: Option<ShortText>,
    /// The name of its service.
    #[serde(alias = "serviceName")]
    pub service_name: Option<ShortText>,
    /// When it was created, in epoch seconds: 0 or later.
    #[serde(rename = "creationTimestamp", deserialize_with = "Deserialize::deserialize")]
    pub created: Creation,
}

/// A task in responses: the newest task of an artifact.
#[derive(Debug, Serialize)]
pub struct TaskContext {
    task_arn: String,
    cluster_name: Option<String>,
    service_name: Option<String>,
}

impl Instance for EcsTask {
    type Context = Option<(Creation, TaskContext)>;

    fn artifacts(&self) -> impl Iterator<Item = (&LongText, Option<&Fingerprint>)> {
        self.digests.iter()
    }
    fn created(&self) -> Creation {
        self.created
    }
    fn describe(&self, newest: &mut Self::Context) {
        let text = |text: &Option<ShortText>| text.as_ref().map(ToString::to_string);
        let task = || TaskContext {
            task_arn: self.task_arn.to_string(),
            cluster_name: text(&self.cluster_name),
            service_name: text(&self.service_name),
        };
        replace_older(newest, self.created, task);
    }
    fn fields(newest: Self::Context) -> serde_json::Result<JsonFields> {
        one_field("ecs_context", &newest.map(|(_, task)| task))
    }
}

/// An Azure web or function app.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AzureAppsArtifact")]
pub struct AzureApp {
    /// The SHA-256 of its images, by name; empty if not known. Without an image, the app is skipped.
    #[serde(deserialize_with = "Deserialize::deserialize")]
    pub digests: Digests<DigestOrNone>,
    /// The source of the digests.
    pub digests_source: AzureDigests,
    /// Its name.
    pub app_name: ShortText,
    /// Azure's name for its kind, such as `app` or `functionapp,linux,container`.
    pub app_kind: ShortText,
    /// When it was created, in epoch seconds: 0 or later.
    #[serde(rename = "creationTimestamp", deserialize_with = "Deserialize::deserialize")]
    pub created: Creation,
}

/// The source of an Azure app's digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AzureDigests {
    /// Its registry.
    #[serde(rename = "acr")]
    Registry,
    /// Its logs.
    #[serde(rename = "logs")]
    Logs,
    /// The reporting client.
    #[serde(rename = "kosli-cli")]
    Client,
}

/// An Azure app as recorded.
#[derive(Debug, Serialize)]
pub struct AppContext {
    app_name: String,
    app_kind: String,
    digests_source: AzureDigests,
}

impl Instance for AzureApp {
    type Context = Option<(Creation, AppContext)>;

    fn artifacts(&self) -> impl Iterator<Item = (&LongText, Option<&Fingerprint>)> {
        self.digests.iter()
    }
    fn created(&self) -> Creation {
        self.created
    }
    fn describe(&self, newest: &mut Self::Context) {
        let app = || AppContext {
            app_name: self.app_name.to_string(),
            app_kind: self.app_kind.to_string(),
            digests_source: self.digests_source,
        };
        replace_older(newest, self.created, app);
    }
    fn fields(newest: Self::Context) -> serde_json::Result<JsonFields> {
        one_field("azure_context", &newest.map(|(_, app)| app))
    }
}

/// A Google Cloud Run service or job.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CloudRunArtifact")]
pub struct CloudRunResource {
    /// The SHA-256 of its images, by name; empty if not known. Without an image, the resource is skipped.
    #[serde(deserialize_with = "Deserialize::deserialize")]
    pub digests: Digests<DigestOrNone>,
    /// When its revision or execution was created, in epoch seconds: 0 or later.
    #[serde(rename = "creationTimestamp", deserialize_with = "Deserialize::deserialize")]
    pub created: Creation,
    /// Whether it is a service or a job.
    pub kind: CloudRunKind,
    /// The service's name.
    #[serde(rename = "serviceName")]
    pub service_name: Option<ShortText>,
    /// The name of the service's revision.
    #[serde(rename = "revisionName")]
    pub revision_name: Option<ShortText>,
    /// The job's name.
    #[serde(rename = "jobName")]
    pub job_name: Option<ShortText>,
}

/// The kind of a Google Cloud Run resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the variants are the values")]
pub enum CloudRunKind {
    Service,
    Job,
}

/// A Cloud Run service or job as recorded.
#[derive(Debug, Serialize)]
pub struct CloudRunContext {
    kind: CloudRunKind,
    service_name: Option<String>,
    revision_name: Option<String>,
    job_name: Option<String>,
}

impl Instance for CloudRunResource {
    type Context = Option<(Creation, CloudRunContext)>;

    fn artifacts(&self) -> impl Iterator<Item = (&LongText, Option<&Fingerprint>)> {
        self.digests.iter()
    }
    fn created(&self) -> Creation {
        self.created
    }
    fn describe(&self, newest: &mut Self::Context) {
        let text = |text: &Option<ShortText>| text.as_ref().map(ToString::to_string);
        let resource = || CloudRunContext {
            kind: self.kind,
            service_name: text(&self.service_name),
            revision_name: text(&self.revision_name),
            job_name: text(&self.job_name),
        };
        replace_older(newest, self.created, resource);
    }
    fn fields(newest: Self::Context) -> serde_json::Result<JsonFields> {
        one_field("cloud_run_context", &newest.map(|(_, resource)| resource))
    }
}

/// Replaces the context if this one is newer. Of several contexts created at the same time, the first is
/// retained.
fn replace_older<C>(newest: &mut Option<(Creation, C)>, created: Creation, context: impl FnOnce() -> C) {
    if newest.as_ref().is_none_or(|(at, _)| at.0 < created.0) {
        *newest = Some((created, context()));
    }
}

fn one_field(name: &str, value: &impl Serialize) -> serde_json::Result<JsonFields> {
    let mut fields = JsonFields::default();
    fields.push(name.to_owned(), JsonText::of(value)?);
    Ok(fields)
}

macro_rules! report_types {
    ($($name:ident, $value:literal, $instance:ty, $operation:literal, $summary:literal;)*) => {$(
        #[doc = concat!("`", $value, "`.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
        #[schemars(inline)]
        pub enum $name {
            #[doc = concat!("The type of the environment: `", $value, "`.")]
            #[default]
            #[serde(rename = $value)]
            Only,
        }

        impl ReportType for $name {
            const KIND: EnvironmentKind = EnvironmentKind::$name;
            const NAME: &'static str = $operation;
            const PATH: &'static str = concat!("/environments/{org}/{env_name}/report/", $value);
            const SUMMARY: &'static str = $summary;
            type Instance = $instance;
        }
    )*};
}

report_types! {
    Docker, "docker", PlainArtifact, "docker_report", "Reports the containers of a Docker environment";
    Server, "server", PlainArtifact, "server_report", "Reports the artifacts on a server";
    S3, "S3", PlainArtifact, "s3_report", "Reports the content of S3 buckets";
    Lambda, "lambda", PlainArtifact, "lambda_report", "Reports the functions of AWS Lambda";
    K8S, "K8S", Pod, "k8s_report", "Reports the pods of a Kubernetes environment";
    ECS, "ECS", EcsTask, "ecs_report", "Reports the tasks of an ECS environment";
    AzureApps, "azure-apps", AzureApp, "azure_apps_report", "Reports Azure web and function apps";
    CloudRun, "cloud-run", CloudRunResource, "cloud_run_report", "Reports Google Cloud Run services and jobs";
}
