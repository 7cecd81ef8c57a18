//! The statements that read the data for planning a group. A few statements serve all groups, because each
//! PostgreSQL connection plans every statement, and plans it again every few seconds.

use std::sync::LazyLock;

use crate::sql::{Dialect, Sql, clock, id_bytes};

/// Reads the data for planning a group from one snapshot of the database. The first column of each row is its
/// type:
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
///
/// All writers wait for this statement, so it must stay fast. Content has an index within its trail, because
/// an organization may report the same content without limit. In PostgreSQL, the interval queries have an
/// order, and the query for lasting intervals uses a row comparison. Without the order, or with an equality,
/// the planner may choose another index than `instance_until` and read all intervals that ended or last.
const PREFETCH: Sql = Sql::each(
    "
    SELECT 0, NULL, NULL, h.size, h.frontier,
            coalesce((SELECT l.at FROM ledger l WHERE l.org = h.org AND l.idx = h.size - 1), 0),
            (SELECT max(t.ordinal) FROM trail t WHERE t.org = h.org),
            (SELECT max(a.ordinal) FROM artifact a WHERE a.org = h.org), o.id
        FROM json_each($1) j CROSS JOIN organization o ON o.key = j.value->>0 CROSS JOIN head h ON h.org = o.key
    UNION ALL SELECT 1, j.value->>0, n.id, n.alias, NULL, NULL, NULL, NULL, NULL
        FROM json_each($2) j CROSS JOIN name n
            ON n.org = j.value->>1 AND n.kind = j.value->>2 AND n.name = j.value->>3
    UNION ALL SELECT 1, j.value->>0, t.id, 0, NULL, NULL, NULL, NULL, NULL
        FROM json_each($3) j CROSS JOIN trail t
            ON t.flow = j.value->>2 AND t.name = j.value->>3 AND +t.org = j.value->>1
    UNION ALL SELECT 1, j.value->>0, j.value->>2, 0, NULL, NULL, NULL, NULL, NULL
        FROM json_each($4) j
        WHERE EXISTS (SELECT 1 FROM snapshot s
                WHERE s.environment = j.value->>2 AND s.idx = CAST(j.value->>3 AS INTEGER) AND +s.org = j.value->>1)
            OR EXISTS (SELECT 1 FROM instance i
                WHERE i.environment = j.value->>2 AND i.until_idx >= CAST(j.value->>3 AS INTEGER)
                    AND i.until_idx < 9223372036854775807 AND +i.org = j.value->>1)
            OR EXISTS (SELECT 1 FROM instance i
                WHERE i.environment = j.value->>2 AND i.until_idx = 9223372036854775807
                    AND i.from_idx >= CAST(j.value->>3 AS INTEGER) AND +i.org = j.value->>1)
    UNION ALL SELECT 1, j.value->>0, a.id, 1, NULL, NULL, NULL, NULL, NULL
        FROM json_each($5) j CROSS JOIN artifact a ON +a.org = j.value->>1 AND a.trail = j.value->>2
            AND a.ledger_index = (
                SELECT max(n.ledger_index) FROM artifact n
                WHERE n.trail = j.value->>2 AND n.name = j.value->>3 AND n.name <> '')
    UNION ALL SELECT 1, j.value->>0, o.id, 0, NULL, NULL, NULL, NULL, NULL
        FROM json_each($6) j CROSS JOIN organization o ON o.name = j.value->>3
    UNION ALL SELECT 1, j.value->>0, u.id, 0, NULL, NULL, NULL, NULL, NULL
        FROM json_each($7) j CROSS JOIN user u ON u.name = j.value->>3
    UNION ALL SELECT 2, j.value->>0, NULL, r.ledger_index, NULL, NULL, NULL, NULL, NULL
        FROM json_each($8) j CROSS JOIN record r
            ON r.org = j.value->>1 AND r.kind = j.value->>2 AND r.id = j.value->>3
    UNION ALL SELECT 2, j.value->>0, NULL, t.ledger_index, NULL, NULL, NULL, NULL, NULL
        FROM json_each($9) j CROSS JOIN trail t ON t.id = j.value->>3 AND +t.org = j.value->>1
    UNION ALL SELECT 4, j.value->>0, NULL,
            (SELECT max(a.flow_ordinal) FROM attestation a WHERE a.flow = j.value->>2), NULL, NULL,
            (SELECT max(t.flow_ordinal) FROM trail t WHERE t.flow = j.value->>2),
            (SELECT max(a.flow_ordinal) FROM artifact a WHERE a.flow = j.value->>2), NULL
        FROM json_each($10) j
    UNION ALL SELECT 1, j.value->>0, a.id, 1, NULL, NULL, NULL, NULL, NULL
        FROM json_each($11) j CROSS JOIN artifact a ON +a.org = j.value->>1 AND a.trail = j.value->>2
            AND a.ledger_index = (
                SELECT max(n.ledger_index) FROM artifact n
                WHERE n.trail = j.value->>2 AND n.fingerprint = j.value->>3)
    UNION ALL SELECT 5, j.value->>0, NULL, CASE j.value->>2
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
        FROM json_each($12) j",
    concat!(
        "
    SELECT 0::bigint, NULL::bigint, NULL::text, h.size, h.frontier,
            coalesce((SELECT l.at FROM evidence.ledger l WHERE l.org = h.org AND l.idx = h.size - 1), 0),
            (SELECT t.ordinal FROM evidence.trail t WHERE t.org = h.org ORDER BY t.ordinal DESC LIMIT 1),
            (SELECT a.ordinal FROM evidence.artifact a WHERE a.org = h.org ORDER BY a.ordinal DESC LIMIT 1),
            h.org
        FROM evidence.head h WHERE h.org = ANY($1)
    UNION ALL SELECT 1, j.number,
            (SELECT n.id FROM evidence.name n WHERE n.org = j.org AND n.kind = j.kind AND n.name = j.name),
            (SELECT n.alias::integer FROM evidence.name n WHERE n.org = j.org AND n.kind = j.kind AND n.name = j.name),
            NULL, NULL, NULL, NULL, NULL
        FROM UNNEST($2::bigint[], $3::bytea[], $4::text[], $5::text[]) AS j (number, org, kind, name)
    UNION ALL SELECT 1, j.number,
            (SELECT t.id FROM evidence.trail t WHERE t.org = j.org AND t.flow = j.flow AND t.name = j.name),
            0, NULL, NULL, NULL, NULL, NULL
        FROM UNNEST($6::bigint[], $7::bytea[], $8::text[], $9::text[]) AS j (number, org, flow, name)
    UNION ALL SELECT 1, j.number,
            coalesce((SELECT j.environment FROM evidence.snapshot s WHERE s.org = j.org
                    AND s.environment = ",
        id_bytes!("j.environment"),
        " AND s.idx = j.idx::bigint),
                (SELECT j.environment FROM evidence.instance i WHERE i.org = j.org
                    AND i.environment = ",
        id_bytes!("j.environment"),
        " AND i.until_idx >= j.idx::bigint AND i.until_idx < 9223372036854775807
                    ORDER BY i.until_idx LIMIT 1),
                (SELECT j.environment FROM evidence.instance i WHERE i.org = j.org
                    AND i.environment = ",
        id_bytes!("j.environment"),
        " AND (i.until_idx, i.from_idx) >= (9223372036854775807, j.idx::bigint)
                    ORDER BY i.until_idx, i.from_idx LIMIT 1)),
            0, NULL, NULL, NULL, NULL, NULL
        FROM UNNEST($10::bigint[], $11::bytea[], $12::text[], $13::text[]) AS j (number, org, environment, idx)
    UNION ALL SELECT 1, j.number,
            (SELECT a.id FROM evidence.artifact a
                WHERE a.org = j.org AND a.trail = j.trail AND a.name = j.name AND a.name <> ''
                ORDER BY a.ledger_index DESC LIMIT 1),
            1, NULL, NULL, NULL, NULL, NULL
        FROM UNNEST($14::bigint[], $15::bytea[], $16::text[], $17::text[]) AS j (number, org, trail, name)
    UNION ALL SELECT 1, j.number, (SELECT o.id FROM evidence.organization o WHERE o.name = j.name),
            0, NULL, NULL, NULL, NULL, NULL
        FROM UNNEST($18::bigint[], $19::bytea[], $20::text[], $21::text[]) AS j (number, org, kind, name)
    UNION ALL SELECT 1, j.number, (SELECT u.id FROM evidence.user u WHERE u.name = j.name),
            0, NULL, NULL, NULL, NULL, NULL
        FROM UNNEST($22::bigint[], $23::bytea[], $24::text[], $25::text[]) AS j (number, org, kind, name)
    UNION ALL SELECT 2, j.number, NULL,
            (SELECT r.ledger_index FROM evidence.record r WHERE r.org = j.org AND r.id = j.id AND r.kind = j.kind),
            NULL, NULL, NULL, NULL, NULL
        FROM UNNEST($26::bigint[], $27::bytea[], $28::text[], $29::text[]) AS j (number, org, kind, id)
    UNION ALL SELECT 2, j.number, NULL,
            (SELECT t.ledger_index FROM evidence.trail t WHERE t.org = j.org AND t.id = j.id),
            NULL, NULL, NULL, NULL, NULL
        FROM UNNEST($30::bigint[], $31::bytea[], $32::text[], $33::text[]) AS j (number, org, kind, id)
    UNION ALL SELECT 4, j.number, NULL,
            (SELECT a.flow_ordinal FROM evidence.attestation a WHERE a.org = j.org AND a.flow = j.flow
                ORDER BY a.flow_ordinal DESC LIMIT 1), NULL, NULL,
            (SELECT t.flow_ordinal FROM evidence.trail t WHERE t.org = j.org AND t.flow || '' = j.flow
                ORDER BY t.flow_ordinal DESC LIMIT 1),
            (SELECT a.flow_ordinal FROM evidence.artifact a WHERE a.org = j.org AND a.flow = j.flow
                ORDER BY a.flow_ordinal DESC LIMIT 1), NULL
        FROM UNNEST($34::bigint[], $35::bytea[], $36::text[], $37::text[]) AS j (number, org, flow, name)
    UNION ALL SELECT 1, j.number,
            (SELECT a.id FROM evidence.artifact a
                WHERE a.org = j.org AND a.trail = j.trail AND a.fingerprint = j.fingerprint
                ORDER BY a.ledger_index DESC LIMIT 1),
            1, NULL, NULL, NULL, NULL, NULL
        FROM UNNEST($38::bigint[], $39::bytea[], $40::text[], $41::text[]) AS j (number, org, trail, fingerprint)
    UNION ALL SELECT 5, j.number, NULL, CASE j.kind
            WHEN 'content' THEN
                (SELECT 1 FROM evidence.artifact a WHERE a.org = j.org AND a.fingerprint = j.name LIMIT 1)
            WHEN 'builds' THEN
                (SELECT b.ordinal FROM evidence.build b WHERE b.org = j.org ORDER BY b.ordinal DESC LIMIT 1)
            WHEN 'repo' THEN
                (SELECT b.repo_ordinal FROM evidence.build b WHERE b.org = j.org AND b.repo = j.name
                    AND b.repo_ordinal IS NOT NULL ORDER BY b.repo_ordinal DESC LIMIT 1)
            WHEN 'deployments' THEN
                (SELECT d.ordinal FROM evidence.deployment d WHERE d.org = j.org ORDER BY d.ordinal DESC LIMIT 1)
            WHEN 'environment' THEN
                (SELECT d.environment_ordinal FROM evidence.deployment d
                    WHERE d.org = j.org AND d.environment = ",
        id_bytes!("j.name"),
        "
                    ORDER BY d.environment_ordinal DESC LIMIT 1)
            WHEN 'deployed' THEN
                (SELECT d.repo_ordinal FROM evidence.deployment d WHERE d.org = j.org AND d.repo = j.name
                    AND d.repo_ordinal IS NOT NULL ORDER BY d.repo_ordinal DESC LIMIT 1)
            ELSE (SELECT a.control_ordinal FROM evidence.attestation a WHERE a.org = j.org AND a.control = j.name
                AND a.control_ordinal IS NOT NULL ORDER BY a.control_ordinal DESC LIMIT 1)
            END, NULL, NULL, NULL, NULL, NULL
        FROM UNNEST($42::bigint[], $43::bytea[], $44::text[], $45::text[]) AS j (number, org, kind, name)
    UNION ALL (
        SELECT 3, m.rebuild_count, NULL, m.min_writer_version, NULL, ", clock!(), ", NULL, NULL, NULL
        FROM evidence._evidence_migrations m ORDER BY m.version DESC LIMIT 1)"
    ),
);

/// The types of the rows of [`PREFETCH`], in the first column.
pub(crate) const HEAD: i64 = 0;
pub(crate) const NAME: i64 = 1;
pub(crate) const RECORD: i64 = 2;
pub(crate) const VERSION: i64 = 3;
pub(crate) const FLOW: i64 = 4;
pub(crate) const SERIES: i64 = 5;

/// The lists of keys to look up. Each is the input of one part of [`PREFETCH`], in the same order.
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
}

/// The lists of each statement. A group uses the first statement that covers all of its lists. PostgreSQL
/// needs as long to set up a part for an empty list as to answer another part.
const SHAPES: [&[List]; 3] = [
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

/// A statement for groups that need some lists.
pub(crate) struct Shape {
    /// The lists, in the order of the statement's parameters.
    pub(crate) lists: &'static [List],
    sqlite: String,
    postgres: String,
    /// The PostgreSQL statement for one organization, which is a scalar.
    one: String,
}

impl Shape {
    /// Returns the statement shape for these lists.
    pub(crate) fn of(lists: &[List]) -> &'static Self {
        static ALL: LazyLock<[Shape; SHAPES.len()]> = LazyLock::new(|| SHAPES.map(Shape::new));
        let [.., everything] = &*ALL;
        ALL.iter().find(|shape| lists.iter().all(|list| shape.lists.contains(list))).unwrap_or(everything)
    }

    fn new(lists: &'static [List]) -> Self {
        let postgres = text(lists, Dialect::Postgres);
        let one = postgres.replace("= ANY($1)", "= $1").replace("= h.org", "= $1").replace("j.org", "$1");
        Self { lists, sqlite: text(lists, Dialect::Sqlite), postgres, one }
    }

    /// Returns the SQL text. In PostgreSQL, if the group has one organization, `$1` is that organization as a
    /// scalar.
    pub(crate) fn statement(&self, dialect: Dialect, is_one: bool) -> &str {
        match dialect {
            Dialect::Sqlite => &self.sqlite,
            Dialect::Postgres if is_one => &self.one,
            Dialect::Postgres => &self.postgres,
        }
    }
}

const UNION: &str = "UNION ALL";

/// Returns the parts of [`PREFETCH`] for these lists, and the parts that need no list.
fn text(lists: &[List], dialect: Dialect) -> String {
    let mut parts = PREFETCH.text(dialect).split(UNION);
    let head = parts.next().unwrap_or_default();
    let (all, rest) = (List::ALL.iter().zip(parts.by_ref()).collect::<Vec<_>>(), parts);
    let columns = match dialect {
        Dialect::Sqlite => 1,
        Dialect::Postgres => 4,
    };
    let mut left_out = 0;
    let mut taken = vec![head.to_owned()];
    for (list, part) in all {
        if lists.contains(list) {
            taken.push(renumbered(part, left_out));
        } else {
            left_out += columns;
        }
    }
    taken.extend(rest.map(str::to_owned));
    taken.join(UNION)
}

/// Returns the text with the numbers of its parameters reduced by `by`. `$1` stays.
fn renumbered(text: &str, by: usize) -> String {
    let mut parts = text.split('$');
    let mut moved = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
        let (number, rest) = part.split_at(digits);
        let number = number.parse().map_or(1, |number: usize| if number == 1 { 1 } else { number - by });
        moved.push_str(&format!("${number}{rest}"));
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the distinct parameters of a text.
    fn parameters(text: &str) -> Vec<usize> {
        let numbers = text.split('$').skip(1).map(|part| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        });
        std::collections::BTreeSet::from_iter(numbers).into_iter().collect()
    }

    #[test]
    fn each_list_has_its_part_and_its_parameters() {
        for lists in SHAPES.into_iter().chain(List::ALL.iter().map(std::slice::from_ref)) {
            let shape = Shape::new(lists);
            for (text, columns, besides) in
                [(&shape.sqlite, 1, 1), (&shape.postgres, 4, 2), (&shape.one, 4, 2)]
            {
                assert_eq!(parameters(text), Vec::from_iter(1..=1 + columns * lists.len()), "{text}");
                assert_eq!(text.split(UNION).count(), lists.len() + besides, "{text}");
            }
        }
        assert_eq!(text(&List::ALL, Dialect::Postgres), PREFETCH.text(Dialect::Postgres));
        assert_eq!(text(&List::ALL, Dialect::Sqlite), PREFETCH.text(Dialect::Sqlite));
    }

    #[test]
    fn a_group_takes_the_first_statement_that_takes_its_lists() {
        let lists = |lists: &[List]| Shape::of(lists).lists;
        assert_eq!(lists(&[List::Trails, List::Flows]), SHAPES[0]);
        assert_eq!(lists(&[]), SHAPES[0]);
        assert_eq!(lists(&[List::Flows, List::Series]), SHAPES[1]);
        assert_eq!(lists(&[List::Flows, List::Users]), SHAPES[2]);
    }
}
