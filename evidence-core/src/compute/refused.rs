//! The reasons why a request is refused for overload.

use crate::limiter::AcquireError;

/// The reason why a request is refused for overload. The same request may succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// [`MAX_WAITING`](super::MAX_WAITING) jobs of the tenant wait already.
    #[error("too many jobs of the organization or caller wait for the compute pool")]
    Full,
    /// A job got no thread within [`MAX_WAIT`](super::MAX_WAIT).
    #[error("no thread of the compute pool was free in time")]
    Late,
    /// The tenant's share of the memory for bodies and long responses had no room in time
    /// ([`Limits::request_memory`](crate::Limits)).
    #[error("the organization or caller has used its share of the memory for bodies and long responses")]
    Memory,
    /// The tenant's share of the temporary space has no room ([`Limits::temporary_space`](crate::Limits)), or too many temporary
    /// files are open.
    #[error("the organization or caller has used its share of the temporary space")]
    Disk,
}

impl From<AcquireError> for Refused {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Full => Self::Full,
            AcquireError::Late => Self::Late,
        }
    }
}

impl Refused {
    /// Returns the refusal among the causes of an error.
    pub(crate) fn among(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        causes.find_map(|cause| cause.downcast_ref().copied())
    }
}
