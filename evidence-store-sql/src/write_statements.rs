//! The PostgreSQL statements that write groups. A few statements serve all combinations of facts, because
//! each connection plans every statement, and plans it again every few seconds.

use std::sync::LazyLock;

use crate::group_rows::GroupRows;
use crate::tables::TableWrite;

/// Locks the heads `$1` and updates them if their sizes are unchanged (compare-and-swap). The heads are
/// locked in the order of their organizations, so two servers cannot deadlock. The size suffices as a
/// precondition: every fact that a precondition depends on changes only with the ledger of its organization.
/// Names of organizations and users are global, so unique indexes protect them.
///
/// The swap also fails in two other cases. A newer program may have excluded the version `$5` of this program
/// from writing. Or the tables were rebuilt since the prefetch, when the rebuild count was `$6`; the
/// prefetched data may have been damaged.
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

/// The compare-and-swap for one organization, which is a scalar.
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

/// The number of parameters before those of the tables.
const PARAMETERS: usize = 6;

/// The tables of each statement. A group uses the first statement that covers all of its tables; tables
/// without rows get empty lists.
const STATEMENTS: [&[TableWrite]; 4] = [
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

/// A statement for groups that write some tables.
pub(crate) struct WriteStatement {
    /// The tables in write order.
    pub(crate) tables: &'static [TableWrite],
    text: String,
    /// The statement for one organization, which is a scalar.
    text_one_org: String,
}

impl WriteStatement {
    /// Returns the statement for these rows.
    pub(crate) fn of(rows: &GroupRows) -> &'static Self {
        static ALL: LazyLock<[WriteStatement; STATEMENTS.len()]> =
            LazyLock::new(|| STATEMENTS.map(WriteStatement::new));
        let [.., everything] = &*ALL;
        ALL.iter().find(|statement| rows.all_belong_to(statement.tables)).unwrap_or(everything)
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
        Self { tables, text: text(COMPARE_AND_SWAP, false), text_one_org: text(COMPARE_AND_SWAP_ONE, true) }
    }

    /// Returns the SQL text. If the group has one organization, `$1` is that organization as a scalar.
    pub(crate) fn text(&self, is_one: bool) -> &str {
        if is_one { &self.text_one_org } else { &self.text }
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
            let mut rows = GroupRows::default();
            tables.iter().for_each(|table| rows.push(*table, Vec::new()));
            assert_eq!(WriteStatement::of(&rows).tables, STATEMENTS[expected], "{tables:?}");
        }
    }

    #[test]
    fn tables_are_written_in_their_order() {
        for tables in STATEMENTS {
            assert!(tables.is_sorted(), "{tables:?}");
        }
    }
}
