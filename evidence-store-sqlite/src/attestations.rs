//! Attestations: a narrow row each, with the body in the ledger.

use async_trait::async_trait;
use evidence_core::attestations::{Attestation, AttestationRow, AttestationStore, Binding, NamedAttestation};
use evidence_core::id::Id;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;
use serde::Deserialize;

use crate::db::SqliteStore;
use crate::rows::{Payload, body, listed_record, once, record, unsigned};

pub(crate) const INSERT_ATTESTATIONS: &str = "
    INSERT INTO attestation (org, id, trail, name, kind, is_compliant, is_override, binding, at, ledger_index)
    SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->7, value->>8,
        value->>9
    FROM json_each($1)";

/// The JSON that [`Row`] reads, of a row `a`.
macro_rules! row_json {
    () => {
        "json_array(a.id, a.trail, a.name, a.kind, json(iif(a.is_compliant, 'true', 'false')),
            json(iif(a.is_override, 'true', 'false')), json(a.binding), a.at, a.ledger_index)"
    };
}
pub(crate) use row_json;

/// The columns that compliance depends on.
#[derive(Deserialize)]
pub(crate) struct Row(Id, Id, String, String, bool, bool, Binding, Timestamp, u64);

impl Row {
    pub(crate) fn attestation(self) -> AttestationRow {
        let Self(id, trail, name, kind, is_compliant, is_override, binding, at, index) = self;
        AttestationRow { id, trail, name, kind, is_compliant, is_override, binding, at, index }
    }
}

const ATTESTATION: &str = "
    SELECT l.payload FROM attestation a LEFT JOIN ledger l ON l.org = a.org AND l.idx = a.ledger_index
    WHERE a.id = $2 AND a.org = (SELECT key FROM organization WHERE id = $1)";

const BY_ID: &str = "
    SELECT a.ledger_index, l.payload FROM json_each($2) w CROSS JOIN attestation a ON a.id = w.value
    LEFT JOIN ledger l ON l.org = a.org AND l.idx = a.ledger_index
    WHERE a.org = (SELECT key FROM organization WHERE id = $1)";

const ON_TRAILS: &str = concat!(
    "SELECT ",
    row_json!(),
    ", coalesce(octet_length(l.payload), 0) FROM json_each($2) w
    CROSS JOIN attestation a ON a.trail = w.value AND a.name = $3
    LEFT JOIN ledger l ON l.org = a.org AND l.idx = a.ledger_index
    WHERE a.org = (SELECT key FROM organization WHERE id = $1) ORDER BY a.ledger_index DESC"
);

/// A row of [`ON_TRAILS`].
fn named((json, bytes): (String, i64)) -> StoreResult<NamedAttestation> {
    Ok(NamedAttestation { row: body::<Row>(&json)?.attestation(), bytes: unsigned(bytes)? })
}

#[async_trait]
impl AttestationStore for SqliteStore {
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>> {
        let question = self.ask_of(org, ATTESTATION).bind(id.to_string());
        question.first_as(|(payload,): (Payload,)| record(payload.text()?)).await
    }

    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>> {
        let question = self.ask_of(org, BY_ID).bind(once(ids)?).about(ids.len());
        question.readable_as(org, listed_record).await
    }

    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>> {
        let question = self.ask_of(org, ON_TRAILS).bind(once(trails)?);
        question.bind(name.to_owned()).about(trails.len()).all_as(named).await
    }
}
