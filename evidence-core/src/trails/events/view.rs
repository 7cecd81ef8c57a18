//! Trail events in responses. Each event has the keys of its type.

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::artifacts::record::Artifact;
use crate::attestations::record::{Attestation, Binding};
use crate::bounded::{Address, Description, FreeForm, List, ShortText, or_empty};
use crate::git::{GitCommit, GitCommitInfo};
use crate::id::Id;
use crate::name::{AttestationName, EnvironmentName, Fingerprint, TrailName};
use crate::repos::record::{RepoInfo, VcsProvider, vcs_instance};
use crate::time::Seconds;
use crate::trails::events::{Event, RuntimeEvent, TrailEventKind};
use crate::trails::record::Trail;

/// An event of a trail. Its `type` decides which keys it has beside the common ones.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "TrailEvent")]
#[non_exhaustive]
pub struct EventView {
    /// The organization's id.
    pub org_id: Id,
    /// The flow's id.
    pub flow_id: Id,
    /// The trail's id.
    pub trail_id: Id,
    /// When it happened, in epoch seconds.
    pub timestamp: Seconds,
    /// The event, with the keys of its type.
    #[serde(flatten)]
    pub what: EventDetails,
}

/// The type of an event, with its keys.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(transform = describe_type)]
#[non_exhaustive]
pub enum EventDetails {
    /// The trail was begun.
    TrailReported {
        /// The commit and repository of the report.
        #[serde(flatten)]
        source: EventSource,
        /// The id of the user or service account that began it.
        setting_user_id: Id,
        /// The trail as it was begun.
        trail_data_json: TrailData,
    },
    /// The trail was changed.
    TrailUpdated {
        /// The commit and repository of the report.
        #[serde(flatten)]
        source: EventSource,
        /// The id of the user or service account that changed it.
        setting_user_id: Id,
        /// The trail after the change.
        trail_data_json: TrailData,
        /// The names of the changed fields, such as `description`, `git_commit_info` or `template`.
        changes: Vec<String>,
    },
    /// An artifact was reported to the trail.
    ArtifactCreationReported {
        /// The commit and repository of the report.
        #[serde(flatten)]
        source: EventSource,
        /// The SHA-256 of the artifact's content.
        artifact_fingerprint: Fingerprint,
        /// The file's name, or the image's reference.
        artifact_name: String,
        /// The id of the report.
        artifact_id: Id,
        /// The artifact's name in the template; `""` without one.
        template_reference_name: String,
        /// The full hash of the commit that it was built from; `""` if no full hash was reported.
        git_commit: String,
        /// Its description, as reported; `""` if not reported.
        description: String,
        /// The commits since the previous artifact, as reported.
        commits_list: Vec<GitCommitInfo>,
    },
    /// An attestation of the trail was reported.
    TrailAttestationReported {
        /// The attestation.
        #[serde(flatten)]
        attestation: AttestationEvent,
    },
    /// An attestation of an artifact was reported.
    ArtifactAttestationReported {
        /// The attestation.
        #[serde(flatten)]
        attestation: AttestationEvent,
        /// The SHA-256 of the artifact that it is about.
        artifact_fingerprint: Fingerprint,
        /// The artifact's name in the template; `""` without one.
        artifact_name: String,
        /// The same as `artifact_name`.
        target_artifact: String,
    },
    /// An attestation was reported for an artifact that is identified by its template name and a commit.
    TrailAttestationForArtifactReported {
        /// The attestation.
        #[serde(flatten)]
        attestation: AttestationEvent,
        /// The template name of the artifact that the attestation is about.
        target_artifact: String,
    },
    /// An artifact of the trail started running in an environment.
    ArtifactStartedRunning {
        /// The artifact and the environment.
        #[serde(flatten)]
        run: RunEvent,
        /// Always 1.
        replica_number: u8,
    },
    /// An artifact of the trail stopped running in an environment.
    ArtifactStoppedRunning {
        /// The artifact and the environment.
        #[serde(flatten)]
        run: RunEvent,
    },
}

/// Describes the `type` key of each variant. A serde tag is not a field, so it cannot have a `///` comment.
fn describe_type(schema: &mut Schema) {
    let variants = schema.pointer_mut("/oneOf").and_then(Value::as_array_mut);
    for variant in variants.into_iter().flatten() {
        if let Some(kind) = variant.pointer_mut("/properties/type").and_then(Value::as_object_mut) {
            kind.insert("description".to_owned(), "The type of the event.".into());
        }
    }
}

/// The commit and the repository of a report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EventSource {
    /// The commit that was reported; null without one.
    pub git_commit_info: Option<EventCommit>,
    /// The repository that was reported; null without one.
    pub repo_info: Option<EventRepo>,
}

/// The commit that an event was reported with. Every key is present.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EventCommit {
    /// The commit's hash.
    pub sha1: ShortText,
    /// Its message; `""` if not reported.
    pub message: String,
    /// Its author, as `Name <mail>`; `""` if not reported.
    pub author: String,
    /// The author's account name at the host; null if not reported.
    pub author_username: Option<ShortText>,
    /// The branch it was built from; `""` if not reported.
    pub branch: String,
    /// Its time, in epoch seconds; null if not reported.
    pub timestamp: Option<Seconds>,
    /// The URL of its page; `""` if not reported.
    pub url: String,
    /// Its parents' hashes; null if not reported.
    pub parents: Option<List<ShortText>>,
    /// Whether the host verified its signature; null if not reported.
    pub verified: Option<bool>,
    /// The state of its signature, in the host's words; null if not reported.
    pub signature_state: Option<ShortText>,
}

/// The repository that an event was reported from. Every key is present.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EventRepo {
    /// The repo's id in this API; null where it has none.
    pub inner_id: Option<Id>,
    /// The organization's id.
    pub org_id: Id,
    /// Its id at the host; null if not reported.
    pub repo_id: Option<ShortText>,
    /// Its name, with its owner.
    pub name: ShortText,
    /// Its URL.
    pub url: Address,
    /// The kind of host; null if not reported.
    pub provider: Option<VcsProvider>,
    /// Its description; null if not reported.
    pub description: Option<Description>,
    /// The host of `url`, in lower case, with any port that is not the default; null without one.
    pub vcs_instance: Option<String>,
    /// The groups that contain it; null if not reported.
    pub namespace_path: Option<List<ShortText>>,
    /// Further data, as reported; null if nothing was.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub additional_info: Option<FreeForm>,
}

/// A trail inside an event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TrailData {
    /// The organization's id.
    pub org_id: Id,
    /// The flow's id.
    pub flow_id: Id,
    /// The trail's name.
    pub name: TrailName,
    /// The id of the user or service account that began it.
    pub creating_user_id: Id,
    /// A description of its purpose.
    pub description: String,
    /// The commit of the trail; null without one.
    pub git_commit_info: Option<EventCommit>,
    /// The id of its template. It changes with the template.
    pub template_id: Id,
    /// The URL of its origin, such as the build; `""` if not given.
    pub origin_url: String,
    /// Free-form data from the reporter: a string that holds JSON.
    pub user_data: String,
    /// The ids of the repos that it was reported from.
    pub repo_ids: Vec<Id>,
}

/// An attestation in an event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AttestationEvent {
    /// The commit and repository of the report.
    #[serde(flatten)]
    pub source: EventSource,
    /// The attestation's type: `generic`, `junit`, `pull_request`, ….
    pub attestation_type: String,
    /// Whether it is compliant.
    pub is_compliant: bool,
    /// Its id.
    pub attestation_id: Id,
    /// The attestation's name.
    pub template_reference_name: AttestationName,
    /// Always null.
    pub is_reattestation: (),
}

/// An artifact in a runtime event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RunEvent {
    /// Empty: environment reports contain no commit.
    #[serde(flatten)]
    pub source: EventSource,
    /// The SHA-256 of the artifact's content.
    pub artifact_fingerprint: Fingerprint,
    /// The environment's id.
    pub environment_id: Id,
    /// The environment's name.
    pub environment_name: EnvironmentName,
    /// The number of the snapshot that shows the event, from 1.
    pub snapshot_index: u64,
    /// The artifact's name in the template; `""` without one.
    pub template_reference_name: String,
}

impl Event {
    /// Returns the event for a response.
    pub(crate) fn view(&self, org: Id, flow: Id, trail: Id) -> EventView {
        EventView {
            org_id: org,
            flow_id: flow,
            trail_id: trail,
            timestamp: self.at.seconds(),
            what: self.what.view(org),
        }
    }
}

impl TrailEventKind {
    fn view(&self, org: Id) -> EventDetails {
        match self {
            Self::Begun(trail) => EventDetails::TrailReported {
                source: EventSource::of_trail(trail, org),
                setting_user_id: trail.created_by.id,
                trail_data_json: TrailData::new(trail, org),
            },
            Self::Updated(trail, changes) => EventDetails::TrailUpdated {
                source: EventSource::of_trail(trail, org),
                setting_user_id: trail.last_modified_by.id,
                trail_data_json: TrailData::new(trail, org),
                changes: changes.clone(),
            },
            Self::Artifact(artifact) => reported(artifact, org),
            Self::Attestation(attestation) => attested(attestation, org),
            Self::Started(event) => {
                EventDetails::ArtifactStartedRunning { run: event.view(), replica_number: 1 }
            }
            Self::Stopped(event) => EventDetails::ArtifactStoppedRunning { run: event.view() },
        }
    }
}

fn reported(artifact: &Artifact, org: Id) -> EventDetails {
    let Artifact { git_commit_info, repo_info, repo, .. } = artifact;
    EventDetails::ArtifactCreationReported {
        source: EventSource::new(git_commit_info.as_ref(), repo_info.as_ref(), *repo, org),
        artifact_fingerprint: artifact.fingerprint.clone(),
        artifact_name: artifact.filename.clone(),
        artifact_id: artifact.id,
        template_reference_name: artifact.template_reference_name.clone(),
        git_commit: or_empty(artifact.git_commit.as_ref().map(AsRef::as_ref)),
        description: artifact.description.clone(),
        commits_list: artifact.commits_list.iter().map(GitCommitInfo::from).collect(),
    }
}

fn attested(reported: &Attestation, org: Id) -> EventDetails {
    let Attestation { git_commit_info, repo_info, repo, .. } = reported;
    let attestation = AttestationEvent {
        source: EventSource::new(git_commit_info.as_ref(), repo_info.as_ref(), *repo, org),
        attestation_type: reported.kind.clone(),
        is_compliant: reported.is_compliant,
        attestation_id: reported.id,
        template_reference_name: reported.name.clone(),
        is_reattestation: (),
    };
    match reported.binding.clone() {
        Binding::Trail => EventDetails::TrailAttestationReported { attestation },
        Binding::Artifact { fingerprint, target } => EventDetails::ArtifactAttestationReported {
            attestation,
            artifact_fingerprint: fingerprint,
            artifact_name: target.clone(),
            target_artifact: target,
        },
        Binding::Named { target, .. } => {
            EventDetails::TrailAttestationForArtifactReported { attestation, target_artifact: target }
        }
    }
}

impl RuntimeEvent {
    fn view(&self) -> RunEvent {
        RunEvent {
            source: EventSource::default(),
            artifact_fingerprint: self.fingerprint.clone(),
            environment_id: self.environment,
            environment_name: self.environment_name.clone(),
            snapshot_index: self.snapshot,
            template_reference_name: self.template_reference_name.clone(),
        }
    }
}

impl EventSource {
    fn new(commit: Option<&GitCommit>, repo: Option<&RepoInfo>, repo_id: Option<Id>, org: Id) -> Self {
        Self {
            git_commit_info: commit.map(EventCommit::from),
            repo_info: repo.map(|info| EventRepo::new(info.clone(), repo_id, org)),
        }
    }

    fn of_trail(trail: &Trail, org: Id) -> Self {
        let repo = trail.repo_ids.last().copied();
        Self::new(trail.git_commit_info.as_ref(), trail.repo_info.as_ref(), repo, org)
    }
}

impl From<&GitCommit> for EventCommit {
    fn from(commit: &GitCommit) -> Self {
        Self {
            sha1: commit.sha1.clone(),
            message: or_empty(commit.message.as_deref()),
            author: or_empty(commit.author.as_deref()),
            author_username: commit.author_username.clone(),
            branch: or_empty(commit.branch.as_deref()),
            timestamp: commit.timestamp.map(|at| at.0.seconds()),
            url: or_empty(commit.url.as_deref()),
            parents: commit.parents.clone(),
            verified: commit.verified,
            signature_state: commit.signature_state.clone(),
        }
    }
}

impl EventRepo {
    fn new(info: RepoInfo, inner_id: Option<Id>, org_id: Id) -> Self {
        let RepoInfo { name, url, id: repo_id, description, provider, namespace_path, additional_info } =
            info;
        let vcs_instance = vcs_instance(&url);
        Self {
            inner_id,
            org_id,
            repo_id,
            name,
            url,
            provider,
            description,
            vcs_instance,
            namespace_path,
            additional_info,
        }
    }
}

impl TrailData {
    fn new(trail: &Trail, org: Id) -> Self {
        Self {
            org_id: org,
            flow_id: trail.flow,
            name: trail.name.clone(),
            creating_user_id: trail.created_by.id,
            description: trail.description.clone(),
            git_commit_info: trail.git_commit_info.as_ref().map(EventCommit::from),
            template_id: trail.template_id,
            origin_url: trail.origin_url.clone(),
            user_data: trail.user_data.to_string(),
            repo_ids: trail.repo_ids.clone(),
        }
    }
}
