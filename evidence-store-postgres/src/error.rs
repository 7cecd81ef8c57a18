//! What can go wrong: opening a store, and every later statement.

use std::borrow::Borrow;

use evidence_core::StoreError;
use sqlx::error::ErrorKind;

/// Why a store could not be opened, each in one sentence that says what to do. None of them repeats the address, which
/// may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address cannot be read.
    #[error(
        "the address of the database is not understood ({}): write it as postgres://user@host:5432/database",
        message(.source)
    )]
    BadUrl {
        /// What is wrong with it.
        source: sqlx::Error,
    },
    /// The address has a parameter that is not known. sqlx would ignore it, and write its value, perhaps a password, to the
    /// log.
    #[error(
        "the address of the database has {0} after the '?': remove or correct it; the parameters are {known}",
        known = PARAMETERS.join(", ")
    )]
    UnknownParameter(String),
    /// The schema's name cannot be one.
    #[error(
        "'{0}' is no name for a schema: take 1 to 63 of a-z, 0-9 and _, with a letter first, and not pg_..."
    )]
    BadSchema(String),
    /// Nobody answers at the address.
    #[error(
        "the database server cannot be reached: check that it runs and that host and port are right: {}",
        message(.source)
    )]
    Unreachable {
        /// Why not.
        source: sqlx::Error,
    },
    /// The server knows no such user, or the password is wrong.
    #[error(
        "the database refuses the user: check the user's name, the password and pg_hba.conf: {}",
        message(.source)
    )]
    Denied {
        /// What the server said.
        source: sqlx::Error,
    },
    /// The server has no database of this name.
    #[error(
        "there is no such database: make it, as with createdb: {}",
        message(.source)
    )]
    NoDatabase {
        /// What the server said.
        source: sqlx::Error,
    },
    /// The server has no connection left.
    #[error(
        "the database has no connection left: ask for fewer, or raise its max_connections: {}",
        message(.source)
    )]
    TooManyConnections {
        /// What the server said.
        source: sqlx::Error,
    },
    /// The user may not make the schema or its tables.
    #[error(
        "the user may not make the tables in schema '{schema}': grant CREATE on the database, or make the schema and \
         give it to the user: {}",
        message(.source)
    )]
    MayNotCreate {
        /// The schema.
        schema: String,
        /// What the server said.
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
        /// What the server said.
        source: sqlx::Error,
    },
    /// The tables have to be brought up to date, and the database only reads.
    #[error(
        "the database is read-only and its tables are not up to date: connect to the primary server first"
    )]
    ReadOnly {
        /// What the server said.
        source: sqlx::Error,
    },
    /// Another program brings the tables up to date and does not finish.
    #[error(
        "another program is bringing the tables up to date and has not finished: try again, or end what holds the lock"
    )]
    Busy,
    /// The tables cannot be brought up to date.
    #[error(
        "the tables cannot be brought to version {version}: {}: the next start goes on from here",
        message(.source)
    )]
    Migrate {
        /// The version that failed.
        version: i64,
        /// Why.
        source: sqlx::Error,
    },
    /// The tables cannot be derived again from the ledgers.
    #[error(
        "the tables of version {version} cannot be made from the ledgers ({source}): check them with fsck; the next start \
         goes on from here"
    )]
    Rederive {
        /// The version that failed.
        version: i64,
        /// Why.
        source: StoreError,
    },
    /// The schema is not there, or holds something else.
    #[error(
        "schema '{schema}' has no tables of an evidence store: check the address and the schema's name, or make a store \
         there first"
    )]
    NoStore {
        /// The schema.
        schema: String,
    },
    /// The tables would have to be brought up to date first.
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
    /// The database cannot hold every text.
    #[error("the database is encoded as {0}: make one that is UTF8, as with createdb -E UTF8 -T template0")]
    Encoding(String),
    /// A table, by its quoted name with that of the schema, is one that a crash empties.
    #[error(
        "table {0} is UNLOGGED, so that a crash empties it: make it safe, as with ALTER TABLE {0} SET LOGGED"
    )]
    Unlogged(String),
    /// A session does not take a setting on which the store relies.
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

/// The parameters that sqlx reads from an address, beside `options[name]`.
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

/// Refuses an address with parameters that are not known. Only a word before a `=` is named: anything else may be part of a
/// password, and so may all that precedes an `@`.
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
    /// Why no connection was made.
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

    /// Why the table of versions cannot be read, where that is about the table.
    pub(crate) fn reading(schema: &str, source: sqlx::Error) -> Result<Self, sqlx::Error> {
        match class_and_code(&source) {
            Some((_, "42501")) => Ok(Self::MayNotRead { schema: schema.to_owned(), source }),
            Some((_, "42703")) => Ok(Self::NoStore { schema: schema.to_owned() }),
            _ => Err(source),
        }
    }

    /// Why the tables were not brought to `version`.
    pub(crate) fn migrating(schema: &str, version: i64, source: sqlx::Error) -> Self {
        match class_and_code(&source) {
            Some((_, "42501")) => Self::MayNotCreate { schema: schema.to_owned(), source },
            Some((_, "25006")) => Self::ReadOnly { source },
            Some((_, "55P03")) => Self::Busy,
            _ => Self::Migrate { version, source },
        }
    }
}

/// What the database or the system says, without the driver's words around it.
fn message(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(database) => database.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Configuration(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// The class and the code that PostgreSQL gave an error (PostgreSQL, Appendix A).
fn class_and_code(error: &sqlx::Error) -> Option<(&str, &str)> {
    let code = error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?.code();
    Some((code.get(..2)?, code))
}

/// Classes of codes that tell of the environment rather than of a defect: connection exception, invalid authorization,
/// insufficient resources (a full disk), operator intervention (a shutdown), system error.
const ENVIRONMENTAL: [&str; 5] = ["08", "28", "53", "57", "58"];

/// Codes of other classes that do: read-only transaction, one that was idle too long, no such database, lock not
/// available, serialization failure, deadlock; no such schema, table or column, which a newer program has taken away; and
/// no privilege, which an operator has.
const ENVIRONMENTAL_CODES: [&str; 10] =
    ["25006", "25P03", "3D000", "55P03", "40001", "40P01", "3F000", "42P01", "42703", "42501"];

/// data_corrupted and index_corrupted.
const DAMAGED: [&str; 2] = ["XX001", "XX002"];

/// Says what a failed statement means to a caller of the store. Takes the error or a shared one, as its source.
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

/// Whether the connection is gone: the server was stopped, or what lies between is cut.
pub(crate) fn is_disconnected(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        _ => class_and_code(error)
            .is_some_and(|(class, code)| class == "08" || matches!(code, "57P01" | "57P02" | "57P03")),
    }
}

/// Whether the connection was found dead, rather than a server that does not answer: the same may be asked of another one
/// at once.
pub(crate) fn is_cut(error: &sqlx::Error) -> bool {
    let timed_out = matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut);
    is_disconnected(error) && !timed_out
}

/// Whether a transaction lost a race that the database noticed: the same again may succeed.
pub(crate) fn is_lost_race(error: &sqlx::Error) -> bool {
    is_serialization_failure(error) || class_and_code(error).is_some_and(|(_, code)| code == "23505")
}

/// Whether transactions got into each other's way, a deadlock too: nothing was written, the same again may succeed.
pub(crate) fn is_serialization_failure(error: &sqlx::Error) -> bool {
    class_and_code(error).is_some_and(|(class, _)| class == "40")
}

/// Whether the server may only be read from: it was demoted, or told so.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    class_and_code(error).is_some_and(|(_, code)| code == "25006")
}

/// Classes of codes that no row causes: connection exception, invalid authorization, transaction rollback, operator
/// intervention (a shutdown, a timeout), system error.
const OF_NO_ROW: [&str; 5] = ["08", "28", "40", "57", "58"];

/// Codes of other classes: read-only transaction, no such database, full disk, too many connections, lock not available,
/// no such schema, table or column, no privilege.
const OF_NO_ROW_CODES: [&str; 9] =
    ["25006", "3D000", "53100", "53300", "55P03", "3F000", "42P01", "42703", "42501"];

/// The code of a statement that was cancelled at its timeout.
const TOOK_TOO_LONG: &str = "57014";

/// Whether one write of the group may be the cause, so that halving it helps. Whatever PostgreSQL says counts, unless no
/// row can be the reason: a list of what a row can cause would never be complete. A statement that took too long may
/// have done so for one large write.
pub(crate) fn may_be_row_error(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(_) => class_and_code(error).is_none_or(|(class, code)| {
            code == TOOK_TOO_LONG || !OF_NO_ROW.contains(&class) && !OF_NO_ROW_CODES.contains(&code)
        }),
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Encode(_) => true,
        _ => false,
    }
}

/// A statement took longer than a store waits.
pub(crate) fn timed_out() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}

/// The user has no privileges any more that writing takes.
#[derive(Debug, thiserror::Error)]
#[error(
    "the database's user may not {privilege} in table {table} any more: GRANT {privilege} ON {table} TO it"
)]
pub(crate) struct MayNotWrite {
    /// Its name with that of the schema, quoted.
    pub(crate) table: String,
    /// What it needs.
    pub(crate) privilege: String,
}

impl From<MayNotWrite> for StoreError {
    fn from(refused: MayNotWrite) -> Self {
        Self::Unavailable(refused.into())
    }
}
