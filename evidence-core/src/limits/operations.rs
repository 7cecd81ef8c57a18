//! The operation that shows the limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Limit, Unit};
use crate::auth::actor::Scope;
use crate::context::Context;
use crate::error::Result;
use crate::name::OrgName;
use crate::operation::{Json, Method, Operation};

/// Gets the greatest sizes and counts that this server accepts in requests. Operators set them.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetLimits {}

/// The limits of this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LimitList {
    /// Every limit.
    pub limits: Vec<LimitView>,
}

/// A limit of this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Limit")]
#[non_exhaustive]
pub struct LimitView {
    /// The name that operators set it by, and that errors use.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: LimitUnit,
    /// The greatest size or count.
    pub value: u64,
    /// The value that it has where no operator set it.
    pub default: u64,
    /// The input that it bounds.
    pub bounds: &'static str,
}

/// The unit of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LimitUnit {
    /// A size in bytes.
    Bytes,
    /// A number of things.
    Count,
}

impl From<Limit> for LimitView {
    fn from(limit: Limit) -> Self {
        let Limit { name, unit, value, default, bounds, .. } = limit;
        let unit = match unit {
            Unit::Bytes => LimitUnit::Bytes,
            Unit::Count => LimitUnit::Count,
        };
        Self { name, unit, value, default, bounds }
    }
}

impl Operation for GetLimits {
    const NAME: &'static str = "get_limits";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/limits";
    const SCOPE: Scope = Scope::Authenticated;
    const SUMMARY: &'static str = "Gets the maximum sizes and counts that this server accepts";
    type Body = ();
    type Output = Json<LimitList>;

    fn org(&self) -> Option<&OrgName> {
        None
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let limits = cx.limits().all().into_iter().map(LimitView::from).collect();
        Ok(Json(LimitList { limits }))
    }
}
