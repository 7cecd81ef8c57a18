//! The errors of opening a store and of later statements.

use std::borrow::Borrow;

use evidence_core::StoreError;
use sqlx::error::ErrorKind;

/// An error of opening a store. Each message is one sentence that includes the remedy. No message repeats the
/// address, which may contain a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is invalid.
    #[error(
        "the address of the database is not understood ({}): write it as postgres://user@host:5432/database",
        message(.source)
    )]
    InvalidUrl {
        /// The parse error.
        source: sqlx::Error,
    },
    /// The address has an unknown parameter. sqlx would ignore it and log its value, which may be a password.
    #[error(
        "the address of the database has {0} after the '?': remove or correct it; the parameters are {known}",
        known = PARAMETERS.join(", ")
    )]
    UnknownParameter(String),
    /// The name of the schema is invalid.
    #[error(
        "'{0}' is no name for a schema: take 1 to 63 of a-z, 0-9 and _, with a letter first, and not pg_..."
    )]
    InvalidSchema(String),
    /// The server does not answer at this address.
    #[error(
        "the database server cannot be reached: check that it runs and that host and port are right: {}",
        message(.source)
    )]
    Unreachable {
        /// The error of the connection.
        source: sqlx::Error,
    },
    /// The server does not know the user, or the password is wrong.
    #[error(
        "the database refuses the user: check the user's name, the password and pg_hba.conf: {}",
        message(.source)
    )]
    Denied {
        /// The error of the server.
        source: sqlx::Error,
    },
    /// The server has no database of this name.
    #[error(
        "there is no such database: make it, as with createdb: {}",
        message(.source)
    )]
    NoDatabase {
        /// The error of the server.
        source: sqlx::Error,
    },
    /// The server has no connection left.
    #[error(
        "the database has no connection left: ask for fewer, or raise its max_connections: {}",
        message(.source)
    )]
    TooManyConnections {
        /// The error of the server.
        source: sqlx::Error,
    },
    /// The user may not create the schema or its tables.
    #[error(
        "the user may not make the tables in schema '{schema}': grant CREATE on the database, or make the schema and \
         give it to the user: {}",
        message(.source)
    )]
    MayNotCreate {
        /// The schema.
        schema: String,
        /// The error of the server.
        source: sqlx::Error,
    },
    /// The user may not read the tables.
    #[error(
        "the user may not read the tables in schema '{schema}': grant USAGE on it, and SELECT, INSERT, UPDATE and DELETE on \
         its tables: {}",
        message(.source)
    )]
    MayNotRead {
        /// The schema.
        schema: String,
        /// The error of the server.
        source: sqlx::Error,
    },
    /// The tables must be migrated, but the database is read-only.
    #[error(
        "the database is read-only and its tables are not up to date: connect to the primary server first"
    )]
    ReadOnly {
        /// The error of the server.
        source: sqlx::Error,
    },
    /// Another program is migrating the tables and does not finish.
    #[error(
        "another program is bringing the tables up to date and has not finished: try again, or end what holds the lock"
    )]
    Busy,
    /// The tables cannot be migrated.
    #[error(
        "the tables cannot be brought to version {version}: {}: the next start goes on from here",
        message(.source)
    )]
    Migrate {
        /// The version that failed.
        version: i64,
        /// The error of the migration.
        source: sqlx::Error,
    },
    /// The tables cannot be rederived from the ledgers.
    #[error(
        "the tables of version {version} cannot be made from the ledgers ({source}): check them with fsck; the next start \
         goes on from here"
    )]
    Rederive {
        /// The version that failed.
        version: i64,
        /// The error of the rederivation.
        source: StoreError,
    },
    /// The schema does not exist, or is not an evidence store.
    #[error(
        "schema '{schema}' has no tables of an evidence store: check the address and the schema's name, or make a store \
         there first"
    )]
    NoStore {
        /// The schema.
        schema: String,
    },
    /// The tables must be migrated first.
    #[error(
        "the database has tables of version {found} and this program needs {known}: start a server of this version, which \
         brings them up to date"
    )]
    OlderSchema {
        /// The version found.
        found: i64,
        /// The version that this program needs.
        known: i64,
    },
    /// The tables were written by a later program.
    #[error("the database has tables of version {found} and this program knows {known}: use a newer program")]
    NewerSchema {
        /// The version found.
        found: i64,
        /// The latest version that this program knows.
        known: i64,
    },
    /// The server is too old.
    #[error("the database server is PostgreSQL {0}: version 15 or newer is needed")]
    OldServer(i64),
    /// The encoding of the database cannot represent every text.
    #[error("the database is encoded as {0}: make one that is UTF8, as with createdb -E UTF8 -T template0")]
    Encoding(String),
    /// A crash empties this table. The value is the quoted name of its schema and table.
    #[error(
        "table {0} is UNLOGGED, so that a crash empties it: make it safe, as with ALTER TABLE {0} SET LOGGED"
    )]
    Unlogged(String),
    /// A session does not accept a setting that the store relies on.
    #[error(
        "a session has {setting} = {found} although it was told otherwise: connect without a pooler between"
    )]
    Weak {
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: String,
    },
}

/// The parameters that sqlx accepts in an address, besides `options[name]`.
const PARAMETERS: [&str; 18] = [
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
];

/// Refuses an address with unknown parameters. The error names only a word before a `=`: anything else may be
/// part of a password, and so may everything before an `@`.
pub(crate) fn expect_known_parameters(url: &str) -> Result<(), ConnectError> {
    let (url, _) = url.split_once('#').unwrap_or((url, ""));
    let Some((_, query)) = url.split_once('?') else { return Ok(()) };
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let key = parameter.split_once('=').map(|(key, _)| key);
        if key.is_some_and(|key| PARAMETERS.contains(&key) || key.starts_with("options[")) {
            continue;
        }
        let is_word =
            |key: &&str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        let named = key
            .filter(is_word)
            .filter(|_| !query.contains('@'))
            .map(|key| format!("the unknown parameter '{key}'"));
        let unknown = named.unwrap_or_else(|| "an unknown parameter".to_owned());
        return Err(ConnectError::UnknownParameter(unknown));
    }
    Ok(())
}

impl ConnectError {
    /// Returns the error for a failed connection.
    pub(crate) fn connecting(source: sqlx::Error) -> Self {
        let source = match source {
            sqlx::Error::Configuration(reason) => match reason.downcast::<Self>() {
                Ok(known) => return *known,
                Err(reason) => sqlx::Error::Configuration(reason),
            },
            source => source,
        };
        match class_and_code(&source) {
            Some(("28", _)) => Self::Denied { source },
            Some((_, "3D000")) => Self::NoDatabase { source },
            Some((_, "53300")) => Self::TooManyConnections { source },
            // The user may not connect to this database.
            Some((_, "42501")) => Self::Denied { source },
            _ => Self::Unreachable { source },
        }
    }

    /// Returns the error for an unreadable table of versions. Returns `source` if the table is not the cause.
    pub(crate) fn reading(schema: &str, source: sqlx::Error) -> Result<Self, sqlx::Error> {
        match class_and_code(&source) {
            Some((_, "42501")) => Ok(Self::MayNotRead { schema: schema.to_owned(), source }),
            Some((_, "42703")) => Ok(Self::NoStore { schema: schema.to_owned() }),
            _ => Err(source),
        }
    }

    /// Returns the error for a failed migration to `version`.
    pub(crate) fn migrating(schema: &str, version: i64, source: sqlx::Error) -> Self {
        match class_and_code(&source) {
            Some((_, "42501")) => Self::MayNotCreate { schema: schema.to_owned(), source },
            Some((_, "25006")) => Self::ReadOnly { source },
            Some((_, "55P03")) => Self::Busy,
            _ => Self::Migrate { version, source },
        }
    }
}

/// Returns the message of the database or of the system, without the driver's wording.
fn message(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(database) => database.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Configuration(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Returns the class and the code of PostgreSQL's error (PostgreSQL, Appendix A).
fn class_and_code(error: &sqlx::Error) -> Option<(&str, &str)> {
    let code = error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?.code();
    Some((code.get(..2)?, code))
}

/// Classes of codes that indicate a problem of the environment and not a defect: connection exception,
/// invalid authorization, insufficient resources (a full disk), operator intervention (a shutdown), system
/// error.
const ENVIRONMENTAL: [&str; 5] = ["08", "28", "53", "57", "58"];

/// Codes of other classes that indicate the same.
///
/// - Read-only transaction, idle transaction timeout, no such database, lock not available, serialization
///   failure, deadlock.
/// - No such schema, table or column: a newer program has dropped it.
/// - Insufficient privilege: an operator can grant it.
const ENVIRONMENTAL_CODES: [&str; 10] =
    ["25006", "25P03", "3D000", "55P03", "40001", "40P01", "3F000", "42P01", "42703", "42501"];

/// data_corrupted and index_corrupted.
const DAMAGED: [&str; 2] = ["XX001", "XX002"];

/// Converts the error of a failed statement to a [`StoreError`]. Accepts an owned or a shared error, which
/// becomes the source.
pub(crate) fn store_error<E>(error: E) -> StoreError
where
    E: Borrow<sqlx::Error> + std::error::Error + Send + Sync + 'static,
{
    match error.borrow() {
        sqlx::Error::Database(database) if database.kind() == ErrorKind::UniqueViolation => {
            StoreError::Conflict
        }
        sqlx::Error::Database(_) => {
            let (class, code) = class_and_code(error.borrow()).unwrap_or_default();
            if ENVIRONMENTAL.contains(&class) || ENVIRONMENTAL_CODES.contains(&code) {
                StoreError::Unavailable(error.into())
            } else if DAMAGED.contains(&code) {
                StoreError::corrupt(error)
            } else {
                StoreError::Failed(error.into())
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::Configuration(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => StoreError::Unavailable(error.into()),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreError::corrupt(error),
        _ => StoreError::Failed(error.into()),
    }
}

/// Returns whether the connection is lost: the server was stopped, or the network between is down.
pub(crate) fn is_disconnected(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        _ => class_and_code(error)
            .is_some_and(|(class, code)| class == "08" || matches!(code, "57P01" | "57P02" | "57P03")),
    }
}

/// Returns whether the connection was dead, as opposed to a server that does not answer. The statement may
/// then run on another connection at once.
pub(crate) fn is_cut(error: &sqlx::Error) -> bool {
    let timed_out = matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut);
    is_disconnected(error) && !timed_out
}

/// Returns whether a transaction lost a race that the database detected. A retry may succeed.
pub(crate) fn is_lost_race(error: &sqlx::Error) -> bool {
    is_serialization_failure(error) || class_and_code(error).is_some_and(|(_, code)| code == "23505")
}

/// Returns whether transactions conflicted, including deadlocks. Nothing was written, and a retry may
/// succeed.
pub(crate) fn is_serialization_failure(error: &sqlx::Error) -> bool {
    class_and_code(error).is_some_and(|(class, _)| class == "40")
}

/// Returns whether the server is read-only, because it was demoted or configured so.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    class_and_code(error).is_some_and(|(_, code)| code == "25006")
}

/// Classes of codes that no row causes: connection exception, invalid authorization, transaction rollback,
/// operator intervention (a shutdown, a timeout), system error.
const OF_NO_ROW: [&str; 5] = ["08", "28", "40", "57", "58"];

/// Codes of other classes that no row causes: read-only transaction, no such database, full disk, too many
/// connections, lock not available, no such schema, table or column, no privilege.
const OF_NO_ROW_CODES: [&str; 9] =
    ["25006", "3D000", "53100", "53300", "55P03", "3F000", "42P01", "42703", "42501"];

/// The code of a statement that was cancelled by its timeout.
const TOOK_TOO_LONG: &str = "57014";

/// Returns whether a single write of the group may be the cause, so that splitting the group helps. Every
/// error of PostgreSQL counts unless no row can cause it, because a list of the errors that rows can cause
/// would never be complete. A timeout counts too, because one large write may cause it.
pub(crate) fn may_be_row_error(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(_) => class_and_code(error).is_none_or(|(class, code)| {
            code == TOOK_TOO_LONG || !OF_NO_ROW.contains(&class) && !OF_NO_ROW_CODES.contains(&code)
        }),
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Encode(_) => true,
        _ => false,
    }
}

/// Returns the error for a statement that exceeds the client's time limit.
pub(crate) fn timed_out() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}

/// The user no longer has a privilege that the writer needs.
#[derive(Debug, thiserror::Error)]
#[error(
    "the database's user may not {privilege} in table {table} any more: GRANT {privilege} ON {table} TO it"
)]
pub(crate) struct MayNotWrite {
    /// The quoted name of the schema and table.
    pub(crate) table: String,
    /// The missing privilege.
    pub(crate) privilege: String,
}

impl From<MayNotWrite> for StoreError {
    fn from(refused: MayNotWrite) -> Self {
        Self::Unavailable(refused.into())
    }
}
