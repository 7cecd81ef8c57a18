//! A trail with its reports.

use std::sync::OnceLock;

use tokio::time::Instant;

use crate::artifacts::store::ArtifactRow;
use crate::attestations::record::Binding;
use crate::attestations::store::AttestationRow;
use crate::cache::Weigh;
use crate::rules::compliance::{ContentIndex, ReportedArtifact, ReportedAttestation};
use crate::trails::record::TrailVersion;
use crate::trails::store::TrailContents;

/// A trail with its reports.
#[derive(Debug)]
pub(crate) struct ReportedTrail {
    pub(crate) contents: TrailContents,
    by_content: OnceLock<ContentIndex>,
    pub(super) read_at: Instant,
    /// The approximate size in memory, in bytes, including what is derived lazily.
    pub(crate) bytes: usize,
    /// Whether its size is known.
    is_cacheable: bool,
}

impl Weigh for ReportedTrail {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_cacheable(&self) -> bool {
        self.is_cacheable
    }
}

impl ReportedTrail {
    /// Creates a trail that was read at this time. `fact` is the size of its newest fact in bytes. It is unknown
    /// if a concurrent write recorded a newer one; the trail is then not cached.
    pub(super) fn new(contents: TrailContents, fact: Option<u64>, read_at: Instant) -> Self {
        let bytes = memory(&contents, fact.unwrap_or_default());
        Self { contents, by_content: OnceLock::new(), read_at, bytes, is_cacheable: fact.is_some() }
    }

    /// Returns whether it is at least as new as this version. Revisions and report counts only grow.
    pub(super) fn is_at_least(&self, version: &TrailVersion) -> bool {
        self.contents.revision >= version.revision && self.contents.reports() as u64 >= version.reports
    }

    /// Returns the reports, grouped by the content that they are about. Attestation indexes are those of the
    /// contents.
    pub(crate) fn by_content(&self) -> &ContentIndex {
        self.by_content.get_or_init(|| {
            let TrailContents { artifacts, attestations, earlier_names, .. } = &self.contents;
            let artifacts = Vec::from_iter(artifacts.iter().map(ReportedArtifact::from));
            let attestations = attestations.iter().map(ReportedAttestation::from).collect();
            ContentIndex::new(&artifacts, attestations, earlier_names)
        })
    }

    /// Returns every attestation that was reported to the trail, oldest first.
    pub(crate) fn attestations(&self) -> &[AttestationRow] {
        &self.contents.attestations
    }

    /// Returns how many reports [`by_content`](Self::by_content) still has to process; 0 once it has run.
    pub(crate) fn unprepared(&self) -> usize {
        if self.by_content.get().is_some() { 0 } else { self.contents.reports() }
    }
}

/// The approximate bytes of memory per byte of a fact. Small values take more memory than text; a link takes
/// four times its size.
pub(crate) const MEMORY_PER_BYTE: u64 = 4;

/// Returns the approximate size in memory of a trail whose newest fact has `fact` bytes, with what
/// [`ReportedTrail`] derives from it.
fn memory(contents: &TrailContents, fact: u64) -> usize {
    /// Bytes for a report: its row, the values that compliance evaluation uses, and the spare capacity of
    /// growing lists.
    const REPORT: usize = 1 << 10;
    let artifact = |row: &ArtifactRow| row.template_reference_name.len() + row.commit.len();
    let attestation = |row: &AttestationRow| {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let about = match &row.binding {
            Binding::Trail => 0,
            Binding::Artifact { target, .. } => target.len(),
            Binding::Named { target, commit } => target.len() + commit.len(),
        };
        row.name.len() + row.kind.len() + of(&row.control) + of(&row.commit) + about
    };
    let artifacts = contents.artifacts.iter().map(artifact).sum::<usize>();
    let attestations = contents.attestations.iter().map(attestation).sum::<usize>();
    let fact = usize::try_from(fact.saturating_mul(MEMORY_PER_BYTE)).unwrap_or(usize::MAX);
    // Texts exist twice: in the rows and in the evaluated form.
    let reports = (contents.reports() + 1) * REPORT + 2 * (artifacts + attestations);
    reports.saturating_add(fact)
}
