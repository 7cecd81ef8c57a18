//! Notifications: what happens in environments and flows is told to the targets of actions.

pub(crate) mod store;

pub use store::{Delivery, DeliveryState, DeliveryStore, Position};
