//! The whole API, one line an endpoint, in the order of the documentation.

use crate::flows;
use crate::operation::Visitor;

/// Shows every operation to `v`.
pub fn operations(v: &mut impl Visitor) {
    v.visit::<flows::ListFlows>();
    v.visit::<flows::GetFlow>();
    v.visit::<flows::PutFlow>();
}
