//! The service: authenticates, authorizes and runs operations over a store, with no transport in it.

use std::future::Future;
use std::sync::Arc;

use crate::auth::{Access, Actor, ApiKey, Credential, KeyHash, Place, Principal, Scope};
use crate::blobs::Blobs;
use crate::error::{Error, Missing, Resource, Result, Wording};
use crate::fact::{Fact, Guard, Write};
use crate::flows::Visibility;
use crate::id::{Id, Random, SystemRandom};
use crate::name::OrgName;
use crate::operation::Operation;
use crate::orgs::{KeyHolder, Standing};
use crate::recent::Recent;
use crate::store::{Entry, Store, StoreError};
use crate::templates::Templates;
use crate::time::{Clock, SystemClock, Timestamp};

/// The whole API, whatever carries it. A decorator (metrics, rate limit, read-only) is one implementation of this.
pub trait EvidenceService: Clone + Send + Sync + 'static {
    /// Who presents this credential. Unknown, malformed, expired and revoked ones are all [`Error::Unauthenticated`].
    fn authenticate(&self, credential: Credential<'_>) -> impl Future<Output = Result<Principal>> + Send;

    /// Whether the caller may do what `scope` asks in the organization named `org`, reading from `flow` where the scope
    /// is [`Scope::ReadFlow`]. A transport calls this before it reads a byte of the body.
    fn authorize(
        &self,
        caller: &Principal,
        scope: Scope,
        org: Option<&str>,
        flow: Option<&str>,
    ) -> impl Future<Output = Result<Access>> + Send;

    /// Runs an operation with an access that [`Self::authorize`] gave for it.
    fn run<O: Operation>(
        &self,
        access: &Access,
        operation: O,
        body: O::Body,
    ) -> impl Future<Output = Result<O::Output>> + Send;

    /// Which sentences tell of what is missing.
    fn wording(&self) -> Wording;

    /// Answers once the store does.
    fn ready(&self) -> impl Future<Output = Result<()>> + Send;

    /// Authorizes and runs: the way in for a host's own code. An operation is a value, and so is its body.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use evidence_core::artifacts::{ArtifactInput, ReportArtifact};
    /// use evidence_core::flows::{FlowInput, PutFlow};
    /// # use evidence_core::memory::MemoryStore;
    /// use evidence_core::operation::{Form, Json};
    /// # use evidence_core::seed::Seed;
    /// use evidence_core::trails::{BeginTrail, GetTrail, TrailInput};
    /// use evidence_core::{Evidence, EvidenceService, Settings};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// # let service = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
    /// # service.seed(&Seed { user: "jane".parse()?, orgs: vec!["acme".parse()?], api_key: None }).await?;
    /// let caller = service.principal_of_user("jane").await?;
    /// let (org, flow_name) = (|| "acme".parse(), || "shop".parse());
    ///
    /// let flow = FlowInput { name: flow_name()?, description: "The web shop".parse()?, visibility: None };
    /// service.call(&caller, PutFlow { org: org()? }, Form::of(flow)).await?;
    ///
    /// let trail = TrailInput::new("release-1".parse()?);
    /// service.call(&caller, BeginTrail { org: org()?, flow_name: flow_name()? }, Form::of(trail)).await?;
    ///
    /// let artifact = ArtifactInput {
    ///     trail_name: Some("release-1".parse()?),
    ///     build_url: "https://ci.example.com/builds/1".parse()?,
    ///     ..ArtifactInput::new("ab".repeat(32).parse()?, "shop.tar.gz")
    /// };
    /// service.call(&caller, ReportArtifact { org: org()?, flow_name: flow_name()? }, Json(artifact)).await?;
    ///
    /// let trail = GetTrail { org: org()?, flow_name: flow_name()?, trail_name: "release-1".parse()? };
    /// let Json(trail) = service.call(&caller, trail, ()).await?;
    /// assert_eq!(trail.created_by, "jane");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    fn call<O: Operation>(
        &self,
        caller: &Principal,
        operation: O,
        body: O::Body,
    ) -> impl Future<Output = Result<O::Output>> + Send {
        async move {
            let org = operation.org().map(OrgName::as_str);
            let flow = operation.flow().map(AsRef::as_ref);
            let access = self.authorize(caller, O::SCOPE, org, flow).await?;
            self.run(&access, operation, body).await
        }
    }
}

/// How a service behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address that people reach it by, without a trailing slash: links in answers begin with it.
    pub public_url: String,
    /// Which sentences tell of what is missing.
    pub wording: Wording,
    /// Whether a report that names an unknown flow creates it.
    pub implicit_flows: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            public_url: "http://localhost:8001".to_owned(),
            wording: Wording::Documented,
            implicit_flows: true,
        }
    }
}

/// The service over a store.
#[derive(Clone)]
pub struct Evidence {
    parts: Arc<Parts>,
}

struct Parts {
    store: Arc<dyn Store>,
    attachments: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    settings: Settings,
    callers: Callers,
    templates: Templates,
}

/// Who called lately.
#[derive(Default)]
struct Callers {
    holders: Recent<KeyHash, KeyHolder>,
    /// By the organization's name and the caller's id.
    standings: Recent<(String, Id), Standing>,
}

impl Callers {
    async fn holder(&self, hash: &KeyHash, now: Timestamp, store: &dyn Store) -> Result<Option<KeyHolder>> {
        if let Some(known) = self.holders.known(hash, now) {
            return Ok(Some(known));
        }
        let found = store.key_holder(hash).await?;
        if let Some(holder) = &found {
            self.holders.keep(hash.clone(), now, holder.clone());
        }
        Ok(found)
    }

    async fn standing(
        &self,
        org: &str,
        user: Id,
        now: Timestamp,
        store: &dyn Store,
    ) -> Result<Option<Standing>> {
        let question = (org.to_owned(), user);
        if let Some(known) = self.standings.known(&question, now) {
            return Ok(Some(known));
        }
        let found = store.standing(org, user).await?;
        if let Some(standing) = &found {
            self.standings.keep(question, now, standing.clone());
        }
        Ok(found)
    }

    fn forget(&self) {
        self.holders.forget();
        self.standings.forget();
    }
}

impl std::fmt::Debug for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evidence").field("settings", &self.parts.settings).finish_non_exhaustive()
    }
}

impl Evidence {
    /// A service over `store` with the machine's clock and randomness.
    pub fn new(store: Arc<dyn Store>, settings: Settings) -> Self {
        Self::with_sources(store, settings, Arc::new(SystemClock), Arc::new(SystemRandom))
    }

    /// A service with a clock and a source of randomness of the host's: nothing else reads the time or makes ids.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use evidence_core::id::Random;
    /// # use evidence_core::memory::MemoryStore;
    /// use evidence_core::time::{Clock, Timestamp};
    /// use evidence_core::{Evidence, Settings};
    ///
    /// struct Noon;
    ///
    /// impl Clock for Noon {
    ///     fn now(&self) -> Timestamp {
    ///         Timestamp::from_seconds(1_783_512_000)
    ///     }
    /// }
    ///
    /// /// For tests alone: keys come from here too.
    /// struct Sevens;
    ///
    /// impl Random for Sevens {
    ///     fn fill(&self, bytes: &mut [u8]) {
    ///         bytes.fill(7);
    ///     }
    /// }
    ///
    /// # let store = Arc::new(MemoryStore::new());
    /// let service = Evidence::with_sources(store, Settings::default(), Arc::new(Noon), Arc::new(Sevens));
    /// ```
    pub fn with_sources(
        store: Arc<dyn Store>,
        settings: Settings,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        let attachments = Arc::clone(&store) as Arc<dyn Blobs>;
        Self {
            parts: Arc::new(Parts {
                store,
                attachments,
                clock,
                random,
                settings,
                callers: Callers::default(),
                templates: Templates::default(),
            }),
        }
    }

    /// The same service with the content of attachments in another place than its store: a directory, a bucket. What
    /// was kept before is looked for there, too.
    #[must_use]
    pub fn with_attachments(self, attachments: Arc<dyn Blobs>) -> Self {
        let Parts { store, clock, random, settings, .. } = &*self.parts;
        let (store, clock, random) = (Arc::clone(store), Arc::clone(clock), Arc::clone(random));
        let (settings, callers, templates) = (settings.clone(), Callers::default(), Templates::default());
        Self { parts: Arc::new(Parts { store, attachments, clock, random, settings, callers, templates }) }
    }

    /// The principal that a user of this name is: for a host that knows by itself who calls.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] when there is no such user; [`Error::Store`] when the store fails.
    pub async fn principal_of_user(&self, name: &str) -> Result<Principal> {
        let name: OrgName = name.parse().map_err(|_| Error::Unauthenticated)?;
        let user = self.store().user(name.as_str()).await?.ok_or(Error::Unauthenticated)?;
        Ok(Principal { actor: user.actor(), bound_to: None })
    }

    /// The store below.
    pub fn store(&self) -> &dyn Store {
        &*self.parts.store
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    pub(crate) fn new_id(&self) -> Id {
        Id::new(self.now(), &*self.parts.random)
    }

    pub(crate) fn new_key(&self) -> ApiKey {
        ApiKey::generate(&*self.parts.random)
    }
}

/// Longer credentials are refused unread.
const LONGEST_KEY: usize = 1024;

impl EvidenceService for Evidence {
    async fn authenticate(&self, credential: Credential<'_>) -> Result<Principal> {
        let key = credential.key();
        if key.is_empty() || key.len() > LONGEST_KEY {
            return Err(Error::Unauthenticated);
        }
        let hash = KeyHash::of(key);
        let Parts { store, clock, callers, .. } = &*self.parts;
        let now = clock.now();
        let holder = callers.holder(&hash, now, &**store).await?.ok_or(Error::Unauthenticated)?;
        let over = |end: Option<Timestamp>| end.is_some_and(|end| end <= now);
        if !holder.hash.matches(&hash) || over(holder.expires_at) || over(holder.revoked_at) {
            return Err(Error::Unauthenticated);
        }
        Ok(Principal { actor: holder.actor, bound_to: holder.bound_to })
    }

    async fn authorize(
        &self,
        caller: &Principal,
        scope: Scope,
        org: Option<&str>,
        flow: Option<&str>,
    ) -> Result<Access> {
        let Some(name) = org else { return Ok(Access { caller: caller.clone(), place: None }) };
        let Parts { store, clock, callers, .. } = &*self.parts;
        let standing = callers.standing(name, caller.actor.id, clock.now(), &**store).await?;
        let standing = standing.ok_or_else(|| Missing::new(Resource::Organization, name, name))?;
        let org = standing.organization.id;
        let role = match caller.bound_to {
            Some((home, role)) => Some(role).filter(|_| home == org),
            None => standing.role,
        };
        let place = Place { org, name: standing.organization.name, role };
        let access = Access { caller: caller.clone(), place: Some(place) };
        match (role, scope, flow) {
            (Some(role), ..) if role >= scope.least_role() => Ok(access),
            (None, Scope::ReadFlow, Some(flow)) => match store.flow(org, flow).await? {
                Some(flow) if flow.record.visibility == Visibility::Public => Ok(access),
                Some(_) | None => Err(Error::Forbidden),
            },
            _ => Err(Error::Forbidden),
        }
    }

    async fn run<O: Operation>(&self, access: &Access, operation: O, body: O::Body) -> Result<O::Output> {
        let Parts { store, attachments, clock, random, settings, callers, templates } = &*self.parts;
        let (now, random) = (clock.now(), &**random);
        let cx = Context { store: &**store, attachments, access, now, random, settings, callers, templates };
        operation.run(body, &cx).await.map_err(|error| error.under(O::INVALID))
    }

    fn wording(&self) -> Wording {
        self.parts.settings.wording
    }

    async fn ready(&self) -> Result<()> {
        Ok(self.parts.store.ready().await?)
    }
}

/// What an operation has at hand. Nothing else reads the time or draws randomness.
pub struct Context<'a> {
    store: &'a dyn Store,
    attachments: &'a Arc<dyn Blobs>,
    access: &'a Access,
    now: Timestamp,
    random: &'a dyn Random,
    settings: &'a Settings,
    callers: &'a Callers,
    templates: &'a Templates,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("access", &self.access)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl<'a> Context<'a> {
    /// The store, for questions.
    pub const fn store(&self) -> &'a dyn Store {
        self.store
    }

    /// Where the content of attachments is kept; downloads keep it beyond the operation.
    pub const fn attachments(&self) -> &'a Arc<dyn Blobs> {
        self.attachments
    }

    /// The instant of the request, read once.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// A fresh id.
    pub fn new_id(&self) -> Id {
        Id::new(self.now, self.random)
    }

    /// The source of randomness, for keys.
    pub fn random(&self) -> &'a dyn Random {
        self.random
    }

    /// How the service behaves.
    pub const fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// The templates that were parsed already.
    pub(crate) const fn templates(&self) -> &'a Templates {
        self.templates
    }

    /// The caller.
    pub const fn caller(&self) -> &'a Principal {
        &self.access.caller
    }

    /// The caller, as facts remember it.
    pub fn actor(&self) -> Actor {
        self.access.caller.actor.clone()
    }

    /// The organization that the request concerns; an operation without one must not ask.
    pub fn place(&self) -> Result<&'a Place> {
        self.access.place.as_ref().ok_or(Error::Forbidden)
    }

    /// That organization's id.
    pub fn org(&self) -> Result<Id> {
        Ok(self.place()?.org)
    }

    /// A thing of this kind and name is missing in the organization.
    pub fn missing(&self, resource: Resource, name: impl Into<String>) -> Missing {
        let org = self.access.place.as_ref().map(|place| place.name.to_string()).unwrap_or_default();
        Missing::new(resource, name, org)
    }

    /// The address of a page about something in the organization: `{public}/{org}/{path}`.
    pub fn page_url(&self, path: &str) -> String {
        let org = self.access.place.as_ref().map(|place| place.name.as_str()).unwrap_or_default();
        format!("{}/{org}/{path}", self.settings.public_url)
    }

    /// The address of an operation: `{public}/api/v2/{path}`.
    pub fn api_url(&self, path: &str) -> String {
        format!("{}/api/v2/{path}", self.settings.public_url)
    }

    /// Records facts under guards, all or none.
    pub async fn record(&self, draft: Draft) -> Result<Vec<Entry>> {
        if draft.facts.is_empty() {
            return Ok(Vec::new());
        }
        let Draft { facts, guards, secrets } = draft;
        let access = facts.iter().any(Fact::changes_access);
        let write = Write { org: self.org()?, by: self.actor(), at: self.now, facts, guards, secrets };
        let recorded = self.store.record(write).await;
        if access {
            self.callers.forget();
        }
        Ok(recorded?)
    }
}

/// A write in the making: facts, and the guards they rest on.
#[derive(Debug, Default)]
pub struct Draft {
    /// What will have happened, in order.
    pub facts: Vec<Fact>,
    /// What must still be so then.
    pub guards: Vec<Guard>,
    /// Hashes of new keys.
    pub secrets: Vec<(Id, KeyHash)>,
}

impl Draft {
    /// A draft of one fact under one guard.
    pub fn of(fact: Fact, guard: Guard) -> Self {
        Self { facts: vec![fact], guards: vec![guard], secrets: Vec::new() }
    }

    /// Adds a fact that needs no guard.
    pub fn fact(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    /// Adds a fact under a guard.
    pub fn guarded(&mut self, fact: Fact, guard: Guard) {
        self.facts.push(fact);
        self.guards.push(guard);
    }
}

/// Operations whose write may meet a conflict.
#[derive(Debug)]
pub struct Race;

impl Race {
    /// Of the callers who race for one record, one wins each round: enough for so many at the same time.
    const ROUNDS: u8 = 128;

    /// Runs `attempt` again as long as it loses a race, a bounded number of times, and answers its last outcome.
    pub async fn run<T, F: Future<Output = Result<T>>>(attempt: impl Fn() -> F) -> Result<T> {
        for _ in 1..Self::ROUNDS {
            let outcome = attempt().await;
            if !matches!(outcome, Err(Error::Store(StoreError::Conflict))) {
                return outcome;
            }
        }
        attempt().await
    }
}
