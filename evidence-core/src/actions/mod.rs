//! Actions: notifications of events in environments and flows, with their targets.

pub mod egress;
pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod secret_url;
pub(crate) mod store;
pub(crate) mod targets;
pub(crate) mod view;

pub use operations::{
    DeleteAction, DeleteNotification, EnvironmentActionInput, EnvironmentTrigger, FlowActionInput,
    FlowTrigger, GetAction, GetNotification, ListActions, ListNotifications, PutEnvironmentAction,
    PutFlowAction, PutNotification, UpdateNotification,
};
pub use record::{Action, Destination, SlackContext, Target, Watched};
pub use secret_url::{SecretUrl, StoredUrl, UrlError, UrlKey, UrlRecord};
pub use store::ActionStore;
pub use targets::TargetInput;
pub use view::{ActionView, TargetView};
