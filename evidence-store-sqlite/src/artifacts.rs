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

use crate::db::SqliteStore;
use crate::rows::{Listing, Order, array, id, list, listed_record, once, signed, unsigned, word};

pub(crate) const INSERT_ARTIFACTS: &str = "
    INSERT INTO artifact
        (org, id, flow, trail, fingerprint, name, commit_sha, branch, repo, template, at, ledger_index, place, flow_place)
    SELECT r.*,
        coalesce((SELECT max(a.place) FROM artifact a WHERE a.org = r.org), 0)
            + row_number() OVER (PARTITION BY r.org ORDER BY r.idx),
        coalesce((SELECT max(a.flow_place) FROM artifact a WHERE a.flow = r.flow), 0)
            + row_number() OVER (PARTITION BY r.flow ORDER BY r.idx)
    FROM (SELECT value->>0 AS org, value->>1, value->>2 AS flow, value->>3, value->>4, value->>5, value->>6,
              value->>7, value->>8, value->>9, value->>10, value->>11 AS idx
          FROM json_each($1)) r";

/// The JSON that [`Row`] reads, of a row `a`.
macro_rules! row_json {
    () => {
        "json_array(a.id, a.flow, a.trail, a.fingerprint, a.name, a.commit_sha, json(a.template), a.at, a.ledger_index)"
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
        " AND length(x.commit_sha) = 40 AND x.commit_sha NOT GLOB '*[^0-9a-f]*'"
    };
}

const ARTIFACTS: &str = "artifact x WHERE x.org = (SELECT key FROM organization WHERE id = $1)";
/// For conditions that have an index of their own: the plus keeps the planner from walking the whole organization.
const NARROWED: &str = "artifact x WHERE +x.org = (SELECT key FROM organization WHERE id = $1)";
const OF_FLOW: &str = " AND x.flow = $4";
const OF_TRAIL: &str = " AND x.trail = $5";
/// The plus keeps to the index of what it is beside.
const NAMED: &str = " AND +x.name = $11";
const OF_ID: &str = " AND x.id = $6";
/// Hex digits sort before 'g': the range is the prefix, and the index is used.
const FINGERPRINT_BEGINS: &str = " AND x.fingerprint >= $7 AND x.fingerprint < $7 || 'g'";
/// Of hashes in full, which is not all that is told of commits.
const COMMIT_BEGINS: &str = concat!(" AND x.commit_sha >= $8 AND x.commit_sha < $8 || 'g'", in_full!());
const ON_BRANCH: &str = " AND x.branch = $9";
const FROM_REPOS: &str = " AND x.repo IN (SELECT value FROM json_each($10))";
const WITH_COMMIT: &str = in_full!();

const REPORTS: &str = concat!(
    "SELECT '[' || group_concat(",
    row_json!(),
    ") || ']' FROM artifact a
    WHERE a.org = (SELECT key FROM organization WHERE id = $1) AND a.flow = $2 AND a.fingerprint = $3"
);

const BY_ID: &str = "
    SELECT a.ledger_index, l.payload FROM json_each($2) w CROSS JOIN artifact a ON a.id = w.value
    LEFT JOIN ledger l ON l.org = a.org AND l.idx = a.ledger_index
    WHERE a.org = (SELECT key FROM organization WHERE id = $1)";

/// The payloads are measured without being read.
const SIZES: &str = "
    SELECT a.id, coalesce(octet_length(l.payload), 0) FROM json_each($2) w CROSS JOIN artifact a ON a.id = w.value
    LEFT JOIN ledger l ON l.org = a.org AND l.idx = a.ledger_index
    WHERE a.org = (SELECT key FROM organization WHERE id = $1)";

const FINGERPRINTS: &str = "
    WITH found AS MATERIALIZED (
        SELECT DISTINCT fingerprint FROM artifact
        WHERE org = (SELECT key FROM organization WHERE id = $1) AND flow = $2
            AND fingerprint >= $3 AND fingerprint < $3 || 'g')
    SELECT (SELECT count(*) FROM found), found.fingerprint
    FROM (SELECT 1) LEFT JOIN (SELECT fingerprint FROM found ORDER BY fingerprint LIMIT $4) found
    ORDER BY found.fingerprint";

/// One row with everything, as a JSON array or nothing: a row costs more than what is in it. A fingerprint's flows are
/// found one after the other, and of each its newest report, by an index that has them in this order, so that the work
/// is that of what is found, however often it was reported.
const PROVENANCE: &str = concat!(
    "WITH RECURSIVE place (fingerprint, flow) AS (
        SELECT value, (
            SELECT min(f.flow) FROM artifact f
            WHERE f.org = (SELECT key FROM organization WHERE id = $1) AND f.fingerprint = value)
        FROM json_each($2)
        UNION ALL
        SELECT p.fingerprint, (
            SELECT min(n.flow) FROM artifact n
            WHERE n.org = (SELECT key FROM organization WHERE id = $1) AND n.fingerprint = p.fingerprint
                AND n.flow > p.flow)
        FROM place p WHERE p.flow IS NOT NULL)
    SELECT '[' || group_concat(json_array(",
    row_json!(),
    ", coalesce((
            SELECT m.name FROM artifact m
            WHERE m.org = a.org AND m.fingerprint = a.fingerprint AND m.flow = a.flow AND m.name <> ''
            ORDER BY (m.trail IS NOT NULL) DESC, m.ledger_index DESC LIMIT 1), ''))) || ']' FROM place p CROSS JOIN artifact a ON a.id = (
        SELECT r.id FROM artifact r
        WHERE r.org = (SELECT key FROM organization WHERE id = $1) AND r.fingerprint = p.fingerprint
            AND r.flow = p.flow
        ORDER BY (r.trail IS NOT NULL) DESC, r.ledger_index DESC LIMIT 1)"
);

fn listing(filter: &ArtifactFilter) -> Listing {
    let conditions = [
        filter.flow.map(|_| OF_FLOW),
        filter.trail.map(|_| OF_TRAIL),
        filter.name.as_ref().map(|_| NAMED),
        filter.id.map(|_| OF_ID),
        filter.fingerprint.as_ref().map(|_| FINGERPRINT_BEGINS),
        filter.commit.as_ref().map(|_| COMMIT_BEGINS),
        filter.branch.as_ref().map(|_| ON_BRANCH),
        filter.repos.as_ref().map(|_| FROM_REPOS),
        filter.with_commit.then_some(WITH_COMMIT),
    ];
    let narrowed = filter.flow.or(filter.trail).or(filter.id).is_some() || filter.repos.is_some();
    // The index on digests begins with the organization.
    let from = if narrowed && filter.fingerprint.is_none() { NARROWED } else { ARTIFACTS };
    let narrow = filter.fingerprint.is_some() || filter.id.is_some() || filter.trail.is_some();
    let conditions = conditions.into_iter().flatten().collect();
    Listing { from, filter: conditions, order: order(filter), narrow, counted: true }
}

/// The newest first, by what the index that narrows the list most is ordered by.
const fn order(filter: &ArtifactFilter) -> Order {
    let ArtifactFilter { flow, trail, name, id, fingerprint, commit, branch, repos, with_commit } = filter;
    let by_another =
        trail.is_some() || id.is_some() || fingerprint.is_some() || commit.is_some() || repos.is_some();
    match (flow, name.is_some() || branch.is_some() || *with_commit) {
        _ if by_another => Order::By("x.ledger_index DESC"),
        (None, false) => Order::Numbered("x.place"),
        (Some(_), false) => Order::Numbered("x.flow_place"),
        (None, true) => Order::By("x.place DESC"),
        (Some(_), true) => Order::By("x.flow_place DESC"),
    }
}

/// What the conditions are bound to, from `$4` on.
fn values(filter: &ArtifactFilter) -> StoreResult<Vec<Option<String>>> {
    Ok(vec![
        filter.flow.map(|flow| flow.to_string()),
        filter.trail.map(|trail| trail.to_string()),
        filter.id.map(|id| id.to_string()),
        filter.fingerprint.clone(),
        filter.commit.clone(),
        filter.branch.clone(),
        filter.repos.as_ref().map(list).transpose()?,
        filter.name.clone(),
    ])
}

/// The rows of a JSON array, or of nothing.
fn oldest_first((json,): (Option<String>,)) -> StoreResult<Vec<ArtifactRow>> {
    let mut rows: Vec<_> = array(json)?.into_iter().map(Row::artifact).collect();
    rows.sort_unstable_by_key(|row| row.index);
    Ok(rows)
}

#[async_trait]
impl ArtifactStore for SqliteStore {
    async fn fingerprints(&self, org: Id, flow: Id, prefix: &str, limit: u64) -> StoreResult<Matches> {
        let question = self.ask_of(org, FINGERPRINTS).bind(flow.to_string());
        let question = question.bind(prefix.to_owned()).bind(signed(limit)).long();
        let rows = question.all::<(i64, Option<String>)>().await?;
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
        self.whole_page(org, &listing(filter), request, values(filter)?).await
    }

    async fn artifacts_listed(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>> {
        let listing = Listing { counted: false, ..listing(filter) };
        Ok(self.listed(org, &listing, request, values(filter)?).await?.items)
    }

    async fn latest_artifact(&self, org: Id, filter: &ArtifactFilter) -> StoreResult<Option<Artifact>> {
        let listing = Listing { counted: false, ..listing(filter) };
        let latest =
            self.whole_page(org, &listing, PageRequest { offset: 0, limit: 1 }, values(filter)?).await?;
        Ok(latest.items.into_iter().next())
    }

    async fn artifacts_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Artifact>> {
        let question = self.ask_of(org, BY_ID).bind(once(ids)?).about(ids.len());
        question.readable_as(org, listed_record).await
    }

    async fn artifact_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        let question = self.ask_of(org, SIZES).bind(once(ids)?).about(ids.len());
        let size = |(report, bytes): (String, i64)| Ok(Listed { id: id(&report)?, bytes: unsigned(bytes)? });
        question.all_as(size).await
    }

    async fn reports(&self, org: Id, flow: Id, fingerprint: &Fingerprint) -> StoreResult<Vec<ArtifactRow>> {
        let question = self.ask_of(org, REPORTS).bind(flow.to_string());
        let question = question.bind(fingerprint.to_string()).long();
        Ok(question.first_as(oldest_first).await?.unwrap_or_default())
    }

    async fn provenance(&self, org: Id, fingerprints: &[Fingerprint]) -> StoreResult<Vec<Origin>> {
        let question = self.ask_of(org, PROVENANCE).bind(once(fingerprints)?);
        let origins = |(json,): (Option<String>,)| {
            let origin = |(row, last_name): (Row, String)| Origin { report: row.artifact(), last_name };
            let mut origins: Vec<_> = array(json)?.into_iter().map(origin).collect();
            origins.sort_unstable_by_key(|origin| origin.report.index);
            Ok(origins)
        };
        Ok(question.about(fingerprints.len()).first_as(origins).await?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::rows;

    #[test]
    fn the_newest_reports_are_found_without_the_others() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("../migrations/0001_first.sql")).unwrap();
        let explain = format!("EXPLAIN QUERY PLAN {PROVENANCE}");
        let steps: Vec<(i64, i64, i64, String)> = rows(&connection, &explain, &[]).unwrap();
        let found: Vec<&str> = steps.iter().map(|(.., step)| step.as_str()).collect();
        for (report, conditions) in [
            ("f", "org=? AND fingerprint=?"),
            ("n", "org=? AND fingerprint=? AND flow>?"),
            ("r", "org=? AND fingerprint=? AND flow=?"),
            ("m", "org=? AND fingerprint=? AND flow=?"),
        ] {
            let index = if report == "m" { "artifact_named" } else { "artifact_fingerprint" };
            let wanted = format!("INDEX {index} ({conditions})");
            let search = format!("SEARCH {report} USING ");
            let probes = found.iter().any(|step| step.starts_with(&search) && step.ends_with(&wanted));
            assert!(probes, "{search}{wanted}: {found:#?}");
        }
        assert!(found.contains(&"SEARCH a USING PRIMARY KEY (id=?)"), "{found:#?}");
        assert!(!found.iter().any(|step| step.contains("TEMP B-TREE")), "{found:#?}");
        let whole = |step: &&&str| step.starts_with("SCAN") && !step.contains("VIRTUAL TABLE");
        let scans: Vec<_> = found.iter().filter(whole).filter(|step| !step.starts_with("SCAN p")).collect();
        assert_eq!(scans, Vec::<&&str>::new(), "{found:#?}");
    }

    #[test]
    fn every_list_is_read_by_the_index_that_narrows_it_most() {
        let id = "00000000-0000-0000-0000-00000000".parse().ok();
        let of_flow = ArtifactFilter { flow: id, ..ArtifactFilter::default() };
        let text = || Some("abcde".to_owned());
        let cases = [
            (ArtifactFilter::default(), "artifact_org (org=? AND place<?)"),
            (of_flow.clone(), "artifact_flow (flow=? AND flow_place<?)"),
            (
                ArtifactFilter { branch: text(), with_commit: true, ..of_flow.clone() },
                "artifact_flow (flow=?)",
            ),
            (ArtifactFilter { trail: id, ..of_flow.clone() }, "artifact_trail (trail=?)"),
            (ArtifactFilter { id, ..of_flow.clone() }, "PRIMARY KEY (id=?)"),
            (
                ArtifactFilter { commit: text(), ..of_flow.clone() },
                "artifact_commit (flow=? AND commit_sha>?",
            ),
            (
                ArtifactFilter { fingerprint: text(), ..of_flow },
                "artifact_fingerprint (org=? AND fingerprint>?",
            ),
            (ArtifactFilter { repos: Some(vec![]), ..ArtifactFilter::default() }, "artifact_repo (repo=?)"),
        ];
        for (filter, index) in cases {
            let plan = listing(&filter).plan();
            assert!(plan.contains(index), "{filter:?}: {plan}");
        }
    }
}
