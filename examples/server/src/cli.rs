//! The command line: commands, options and their environment variables. Nothing is done here.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use evidence_core::api_keys::KeyDescription;
use evidence_core::auth::Role;
use evidence_core::background::LEASE;
use evidence_core::id::Id;
use evidence_core::limits::InvalidLimit;
use evidence_core::name::OrgName;
use evidence_core::rules::egress::IpRange;
use evidence_core::sweep::Sweep;
use evidence_core::{Limits, Wording};
use evidence_notify::SigningKey;

const DEFAULT_SCHEMA: &str = "evidence";

const DEFAULT_CONNECTIONS: u32 = 8;

/// Keeps software delivery evidence and answers for it over HTTP.
#[derive(Debug, Parser)]
#[command(name = "evidence-server", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeOptions,
}

/// Commands that use no database, or that name theirs by other options.
const WITHOUT_DATABASE: [&str; 3] = ["copy", "demo", "openapi"];

impl Cli {
    /// The command of these arguments; `serve` if they name none. The options of the database stand before or after it, all
    /// others after it.
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
    /// Serve the API (the default).
    Serve(ServeOptions),
    /// Fill a fresh database from the git repository of this directory, and serve it.
    Demo(DemoOptions),
    /// Make a user, their organizations and an API key, and print the key.
    Seed(SeedOptions),
    /// Add and list users.
    #[command(subcommand)]
    User(UserCommand),
    /// Add and list organizations.
    #[command(subcommand)]
    Org(OrgCommand),
    /// Say who may do what in a shared organization. Running servers follow within a second.
    #[command(subcommand)]
    Member(MemberCommand),
    /// Make, revoke and list the API keys of a user. Running servers follow within a second.
    #[command(subcommand)]
    Key(KeyCommand),
    /// What receivers of notifications need.
    #[command(subcommand)]
    Notifications(NotificationsCommand),
    /// Show or correct the ledger of an organization.
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Recompute every ledger, and every table and attachment that follows from it, and compare them with what is stored.
    /// Prints each problem, then the size and the root of each ledger. The store must be there, in the version of this
    /// program.
    Fsck(FsckOptions),
    /// Copy a store into another one, which is made if it is not there: from SQLite to PostgreSQL, say. Begun again, it
    /// goes on where it stopped.
    Copy(CopyOptions),
    /// Print the OpenAPI document.
    Openapi,
}

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) api: ApiOptions,
    /// Where attachments are kept: file:///directory, s3://bucket/prefix (feature `s3`).
    /// Default: in the database.
    #[arg(long, env = "EVIDENCE_ATTACHMENTS", value_name = "URL")]
    pub(crate) attachments: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StoreOptions {
    /// The store: sqlite://FILE, or postgres://USER:PASSWORD@HOST/DATABASE.
    #[arg(
        long,
        global = true,
        env = "EVIDENCE_DATABASE_URL",
        value_name = "URL",
        default_value = "sqlite://evidence.db",
        hide_env_values = true
    )]
    pub(crate) database_url: String,
    /// The schema of a PostgreSQL database that holds the tables. Created by `serve` and `seed` if missing.
    #[arg(
        long,
        global = true,
        env = "EVIDENCE_DATABASE_SCHEMA",
        value_name = "NAME",
        default_value = DEFAULT_SCHEMA
    )]
    pub(crate) database_schema: String,
    /// The most connections for reading from a PostgreSQL database; one more is for writing.
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
    /// Make every table again from the ledgers first, unless one of them is damaged. Nobody writes meanwhile.
    #[arg(long)]
    pub(crate) rebuild: bool,
    /// Where attachments are kept, as for `serve`: each is read there and compared with its digest.
    #[arg(long, env = "EVIDENCE_ATTACHMENTS", value_name = "URL")]
    pub(crate) attachments: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CopyOptions {
    /// The store to copy; it must be there, in the version of this program.
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,
    /// The schema of its tables, in a PostgreSQL database.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SCHEMA)]
    pub(crate) from_schema: String,
    /// The store to copy to.
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    /// The schema of its tables, in a PostgreSQL database; created if missing.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SCHEMA)]
    pub(crate) to_schema: String,
    /// Where the attachments of the store to copy are, as for `serve`.
    #[arg(long, value_name = "URL")]
    pub(crate) from_attachments: Option<String>,
    /// Where to copy attachments to, as for `serve`. Default: in the target database.
    #[arg(long, value_name = "URL")]
    pub(crate) to_attachments: Option<String>,
}

impl CopyOptions {
    /// The store to copy.
    pub(crate) fn source(&self) -> StoreOptions {
        StoreOptions::at(&self.from, &self.from_schema)
    }

    /// The store to copy to.
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
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, env = "EVIDENCE_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8001")]
    pub(crate) listen: SocketAddr,
    /// The most connections that are open at a time; others wait until one ends.
    #[arg(
        long,
        env = "EVIDENCE_MAX_CONNECTIONS",
        value_name = "NUMBER",
        default_value_t = 10_000,
        value_parser = connections
    )]
    pub(crate) max_connections: usize,
    /// The address that people reach the server by, which links in answers begin with; http://localhost and the port
    /// when it is absent.
    #[arg(long, env = "EVIDENCE_PUBLIC_URL", value_name = "URL", value_parser = public_url)]
    pub(crate) public_url: Option<String>,
    /// The wording of errors about missing records: the documented one, or the one that users of the public command-line
    /// client know.
    #[arg(long, env = "EVIDENCE_WORDING", value_enum, default_value_t)]
    pub(crate) wording: WordingOption,
    /// Whether a report that names an unknown flow creates it.
    #[arg(long, env = "EVIDENCE_IMPLICIT_FLOWS", value_enum, default_value_t)]
    pub(crate) implicit_flows: Switch,

    /// Sets a limit of requests, such as file=200MiB; repeatable. `--help` lists the limits and their defaults.
    #[arg(
        long = "limit",
        env = "EVIDENCE_LIMITS",
        value_name = "NAME=SIZE",
        value_delimiter = ',',
        value_parser = limit,
        long_help = limits_help()
    )]
    pub(crate) limits: Vec<String>,
    /// The least number of seconds between two recorded reports of an environment in which nothing has changed.
    #[arg(long, env = "EVIDENCE_HEARTBEAT_SECONDS", value_name = "SECONDS", default_value_t = 60)]
    pub(crate) heartbeat_seconds: u64,
    /// After how many hours the content of an attachment is removed that no record came to name: it was refused, or its
    /// upload broke off.
    #[arg(
        long = "sweep-after-hours",
        env = "EVIDENCE_SWEEP_AFTER_HOURS",
        value_name = "HOURS",
        default_value = "24",
        value_parser = sweep
    )]
    pub(crate) sweep: Sweep,
    /// For how long a server that is gone holds up the background work, which another then does: seconds.
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
    /// The limits of requests.
    pub(crate) fn limits(&self) -> Result<Limits, InvalidLimit> {
        let mut limits = Limits::default();
        self.limits.iter().try_for_each(|assignment| limits.set(assignment))?;
        limits.check()?;
        Ok(limits)
    }
}

#[derive(Debug, Args)]
pub(crate) struct NotifyOptions {
    /// Signs webhooks, with a secret for each organization that is derived from this text: 32 bytes or more, the same on
    /// every server. Without it, webhooks are not signed.
    #[arg(
        long,
        env = "EVIDENCE_WEBHOOK_SECRET",
        value_name = "TEXT",
        hide_env_values = true,
        value_parser = signing_key
    )]
    pub(crate) webhook_secret: Option<SigningKey>,
    /// A range of addresses, as 10.0.0.0/8, that webhooks may be sent to though it is not reached over the internet; there
    /// also by http, and by any host name. Repeatable.
    #[arg(long = "notify-allow", env = "EVIDENCE_NOTIFY_ALLOW", value_name = "RANGE", value_delimiter = ',')]
    pub(crate) allowed: Vec<IpRange>,
    /// The mail server: smtps://USER:PASSWORD@HOST, or smtp://HOST:PORT?tls=required. Without it no mail is sent.
    #[arg(
        long,
        env = "EVIDENCE_SMTP_URL",
        value_name = "URL",
        hide_env_values = true,
        requires = "mail_from"
    )]
    pub(crate) smtp_url: Option<String>,
    /// From whom mails are.
    #[arg(long, env = "EVIDENCE_MAIL_FROM", value_name = "ADDRESS")]
    pub(crate) mail_from: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NotificationsCommand {
    /// Print the secret by which receivers of an organization's webhooks check their signatures.
    Secret {
        org: OrgName,
        /// As for `serve`.
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
    /// Have the targets of an action told its events again, each under the id that it had.
    Replay {
        org: OrgName,
        /// The action's number.
        number: u64,
        /// From when on, in epoch seconds.
        #[arg(long, value_name = "SECONDS")]
        since: i64,
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// Record that the clock which dated the newest entries of a ledger was ahead. These entries stay as they are and count as
    /// recorded now; later entries carry the true time again. Correct the clocks of all servers first.
    EndFuture {
        org: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Print the number of entries and the root of a ledger, with a space between. Kept elsewhere, they show later whether
    /// the ledger was changed.
    Root {
        org: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LogOptions {
    /// The format of the log, which goes to standard error.
    #[arg(long, env = "EVIDENCE_LOG", value_enum, default_value_t)]
    pub(crate) log: LogFormat,
    /// What is logged, such as `debug` or `info,evidence_tower=debug`.
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
    /// The user, and the name of the personal organization.
    #[arg(long, env = "EVIDENCE_USER", value_name = "NAME")]
    pub(crate) user: OrgName,
    /// A shared organization that the user administers; repeatable.
    #[arg(long = "org", env = "EVIDENCE_ORG", value_name = "NAME", value_delimiter = ',')]
    pub(crate) orgs: Vec<OrgName>,
    /// A key to take instead of a fresh one.
    #[arg(long, env = "EVIDENCE_API_KEY", value_name = "TEXT", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
}

/// The store, and who manages it.
#[derive(Debug, Args)]
pub(crate) struct HostOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Name recorded in the ledger as the actor, `operator:NAME`.
    #[arg(long, env = "EVIDENCE_OPERATOR", value_name = "NAME", default_value = "host")]
    pub(crate) operator: OrgName,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Make a user, and the personal organization of the same name.
    Add {
        name: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Print the names of all users.
    List {
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum OrgCommand {
    /// Make a shared organization.
    Add {
        name: OrgName,
        /// The user who administers it.
        #[arg(long, value_name = "USER")]
        owner: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Print the names of all organizations, personal ones too.
    List {
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Give a user a role instead of the one they have.
    Set {
        org: OrgName,
        user: OrgName,
        role: RoleOption,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Take a user's role away. The service accounts that they made stay.
    Remove {
        org: OrgName,
        user: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Print who has a role: a name and a role on each line.
    List {
        org: OrgName,
        #[command(flatten)]
        host: HostOptions,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key and print it: it is shown this once.
    Add {
        user: OrgName,
        /// What the key is for.
        #[arg(long, value_name = "TEXT", default_value = "made by an operator")]
        description: KeyDescription,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Revoke a key, by its id in the list.
    Revoke {
        user: OrgName,
        id: Id,
        #[command(flatten)]
        host: HostOptions,
    },
    /// Print the keys that work, oldest first: an id and a description on each line.
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

/// A limit that can be set as this says.
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

    /// The database of a command.
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
