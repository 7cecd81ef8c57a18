//! Who calls and what they may do: API keys, principals, roles and scopes (specification, Authentication).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Missing, Resource, Result};
use crate::id::{Id, Random};
use crate::name::{FlowName, OrgName};
use crate::operation::Operation;

/// What a caller presents.
#[derive(Clone, Copy)]
pub enum Credential<'a> {
    /// `Authorization: Bearer <key>`.
    Bearer(&'a str),
    /// `Authorization: Basic <base64 of key:anything>`, already decoded; only some operations accept it.
    Basic {
        /// The key, sent as the user name.
        key: &'a str,
    },
}

impl<'a> Credential<'a> {
    /// The API key in it.
    pub const fn key(self) -> &'a str {
        match self {
            Self::Bearer(key) | Self::Basic { key } => key,
        }
    }
}

impl std::fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bearer(_) => "Bearer(…)",
            Self::Basic { .. } => "Basic(…)",
        })
    }
}

/// An API key as its holder knows it: `ev_`, 43 base62 characters of 256 random bits, six of checksum. Never
/// stored, never printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

const PREFIX: &str = "ev_";
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl ApiKey {
    /// A fresh key.
    pub fn generate(random: &dyn Random) -> Self {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        let secret = base62(&secret, 43);
        let checksum = base62(&Sha256::digest(secret.as_bytes())[..4], 6);
        Self(format!("{PREFIX}{secret}{checksum}"))
    }

    /// A key that a host brings with it; any text will do.
    pub const fn imported(text: String) -> Self {
        Self(text)
    }

    /// The text, to be shown to its holder once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is stored in its place.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.0)
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// `bytes` as a big-endian number in base 62, on exactly `width` digits.
fn base62(bytes: &[u8], width: usize) -> String {
    let mut number = bytes.to_vec();
    let mut digits = vec![BASE62[0]; width];
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0_u32;
        for byte in &mut number {
            let value = remainder << 8 | u32::from(*byte);
            *byte = (value / 62).to_be_bytes()[3];
            remainder = value % 62;
        }
        *digit = BASE62[remainder as usize];
    }
    digits.into_iter().map(char::from).collect()
}

/// The SHA-256 of an API key, lower-case hex: what a store holds and looks keys up by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyHash(String);

impl KeyHash {
    /// The hash of this key.
    pub fn of(key: &str) -> Self {
        Self(crate::digest::sha256_hex(key.as_bytes()))
    }

    /// The hash a store holds.
    pub const fn stored(hex: String) -> Self {
        Self(hex)
    }

    /// The hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its own digest, which may appear in the ledger: nothing usable leaves with it.
    pub fn fingerprint(&self) -> String {
        crate::digest::sha256_hex(self.0.as_bytes())
    }

    /// Equality in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        subtle::ConstantTimeEq::ct_eq(self.0.as_bytes(), other.0.as_bytes()).into()
    }
}

impl std::fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// What a user or service account may do in an organization, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything.
    Reader,
    /// Also reports environments and keeps service accounts of its own.
    Snapshotter,
    /// Also writes everything but settings and other people's service accounts.
    Member,
    /// May do everything.
    Admin,
}

impl std::fmt::Display for Role {
    /// As the wire has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reader => "reader",
            Self::Snapshotter => "snapshotter",
            Self::Member => "member",
            Self::Admin => "admin",
        })
    }
}

/// What an operation asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Anybody, without a credential: the operation finds out by itself who calls, as of a webhook whose bytes somebody
    /// else has signed. It records as whom it names ([`Context::as_service_account`](crate::service::Context),
    /// [`Context::as_operator`](crate::service::Context)), and not without. Anybody may learn from it whether the
    /// organization of its path exists. The body is read before anybody is known: [`Operation::body_limit`] is all that
    /// bounds what a stranger makes the server take in, and a form is no body for it.
    Open,
    /// Any valid credential; no organization is involved.
    Authenticated,
    /// Any role.
    Read,
    /// Any role, or anybody with a credential when the flow named in the path is public.
    ReadFlow,
    /// A role that may report environments and keep service accounts of its own.
    Report,
    /// A role that may write.
    Write,
    /// The role that may do everything.
    Admin,
}

impl Scope {
    /// The least role that satisfies the scope.
    pub const fn least_role(self) -> Role {
        match self {
            Self::Open | Self::Authenticated | Self::Read | Self::ReadFlow => Role::Reader,
            Self::Report => Role::Snapshotter,
            Self::Write => Role::Member,
            Self::Admin => Role::Admin,
        }
    }
}

/// Who did something, as facts remember it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The user's or service account's id; zeros for an operator, of whom there is no record.
    pub id: Id,
    /// Its name, shown wherever people look.
    pub name: String,
    /// What it is the name of.
    pub kind: ActorKind,
}

/// The kinds of those who do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActorKind {
    /// A person with a role in organizations.
    User,
    /// A program with a role in one organization.
    ServiceAccount,
    /// Whoever runs the host ([`crate::administration`]). They call no operation and hold no key.
    Operator,
}

impl Actor {
    /// The operator of this name.
    pub(crate) fn operator(name: &str) -> Self {
        Self { id: Id::NONE, name: name.to_owned(), kind: ActorKind::Operator }
    }
}

impl std::fmt::Display for Actor {
    /// `user:jane`, as the ledger's leaves carry it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            ActorKind::User => "user",
            ActorKind::ServiceAccount => "service-account",
            ActorKind::Operator => "operator",
        };
        write!(f, "{kind}:{}", self.name)
    }
}

/// An authenticated caller, made by [`crate::EvidenceService::authenticate`] and
/// [`crate::Evidence::principal_of_user`] alone; or [nobody](Self::nobody). It may be kept: whether its key still works and what its holder may do
/// is looked up at each use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub(crate) actor: Actor,
    /// The key that was presented; none where a host vouches for a user.
    pub(crate) key: Option<KeyHash>,
}

impl Principal {
    /// Whoever calls an operation of [`Scope::Open`]: no credential is looked at, and no other operation is for them.
    pub const fn nobody() -> Self {
        let actor = Actor { id: Id::NONE, name: String::new(), kind: ActorKind::Operator };
        Self { actor, key: None }
    }

    /// Whether it is [nobody](Self::nobody): of every other principal there is a record.
    pub(crate) fn is_nobody(&self) -> bool {
        self.actor.id == Id::NONE
    }

    /// The user or service account.
    pub const fn actor(&self) -> &Actor {
        &self.actor
    }
}

/// What somebody is about to do: an operation, and the organization and the flow that its path names. It is the one
/// source of both for [`crate::EvidenceService::authorize`], whoever carries the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    operation: &'static str,
    scope: Scope,
    org: Option<OrgName>,
    flow: Option<FlowName>,
}

impl Target {
    /// What an operation is about to do, by its own fields.
    pub fn of<O: Operation>(operation: &O) -> Self {
        Self::new::<O>(operation.org().cloned(), operation.flow().cloned())
    }

    /// The same by the path's parameters, percent-decoded, before the operation is read from them: for a transport, which
    /// refuses those who may not before it looks at anything else of a request. What cannot be a flow's name is none.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for what cannot be an organization's name.
    pub fn at<'a, O: Operation>(parameter: impl Fn(&str) -> Option<&'a str>) -> Result<Self> {
        let org = match parameter("org").map(|name| (name, name.parse())) {
            None => None,
            Some((_, Ok(org))) => Some(org),
            Some((name, Err(_))) => return Err(Missing::new(Resource::Organization, name, name).into()),
        };
        Ok(Self::new::<O>(org, parameter("flow_name").and_then(|name| name.parse().ok())))
    }

    fn new<O: Operation>(org: Option<OrgName>, flow: Option<FlowName>) -> Self {
        let flow = flow.filter(|_| O::SCOPE == Scope::ReadFlow);
        Self { operation: O::NAME, scope: O::SCOPE, org, flow }
    }

    /// The `operationId`.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// What the operation asks of its caller.
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// The organization.
    pub const fn org(&self) -> Option<&OrgName> {
        self.org.as_ref()
    }

    /// The flow that is read from, where the scope is [`Scope::ReadFlow`].
    pub const fn flow(&self) -> Option<&FlowName> {
        self.flow.as_ref()
    }
}

/// A caller's right to one [`Target`], established by [`crate::EvidenceService::authorize`] alone, and good for nothing
/// else. It is looked up again when it is used and when something is recorded with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub(crate) caller: Principal,
    pub(crate) target: Target,
    pub(crate) org_access: Option<OrgAccess>,
    /// The organization whose service account the caller is.
    pub(crate) home: Option<Id>,
}

impl Access {
    /// Who calls.
    pub const fn caller(&self) -> &Principal {
        &self.caller
    }

    /// What for.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Where, and with which role; nothing for operations that concern no organization.
    pub const fn org_access(&self) -> Option<&OrgAccess> {
        self.org_access.as_ref()
    }

    /// Whose share of the compute pool the request uses ([`Compute::on_behalf_of`](crate::compute::Compute::on_behalf_of)):
    /// the organization's, where the caller has a role there, and else the caller's own. An organization makes as many service
    /// accounts as it likes: elsewhere they all use its own share. Nothing for nobody.
    pub fn on_behalf_of(&self) -> Option<Id> {
        match &self.org_access {
            Some(OrgAccess { org, role: Some(_), .. }) => Some(*org),
            _ if self.caller.is_nobody() => None,
            _ => Some(self.home.unwrap_or(self.caller.actor.id)),
        }
    }
}

/// The organization that a request concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrgAccess {
    /// The organization's id.
    pub org: Id,
    /// Its name.
    pub name: OrgName,
    /// The caller's role there; nothing for an outsider who reads a public flow.
    pub role: Option<Role>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SystemRandom;

    #[test]
    fn a_key_has_its_recognisable_form_and_a_right_checksum() {
        let key = ApiKey::generate(&SystemRandom);
        let text = key.reveal();
        assert!(regex::Regex::new("^ev_[0-9A-Za-z]{49}$").unwrap().is_match(text), "{text}");
        let (secret, checksum) = text[PREFIX.len()..].split_at(43);
        assert_eq!(base62(&Sha256::digest(secret.as_bytes())[..4], 6), checksum);
        assert_ne!(ApiKey::generate(&SystemRandom), key);
    }

    #[test]
    fn base62_counts() {
        assert_eq!(base62(&[0, 61], 3), "00z");
        assert_eq!(base62(&[0, 62], 3), "010");
        assert_eq!(base62(&[0xff; 32], 43).len(), 43);
    }

    #[test]
    fn nothing_prints_a_secret() {
        let key = ApiKey::imported("hunter2".to_owned());
        let printed = format!("{key:?} {:?} {:?}", key.hash(), Credential::Bearer("hunter2"));
        assert!(!printed.contains("hunter2") && !printed.contains(key.hash().as_str()), "{printed}");
    }

    #[test]
    fn roles_are_ordered_by_what_they_may_do() {
        assert!(
            Role::Reader < Role::Snapshotter
                && Role::Snapshotter < Role::Member
                && Role::Member < Role::Admin
        );
    }
}
