//! The whole API, one line an endpoint, in the order of the documentation.

use crate::attestations::{Generic, Junit, PostAttestation, PullRequests};
use crate::operation::Visitor;
use crate::{artifacts, attestations, flows, trails};

/// Shows every operation to `v`.
pub fn operations(v: &mut impl Visitor) {
    v.visit::<artifacts::ListArtifacts>();
    v.visit::<artifacts::ReportArtifact>();
    v.visit::<artifacts::GetArtifactsByCommit>();
    v.visit::<artifacts::GetArtifact>();
    v.visit::<artifacts::GetLatestCommit>();
    v.visit::<attestations::GetAttestations>();
    v.visit::<attestations::GetArtifactAttestation>();
    v.visit::<attestations::GetEvidence>();
    v.visit::<PostAttestation<Generic>>();
    v.visit::<PostAttestation<Junit>>();
    v.visit::<PostAttestation<PullRequests>>();
    v.visit::<attestations::GetTrailAttestation>();
    v.visit::<flows::ListFlows>();
    v.visit::<flows::PutFlow>();
    v.visit::<flows::GetFlow>();
    v.visit::<trails::ListTrails>();
    v.visit::<trails::BeginTrail>();
    v.visit::<trails::GetTrail>();
}
