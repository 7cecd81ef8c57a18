//! Attestations: a narrow row each, with the body in the ledger.

use async_trait::async_trait;
use evidence_core::attestations::{Attestation, AttestationRow, AttestationStore, Binding, NamedAttestation};
use evidence_core::id::Id;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;
use serde::Deserialize;

use crate::db::PostgresStore;
use crate::rows::{Payload, body, each, list, listed_record, payload, record, text_of, unsigned};

pub(crate) const INSERT_ATTESTATIONS: &str = "
    INSERT INTO evidence.attestation
        (org, id, trail, name, kind, is_compliant, is_override, binding, at, ledger_index)
    SELECT r.* FROM go, UNNEST(
        $text, $text, $text, $text, $text, $boolean, $boolean, $text, $bigint, $bigint) r";

/// The JSON that [`Row`] reads, of a row `a`.
macro_rules! row_json {
    () => {
        "json_build_array(a.id, a.trail, a.name, a.kind, a.is_compliant, a.is_override, a.binding::json, a.at,
            a.ledger_index)::text"
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

const ATTESTATION: &str =
    concat!("SELECT ", payload!("a"), " FROM evidence.attestation a WHERE a.org = $1 AND a.id = $2");

pub(crate) const BY_ID: &str =
    concat!("SELECT a.ledger_index, ", payload!("a"), " FROM ", each!("attestation", "id", "a"));

/// A text that is stored apart is not read for its size.
pub(crate) const ON_TRAILS: &str = concat!(
    "SELECT ",
    row_json!(),
    ", coalesce(octet_length(",
    payload!("a"),
    "), 0)::bigint FROM ",
    each!("attestation", "trail", "a"),
    " WHERE a.name = $3 ORDER BY a.ledger_index DESC"
);

/// A row of [`ON_TRAILS`].
fn named((json, bytes): (String, i64)) -> StoreResult<NamedAttestation> {
    Ok(NamedAttestation { row: body::<Row>(&json)?.attestation(), bytes: unsigned(bytes)? })
}

#[async_trait]
impl AttestationStore for PostgresStore {
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>> {
        let question = self.ask_of(org, ATTESTATION).bind(id.to_string());
        question.first::<(Payload,)>().await?.map(|(payload,)| record(text_of(&payload)?)).transpose()
    }

    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>> {
        self.ask_of(org, BY_ID).long().bind(list(ids)).readable_as(org, listed_record).await
    }

    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>> {
        let question = self.ask_of(org, ON_TRAILS).long().bind(list(trails)).bind(name);
        question.all().await?.into_iter().map(named).collect()
    }
}
