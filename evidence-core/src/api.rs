//! The whole API, one line an endpoint, in the order of the documentation.

use crate::operation::Visitor;
use crate::{environments, flows, policies, reports, snapshots};

/// Shows every operation to `v`.
pub fn operations(v: &mut impl Visitor) {
    v.visit::<environments::ListEnvironments>();
    v.visit::<environments::PutEnvironment>();
    v.visit::<environments::GetEnvironment>();
    v.visit::<environments::JoinEnvironment>();
    v.visit::<environments::AttachPolicies>();
    v.visit::<reports::ReportDocker>();
    v.visit::<reports::ReportServer>();
    v.visit::<flows::ListFlows>();
    v.visit::<flows::GetFlow>();
    v.visit::<flows::PutFlow>();
    v.visit::<policies::ListPolicies>();
    v.visit::<policies::PutPolicy>();
    v.visit::<policies::GetPolicy>();
    v.visit::<snapshots::ListSnapshots>();
    v.visit::<snapshots::GetSnapshot>();
}
