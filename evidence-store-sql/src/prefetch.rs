//! The statements that read the data for planning a group. A few statements serve all groups, because each
//! PostgreSQL connection plans every statement, and plans it again every few seconds.

use std::sync::LazyLock;

use crate::sql::{Dialect, clock, id_bytes};

/// The types of the rows of a [`PrefetchStatement`], in the first column.
pub(crate) const HEAD: i64 = 0;
pub(crate) const NAME: i64 = 1;
pub(crate) const RECORD: i64 = 2;
pub(crate) const VERSION: i64 = 3;
pub(crate) const FLOW: i64 = 4;
pub(crate) const SERIES: i64 = 5;

/// The lists of keys to look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    Named,
    Trails,
    Snapshots,
    Artifacts,
    Organizations,
    Users,
    Records,
    TrailIds,
    Flows,
    Contents,
    Series,
}

impl List {
    const ALL: [Self; 11] = [
        Self::Named,
        Self::Trails,
        Self::Snapshots,
        Self::Artifacts,
        Self::Organizations,
        Self::Users,
        Self::Records,
        Self::TrailIds,
        Self::Flows,
        Self::Contents,
        Self::Series,
    ];

    /// Returns the query for the keys in this list. `keys` is the list as a source of rows `j`: JSON arrays in
    /// SQLite, columns in PostgreSQL. `org` is the organization of a key in PostgreSQL.
    ///
    /// All writers wait for this query, so it must stay fast. Content has an index within its trail, because
    /// an organization may report the same content without limit. In PostgreSQL, the interval queries have an
    /// order, and the query for lasting intervals uses a row comparison. Without the order, or with an
    /// equality, the planner may choose another index than `instance_until` and read all intervals that ended
    /// or last.
    fn query(self, dialect: Dialect, keys: &str, org: &str) -> String {
        let (environment_bytes, name_bytes) = (id_bytes!("j.environment"), id_bytes!("j.name"));
        match (self, dialect) {
            (Self::Named, Dialect::Sqlite) => format!(
                "SELECT 1, j.value->>0, n.id, n.alias, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} CROSS JOIN name n
                        ON n.org = j.value->>1 AND n.kind = j.value->>2 AND n.name = j.value->>3"
            ),
            (Self::Named, Dialect::Postgres) => format!(
                "SELECT 1, j.number,
                        (SELECT n.id FROM evidence.name n WHERE n.org = {org} AND n.kind = j.kind AND n.name = j.name),
                        (SELECT n.alias::integer FROM evidence.name n WHERE n.org = {org} AND n.kind = j.kind AND n.name = j.name),
                        NULL, NULL, NULL, NULL, NULL
                    FROM {keys} AS j (number, org, kind, name)"
            ),
            (Self::Trails, Dialect::Sqlite) => format!(
                "SELECT 1, j.value->>0, t.id, 0, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} CROSS JOIN trail t
                        ON t.flow = j.value->>2 AND t.name = j.value->>3 AND +t.org = j.value->>1"
            ),
            (Self::Trails, Dialect::Postgres) => format!(
                "SELECT 1, j.number,
                        (SELECT t.id FROM evidence.trail t WHERE t.org = {org} AND t.flow = j.flow AND t.name = j.name),
                        0, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} AS j (number, org, flow, name)"
            ),
            (Self::Snapshots, Dialect::Sqlite) => format!(
                "SELECT 1, j.value->>0, j.value->>2, 0, NULL, NULL, NULL, NULL, NULL
                    FROM {keys}
                    WHERE EXISTS (SELECT 1 FROM snapshot s
                            WHERE s.environment = j.value->>2 AND s.idx = CAST(j.value->>3 AS INTEGER) AND +s.org = j.value->>1)
                        OR EXISTS (SELECT 1 FROM instance i
                            WHERE i.environment = j.value->>2 AND i.until_idx >= CAST(j.value->>3 AS INTEGER)
                                AND i.until_idx < 9223372036854775807 AND +i.org = j.value->>1)
                        OR EXISTS (SELECT 1 FROM instance i
                            WHERE i.environment = j.value->>2 AND i.until_idx = 9223372036854775807
                                AND i.from_idx >= CAST(j.value->>3 AS INTEGER) AND +i.org = j.value->>1)"
            ),
            (Self::Snapshots, Dialect::Postgres) => format!(
                "SELECT 1, j.number,
                        coalesce((SELECT j.environment FROM evidence.snapshot s WHERE s.org = {org}
                                AND s.environment = {environment_bytes} AND s.idx = j.idx::bigint),
                            (SELECT j.environment FROM evidence.instance i WHERE i.org = {org}
                                AND i.environment = {environment_bytes} AND i.until_idx >= j.idx::bigint AND i.until_idx < 9223372036854775807
                                ORDER BY i.until_idx LIMIT 1),
                            (SELECT j.environment FROM evidence.instance i WHERE i.org = {org}
                                AND i.environment = {environment_bytes} AND (i.until_idx, i.from_idx) >= (9223372036854775807, j.idx::bigint)
                                ORDER BY i.until_idx, i.from_idx LIMIT 1)),
                        0, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} AS j (number, org, environment, idx)"
            ),
            (Self::Artifacts, dialect) => newest_of_trail(dialect, "name", " AND n.name <> ''", keys, org),
            (Self::Contents, dialect) => newest_of_trail(dialect, "fingerprint", "", keys, org),
            (Self::Organizations, Dialect::Sqlite) => format!(
                "SELECT 1, j.value->>0, o.id, 0, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} CROSS JOIN organization o ON o.name = j.value->>3"
            ),
            (Self::Organizations, Dialect::Postgres) => format!(
                "SELECT 1, j.number, (SELECT o.id FROM evidence.organization o WHERE o.name = j.name),
                        0, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} AS j (number, org, kind, name)"
            ),
            (Self::Users, Dialect::Sqlite) => format!(
                "SELECT 1, j.value->>0, u.id, 0, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} CROSS JOIN user u ON u.name = j.value->>3"
            ),
            (Self::Users, Dialect::Postgres) => format!(
                "SELECT 1, j.number, (SELECT u.id FROM evidence.user u WHERE u.name = j.name),
                        0, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} AS j (number, org, kind, name)"
            ),
            (Self::Records, Dialect::Sqlite) => format!(
                "SELECT 2, j.value->>0, NULL, r.ledger_index, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} CROSS JOIN record r
                        ON r.org = j.value->>1 AND r.kind = j.value->>2 AND r.id = j.value->>3"
            ),
            (Self::Records, Dialect::Postgres) => format!(
                "SELECT 2, j.number, NULL,
                        (SELECT r.ledger_index FROM evidence.record r WHERE r.org = {org} AND r.id = j.id AND r.kind = j.kind),
                        NULL, NULL, NULL, NULL, NULL
                    FROM {keys} AS j (number, org, kind, id)"
            ),
            (Self::TrailIds, Dialect::Sqlite) => format!(
                "SELECT 2, j.value->>0, NULL, t.ledger_index, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} CROSS JOIN trail t ON t.id = j.value->>3 AND +t.org = j.value->>1"
            ),
            (Self::TrailIds, Dialect::Postgres) => format!(
                "SELECT 2, j.number, NULL,
                        (SELECT t.ledger_index FROM evidence.trail t WHERE t.org = {org} AND t.id = j.id),
                        NULL, NULL, NULL, NULL, NULL
                    FROM {keys} AS j (number, org, kind, id)"
            ),
            (Self::Flows, Dialect::Sqlite) => format!(
                "SELECT 4, j.value->>0, NULL,
                        (SELECT max(a.flow_ordinal) FROM attestation a WHERE a.flow = j.value->>2), NULL, NULL,
                        (SELECT max(t.flow_ordinal) FROM trail t WHERE t.flow = j.value->>2),
                        (SELECT max(a.flow_ordinal) FROM artifact a WHERE a.flow = j.value->>2), NULL
                    FROM {keys}"
            ),
            (Self::Flows, Dialect::Postgres) => format!(
                "SELECT 4, j.number, NULL,
                        (SELECT a.flow_ordinal FROM evidence.attestation a WHERE a.org = {org} AND a.flow = j.flow
                            ORDER BY a.flow_ordinal DESC LIMIT 1), NULL, NULL,
                        (SELECT t.flow_ordinal FROM evidence.trail t WHERE t.org = {org} AND t.flow || '' = j.flow
                            ORDER BY t.flow_ordinal DESC LIMIT 1),
                        (SELECT a.flow_ordinal FROM evidence.artifact a WHERE a.org = {org} AND a.flow = j.flow
                            ORDER BY a.flow_ordinal DESC LIMIT 1), NULL
                    FROM {keys} AS j (number, org, flow, name)"
            ),
            (Self::Series, Dialect::Sqlite) => format!(
                "SELECT 5, j.value->>0, NULL, CASE j.value->>2
                        WHEN 'content' THEN
                            (SELECT 1 FROM artifact a WHERE a.org = j.value->>1 AND a.fingerprint = j.value->>3 LIMIT 1)
                        WHEN 'builds' THEN (SELECT max(b.ordinal) FROM build b WHERE b.org = j.value->>1)
                        WHEN 'repo' THEN
                            (SELECT max(b.repo_ordinal) FROM build b WHERE b.org = j.value->>1 AND b.repo = j.value->>3)
                        WHEN 'deployments' THEN (SELECT max(d.ordinal) FROM deployment d WHERE d.org = j.value->>1)
                        WHEN 'environment' THEN (SELECT max(d.environment_ordinal) FROM deployment d
                            WHERE d.org = j.value->>1 AND d.environment = j.value->>3)
                        WHEN 'deployed' THEN (SELECT max(d.repo_ordinal) FROM deployment d
                            WHERE d.org = j.value->>1 AND d.repo = j.value->>3)
                        ELSE (SELECT max(a.control_ordinal) FROM attestation a
                            WHERE a.org = j.value->>1 AND a.control = j.value->>3)
                        END, NULL, NULL, NULL, NULL, NULL
                    FROM {keys}"
            ),
            (Self::Series, Dialect::Postgres) => format!(
                "SELECT 5, j.number, NULL, CASE j.kind
                        WHEN 'content' THEN
                            (SELECT 1 FROM evidence.artifact a WHERE a.org = {org} AND a.fingerprint = j.name LIMIT 1)
                        WHEN 'builds' THEN
                            (SELECT b.ordinal FROM evidence.build b WHERE b.org = {org} ORDER BY b.ordinal DESC LIMIT 1)
                        WHEN 'repo' THEN
                            (SELECT b.repo_ordinal FROM evidence.build b WHERE b.org = {org} AND b.repo = j.name
                                AND b.repo_ordinal IS NOT NULL ORDER BY b.repo_ordinal DESC LIMIT 1)
                        WHEN 'deployments' THEN
                            (SELECT d.ordinal FROM evidence.deployment d WHERE d.org = {org} ORDER BY d.ordinal DESC LIMIT 1)
                        WHEN 'environment' THEN
                            (SELECT d.environment_ordinal FROM evidence.deployment d
                                WHERE d.org = {org} AND d.environment = {name_bytes}
                                ORDER BY d.environment_ordinal DESC LIMIT 1)
                        WHEN 'deployed' THEN
                            (SELECT d.repo_ordinal FROM evidence.deployment d WHERE d.org = {org} AND d.repo = j.name
                                AND d.repo_ordinal IS NOT NULL ORDER BY d.repo_ordinal DESC LIMIT 1)
                        ELSE (SELECT a.control_ordinal FROM evidence.attestation a WHERE a.org = {org} AND a.control = j.name
                            AND a.control_ordinal IS NOT NULL ORDER BY a.control_ordinal DESC LIMIT 1)
                        END, NULL, NULL, NULL, NULL, NULL
                    FROM {keys} AS j (number, org, kind, name)"
            ),
        }
    }
}

/// Selects the newest artifact of a trail whose `column` has the value in the key. `condition` is a further one, on an
/// artifact `n`.
fn newest_of_trail(dialect: Dialect, column: &str, condition: &str, keys: &str, org: &str) -> String {
    match dialect {
        Dialect::Sqlite => format!(
            "SELECT 1, j.value->>0, a.id, 1, NULL, NULL, NULL, NULL, NULL
                FROM {keys} CROSS JOIN artifact a ON +a.org = j.value->>1 AND a.trail = j.value->>2
                    AND a.ledger_index = (
                        SELECT max(n.ledger_index) FROM artifact n
                        WHERE n.trail = j.value->>2 AND n.{column} = j.value->>3{condition})"
        ),
        Dialect::Postgres => format!(
            "SELECT 1, j.number,
                    (SELECT n.id FROM evidence.artifact n
                        WHERE n.org = {org} AND n.trail = j.trail AND n.{column} = j.value{condition}
                        ORDER BY n.ledger_index DESC LIMIT 1),
                    1, NULL, NULL, NULL, NULL, NULL
                FROM {keys} AS j (number, org, trail, value)"
        ),
    }
}

/// The lists of each statement. A group uses the first statement that covers all of its lists. PostgreSQL
/// needs as long to set up a part for an empty list as to answer another part.
const STATEMENTS: [&[List]; 3] = [
    &[List::Named, List::Trails, List::Flows],
    &[
        List::Named,
        List::Trails,
        List::Artifacts,
        List::Records,
        List::TrailIds,
        List::Flows,
        List::Contents,
        List::Series,
    ],
    &List::ALL,
];

/// A statement that reads the data for planning a group from one snapshot of the database. The first column of
/// each row is its type:
///
/// - [`HEAD`], per organization: the size and frontier of the ledger, the time of the last entry, the
///   greatest ordinals of trails and artifacts, and in the last column the id;
/// - [`NAME`], per name in use: its number in the requested list, the id, and whether the name is an alias;
/// - [`RECORD`]: its number in the list, and its revision;
/// - [`VERSION`], PostgreSQL only: the rebuild count, the oldest version whose programs may write, and the
///   time of the database's clock;
/// - [`FLOW`]: its number in the list, and the greatest ordinals of its attestations, trails and artifacts;
/// - [`SERIES`], of builds, decisions or deployments: its number in the list, and the greatest ordinal, or 1
///   if the content was built.
///
/// A missing item has no row, or a row with a null target. A snapshot whose row was lost still counts if a
/// run began or ended with it or with a later snapshot, so its number is never reused.
pub(crate) struct PrefetchStatement {
    /// The lists, in the order of the statement's parameters.
    pub(crate) lists: &'static [List],
    sqlite: String,
    postgres: String,
    /// The PostgreSQL statement for one organization, which is a scalar.
    postgres_one_org: String,
}

impl PrefetchStatement {
    /// Returns the statement for these lists.
    pub(crate) fn of(lists: &[List]) -> &'static Self {
        static ALL: LazyLock<[PrefetchStatement; STATEMENTS.len()]> =
            LazyLock::new(|| STATEMENTS.map(PrefetchStatement::new));
        let [.., everything] = &*ALL;
        let covers = |statement: &&Self| lists.iter().all(|list| statement.lists.contains(list));
        ALL.iter().find(covers).unwrap_or(everything)
    }

    fn new(lists: &'static [List]) -> Self {
        Self {
            lists,
            sqlite: sqlite(lists),
            postgres: postgres(lists, ["ANY($1)", "h.org", "j.org"]),
            postgres_one_org: postgres(lists, ["$1"; 3]),
        }
    }

    /// Returns the SQL text. In PostgreSQL, if the group has one organization, `$1` is that organization as a
    /// scalar.
    pub(crate) fn text(&self, dialect: Dialect, is_one: bool) -> &str {
        match dialect {
            Dialect::Sqlite => &self.sqlite,
            Dialect::Postgres if is_one => &self.postgres_one_org,
            Dialect::Postgres => &self.postgres,
        }
    }
}

/// Joins the parts of a statement.
const UNION: &str = "\n    UNION ALL ";

/// Returns the SQLite statement for these lists. The organizations are `$1`, and each list is one parameter.
fn sqlite(lists: &[List]) -> String {
    let heads = "SELECT 0, NULL, NULL, h.size, h.frontier,
            coalesce((SELECT l.at FROM ledger l WHERE l.org = h.org AND l.idx = h.size - 1), 0),
            (SELECT max(t.ordinal) FROM trail t WHERE t.org = h.org),
            (SELECT max(a.ordinal) FROM artifact a WHERE a.org = h.org), o.id
        FROM json_each($1) j CROSS JOIN organization o ON o.key = j.value->>0 CROSS JOIN head h ON h.org = o.key";
    let queries = (2..).zip(lists).map(|(parameter, list)| {
        let keys = format!("json_each(${parameter}) j");
        list.query(Dialect::Sqlite, &keys, "j.value->>1")
    });
    Vec::from_iter(std::iter::once(heads.to_owned()).chain(queries)).join(UNION)
}

/// Returns the PostgreSQL statement for these lists. The organizations are `$1`, and each list is four
/// parameters. The second argument has the organizations of the heads, of a head, and of a key.
fn postgres(lists: &[List], [orgs, of_head, of_key]: [&str; 3]) -> String {
    let heads = format!(
        "SELECT 0::bigint, NULL::bigint, NULL::text, h.size, h.frontier,
            coalesce((SELECT l.at FROM evidence.ledger l WHERE l.org = {of_head} AND l.idx = h.size - 1), 0),
            (SELECT t.ordinal FROM evidence.trail t WHERE t.org = {of_head} ORDER BY t.ordinal DESC LIMIT 1),
            (SELECT a.ordinal FROM evidence.artifact a WHERE a.org = {of_head} ORDER BY a.ordinal DESC LIMIT 1),
            h.org
        FROM evidence.head h WHERE h.org = {orgs}"
    );
    let queries = (2..).step_by(4).zip(lists).map(|(first, list)| {
        let [org, scope, name] = [1, 2, 3].map(|place| first + place);
        let keys = format!("UNNEST(${first}::bigint[], ${org}::bytea[], ${scope}::text[], ${name}::text[])");
        list.query(Dialect::Postgres, &keys, of_key)
    });
    let version = concat!(
        "(SELECT 3, m.rebuild_count, NULL, m.min_writer_version, NULL, ",
        clock!(),
        ", NULL, NULL, NULL
        FROM evidence._evidence_migrations m ORDER BY m.version DESC LIMIT 1)"
    );
    let parts = std::iter::once(heads).chain(queries).chain([version.to_owned()]);
    Vec::from_iter(parts).join(UNION)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the distinct parameters of a text.
    fn parameters(text: &str) -> Vec<usize> {
        let numbers = text.split('$').skip(1).map(|part| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        });
        Vec::from_iter(BTreeSet::from_iter(numbers))
    }

    #[test]
    fn the_parameters_of_each_statement_have_no_gap() {
        for lists in STATEMENTS.into_iter().chain(List::ALL.iter().map(std::slice::from_ref)) {
            let PrefetchStatement { sqlite, postgres, postgres_one_org, .. } = PrefetchStatement::new(lists);
            for (text, columns) in [(sqlite, 1), (postgres, 4), (postgres_one_org, 4)] {
                assert_eq!(parameters(&text), Vec::from_iter(1..=1 + columns * lists.len()), "{text}");
            }
        }
    }

    #[test]
    fn a_group_uses_the_first_statement_that_covers_its_lists() {
        let lists = |lists: &[List]| PrefetchStatement::of(lists).lists;
        assert_eq!(lists(&[List::Trails, List::Flows]), STATEMENTS[0]);
        assert_eq!(lists(&[]), STATEMENTS[0]);
        assert_eq!(lists(&[List::Flows, List::Series]), STATEMENTS[1]);
        assert_eq!(lists(&[List::Flows, List::Users]), STATEMENTS[2]);
    }
}
