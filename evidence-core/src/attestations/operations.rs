//! Operations on attestations. One operation, generic over its [`Claim`], adds attestations of every type.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use futures_util::stream;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

use super::evidence;
use super::listed::listed;
use crate::attestations::claim::{
    AttestationBase, AttestationBody, AttestationInput, Claim, Claimed, Verdict, described,
};
use crate::attestations::details::Details;
use crate::attestations::record::{Attachment, Attestation, Binding};
use crate::attestations::store::NamedAttestation;
use crate::attestations::view::AttestationView;
use crate::auth::actor::Scope;
use crate::bounded::{Description, ShortText, UserData, WebUrl};
use crate::context::{Context, Draft};
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::id::Id;
use crate::json::JsonText;
use crate::limits::Limits;
use crate::name::{AttestationName, FingerprintPrefix, FlowName, OrgName, TrailName};
use crate::operation::{
    Acknowledged, Created, Download, JsonList, Method, Operation, SKIPPED_ELEMENTS, WithHeaders,
};
use crate::rules::compliance::{ReportedArtifact, ReportedAttestation, about_content};
use crate::store::batch::distinct;
use crate::texts::record::TextRef;
use crate::trails::draft::{ReportTarget, check_report_quota};
use crate::trails::store::Reported;

/// Adds an attestation to a trail, optionally with files as evidence. A flow or trail that does not exist is
/// created, unless the host disables that. Attestations never change: a later one with the same name and
/// subject supersedes the earlier one. The subject is the artifact in `artifact_fingerprint` or
/// `target_artifacts`, otherwise the trail.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "C: Claim", transform = append_type_description::<C>)]
pub struct PostAttestation<C> {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The trail's name.
    pub trail_name: TrailName,
    #[serde(skip)]
    claim: PhantomData<fn() -> C>,
}

/// Appends the type's description to the common one.
fn append_type_description<C: Claim>(schema: &mut Schema) {
    let common = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let own = described::<C>(&mut SchemaGenerator::default()).unwrap_or_default();
    let told = format!("{common} {own}");
    schema.insert("description".to_owned(), told.trim().into());
}

impl<C> PostAttestation<C> {
    /// Returns a request for an attestation of this trail.
    pub const fn new(org: OrgName, flow_name: FlowName, trail_name: TrailName) -> Self {
        Self { org, flow_name, trail_name, claim: PhantomData }
    }
}

impl<C: Claim> Operation for PostAttestation<C> {
    const NAME: &'static str = C::OPERATION;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = C::PATH;
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = C::SUMMARY;
    const ANSWER_HEADERS: &'static [&'static str] = if C::IS_COLLECTED { &[SKIPPED_ELEMENTS] } else { &[] };
    type Body = C::Body;
    type Output = WithHeaders<Created<Acknowledged>>;

    fn body_limit(limits: &Limits) -> u64 {
        C::document_limit(limits)
    }

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, body: Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let (AttestationInput { base, claim }, files) = body.into_parts();
        if !files.is_empty() {
            // Check first, so that no file is stored for an attestation that will be refused.
            self.draft(&base, &claim, &[], None, cx).await?;
        }
        let stored = evidence::store_files(files, cx).await?;
        let attest = async || {
            let draft = self.draft(&base, &claim, &stored.attachments, stored.evidence.as_ref(), cx).await?;
            stored.check(cx)?;
            cx.record(draft).await
        };
        cx.retry(attest).await?;
        let skipped = claim.skipped();
        if skipped > 0 {
            let (org, flow, trail) = (&self.org, &self.flow_name, &self.trail_name);
            tracing::info!(%org, %flow, %trail, skipped, "elements of an attestation were skipped: they are null");
        }
        WithHeaders::skipping(Created(Acknowledged::Ok), skipped)
    }
}

impl<C: Claim> PostAttestation<C> {
    /// Returns the write that adds the attestation with these files. Runs every check that can refuse it.
    async fn draft(
        &self,
        base: &AttestationBase,
        claim: &C,
        attachments: &[Attachment],
        file: Option<&Attachment>,
        cx: &Context<'_>,
    ) -> Result<Draft> {
        let ReportTarget { flow, trail } = self.known(cx).await?;
        let mut draft = Draft::default();
        let trail_id = trail.as_ref().map(|trail| trail.record.id);
        let binding = self.binding(base, trail_id, &mut draft, cx).await?;
        let about = Claimed { name: &base.attestation_name, trail: trail_id, binding: &binding, attachments };
        let Verdict { kind, is_compliant, mut details, preconditions } = claim.evaluate(&about, cx).await?;
        draft.preconditions.extend(preconditions);
        let mut data = None;
        if details.has_long_data() {
            let (rest, text, reference) = cx.compute().run(move || take_data(details)).await??;
            (details, data) = (rest, Some(reference));
            draft.add_text(text, reference, cx).await?;
        }
        let flow = draft.known_or_new_flow(flow.as_deref(), &self.flow_name, cx)?;
        let trail = draft.known_or_new_trail(trail.as_deref(), &flow, &self.trail_name, cx);
        let repo = draft.repo(base.repo_info.as_ref(), cx).await?;
        let base = base.clone();
        draft.fact(Fact::AttestationAdded {
            record: Attestation {
                id: cx.new_id(),
                flow: flow.id,
                trail,
                name: base.attestation_name,
                kind,
                is_compliant,
                binding,
                description: base.description.map(Description::into_string),
                origin_url: base.origin_url.map(WebUrl::into_string).unwrap_or_default(),
                git_commit_info: base.git_commit_info,
                repo_info: base.repo_info,
                repo,
                external_urls: base.external_urls,
                annotations: base.annotations,
                user_data: base.user_data.map_or_else(JsonText::empty_object, |UserData(data)| data),
                details,
                data,
                attachments: attachments.to_vec(),
                evidence: file.cloned(),
                created_at: cx.now(),
                created_by: cx.actor(),
            },
        });
        Ok(draft)
    }

    /// Returns the flow and the trail, after checking that the trail can have another attestation.
    async fn known(&self, cx: &Context<'_>) -> Result<ReportTarget> {
        let known = ReportTarget::read(&self.flow_name, &self.trail_name, cx).await?;
        if let Some(trail) = &known.trail {
            check_report_quota(&trail.record, &self.trail_name, Reported::Attestations, cx).await?;
        }
        Ok(known)
    }

    /// Returns the subject of the attestation: an artifact by fingerprint, one by template name and commit,
    /// or the trail. A template name alone refers to the newest artifact of that name when the attestation is
    /// recorded.
    async fn binding(
        &self,
        base: &AttestationBase,
        trail: Option<Id>,
        draft: &mut Draft,
        cx: &Context<'_>,
    ) -> Result<Binding> {
        let target = base.target_artifacts.as_ref().and_then(|targets| targets.0.first());
        let commit = base.git_commit_info.as_ref().map(|commit| &commit.sha1).filter(|sha| !sha.is_empty());
        match (&base.artifact_fingerprint, target, commit) {
            (Some(fingerprint), ..) => {
                let found = draft.content(trail, fingerprint, cx).await?;
                let artifact = found.ok_or_else(|| {
                    cx.missing(Resource::Artifact, fingerprint.as_str())
                        .in_flow(self.flow_name.as_str())
                        .in_trail(self.trail_name.as_str())
                        .named_by("artifact_fingerprint")
                })?;
                let target = target.map_or_else(|| artifact.name.clone(), ToString::to_string);
                Ok(Binding::Artifact { fingerprint: fingerprint.clone(), target })
            }
            (None, Some(target), Some(commit)) => {
                Ok(Binding::Named { target: target.to_string(), commit: commit.to_string() })
            }
            (None, Some(target), None) => {
                let found = draft.artifact_by_name(trail, target.as_str(), cx).await?;
                let artifact = found.ok_or_else(|| Error::invalid("target_artifacts", UNBOUND))?;
                Ok(Binding::Artifact {
                    fingerprint: artifact.fingerprint.clone(),
                    target: target.to_string(),
                })
            }
            (None, None, _) => Ok(Binding::Trail),
        }
    }
}

/// Splits details into the part without data, and the text of the data.
fn take_data(mut details: Details) -> Result<(Details, String, TextRef)> {
    let serialization_error = |source: serde_json::Error| Error::Internal {
        what: "the data of an attestation could not be written as JSON",
        source: source.into(),
    };
    let text = details.take_data().map_err(serialization_error)?;
    let reference = TextRef::of(&text);
    Ok((details, text, reference))
}

/// The public client recognises this sentence and replaces it with one about its own flags.
const UNBOUND: &str = "An attestation for an artifact that is not reported yet requires at least one of: \
                       artifact_fingerprint or git_commit_info.";

/// Gets the attestations of a name that are about the trail itself, newest first. Without a match, returns an
/// empty list.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetTrailAttestation {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The trail's name.
    pub trail_name: TrailName,
    /// The attestations' name.
    pub attestation_name: AttestationName,
}

impl Operation for GetTrailAttestation {
    const NAME: &'static str = "get_trail_attestation";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/{attestation_name}";
    const SCOPE: Scope = Scope::ReadFlow;
    const SUMMARY: &'static str = "Gets a trail's attestations of a name, newest first";
    const CACHED: bool = true;
    type Body = ();
    type Output = JsonList<AttestationView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    fn flow(&self) -> Option<&FlowName> {
        Some(&self.flow_name)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let flow = cx.flow(self.flow_name.as_str()).await?.record;
        let trail = cx.trail(&flow, self.trail_name.as_str()).await?.record;
        let name = self.attestation_name.as_str();
        let mut found = cx.store().attestations(cx.org()?, &[trail.id], name).await?;
        found.retain(|attestation| attestation.row.binding == Binding::Trail);
        listed(found, flow, BTreeMap::from([(trail.id, trail.name)]), cx).await
    }
}

/// Gets the attestations of a name that are about an artifact, newest first, in all trails of the flow to
/// which it was reported. Without a match, or for an unknown artifact, returns an empty list.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetArtifactAttestation {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The artifact's fingerprint, or at least its first 5 digits if they match only one artifact of the
    /// flow.
    pub fingerprint: FingerprintPrefix,
    /// The attestations' name.
    pub attestation_name: AttestationName,
}

impl Operation for GetArtifactAttestation {
    const NAME: &'static str = "get_artifact_attestation";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/attestations/{org}/{flow_name}/artifact/{fingerprint}/{attestation_name}";
    const SCOPE: Scope = Scope::ReadFlow;
    const SUMMARY: &'static str = "Gets an artifact's attestations of a name, newest first";
    const CACHED: bool = true;
    type Body = ();
    type Output = JsonList<AttestationView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    fn flow(&self) -> Option<&FlowName> {
        Some(&self.flow_name)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let org = cx.org()?;
        let flow = cx.flow(self.flow_name.as_str()).await?.record;
        let fingerprint = match crate::artifacts::operations::resolve(&flow, &self.fingerprint, cx).await {
            Err(Error::NotFound(_)) => return Ok(JsonList::of(stream::empty())),
            resolved => resolved?,
        };
        let reports = cx.store().reports(org, flow.id, &fingerprint).await?;
        let mut by_trail: BTreeMap<Id, Vec<ReportedArtifact>> = BTreeMap::new();
        for (trail, report) in reports.iter().filter_map(|report| Some((report.trail?, report))) {
            by_trail.entry(trail).or_default().push(report.into());
        }
        let names = cx.names_in_flows(&[(flow.id, fingerprint.clone())]).await?;
        let earlier = names.into_iter().map(|((_, content), names)| (content.to_string(), names)).collect();
        let trails = Vec::from_iter(by_trail.keys().copied());
        let mut found = cx.store().attestations(org, &trails, self.attestation_name.as_str()).await?;
        let mut of_name: BTreeMap<Id, Vec<ReportedAttestation>> = BTreeMap::new();
        for NamedAttestation { row, .. } in &found {
            of_name.entry(row.trail).or_default().push(row.into());
        }
        let about = of_name.iter().filter_map(|(trail, attestations)| {
            Some(about_content(fingerprint.as_str(), by_trail.get(trail)?, attestations, &earlier))
        });
        let about: BTreeSet<u64> = about.flatten().collect();
        found.retain(|attestation| about.contains(&attestation.row.index));
        let trails = distinct(found.iter().map(|attestation| attestation.row.trail));
        let trails = cx.store().trail_labels(org, &trails).await?.into_iter();
        let trails = trails.map(|(trail, label)| (trail, label.name)).collect();
        listed(found, flow, trails, cx).await
    }
}

/// Downloads the evidence of an attestation: its only file as sent, or a `tar.gz` archive of several. An
/// attestation without files is 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetEvidence {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The trail's name.
    pub trail_name: TrailName,
    /// The attestation's id.
    pub attestation_id: ShortText,
}

impl Operation for GetEvidence {
    const NAME: &'static str = "get_attestation_evidence";
    const METHOD: Method = Method::Get;
    const PATH: &'static str =
        "/attestations/{org}/{flow_name}/trail/{trail_name}/attestation/{attestation_id}/evidence";
    const SCOPE: Scope = Scope::ReadFlow;
    const SUMMARY: &'static str = "Downloads the evidence of an attestation";
    type Body = ();
    type Output = Download;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    fn flow(&self) -> Option<&FlowName> {
        Some(&self.flow_name)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let org = cx.org()?;
        let flow = cx.flow(self.flow_name.as_str()).await?.record;
        let trail = cx.trail(&flow, self.trail_name.as_str()).await?.record;
        let missing = |resource| {
            cx.missing(resource, self.attestation_id.as_str())
                .in_flow(flow.name.as_str())
                .in_trail(trail.name.as_str())
        };
        let attestation = match self.attestation_id.parse() {
            Ok(id) => {
                cx.store().attestation(org, id).await?.filter(|attestation| attestation.trail == trail.id)
            }
            Err(_) => None,
        };
        let attestation = attestation.ok_or_else(|| missing(Resource::Attestation))?;
        let file = attestation.evidence.ok_or_else(|| missing(Resource::Evidence))?;
        evidence::download(&file, org, cx).await
    }
}
