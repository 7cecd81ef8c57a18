//! The parts that all reports share. A report creates the flow, trail and repo that it names if they do not
//! exist, in the same write. Look-ups never create anything.

use std::sync::Arc;

use crate::artifacts::store::ArtifactFilter;
use crate::context::names::{KnownArtifact, KnownFlow, KnownTrail};
use crate::context::{Context, Draft};
use crate::decode::UnknownFields;
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::flows::record::Flow;
use crate::id::Id;
use crate::json::JsonText;
use crate::name::{Fingerprint, FlowName, TrailName};
use crate::store::entry::Current;
use crate::trails::record::Trail;
use crate::trails::store::Reported;

/// Refuses a report of this kind if the trail already has the most allowed.
pub(crate) async fn check_report_quota(
    trail: &KnownTrail,
    name: &TrailName,
    kind: Reported,
    cx: &Context<'_>,
) -> Result<()> {
    let (most, reports) = match kind {
        Reported::Artifacts => (cx.limits().trail_artifacts, "artifacts"),
        Reported::Attestations => (cx.limits().trail_attestations, "attestations"),
    };
    if trail.report_quota(kind).take() {
        return Ok(());
    }
    let size = cx.store().trail_report_count(cx.org()?, trail.id, kind, most).await?;
    if size < most {
        trail.report_quota(kind).set(most - size);
        return Ok(());
    }
    let text = format!("Trail '{name}' has {most} {reports} and takes no more");
    Err(Error::invalid("trail_name", text))
}

impl Draft {
    /// Returns the flow of this name. If there is none, adds a new one, provided that the settings allow it.
    pub(crate) async fn flow(&mut self, name: &FlowName, cx: &Context<'_>) -> Result<KnownFlow> {
        let known = cx.known_flow(name).await?;
        self.known_or_new_flow(known.as_deref(), name, cx)
    }

    /// Returns the known flow. If there is none, adds a new one of this name, provided that the settings
    /// allow it.
    pub(crate) fn known_or_new_flow(
        &mut self,
        known: Option<&Current<KnownFlow>>,
        name: &FlowName,
        cx: &Context<'_>,
    ) -> Result<KnownFlow> {
        if let Some(Current { revision, record }) = known {
            self.preconditions.push(Precondition::Denotes(Key::Flow(name.clone()), record.id));
            self.flow = Some(Precondition::Revision(RecordKind::Flow, record.id, *revision));
            return Ok(*record);
        }
        if !cx.settings().implicit_flows {
            return Err(cx.missing(Resource::Flow, name.as_str()).into());
        }
        let record = Flow::named(name.clone(), "flow_name", cx)?;
        let known = KnownFlow::from(&record);
        self.fact_if(Fact::FlowCreated { record }, Precondition::Vacant(Key::Flow(name.clone())));
        Ok(known)
    }

    /// Returns the last report of this content to the trail. `None` without such a report, or without a
    /// trail.
    pub(crate) async fn content(
        &mut self,
        trail: Option<Id>,
        fingerprint: &Fingerprint,
        cx: &Context<'_>,
    ) -> Result<Option<Arc<KnownArtifact>>> {
        let Some(trail) = trail else { return Ok(None) };
        let filter = ArtifactFilter {
            trail: Some(trail),
            fingerprint: Some(fingerprint.to_string()),
            ..ArtifactFilter::default()
        };
        self.artifact(Key::Content { trail, fingerprint: fingerprint.clone() }, &filter, cx).await
    }

    /// Returns the last report of an artifact with this template name to the trail, like
    /// [`content`](Self::content).
    pub(crate) async fn artifact_by_name(
        &mut self,
        trail: Option<Id>,
        name: &str,
        cx: &Context<'_>,
    ) -> Result<Option<Arc<KnownArtifact>>> {
        let Some(trail) = trail else { return Ok(None) };
        let name = name.to_owned();
        let filter =
            ArtifactFilter { trail: Some(trail), name: Some(name.clone()), ..ArtifactFilter::default() };
        self.artifact(Key::Artifact { trail, name }, &filter, cx).await
    }

    async fn artifact(
        &mut self,
        key: Key,
        filter: &ArtifactFilter,
        cx: &Context<'_>,
    ) -> Result<Option<Arc<KnownArtifact>>> {
        let known = cx.known_artifact(&key, filter).await?;
        self.preconditions.extend(known.as_ref().map(|known| Precondition::Denotes(key, known.id)));
        Ok(known)
    }

    /// Returns the id of the known trail. If there is none, adds a new one of this name with the flow's
    /// template.
    pub(crate) fn known_or_new_trail(
        &mut self,
        known: Option<&Current<KnownTrail>>,
        flow: &KnownFlow,
        name: &TrailName,
        cx: &Context<'_>,
    ) -> Id {
        let key = Key::Trail { flow: flow.id, name: name.clone() };
        if let Some(Current { record, .. }) = known {
            self.preconditions.push(Precondition::Denotes(key, record.id));
            return record.id;
        }
        let record = Trail::new(flow, name.clone(), cx);
        let id = record.id;
        self.fact_if(Fact::TrailBegun { record }, Precondition::Vacant(key));
        self.preconditions.extend(self.flow.take());
        id
    }
}

/// The flow and the trail that a report's path names, if they exist.
#[derive(Debug)]
pub(crate) struct ReportTarget {
    pub(crate) flow: Option<Arc<Current<KnownFlow>>>,
    pub(crate) trail: Option<Arc<Current<KnownTrail>>>,
}

impl ReportTarget {
    /// Reads the flow and the trail of these names.
    pub(crate) async fn read(flow: &FlowName, trail: &TrailName, cx: &Context<'_>) -> Result<Self> {
        let Some(flow) = cx.known_flow(flow).await? else {
            return Ok(Self { flow: None, trail: None });
        };
        let trail = cx.known_trail(flow.record.id, trail).await?;
        Ok(Self { flow: Some(flow), trail })
    }
}

impl Trail {
    /// Returns a new trail of `flow`, as a report begins it.
    pub(crate) fn new(flow: &KnownFlow, name: TrailName, cx: &Context<'_>) -> Self {
        Self {
            id: cx.new_id(),
            flow: flow.id,
            name,
            description: String::new(),
            git_commit_info: None,
            repo_info: None,
            repo_ids: Vec::new(),
            origin_url: String::new(),
            user_data: JsonText::empty_object(),
            external_urls: None,
            template: flow.template,
            template_id: flow.template_id,
            created_at: cx.now(),
            created_by: cx.actor(),
            last_modified_at: cx.now(),
            last_modified_by: cx.actor(),
            unknown: UnknownFields::default(),
        }
    }
}
