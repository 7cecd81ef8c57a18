//! Artifacts: build outputs, identified by the SHA-256 of their content.

pub(crate) mod operations;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod search;
mod shown_attestations;
pub(crate) mod store;
pub(crate) mod view;

pub use operations::{
    ArtifactInput, ArtifactReported, FileName, GetArtifact, GetArtifactsByCommit, GetLatestCommit,
    LatestCommit, ListArtifacts, ReportArtifact,
};
pub use record::{Artifact, TemplateNames};
pub use search::{FoundArtifact, ResolvedKind, ResolvedMatches, ResolvedTo, Search, SearchResult};
pub use store::{
    ArtifactFilter, ArtifactPage, ArtifactQuery, ArtifactRow, ArtifactStore, ArtifactWithRuns, Found,
    GivenName, Matches, Origin, Unreported,
};
pub use view::{ArtifactView, EvidenceView, HistoryEvent, RepoInfoView, SnapshotPlace};
