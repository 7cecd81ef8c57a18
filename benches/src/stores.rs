//! The stores of the figures: a file, and a PostgreSQL server for this run with production settings.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evidence_core::Store;
use evidence_store_postgres::sqlx::{self, Connection as _, PgConnection};
use evidence_store_postgres::{Options, PostgresStore};
use evidence_store_sqlite::{Sqlite, SqliteStore};
use evidence_test_postgres::{Cluster, Durability, Programs};
use tempfile::TempDir;

use crate::Result;

/// The database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// SQLite, WAL, `synchronous=FULL`.
    Sqlite,
    /// PostgreSQL, `fsync` and `synchronous_commit` on.
    Postgres,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// A factory of new stores. Dropping it removes everything.
#[derive(Debug)]
pub struct Stores {
    // Declared before its directory, because fields are dropped in order.
    cluster: Option<(Cluster, Programs)>,
    directory: TempDir,
}

impl Stores {
    /// Creates a directory below `parent`, and a PostgreSQL server if the machine has its programs.
    ///
    /// # Errors
    /// If the directory cannot be created or the server does not start.
    pub fn below(parent: &str) -> Result<Self> {
        let directory = tempfile::tempdir_in(parent)?;
        let cluster = match Programs::find() {
            Ok(programs) => {
                let cluster =
                    Cluster::start(&programs, &directory.path().join("postgres"), Durability::Full)?;
                Some((cluster, programs))
            }
            Err(missing) => {
                println!("the figures on PostgreSQL are left out: {missing}");
                None
            }
        };
        Ok(Self { cluster, directory })
    }

    /// Returns the available engines.
    pub fn engines(&self) -> Vec<Engine> {
        let postgres = self.cluster.as_ref().map(|_| Engine::Postgres);
        [Engine::Sqlite].into_iter().chain(postgres).collect()
    }

    /// Returns the path of this name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the address of the server's default database, and the directory of its programs.
    ///
    /// # Errors
    /// If there is no server.
    pub fn postgres(&self) -> Result<(String, &Path)> {
        let (cluster, programs) = self.cluster.as_ref().ok_or("no PostgreSQL")?;
        Ok((cluster.url("postgres"), programs.directory()))
    }

    /// Returns the arguments with which the standalone server serves the store of this name.
    ///
    /// # Errors
    /// If the engine is not available.
    pub fn arguments(&self, engine: Engine, name: &str) -> Result<Vec<String>> {
        Ok(match engine {
            Engine::Sqlite => {
                vec!["--database-url".to_owned(), format!("sqlite://{}", self.path(name).display())]
            }
            Engine::Postgres => {
                let (url, _) = self.postgres()?;
                ["--database-url", &url, "--database-schema", name].map(str::to_owned).into()
            }
        })
    }

    /// Returns the size of the store of this name on disk: SQLite's file with its log, or PostgreSQL's tables
    /// with their indexes.
    ///
    /// # Errors
    /// If it cannot be measured.
    pub async fn bytes(&self, engine: Engine, name: &str) -> Result<u64> {
        Ok(match engine {
            Engine::Sqlite => {
                let size = |name: &str| self.path(name).metadata().map_or(0, |file| file.len());
                size(name) + size(&format!("{name}-wal"))
            }
            Engine::Postgres => {
                let (url, _) = self.postgres()?;
                let mut connection = PgConnection::connect(&url).await?;
                let sizes = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
                    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";
                let bytes: i64 = sqlx::query_scalar(sizes).bind(name).fetch_one(&mut connection).await?;
                connection.close().await?;
                u64::try_from(bytes)?
            }
        })
    }

    /// Runs PostgreSQL's maintenance now, which otherwise follows within a minute after filling: vacuum,
    /// analyze, checkpoint.
    ///
    /// # Errors
    /// If it fails.
    pub async fn settle(&self, engine: Engine) -> Result {
        if engine == Engine::Postgres {
            let (url, _) = self.postgres()?;
            let mut connection = PgConnection::connect(&url).await?;
            for command in ["VACUUM (ANALYZE)", "CHECKPOINT"] {
                sqlx::query(command).execute(&mut connection).await?;
            }
            connection.close().await?;
        }
        Ok(())
    }

    /// Opens the store of this name. Creates it if necessary.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub async fn open(&self, engine: Engine, name: &str) -> Result<AnyStore> {
        Ok(match engine {
            Engine::Sqlite => AnyStore::Sqlite(Arc::new(Sqlite::open(self.path(name)).await?)),
            Engine::Postgres => {
                let options = Options { schema: name.to_owned(), ..Options::default() };
                let (url, _) = self.postgres()?;
                AnyStore::Postgres(Arc::new(PostgresStore::connect_with(&url, &options).await?))
            }
        })
    }
}

/// An open store.
#[derive(Debug, Clone)]
pub enum AnyStore {
    /// SQLite, in a file.
    Sqlite(Arc<SqliteStore>),
    /// PostgreSQL, in a schema.
    Postgres(Arc<PostgresStore>),
}

impl AnyStore {
    /// Returns it as the service's store.
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::clone(store) as _,
            Self::Postgres(store) => Arc::clone(store) as _,
        }
    }

    /// Closes its connections.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => store.close().await,
        }
    }
}
