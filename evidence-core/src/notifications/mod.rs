//! Notifications: what happens in environments and flows is told to the targets of actions, by whoever sends
//! ([`Sender`]). A host adds [`Notify`] to its background work.

pub(crate) mod events;
pub(crate) mod job;
pub(crate) mod lookup;
pub(crate) mod payload;
pub(crate) mod sender;
pub(crate) mod store;

pub use job::{Notify, replay};
pub use sender::{Message, NotSent, Sender};
pub use store::{Delivery, DeliveryState, DeliveryStore, Position};
