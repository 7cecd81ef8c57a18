//! The operations on a ledger: its checkpoint, tiles, entries and proofs.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::parameters::{LedgerIndex, ProofFormat, RecordOrIndex, TilePath};
use super::views::{ConsistencyView, EntryPage, EntryView, ProofView};
use crate::auth::actor::Scope;
use crate::checkpoints::signing;
use crate::context::Context;
use crate::error::{Error, Missing, Resource, Result};
use crate::ledger::cose::{CoseError, receipt};
use crate::ledger::tile::{Tile, TileContent, push_entry};
use crate::ledger::{
    Checkpoint, Hash, TlogProof, consistency, consistency_needs, inclusion, inclusion_needs, root_at,
    root_needs,
};
use crate::name::OrgName;
use crate::operation::{Answer, AnswerBody, Header, Json, Method, Operation, Raw, Reply, WithHeaders};
use crate::store::LEDGER_PAGE;
use crate::store::entry::StoredEntry;
use crate::store::error::StoreError;

/// The number of organizations that are read at once.
const ORGANIZATIONS_AT_ONCE: u64 = 1000;
/// Maximum number of entries of a page.
const MAX_ENTRIES: u64 = 1000;

/// The header that says how long a response may be used.
const CACHE_CONTROL: &str = "Cache-Control";
/// A tile changes only if the ledgers get another name after a restored backup: then their address is the same.
const TILE_CACHING: &str = "private, max-age=3600";

/// A note or another text for verifiers.
fn text(text: String) -> Raw {
    Raw { media_type: Some("text/plain; charset=utf-8".to_owned()), bytes: text.into() }
}

/// Lists the keys with which the checkpoints of all organizations are verified, one per line (C2SP signed-note: name, id and
/// key). The name of a key is the name of the log that it signs, and ends with the id of its organization. While a key is
/// replaced, a log has two. A server without a key for ledgers answers 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListLedgerKeys {}

impl Operation for ListLedgerKeys {
    const NAME: &'static str = "list_ledger_keys";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/ledger/keys";
    const SCOPE: Scope = Scope::Open;
    const SUMMARY: &'static str = "Lists the keys that verify checkpoints";
    type Body = ();
    type Output = Raw;

    fn org(&self) -> Option<&OrgName> {
        None
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let keys = signing::keys(cx)?;
        let mut orgs = Vec::new();
        let mut after = Some(String::new());
        while let Some(name) = after {
            let page = cx.store().organizations_by_name(&name, ORGANIZATIONS_AT_ONCE).await?;
            orgs.extend(page.records.iter().map(|organization| organization.id));
            after = page.more;
        }
        // Not in the order of their names, which nobody else may know.
        orgs.sort_unstable();
        let keys = Arc::clone(keys);
        let compute = cx.compute();
        let lines = compute.run_long(move || {
            let signers = orgs.into_iter().map(|org| keys.signers(org)).collect::<Result<Vec<_>, _>>()?;
            Ok(signers.iter().flatten().map(|signer| format!("{}\n", signer.verifier())).collect::<String>())
        });
        Ok(text(lines.await?.map_err(signing::bad_name)?))
    }
}

/// Gets the signed checkpoint of the ledger with all of its present entries (C2SP tlog-checkpoint). A server without a
/// key for ledgers answers 404. If the ledger does not extend what was signed last, such as after the restoration of a
/// backup, it answers 503 with the reason, and nothing is signed.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetCheckpoint {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for GetCheckpoint {
    const NAME: &'static str = "get_ledger_checkpoint";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/ledger/{org}/checkpoint";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets the signed checkpoint of the ledger";
    const ANSWER_HEADERS: &'static [&'static str] = &[CACHE_CONTROL];
    type Body = ();
    type Output = WithHeaders<Raw>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let signed = signing::current(cx).await?;
        Ok(WithHeaders { headers: vec![Header::new(CACHE_CONTROL, "no-cache")?], reply: text(signed.note) })
    }
}

/// Gets a tile of the ledger: hashes of the tree at `<level>/<index>`, or leaves at `entries/<index>`, with `.p/<width>` for
/// a partial one (C2SP tlog-tiles). Payloads are no part of leaves. Full tiles never change.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetTile {
    /// The organization's name.
    pub org: OrgName,
    /// The path of the tile, such as `0/x001/234.p/17` or `entries/000`.
    pub tile: TilePath,
}

impl Operation for GetTile {
    const NAME: &'static str = "get_ledger_tile";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/ledger/{org}/tile/{tile}";
    const CATCH_ALL: bool = true;
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a tile of the ledger";
    const ANSWER_HEADERS: &'static [&'static str] = &[CACHE_CONTROL];
    type Body = ();
    type Output = WithHeaders<Raw>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let TilePath(tile) = self.tile;
        let size = cx.ledger_size().await?;
        if tile.least_size() > size {
            let text = format!("the ledger has {size} entries, and tile {tile} needs {}", tile.least_size());
            return Err(cx.missing(Resource::Tile, text).into());
        }
        let bytes = match tile.content() {
            TileContent::Hashes(_) => {
                let known = cx.store().ledger_hashes(cx.org()?, &tile.needs()).await?;
                tile.hashes(&known).map_err(StoreError::corrupt)?
            }
            TileContent::Entries => entries(tile, cx).await?,
        };
        let headers = vec![Header::new(CACHE_CONTROL, TILE_CACHING)?];
        Ok(WithHeaders { headers, reply: Raw { media_type: None, bytes: bytes.into() } })
    }
}

/// Returns the leaves of a tile of entries.
async fn entries(tile: Tile, cx: &Context<'_>) -> Result<Vec<u8>> {
    let positions = tile.positions();
    let count = positions.end - positions.start;
    let leaves = cx.store().ledger_leaves(cx.org()?, positions.start, count).await?;
    let mut bytes = Vec::new();
    for (index, leaf) in positions.clone().zip(&leaves) {
        if leaf.index != index || !push_entry(&mut bytes, leaf.header().canonical().as_bytes()) {
            return Err(StoreError::corrupt(format_args!("leaf {index} is missing or too long")).into());
        }
    }
    if leaves.len() as u64 != count {
        return Err(
            StoreError::corrupt(format_args!("leaves from {} on are missing", positions.start)).into()
        );
    }
    Ok(bytes)
}

/// Gets entries of the ledger with their payloads and salts.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetEntries {
    /// The organization's name.
    pub org: OrgName,
    /// The index of the first entry, from 0.
    pub index: LedgerIndex,
    /// The index of the last entry. Defaults to that of the first. A page has at most 1000 entries, and ends after 4 MiB of
    /// payloads.
    pub to: Option<LedgerIndex>,
}

impl Operation for GetEntries {
    const NAME: &'static str = "get_ledger_entries";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/ledger/{org}/entries/{index}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets entries of the ledger";
    type Body = ();
    type Output = Json<EntryPage>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let (first, last) = (self.index.get(), self.to.unwrap_or(self.index).get());
        if last < first {
            return Err(Error::invalid(
                "query.to",
                format!("Input should be greater than or equal to {first}"),
            ));
        }
        let size = cx.ledger_size().await?;
        if first >= size {
            return Err(no_entry(first, size, cx).into());
        }
        let wanted = (last - first + 1).min(size - first);
        cx.reserve_for_data(LEDGER_PAGE).await?;
        let entries = cx.store().ledger_entries(cx.org()?, first, wanted.min(MAX_ENTRIES)).await?;
        let next = first + entries.len() as u64;
        let next = (next < first + wanted).then_some(next);
        Ok(Json(EntryPage { entries: entries.into_iter().map(EntryView::from).collect(), next, size }))
    }
}

/// Gets the proof that the ledger of `to` entries extends the ledger of `from` entries (RFC 6962, 2.1.2).
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetConsistency {
    /// The organization's name.
    pub org: OrgName,
    /// The smaller size.
    pub from: LedgerIndex,
    /// The larger size. Defaults to the present size of the ledger.
    pub to: Option<LedgerIndex>,
}

impl Operation for GetConsistency {
    const NAME: &'static str = "get_ledger_consistency";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/ledger/{org}/consistency";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a consistency proof of the ledger";
    type Body = ();
    type Output = Json<ConsistencyView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let size = cx.ledger_size().await?;
        let (from, to) = (self.from.get(), self.to.map_or(size, LedgerIndex::get));
        for (field, number, most) in [("query.to", to, size), ("query.from", from, to)] {
            if number > most {
                return Err(Error::invalid(field, format!("Input should be less than or equal to {most}")));
            }
        }
        let org = cx.org()?;
        let known = cx.store().ledger_hashes(org, &consistency_needs(from, to)).await?;
        let proof = consistency(from, to, &known).map_err(StoreError::corrupt)?;
        let (from_root, to_root) = (root(from, cx).await?, root(to, cx).await?);
        Ok(Json(ConsistencyView { from, to, from_root, to_root, proof }))
    }
}

/// Returns the root of the ledger's first `size` entries.
async fn root(size: u64, cx: &Context<'_>) -> Result<Hash> {
    let known = cx.store().ledger_hashes(cx.org()?, &root_needs(size)).await?;
    Ok(root_at(size, &known).map_err(StoreError::corrupt)?)
}

/// Gets the proof that the ledger has a record: the last entry about it, the audit path and the signed checkpoint. A server
/// without a key for ledgers answers 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetProof {
    /// The organization's name.
    pub org: OrgName,
    /// The id of a trail, an artifact report, an attestation or another record; or the index of an entry, as in the header
    /// `Evidence-Ledger-Index` of the response to a write.
    pub record_id: RecordOrIndex,
    /// The format: `tlog-proof` (the default, a text; its line `extra` has the record's id), `json` (with the entry), or
    /// `cose`.
    pub format: Option<ProofFormat>,
}

/// A proof in one of its formats.
#[derive(Debug)]
pub enum ProofReply {
    /// Bytes for verifiers.
    File(Raw),
    /// JSON.
    Json(Box<ProofView>),
}

impl Reply for ProofReply {
    const STATUSES: &'static [u16] = &[200];
    const MEDIA_TYPE: &'static str = "*/*";

    fn schema(_: &mut schemars::SchemaGenerator) -> Option<schemars::Schema> {
        None
    }

    async fn answer(self, compute: &crate::compute::Compute) -> Result<Answer> {
        match self {
            Self::File(raw) => Ok(Answer::of(AnswerBody::Raw(raw))),
            Self::Json(view) => Json(*view).answer(compute).await,
        }
    }
}

impl Operation for GetProof {
    const NAME: &'static str = "get_ledger_proof";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/ledger/{org}/proof/{record_id}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets the proof that the ledger has a record";
    type Body = ();
    type Output = ProofReply;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let org = cx.org()?;
        let index = match self.record_id {
            RecordOrIndex::Entry(index) => index,
            RecordOrIndex::Record(id) => {
                let text = || format!("the ledger has no record with the id '{id}'");
                let missing = || cx.missing(Resource::LedgerEntry, text()).named_by("record_id");
                cx.store().record_entry(org, id).await?.ok_or_else(missing)?
            }
        };
        let signed = signing::current(cx).await?;
        let Checkpoint { size, root, .. } = signed.checkpoint;
        if index >= size {
            return Err(no_entry(index, size, cx).named_by("record_id").into());
        }
        let known = cx.store().ledger_hashes(org, &inclusion_needs(index, size)).await?;
        let path = inclusion(index, size, &known).map_err(StoreError::corrupt)?;
        Ok(match self.format.unwrap_or_default() {
            ProofFormat::TlogProof => {
                let extra = self.record_id.to_string().into_bytes();
                let proof = TlogProof { extra, index, path, checkpoint: signed.note };
                ProofReply::File(text(proof.to_string()))
            }
            ProofFormat::Json => {
                let entry = entry(index, cx).await?.into();
                ProofReply::Json(Box::new(ProofView { entry, size, root, path, checkpoint: signed.note }))
            }
            ProofFormat::Cose => {
                let bytes = receipt(signed.signer(), index, size, &path, root);
                let failed = |source: CoseError| Error::Internal {
                    what: "a receipt could not be encoded",
                    source: source.to_string().into(),
                };
                let media_type = Some("application/cose".to_owned());
                ProofReply::File(Raw { media_type, bytes: bytes.map_err(failed)?.into() })
            }
        })
    }
}

/// Returns the error that a ledger of this size has no entry of this index.
fn no_entry(index: u64, size: u64, cx: &Context<'_>) -> Missing {
    cx.missing(Resource::LedgerEntry, format!("the ledger has {size} entries, so none of index {index}"))
}

/// Returns an entry that the ledger has.
async fn entry(index: u64, cx: &Context<'_>) -> Result<StoredEntry> {
    let entry = cx.store().ledger_entries_at(cx.org()?, &[index]).await?.pop();
    Ok(entry.ok_or_else(|| StoreError::corrupt(format_args!("ledger entry {index} is missing")))?)
}
