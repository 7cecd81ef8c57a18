//! The service: authenticates, authorizes and runs operations over a store, with no transport in it.

mod answers;
pub(crate) mod caches;
mod call;
mod callers;
mod context;
pub(crate) mod names;
mod readiness;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::actions::egress::Egress;
use crate::admission::Admission;
use crate::auth::access::{Access, OrgAccess, Principal, Target};
use crate::auth::actor::Scope;
use crate::auth::credentials::{ApiKey, Credential, KeyHash};
use crate::blobs::{Blobs, OutsideBlobs};
use crate::compute::{Compute, ComputePool, Progress};
use crate::error::{Error, ErrorKind, Missing, Resource, Result, Wording};
use crate::fact::names::Key;
use crate::id::{Id, Random, SystemRandom};
use crate::limiter::{FairSemaphore, UNLIMITED};
use crate::limits::Limits;
use crate::name::OrgName;
use crate::operation::{Answer, Method, Operation, Reply};
use crate::store::Store;
use crate::sweep::pending::Attachments;
use crate::sweep::place::MarkedPlace;
use crate::time::{Clock, SystemClock, Timestamp};

use answers::{LONGEST, Lookup};
use caches::Caches;
use readiness::Readiness;

pub use call::Call;
use context::AnswerMemory;
pub use context::*;
pub(crate) use context::{OwnedContext, retry_on_conflict};

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

    /// Runs the operation of a call, and builds its response in `compute`. `request` is the path and query of the
    /// request. Calls with equal requests must ask the operation for the same, because [`Evidence`] caches responses
    /// that depend on the ledger alone ([`Operation::CACHED`]). Transports call this method only, so a decorator of
    /// requests implements it; [`Self::run`] serves the host's own code.
    fn answer(
        &self,
        access: &Access,
        call: Call,
        request: &str,
        compute: &Compute,
    ) -> impl Future<Output = Result<Answer>> + Send;

    /// Which sentences tell of what is missing.
    fn wording(&self) -> Wording;

    /// How much is taken in.
    fn limits(&self) -> Limits;

    /// Where CPU-bound work is done; on behalf of whom, is the transport's to say ([`Access::on_behalf_of`]).
    fn compute(&self) -> Compute;

    /// How much requests may hold; a transport asks on behalf of whom it reads a body ([`Access::on_behalf_of`]).
    fn admission(&self) -> Admission;

    /// Whether writes can succeed: checked against the store and the place of the attachments, by a write that changes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Store`] with the reason. Transports show it to callers.
    fn ready(&self) -> impl Future<Output = Result<()>> + Send;

    /// What an operator should look at although requests can be answered, a sentence each, as of the last check of
    /// [`Self::ready`]. None of them names an organization.
    fn warnings(&self) -> impl Future<Output = Vec<String>> + Send {
        std::future::ready(Vec::new())
    }

    /// Authorizes and runs: the way in for a host's own code. An operation is a value, and so is its body.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use evidence_core::artifacts::{ArtifactInput, ReportArtifact};
    /// use evidence_core::flows::{FlowInput, PutFlow};
    /// # use evidence_conformance::memory::MemoryStore;
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
    /// let trail = GetTrail::new(org()?, flow_name()?, "release-1".parse()?);
    /// let trail = service.call(&caller, trail, ()).await?;
    /// assert_eq!(trail.envelope.trail.created_by, "jane");
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

/// Makes the answer of what an operation came to.
async fn answer_of<O: Operation>(output: O::Output, compute: &Compute) -> Result<Answer> {
    if O::METHOD != Method::Get {
        compute.note(Progress::Recorded);
    }
    let answer = output.answer(compute).await;
    if O::METHOD == Method::Get { answer } else { answer.map_err(Error::after_recording) }
}

/// How a service behaves. Made with `..Settings::default()`: a new field is no breaking change.
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
    /// The most bytes of answers that are cached in memory ([`Operation::CACHED`]). With 0, none are cached, and concurrent
    /// equal requests share none.
    pub answer_cache_bytes: usize,
    /// How long answers are cached at most, and what is shown of trails, where no record tells that they changed: a rebuild
    /// of the store mends what nobody recorded. An answer may be made of what is cached of a trail, so that it takes twice as
    /// long until such a change shows. Zero caches no answer and shares none among equal requests, and trails are cached for the one
    /// answer that they were read for.
    pub cache_ttl: Duration,
    /// Where notifications may be sent besides the internet: nowhere.
    pub egress: Egress,
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
    attachments: Attachments,
    blobs: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    settings: Settings,
    compute: Compute,
    admission: Admission,
    caches: Caches,
    record_locks: RecordLocks,
    readiness: Readiness,
}

/// A request is authorized again whose answer is begun later than that: rights may have been taken away meanwhile.
const AUTHORIZED_FOR: Duration = Duration::from_millis(10);

/// Has one permit per record, for the request that changes it.
type RecordLocks = FairSemaphore<(Id, Key)>;

/// The number of requests that may wait to change one record.
const MAX_WAITING_FOR_RECORD: usize = 127;

fn record_locks() -> RecordLocks {
    FairSemaphore::new(UNLIMITED, 1)
}

impl Parts {
    /// Returns the caller's present right to the target. It is at most half a second old ([`callers`]).
    async fn authorize(&self, caller: &Principal, target: &Target) -> Result<Access> {
        let Self { store, clock, caches: Caches { callers, .. }, .. } = self;
        let (caller, target, now) = (caller.clone(), target.clone(), clock.now());
        let is_open = target.scope() == Scope::Open;
        if caller.is_nobody() && !is_open {
            return Err(Error::Unauthenticated);
        }
        let bound_to = match &caller.key {
            Some(key) => callers.holder(key, now, &**store).await?.bound_to,
            None => None,
        };
        let account_org = bound_to.map(|(account_org, _)| account_org);
        let Some(name) = target.org() else {
            return Ok(Access { caller, target, org_access: None, account_org });
        };
        let org_role = callers.org_role(name.as_str(), caller.actor.id, &**store).await?;
        let org_role =
            org_role.ok_or_else(|| Missing::new(Resource::Organization, name.as_str(), name.as_str()))?;
        let org = org_role.organization.id;
        let role = match bound_to {
            Some((account_org, role)) => Some(role).filter(|_| account_org == org),
            None => org_role.role,
        };
        let is_allowed = match (role, target.scope(), target.flow()) {
            (Some(role), scope, _) => role >= scope.least_role(),
            (None, Scope::ReadFlow, Some(flow)) => {
                let flow = store.flow(org, flow.as_str()).await?;
                flow.is_some_and(|flow| flow.record.is_public())
            }
            (None, ..) => false,
        };
        if !is_allowed && !is_open {
            return Err(Error::Forbidden);
        }
        let org_access = OrgAccess { org, name: org_role.organization.name, role };
        Ok(Access { caller, target, org_access: Some(org_access), account_org })
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

    /// A service with a clock and a source of randomness of the host's: nothing else tells what time it is or makes ids.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use evidence_core::id::Random;
    /// # use evidence_conformance::memory::MemoryStore;
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
        let attachments = Attachments::Inside(Arc::clone(&store));
        let (caches, admission) = (Caches::new(&settings), Admission::new(&settings.limits));
        Self {
            parts: Arc::new(Parts {
                store,
                blobs: attachments.blobs(),
                attachments,
                clock,
                random,
                settings,
                compute: Compute::default(),
                admission,
                caches,
                record_locks: record_locks(),
                readiness: Readiness::default(),
            }),
        }
    }

    /// The same service with the content of attachments in another place than its store: a directory, a bucket.
    /// Attachments that the store holds already are not found any more: move them first with
    /// [`transfer::copy`](crate::transfer::copy). A place without a marker is refused if it has none of the attachments that the
    /// store names.
    #[must_use]
    pub fn with_attachments(self, attachments: Arc<dyn OutsideBlobs>) -> Self {
        self.with(|parts| {
            let (store, clock, random) = (&parts.store, &parts.clock, &parts.random);
            let (store, clock, random) = (Arc::clone(store), Arc::clone(clock), Arc::clone(random));
            parts.attachments =
                Attachments::Outside(Arc::new(MarkedPlace::new(store, attachments, clock, random)));
            parts.blobs = parts.attachments.blobs();
        })
    }

    /// The same service with its CPU-bound work done in this pool, in place of a [`BlockingPool`].
    ///
    /// [`BlockingPool`]: crate::compute::BlockingPool
    #[must_use]
    pub fn with_compute_pool(self, pool: impl ComputePool) -> Self {
        self.with(|parts| parts.compute = Compute::new(pool))
    }

    /// The same service with other parts and empty caches.
    fn with(self, change: impl FnOnce(&mut Parts)) -> Self {
        let Parts { store, attachments, blobs, clock, random, settings, compute, admission, .. } =
            &*self.parts;
        let mut parts = Parts {
            store: Arc::clone(store),
            attachments: attachments.clone(),
            blobs: Arc::clone(blobs),
            clock: Arc::clone(clock),
            random: Arc::clone(random),
            settings: settings.clone(),
            compute: compute.clone(),
            admission: admission.clone(),
            caches: Caches::new(settings),
            record_locks: record_locks(),
            readiness: Readiness::default(),
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

    /// Where the contents of attachments are.
    pub(crate) fn attachments(&self) -> &Attachments {
        &self.parts.attachments
    }

    /// How the service behaves.
    pub(crate) fn settings(&self) -> &Settings {
        &self.parts.settings
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    pub(crate) fn new_id(&self) -> Id {
        Id::new(self.now(), &*self.parts.random)
    }

    /// Forgets who may do what: it changed.
    pub(crate) fn forget_callers(&self) {
        self.parts.caches.callers.clear();
    }

    pub(crate) fn new_key(&self) -> ApiKey {
        ApiKey::generate(&*self.parts.random)
    }

    /// The same access as it is now, where it was given for this target: the body may have taken minutes.
    async fn still_authorized(&self, access: &Access, target: Target) -> Result<Access> {
        if access.target != target {
            return Err(Error::Forbidden);
        }
        self.parts.authorize(&access.caller, &target).await
    }

    /// Runs an operation. Returns also the reservations of its answer.
    async fn run_authorized<O: Operation>(
        &self,
        access: &Access,
        operation: O,
        body: O::Body,
    ) -> Result<(O::Output, AnswerMemory)> {
        let cx = Context::over(&self.parts, access, self.now());
        let outcome = operation.run(body, &cx).await.map_err(|error| error.with_summary(O::INVALID));
        let outcome = if cx.has_recorded() { outcome.map_err(Error::after_recording) } else { outcome };
        Ok((outcome?, cx.take_answer_memory()))
    }
}

/// Longer credentials are refused unread.
const MAX_KEY: usize = 1024;

impl EvidenceService for Evidence {
    async fn authenticate(&self, credential: Credential<'_>) -> Result<Principal> {
        let key = credential.key();
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(Error::Unauthenticated);
        }
        let hash = KeyHash::of(key);
        let Parts { store, clock, caches, .. } = &*self.parts;
        let holder = caches.callers.holder(&hash, clock.now(), &**store).await?;
        Ok(Principal { actor: holder.actor, key: Some(hash) })
    }

    async fn authorize(&self, caller: &Principal, target: &Target) -> Result<Access> {
        self.parts.authorize(caller, target).await
    }

    async fn run<O: Operation>(&self, access: &Access, operation: O, body: O::Body) -> Result<O::Output> {
        let access = self.still_authorized(access, Target::of(&operation)).await?;
        let (output, _) = self.run_authorized(&access, operation, body).await?;
        Ok(output)
    }

    async fn answer(&self, access: &Access, call: Call, request: &str, compute: &Compute) -> Result<Answer> {
        call.answer(self, access, request, compute).await
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

    fn admission(&self) -> Admission {
        self.parts.admission.clone()
    }

    async fn ready(&self) -> Result<()> {
        self.parts.readiness.check(&self.parts).await.map(drop)
    }

    async fn warnings(&self) -> Vec<String> {
        self.parts.readiness.check(&self.parts).await.unwrap_or_default()
    }
}

impl Evidence {
    async fn answer_typed<O: Operation>(
        &self,
        access: &Access,
        operation: O,
        body: O::Body,
        request: &str,
        compute: &Compute,
    ) -> Result<Answer> {
        const {
            let is_get = matches!(O::METHOD, Method::Get);
            assert!(!O::CACHED || is_get && O::REQUEST_HEADERS.is_empty(), "no answer of it can be cached");
        }
        let since = Instant::now();
        let mut access = self.still_authorized(access, Target::of(&operation)).await?;
        let Parts { caches, store, admission, .. } = &*self.parts;
        let mut lookup = match O::CACHED {
            true => caches.answers.look_up((O::NAME, request), &access, store).await?,
            false => Lookup::Bypass,
        };
        if since.elapsed() > AUTHORIZED_FOR {
            let was = access.org_access.clone();
            access = self.still_authorized(&access, Target::of(&operation)).await?;
            if access.org_access != was {
                // The response is for callers with the rights that the caller had.
                lookup = Lookup::Bypass;
            }
        }
        let slot = match lookup {
            Lookup::Hit(answer) => return Ok(answer),
            Lookup::Miss(slot) => Some(slot),
            Lookup::Bypass => None,
        };
        let made = async {
            let (output, AnswerMemory { making, sending }) =
                self.run_authorized(&access, operation, body).await?;
            let answer = answer_of::<O>(output, compute).await?;
            drop(making);
            Ok::<_, Error>((answer, sending))
        };
        match (made.await, slot) {
            (Ok((answer, memory)), Some(slot)) => {
                let budget = admission.on_behalf_of(access.on_behalf_of());
                let answer = slot.fill(answer, budget.try_memory_for_sending(LONGEST as u64)).await;
                // The memory is for sending; the copy in the cache has a budget of its own.
                Ok(answer.holding(memory))
            }
            (Err(error), Some(slot)) => {
                // Other errors will occur for equal requests, too.
                if error.kind() != ErrorKind::Unavailable {
                    slot.uncacheable();
                }
                Err(error)
            }
            (Ok((answer, memory)), None) => Ok(answer.holding(memory)),
            (Err(error), None) => Err(error),
        }
    }
}
