//! Why a request was refused for overload.

/// Why a request was refused for overload: the same call may well succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// [`MAX_WAITING`](super::MAX_WAITING) jobs of the organization, or of the caller, wait already.
    #[error(
        "as many jobs of the organization or caller as may wait are waiting for the compute pool already"
    )]
    Full,
    /// Its turn did not come within [`MAX_WAIT`](super::MAX_WAIT).
    #[error("the compute pool did not get round to it in time")]
    Late,
    /// The share of the organization, or of the caller, in the memory for bodies and long answers did not suffice in time
    /// ([`Limits::request_memory`](crate::Limits)).
    #[error("the memory for bodies and long answers that the organization or caller may use is in use")]
    Memory,
    /// The share of the organization, or of the caller, in the temporary space does not suffice
    /// ([`Limits::temporary_space`](crate::Limits)), or too many temporary files are open.
    #[error("the temporary space that the organization or caller may use is in use")]
    Disk,
}

impl Refused {
    /// The refusal among the causes of an error.
    pub(crate) fn among(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        causes.find_map(|cause| cause.downcast_ref().copied())
    }
}
