//! The statements by which PostgreSQL writes groups. They are few, whatever facts a group holds: each connection plans each
//! of them, and again every few seconds.

use std::sync::LazyLock;

use crate::table_rows::Rows;
use crate::tables::TableWrite;

/// Locks the heads `$1`, which stand in the order of their organizations, so that two servers never wait for each other,
/// and goes on only if each still has the size that was seen: everything that a guard rests on changes with its
/// organization's ledger alone. Organizations and users are named in the whole store; there the unique indexes decide.
/// Nor does it go on where a newer program lets this one, of version `$5`, write no more, or the tables were rebuilt
/// since it looked, `$6` times then: what was looked at may have been damaged.
const COMPARE_AND_SWAP: &str = "
    WITH locked AS MATERIALIZED (
        SELECT h.org, h.size FROM evidence.head h WHERE h.org = ANY($1) ORDER BY h.org FOR UPDATE),
    go AS MATERIALIZED (
        SELECT 1 WHERE ARRAY(SELECT l.size FROM locked l ORDER BY l.org) = $2
            AND coalesce((
                SELECT m.min_writer_version <= $5 AND m.rebuild_count = $6
                FROM evidence._evidence_migrations m ORDER BY m.version DESC LIMIT 1), true)),
    swapped AS (
        UPDATE evidence.head h SET size = s.size, frontier = s.frontier
        FROM go, UNNEST($1::bytea[], $3::bigint[], $4::bytea[]) AS s (org, size, frontier) WHERE h.org = s.org)";

/// The same for one organization, which is a scalar.
const COMPARE_AND_SWAP_ONE: &str = "
    WITH locked AS MATERIALIZED (SELECT h.size FROM evidence.head h WHERE h.org = $1 FOR UPDATE),
    go AS MATERIALIZED (
        SELECT 1 WHERE ARRAY(SELECT l.size FROM locked l) = $2
            AND coalesce((
                SELECT m.min_writer_version <= $5 AND m.rebuild_count = $6
                FROM evidence._evidence_migrations m ORDER BY m.version DESC LIMIT 1), true)),
    swapped AS (
        UPDATE evidence.head h SET size = s.size, frontier = s.frontier
        FROM go, UNNEST($3::bigint[], $4::bytea[]) AS s (size, frontier) WHERE h.org = $1)";

/// How many parameters come before those of the tables.
const PARAMETERS: usize = 6;

/// What the statements write. A group takes the first that writes all of its tables; those of which it has no rows get
/// empty lists.
const SHAPES: [&[TableWrite]; 4] = [
    &[
        TableWrite::Ledger,
        TableWrite::Node,
        TableWrite::TrailRevision,
        TableWrite::TrailEntry,
        TableWrite::Attestation,
        TableWrite::CommitTrail,
        TableWrite::FlowRepo,
        TableWrite::Attachment,
        TableWrite::DeletePending,
    ],
    &[
        TableWrite::Ledger,
        TableWrite::Node,
        TableWrite::Record,
        TableWrite::Name,
        TableWrite::Trail,
        TableWrite::TrailRevision,
        TableWrite::TrailEntry,
        TableWrite::Artifact,
        TableWrite::Build,
        TableWrite::Attestation,
        TableWrite::CommitTrail,
        TableWrite::FlowRepo,
        TableWrite::Attachment,
        TableWrite::DeletePending,
        TableWrite::Text,
    ],
    &[
        TableWrite::Ledger,
        TableWrite::Node,
        TableWrite::Snapshot,
        TableWrite::EnvironmentReport,
        TableWrite::EndInstances,
        TableWrite::Instance,
        TableWrite::Deployment,
        TableWrite::RunOrigin,
    ],
    &TableWrite::ALL,
];

/// A statement for groups of some tables.
pub(crate) struct Shape {
    /// The tables, in the order in which they are written.
    pub(crate) tables: &'static [TableWrite],
    mixed: String,
    one: String,
}

impl Shape {
    /// The one for these rows.
    pub(crate) fn of(rows: &Rows) -> &'static Self {
        static ALL: LazyLock<[Shape; SHAPES.len()]> = LazyLock::new(|| SHAPES.map(Shape::new));
        let [.., everything] = &*ALL;
        ALL.iter().find(|shape| rows.are_of(shape.tables)).unwrap_or(everything)
    }

    fn new(tables: &'static [TableWrite]) -> Self {
        let text = |begin: &str, is_one| {
            let mut parameters = PARAMETERS;
            let writes = tables.iter().map(|table| {
                let (statement, columns) = table.postgres(parameters + 1, is_one);
                parameters += columns;
                format!(", \"{table:?}\" AS ({statement})")
            });
            [begin, &writes.collect::<String>(), " SELECT EXISTS (SELECT 1 FROM go)"].concat()
        };
        Self { tables, mixed: text(COMPARE_AND_SWAP, false), one: text(COMPARE_AND_SWAP_ONE, true) }
    }

    /// The statement. Of one organization that is the scalar `$1`.
    pub(crate) fn statement(&self, is_one: bool) -> &str {
        if is_one { &self.one } else { &self.mixed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_takes_the_first_statement_that_writes_its_tables() {
        for (tables, expected) in [
            (vec![TableWrite::Ledger, TableWrite::Attestation], 0),
            (vec![TableWrite::Ledger, TableWrite::Trail, TableWrite::Attestation], 1),
            (vec![TableWrite::Ledger, TableWrite::EnvironmentReport], 2),
            (vec![TableWrite::Ledger, TableWrite::Attestation, TableWrite::Instance], 3),
            (vec![TableWrite::ApiKey], 3),
        ] {
            let mut rows = Rows::default();
            tables.iter().for_each(|table| rows.push(*table, Vec::new()));
            assert_eq!(Shape::of(&rows).tables, SHAPES[expected], "{tables:?}");
        }
    }

    #[test]
    fn tables_are_written_in_their_order() {
        for tables in SHAPES {
            assert!(tables.is_sorted(), "{tables:?}");
        }
    }
}
