//! Admission control. Limits the memory and the temporary files of requests, in total and per tenant.
//!
//! A transport reserves temporary space before it reads a body, and memory before it loads one. The service reserves memory for
//! long responses. Responses that wait to be sent have a separate budget, so a client that reads slowly delays no request of its
//! organization.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::budget::{FairBudget, Reservation, Tenant};
use crate::compute::refused::Refused;
use crate::error::Result;
use crate::limits::Limits;
use crate::spill_buffer::TemporarySpace;

/// The memory that a request uses per byte of its body: the text, the parsed values, and the recorded facts. Reports of
/// environments were measured at three to four times their length. A response that is built from long data uses as much: the
/// text, its values, and the growing response.
const MEMORY_PER_BYTE: u64 = 4;

/// Responses that are being sent may use a quarter of [`Limits::request_memory`], in addition to it.
const ANSWERS: u64 = 4;

/// The time that a body in a temporary file, or a response, waits for memory.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The budgets that all requests of a service share.
#[derive(Debug, Clone)]
pub struct Admission {
    memory: Arc<FairBudget>,
    answers: Arc<FairBudget>,
    disk: Arc<FairBudget>,
}

/// The budget of one request.
#[derive(Debug, Clone)]
pub struct RequestBudget {
    memory: Arc<FairBudget>,
    answers: Arc<FairBudget>,
    tenant: Tenant,
    space: TemporarySpace,
}

impl Admission {
    /// Creates the budgets that these limits set.
    pub fn new(limits: &Limits) -> Self {
        let Limits { request_memory, temporary_space, .. } = *limits;
        let [memory, answers, disk] =
            [request_memory, request_memory / ANSWERS, temporary_space].map(FairBudget::new);
        Self { memory, answers, disk }
    }

    /// Returns the budget of a request on behalf of this tenant ([`Access::on_behalf_of`](crate::auth::Access::on_behalf_of)).
    pub fn on_behalf_of(&self, tenant: Tenant) -> RequestBudget {
        let space = TemporarySpace::new(Arc::clone(&self.disk), Arc::clone(&self.memory), tenant);
        let [memory, answers] = [&self.memory, &self.answers].map(Arc::clone);
        RequestBudget { memory, answers, tenant, space }
    }
}

impl RequestBudget {
    /// Returns the temporary space of the request.
    pub const fn temporary_space(&self) -> &TemporarySpace {
        &self.space
    }

    /// Reserves memory to load and process a body of this many bytes, or to build a response from as many bytes of data. Waits
    /// behind the tenant's other requests. The caller holds the reservation until the response is built.
    ///
    /// # Errors
    /// [`Error::Overloaded`](crate::Error::Overloaded) if there is no room within ten seconds.
    pub async fn memory_for(&self, bytes: u64) -> Result<Reservation> {
        self.reserve(&self.memory, bytes.saturating_mul(MEMORY_PER_BYTE)).await
    }

    /// Reserves memory for a response of this many bytes that waits to be sent. Waits behind the tenant's other responses. The
    /// caller holds the reservation until the response is sent.
    ///
    /// # Errors
    /// The same.
    pub async fn memory_for_sending(&self, bytes: u64) -> Result<Reservation> {
        self.reserve(&self.answers, bytes).await
    }

    /// Reserves memory for the beginning of an answer that is read before it is sent, or returns `None` if there is none now.
    /// Uses at most half of the tenant's share: other answers wait for the rest.
    pub(crate) fn try_memory_for_sending(&self, bytes: u64) -> Option<Reservation> {
        let mut reservation = self.answers.try_reserve(self.tenant, 0)?;
        reservation.grow_within(bytes, 2).then_some(reservation)
    }

    async fn reserve(&self, budget: &Arc<FairBudget>, bytes: u64) -> Result<Reservation> {
        let reservation = budget.reserve(self.tenant, bytes, Instant::now() + MAX_WAIT).await;
        Ok(reservation.ok_or(Refused::Memory)?)
    }
}
