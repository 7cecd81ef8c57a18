//! What every report has in common: the flow, trail and repo it names come into being with it, in the same write
//! (decisions, Recording). Look-ups never create.

use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Guard, Key, RecordKind};
use crate::fact::payload::UnknownFields;
use crate::flows::record::Flow;
use crate::json::JsonText;
use crate::name::{FlowName, TrailName};
use crate::service::{Context, Draft};
use crate::store::entry::Current;
use crate::trails::record::Trail;
use crate::trails::store::Reported;

/// Refuses a report of this kind that would be one too many for its trail.
pub(crate) async fn check_room(trail: &Trail, kind: Reported, cx: &Context<'_>) -> Result<()> {
    let (most, reports) = match kind {
        Reported::Artifacts => (cx.limits().trail_artifacts, "artifacts"),
        Reported::Attestations => (cx.limits().trail_attestations, "attestations"),
    };
    if cx.store().trail_size(cx.org()?, trail.id, kind, most).await? < most {
        return Ok(());
    }
    let text = format!("Trail '{}' has {most} {reports} and takes no more", trail.name);
    Err(Error::invalid("trail_name", text))
}

impl Draft {
    /// The flow of this name; a new one, where there is none and the settings allow it.
    pub(crate) async fn flow(&mut self, name: &FlowName, cx: &Context<'_>) -> Result<Flow> {
        let known = cx.store().flow(cx.org()?, name.as_str()).await?;
        self.flow_unless(known, name, cx)
    }

    /// The known flow; else a new one of this name, where the settings allow it.
    pub(crate) fn flow_unless(
        &mut self,
        known: Option<Current<Flow>>,
        name: &FlowName,
        cx: &Context<'_>,
    ) -> Result<Flow> {
        if let Some(Current { revision, record }) = known {
            self.flow = Some(Guard::Revision(RecordKind::Flow, record.id, revision));
            return Ok(record);
        }
        if !cx.settings().implicit_flows {
            return Err(cx.missing(Resource::Flow, name.as_str()).into());
        }
        let record = Flow::named(name.clone(), "flow_name", cx)?;
        self.guarded(Fact::FlowCreated { record: record.clone() }, Guard::Vacant(Key::Flow(name.clone())));
        Ok(record)
    }

    /// The known trail; else a new one of this name with the flow's template.
    pub(crate) fn trail_unless(
        &mut self,
        known: Option<Trail>,
        flow: &Flow,
        name: &TrailName,
        cx: &Context<'_>,
    ) -> Trail {
        let begin = || {
            let record = Trail::begun(flow, name.clone(), cx);
            let guard = Guard::Vacant(Key::Trail { flow: flow.id, name: name.clone() });
            self.guarded(Fact::TrailBegun { record: record.clone() }, guard);
            self.guards.extend(self.flow.take());
            record
        };
        known.unwrap_or_else(begin)
    }
}

/// What a report's path names, as far as it is there already.
#[derive(Debug)]
pub(crate) struct ReportTarget {
    pub(crate) flow: Option<Current<Flow>>,
    pub(crate) trail: Option<Trail>,
}

impl ReportTarget {
    /// The flow and the trail of these names.
    pub(crate) async fn read(flow: &FlowName, trail: &TrailName, cx: &Context<'_>) -> Result<Self> {
        let org = cx.org()?;
        let Some(flow) = cx.store().flow(org, flow.as_str()).await? else {
            return Ok(Self { flow: None, trail: None });
        };
        let trail = cx.store().trail(org, flow.record.id, trail.as_str()).await?;
        Ok(Self { flow: Some(flow), trail: trail.map(|trail| trail.record) })
    }
}

impl Trail {
    /// A trail of `flow` as a report begins it.
    pub(crate) fn begun(flow: &Flow, name: TrailName, cx: &Context<'_>) -> Self {
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
