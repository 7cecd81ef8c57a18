//! Texts that are being received, and the errors of reading a body.

use bytes::{Bytes, BytesMut};
use evidence_core::admission::RequestBudget;
use evidence_core::budget::Reservation;
use evidence_core::compute::Refused;
use evidence_core::spill_buffer::SpillBuffer;
use evidence_core::{Error, Result, StoreError};
use http_body_util::LengthLimitError;

/// Content in memory with the reservation of that memory, which is held until the response is complete.
pub(crate) type Loaded<T> = (T, Option<Reservation>);

/// The name of a body that is too large, in errors.
pub(crate) const BODY: &str = "body";

/// A text that is being received. Until it is complete, a long one is in a temporary file, so that many slow
/// requests use disk space instead of memory.
pub(crate) struct BodyBuffer(SpillBuffer);

impl BodyBuffer {
    /// Creates an empty text.
    pub(crate) fn new(budget: &RequestBudget) -> Self {
        Self(SpillBuffer::new(budget.temporary_space().clone()))
    }

    /// Returns the number of bytes received so far.
    pub(crate) const fn size(&self) -> u64 {
        self.0.size()
    }

    /// Appends the next piece.
    pub(crate) async fn push(&mut self, piece: &[u8]) -> Result<()> {
        self.0.push(piece).await.map_err(spill_error)
    }

    /// Loads the complete text into memory, as soon as memory is available.
    pub(crate) async fn load(mut self, budget: &RequestBudget) -> Result<Loaded<Bytes>> {
        if let Some(short) = self.0.take_memory() {
            return Ok(short);
        }
        let size = self.size();
        let mut content = self.0.finish().await.map_err(spill_error)?;
        let memory = budget.memory_for(size).await?;
        let mut whole = BytesMut::with_capacity(usize::try_from(size).unwrap_or_default());
        while let Some(piece) = content.next().await.map_err(spill_error)? {
            whole.extend_from_slice(&piece);
        }
        Ok((whole.freeze(), Some(memory)))
    }
}

/// Returns the error for a body that cannot be buffered: the tenant's temporary space is used up, or the disk for
/// temporary files is full or not writable.
#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
pub(crate) fn spill_error(source: std::io::Error) -> Error {
    if source.kind() == std::io::ErrorKind::QuotaExceeded {
        return Refused::Disk.into();
    }
    StoreError::Unavailable(format!("the request body cannot be stored temporarily: {source}").into()).into()
}

/// Returns the error for a body that ended early: it exceeds a limit of the API or the host, or the client
/// left.
pub(crate) fn interrupted(error: &(dyn std::error::Error + 'static), limit: u64) -> Error {
    if error.is::<LengthLimitError>() {
        Error::TooLarge { limit, file: false, part: BODY }
    } else {
        tracing::debug!(%error, "a request body ended early");
        incomplete()
    }
}

/// Returns the error for an incomplete body.
pub(crate) fn incomplete() -> Error {
    Error::invalid("body", "The body broke off")
}
