//! What every report has in common: the flow, trail and repo it names come into being with it, in the same write
//! (decisions, Recording). Look-ups never create.

use serde_json::{Map, Value};

use crate::error::{Resource, Result};
use crate::fact::{Fact, Guard, Key};
use crate::flows::Flow;
use crate::name::{FlowName, TrailName};
use crate::service::{Context, Draft};
use crate::trails::Trail;

impl Draft {
    /// The flow of this name; a new one, where there is none and the settings allow it.
    pub(crate) async fn flow(&mut self, name: &FlowName, cx: &Context<'_>) -> Result<Flow> {
        if let Some(known) = cx.store().flow(cx.org()?, name.as_str()).await? {
            return Ok(known.record);
        }
        if !cx.settings().implicit_flows {
            return Err(cx.missing(Resource::Flow, name.as_str()).into());
        }
        let record = Flow::named(name.clone(), "flow_name", cx)?;
        self.guarded(Fact::FlowCreated { record: record.clone() }, Guard::Absent(Key::Flow(name.clone())));
        Ok(record)
    }

    /// The trail of this name in `flow`; a new one with the flow's template, where there is none.
    pub(crate) async fn trail(&mut self, flow: &Flow, name: &TrailName, cx: &Context<'_>) -> Result<Trail> {
        if let Some(known) = cx.store().trail(cx.org()?, flow.id, name.as_str()).await? {
            return Ok(known.record);
        }
        let record = Trail::begun(flow, name.clone(), cx);
        let guard = Guard::Absent(Key::Trail { flow: flow.id, name: name.clone() });
        self.guarded(Fact::TrailBegun { record: record.clone() }, guard);
        Ok(record)
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
            user_data: Value::Object(Map::new()),
            external_urls: None,
            template: flow.template.clone(),
            template_id: flow.template_id,
            created_at: cx.now(),
            created_by: cx.actor(),
            last_modified_at: cx.now(),
        }
    }
}
