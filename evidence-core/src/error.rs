//! The error type of all operations, and its two wordings for callers.

use std::collections::BTreeMap;

use crate::checkpoints::not_signed::NotSigned;
use crate::compute::refused::Refused;
use crate::decode::InvalidField;
use crate::store::error::StoreError;
use crate::tags::record::TaggedKind;

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The `errors` object of a response: the name of a field, and the error in its value.
pub type FieldErrors = BTreeMap<String, String>;

/// The message for an invalid body or parameter (specification, Errors).
pub const INVALID_PAYLOAD: &str = "Input payload validation failed";
/// The message for an invalid environment report (specification, Errors).
pub const INVALID_REPORT: &str = "Invalid report data";

/// The error of an operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input is invalid. Nothing was recorded.
    #[error("{message}")]
    Invalid {
        /// The message.
        message: String,
        /// The errors by field.
        fields: FieldErrors,
    },
    /// There is no credential, or it is unknown, malformed, expired or revoked.
    #[error("no valid credential was given")]
    Unauthenticated,
    /// The caller is not authorized.
    #[error("the caller may not do this")]
    Forbidden,
    /// The caller has no role in this organization, or the organization does not exist.
    #[error("the caller has no role at {0}")]
    AccessDenied(String),
    /// A named resource does not exist.
    #[error("{0:?} does not exist")]
    NotFound(Box<Missing>),
    /// A control to be created already exists. The only error of this kind.
    #[error("{0:?} exists already")]
    DuplicateControl(Box<DuplicateControl>),
    /// The input is too large.
    #[error("the input is larger than {limit} bytes")]
    TooLarge {
        /// The maximum size in bytes.
        limit: u64,
        /// Whether a single file of a form is too large.
        file: bool,
        /// The part of the request that is too large: `body`, or the name of a part of a form.
        part: &'static str,
    },
    /// The operation does not accept this content type.
    #[error("the content type cannot be read")]
    UnsupportedMediaType,
    /// The store failed or rejected the write.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The service became unavailable after something was recorded, or may have been. With any other error of
    /// kind [`ErrorKind::Unavailable`], nothing was recorded.
    #[error("the request may have been recorded: {0}")]
    OutcomeUnknown(#[source] Box<Error>),
    /// The request was rejected because too many others wait, or use too much memory.
    #[error("the service is overloaded")]
    Overloaded(#[from] Refused),
    /// The checkpoint of the ledger was not signed.
    #[error(transparent)]
    NotSigned(#[from] NotSigned),
    /// A defect of the service or its environment, such as a report that cannot be rendered.
    #[error("{what}")]
    Internal {
        /// A sentence that describes the failure.
        what: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The kind of an [`Error`], for hosts with their own responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is invalid. Nothing was recorded, and a retry fails as well.
    Invalid,
    /// The caller is unknown.
    Unauthenticated,
    /// The caller is not authorized.
    Forbidden,
    /// A named resource does not exist.
    NotFound,
    /// A resource to be created already exists. A retry fails as well.
    Duplicate,
    /// The input is too large.
    TooLarge,
    /// The content type is not accepted.
    UnsupportedMediaType,
    /// The store or the compute pool is busy, or the store is unreachable. A retry may succeed.
    Unavailable,
    /// Damaged records, failed statements or defects, which the operator should investigate. The message is
    /// for the log, not for callers.
    Internal,
}

impl ErrorKind {
    /// Returns the HTTP status of responses to such an error (specification, Errors).
    ///
    /// ```
    /// assert_eq!(evidence_core::ErrorKind::NotFound.status(), 404);
    /// ```
    pub const fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Duplicate => 409,
            Self::TooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }
}

/// Rejects a list of more than `most` items for `field`. `items` includes existing ones.
pub(crate) fn at_most(most: usize, items: usize, field: &str) -> Result<()> {
    if items > most {
        return Err(Error::invalid(field, format!("There should be at most {most} items, not {items}")));
    }
    Ok(())
}

impl Error {
    /// Returns the kind of error.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use evidence_core::flows::GetFlow;
    /// # use evidence_conformance::memory::MemoryStore;
    /// # use evidence_core::seed::Seed;
    /// use evidence_core::{Error, ErrorKind, Evidence, EvidenceService, Settings, Wording};
    ///
    /// /// Returns the message of a host that does not use HTTP.
    /// fn tell(error: &Error) -> String {
    ///     match (error.kind(), error) {
    ///         (ErrorKind::NotFound, Error::NotFound(missing)) => Wording::Named.missing(missing).0,
    ///         (ErrorKind::Invalid, error) => format!("please correct: {error}"),
    ///         (ErrorKind::Unauthenticated | ErrorKind::Forbidden, _) => "you may not see this".to_owned(),
    ///         (ErrorKind::Unavailable, _) => "please try again".to_owned(),
    ///         (kind, _) => format!("this failed ({})", kind.status()),
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// # let service = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
    /// # service.seed(&Seed { user: "jane".parse()?, orgs: vec!["acme".parse()?], api_key: None }).await?;
    /// let caller = service.principal_of_user("jane").await?;
    /// let flow = GetFlow { org: "acme".parse()?, flow_name: "shop".parse()? };
    /// let error = service.call(&caller, flow, ()).await.unwrap_err();
    /// assert_eq!(tell(&error), "Flow named 'shop' does not exist for organization 'acme'");
    /// assert_eq!(error.status(), 404);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::Unauthenticated => ErrorKind::Unauthenticated,
            Self::Forbidden | Self::AccessDenied(_) => ErrorKind::Forbidden,
            Self::NotFound(_) => ErrorKind::NotFound,
            Self::DuplicateControl(_) => ErrorKind::Duplicate,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::UnsupportedMediaType => ErrorKind::UnsupportedMediaType,
            // Too many conflicts mean that the store is busy.
            Self::Store(
                StoreError::Conflict
                | StoreError::Unavailable(_)
                | StoreError::OutcomeUnknown(_)
                | StoreError::ClockAhead(_),
            )
            | Self::OutcomeUnknown(_)
            | Self::NotSigned(_)
            | Self::Overloaded(_) => ErrorKind::Unavailable,
            Self::Store(_) | Self::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// Returns the HTTP status of its [kind](Self::kind).
    pub const fn status(&self) -> u16 {
        self.kind().status()
    }

    /// Returns whether something was recorded, or may have been, although the request failed. Any other
    /// request that fails with [`ErrorKind::Unavailable`] recorded nothing.
    pub const fn may_have_recorded(&self) -> bool {
        matches!(self, Self::OutcomeUnknown(_) | Self::Store(StoreError::OutcomeUnknown(_)))
    }

    /// Creates an error about a field: status 400 with [`INVALID_PAYLOAD`].
    pub fn invalid(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self::invalid_with(INVALID_PAYLOAD, field, text)
    }

    /// Creates an error about a field with another message.
    pub fn invalid_with(
        message: impl Into<String>,
        field: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self::Invalid { message: message.into(), fields: BTreeMap::from([(field.into(), text.into())]) }
    }

    /// Creates an error with a message only.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), fields: BTreeMap::new() }
    }

    /// Replaces the message [`INVALID_PAYLOAD`]. Other errors are unchanged.
    #[must_use]
    pub fn with_summary(self, message: &str) -> Self {
        match self {
            Self::Invalid { message: usual, fields } if usual == INVALID_PAYLOAD => {
                Self::Invalid { message: message.to_owned(), fields }
            }
            other => other,
        }
    }

    /// Replaces the field that named a missing resource. Other errors are unchanged.
    #[must_use]
    pub fn named_by(self, field: &'static str) -> Self {
        match self {
            Self::NotFound(missing) => missing.named_by(field).into(),
            other => other,
        }
    }

    /// Returns the error of a request that recorded something, or may have. Unavailability becomes
    /// [`Error::OutcomeUnknown`]; other errors are unchanged.
    #[must_use]
    pub(crate) fn after_recording(self) -> Self {
        match self {
            Self::OutcomeUnknown(_) => self,
            error if error.kind() == ErrorKind::Unavailable => Self::OutcomeUnknown(Box::new(error)),
            other => other,
        }
    }

    /// Creates the error for an invalid field, with [`INVALID_PAYLOAD`]. `whole` names the input if the error
    /// concerns all of it.
    pub fn invalid_field(misfit: &InvalidField, whole: &str) -> Self {
        let field = misfit.field();
        Self::invalid(if field.is_empty() { whole.to_owned() } else { field }, misfit.message())
    }
}

/// A control that already exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateControl {
    /// Its identifier.
    pub identifier: String,
    /// The organization.
    pub org: String,
}

impl From<DuplicateControl> for Error {
    fn from(duplicate: DuplicateControl) -> Self {
        Self::DuplicateControl(Box::new(duplicate))
    }
}

/// A resource that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The kind of resource.
    pub resource: Resource,
    /// The requested name.
    pub name: String,
    /// The organization.
    pub org: String,
    /// The flow, if the resource belongs to one.
    pub flow: Option<String>,
    /// The trail, if the resource belongs to one.
    pub trail: Option<String>,
    /// The parameter or body field with the name.
    pub field: &'static str,
    /// The message in the specification, if it is not `<Resource> not found`.
    pub message: Option<&'static str>,
}

/// The kinds of resources that can be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is the name of a resource")]
pub enum Resource {
    Organization,
    User,
    Member,
    Flow,
    /// An archived flow, which accepts no more reports.
    ArchivedFlow,
    Trail,
    Artifact,
    Attestation,
    Evidence,
    Environment,
    /// An archived environment, which is no longer found by its name.
    ArchivedEnvironment,
    Snapshot,
    /// A deployment. The name is a sentence.
    Deployment,
    Policy,
    AttestationType,
    AttestationTypeVersion,
    Control,
    ControlVersion,
    Decision,
    Repo,
    ServiceAccount,
    ApiKey,
    /// An action, identified by its number.
    Action,
    /// An allowlist entry, identified by its fingerprint.
    AllowlistEntry,
    Match,
    /// A signed checkpoint of a ledger. The name is a sentence.
    Checkpoint,
    /// An entry of a ledger, by its index or its record. The name is a sentence.
    LedgerEntry,
    /// A tile of a ledger, by its path. The name is a sentence.
    Tile,
    Tagged(TaggedKind),
}

impl Missing {
    /// Creates the error for a resource `name` in organization `org`.
    pub fn new(resource: Resource, name: impl Into<String>, org: impl Into<String>) -> Self {
        Self {
            resource,
            name: name.into(),
            org: org.into(),
            flow: None,
            trail: None,
            field: resource.field(),
            message: None,
        }
    }

    /// Sets the flow that the resource belongs to.
    #[must_use]
    pub fn in_flow(mut self, flow: impl Into<String>) -> Self {
        self.flow = Some(flow.into());
        self
    }

    /// Sets the trail that the resource belongs to.
    #[must_use]
    pub fn in_trail(mut self, trail: impl Into<String>) -> Self {
        self.trail = Some(trail.into());
        self
    }

    /// Sets the field that named the resource.
    #[must_use]
    pub fn named_by(mut self, field: &'static str) -> Self {
        self.field = field;
        self
    }

    /// Sets the message from the specification.
    #[must_use]
    pub fn with_message(mut self, message: &'static str) -> Self {
        self.message = Some(message);
        self
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Self {
        Self::NotFound(Box::new(missing))
    }
}

impl Resource {
    const fn field(self) -> &'static str {
        match self {
            Self::Organization => "org",
            Self::User | Self::Member => "user",
            Self::Flow | Self::ArchivedFlow => "flow_name",
            Self::Trail => "trail_name",
            Self::Artifact => "fingerprint",
            Self::Attestation | Self::Evidence => "attestation_id",
            Self::Environment | Self::ArchivedEnvironment => "env_name",
            Self::Snapshot => "snapshot_expression",
            Self::Deployment => "fingerprint",
            Self::Policy => "policy_name",
            Self::AttestationType => "custom_attestation_type_name",
            Self::AttestationTypeVersion => "query.version",
            Self::Control => "identifier",
            Self::ControlVersion => "version_number",
            Self::Decision => "decision_id",
            Self::Repo => "repo_name",
            Self::ServiceAccount => "name",
            Self::ApiKey => "key_id",
            Self::Action => "action_number",
            Self::AllowlistEntry => "fingerprint",
            Self::Match => "search_value",
            Self::Checkpoint => "org",
            Self::LedgerEntry => "index",
            Self::Tile => "tile",
            Self::Tagged(_) => "resource_id",
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Organization => "organization",
            Self::User => "user",
            Self::Member => "member",
            Self::Flow | Self::ArchivedFlow => "flow",
            Self::Trail => "trail",
            Self::Artifact => "artifact",
            Self::Attestation => "attestation",
            Self::Evidence => "evidence file",
            Self::Environment | Self::ArchivedEnvironment => "environment",
            Self::Snapshot => "snapshot",
            Self::Deployment => "deployment",
            Self::Policy => "policy",
            Self::AttestationType => "custom attestation type",
            Self::AttestationTypeVersion | Self::ControlVersion => "version",
            Self::Control => "control",
            Self::Decision => "decision",
            Self::Repo => "repo",
            Self::ServiceAccount => "service account",
            Self::ApiKey => "API key",
            Self::Action => "action",
            Self::AllowlistEntry => "allowlist entry",
            Self::Match => "match",
            Self::Checkpoint => "checkpoint",
            Self::LedgerEntry => "ledger entry",
            Self::Tile => "tile",
            Self::Tagged(_) => "resource",
        }
    }

    const fn documented(self) -> &'static str {
        match self {
            Self::Organization => "Organization not found",
            Self::User => "User not found",
            Self::Member => "Member not found",
            Self::Flow | Self::ArchivedFlow => "Flow not found",
            Self::Trail => "Trail not found",
            Self::Artifact => "Artifact not found",
            Self::Attestation => "Attestation not found",
            Self::Evidence => "This attestation has no evidence file attached.",
            Self::Environment | Self::ArchivedEnvironment => "Environment not found",
            Self::Snapshot => "Snapshot not found",
            Self::Deployment => "Deployment not found",
            Self::Policy => "Policy not found",
            Self::AttestationType => "Custom attestation type not found",
            Self::AttestationTypeVersion => "Custom attestation type version not found",
            Self::Control => "Control not found",
            Self::ControlVersion => "Control or version not found",
            Self::Decision => "Decision not found",
            Self::Repo => "Repo not found",
            Self::ServiceAccount => "Service account not found",
            Self::ApiKey => "API key not found",
            Self::Action => "Action not found",
            Self::AllowlistEntry => "Allowlist entry not found",
            Self::Match => "No matches",
            Self::Checkpoint => "Checkpoint not found",
            Self::LedgerEntry => "Ledger entry not found",
            Self::Tile => "Tile not found",
            Self::Tagged(_) => "Resource not found",
        }
    }
}

/// The wording of errors about missing resources. The status is the same with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wording {
    /// The message in the specification, with the requested name in `errors`.
    #[default]
    Documented,
    /// The sentences that users of the public command-line client know, without `errors`.
    Named,
}

impl Wording {
    /// Returns the `message` and `errors` for a missing resource.
    pub fn missing(self, missing: &Missing) -> (String, FieldErrors) {
        match self {
            Self::Documented => {
                let message = match missing.resource {
                    // Clients expect this sentence with either wording.
                    Resource::Match => named(missing),
                    resource => missing.message.unwrap_or(resource.documented()).to_owned(),
                };
                (message, BTreeMap::from([(missing.field.to_owned(), looked_for(missing))]))
            }
            Self::Named => (named(missing), BTreeMap::new()),
        }
    }
}

impl Wording {
    /// Returns the `message` and `errors` for a control that already exists.
    pub fn duplicate(self, duplicate: &DuplicateControl) -> (String, FieldErrors) {
        let DuplicateControl { identifier, org } = duplicate;
        match self {
            Self::Documented => {
                let text = format!("organization '{org}' has a control with identifier '{identifier}'");
                let message = "A control with this identifier already exists".to_owned();
                (message, BTreeMap::from([("identifier".to_owned(), text)]))
            }
            Self::Named => {
                let sentence = format!(
                    "A control with identifier '{identifier}' already exists in organization '{org}'"
                );
                (sentence, BTreeMap::new())
            }
        }
    }
}

fn looked_for(missing: &Missing) -> String {
    let Missing { resource, name, org, flow, trail, .. } = missing;
    let noun = resource.noun();
    let place = match (trail, flow) {
        (Some(trail), Some(flow)) => format!("trail '{trail}' of flow '{flow}' in organization '{org}'"),
        (None, Some(flow)) => format!("flow '{flow}' in organization '{org}'"),
        (_, None) => format!("organization '{org}'"),
    };
    match resource {
        Resource::Organization | Resource::User => format!("no {noun} named '{name}'"),
        Resource::Match => format!("no fingerprint or commit begins with '{name}' in {place}"),
        Resource::ArchivedFlow | Resource::ArchivedEnvironment => {
            format!("{noun} '{name}' in {place} is archived")
        }
        Resource::Action => format!("no {noun} has number {name} in {place}"),
        // The name is already a sentence.
        Resource::AttestationTypeVersion
        | Resource::ControlVersion
        | Resource::Snapshot
        | Resource::Deployment
        | Resource::Checkpoint
        | Resource::LedgerEntry
        | Resource::Tile
        | Resource::AllowlistEntry => name.clone(),
        _ => format!("no {noun} named '{name}' in {place}"),
    }
}

fn named(missing: &Missing) -> String {
    let Missing { resource, name, org, flow, trail, .. } = missing;
    let (flow, trail) = (flow.as_deref().unwrap_or_default(), trail.as_deref());
    match resource {
        Resource::Flow => format!("Flow named '{name}' does not exist for organization '{org}'"),
        Resource::ArchivedFlow => format!("Flow named '{name}' has been archived for organization '{org}'"),
        Resource::Trail => {
            format!("Trail with name '{name}' does not exist for Organization '{org}' and Flow '{flow}'")
        }
        Resource::Artifact => match trail {
            Some(trail) => format!(
                "Artifact with fingerprint {name} does not exist in trail \"{trail}\" of flow \"{flow}\" belonging to organization \"{org}\""
            ),
            None => {
                format!(
                    "Artifact with fingerprint '{name}' does not exist in flow '{flow}' belonging to organization '{org}'"
                )
            }
        },
        Resource::Environment => {
            format!("Environment named '{name}' does not exist for organization '{org}'")
        }
        Resource::ArchivedEnvironment => {
            format!("Environment named '{name}' has been archived for organization '{org}'")
        }
        Resource::Policy => format!("Policy '{name}' does not exist in organization '{org}'"),
        Resource::AttestationType => {
            format!("Custom attestation type '{name}' does not exist for org '{org}'")
        }
        Resource::AttestationTypeVersion
        | Resource::ControlVersion
        | Resource::Snapshot
        | Resource::Deployment
        | Resource::Checkpoint
        | Resource::LedgerEntry
        | Resource::Tile
        | Resource::AllowlistEntry => name.clone(),
        Resource::Control => format!("Control '{name}' does not exist in organization '{org}'"),
        Resource::Repo => format!("Repo '{name}' not found"),
        Resource::Match => format!("No matches for '{name}'."),
        // The quotation marks are part of the sentence.
        Resource::Tagged(kind) => format!("\"{kind:?} '{name}' does not exist in organization '{org}'\""),
        Resource::Organization
        | Resource::User
        | Resource::Member
        | Resource::Attestation
        | Resource::Evidence
        | Resource::Decision
        | Resource::ServiceAccount
        | Resource::ApiKey
        | Resource::Action => resource.documented().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_in_the_wording_that_is_asked_for() {
        let version = "version 10 does not exist for custom attestation type 'review'";
        let flow = Missing::new(Resource::Flow, "web", "acme");
        let table = [
            (flow.clone(), "Flow not found", "flow_name", "no flow named 'web' in organization 'acme'"),
            (
                Missing::new(Resource::AttestationTypeVersion, version, "acme"),
                "Custom attestation type version not found",
                "query.version",
                version,
            ),
            (
                Missing::new(Resource::Organization, "acme", "acme"),
                "Organization not found",
                "org",
                "no organization named 'acme'",
            ),
            (
                Missing::new(Resource::Match, "0d1e2", "acme"),
                "No matches for '0d1e2'.",
                "search_value",
                "no fingerprint or commit begins with '0d1e2' in organization 'acme'",
            ),
            (
                Missing::new(Resource::Attestation, "x", "acme")
                    .in_flow("web")
                    .in_trail("t")
                    .with_message("Not here"),
                "Not here",
                "attestation_id",
                "no attestation named 'x' in trail 't' of flow 'web' in organization 'acme'",
            ),
        ];
        for (missing, message, field, text) in table {
            let (found, errors) = Wording::Documented.missing(&missing);
            assert_eq!((found.as_str(), errors[field].as_str()), (message, text));
        }
        let named = |missing: &Missing| Wording::Named.missing(missing);
        let sentence = "Flow named 'web' does not exist for organization 'acme'".to_owned();
        assert_eq!(named(&flow), (sentence, FieldErrors::new()));
        let missing = Missing::new(Resource::AttestationTypeVersion, version, "acme");
        assert_eq!(named(&missing).0, version);
    }
}
