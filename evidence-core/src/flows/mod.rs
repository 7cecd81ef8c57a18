//! Flows: repeatable processes. A trail is one execution of a flow.

pub(crate) mod operations;
pub(crate) mod parsed;
pub(crate) mod record;
pub(crate) mod store;
pub(crate) mod templates;
pub(crate) mod view;

pub use operations::{
    ArchiveFlow, FlowInput, FlowRenaming, GetFlow, LegacyFlowInput, ListFlows, PutFlow, PutLegacyFlow,
    RenameFlow,
};
pub use record::{EMPTY_TEMPLATE, Flow, Visibility};
pub use store::{FlowFilter, FlowStore};
pub use view::{FlowList, FlowTemplate, FlowView, ListedFlow};
