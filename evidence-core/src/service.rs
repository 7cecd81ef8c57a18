//! The service: authenticates, authorizes and runs operations over a store, with no transport in it.

mod answers;
mod call;
mod readiness;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::admission::Admission;
use crate::auth::access::{Access, Principal, Target};
use crate::auth::credentials::{ApiKey, Credential, KeyHash};
use crate::blobs::OutsideBlobs;
use crate::checkpoints::keys::LedgerKeys;
use crate::compute::{Compute, ComputePool, Progress};
use crate::context::caches::Caches;
use crate::context::parts::{Parts, record_locks};
use crate::context::{AnswerMemory, Context, Recorded};
use crate::error::{Error, ErrorKind, Result, Wording};
use crate::id::{Id, Random, SystemRandom};
use crate::limits::Limits;
use crate::name::OrgName;
use crate::operation::{Answer, Header, Method, Operation, Reply};
use crate::settings::Settings;
use crate::store::Store;
use crate::store::entry::Entry;
use crate::sweep::pending::Attachments;
use crate::sweep::place::MarkedPlace;
use crate::time::{Clock, SystemClock, Timestamp};

use answers::{AnswerCache, LONGEST, Lookup};
use readiness::Readiness;

pub use call::Call;

/// The API without a transport. [`Evidence`] implements it over a store.
///
/// A decorator, such as metrics, a rate limit or a read-only mode, is an implementation around another one. A decorator that
/// restricts must implement [`run`](Self::run) and [`answer`](Self::answer): transports call `answer`, and the host's own
/// code calls `run`. An implementation without an [`Evidence`] inside can answer no requests, because only [`Evidence`] can
/// run a [`Call`].
pub trait EvidenceService: Clone + Send + Sync + 'static {
    /// Returns the caller that presents this credential.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] if the credential is unknown, malformed, expired or revoked.
    fn authenticate(&self, credential: Credential<'_>) -> impl Future<Output = Result<Principal>> + Send;

    /// Returns the caller's access to the target. A transport calls this before it reads any byte of the body.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] or [`Error::Forbidden`] if the caller has no right to it; [`Error::NotFound`] if there is
    /// no such organization.
    fn authorize(&self, caller: &Principal, target: &Target) -> impl Future<Output = Result<Access>> + Send;

    /// Runs an operation with the access that [`Self::authorize`] returned for its target.
    ///
    /// # Errors
    /// [`Error::Forbidden`] or [`Error::Unauthenticated`] if the access is for another target or is no longer valid;
    /// otherwise the errors of the operation.
    fn run<O: Operation>(
        &self,
        access: &Access,
        operation: O,
        body: O::Body,
    ) -> impl Future<Output = Result<O::Output>> + Send;

    /// Runs the operation of a call, and builds its response in `compute`. `request` is the path and query of the
    /// request. Calls with equal requests must ask the operation for the same, because [`Evidence`] caches responses
    /// that depend on the ledger alone ([`Operation::CACHED`]). Transports call this method, and the host's own code calls
    /// [`Self::run`].
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    fn answer(
        &self,
        access: &Access,
        call: Call,
        request: &str,
        compute: &Compute,
    ) -> impl Future<Output = Result<Answer>> + Send;

    /// Returns the sentences that report missing records.
    fn wording(&self) -> Wording;

    /// Returns the limits of requests.
    fn limits(&self) -> Limits;

    /// Returns the pool for CPU-bound work. The transport sets the tenant ([`Access::on_behalf_of`]).
    fn compute(&self) -> Compute;

    /// Returns the budgets of memory and temporary files. A transport reserves them for the tenant whose body it reads
    /// ([`Access::on_behalf_of`]).
    fn admission(&self) -> Admission;

    /// Checks whether writes can succeed, with a write to the store and to the place of the attachments that changes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Store`] with the reason. Transports show it to callers.
    fn ready(&self) -> impl Future<Output = Result<()>> + Send;

    /// Returns the problems that an operator should look at although the service can answer requests: one sentence for each,
    /// from the last check of [`Self::ready`]. None names an organization.
    fn warnings(&self) -> impl Future<Output = Vec<String>> + Send {
        std::future::ready(Vec::new())
    }

    /// Authorizes the caller and runs an operation. It is the entry point for a host's own code.
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

/// Builds the response from the output of an operation.
async fn answer_of<O: Operation>(output: O::Output, compute: &Compute) -> Result<Answer> {
    if O::METHOD != Method::Get {
        compute.note(Progress::Recorded);
    }
    let answer = output.answer(compute).await;
    if O::METHOD == Method::Get { answer } else { answer.map_err(Error::after_recording) }
}

/// Returns the headers that name the first entry and the record of a write, as documented in the OpenAPI document.
fn headers_of(recorded: &Recorded) -> Result<Vec<Header>> {
    let mut headers = Vec::new();
    if let Some(Entry { index, leaf_hash }) = recorded.first {
        headers.push(Header::new("Evidence-Ledger-Index", index.to_string())?);
        headers.push(Header::new("Evidence-Leaf-Hash", leaf_hash.to_string())?);
    }
    if let Some(id) = recorded.created {
        headers.push(Header::new("Evidence-Record-Id", id.to_string())?);
    }
    Ok(headers)
}

/// The service over a store.
#[derive(Clone)]
pub struct Evidence {
    parts: Arc<Parts>,
    answers: Arc<AnswerCache>,
    readiness: Arc<Readiness>,
}

/// The age of an authorization after which a request is authorized again before its response is built. The caller's rights
/// may have been revoked meanwhile.
const AUTHORIZED_FOR: Duration = Duration::from_millis(10);

impl std::fmt::Debug for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evidence").field("settings", &self.parts.settings).finish_non_exhaustive()
    }
}

impl Evidence {
    /// Creates a service over a store, with the system's clock and random source.
    pub fn new(store: Arc<dyn Store>, settings: Settings) -> Self {
        Self::with_sources(store, settings, Arc::new(SystemClock), Arc::new(SystemRandom))
    }

    /// Creates a service with a clock and a random source of the host. All times and ids come from them.
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
    /// /// For tests only, because keys come from here, too.
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
        let admission = Admission::new(&settings.limits);
        Self::of(Parts {
            store,
            blobs: attachments.blobs(),
            attachments,
            clock,
            random,
            settings,
            compute: Compute::default(),
            admission,
            caches: Caches::new(),
            record_locks: record_locks(),
            ledger_keys: None,
            unsigned: Mutex::default(),
        })
    }

    fn of(parts: Parts) -> Self {
        let answers = Arc::new(AnswerCache::new(&parts.settings));
        Self { parts: Arc::new(parts), answers, readiness: Arc::default() }
    }

    /// Stores the content of attachments outside the store, such as in a directory or a bucket.
    ///
    /// The service then no longer finds attachments that are in the store. Move them first with
    /// [`transfer::copy`](crate::transfer::copy). A place without a marker is rejected if it has none of the attachments
    /// that the store names.
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

    /// Runs CPU-bound work in this pool instead of a [`BlockingPool`].
    ///
    /// [`BlockingPool`]: crate::compute::BlockingPool
    #[must_use]
    pub fn with_compute_pool(self, pool: impl ComputePool) -> Self {
        self.with(|parts| parts.compute = Compute::new(pool))
    }

    /// Signs checkpoints of ledgers with these keys. Without keys, no checkpoint is signed.
    #[must_use]
    pub fn with_ledger_keys(self, keys: LedgerKeys) -> Self {
        self.with(|parts| parts.ledger_keys = Some(Arc::new(keys)))
    }

    /// Returns a service with changed parts and empty caches.
    fn with(self, change: impl FnOnce(&mut Parts)) -> Self {
        let Parts {
            store, attachments, blobs, clock, random, settings, compute, admission, ledger_keys, ..
        } = &*self.parts;
        let mut parts = Parts {
            store: Arc::clone(store),
            attachments: attachments.clone(),
            blobs: Arc::clone(blobs),
            clock: Arc::clone(clock),
            random: Arc::clone(random),
            settings: settings.clone(),
            compute: compute.clone(),
            admission: admission.clone(),
            caches: Caches::new(),
            record_locks: record_locks(),
            ledger_keys: ledger_keys.clone(),
            unsigned: Mutex::default(),
        };
        change(&mut parts);
        Self::of(parts)
    }

    /// Returns the principal of a user, for a host that identifies callers itself.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] if there is no such user; [`Error::Store`] if the store fails.
    pub async fn principal_of_user(&self, name: &str) -> Result<Principal> {
        let name: OrgName = name.parse().map_err(|_| Error::Unauthenticated)?;
        let user = self.store().user(name.as_str()).await?.ok_or(Error::Unauthenticated)?;
        Ok(Principal { actor: user.actor(), key: None })
    }

    /// Returns the store.
    pub fn store(&self) -> &dyn Store {
        &*self.parts.store
    }

    /// Returns the place of the contents of attachments.
    pub(crate) fn attachments(&self) -> &Attachments {
        &self.parts.attachments
    }

    /// Returns the settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.parts.settings
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    pub(crate) fn new_id(&self) -> Id {
        Id::new(self.now(), self.random())
    }

    pub(crate) fn random(&self) -> &dyn Random {
        &*self.parts.random
    }

    /// Clears the cache of callers and roles after a change.
    pub(crate) fn forget_callers(&self) {
        self.parts.caches.callers.clear();
    }

    pub(crate) fn new_key(&self) -> ApiKey {
        ApiKey::generate(&*self.parts.random)
    }

    /// Returns the caller's current access to the target of `access`. Reading the body may have taken minutes.
    ///
    /// # Errors
    /// [`Error::Forbidden`] if `access` is for another target.
    async fn still_authorized(&self, access: &Access, target: Target) -> Result<Access> {
        if access.target != target {
            return Err(Error::Forbidden);
        }
        self.parts.authorize(&access.caller, &target).await
    }

    /// Runs an operation. Also returns the reservations of its response, and what it recorded.
    async fn run_authorized<O: Operation>(
        &self,
        access: &Access,
        operation: O,
        body: O::Body,
    ) -> Result<(O::Output, AnswerMemory, Recorded)> {
        let cx = Context::over(&self.parts, access, self.now());
        let outcome = operation.run(body, &cx).await.map_err(|error| error.with_summary(O::INVALID));
        let outcome = if cx.has_recorded() { outcome.map_err(Error::after_recording) } else { outcome };
        Ok((outcome?, cx.take_answer_memory(), cx.recorded()))
    }
}

/// Maximum length of a credential in bytes. Longer ones are rejected unread.
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
        let (output, ..) = self.run_authorized(&access, operation, body).await?;
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
        self.readiness.check(&self.parts).await.map(drop)
    }

    async fn warnings(&self) -> Vec<String> {
        self.readiness.check(&self.parts).await.unwrap_or_default()
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
        let Parts { store, admission, .. } = &*self.parts;
        let mut lookup = match O::CACHED {
            true => self.answers.look_up((O::NAME, request), &access, store).await?,
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
            let (output, AnswerMemory { making, sending }, recorded) =
                self.run_authorized(&access, operation, body).await?;
            let mut answer = answer_of::<O>(output, compute).await?;
            answer.headers.extend(headers_of(&recorded)?);
            drop(making);
            Ok::<_, Error>((answer, sending))
        };
        match (made.await, slot) {
            (Ok((answer, memory)), Some(slot)) => {
                let budget = admission.on_behalf_of(access.on_behalf_of());
                let answer = slot.fill(answer, || budget.try_memory_for_sending(LONGEST as u64)).await;
                // The memory is for sending; the copy in the cache has a budget of its own.
                Ok(answer.with_reservations(memory))
            }
            (Err(error), Some(slot)) => {
                // Other errors will occur for equal requests, too.
                if error.kind() != ErrorKind::Unavailable {
                    slot.uncacheable();
                }
                Err(error)
            }
            (Ok((answer, memory)), None) => Ok(answer.with_reservations(memory)),
            (Err(error), None) => Err(error),
        }
    }
}
