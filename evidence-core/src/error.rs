//! What can go wrong, as the caller is told: one error type for every operation, and its two wordings.

use std::collections::BTreeMap;

use crate::compute::refused::Refused;
use crate::decode::InvalidField;
use crate::store::error::StoreError;
use crate::tags::record::TaggedKind;

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Field name to what is wrong with it, as the `errors` object of an answer.
pub type FieldErrors = BTreeMap<String, String>;

/// The message of a refused body or parameter (specification, Errors).
pub const INVALID_PAYLOAD: &str = "Input payload validation failed";
/// The message of a refused environment report (specification, Errors).
pub const INVALID_REPORT: &str = "Invalid report data";

/// Why an operation did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input breaks a rule; nothing was stored.
    #[error("{message}")]
    Invalid {
        /// What is said first.
        message: String,
        /// What is wrong, field by field.
        fields: FieldErrors,
    },
    /// No credential, or one that is unknown, malformed, expired or revoked.
    #[error("no valid credential was given")]
    Unauthenticated,
    /// The caller may not do this.
    #[error("the caller may not do this")]
    Forbidden,
    /// The caller has no role in the organization that this path names, or there is none.
    #[error("the caller has no role at {0}")]
    AccessDenied(String),
    /// Something that was named does not exist.
    #[error("{0:?} does not exist")]
    NotFound(Box<Missing>),
    /// A control that was to be created exists: nothing else is refused for that.
    #[error("{0:?} exists already")]
    DuplicateControl(Box<DuplicateControl>),
    /// Too large an input.
    #[error("the input is larger than {limit} bytes")]
    TooLarge {
        /// The greatest size, in bytes.
        limit: u64,
        /// Whether it is one file of a form rather than the whole body.
        file: bool,
        /// The part of the request that is too large: `body`, or the name of a form's part.
        part: &'static str,
    },
    /// The body is of a type that the operation does not read.
    #[error("the content type cannot be read")]
    UnsupportedMediaType,
    /// The store could not answer, or did not accept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The service became unavailable after something of the request was recorded, or may have been. Any other error that is
    /// [`ErrorKind::Unavailable`] means that nothing was recorded.
    #[error("the request may have been recorded: {0}")]
    OutcomeUnknown(#[source] Box<Error>),
    /// The request was not begun, because too many others wait or hold too much.
    #[error("the service is overloaded")]
    Overloaded(#[from] Refused),
    /// A defect of the service or its surroundings, such as a report that cannot be drawn.
    #[error("{what}")]
    Internal {
        /// What failed.
        what: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What kind of failure an [`Error`] is, for hosts that answer it in their own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input breaks a rule; nothing was stored. The same input is refused again.
    Invalid,
    /// Nobody whom the service knows is calling.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// Something that was named does not exist.
    NotFound,
    /// What was to be created exists. The same input is refused again.
    Duplicate,
    /// The input is too large.
    TooLarge,
    /// The body is of a type that is not read.
    UnsupportedMediaType,
    /// The store or the compute pool is busy, or the store out of reach: the same call may well succeed later.
    Unavailable,
    /// Damaged records, failed statements, defects: for whoever runs the service to look into. What the error says is
    /// for the log, not for callers.
    Internal,
}

impl ErrorKind {
    /// The HTTP status of answers with such an error (specification, Errors): the one table of them.
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

/// Refuses a list of `field` that would hold more than `most` items, together with those that are there already.
pub(crate) fn at_most(most: usize, items: usize, field: &str) -> Result<()> {
    if items > most {
        return Err(Error::invalid(field, format!("There should be at most {most} items, not {items}")));
    }
    Ok(())
}

impl Error {
    /// What kind of failure it is.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use evidence_core::flows::GetFlow;
    /// # use evidence_core::memory::MemoryStore;
    /// # use evidence_core::seed::Seed;
    /// use evidence_core::{Error, ErrorKind, Evidence, EvidenceService, Settings, Wording};
    ///
    /// /// How a host tells its users, who speak no HTTP.
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
            // A race lost too often is a busy store.
            Self::Store(
                StoreError::Conflict
                | StoreError::Unavailable(_)
                | StoreError::OutcomeUnknown(_)
                | StoreError::ClockAhead(_),
            )
            | Self::OutcomeUnknown(_)
            | Self::Overloaded(_) => ErrorKind::Unavailable,
            Self::Store(_) | Self::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// The HTTP status that answers it: that of its [kind](Self::kind).
    pub const fn status(&self) -> u16 {
        self.kind().status()
    }

    /// Whether something of the request was recorded although it failed, or may have been. Any other request that fails with
    /// [`ErrorKind::Unavailable`] recorded nothing.
    pub const fn may_have_recorded(&self) -> bool {
        matches!(self, Self::OutcomeUnknown(_) | Self::Store(StoreError::OutcomeUnknown(_)))
    }

    /// A refused field: status 400 with [`INVALID_PAYLOAD`].
    pub fn invalid(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self::invalid_with(INVALID_PAYLOAD, field, text)
    }

    /// A refused field under a message of its own.
    pub fn invalid_with(
        message: impl Into<String>,
        field: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self::Invalid { message: message.into(), fields: BTreeMap::from([(field.into(), text.into())]) }
    }

    /// A refusal that needs no field to be understood.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), fields: BTreeMap::new() }
    }

    /// The same refusal with another first sentence than [`INVALID_PAYLOAD`]; other errors stay as they are.
    #[must_use]
    pub fn with_summary(self, message: &str) -> Self {
        match self {
            Self::Invalid { message: usual, fields } if usual == INVALID_PAYLOAD => {
                Self::Invalid { message: message.to_owned(), fields }
            }
            other => other,
        }
    }

    /// The same absence told of what this field names; other errors stay as they are.
    #[must_use]
    pub fn named_by(self, field: &'static str) -> Self {
        match self {
            Self::NotFound(missing) => missing.named_by(field).into(),
            other => other,
        }
    }

    /// The same failure of a request that recorded something, or may have: one for which the service is unavailable becomes
    /// [`Error::OutcomeUnknown`]; other errors stay as they are.
    #[must_use]
    pub(crate) fn after_recording(self) -> Self {
        match self {
            Self::OutcomeUnknown(_) => self,
            error if error.kind() == ErrorKind::Unavailable => Self::OutcomeUnknown(Box::new(error)),
            other => other,
        }
    }

    /// A misfit of the input, under [`INVALID_PAYLOAD`]; `whole` names the input itself where no field does.
    pub fn invalid_field(misfit: &InvalidField, whole: &str) -> Self {
        let field = misfit.field();
        Self::invalid(if field.is_empty() { whole.to_owned() } else { field }, misfit.message())
    }
}

/// A control that exists already.
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

/// What was looked for and is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What kind of thing.
    pub resource: Resource,
    /// The name it was asked for by.
    pub name: String,
    /// The organization it was looked for in.
    pub org: String,
    /// The flow it was looked for in, where there is one.
    pub flow: Option<String>,
    /// The trail it was looked for in, where there is one.
    pub trail: Option<String>,
    /// The parameter or body field that named it.
    pub field: &'static str,
    /// The message that the specification gives this case, where it is not `<Resource> not found`.
    pub message: Option<&'static str>,
}

/// The kinds of things that can be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is the name of a resource")]
pub enum Resource {
    Organization,
    User,
    Member,
    Flow,
    /// A flow that was asked to take something, and takes nothing any more.
    ArchivedFlow,
    Trail,
    Artifact,
    Attestation,
    Evidence,
    Environment,
    /// An environment that is archived: none is found by that name any more.
    ArchivedEnvironment,
    Snapshot,
    /// A sentence says which.
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
    /// An action, which is asked for by its number.
    Action,
    /// An entry of an environment's allowlist, which is found by its fingerprint.
    AllowlistEntry,
    Match,
    Tagged(TaggedKind),
}

impl Missing {
    /// A thing named `name` in organization `org` is missing.
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

    /// Looked for in this flow.
    #[must_use]
    pub fn in_flow(mut self, flow: impl Into<String>) -> Self {
        self.flow = Some(flow.into());
        self
    }

    /// Looked for in this trail.
    #[must_use]
    pub fn in_trail(mut self, trail: impl Into<String>) -> Self {
        self.trail = Some(trail.into());
        self
    }

    /// Named by this field rather than by the usual one.
    #[must_use]
    pub fn named_by(mut self, field: &'static str) -> Self {
        self.field = field;
        self
    }

    /// Told by this message of the specification.
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
            Self::Tagged(_) => "Resource not found",
        }
    }
}

/// Which sentences name a missing thing. Status codes never differ between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wording {
    /// The specification's message, with `errors` saying what was looked for.
    #[default]
    Documented,
    /// The sentences that users of the public command-line client know, without that `errors`.
    Named,
}

impl Wording {
    /// The `message` and `errors` that tell of a missing thing.
    pub fn missing(self, missing: &Missing) -> (String, FieldErrors) {
        match self {
            Self::Documented => {
                let message = match missing.resource {
                    // Clients of either wording know this sentence.
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
    /// The `message` and `errors` that tell of a control that exists already.
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
        // What was looked for is a sentence already.
        Resource::AttestationTypeVersion
        | Resource::ControlVersion
        | Resource::Snapshot
        | Resource::Deployment
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
        | Resource::AllowlistEntry => name.clone(),
        Resource::Control => format!("Control '{name}' does not exist in organization '{org}'"),
        Resource::Repo => format!("Repo '{name}' not found"),
        Resource::Match => format!("No matches for '{name}'."),
        // The quotation marks around the sentence are a part of it.
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
