//! The operations that download audit packages.

use std::collections::BTreeSet;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::contents::{Flaw, Head, Manifest, readme};
use super::stream::{Package, Part};
use crate::artifacts::operations::{GetArtifact, resolve};
use crate::attestations::record::Binding;
use crate::auth::actor::Scope;
use crate::bounded::ShortText;
use crate::checkpoints::signing;
use crate::compute::Compute;
use crate::context::Context;
use crate::error::{Error, ErrorKind, Missing, Resource, Result};
use crate::id::Id;
use crate::name::{FingerprintPrefix, FlowName, OrgName, TrailName};
use crate::operation::{Answer, AnswerBody, Header, Method, Operation, Reply, Streamed};
use crate::spill_buffer::{HashedContent, HashingBuffer};
use crate::store::error::StoreError;
use crate::trails::operations::GetTrail;
#[cfg(feature = "pdf")]
use crate::trails::pdf::GetAuditPdf;
use crate::trails::store::TrailEntry;

/// The header that names the file.
const DISPOSITION: &str = "Content-Disposition";

/// A package to download. A failure after the first piece was sent aborts the connection.
#[derive(Debug)]
pub struct PackageReply {
    file_name: String,
    content: Streamed,
}

impl Reply for PackageReply {
    const STATUSES: &'static [u16] = &[200];
    const MEDIA_TYPE: &'static str = "application/x-tar";

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    async fn answer(self, _: &Compute) -> Result<Answer> {
        let disposition = format!("attachment; filename=\"{}\"", self.file_name);
        let headers = vec![Header::new(DISPOSITION, disposition)?];
        Ok(Answer { headers, ..Answer::of(AnswerBody::Stream(self.content)) })
    }
}

/// Returns a file of the package from the response of another operation. A response that is refused because it would be too
/// large is named in the package instead.
async fn view<O: Operation<Body = ()>>(path: &str, operation: O, cx: &Context<'_>) -> Result<Part> {
    let answered = match operation.run((), cx).await {
        Ok(output) => output.answer(&cx.compute()).await,
        Err(error) => Err(error),
    };
    let path = path.to_owned();
    let mut content = match answered.map(|answer| answer.body) {
        Ok(AnswerBody::Json(bytes)) => return Ok(Part::File(path, bytes.to_vec())),
        Ok(AnswerBody::Raw(raw)) => return Ok(Part::File(path, raw.bytes.to_vec())),
        Ok(AnswerBody::Stream(streamed)) => streamed.content,
        Ok(AnswerBody::Download(file)) => file.content,
        Err(Error::Invalid { fields, .. }) => {
            let problem = fields.into_values().collect::<Vec<_>>().join("; ");
            return Ok(Part::Missing(Flaw { path, problem }));
        }
        Err(error) if error.kind() == ErrorKind::Internal => {
            tracing::error!(%error, "a page of a package cannot be made");
            let problem = "the server could not make it".to_owned();
            return Ok(Part::Missing(Flaw { path, problem }));
        }
        Err(error) => return Err(error),
    };
    let unwritable = |source: std::io::Error| Error::Store(StoreError::Unavailable(source.into()));
    let mut buffer = HashingBuffer::new(cx.temporary_space());
    while let Some(piece) = content.next().await.map_err(unwritable)? {
        buffer.push(&piece).await.map_err(unwritable)?;
    }
    let HashedContent { size, sha256, content } = buffer.finish().await.map_err(unwritable)?;
    // The answer is in the buffer, which has reservations of its own.
    drop(cx.take_answer_memory());
    Ok(Part::Content { path, size, sha256, content })
}

/// Returns the package about `subject` with these views and the entries of these trails and of this flow.
async fn package(
    (subject, file_name): (String, String),
    views: Vec<Part>,
    trails: &[Id],
    flow: Id,
    cx: &Context<'_>,
) -> Result<PackageReply> {
    let org = cx.org()?;
    let signed = signing::current(cx).await?;
    let size = signed.checkpoint.size;
    let mut entries = Vec::new();
    for trail in trails {
        entries.extend(cx.store().trail_entries(org, *trail).await?);
    }
    if let Some(index) = cx.store().record_entry(org, flow).await? {
        entries.push(TrailEntry { index, bytes: 0 });
    }
    // The checkpoint covers no later ones.
    entries.retain(|entry| entry.index < size);
    let newest = entries.iter().map(|entry| entry.index).max();
    let times = cx.store().ledger_times(org, newest.as_slice()).await?;
    let at = times.first().map_or(crate::time::Timestamp::from_seconds(0), |(_, at)| *at);
    let origin = signed.checkpoint.origin.clone();
    let mut files = vec![
        Part::File("README.txt".to_owned(), readme(&subject, &origin).into_bytes()),
        Part::File("checkpoint.txt".to_owned(), signed.note.clone().into_bytes()),
        Part::File("keys.txt".to_owned(), signed.keys().into_bytes()),
    ];
    files.extend(views);
    let manifest = Manifest::new(&Head::new(origin, subject, size), cx.temporary_space()).await?;
    let content = Package::new(manifest, files, entries, (signed, at, cx.to_owned_context()));
    let content = Streamed { media_type: PackageReply::MEDIA_TYPE.to_owned(), content: Box::new(content) };
    Ok(PackageReply { file_name, content })
}

fn flow_or_trail(error: Error) -> Error {
    match error {
        Error::NotFound(missing) => Missing::with_message(*missing, "Flow or trail not found").into(),
        other => other,
    }
}

/// Downloads the audit package of a trail: its page as PDF and JSON, its ledger entries with proofs, its attachments, and the
/// signed checkpoint, as a tar. `evidence-server verify` checks it without a server. A server without a key for ledgers answers
/// 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetTrailPackage {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The trail's name.
    pub trail_name: TrailName,
}

impl Operation for GetTrailPackage {
    const NAME: &'static str = "download_trail_audit_package";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/trails/{org}/{flow_name}/{trail_name}/audit_package";
    // The checkpoint tells how much else was recorded, which a stranger to a public flow does not learn.
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Downloads the audit package of a trail";
    const ANSWER_HEADERS: &'static [&'static str] = &[DISPOSITION];
    type Body = ();
    type Output = PackageReply;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let Self { org, flow_name, trail_name } = self;
        // Before the work for a package that could not be signed.
        signing::current(cx).await?;
        let flow = cx.flow(flow_name.as_str()).await.map_err(flow_or_trail)?.record;
        let trail = cx.trail(&flow, trail_name.as_str()).await.map_err(flow_or_trail)?.record;
        let mut views = Vec::new();
        #[cfg(feature = "pdf")]
        {
            let page = GetAuditPdf {
                org: org.clone(),
                flow_name: flow_name.clone(),
                trail_name: trail_name.clone(),
            };
            views.push(view("trail-page.pdf", page, cx).await?);
        }
        let subject = format!("trail {trail_name} of flow {flow_name} of organization {org}");
        let file_name = format!("{flow_name}-{trail_name}.tar");
        views.push(view("trail.json", GetTrail::new(org, flow_name, trail_name), cx).await?);
        package((subject, file_name), views, &[trail.id], flow.id, cx).await
    }
}

/// Downloads the audit package of an artifact: its data as JSON, and the ledger entries of all trails to which it was reported,
/// with proofs, attachments, and the signed checkpoint, as a tar. A server without a key for ledgers answers 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetArtifactPackage {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The artifact's fingerprint, or at least its first 5 digits if they match only one artifact of the flow.
    pub fingerprint: FingerprintPrefix,
}

impl Operation for GetArtifactPackage {
    const NAME: &'static str = "get_audit_package";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/artifacts/{org}/{flow_name}/{fingerprint}/audit_package";
    // The checkpoint tells how much else was recorded, which a stranger to a public flow does not learn.
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Downloads the audit package of an artifact";
    const ANSWER_HEADERS: &'static [&'static str] = &[DISPOSITION];
    type Body = ();
    type Output = PackageReply;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let Self { org, flow_name, fingerprint } = self;
        signing::current(cx).await?;
        let flow = cx.flow(flow_name.as_str()).await?.record;
        let whole = resolve(&flow, &fingerprint, cx).await?;
        let subject = format!("artifact {whole} of flow {flow_name} of organization {org}");
        let file_name = format!("{flow_name}-{whole}.tar");
        let get = GetArtifact { org, flow_name, fingerprint, trail: None, attestation_id: None };
        let artifact = view("artifact.json", get, cx).await?;
        let reports = cx.store().reports(cx.org()?, flow.id, &whole).await?;
        let trails: BTreeSet<Id> = reports.iter().filter_map(|report| report.trail).collect();
        package((subject, file_name), vec![artifact], &Vec::from_iter(trails), flow.id, cx).await
    }
}

/// Downloads the audit package of an attestation: the ledger entries of its trail with proofs, attachments, and the signed
/// checkpoint, as a tar. A server without a key for ledgers answers 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetAttestationPackage {
    /// The organization's name.
    pub org: OrgName,
    /// The attestation's id.
    pub attestation_id: ShortText,
}

impl Operation for GetAttestationPackage {
    const NAME: &'static str = "get_attestation_audit_package";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/attestations/{org}/{attestation_id}/audit_package";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Downloads the audit package of an attestation";
    const ANSWER_HEADERS: &'static [&'static str] = &[DISPOSITION];
    type Body = ();
    type Output = PackageReply;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let missing = || cx.missing(Resource::Attestation, self.attestation_id.as_str());
        let id = self.attestation_id.parse().map_err(|_| missing())?;
        let attestation = cx.store().attestation(cx.org()?, id).await?.ok_or_else(missing)?;
        let name = match &attestation.binding {
            Binding::Artifact { target, .. } | Binding::Named { target, .. } if !target.is_empty() => {
                format!("{target}.{}", attestation.name)
            }
            _ => attestation.name.to_string(),
        };
        let subject = format!("attestation {name} ({id}) of organization {}", self.org);
        package((subject, format!("{id}.tar")), Vec::new(), &[attestation.trail], attestation.flow, cx).await
    }
}
