//! Artifact reports: the one table that is indexed by digests.

use async_trait::async_trait;
use evidence_core::artifacts::{Artifact, ArtifactFilter, ArtifactRow, ArtifactStore, Matches, Origin};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::StoreResult;
use evidence_core::texts::TextRef;
use evidence_core::time::Timestamp;
use serde::Deserialize;

use crate::db::PostgresStore;
use crate::rows::{
    Bound, Listing, Order, array, each, id, list, listed_record, payload, signed, unsigned, word,
};

/// Numbered as trails are.
pub(crate) const INSERT_ARTIFACTS: &str = "
    INSERT INTO evidence.artifact
        (org, id, flow, trail, fingerprint, name, commit_sha, branch, repo, template, at, ledger_index, place, flow_place)
    SELECT r.org, r.id, r.flow, r.trail, r.fingerprint, r.name, r.commit_sha, r.branch, r.repo, r.template, r.at,
        r.ledger_index,
        r.places + row_number() OVER (PARTITION BY r.org ORDER BY r.ledger_index),
        r.flow_places + row_number() OVER (PARTITION BY r.org, r.flow ORDER BY r.ledger_index)
    FROM (
        SELECT b.*,
            coalesce((SELECT max(a.place) FROM evidence.artifact a WHERE a.org = b.org), 0) AS places,
            coalesce((SELECT max(a.flow_place) FROM evidence.artifact a WHERE a.org = b.org AND a.flow = b.flow), 0)
                AS flow_places
        FROM go, UNNEST($text, $text, $text, $text, $text, $text, $text, $text, $text, $text, $bigint, $bigint)
            AS b (org, id, flow, trail, fingerprint, name, commit_sha, branch, repo, template, at, ledger_index)
        OFFSET 0) r";

/// The JSON that [`Row`] reads, of a row `a`.
macro_rules! row_json {
    () => {
        "json_build_array(a.id, a.flow, a.trail, a.fingerprint, a.name, a.commit_sha, a.template::json, a.at,
            a.ledger_index)::text"
    };
}
pub(crate) use row_json;

/// The columns that compliance depends on.
#[derive(Deserialize)]
pub(crate) struct Row(Id, Id, Option<Id>, Fingerprint, String, String, Option<TextRef>, Timestamp, u64);

impl Row {
    pub(crate) fn artifact(self) -> ArtifactRow {
        let Self(id, flow, trail, fingerprint, template_reference_name, commit, template, at, index) = self;
        ArtifactRow { id, flow, trail, fingerprint, template_reference_name, commit, template, at, index }
    }
}

/// The commit of a row `x` is one in full.
macro_rules! in_full {
    () => {
        " AND x.commit_sha ~ '^[0-9a-f]{40}$'"
    };
}

const ARTIFACTS: &str = "evidence.artifact x WHERE x.org = $1";
const OF_FLOW: &str = " AND x.flow = $4";
/// Beside a digest: an index that begins with the flow, or that has the list's order, would be walked from end to end.
const IN_FLOW: &str = " AND x.flow || '' = $4";
const OF_TRAIL: &str = " AND x.trail = $5";
const NAMED: &str = " AND x.name = $11";
const OF_ID: &str = " AND x.id = $6";
/// Hex digits sort before 'g': the range is the prefix, and the index is used.
const FINGERPRINT_BEGINS: &str = " AND x.fingerprint >= $7 AND x.fingerprint < $7 || 'g'";
/// Of hashes in full, which is not all that is told of commits.
const COMMIT_BEGINS: &str = concat!(" AND x.commit_sha >= $8 AND x.commit_sha < $8 || 'g'", in_full!());
const ON_BRANCH: &str = " AND x.branch = $9";
const FROM_REPOS: &str = " AND x.repo = ANY($10)";
const WITH_COMMIT: &str = in_full!();

pub(crate) const REPORTS: &str = concat!(
    "SELECT '[' || string_agg(",
    row_json!(),
    ", ',' ORDER BY a.ledger_index) || ']' FROM evidence.artifact a
    WHERE a.org = $1 AND a.flow || '' = $2 AND a.fingerprint = $3"
);

pub(crate) const BY_ID: &str =
    concat!("SELECT a.ledger_index, ", payload!("a"), " FROM ", each!("artifact", "id", "a"));

/// The payloads are measured without being read.
pub(crate) const SIZES: &str = concat!(
    "SELECT a.id, coalesce(octet_length(",
    payload!("a"),
    "), 0)::bigint FROM ",
    each!("artifact", "id", "a")
);

const FINGERPRINTS: &str = "
    WITH found AS MATERIALIZED (
        SELECT DISTINCT fingerprint FROM evidence.artifact
        WHERE org = $1 AND flow || '' = $2 AND fingerprint >= $3 AND fingerprint < $3 || 'g')
    SELECT (SELECT count(*) FROM found), f.fingerprint
    FROM (SELECT 1) AS one LEFT JOIN (SELECT fingerprint FROM found ORDER BY fingerprint LIMIT $4) f ON true
    ORDER BY f.fingerprint";

/// One row with everything, as a JSON array or nothing: a row costs more than what is in it. A fingerprint's flows are
/// found one after the other, and of each its newest report, by an index that has them in this order, so that the work
/// is that of what is found, however often it was reported.
pub(crate) const PROVENANCE: &str = concat!(
    "WITH RECURSIVE place AS (
        SELECT w.value AS fingerprint, (
            SELECT f.flow || '' FROM evidence.artifact f
            WHERE f.org = $1 AND f.fingerprint = w.value ORDER BY f.flow || '' LIMIT 1) AS flow
        FROM UNNEST($2::text[]) AS w (value)
        UNION ALL
        SELECT p.fingerprint, (
            SELECT n.flow || '' FROM evidence.artifact n
            WHERE n.org = $1 AND n.fingerprint = p.fingerprint AND n.flow || '' > p.flow
            ORDER BY n.flow || '' LIMIT 1)
        FROM place p WHERE p.flow IS NOT NULL)
    SELECT '[' || string_agg('[' || ",
    row_json!(),
    " || ',' || to_json(coalesce((
            SELECT m.name FROM evidence.artifact m
            WHERE m.org = $1 AND m.fingerprint = p.fingerprint AND m.flow || '' = p.flow AND m.name <> ''
            ORDER BY (m.trail IS NOT NULL) DESC, m.ledger_index DESC LIMIT 1), ''))::text || ']', ',' ORDER BY a.ledger_index) || ']' FROM place p CROSS JOIN LATERAL (
        SELECT * FROM evidence.artifact r
        WHERE r.org = $1 AND r.fingerprint = p.fingerprint AND r.flow || '' = p.flow
        ORDER BY (r.trail IS NOT NULL) DESC, r.ledger_index DESC LIMIT 1) a"
);

fn listing(filter: &ArtifactFilter) -> Listing {
    let conditions = [
        filter.flow.map(|_| if filter.fingerprint.is_some() { IN_FLOW } else { OF_FLOW }),
        filter.trail.map(|_| OF_TRAIL),
        filter.name.as_ref().map(|_| NAMED),
        filter.id.map(|_| OF_ID),
        filter.fingerprint.as_ref().map(|_| FINGERPRINT_BEGINS),
        filter.commit.as_ref().map(|_| COMMIT_BEGINS),
        filter.branch.as_ref().map(|_| ON_BRANCH),
        filter.repos.as_ref().map(|_| FROM_REPOS),
        filter.with_commit.then_some(WITH_COMMIT),
    ];
    let conditions = conditions.into_iter().flatten().collect();
    Listing { from: ARTIFACTS, filter: conditions, order: order(filter), counted: true }
}

/// The newest first, by what the index that narrows the list most is ordered by.
const fn order(filter: &ArtifactFilter) -> Order {
    let ArtifactFilter { flow, trail, name, id, fingerprint, commit, branch, repos, with_commit } = filter;
    if fingerprint.is_some() || commit.is_some() {
        Order::By("x.ledger_index + 0 DESC")
    } else if trail.is_some() || id.is_some() || repos.is_some() {
        Order::By("x.ledger_index DESC")
    } else {
        match (flow, name.is_some() || branch.is_some() || *with_commit) {
            (None, false) => Order::Numbered("x.place"),
            (Some(_), false) => Order::Numbered("x.flow_place"),
            (None, true) => Order::By("x.place DESC"),
            (Some(_), true) => Order::By("x.flow_place DESC"),
        }
    }
}

/// What the conditions are bound to, from `$4` on.
fn values(filter: &ArtifactFilter) -> Vec<Bound> {
    let texts = [
        filter.flow.map(|flow| flow.to_string()),
        filter.trail.map(|trail| trail.to_string()),
        filter.id.map(|id| id.to_string()),
        filter.fingerprint.clone(),
        filter.commit.clone(),
        filter.branch.clone(),
    ];
    let repos = filter.repos.iter().flatten().map(|id| Some(id.to_string())).collect();
    let last = [Bound::List(repos), Bound::Text(filter.name.clone())];
    texts.into_iter().map(Bound::Text).chain(last).collect()
}

#[async_trait]
impl ArtifactStore for PostgresStore {
    async fn fingerprints(&self, org: Id, flow: Id, prefix: &str, limit: u64) -> StoreResult<Matches> {
        let question = self.ask_of(org, FINGERPRINTS).long().bind(flow.to_string());
        let rows = question.bind(prefix).bind(signed(limit)).all::<(i64, Option<String>)>().await?;
        let count = rows.first().map_or(Ok(0), |(count, _)| unsigned(*count))?;
        let first = rows.iter().filter_map(|(_, fingerprint)| fingerprint.as_deref());
        Ok(Matches { count, first: first.map(word).collect::<StoreResult<_>>()? })
    }

    async fn artifacts(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Artifact>> {
        self.whole_page(org, &listing(filter), request, values(filter)).await
    }

    async fn artifacts_listed(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>> {
        let listing = Listing { counted: false, ..listing(filter) };
        Ok(self.listed(org, &listing, request, values(filter)).await?.items)
    }

    async fn latest_artifact(&self, org: Id, filter: &ArtifactFilter) -> StoreResult<Option<Artifact>> {
        let listing = Listing { counted: false, ..listing(filter) };
        let latest =
            self.whole_page(org, &listing, PageRequest { offset: 0, limit: 1 }, values(filter)).await?;
        Ok(latest.items.into_iter().next())
    }

    async fn artifacts_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Artifact>> {
        self.ask_of(org, BY_ID).long().bind(list(ids)).readable_as(org, listed_record).await
    }

    async fn artifact_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        let size = |(report, bytes): (String, i64)| Ok(Listed { id: id(&report)?, bytes: unsigned(bytes)? });
        let rows = self.ask_of(org, SIZES).long().bind(list(ids)).all().await?;
        rows.into_iter().map(size).collect()
    }

    async fn reports(&self, org: Id, flow: Id, fingerprint: &Fingerprint) -> StoreResult<Vec<ArtifactRow>> {
        let question = self.ask_of(org, REPORTS).long().bind(flow.to_string());
        let json = question.bind(fingerprint.as_str()).first::<(Option<String>,)>().await?;
        Ok(array(json.and_then(|(json,)| json))?.into_iter().map(Row::artifact).collect())
    }

    async fn provenance(&self, org: Id, fingerprints: &[Fingerprint]) -> StoreResult<Vec<Origin>> {
        let question = self.ask_of(org, PROVENANCE).long().bind(list(fingerprints));
        let origins = |(json,): (Option<String>,)| {
            let origin = |(row, last_name): (Row, String)| Origin { report: row.artifact(), last_name };
            Ok(array(json)?.into_iter().map(origin).collect::<Vec<_>>())
        };
        Ok(question.first_as(origins).await?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[ignore = "needs PostgreSQL: cargo xtask test"]
    async fn every_list_is_read_by_the_index_that_narrows_it_most() {
        let id = "00000000-0000-0000-0000-00000000".parse().ok();
        let of_flow = ArtifactFilter { flow: id, ..ArtifactFilter::default() };
        let text = || Some("abcde".to_owned());
        // By repositories the statistics decide.
        let cases = [
            (ArtifactFilter::default(), ["artifact_org", "place <= "]),
            (of_flow.clone(), ["artifact_flow", "flow = $4) AND (flow_place <= "]),
            (
                ArtifactFilter { branch: text(), with_commit: true, ..of_flow.clone() },
                ["artifact_flow", "flow = $4"],
            ),
            (ArtifactFilter { trail: id, ..of_flow.clone() }, ["artifact_trail", "trail = $5"]),
            (ArtifactFilter { id, ..of_flow.clone() }, ["artifact_pkey", "id = $6"]),
            (ArtifactFilter { commit: text(), ..of_flow.clone() }, ["artifact_commit", "commit_sha >= $8"]),
            (
                ArtifactFilter { fingerprint: text(), ..of_flow },
                ["artifact_fingerprint", "fingerprint >= $7"],
            ),
        ];
        for (filter, used) in cases {
            let plan = listing(&filter).plan().await;
            assert!(used.iter().all(|part| plan.contains(part)), "{filter:?}: {plan}");
        }
    }
}
