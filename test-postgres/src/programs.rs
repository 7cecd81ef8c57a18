//! Finds the server's programs, and the user who runs them: the server refuses to run as root.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest version that the store supports.
const MIN_VERSION: u32 = 15;

/// The programs that a directory must have.
const NEEDED: [&str; 4] = ["initdb", "pg_ctl", "postgres", "psql"];

/// The directories in which packages install versions side by side: Debian, Red Hat, Homebrew on both
/// processors, Postgres.app. The star stands for the rest of a directory's name.
const INSTALL_DIRECTORIES: [&str; 6] = [
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
];

/// The users who may run the server if the caller is root, by preference: that of packages, that of macOS,
/// any.
const SERVER_USERS: [&str; 3] = ["postgres", "_postgres", "nobody"];

/// The programs of one installation of PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    version: u32,
    directory: PathBuf,
    server_user: Option<Account>,
}

/// A user and a group, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    user: u32,
    group: u32,
}

impl Programs {
    /// Returns the newest suitable installation on this machine.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn find() -> io::Result<Self> {
        let installed =
            candidates().into_iter().filter_map(|directory| Some((version(&directory)?, directory)));
        let (version, directory) =
            installed.filter(|(version, _)| *version >= MIN_VERSION).max().ok_or_else(|| {
                io::Error::other(format!(
                    "PostgreSQL {MIN_VERSION} or newer is not installed on this machine"
                ))
            })?;
        Ok(Self { version, directory, server_user: server_user()? })
    }

    /// Returns the major version.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Returns the directory of the programs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns a command that runs one of the programs as a user who may run a server.
    pub(crate) fn command(&self, name: &str) -> Command {
        self.as_server_user(self.directory.join(name))
    }

    /// Returns a command that runs any program as that user.
    pub(crate) fn as_server_user(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        // That user may have no access to the current directory.
        command.current_dir("/").stdin(Stdio::null());
        if let Some(Account { user, group }) = self.server_user {
            command.uid(user).gid(group);
        }
        command
    }

    /// Makes that user the owner of a directory. Returns whether the user can access it.
    pub(crate) fn hand_over(&self, directory: &Path) -> io::Result<bool> {
        if let Some(Account { user, group }) = self.server_user {
            chown(directory, Some(user), Some(group))?;
        }
        let reach = self.as_server_user("sh").args(["-c", "test -w \"$0\""]).arg(directory).status()?;
        Ok(reach.success())
    }
}

/// Returns all directories that may have the programs.
fn candidates() -> Vec<PathBuf> {
    let configured = output(Command::new("pg_config").arg("--bindir")).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = INSTALL_DIRECTORIES.iter().flat_map(|pattern| matching(pattern));
    configured.into_iter().chain(std::env::split_paths(&path)).chain(usual).collect()
}

/// Returns the directories that match a pattern with one star.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else { return Vec::new() };
    let Some((parent, prefix)) = before.rsplit_once('/') else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let named = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with(prefix));
    entries
        .filter_map(Result::ok)
        .filter(|entry| named(&entry.file_name()))
        .map(|entry| entry.path().join(after.trim_start_matches('/')))
        .collect()
}

/// Returns the major version of the programs in this directory, if it has all of them.
fn version(directory: &Path) -> Option<u32> {
    let complete = NEEDED.iter().all(|name| directory.join(name).is_file());
    complete
        .then(|| output(Command::new(directory.join("postgres")).arg("--version")))?
        .and_then(|text| major(&text))
}

/// Returns the major version in a text such as `postgres (PostgreSQL) 15.18 (Debian 15.18-1)`.
fn major(text: &str) -> Option<u32> {
    let number = text.split_once("(PostgreSQL) ")?.1;
    number.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Returns the user who runs the server if the caller is root; otherwise `None`.
fn server_user() -> io::Result<Option<Account>> {
    if id("-u", None) != Some(0) {
        return Ok(None);
    }
    let account = |name| Some(Account { user: id("-u", Some(name))?, group: id("-g", Some(name))? });
    let found = SERVER_USERS.into_iter().find_map(account);
    found
        .map(Some)
        .ok_or_else(|| io::Error::other("root may not run PostgreSQL and there is no user 'postgres'"))
}

fn id(what: &str, name: Option<&str>) -> Option<u32> {
    output(Command::new("id").arg(what).args(name))?.parse().ok()
}

/// Returns the output of a program, if it succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read() {
        for (text, expected) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", Some(15)),
            ("postgres (PostgreSQL) 17beta1", Some(17)),
            ("postgres (PostgreSQL) 9.6.24", Some(9)),
            ("postgres (Homebrew)", None),
        ] {
            assert_eq!(major(text), expected, "{text}");
        }
    }

    #[test]
    fn a_star_stands_for_the_rest_of_a_name() {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/sr*/lib.rs");
        assert_eq!(matching(sources), [Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")]);
        assert_eq!(matching("/no/such/place-*/bin"), Vec::<PathBuf>::new());
    }
}
