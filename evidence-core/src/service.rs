//! The service: authenticates, authorizes and runs operations over a store, with no transport in it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::auth::{Access, Actor, ApiKey, Credential, KeyHash, Place, Principal, Role, Scope, Target};
use crate::blobs::Blobs;
use crate::compute::{Compute, ComputePool};
use crate::error::{Error, Missing, Resource, Result, Wording};
use crate::fact::{Fact, Guard, Write};
use crate::flows::Visibility;
use crate::id::{Id, Random, SystemRandom};
use crate::limits::Limits;
use crate::name::{OrgName, ServiceAccountName};
use crate::operation::Operation;
use crate::orgs::{KeyHolder, Standing};
use crate::policies::{ParsedPolicies, no_policies};
use crate::recent::Recent;
use crate::store::{Entry, Store, StoreError};
use crate::templates::{Templates, no_templates};
use crate::time::{Clock, SystemClock, Timestamp};

/// The whole API, whatever carries it. A decorator (metrics, rate limit, read-only) is one implementation of this.
pub trait EvidenceService: Clone + Send + Sync + 'static {
    /// Who presents this credential. Unknown, malformed, expired and revoked ones are all [`Error::Unauthenticated`].
    fn authenticate(&self, credential: Credential<'_>) -> impl Future<Output = Result<Principal>> + Send;

    /// Whether the caller may do this. A transport asks before it reads a byte of the body.
    fn authorize(&self, caller: &Principal, target: &Target) -> impl Future<Output = Result<Access>> + Send;

    /// Runs an operation with an access that [`Self::authorize`] gave for it; with one that was given for something else,
    /// or that does not hold any more, it is [`Error::Forbidden`] or [`Error::Unauthenticated`].
    fn run<O: Operation>(
        &self,
        access: &Access,
        operation: O,
        body: O::Body,
    ) -> impl Future<Output = Result<O::Output>> + Send;

    /// Which sentences tell of what is missing.
    fn wording(&self) -> Wording;

    /// How much is taken in.
    fn limits(&self) -> Limits;

    /// Where CPU-bound work is done; on behalf of whom, is the caller's to say ([`Compute::on_behalf_of`]).
    fn compute(&self) -> Compute;

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
    ///     ..ArtifactInput::new("ab".repeat(32).parse()?, "shop.tar.gz".parse()?)
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
            let access = self.authorize(caller, &Target::of(&operation)).await?;
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
    /// How much is taken in.
    pub limits: Limits,
    /// How often a report that tells nothing new is noted in the ledger, at most, for each environment: what runs is
    /// reported again and again for years. [`EnvironmentStatus::reported_at`](crate::environments::EnvironmentStatus)
    /// may be so much behind.
    pub heartbeat_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            public_url: "http://localhost:8001".to_owned(),
            wording: Wording::Documented,
            implicit_flows: true,
            limits: Limits::default(),
            heartbeat_interval: Duration::from_secs(60),
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
    compute: Compute,
    callers: Callers,
    templates: Templates,
    policies: ParsedPolicies,
}

/// Who called lately.
#[derive(Default)]
struct Callers {
    holders: Recent<KeyHash, KeyHolder>,
    /// By the organization's name and the caller's id.
    standings: Recent<(String, Id), Standing>,
}

impl Callers {
    /// Who holds the key of this hash, which works.
    async fn holder(&self, hash: &KeyHash, now: Timestamp, store: &dyn Store) -> Result<KeyHolder> {
        let found = self.holders.answer(hash, now, store.key_holder(hash)).await?;
        let over = |end: Option<Timestamp>| end.is_some_and(|end| end <= now);
        let works = |holder: &KeyHolder| {
            holder.hash.matches(hash) && !over(holder.expires_at) && !over(holder.revoked_at)
        };
        found.filter(works).ok_or(Error::Unauthenticated)
    }

    async fn standing(
        &self,
        org: &str,
        user: Id,
        now: Timestamp,
        store: &dyn Store,
    ) -> Result<Option<Standing>> {
        let question = (org.to_owned(), user);
        Ok(self.standings.answer(&question, now, store.standing(org, user)).await?)
    }

    fn forget(&self) {
        self.holders.forget();
        self.standings.forget();
    }
}

impl Parts {
    /// The caller's right to the target, as it is now: no more than a moment old ([`Recent`]).
    async fn authorize(&self, caller: &Principal, target: &Target) -> Result<Access> {
        let Self { store, clock, callers, .. } = self;
        let (caller, target, now) = (caller.clone(), target.clone(), clock.now());
        let is_open = target.scope() == Scope::Open;
        if caller.is_nobody() && !is_open {
            return Err(Error::Unauthenticated);
        }
        let bound_to = match &caller.key {
            Some(key) => callers.holder(key, now, &**store).await?.bound_to,
            None => None,
        };
        let Some(name) = target.org() else { return Ok(Access { caller, target, place: None }) };
        let standing = callers.standing(name.as_str(), caller.actor.id, now, &**store).await?;
        let standing =
            standing.ok_or_else(|| Missing::new(Resource::Organization, name.as_str(), name.as_str()))?;
        let org = standing.organization.id;
        let role = match bound_to {
            Some((home, role)) => Some(role).filter(|_| home == org),
            None => standing.role,
        };
        let is_allowed = match (role, target.scope(), target.flow()) {
            (Some(role), scope, _) => role >= scope.least_role(),
            (None, Scope::ReadFlow, Some(flow)) => {
                let flow = store.flow(org, flow.as_str()).await?;
                flow.is_some_and(|flow| flow.record.visibility == Visibility::Public)
            }
            (None, ..) => false,
        };
        if !is_allowed && !is_open {
            return Err(Error::Forbidden);
        }
        let place = Place { org, name: standing.organization.name, role };
        Ok(Access { caller, target, place: Some(place) })
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
                compute: Compute::default(),
                callers: Callers::default(),
                templates: no_templates(),
                policies: no_policies(),
            }),
        }
    }

    /// The same service with the content of attachments in another place than its store: a directory, a bucket. What
    /// was kept before is looked for there, too.
    #[must_use]
    pub fn with_attachments(self, attachments: Arc<dyn Blobs>) -> Self {
        self.with(|parts| parts.attachments = attachments)
    }

    /// The same service with its CPU-bound work done in this pool, in place of a [`BlockingPool`].
    ///
    /// [`BlockingPool`]: crate::compute::BlockingPool
    #[must_use]
    pub fn with_compute_pool(self, pool: impl ComputePool) -> Self {
        self.with(|parts| parts.compute = Compute::new(pool))
    }

    /// The same service with other parts, which has forgotten what it remembered.
    fn with(self, change: impl FnOnce(&mut Parts)) -> Self {
        let Parts { store, attachments, clock, random, settings, compute, .. } = &*self.parts;
        let mut parts = Parts {
            store: Arc::clone(store),
            attachments: Arc::clone(attachments),
            clock: Arc::clone(clock),
            random: Arc::clone(random),
            settings: settings.clone(),
            compute: compute.clone(),
            callers: Callers::default(),
            templates: no_templates(),
            policies: no_policies(),
        };
        change(&mut parts);
        Self { parts: Arc::new(parts) }
    }

    /// The principal that a user of this name is: for a host that knows by itself who calls.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] when there is no such user; [`Error::Store`] when the store fails.
    pub async fn principal_of_user(&self, name: &str) -> Result<Principal> {
        let name: OrgName = name.parse().map_err(|_| Error::Unauthenticated)?;
        let user = self.store().user(name.as_str()).await?.ok_or(Error::Unauthenticated)?;
        Ok(Principal { actor: user.actor(), key: None })
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

    /// Forgets who may do what: it changed.
    pub(crate) fn forget_callers(&self) {
        self.parts.callers.forget();
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
        let holder = callers.holder(&hash, clock.now(), &**store).await?;
        Ok(Principal { actor: holder.actor, key: Some(hash) })
    }

    async fn authorize(&self, caller: &Principal, target: &Target) -> Result<Access> {
        self.parts.authorize(caller, target).await
    }

    async fn run<O: Operation>(&self, access: &Access, operation: O, body: O::Body) -> Result<O::Output> {
        if access.target != Target::of(&operation) {
            return Err(Error::Forbidden);
        }
        // The body may have taken minutes.
        let access = &self.parts.authorize(&access.caller, &access.target).await?;
        let cx = Context::over(&self.parts, access, self.now());
        operation.run(body, &cx).await.map_err(|error| error.under(O::INVALID))
    }

    fn wording(&self) -> Wording {
        self.parts.settings.wording
    }

    fn limits(&self) -> Limits {
        self.parts.settings.limits
    }

    fn compute(&self) -> Compute {
        self.parts.compute.clone()
    }

    async fn ready(&self) -> Result<()> {
        Ok(self.parts.store.ready().await?)
    }
}

/// What an operation has at hand. Nothing else reads the time or draws randomness.
pub struct Context<'a> {
    parts: &'a Arc<Parts>,
    store: &'a dyn Store,
    attachments: &'a Arc<dyn Blobs>,
    access: &'a Access,
    /// Whom an operation of [`Scope::Open`] acts as, once it knows.
    acting: Option<Acting>,
    clock: &'a dyn Clock,
    /// In microseconds.
    now: AtomicI64,
    random: &'a dyn Random,
    settings: &'a Settings,
    templates: &'a Templates,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("access", &self.access)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

/// Whom an operation of [`Scope::Open`] acts as.
#[derive(Debug, Clone)]
struct Acting {
    actor: Actor,
    /// The service account whose privilege is looked at again before anything is recorded, and the least that it needs.
    account: Option<(ServiceAccountName, Role)>,
}

/// What a [`Context`] has at hand, for an answer that is made while it is sent.
#[derive(Clone)]
pub(crate) struct Lasting {
    parts: Arc<Parts>,
    access: Access,
    now: Timestamp,
}

impl Lasting {
    /// The context again, at the instant of the request.
    pub(crate) fn context(&self) -> Context<'_> {
        Context::over(&self.parts, &self.access, self.now)
    }
}

impl<'a> Context<'a> {
    fn over(parts: &'a Arc<Parts>, access: &'a Access, now: Timestamp) -> Self {
        let Parts { store, attachments, clock, random, settings, templates, .. } = &**parts;
        let (store, clock, random) = (&**store, &**clock, &**random);
        let now = AtomicI64::new(now.as_micros());
        Self { parts, store, attachments, access, acting: None, clock, now, random, settings, templates }
    }

    /// The same context for an operation of [`Scope::Open`] that knows who calls: what it records with it, this service
    /// account of the organization has done. The account needs at least the privilege `least`, now and whenever something
    /// is recorded.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is no such account; [`Error::Forbidden`] where its privilege is less, and for an
    /// operation of another scope.
    pub async fn as_service_account(&self, name: &ServiceAccountName, least: Role) -> Result<Context<'a>> {
        let actor = self.privileged(name, least).await?;
        self.acting_as(Acting { actor, account: Some((name.clone(), least)) })
    }

    /// The same with `operator:<name>`, who has no role and no key. The name is what the host says; nothing proves it.
    ///
    /// # Errors
    /// [`Error::Forbidden`] for an operation of another scope.
    pub fn as_operator(&self, name: &OrgName) -> Result<Context<'a>> {
        self.acting_as(Acting { actor: Actor::operator(name.as_str()), account: None })
    }

    fn acting_as(&self, acting: Acting) -> Result<Context<'a>> {
        if self.access.target.scope() != Scope::Open {
            return Err(Error::Forbidden);
        }
        Ok(Context { acting: Some(acting), ..Context::over(self.parts, self.access, self.now()) })
    }

    /// The service account of this name, if its privilege is enough.
    async fn privileged(&self, name: &ServiceAccountName, least: Role) -> Result<Actor> {
        let account = self.service_account(name).await?.record;
        if account.privilege < least {
            return Err(Error::Forbidden);
        }
        Ok(account.actor())
    }

    /// All of this, beyond the operation.
    pub(crate) fn lasting(&self) -> Lasting {
        Lasting { parts: Arc::clone(self.parts), access: self.access.clone(), now: self.now() }
    }

    /// The store, for questions.
    pub const fn store(&self) -> &'a dyn Store {
        self.store
    }

    /// Where the content of attachments is kept; downloads keep it beyond the operation.
    pub const fn attachments(&self) -> &'a Arc<dyn Blobs> {
        self.attachments
    }

    /// The instant of the attempt: one for all that it decides, and a later one when it has to decide again.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::Relaxed))
    }

    /// The instant of a change to what last changed then: another server's clock may be ahead, and no record goes back in
    /// time, as its ledger does not.
    pub(crate) fn now_after(&self, last: Timestamp) -> Timestamp {
        self.now().max(last)
    }

    /// Runs `attempt`, again as long as it meets a conflict, at the time that it then is.
    pub async fn retry<T, F>(&self, attempt: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        retry_on_conflict(|| {
            self.now.fetch_max(self.clock.now().as_micros(), Ordering::Relaxed);
            attempt()
        })
        .await
    }

    /// Whether a report that tells nothing new is to be noted, the last one having come in at this time.
    pub(crate) fn is_heartbeat_due(&self, last: Timestamp) -> bool {
        let interval = self.settings.heartbeat_interval.as_micros();
        let passed = self.now().as_micros().saturating_sub(last.as_micros());
        u128::try_from(passed).is_ok_and(|passed| passed > 0 && passed >= interval)
    }

    /// A fresh id.
    pub fn new_id(&self) -> Id {
        Id::new(self.now(), self.random)
    }

    /// The source of randomness, for keys.
    pub fn random(&self) -> &'a dyn Random {
        self.random
    }

    /// How the service behaves.
    pub const fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// How much is taken in.
    pub const fn limits(&self) -> &'a Limits {
        &self.settings.limits
    }

    /// Where CPU-bound work is done, on behalf of the organization.
    pub fn compute(&self) -> Compute {
        self.parts.compute.clone().on_behalf_of(self.org().ok())
    }

    /// The policies that were parsed lately.
    pub(crate) fn policy_cache(&self) -> &'a ParsedPolicies {
        &self.parts.policies
    }

    /// The templates that were read and parsed lately.
    pub(crate) const fn template_cache(&self) -> &'a Templates {
        self.templates
    }

    /// The caller.
    pub const fn caller(&self) -> &'a Principal {
        &self.access.caller
    }

    /// The caller, as facts remember it, or whom the operation acts as.
    pub fn actor(&self) -> Actor {
        self.acting.as_ref().map_or(&self.access.caller.actor, |acting| &acting.actor).clone()
    }

    /// The organization that the request concerns; an operation without one must not ask.
    pub fn place(&self) -> Result<&'a Place> {
        self.access.place.as_ref().ok_or(Error::Forbidden)
    }

    /// That organization's id.
    pub fn org(&self) -> Result<Id> {
        Ok(self.place()?.org)
    }

    /// Whether the caller may learn of the organization's environments: whoever has a role there, and so nobody who is
    /// let in for the sake of a public flow alone.
    pub fn sees_environments(&self) -> Result<bool> {
        Ok(self.place()?.role.is_some())
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

    /// Whether the caller still may, and as much as when the operation began: it may have decided by the role.
    async fn check_access(&self) -> Result<()> {
        let now = self.parts.authorize(&self.access.caller, &self.access.target).await?;
        let (now, then) = (now.place.as_ref(), self.access.place.as_ref());
        let same_org = now.map(|place| place.org) == then.map(|place| place.org);
        let role = |place: Option<&Place>| place.and_then(|place| place.role);
        if !same_org || role(now) < role(then) {
            return Err(Error::Forbidden);
        }
        if let Some(Acting { account: Some((name, least)), .. }) = &self.acting {
            self.privileged(name, *least).await?;
        }
        Ok(())
    }

    /// The same facts, but for snapshots that are too large to be recorded: what a report's artifacts come to grows with
    /// the policies that judge each of them. Other facts are bounded by the bodies they come from.
    async fn of_good_size(&self, facts: Vec<Fact>) -> Result<Vec<Fact>> {
        let changes = |fact: &Fact| match fact {
            Fact::SnapshotTaken { snapshot } => snapshot.changes.len(),
            _ => 0,
        };
        let (limit, heavy) = (self.limits().write, facts.iter().any(|fact| changes(fact) > MANY_CHANGES));
        self.compute().run_if(heavy, move || check_size(&facts, limit).map(|()| facts)).await?
    }

    /// Records facts under guards, all or none.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] or [`Error::Forbidden`] where the caller's rights ended meanwhile; [`Error::Store`] with
    /// [`StoreError::Conflict`] where a guard no longer holds.
    pub async fn record(&self, draft: Draft) -> Result<Vec<Entry>> {
        if draft.facts.is_empty() {
            return Ok(Vec::new());
        }
        if self.access.target.scope() == Scope::Open && self.acting.is_none() {
            return Err(Error::Internal {
                what: "an operation without a credential did not say as whom it records",
                source: self.access.target.operation().into(),
            });
        }
        let Draft { facts, guards, secrets, .. } = draft;
        let facts = self.of_good_size(facts).await?;
        self.check_access().await?;
        let access = facts.iter().any(Fact::changes_access);
        let write = Write { org: self.org()?, by: self.actor(), at: self.now(), facts, guards, secrets };
        let recorded = self.store.record(write).await;
        if access {
            self.parts.callers.forget();
        }
        Ok(recorded?)
    }
}

/// A snapshot of more changes takes a while to be written as JSON.
const MANY_CHANGES: usize = 64;

fn check_size(facts: &[Fact], limit: u64) -> Result<()> {
    for fact in facts.iter().filter(|fact| matches!(fact, Fact::SnapshotTaken { .. })) {
        let mut size = Size(0);
        serde_json::to_writer(&mut size, fact).map_err(|error| StoreError::Failed(error.into()))?;
        if size.0 > limit {
            return Err(Error::TooLarge { limit, file: false });
        }
    }
    Ok(())
}

/// Counts the bytes that are written to it.
struct Size(u64);

impl std::io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
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
    /// Holds while the flow that was read is as it was: for a trail that begins with its template.
    pub(crate) flow: Option<Guard>,
}

impl Draft {
    /// A draft of one fact under one guard.
    pub fn of(fact: Fact, guard: Guard) -> Self {
        Self { facts: vec![fact], guards: vec![guard], ..Self::default() }
    }

    /// Adds what another draft has.
    pub fn extend(&mut self, other: Self) {
        let Self { facts, guards, secrets, .. } = other;
        self.facts.extend(facts);
        self.guards.extend(guards);
        self.secrets.extend(secrets);
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

/// Of the callers who race for one record, one wins each time: enough for so many at the same time.
const MAX_ATTEMPTS: u8 = 128;

/// Runs `attempt` again as long as it meets a conflict, a bounded number of times, and answers its last outcome.
pub(crate) async fn retry_on_conflict<T, F>(attempt: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    for _ in 1..MAX_ATTEMPTS {
        let outcome = attempt().await;
        if !matches!(outcome, Err(Error::Store(StoreError::Conflict))) {
            return outcome;
        }
    }
    attempt().await
}
