//! A route of the application that reports to the service without HTTP. An operation is a value, and calling
//! it checks the caller's permissions like the API does.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use evidence_core::artifacts::{ArtifactInput, ReportArtifact};
use evidence_core::digest::sha256_hex;
use evidence_core::name::{FlowName, InvalidText, TrailName};
use evidence_core::operation::Json;
use evidence_core::{Error, EvidenceService};
use http::{HeaderMap, StatusCode};

use crate::Shared;

/// `POST /builds/{flow}/{trail}`: reports a build of the signed-in user as an artifact.
pub(crate) async fn report(
    State(shared): State<Shared>,
    Path((flow_name, trail_name)): Path<(FlowName, TrailName)>,
    headers: HeaderMap,
    build: Bytes,
) -> Result<StatusCode, Refused> {
    let caller = shared.people.caller(&headers).await?.ok_or(Error::Unauthenticated)?;
    let fingerprint = sha256_hex(&build).parse()?;
    let artifact = ArtifactInput {
        trail_name: Some(trail_name),
        ..ArtifactInput::new(fingerprint, "build.tar.gz".parse()?)
    };
    let report = ReportArtifact { org: caller.actor().name.parse()?, flow_name };
    shared.evidence.call(&caller, report, Json(artifact)).await?;
    Ok(StatusCode::CREATED)
}

/// An error of the service, in the application's wording.
#[derive(Debug)]
pub(crate) struct Refused(Error);

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<InvalidText> for Refused {
    fn from(text: InvalidText) -> Self {
        Self(Error::invalid("build", text.to_string()))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        StatusCode::from_u16(self.0.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).into_response()
    }
}
