//! Admission control: how much requests may hold in memory and in temporary files, in all and per tenant. A transport reserves
//! temporary space before it reads a body, and memory before it loads one; the service reserves memory for long answers. Answers
//! that wait to be sent have a budget of their own: a client that reads slowly keeps no request of its organization out.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::budget::{FairBudget, Reservation, Tenant};
use crate::compute::refused::Refused;
use crate::error::Result;
use crate::limits::Limits;
use crate::spool::TemporarySpace;

/// How much memory a body takes while it is read as JSON and worked on, as a multiple of its length: the text, the values that
/// are read from it, and what is recorded of them. Reports of environments were measured at three to four times their length.
/// So much do long data take while an answer is made of them, too: the text, its values, and the answer's text as it grows.
const MEMORY_PER_BYTE: u64 = 4;

/// The answers that are being sent may use this part of [`Limits::request_memory`], beside it.
const ANSWERS: u64 = 4;

/// How long a body, in its temporary file, or an answer waits for memory.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The budgets that all requests of a service share.
#[derive(Debug, Clone)]
pub struct Admission {
    memory: Arc<FairBudget>,
    answers: Arc<FairBudget>,
    disk: Arc<FairBudget>,
}

/// What one request may hold.
#[derive(Debug, Clone)]
pub struct RequestBudget {
    memory: Arc<FairBudget>,
    answers: Arc<FairBudget>,
    tenant: Tenant,
    space: TemporarySpace,
}

impl Admission {
    /// The budgets that these limits set.
    pub fn new(limits: &Limits) -> Self {
        let Limits { request_memory, temporary_space, .. } = *limits;
        let [memory, answers, disk] =
            [request_memory, request_memory / ANSWERS, temporary_space].map(FairBudget::new);
        Self { memory, answers, disk }
    }

    /// The budget of a request on behalf of this tenant ([`Access::on_behalf_of`](crate::auth::Access::on_behalf_of)).
    pub fn on_behalf_of(&self, tenant: Tenant) -> RequestBudget {
        let space = TemporarySpace::new(Arc::clone(&self.disk), Arc::clone(&self.memory), tenant);
        let [memory, answers] = [&self.memory, &self.answers].map(Arc::clone);
        RequestBudget { memory, answers, tenant, space }
    }
}

impl RequestBudget {
    /// Where the request's temporary files count.
    pub const fn temporary_space(&self) -> &TemporarySpace {
        &self.space
    }

    /// Reserves memory for loading a body of so many bytes and working on it, or for making an answer of data of so many bytes,
    /// and waits for it behind the tenant's other requests. The caller keeps the reservation until the answer is made.
    ///
    /// # Errors
    /// [`Error::Overloaded`](crate::Error::Overloaded) where there is not enough memory within ten seconds.
    pub async fn memory_for(&self, bytes: u64) -> Result<Reservation> {
        self.reserve(&self.memory, bytes.saturating_mul(MEMORY_PER_BYTE)).await
    }

    /// Reserves memory for an answer of so many bytes that waits to be sent, behind the tenant's other answers. The caller keeps
    /// the reservation until the answer is sent.
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
