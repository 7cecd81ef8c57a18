//! A temporary cluster, with its files and its socket in one directory that is removed with it.
//!
//! `pg_ctl` starts and stops the server and waits for the result. A separate process waits until this process
//! closes a pipe, because the [`Cluster`] was dropped or the process was killed. It then stops the server and
//! removes the files, so that no server outlives its test.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Programs;

/// Stops the server when the pipe ends. This process may lack permission to remove the directory itself;
/// `Drop` does that.
const GUARD: &str = r#"cat; "$1" -D "$2/data" -m immediate stop; rm -rf "$2""#;

/// The superuser, who needs no password. All other users do.
const SUPERUSER: &str = "postgres";
const ACCESS: &str = "local all postgres trust\nlocal all all scram-sha-256\n";

/// A locale that does not sort by bytes, so that a test fails if a statement lacks `COLLATE "C"`.
const LINGUISTIC: [&str; 2] = ["--locale-provider=icu", "--icu-locale=en-US"];

/// The file name of the server's socket.
const SOCKET: &str = ".s.PGSQL.5432";

/// The maximum length of a socket's path: the lower of Linux's and macOS's limits.
const MAX_SOCKET_PATH: usize = 103;

/// The durability of the server's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// None, which is faster: for tests without durability.
    None,
    /// The server's default.
    Full,
}

/// The mode in which the server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Cleanly, but open transactions are aborted.
    Fast,
    /// Like a crash: the next start recovers from the log.
    Immediate,
}

/// A server with its own data, reachable only through a socket. Dropping it stops the server.
#[derive(Debug)]
pub struct Cluster {
    programs: Programs,
    home: PathBuf,
    guard: Child,
}

impl Cluster {
    /// Creates a cluster below `parent`, which is created if necessary, and starts it. Uses the system's
    /// temporary directory if the path is too long for a socket, or if the server's user has no access, as
    /// below root's home.
    ///
    /// # Errors
    /// Names the failed step.
    pub fn start(programs: &Programs, parent: &Path, durability: Durability) -> io::Result<Self> {
        let home = home(programs, parent)?;
        let guard = guard(programs, &home)?;
        let cluster = Self { programs: programs.clone(), home, guard };
        cluster.initialize(durability)?;
        cluster.resume()?;
        Ok(cluster)
    }

    /// Stops the server and waits until it has ended.
    ///
    /// # Errors
    /// If the server did not end, or was not running.
    pub fn stop(&self, how: Stop) -> io::Result<()> {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        run(self.control().args(["-m", mode, "stop"])).map(drop)
    }

    /// Starts the stopped server, and waits until it responds.
    ///
    /// # Errors
    /// If the server did not start. Its log has the reason.
    pub fn resume(&self) -> io::Result<()> {
        run(self.control().arg("-l").arg(self.home.join("log")).arg("start")).map(drop)
    }

    /// Suspends every process of the server, like a machine that hangs: connections stay open, and nothing
    /// responds. It resumes when the returned value is dropped.
    ///
    /// # Errors
    /// If the server is not running, or a process could not be suspended.
    pub fn freeze(&self) -> io::Result<Frozen<'_>> {
        let file = std::fs::read_to_string(self.home.join("data/postmaster.pid"))?;
        let server = file.lines().next().unwrap_or_default().to_owned();
        let mut frozen = Frozen { cluster: self, processes: vec![server.clone()] };
        // The process that starts the others comes first.
        self.signal("-STOP", &frozen.processes)?;
        let mut ps = self.programs.as_server_user("ps");
        let listed = run(ps.args(["-A", "-o", "pid=,ppid="]))?;
        let child = |line: &str| {
            let (process, parent) = line.trim().split_once(char::is_whitespace)?;
            (parent.trim() == server).then(|| process.to_owned())
        };
        frozen.processes.extend(listed.lines().filter_map(child));
        self.signal("-STOP", &frozen.processes)?;
        Ok(frozen)
    }

    /// Sends a signal to processes.
    fn signal(&self, signal: &str, processes: &[String]) -> io::Result<()> {
        let mut kill = self.programs.as_server_user("sh");
        run(kill.args(["-c", "kill \"$@\"", "kill", signal]).args(processes)).map(drop)
    }

    /// Returns the address of a database for the superuser.
    pub fn url(&self, database: &str) -> String {
        self.address(database, &[("user", SUPERUSER)])
    }

    /// Returns the address of a database for another user.
    pub fn url_as(&self, user: &str, password: &str, database: &str) -> String {
        self.address(database, &[("user", user), ("password", password)])
    }

    /// Runs statements in a database, each separately, and returns their output: a row per line, with columns
    /// separated by `|`.
    ///
    /// # Errors
    /// The message of `psql` about the first statement that failed.
    pub fn sql(&self, database: &str, statements: &[&str]) -> io::Result<String> {
        sql(&self.programs, &self.url(database), statements)
    }

    fn address(&self, database: &str, parameters: &[(&str, &str)]) -> String {
        let home = encoded(&self.home.to_string_lossy());
        let parameters = parameters.iter().map(|(name, value)| format!("&{name}={}", encoded(value)));
        format!("postgres:///{}?host={home}{}", encoded(database), parameters.collect::<String>())
    }

    fn initialize(&self, durability: Durability) -> io::Result<()> {
        let data = self.home.join("data");
        let initdb = |locale: &[&str]| {
            let mut command = self.programs.command("initdb");
            command.args(["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
            run(command.args(locale).arg("-D").arg(&data))
        };
        // A server without ICU sorts by bytes. `initdb` removes the files of a failed attempt.
        initdb(&LINGUISTIC).or_else(|_| initdb(&[]))?;
        std::fs::write(data.join("pg_hba.conf"), ACCESS)?;
        std::fs::write(data.join("postgresql.auto.conf"), settings(&self.home, durability))
    }

    fn control(&self) -> Command {
        let mut command = self.programs.command("pg_ctl");
        command.arg("-D").arg(self.home.join("data")).args(["-w", "-s"]);
        command
    }
}

/// A suspended server. It resumes when this is dropped.
#[derive(Debug)]
pub struct Frozen<'a> {
    cluster: &'a Cluster,
    processes: Vec<String>,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // One by one, because `kill` with a list fails if any process has ended.
        for process in &self.processes {
            let _ = self.cluster.signal("-CONT", std::slice::from_ref(process));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The cleanup process does everything else when its input ends.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let _ = std::fs::remove_dir(&self.home);
    }
}

/// Creates a directory for a cluster.
fn home(programs: &Programs, parent: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir_all(parent)?;
    let home = fresh_directory(&parent.canonicalize()?)?;
    let fits = home.join(SOCKET).as_os_str().len() <= MAX_SOCKET_PATH;
    if programs.hand_over(&home)? && fits {
        return Ok(home);
    }
    std::fs::remove_dir(&home)?;
    let home = fresh_directory(&std::env::temp_dir())?;
    programs.hand_over(&home)?;
    Ok(home)
}

/// Creates a directory that did not exist.
fn fresh_directory(parent: &Path) -> io::Result<PathBuf> {
    let process = std::process::id();
    let paths = (0_u32..).map(|number| parent.join(format!("postgres-{process}-{number}")));
    for path in paths {
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Starts the cleanup process. It has its own process group, so that an interrupt from the keyboard does not
/// reach it.
fn guard(programs: &Programs, home: &Path) -> io::Result<Child> {
    let mut command = programs.as_server_user("sh");
    command.args(["-c", GUARD, "guard"]).arg(programs.directory().join("pg_ctl")).arg(home);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()
}

/// Returns the settings that differ from the defaults.
fn settings(home: &Path, durability: Durability) -> String {
    let home = home.display().to_string().replace('\'', "''");
    let mut settings = format!(
        "listen_addresses = ''\nunix_socket_directories = '{home}'\nmax_connections = 300\n\
         max_prepared_transactions = 10\n"
    );
    if durability == Durability::None {
        settings += "fsync = off\nfull_page_writes = off\nsynchronous_commit = off\n";
    }
    settings
}

/// Runs statements at an address.
pub(crate) fn sql(programs: &Programs, url: &str, statements: &[&str]) -> io::Result<String> {
    let mut psql = programs.command("psql");
    psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", url]);
    run(psql.args(statements.iter().flat_map(|statement| ["-c", statement])))
}

/// Runs a program to its end. Returns its output, or an error with its standard error.
fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let program = command.get_program().to_string_lossy();
    Err(io::Error::other(format!("{program}: {}: {}", output.status, text(&output.stderr))))
}

/// Percent-encodes a text for an address.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_hold_any_directory_and_password() {
        assert_eq!(encoded("/tmp/my target/a%b"), "/tmp/my%20target/a%25b");
        assert_eq!(encoded("p&ss=ö"), "p%26ss%3D%C3%B6");
    }

    #[test]
    fn directories_are_fresh() {
        let parent = std::env::temp_dir();
        let (first, second) = (fresh_directory(&parent).unwrap(), fresh_directory(&parent).unwrap());
        assert_ne!(first, second);
        for directory in [first, second] {
            std::fs::remove_dir(directory).unwrap();
        }
    }
}
