//! The trail PDF (P7), from the service with the memory store, without I/O.

use std::sync::Arc;

use evidence_benches::{FLOW, ORG, Result, Row, attestation_document, evidence, median_ms, print};
use evidence_conformance::memory::MemoryStore;
use evidence_core::attestations::{AttestationInput, Generic, PostAttestation};
use evidence_core::auth::{Credential, Principal};
use evidence_core::operation::{Document, Form};
use evidence_core::trails::GetAuditPdf;
use evidence_core::{Evidence, EvidenceService};

const ATTESTATIONS: usize = 200;
const TRAIL: &str = "build-1";

#[tokio::main]
async fn main() -> Result {
    let (evidence, key) = evidence(Arc::new(MemoryStore::new())).await?;
    let jane = evidence.authenticate(Credential::Bearer(key.reveal())).await?;
    for number in 0..ATTESTATIONS {
        attest(&evidence, &jane, &format!("check-{number}")).await?;
    }
    let first = pdf(&evidence, &jane).await?;
    let mut same = true;
    let drawn = median_ms(15, async |_| {
        same &= pdf(&evidence, &jane).await? == first;
        Ok(())
    });
    let drawn = drawn.await?;
    let bytes = if same { "the same bytes each time" } else { "OTHER BYTES" };
    print(&[Row::new(
        "P7 trail PDF, 200 attestations",
        format!("{drawn:.1} ms, {} KiB, {bytes}", first.len() >> 10),
        "< 100 ms",
        drawn < 100.0 && same,
    )]);
    Ok(())
}

async fn attest(evidence: &Evidence, jane: &Principal, name: &str) -> Result {
    let operation = PostAttestation::<Generic>::new(ORG.parse()?, FLOW.parse()?, TRAIL.parse()?);
    let document = attestation_document(name);
    let document = evidence_core::json::check(document.as_bytes())?;
    let document = AttestationInput::read(document).map_err(|misfit| misfit.field().to_owned())?;
    evidence.call(jane, operation, Form { document, files: Vec::new() }).await?;
    Ok(())
}

async fn pdf(evidence: &Evidence, jane: &Principal) -> Result<Vec<u8>> {
    let operation = GetAuditPdf { org: ORG.parse()?, flow_name: FLOW.parse()?, trail_name: TRAIL.parse()? };
    let mut content = evidence.call(jane, operation, ()).await?.0.content;
    let mut bytes = Vec::new();
    while let Some(chunk) = content.next().await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
