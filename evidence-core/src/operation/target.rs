//! The target of an operation.

use super::Operation;
use crate::auth::access::Target;
use crate::auth::actor::Scope;
use crate::error::{Missing, Resource, Result};

impl Target {
    /// Returns the target of an operation, from its fields.
    pub fn of<O: Operation>(operation: &O) -> Self {
        Self::new(O::NAME, O::SCOPE, operation.org().cloned(), operation.flow().cloned())
    }

    /// Returns the same target from the percent-decoded path parameters, before the operation is parsed. A
    /// transport can thus refuse unauthorized callers before it processes anything else of a request. A text
    /// that is not a valid flow name is ignored.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if the text is not a valid organization name.
    pub fn at<'a, O: Operation>(parameter: impl Fn(&str) -> Option<&'a str>) -> Result<Self> {
        let org = match parameter("org")
            .filter(|_| O::SCOPE != Scope::Authenticated)
            .map(|name| (name, name.parse()))
        {
            None => None,
            Some((_, Ok(org))) => Some(org),
            Some((name, Err(_))) => return Err(Missing::new(Resource::Organization, name, name).into()),
        };
        let flow = parameter("flow_name").and_then(|name| name.parse().ok());
        Ok(Self::new(O::NAME, O::SCOPE, org, flow))
    }
}
