//! Metrics of every operation, for all callers and transports: a decorator of the service. A rate limit or a
//! read-only switch has the same form.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evidence_core::admission::Admission;
use evidence_core::auth::{Access, Credential, Principal, Target};
use evidence_core::compute::Compute;
use evidence_core::operation::Answer;
use evidence_core::service::Call;
use evidence_core::{EvidenceService, Limits, Operation, Result, Wording};

/// A service that counts its calls.
#[derive(Debug, Clone)]
pub struct Metered<S> {
    service: S,
    figures: Arc<Mutex<Figures>>,
}

/// The counts, by operation name.
#[derive(Debug, Clone, Default)]
pub struct Figures(BTreeMap<&'static str, Figure>);

#[derive(Debug, Clone, Copy, Default)]
struct Figure {
    calls: u64,
    errors: u64,
    time: Duration,
}

impl<S> Metered<S> {
    /// Wraps a service and counts its calls.
    pub fn new(service: S) -> Self {
        Self { service, figures: Arc::default() }
    }

    /// Returns the counts so far.
    pub fn figures(&self) -> Figures {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, operation: &'static str, is_error: bool, time: Duration) {
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let figure = figures.0.entry(operation).or_default();
        figure.calls += 1;
        figure.errors += u64::from(is_error);
        figure.time += time;
    }
}

impl fmt::Display for Figures {
    /// Writes three lines per operation, in the text format of metrics.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (operation, Figure { calls, errors, time }) in &self.0 {
            writeln!(f, "evidence_calls_total{{operation=\"{operation}\"}} {calls}")?;
            writeln!(f, "evidence_errors_total{{operation=\"{operation}\"}} {errors}")?;
            writeln!(f, "evidence_seconds_total{{operation=\"{operation}\"}} {}", time.as_secs_f64())?;
        }
        Ok(())
    }
}

impl<S: EvidenceService> EvidenceService for Metered<S> {
    async fn run<O: Operation>(&self, access: &Access, operation: O, body: O::Body) -> Result<O::Output> {
        let begun = Instant::now();
        let outcome = self.service.run(access, operation, body).await;
        self.count(O::NAME, outcome.is_err(), begun.elapsed());
        outcome
    }

    async fn answer(&self, access: &Access, call: Call, request: &str, compute: &Compute) -> Result<Answer> {
        let (operation, begun) = (call.operation(), Instant::now());
        let outcome = self.service.answer(access, call, request, compute).await;
        self.count(operation, outcome.is_err(), begun.elapsed());
        outcome
    }

    async fn authenticate(&self, credential: Credential<'_>) -> Result<Principal> {
        self.service.authenticate(credential).await
    }

    async fn authorize(&self, caller: &Principal, target: &Target) -> Result<Access> {
        self.service.authorize(caller, target).await
    }

    fn wording(&self) -> Wording {
        self.service.wording()
    }

    fn limits(&self) -> Limits {
        self.service.limits()
    }

    fn compute(&self) -> Compute {
        self.service.compute()
    }

    fn admission(&self) -> Admission {
        self.service.admission()
    }

    async fn ready(&self) -> Result<()> {
        self.service.ready().await
    }

    async fn warnings(&self) -> Vec<String> {
        self.service.warnings().await
    }
}
