//! Notifications: a [`Sender`] reports events in environments and flows to the targets of actions. A host
//! adds [`Notify`] to its background work.

pub(crate) mod deliverer;
pub(crate) mod delivering;
pub(crate) mod events;
pub(crate) mod job;
pub(crate) mod lookup;
pub(crate) mod payload;
pub(crate) mod planning;
pub(crate) mod replay;
pub(crate) mod sender;
pub(crate) mod store;
pub(crate) mod watched;

pub use job::Notify;
pub use replay::replay;
pub use sender::{Message, NotSent, Sender};
pub use store::{Channel, Delivery, DeliveryState, DeliveryStore, Position};
