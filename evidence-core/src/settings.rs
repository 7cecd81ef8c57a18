//! The settings of a service.

use std::time::Duration;

use crate::actions::egress::Egress;
use crate::actions::secret_url::UrlKey;
use crate::error::Wording;
use crate::limits::Limits;

/// The settings of a service. Build it with `..Settings::default()`, because a new field is not a breaking change.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The public address of the service, without a trailing slash. Links in responses begin with it.
    pub public_url: String,
    /// The sentences that report missing records.
    pub wording: Wording,
    /// Whether a report to an unknown flow creates the flow.
    pub implicit_flows: bool,
    /// The limits of requests.
    pub limits: Limits,
    /// The shortest interval between two ledger entries for unchanged reports of an environment. Environments report the
    /// same state again and again for years.
    /// [`EnvironmentStatus::reported_at`](crate::environments::EnvironmentStatus) may be late by this interval.
    pub heartbeat_interval: Duration,
    /// The size of the response cache in bytes ([`Operation::CACHED`](crate::operation::Operation::CACHED)). With 0, no response is cached, and concurrent equal
    /// requests do not share one.
    pub answer_cache_bytes: usize,
    /// The longest time that responses and trails are cached. It limits the age of a response after a change without a
    /// ledger entry, such as the repair of a damaged table.
    ///
    /// A response may be built from a cached trail, so such a change may show after twice this time. With zero, no response
    /// is cached or shared, and a trail is cached only for the response that needed it.
    pub cache_ttl: Duration,
    /// The permitted targets of notifications in addition to the internet; none by default.
    pub egress: Egress,
    /// The key that encrypts the URLs of webhooks in the store. Without it, they are stored as they are. URLs that
    /// were stored before stay as they are.
    pub url_key: Option<UrlKey>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            public_url: "http://localhost:8001".to_owned(),
            wording: Wording::Documented,
            implicit_flows: true,
            limits: Limits::default(),
            heartbeat_interval: Duration::from_secs(60),
            answer_cache_bytes: 32 << 20,
            cache_ttl: Duration::from_secs(10),
            egress: Egress::default(),
            url_key: None,
        }
    }
}
