//! Definitions of the tables that facts are written to: columns, keys, and the statements that follow from
//! them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::value::{Column, Value};

/// A write to a table. The variants are in the order in which a group writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableWrite {
    /// Ledger entries that correct a clock.
    ClockCorrection,
    /// Ledger entries.
    Ledger,
    /// Stored nodes of the ledgers' Merkle trees.
    Node,
    /// Organizations.
    Organization,
    /// Organizations that were ever created, recorded independently of their ledgers.
    KnownOrganization,
    /// Users.
    User,
    /// Roles of users.
    Membership,
    /// The newest fact of each record.
    Record,
    /// Releases all names of records. Comes before [`TableWrite::Name`], whose rows may claim them again.
    ReleaseNames,
    /// Deletes names, whatever they refer to.
    DeleteNames,
    /// The targets of names. The plan has already decided whether a name may be claimed.
    Name,
    /// Deletes the tags that records no longer have. Comes before [`TableWrite::RecordTag`].
    ReleaseTags,
    /// The tags of controls.
    RecordTag,
    /// API keys.
    ApiKey,
    /// Trails.
    Trail,
    /// The newest facts of trails that began before the group.
    TrailRevision,
    /// Updates of trails.
    TrailEntry,
    /// Artifact reports: the only table that is indexed by digest.
    Artifact,
    /// The first report of each artifact.
    Build,
    /// Attestations: one narrow row each; the body is in the ledger.
    Attestation,
    /// The trails that name a commit.
    CommitTrail,
    /// The most recently named repo of each flow.
    FlowRepo,
    /// Blobs that records reference.
    Attachment,
    /// Removes attachments from the pending table when a record references them.
    DeletePending,
    /// The secret URLs of targets.
    SecretUrl,
    /// Deletes the secret URLs that no target has any more.
    DeleteSecretUrl,
    /// Repositories.
    Repo,
    /// Snapshots.
    Snapshot,
    /// The time of the last report on each environment. A late report does not turn time back.
    EnvironmentReport,
    /// Ends the runs that began before the group. Comes before [`TableWrite::Instance`].
    EndInstances,
    /// Intervals in which artifacts ran.
    Instance,
    /// Changes of the members of logical environments.
    EnvironmentMember,
    /// Artifacts that began to run.
    Deployment,
    /// The names of artifacts that began to run, in the flows that reported them.
    RunOrigin,
    /// Versions of policies, attestation types and controls.
    Version,
    /// Entries of allowlists, and their withdrawals.
    Allowance,
    /// The newest entry of each environment and fingerprint.
    Allowed,
    /// Texts by digest.
    Text,
    /// Heads of new ledgers.
    Head,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The organization.
    Org,
    /// An id ([`Value::Id`]).
    Id,
    /// Text.
    Text,
    /// JSON: text in SQLite, `jsonb` in PostgreSQL.
    Json,
    /// An integer.
    Int,
    /// A boolean.
    Bool,
    /// Bytes.
    Bytes,
}

use Kind::{Bool, Bytes, Id, Int, Json, Org, Text};

/// The handling of a row whose key already exists.
#[derive(Clone, Copy)]
enum OnConflict {
    /// The group fails.
    Fail,
    /// The existing row stays.
    DoNothing {
        /// The columns of the key.
        key: &'static str,
    },
    /// The row is updated unless it is equal: all columns after the unchanged ones.
    DoUpdate {
        /// The columns of the key in SQLite and in PostgreSQL.
        key: [&'static str; 2],
        /// The number of leading columns that identify a row.
        key_columns: usize,
        /// The number of leading columns that an update leaves unchanged.
        unchanged_columns: usize,
    },
    /// These statements use the row instead of an insert.
    Custom(CustomWrite),
}

/// The statements of [`OnConflict::Custom`].
#[derive(Clone, Copy)]
struct CustomWrite {
    /// The columns of the row are `$1` and so on.
    sqlite: &'static str,
    /// Builds the statement from the source of the rows `r`, and from the organization of a row. The
    /// statement writes nothing if `go` is empty. A subquery (`OFFSET 0`) finds the target row, and the write
    /// addresses it by position. This makes one index probe per row, whatever the statistics are; it is safe
    /// because nobody else writes to the ledger meanwhile.
    postgres: fn(rows: &str, org: &str) -> String,
}

/// A table, its columns, and the handling of rows with the same key.
struct Definition {
    table: &'static str,
    columns: &'static [(&'static str, Kind)],
    conflict: OnConflict,
}

const fn insert(table: &'static str, columns: &'static [(&'static str, Kind)]) -> Definition {
    Definition { table, columns, conflict: OnConflict::Fail }
}

const fn insert_or_ignore(
    table: &'static str,
    columns: &'static [(&'static str, Kind)],
    key: &'static str,
) -> Definition {
    Definition { table, columns, conflict: OnConflict::DoNothing { key } }
}

const fn upsert(
    table: &'static str,
    columns: &'static [(&'static str, Kind)],
    key: [&'static str; 2],
    key_columns: usize,
    unchanged_columns: usize,
) -> Definition {
    Definition { table, columns, conflict: OnConflict::DoUpdate { key, key_columns, unchanged_columns } }
}

const fn custom(
    table: &'static str,
    columns: &'static [(&'static str, Kind)],
    sqlite: &'static str,
    postgres: fn(rows: &str, org: &str) -> String,
) -> Definition {
    Definition { table, columns, conflict: OnConflict::Custom(CustomWrite { sqlite, postgres }) }
}

/// Deletes the row of an organization with this text. Other writers may update such rows meanwhile, which moves them. So the
/// row is found by its key again.
macro_rules! delete {
    ($table:literal, $key:literal) => {
        custom(
            $table,
            &[("org", Org), ($key, Text)],
            concat!("DELETE FROM ", $table, " WHERE org = $1 AND ", $key, " = $2"),
            |rows, org| {
                format!(
                    concat!(
                        "DELETE FROM evidence.",
                        $table,
                        " p USING go, {} WHERE p.org = {} AND p.",
                        $key,
                        " = r.",
                        $key
                    ),
                    rows, org
                )
            },
        )
    };
}

impl TableWrite {
    const fn definition(self) -> Definition {
        match self {
            Self::ClockCorrection => {
                insert("clock_correction", &[("org", Org), ("ledger_index", Int), ("at", Int)])
            }
            Self::Ledger => insert(
                "ledger",
                &[
                    ("org", Org),
                    ("idx", Int),
                    ("kind", Text),
                    ("at", Int),
                    ("actor", Text),
                    ("payload_hash", Bytes),
                    ("leaf_hash", Bytes),
                    ("salt", Bytes),
                    ("payload", Text),
                ],
            ),
            Self::Node => insert("node", &[("org", Org), ("level", Int), ("idx", Int), ("hash", Bytes)]),
            Self::Organization => {
                insert("organization", &[("key", Org), ("id", Text), ("name", Text), ("record", Text)])
            }
            Self::KnownOrganization => {
                insert_or_ignore("known_organization", &[("id", Text), ("name", Text)], "id")
            }
            Self::User => insert(
                "user",
                &[("org", Org), ("id", Text), ("name", Text), ("record", Text), ("ledger_index", Int)],
            ),
            Self::Membership => upsert(
                "membership",
                &[("org", Org), ("\"user\"", Text), ("role", Text)],
                ["org, \"user\""; 2],
                2,
                2,
            ),
            Self::Record => upsert(
                "record",
                &[
                    ("org", Org),
                    ("kind", Text),
                    ("id", Text),
                    ("name", Text),
                    ("ledger_index", Int),
                    ("archived", Bool),
                    ("tags", Json),
                ],
                ["org, kind, id", "org, id, kind"],
                3,
                3,
            ),
            // Without `INDEXED BY`, SQLite would scan all names of the organization and kind. In PostgreSQL
            // one statement cannot delete a row and insert it again, so names that the group claims again are
            // not deleted.
            Self::ReleaseNames => custom(
                "name",
                &[("org", Org), ("kind", Text), ("id", Text), ("claimed", Text)],
                "DELETE FROM name INDEXED BY name_id WHERE org = $1 AND kind = $2 AND id = $3",
                |rows, org| {
                    format!("DELETE FROM evidence.name n USING (
                    SELECT {org}, l.ctid AS at FROM go, {rows} CROSS JOIN LATERAL (
                        SELECT m.ctid FROM evidence.name m WHERE m.org = {org} AND m.kind = r.kind AND m.id = r.id
                            AND NOT jsonb_exists(r.claimed::jsonb, m.name) OFFSET 0) l
                    OFFSET 0) r
                WHERE n.org = {org} AND n.ctid = r.at")
                },
            ),
            Self::DeleteNames => custom(
                "name",
                &[("org", Org), ("kind", Text), ("name", Text)],
                "DELETE FROM name WHERE org = $1 AND kind = $2 AND name = $3",
                |rows, org| {
                    format!(
                        "DELETE FROM evidence.name n USING (
                    SELECT {org}, l.ctid AS at FROM go, {rows} CROSS JOIN LATERAL (
                        SELECT m.ctid FROM evidence.name m
                        WHERE m.org = {org} AND m.kind = r.kind AND m.name = r.name OFFSET 0) l
                    OFFSET 0) r
                WHERE n.org = {org} AND n.ctid = r.at"
                    )
                },
            ),
            Self::Name => upsert(
                "name",
                &[("org", Org), ("kind", Text), ("name", Text), ("id", Text), ("alias", Bool)],
                ["org, kind, name"; 2],
                3,
                3,
            ),
            // A tag that keeps its key is updated if its value differs.
            Self::ReleaseTags => custom(
                "record_tag",
                &[("org", Org), ("kind", Text), ("id", Text), ("kept", Text)],
                "DELETE FROM record_tag WHERE org = $1 AND kind = $2 AND id = $3
                    AND key NOT IN (SELECT value FROM json_each($4))",
                |rows, org| {
                    format!("DELETE FROM evidence.record_tag t USING (
                    SELECT {org}, l.ctid AS at FROM go, {rows} CROSS JOIN LATERAL (
                        SELECT m.ctid FROM evidence.record_tag m WHERE m.org = {org} AND m.kind = r.kind AND m.id = r.id
                            AND NOT jsonb_exists(r.kept::jsonb, m.key) OFFSET 0) l
                    OFFSET 0) r
                WHERE t.org = {org} AND t.ctid = r.at")
                },
            ),
            Self::RecordTag => upsert(
                "record_tag",
                &[("org", Org), ("kind", Text), ("id", Text), ("key", Text), ("value", Text)],
                ["org, kind, id, key"; 2],
                4,
                4,
            ),
            // A later fact about a key can change its end but never its hash.
            Self::ApiKey => upsert(
                "api_key",
                &[
                    ("org", Org),
                    ("id", Text),
                    ("owner", Json),
                    ("owner_id", Text),
                    ("hash", Text),
                    ("created_at", Int),
                    ("expires_at", Int),
                    ("revoked_at", Int),
                ],
                ["id", "org, id"],
                2,
                6,
            ),
            Self::Trail => insert(
                "trail",
                &[
                    ("org", Org),
                    ("id", Text),
                    ("flow", Text),
                    ("name", Text),
                    ("begun", Int),
                    ("ledger_index", Int),
                    ("ordinal", Int),
                    ("flow_ordinal", Int),
                ],
            ),
            Self::TrailRevision => custom(
                "trail",
                &[("org", Org), ("id", Text), ("ledger_index", Int)],
                "UPDATE trail SET ledger_index = $3 WHERE id = $2 AND org = $1",
                |rows, org| {
                    format!(
                        "UPDATE evidence.trail t SET ledger_index = r.ledger_index FROM (
                    SELECT {org}, l.ctid AS at, r.ledger_index FROM go, {rows} CROSS JOIN LATERAL (
                        SELECT b.ctid FROM evidence.trail b WHERE b.org = {org} AND b.id = r.id OFFSET 0) l
                    OFFSET 0) r
                WHERE t.org = {org} AND t.ctid = r.at"
                    )
                },
            ),
            Self::TrailEntry => {
                insert("trail_entry", &[("org", Org), ("trail", Text), ("ledger_index", Int)])
            }
            Self::Artifact => insert(
                "artifact",
                &[
                    ("org", Org),
                    ("id", Text),
                    ("flow", Text),
                    ("trail", Text),
                    ("fingerprint", Text),
                    ("name", Text),
                    ("commit_sha", Text),
                    ("branch", Text),
                    ("repo", Text),
                    ("committed_at", Int),
                    ("template", Text),
                    ("at", Int),
                    ("ledger_index", Int),
                    ("ordinal", Int),
                    ("flow_ordinal", Int),
                ],
            ),
            Self::Deployment => insert(
                "deployment",
                &[
                    ("org", Org),
                    ("ordinal", Int),
                    ("environment", Id),
                    ("environment_ordinal", Int),
                    ("snapshot", Int),
                    ("artifact", Text),
                    ("name", Text),
                    ("compliant", Bool),
                    ("report", Id),
                    ("flow", Id),
                    ("repo", Text),
                    ("repo_ordinal", Int),
                    ("committed_at", Int),
                    ("at", Int),
                    ("ledger_index", Int),
                ],
            ),
            Self::Build => insert(
                "build",
                &[
                    ("org", Org),
                    ("ordinal", Int),
                    ("id", Text),
                    ("repo", Text),
                    ("repo_ordinal", Int),
                    ("at", Int),
                    ("ledger_index", Int),
                ],
            ),
            Self::Attestation => insert(
                "attestation",
                &[
                    ("org", Org),
                    ("id", Text),
                    ("flow", Text),
                    ("trail", Text),
                    ("name", Text),
                    ("kind", Text),
                    ("is_compliant", Bool),
                    ("override_info", Text),
                    ("control", Text),
                    ("control_version", Int),
                    ("decided_by", Text),
                    ("binding", Text),
                    ("commit_sha", Text),
                    ("at", Int),
                    ("recorded_at", Int),
                    ("ledger_index", Int),
                    ("flow_ordinal", Int),
                    ("control_ordinal", Int),
                ],
            ),
            Self::CommitTrail => insert_or_ignore(
                "commit_trail",
                &[("org", Org), ("commit_sha", Text), ("trail", Text), ("flow", Text)],
                "org, commit_sha, trail",
            ),
            Self::FlowRepo => {
                upsert("flow_repo", &[("org", Org), ("flow", Text), ("url", Text)], ["org, flow"; 2], 2, 2)
            }
            Self::Attachment => insert_or_ignore(
                "attachment",
                &[("org", Org), ("sha256", Text), ("size", Int)],
                "org, sha256",
            ),
            // An import names the URLs of earlier entries again. An id always has one URL.
            Self::SecretUrl => {
                insert_or_ignore("secret_url", &[("org", Org), ("id", Text), ("content", Text)], "org, id")
            }
            Self::DeleteSecretUrl => delete!("secret_url", "id"),
            Self::DeletePending => delete!("attachment_pending", "sha256"),
            Self::Repo => upsert(
                "repo",
                &[
                    ("org", Org),
                    ("id", Text),
                    ("name", Text),
                    ("provider", Text),
                    ("external_id", Text),
                    ("vcs_instance", Text),
                    ("namespace", Text),
                    ("ledger_index", Int),
                ],
                ["id", "org, id"],
                2,
                2,
            ),
            Self::Snapshot => insert(
                "snapshot",
                &[
                    ("org", Org),
                    ("environment", Id),
                    ("idx", Int),
                    ("at", Int),
                    ("compliant", Bool),
                    ("ledger_index", Int),
                    ("events", Int),
                    ("logical", Text),
                ],
            ),
            Self::EnvironmentMember => insert(
                "environment_member",
                &[
                    ("org", Org),
                    ("environment", Text),
                    ("ledger_index", Int),
                    ("member", Text),
                    ("joined", Bool),
                ],
            ),
            Self::EnvironmentReport => custom(
                "environment_report",
                &[("org", Org), ("environment", Text), ("at", Int)],
                "INSERT INTO environment_report (org, environment, at) VALUES ($1, $2, $3)
                ON CONFLICT (environment) DO UPDATE SET at = max(at, excluded.at)",
                |rows, org| {
                    format!(
                        "INSERT INTO evidence.environment_report AS h (org, environment, at)
                SELECT {org}, r.environment, max(r.at) FROM go, {rows} GROUP BY {org}, r.environment
                ON CONFLICT (org, environment) DO UPDATE SET at = greatest(h.at, excluded.at)"
                    )
                },
            ),
            // In PostgreSQL this runs in one statement with the inserts, so it does not see their rows.
            Self::EndInstances => custom(
                "instance",
                &[
                    ("org", Org),
                    ("environment", Id),
                    ("artifact", Text),
                    ("until_idx", Int),
                    ("exited", Bool),
                    ("exit_event", Int),
                ],
                "UPDATE instance SET until_idx = $4, exited = $5, exit_event = $6
                WHERE org = $1 AND environment = $2 AND artifact = $3 AND until_idx = 9223372036854775807",
                |rows, org| {
                    format!("UPDATE evidence.instance i SET until_idx = r.until_idx, exited = r.exited, exit_event = r.exit_event FROM (
                    SELECT {org}, l.ctid AS at, r.until_idx, r.exited, r.exit_event FROM go, {rows} CROSS JOIN LATERAL (
                        SELECT b.ctid FROM evidence.instance b
                        WHERE b.org = {org} AND b.environment = r.environment AND b.artifact = r.artifact
                            AND b.until_idx = 9223372036854775807 OFFSET 0) l
                    OFFSET 0) r
                WHERE i.org = {org} AND i.ctid = r.at")
                },
            ),
            Self::Instance => insert(
                "instance",
                &[
                    ("org", Org),
                    ("environment", Id),
                    ("artifact", Text),
                    ("from_idx", Int),
                    ("since_idx", Int),
                    ("until_idx", Int),
                    ("exited", Bool),
                    ("state", Text),
                    ("event", Int),
                    ("exit_event", Int),
                ],
            ),
            Self::RunOrigin => upsert(
                "run_origin",
                &[
                    ("org", Org),
                    ("environment", Id),
                    ("flow", Id),
                    ("reference", Text),
                    ("since_idx", Int),
                    ("artifact", Text),
                    ("report", Id),
                ],
                [
                    "environment, flow, reference, since_idx, artifact",
                    "org, environment, flow, reference, since_idx, artifact",
                ],
                6,
                6,
            ),
            Self::Version => {
                insert("version", &[("org", Org), ("id", Text), ("number", Int), ("ledger_index", Int)])
            }
            Self::Allowance => insert(
                "allowance",
                &[
                    ("org", Org),
                    ("environment", Text),
                    ("fingerprint", Text),
                    ("ledger_index", Int),
                    ("ends_at", Int),
                    ("withdrawn", Bool),
                ],
            ),
            Self::Allowed => upsert(
                "allowed",
                &[
                    ("org", Org),
                    ("environment", Text),
                    ("fingerprint", Text),
                    ("ledger_index", Int),
                    ("ends_at", Int),
                ],
                ["org, environment, fingerprint"; 2],
                3,
                3,
            ),
            Self::Text => upsert(
                "interned_text",
                &[("org", Org), ("sha256", Text), ("ledger_index", Int)],
                ["org, sha256"; 2],
                2,
                2,
            ),
            Self::Head => insert("head", &[("org", Org), ("size", Int), ("frontier", Bytes)]),
        }
    }

    /// Returns two numbers of leading columns: those that identify a row, and those that a later row leaves
    /// unchanged. A group writes each such row once. Returns `None` for tables whose rows are never replaced.
    pub(crate) const fn replaces(self) -> Option<(usize, usize)> {
        match self.definition().conflict {
            OnConflict::DoUpdate { key_columns, unchanged_columns, .. } => {
                Some((key_columns, unchanged_columns))
            }
            _ if matches!(self, Self::Trail) => Some((2, 8)),
            _ if matches!(self, Self::TrailRevision) => Some((2, 2)),
            OnConflict::Fail | OnConflict::DoNothing { .. } | OnConflict::Custom(_) => None,
        }
    }

    /// Returns the statement that writes one row in SQLite. Its columns are `$1` and so on.
    #[must_use]
    pub fn sqlite(self) -> &'static str {
        static STATEMENTS: LazyLock<BTreeMap<TableWrite, String>> =
            LazyLock::new(|| TableWrite::ALL.into_iter().map(|table| (table, table.sqlite_text())).collect());
        STATEMENTS.get(&self).map_or("", String::as_str)
    }

    fn sqlite_text(self) -> String {
        let Definition { table, columns, conflict } = self.definition();
        if let OnConflict::Custom(CustomWrite { sqlite, .. }) = conflict {
            return sqlite.to_owned();
        }
        let names = names(columns.iter());
        let values: Vec<_> = (1..=columns.len()).map(|number| format!("${number}")).collect();
        let values = values.join(", ");
        format!(
            "INSERT INTO {table} ({names}) VALUES ({values}){}",
            on_conflict(&conflict, table, columns, 0)
        )
    }

    /// Returns the PostgreSQL statement that writes rows if the relation `go` has a row, and its number of
    /// parameters. The columns are parameters from `first` on. For one organization, `$1` is the scalar
    /// organization, and the rows have no such column.
    pub(crate) fn postgres(self, first: usize, is_one: bool) -> (String, usize) {
        let Definition { table, columns, conflict } = self.definition();
        let listed = || columns.iter().filter(|(_, kind)| self.lists(*kind, is_one));
        let arrays = listed().zip(first..).map(|((_, kind), number)| match kind {
            Text | Json => format!("${number}::text[]"),
            Int => format!("${number}::bigint[]"),
            Bool => format!("${number}::boolean[]"),
            Org | Id | Bytes => format!("${number}::bytea[]"),
        });
        let (arrays, names) = (arrays.collect::<Vec<_>>().join(", "), names(listed()));
        let statement = if let OnConflict::Custom(CustomWrite { postgres, .. }) = conflict {
            // The limit makes PostgreSQL estimate few rows, so it probes an index for each.
            let few = format!("(SELECT * FROM UNNEST({arrays}) LIMIT cardinality(${first})) AS r ({names})");
            postgres(&few, if is_one { "$1" } else { "r.org" })
        } else {
            let values = columns.iter().map(|(name, kind)| match kind {
                Org if !self.lists(Org, is_one) => "$1".to_owned(),
                Json => format!("r.{name}::jsonb"),
                Org | Id | Text | Int | Bool | Bytes => format!("r.{name}"),
            });
            format!(
                "INSERT INTO evidence.{table} ({}) SELECT {} FROM go, UNNEST({arrays}) AS r ({names}){}",
                self::names(columns.iter()),
                values.collect::<Vec<_>>().join(", "),
                on_conflict(&conflict, table, columns, 1)
            )
        };
        (statement, listed().count())
    }

    /// Returns whether PostgreSQL receives the values of a column of this kind as a list.
    fn lists(self, kind: Kind, is_one: bool) -> bool {
        kind != Org || !is_one || self == Self::Organization
    }

    /// Transposes rows to the columns that [`Self::postgres`] expects.
    pub(crate) fn transposed(self, rows: Vec<Vec<Value>>, is_one: bool) -> Vec<Column> {
        let kinds = self.definition().columns.iter().map(|(_, kind)| *kind);
        let mut columns: Vec<_> = kinds.map(|kind| (kind, Column::new(kind, rows.len()))).collect();
        for row in rows {
            let mut values = row.into_iter();
            for (_, column) in &mut columns {
                column.push(values.next().unwrap_or(Value::Text(None)));
            }
        }
        columns.into_iter().filter(|(kind, _)| self.lists(*kind, is_one)).map(|(_, column)| column).collect()
    }

    /// The tables whose times a clock correction sets back.
    pub(crate) const DATED: [Self; 6] = [
        Self::Artifact,
        Self::Build,
        Self::Attestation,
        Self::Snapshot,
        Self::EnvironmentReport,
        Self::Deployment,
    ];

    /// Returns the time columns that a correction sets back, each with its position in a row.
    pub(crate) fn times(self) -> impl Iterator<Item = (usize, &'static str)> {
        let columns = self.definition().columns.iter().map(|(name, _)| *name).enumerate();
        columns.filter(|(_, name)| ["at", "recorded_at"].contains(name))
    }

    /// Returns the statements that set the times of the organization `$1` back to `$2`, for tables of a
    /// schema. Each scans all rows of the organization in a table, which is acceptable because corrections
    /// are rare.
    pub(crate) fn corrections(schema: &str) -> impl Iterator<Item = String> {
        Self::DATED.into_iter().flat_map(move |dated| {
            let table = dated.definition().table;
            let set_back = move |(_, time)| {
                format!("UPDATE {schema}{table} SET {time} = $2 WHERE org = $1 AND {time} > $2")
            };
            dated.times().map(set_back)
        })
    }

    /// Every table, in write order.
    pub(crate) const ALL: [Self; 39] = [
        Self::ClockCorrection,
        Self::Ledger,
        Self::Node,
        Self::Organization,
        Self::KnownOrganization,
        Self::User,
        Self::Membership,
        Self::Record,
        Self::ReleaseNames,
        Self::DeleteNames,
        Self::Name,
        Self::ReleaseTags,
        Self::RecordTag,
        Self::ApiKey,
        Self::Trail,
        Self::TrailRevision,
        Self::TrailEntry,
        Self::Artifact,
        Self::Build,
        Self::Attestation,
        Self::CommitTrail,
        Self::FlowRepo,
        Self::Attachment,
        Self::DeletePending,
        Self::SecretUrl,
        Self::DeleteSecretUrl,
        Self::Repo,
        Self::Snapshot,
        Self::EnvironmentReport,
        Self::EndInstances,
        Self::Instance,
        Self::EnvironmentMember,
        Self::Deployment,
        Self::RunOrigin,
        Self::Version,
        Self::Allowance,
        Self::Allowed,
        Self::Text,
        Self::Head,
    ];
}

fn names<'c>(columns: impl Iterator<Item = &'c (&'static str, Kind)>) -> String {
    columns.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn on_conflict(conflict: &OnConflict, table: &str, columns: &[(&str, Kind)], dialect: usize) -> String {
    match conflict {
        OnConflict::Fail | OnConflict::Custom(_) => String::new(),
        OnConflict::DoNothing { key } => format!(" ON CONFLICT ({key}) DO NOTHING"),
        OnConflict::DoUpdate { key, unchanged_columns, .. } => {
            let replaced = || columns.iter().skip(*unchanged_columns).map(|(name, _)| name);
            let set = Vec::from_iter(replaced().map(|name| format!("{name} = excluded.{name}"))).join(", ");
            let differs = ["IS NOT", "IS DISTINCT FROM"].get(dialect).copied().unwrap_or_default();
            let differ = replaced().map(|name| format!("{table}.{name} {differs} excluded.{name}"));
            let differ = Vec::from_iter(differ).join(" OR ");
            let key = key.get(dialect).copied().unwrap_or_default();
            format!(" ON CONFLICT ({key}) DO UPDATE SET {set} WHERE {differ}")
        }
    }
}

impl Column {
    fn new(kind: Kind, rows: usize) -> Self {
        match kind {
            Org => Self::Orgs(Vec::with_capacity(rows)),
            Id => Self::Ids(Vec::with_capacity(rows)),
            Text | Json => Self::Texts(Vec::with_capacity(rows)),
            Int => Self::Ints(Vec::with_capacity(rows)),
            Bool => Self::Bools(Vec::with_capacity(rows)),
            Bytes => Self::Bytes(Vec::with_capacity(rows)),
        }
    }

    fn push(&mut self, value: Value) {
        match (self, value) {
            (Self::Orgs(orgs), Value::Org(org)) => orgs.push(Some(org)),
            (Self::Ids(ids), Value::Id(id)) => ids.push(id),
            (Self::Texts(texts), Value::Text(text)) => texts.push(text),
            (Self::Ints(numbers), Value::Int(number)) => numbers.push(number),
            (Self::Bools(truths), Value::Bool(truth)) => truths.push(truth),
            (Self::Bytes(all), Value::Bytes(bytes)) => all.push(Some(bytes)),
            // A type mismatch is a defect. The database rejects the null unless the column is nullable.
            (Self::Orgs(ids) | Self::Ids(ids), _) => ids.push(None),
            (Self::Texts(texts), _) => texts.push(None),
            (Self::Ints(numbers), _) => numbers.push(None),
            (Self::Bools(truths), _) => truths.push(None),
            (Self::Bytes(all), _) => all.push(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_table_is_named_once() {
        assert_eq!(BTreeSet::from(TableWrite::ALL).len(), TableWrite::ALL.len());
    }
}
