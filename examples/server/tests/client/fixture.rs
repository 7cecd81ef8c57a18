//! A server, the client, and a repository for the client.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use evidence_test_postgres::SchemaName;
use serde_json::Value;
use tempfile::TempDir;

use crate::known_commands;
use crate::support::{Database, ORG, Server};

/// A flow's template that requires an attestation of the trail and one of an artifact.
pub(crate) const TEMPLATE: &str = "\
version: 1
trail:
  attestations:
    - name: tests
      type: junit
  artifacts:
    - name: binary
      attestations:
        - name: scan
          type: generic
";

/// The options for the trail of most scenarios.
pub(crate) const TO: [&str; 4] = ["--flow", "delivery", "--trail", "trail-1"];

/// The commit of every scenario, identical on every machine.
const COMMIT_ENVIRONMENT: [(&str, &str); 6] = [
    ("GIT_AUTHOR_NAME", "Ada"),
    ("GIT_AUTHOR_EMAIL", "ada@example.com"),
    ("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z"),
    ("GIT_COMMITTER_NAME", "Ada"),
    ("GIT_COMMITTER_EMAIL", "ada@example.com"),
    ("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z"),
];

/// The database of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Store {
    Sqlite,
    Postgresql,
}

impl Store {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgresql => "postgresql",
        }
    }

    fn database(self) -> Database {
        match self {
            Self::Sqlite => Database::default(),
            Self::Postgresql => SchemaName::unused().expect("no PostgreSQL: run cargo xtask client").into(),
        }
    }
}

/// Returns a path that `cargo xtask` sets.
pub(crate) fn from_xtask(variable: &str) -> PathBuf {
    let Some(path) = std::env::var_os(variable) else {
        panic!("{variable} is not set: this test is run by `cargo xtask test` and `cargo xtask client`");
    };
    Path::new(&path).to_owned()
}

/// Returns the client's program.
pub(crate) fn client() -> PathBuf {
    from_xtask("EVIDENCE_TEST_CLIENT")
}

/// A server with a new store, the client, and a repository with one commit.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    /// The repository.
    pub(crate) repo: PathBuf,
    /// The only commit of the repository.
    pub(crate) commit: String,
    directory: TempDir,
    client: PathBuf,
    /// The commands that ran, each with whether it printed JSON.
    ran: RefCell<BTreeSet<(&'static str, bool)>>,
}

impl Fixture {
    pub(crate) fn new(store: Store) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut fixture = Self {
            server: Server::start(&store.database()),
            repo: directory.path().join("repo"),
            commit: String::new(),
            directory,
            client: client(),
            ran: RefCell::default(),
        };
        std::fs::create_dir(&fixture.repo).unwrap();
        fixture.git(&["init", "--quiet", "--initial-branch", "main"]);
        fixture.git(&["commit", "--quiet", "--allow-empty", "--message", "PROJ-1 Begin"]);
        fixture.commit = fixture.git(&["rev-parse", "HEAD"]);
        fixture
    }

    /// Asserts that these commands ran. Commands that read must have printed a table as well as JSON.
    pub(crate) fn expect_covered(&self, commands: &[&'static str]) {
        let ran = self.ran.borrow();
        for &command in commands {
            let reads = matches!(command.split(' ').next(), Some("get" | "list" | "search" | "evaluate"));
            let (table, json) = (ran.contains(&(command, false)), ran.contains(&(command, true)));
            assert!(table || json, "{command} was not run");
            assert!(!reads || (table && json), "{command} was not run for a table and for JSON");
        }
    }

    /// Creates a file with this content beside the repository.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let file = self.directory.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, content).unwrap();
        file.to_str().unwrap().to_owned()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let words = arguments.join(" ");
        let names = |command: &&str| {
            words.strip_prefix(*command).is_some_and(|rest| !rest.starts_with(|next: char| next != ' '))
        };
        let command =
            known_commands().into_iter().filter(|command| names(command)).max_by_key(|name| name.len());
        let json = arguments.windows(2).any(|pair| pair == ["--output", "json"]);
        self.ran.borrow_mut().insert((command.expect("a command that main.rs names"), json));
        Command::new(&self.client)
            .args(arguments)
            .current_dir(&self.repo)
            .env_clear()
            .envs([
                ("HOME", self.directory.path().to_str().unwrap()),
                ("KOSLI_HOST", &format!("http://{}", self.server.address)),
                ("KOSLI_API_TOKEN", &self.server.key),
                ("KOSLI_ORG", ORG),
                // A failure that clients retry fails the scenario.
                ("KOSLI_MAX_API_RETRIES", "0"),
                // The client then shows one date for every time.
                ("KOSLI_TESTS", "true"),
            ])
            .output()
            .unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn does(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let printed = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {printed}{stderr}");
        printed + &stderr
    }

    /// Runs a command that must succeed and print this, among other things.
    pub(crate) fn says(&self, arguments: &[&str], expected: &str) {
        let printed = self.does(arguments);
        assert!(printed.contains(expected), "{arguments:?} does not say {expected:?}: {printed}");
    }

    /// Runs a command that must succeed and print exactly this, except for the parts that [`Self::legible`]
    /// replaces.
    pub(crate) fn prints(&self, arguments: &[&str], expected: &str) {
        let output = self.run(arguments);
        let (printed, stderr) = (self.legible(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {printed}\n{stderr}");
        assert_eq!(printed, self.legible(expected.as_bytes()), "{arguments:?}");
    }

    /// Returns a table without the parts that differ between runs or depend on its width. Blank lines and
    /// repeated spaces are removed. Ids become `ID`, the client's only date becomes `THEN`, and the server's
    /// address `HOST`.
    fn legible(&self, printed: &[u8]) -> String {
        let printed = str::from_utf8(printed).unwrap();
        let port = self.server.address.rsplit(':').next().unwrap();
        let printed = printed
            .replace(&format!("http://localhost:{port}"), "HOST")
            .replace(&format!("http://{}", self.server.address), "HOST")
            .replace("Sat, 16 Jan 2016 00:00:00 UTC • 2016-01-16", "THEN")
            .replace("Sat, 16 Jan 2016 00:00:00 UTC", "THEN");
        let words = |line: &str| Vec::from_iter(line.split_whitespace()).join(" ");
        let lines = printed.lines().map(words).filter(|line| !line.is_empty());
        without_ids(&Vec::from_iter(lines).join("\n"))
    }

    /// Runs a command that must fail with exactly this message, or with one that begins with the text before
    /// `…`.
    pub(crate) fn refuses(&self, arguments: &[&str], expected: &str) {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        // The request precedes the message.
        let said = stderr.split_once("Error: [kosli ").and_then(|(_, said)| said.split_once("] "));
        let said = said.map(|(_, said)| said.trim_end()).unwrap_or_default();
        let holds = match expected.strip_suffix('…') {
            Some(beginning) => said.starts_with(beginning),
            None => said == expected,
        };
        assert!(holds, "{arguments:?} does not say {expected:?}: {stderr}");
    }

    /// Returns the output of a command as JSON.
    pub(crate) fn reads(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--output", "json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        let output = git.args(arguments).current_dir(&self.repo).envs(COMMIT_ENVIRONMENT).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub(crate) fn create_flow(&self) {
        let template = self.file("template.yml", TEMPLATE);
        self.says(
            &["create", "flow", "delivery", "--template-file", &template],
            "flow 'delivery' was created",
        );
    }

    pub(crate) fn begin_trail(&self, trail: &str) {
        let begin = ["begin", "trail", trail, "--flow", "delivery", "--commit", "HEAD"];
        self.says(&begin, &format!("trail '{trail}' was begun"));
    }

    /// Creates the flow `delivery` and its trail `trail-1`.
    pub(crate) fn begin(&self) {
        self.create_flow();
        self.begin_trail("trail-1");
    }

    /// Attests a file as the artifact `binary` of `trail-1`. Returns the file and its fingerprint.
    pub(crate) fn attest_artifact(&self, options: &[&str]) -> (String, String) {
        let file = self.file("binary", "the program");
        let fingerprint = self.does(&["fingerprint", &file, "--artifact-type", "file"]).trim().to_owned();
        let links =
            ["--build-url", "https://ci.example.com/1", "--commit-url", "https://git.example.com/c/1"];
        let attest = ["attest", "artifact", &file, "--artifact-type", "file", "--name", "binary"];
        let said = format!("artifact binary was attested with fingerprint: {fingerprint}");
        self.says(&[&attest[..], &["--commit", "HEAD"], &TO, &links, options].concat(), &said);
        (file, fingerprint)
    }
}

/// Returns the text with `ID` for each id.
fn without_ids(text: &str) -> String {
    const FORM: &str = "00000000-0000-0000-0000-00000000";
    let is_id = |text: &str| {
        text.chars().zip(FORM.chars()).all(|(found, form)| match form {
            '-' => found == '-',
            _ => matches!(found, '0'..='9' | 'a'..='f'),
        })
    };
    let mut found = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        match rest.split_at_checked(FORM.len()) {
            Some((id, after)) if is_id(id) => {
                found.push_str("ID");
                rest = after;
            }
            _ => {
                found.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    found
}
