//! The command line: commands, options and their environment variables.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use evidence_core::actions::egress::IpRange;
use evidence_core::api_keys::KeyDescription;
use evidence_core::auth::Role;
use evidence_core::background::LEASE;
use evidence_core::id::Id;
use evidence_core::limits::InvalidLimit;
use evidence_core::name::OrgName;
use evidence_core::sweep::Sweep;
use evidence_core::{Limits, Wording};
use evidence_notify::SigningKey;

const DEFAULT_SCHEMA: &str = "evidence";

const DEFAULT_CONNECTIONS: u32 = 8;

/// Records software delivery evidence and serves it over HTTP.
#[derive(Debug, Parser)]
#[command(name = "evidence-server", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeOptions,
}

/// Commands without a database, or with other options for it.
const WITHOUT_DATABASE: [&str; 4] = ["copy", "demo", "openapi", "verify"];

impl Cli {
    /// Parses the arguments; the default command is `serve`. Options of the database may precede the command,
    /// all others follow it.
    pub(crate) fn read(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Command, clap::Error> {
        let mut interface = Self::command();
        let matches = interface.try_get_matches_from_mut(arguments)?;
        if let Some((command, _)) = matches.subcommand() {
            let is_given = |option: &&Arg| {
                matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine)
            };
            let misplaced = |option: &&Arg| {
                is_given(option) && (!option.is_global_set() || WITHOUT_DATABASE.contains(&command))
            };
            let misplaced = interface.get_arguments().find(misplaced);
            if let Some(option) = misplaced.and_then(|option| option.get_long().map(str::to_owned)) {
                let text = if WITHOUT_DATABASE.contains(&command) {
                    format!("'{command}' does not use the option '--{option}'")
                } else {
                    format!("the option '--{option}' should stand after '{command}', if that has it")
                };
                return Err(interface.error(ErrorKind::ArgumentConflict, text));
            }
        }
        let cli = Self::from_arg_matches(&matches)?;
        Ok(cli.command.unwrap_or(Command::Serve(cli.serve)))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the API (default)
    Serve(ServeOptions),
    /// Fill a new database from the git repository of this directory, and serve it
    Demo(DemoOptions),
    /// Create a user, shared organizations and an API key, and print the key
    Seed(SeedOptions),
    /// Create and list users
    #[command(subcommand)]
    User(UserCommand),
    /// Create and list organizations
    #[command(subcommand)]
    Org(OrgCommand),
    /// Manage the members of a shared organization. Running servers follow within a second
    #[command(subcommand)]
    Member(MemberCommand),
    /// Create, revoke and list the API keys of a user. Running servers follow within a second
    #[command(subcommand)]
    Key(KeyCommand),
    /// Manage notifications
    #[command(subcommand)]
    Notifications(NotificationsCommand),
    /// Show or correct the ledger of an organization
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Verify all ledgers, tables and attachments. Prints each problem, and the size and root of each ledger.
    ///
    /// Recomputes everything from the ledgers and compares it with the store. The store must exist in the
    /// version of this program.
    Fsck(FsckOptions),
    /// Copy a store into another one, for example from SQLite to PostgreSQL.
    ///
    /// Creates the target if it does not exist. A repeated run continues where the last one stopped.
    Copy(CopyOptions),
    /// Verify an audit package, without a server. Exits with 0 if it holds, 1 if not, and 2 if it cannot be read
    Verify(VerifyOptions),
    /// Print the OpenAPI document
    Openapi,
}

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) api: ApiOptions,
    /// The location of attachments: file:///directory, or s3://bucket/prefix (feature `s3`). Default: in the
    /// database.
    #[arg(long, env = "EVIDENCE_ATTACHMENTS", value_name = "URL")]
    pub(crate) attachments: Option<String>,
    #[command(flatten)]
    pub(crate) ledger: LedgerOptions,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyOptions {
    /// The package: a tar, also in gzip.
    pub(crate) package: PathBuf,
    /// A file with the verifier keys of the logs that you trust, one per line, as in the package's `keys.txt`. Repeatable.
    #[arg(long = "key", value_name = "FILE")]
    pub(crate) keys: Vec<PathBuf>,
    /// A file with the logs and witnesses that you trust (C2SP tlog-policy).
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    pub(crate) policy: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerOptions {
    /// The directory with the key that signs the checkpoints of ledgers, and with what was signed last. Created if missing.
    /// Keep it outside of backups of the database. All servers of a database share it. Default: the file of an SQLite
    /// database with `-ledger`; none for PostgreSQL, and then no checkpoint is signed.
    #[arg(long, env = "EVIDENCE_LEDGER_DIR", value_name = "DIRECTORY")]
    pub(crate) ledger_dir: Option<PathBuf>,
    /// The name of the ledgers in their checkpoints, such as `evidence.example.com`. Default: the public address without
    /// its scheme. Once the directory exists, the name in it holds.
    #[arg(long, env = "EVIDENCE_LEDGER_NAME", value_name = "NAME")]
    pub(crate) ledger_name: Option<String>,
    /// The file of the key: Ed25519 in PKCS#8 (PEM). Default: `key.pem` in the directory, created if missing.
    #[arg(long, env = "EVIDENCE_LEDGER_KEY", value_name = "FILE")]
    pub(crate) ledger_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StoreOptions {
    /// The database: sqlite://FILE, or postgres://USER:PASSWORD@HOST/DATABASE.
    #[arg(
        long,
        global = true,
        env = "EVIDENCE_DATABASE_URL",
        value_name = "URL",
        default_value = "sqlite://evidence.db",
        hide_env_values = true
    )]
    pub(crate) database_url: String,
    /// The schema for the tables in a PostgreSQL database. Created by `serve` and `seed` if missing.
    #[arg(
        long,
        global = true,
        env = "EVIDENCE_DATABASE_SCHEMA",
        value_name = "NAME",
        default_value = DEFAULT_SCHEMA
    )]
    pub(crate) database_schema: String,
    /// The maximum number of connections for reading from a PostgreSQL database. One more is for writing.
    #[arg(
        long,
        global = true,
        env = "EVIDENCE_DATABASE_CONNECTIONS",
        value_name = "NUMBER",
        default_value_t = DEFAULT_CONNECTIONS,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub(crate) database_connections: u32,
}

#[derive(Debug, Args)]
pub(crate) struct FsckOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Rebuild all tables from the ledgers first, unless a ledger is damaged. Other writers wait meanwhile.
    #[arg(long)]
    pub(crate) rebuild: bool,
    /// The location of attachments, as for `serve`. Each attachment is read and compared with its digest.
    #[arg(long, env = "EVIDENCE_ATTACHMENTS", value_name = "URL")]
    pub(crate) attachments: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CopyOptions {
    /// The store to copy. It must exist in the version of this program.
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,
    /// The schema of its tables in a PostgreSQL database.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SCHEMA)]
    pub(crate) from_schema: String,
    /// The store to copy to.
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    /// The schema for its tables in a PostgreSQL database. Created if missing.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SCHEMA)]
    pub(crate) to_schema: String,
    /// The location of the source's attachments, as for `serve`.
    #[arg(long, value_name = "URL")]
    pub(crate) from_attachments: Option<String>,
    /// The location for the target's attachments, as for `serve`. Default: in the target database.
    #[arg(long, value_name = "URL")]
    pub(crate) to_attachments: Option<String>,
}

impl CopyOptions {
    /// Returns the store to copy.
    pub(crate) fn source(&self) -> StoreOptions {
        StoreOptions::at(&self.from, &self.from_schema)
    }

    /// Returns the store to copy to.
    pub(crate) fn target(&self) -> StoreOptions {
        StoreOptions::at(&self.to, &self.to_schema)
    }
}

impl StoreOptions {
    fn at(url: &str, schema: &str) -> Self {
        Self {
            database_url: url.to_owned(),
            database_schema: schema.to_owned(),
            database_connections: DEFAULT_CONNECTIONS,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ApiOptions {
    /// The address to listen on. Port 0 selects a free port.
    #[arg(long, env = "EVIDENCE_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8001")]
    pub(crate) listen: SocketAddr,
    /// The maximum number of open connections. Others wait until one ends.
    #[arg(
        long,
        env = "EVIDENCE_MAX_CONNECTIONS",
        value_name = "NUMBER",
        default_value_t = 10_000,
        value_parser = connections
    )]
    pub(crate) max_connections: usize,
    /// The public address of the server, used in links. Default: http://localhost with the port.
    #[arg(long, env = "EVIDENCE_PUBLIC_URL", value_name = "URL", value_parser = public_url)]
    pub(crate) public_url: Option<String>,
    /// The wording of errors about missing records: as documented, or as the public command-line client
    /// expects.
    #[arg(long, env = "EVIDENCE_WORDING", value_enum, default_value_t)]
    pub(crate) wording: WordingOption,
    /// Whether a report to an unknown flow creates the flow.
    #[arg(long, env = "EVIDENCE_IMPLICIT_FLOWS", value_enum, default_value_t)]
    pub(crate) implicit_flows: Switch,

    /// Sets a limit of requests, such as file=200MiB. Repeatable. `--help` lists the limits and their
    /// defaults.
    #[arg(
        long = "limit",
        env = "EVIDENCE_LIMITS",
        value_name = "NAME=SIZE",
        value_delimiter = ',',
        value_parser = limit,
        long_help = limits_help()
    )]
    pub(crate) limits: Vec<String>,
    /// The minimum number of seconds between two recorded reports of an unchanged environment.
    #[arg(long, env = "EVIDENCE_HEARTBEAT_SECONDS", value_name = "SECONDS", default_value_t = 60)]
    pub(crate) heartbeat_seconds: u64,
    /// The number of hours after which an unreferenced attachment is deleted, for example one whose upload
    /// was interrupted.
    #[arg(
        long = "sweep-after-hours",
        env = "EVIDENCE_SWEEP_AFTER_HOURS",
        value_name = "HOURS",
        default_value = "24",
        value_parser = sweep
    )]
    pub(crate) sweep: Sweep,
    /// The lease duration in seconds. Another server takes over background work this long after a crash.
    #[arg(
        long,
        env = "EVIDENCE_LEASE_SECONDS",
        value_name = "SECONDS",
        default_value_t = LEASE.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=600)
    )]
    pub(crate) lease_seconds: u64,
    #[command(flatten)]
    pub(crate) notify: NotifyOptions,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

impl ApiOptions {
    /// Returns the limits of requests.
    pub(crate) fn limits(&self) -> Result<Limits, InvalidLimit> {
        let mut limits = Limits::default();
        self.limits.iter().try_for_each(|assignment| limits.set(assignment))?;
        limits.check()?;
        Ok(limits)
    }
}

#[derive(Debug, Args)]
pub(crate) struct NotifyOptions {
    /// The secret from which the signing secrets of organizations and the key for the URLs of webhooks in the database
    /// are derived: 32 bytes or more, the same on every server. Without it, webhooks are not signed and their URLs are
    /// not encrypted. With another one, URLs that are encrypted cannot be read, and have to be sent again.
    #[arg(
        long,
        env = "EVIDENCE_WEBHOOK_SECRET",
        value_name = "TEXT",
        hide_env_values = true,
        value_parser = signing_key
    )]
    pub(crate) webhook_secret: Option<SigningKey>,
    /// A range of private addresses, such as 10.0.0.0/8, to which webhooks may be sent, also over http and
    /// with any host name. Repeatable.
    #[arg(long = "notify-allow", env = "EVIDENCE_NOTIFY_ALLOW", value_name = "RANGE", value_delimiter = ',')]
    pub(crate) allowed: Vec<IpRange>,
    /// The mail server: smtps://USER:PASSWORD@HOST, or smtp://HOST:PORT?tls=required. Without it, no mail is
    /// sent.
    #[arg(
        long,
        env = "EVIDENCE_SMTP_URL",
        value_name = "URL",
        hide_env_values = true,
        requires = "mail_from"
    )]
    pub(crate) smtp_url: Option<String>,
    /// The sender of mails.
    #[arg(long, env = "EVIDENCE_MAIL_FROM", value_name = "ADDRESS")]
    pub(crate) mail_from: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NotificationsCommand {
    /// Print the secret with which receivers verify the webhooks of an organization
    Secret {
        org: OrgName,
        /// The secret, as for `serve`.
        #[arg(
            long,
            env = "EVIDENCE_WEBHOOK_SECRET",
            value_name = "TEXT",
            hide_env_values = true,
            value_parser = signing_key
        )]
        webhook_secret: SigningKey,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Send the events of an action to its targets again, with their original ids
    Replay {
        org: OrgName,
        /// The number of the action.
        number: u64,
        /// The time of the first event, in epoch seconds.
        #[arg(long, value_name = "SECONDS")]
        since: i64,
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// Correct a ledger whose newest entries were dated by a clock that was ahead.
    ///
    /// Records the correction. These entries stay unchanged, but count as recorded now. Later entries have
    /// the true time. Correct the clocks of all servers first.
    EndFuture {
        org: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Name the ledgers anew, after a database was restored from a backup that is older than its signed checkpoints.
    ///
    /// Checkpoints of the new name need not extend those of the former name. The last of these is recorded in each ledger.
    /// Stop all servers first.
    NewOrigin {
        /// The new name, such as `evidence.example.com/2`.
        name: String,
        #[command(flatten)]
        host: HostOptions,
        /// The directory with the key, as for `serve`.
        #[arg(long, env = "EVIDENCE_LEDGER_DIR", value_name = "DIRECTORY")]
        ledger_dir: Option<PathBuf>,
        /// The file of the key, as for `serve`.
        #[arg(long, env = "EVIDENCE_LEDGER_KEY", value_name = "FILE")]
        ledger_key: Option<PathBuf>,
    },
    /// Print the number of entries and the root of a ledger, separated by a space.
    ///
    /// Store them elsewhere to verify later that the ledger was not changed.
    Root {
        org: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LogOptions {
    /// The format of the log on standard error.
    #[arg(long, env = "EVIDENCE_LOG", value_enum, default_value_t)]
    pub(crate) log: LogFormat,
    /// The log filter, such as `debug` or `info,evidence_tower=debug`.
    #[arg(long, env = "EVIDENCE_LOG_FILTER", value_name = "FILTER", default_value = "info")]
    pub(crate) log_filter: String,
}

#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    #[command(flatten)]
    pub(crate) api: ApiOptions,
}

#[derive(Debug, Args)]
pub(crate) struct SeedOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// The user. The personal organization has the same name.
    #[arg(long, env = "EVIDENCE_USER", value_name = "NAME")]
    pub(crate) user: OrgName,
    /// A shared organization that the user administers. Repeatable.
    #[arg(long = "org", env = "EVIDENCE_ORG", value_name = "NAME", value_delimiter = ',')]
    pub(crate) orgs: Vec<OrgName>,
    /// The key to use instead of a new one.
    #[arg(long, env = "EVIDENCE_API_KEY", value_name = "TEXT", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
}

/// The store and the operator.
#[derive(Debug, Args)]
pub(crate) struct HostOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// The name of the operator, which the ledger records.
    #[arg(long, env = "EVIDENCE_OPERATOR", value_name = "NAME", default_value = "host")]
    pub(crate) operator: OrgName,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Create a user, and the personal organization of the same name
    Add {
        name: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Print the names of all users
    List {
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum OrgCommand {
    /// Create a shared organization
    Add {
        name: OrgName,
        /// The user who administers it.
        #[arg(long, value_name = "USER")]
        owner: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Print the names of all organizations, including personal ones
    List {
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Set the role of a user
    Set {
        org: OrgName,
        user: OrgName,
        role: RoleOption,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Remove a member. The member's service accounts stay
    Remove {
        org: OrgName,
        user: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Print the members: a name and a role per line
    List {
        org: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key and print it. It is shown only once
    Add {
        user: OrgName,
        /// The purpose of the key.
        #[arg(long, value_name = "TEXT", default_value = "made by an operator")]
        description: KeyDescription,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Revoke a key by its id
    Revoke {
        user: OrgName,
        id: Id,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Print the valid keys, oldest first: an id and a description per line
    List {
        user: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum RoleOption {
    Reader,
    Snapshotter,
    Member,
    Admin,
}

impl From<RoleOption> for Role {
    fn from(option: RoleOption) -> Self {
        match option {
            RoleOption::Reader => Self::Reader,
            RoleOption::Snapshotter => Self::Snapshotter,
            RoleOption::Member => Self::Member,
            RoleOption::Admin => Self::Admin,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum WordingOption {
    #[default]
    Documented,
    Named,
}

impl From<WordingOption> for Wording {
    fn from(option: WordingOption) -> Self {
        match option {
            WordingOption::Documented => Self::Documented,
            WordingOption::Named => Self::Named,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    #[default]
    On,
    Off,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

fn sweep(hours: &str) -> Result<Sweep, String> {
    let hours: u32 = hours.parse().map_err(|_| "it must be a whole number of hours".to_owned())?;
    let grace = Duration::from_secs(u64::from(hours) * 60 * 60);
    Sweep::after(grace).map_err(|error| error.to_string())
}

/// Checks the assignment of a limit.
fn limit(assignment: &str) -> Result<String, InvalidLimit> {
    Limits::default().set(assignment).map(|()| assignment.to_owned())
}

fn limits_help() -> String {
    let mut help = "Sets a limit of requests; repeatable. A size may end in KiB, MiB or GiB. EVIDENCE_LIMITS takes \
                    several, separated by commas. Callers see the limits at GET /api/v2/limits. The limits and their \
                    defaults:\n"
        .to_owned();
    for limit in Limits::default().all() {
        help.push_str(&format!("\n{limit}"));
    }
    help
}

fn signing_key(text: &str) -> Result<SigningKey, String> {
    SigningKey::new(text).ok_or_else(|| format!("it must have {} bytes or more", SigningKey::LEAST))
}

fn connections(text: &str) -> Result<usize, &'static str> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or("it must be a number from 1 to 1000000")
}

fn public_url(text: &str) -> Result<String, &'static str> {
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match host.map(|host| host.trim_end_matches('/')) {
        Some(host) if !host.is_empty() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("it must begin with http:// or https:// and a host"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_means_serve() {
        let command = Cli::read(["evidence-server", "--listen", "127.0.0.1:0"]).unwrap();
        assert!(matches!(command, Command::Serve(options) if options.api.listen.port() == 0));
    }

    /// Returns the database of a command.
    fn database(command: Command) -> StoreOptions {
        match command {
            Command::Serve(options) => options.store,
            Command::Seed(options) => options.store,
            Command::Fsck(options) => options.store,
            Command::User(UserCommand::Add { host, .. } | UserCommand::List { host }) => host.store,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_database_is_named_before_or_after_the_command() {
        let table = [
            "--database-url sqlite://a.db --database-schema b --database-connections 3",
            "--database-url sqlite://a.db --database-schema b --database-connections 3 serve",
            "serve --database-url sqlite://a.db --database-schema b --database-connections 3",
            "--database-url=sqlite://a.db serve --database-schema b --database-connections 3",
            "--database-url sqlite://a.db seed --user jane --database-schema b --database-connections 3",
            "--database-url sqlite://a.db --database-schema b --database-connections 3 seed --user jane",
            "--database-schema b --database-connections 3 fsck --rebuild --database-url sqlite://a.db",
            "--database-url sqlite://a.db --database-schema b --database-connections 3 user add jane",
            "user --database-url sqlite://a.db --database-schema b --database-connections 3 list",
            "user list --database-url sqlite://a.db --database-schema b --database-connections 3",
            "--database-url sqlite://b.db user list --database-url sqlite://a.db --database-schema b --database-connections 3",
        ];
        for line in table {
            let arguments = std::iter::once("evidence-server").chain(line.split(' '));
            let store = database(Cli::read(arguments).unwrap_or_else(|error| panic!("{line}: {error}")));
            let named =
                (store.database_url.as_str(), store.database_schema.as_str(), store.database_connections);
            assert_eq!(named, ("sqlite://a.db", "b", 3), "{line}");
        }
    }

    #[test]
    fn an_option_without_effect_is_refused() {
        let table = [
            ("--listen 127.0.0.1:0 serve", "'--listen' should stand after 'serve'"),
            ("--listen 127.0.0.1:0 seed --user jane", "'--listen' should stand after 'seed'"),
            ("--database-url sqlite://a.db openapi", "'openapi' does not use the option '--database-url'"),
            ("demo --database-url sqlite://a.db", "'demo' does not use the option '--database-url'"),
            ("--database-schema a copy --from sqlite://a --to sqlite://b", "'copy' does not use the option"),
            ("user list --listen 127.0.0.1:0", "unexpected argument '--listen'"),
        ];
        for (line, expected) in table {
            let arguments = std::iter::once("evidence-server").chain(line.split(' '));
            let refusal = Cli::read(arguments).unwrap_err().to_string();
            assert!(refusal.contains(expected), "{line}: {refusal}");
        }
    }

    #[test]
    fn attachments_are_not_swept_while_a_record_may_come_to_name_them() {
        let swept = |hours| Cli::try_parse_from(["evidence-server", "--sweep-after-hours", hours]);
        for hours in ["2", "24", "4294967295"] {
            assert!(swept(hours).is_ok(), "{hours}");
        }
        for hours in ["0", "1", "1.5", ""] {
            let refusal = swept(hours).unwrap_err().to_string();
            assert!(refusal.contains("--sweep-after-hours"), "{refusal}");
        }
        assert!(swept("1").unwrap_err().to_string().contains("cannot be swept after 3600 seconds"));
    }

    #[test]
    fn every_limit_is_an_option_that_the_help_lists() {
        let help = Cli::try_parse_from(["evidence-server", "serve", "--help"]).unwrap_err().to_string();
        for limit in Limits::default().all() {
            let shown = format!("{}={}: ", limit.name, limit.shown_default());
            assert!(help.contains(&shown), "{shown} is not in\n{help}");
        }
        let limits = |arguments: &[&str]| {
            let command = Cli::read(["evidence-server"].iter().chain(arguments));
            let Command::Serve(options) = command.map_err(|error| error.to_string())? else {
                panic!("serve")
            };
            options.api.limits().map_err(|error| error.to_string())
        };
        let set = limits(&["--limit", "file=1MiB,form=96MiB", "--limit", "tags=7"]).unwrap();
        assert_eq!(set, Limits { file: 1 << 20, form: 96 << 20, tags: 7, ..Limits::default() });
        assert_eq!(limits(&[]), Ok(Limits::default()));
        for (assignment, refused) in [
            ("fiel=1MiB", "there is no limit 'fiel'; the limits are url, body"),
            ("file=a lot", "the limit 'file' should be a number of bytes"),
            ("tags=1MiB", "the limit 'tags' should be a whole number"),
            ("file", "'file' should be NAME=SIZE"),
            ("file=1GiB", "the limit 'form' (256MiB) should be at least the limit 'file' (1GiB)"),
        ] {
            let told = limits(&["--limit", assignment]).unwrap_err();
            assert!(told.contains(refused), "{told}");
        }
    }

    #[test]
    fn a_public_url_has_a_scheme_a_host_and_no_trailing_slash() {
        assert_eq!(
            public_url("https://evidence.example/base/"),
            Ok("https://evidence.example/base".to_owned())
        );
        for bad in ["evidence.example", "https://", "ftp://evidence.example", ""] {
            assert!(public_url(bad).is_err(), "{bad}");
        }
    }
}
