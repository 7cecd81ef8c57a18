//! How much the service takes in: the sizes and counts that a host may set. How long a single text or list may be is
//! said by its type ([`crate::bounded::Text`], [`crate::bounded::List`], the names), and so by the API's schema.

use crate::error::{Error, Result};

/// The greatest sizes and counts, each with a documented default. A size that is exceeded is
/// [`Error::TooLarge`], a count [`Error::Invalid`] with the field named. Made with `..Limits::default()`: a new field is
/// no breaking change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a path with its query: 8 KiB. Hosts may allow less.
    pub url: usize,
    /// Bytes of a JSON body: 1 MiB.
    pub body: u64,
    /// Bytes of a report of what runs in an environment: 16 MiB.
    pub report: u64,
    /// Bytes of a form's JSON document: 4 MiB.
    pub document: u64,
    /// Bytes of a file: 10 MiB.
    pub file: u64,
    /// Files of a form: 32.
    pub files: usize,
    /// Bytes of all that a form holds: 64 MiB.
    pub form: u64,
    /// Bytes of a flow's or a trail's template: 1 MiB.
    pub template: u64,
    /// Bytes of a policy: 1 MiB.
    pub policy: u64,
    /// Bytes of the schema of a custom attestation type: 1 MiB.
    pub type_schema: u64,
    /// Tags of one resource: 100.
    pub tags: usize,
    /// Policies attached to one environment: 100.
    pub environment_policies: usize,
    /// Members of a logical environment: 1,000.
    pub environment_members: usize,
    /// Artifacts that the allowlist has for one environment: 10,000. Of those allowed at the same time some more may pass.
    pub environment_allowances: u64,
    /// Versions of one policy: 1,000. Answers about it show them all.
    pub policy_versions: u64,
    /// Versions of one custom attestation type: 1,000. Answers about it show them all.
    pub attestation_type_versions: u64,
    /// Keys of one service account that work: 1,000. Of those made at the same time some more may pass.
    pub api_keys: usize,
    /// Actions of one organization: 1,000.
    pub actions: usize,
    /// Bytes of a snapshot as it is recorded: 32 MiB. What runs beyond that is recorded as not compliant, without where it comes
    /// from; a report that has more by itself is refused ([`Error::Invalid`]). All who write share the store's writer.
    pub snapshot: u64,
    /// Different artifacts that run in one environment: 10,000. Each is evaluated by each of its policies.
    pub running_artifacts: usize,
    /// Artifacts in a snapshot of a logical environment, of all its members together, that is shown or compared: 100,000.
    pub combined_artifacts: usize,
    /// What policies evaluate for one report, or for one answer of the gate: 100,000,000 rules and parts of their
    /// conditions, each once for each artifact and each flow that it was reported to. Beyond that nothing of it complies.
    pub evaluations: usize,
    /// Attestations that policies ask for, of all that runs in one environment, while it is evaluated: 1,000,000. Beyond that
    /// nothing of it complies.
    pub evaluated_attestations: usize,
    /// What the rules of policies come to for one artifact, which answers show as a whole: 100,000, each rule once for each
    /// flow that it was reported to. An artifact with more does not comply.
    pub resolutions: usize,
    /// Artifacts reported to one trail: 10,000. A trail is evaluated by all that was reported to it. Of reports that come at
    /// the same time some more may pass, and a sixteenth more through each further server on the same store: not every
    /// report is counted anew.
    pub trail_artifacts: u64,
    /// Attestations of one trail: 10,000, as with its artifacts.
    pub trail_attestations: u64,
    /// Runs of an artifact in one environment that answers about it show: the 100 newest, and the first.
    pub runs: u32,
    /// Runs of all artifacts of a trail that answers about it show, of those: the 10,000 newest.
    pub trail_runs: usize,
    /// Bytes of what was reported to a trail that a PDF shows, which is drawn in memory: 16 MiB. Each line that tells where
    /// an artifact ran counts as 200 of them.
    pub audit_pdf: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            url: 8 << 10,
            body: 1 << 20,
            report: 16 << 20,
            document: 4 << 20,
            file: 10 << 20,
            files: 32,
            form: 64 << 20,
            template: 1 << 20,
            policy: 1 << 20,
            type_schema: 1 << 20,
            tags: 100,
            environment_policies: 100,
            environment_members: 1_000,
            environment_allowances: 10_000,
            policy_versions: 1_000,
            attestation_type_versions: 1_000,
            api_keys: 1_000,
            actions: 1_000,
            snapshot: 32 << 20,
            running_artifacts: 10_000,
            combined_artifacts: 100_000,
            evaluations: 100_000_000,
            evaluated_attestations: 1_000_000,
            resolutions: 100_000,
            trail_artifacts: 10_000,
            trail_attestations: 10_000,
            runs: 100,
            trail_runs: 10_000,
            audit_pdf: 16 << 20,
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
