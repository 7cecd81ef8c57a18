//! The results of `cargo test`, parsed from its output and written as JUnit XML. Stable Rust's test harness
//! cannot write JUnit, and the real-client test reports this project's results to the server.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::run::Result;

/// The tests that ran, and whether all test programs succeeded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    tests: Vec<(String, bool)>,
    succeeded: bool,
}

/// The part of the tests' output that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// All of it.
    Everything,
    /// Only the output of programs that ran a test: with a filter, most run none.
    ProgramsWithTests,
}

impl Show {
    fn shows(self, line: &str) -> bool {
        let ran_none = line.is_empty()
            || line == "running 0 tests"
            || line.starts_with("test result: ok. 0 passed; 0 failed;");
        self == Self::Everything || !ran_none
    }
}

/// Runs `tests`, shows the output, and collects the results.
pub(crate) fn run_and_collect(tests: &mut Command, show: Show) -> Result<Results> {
    let mut running = tests.stdout(Stdio::piped()).spawn()?;
    let mut results = Results::default();
    if let Some(stdout) = running.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            results.take(&line);
            if show.shows(&line) {
                println!("{line}");
            }
        }
    }
    results.succeeded = running.wait()?.success();
    Ok(results)
}

impl Results {
    /// Parses one line: `test some::name ... ok`.
    fn take(&mut self, line: &str) {
        let Some((name, verdict)) = line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... "))
        else {
            return;
        };
        // The harness of the conformance suite aligns the results.
        let name = name.trim_end();
        match verdict {
            "ok" => self.tests.push((name.to_owned(), true)),
            "FAILED" => self.tests.push((name.to_owned(), false)),
            _ => {}
        }
    }

    /// Returns whether every test passed and every test program succeeded.
    pub(crate) const fn all_passed(&self) -> bool {
        self.succeeded
    }

    /// Returns whether any test ran.
    pub(crate) const fn any(&self) -> bool {
        !self.tests.is_empty()
    }

    /// Fails unless tests of these names ran, in any module.
    pub(crate) fn require(&self, names: &[&str]) -> Result {
        let ran = |name: &str| self.tests.iter().any(|(test, _)| test.rsplit("::").next() == Some(name));
        match names.iter().find(|name| !ran(name)) {
            Some(missing) => Err(format!("the test '{missing}' did not run").into()),
            None => Ok(()),
        }
    }

    fn failed(&self) -> usize {
        self.tests.iter().filter(|(_, passed)| !passed).count()
    }

    /// Writes `tests.xml` into `directory`.
    pub(crate) fn write(&self, directory: &Path) -> Result {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("tests.xml"), self.junit())?;
        Ok(())
    }

    fn junit(&self) -> String {
        let case = |(name, passed): &(String, bool)| {
            let failure = if *passed { "" } else { "<failure/>" };
            format!(
                "  <testcase name=\"{}\" classname=\"workspace\" time=\"0\">{failure}</testcase>\n",
                escaped(name)
            )
        };
        let cases: String = self.tests.iter().map(case).collect();
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuite name=\"workspace\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"0\" time=\"0\">\n\
             {cases}</testsuite>\n",
            self.tests.len(),
            self.failed(),
        )
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failed();
        write!(f, "{} passed, {failed} failed", self.tests.len() - failed)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_the_lines_of_the_harness() {
        let mut results = Results::default();
        for line in [
            "running 3 tests",
            "test flows::tests::a_flow ... ok",
            "test src/lib.rs - Api::new (line 3) ... FAILED",
            "test conformance::flows::a_flow     ... ok",
            "test slow ... ignored",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored; finished in 0.00s",
        ] {
            results.take(line);
        }
        assert_eq!(results.to_string(), "2 passed, 1 failed");
        assert!(results.junit().contains("name=\"conformance::flows::a_flow\""));
        assert!(results.junit().contains("tests=\"3\" failures=\"1\""), "{}", results.junit());
    }

    #[test]
    fn of_programs_that_ran_no_test_nothing_is_shown() {
        for line in [
            "",
            "running 0 tests",
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out",
        ] {
            assert!(!Show::ProgramsWithTests.shows(line) && Show::Everything.shows(line), "{line}");
        }
        for line in [
            "running 1 test",
            "test a ... ok",
            "test result: FAILED. 0 passed; 1 failed",
            "expected 1, found 2",
        ] {
            assert!(Show::ProgramsWithTests.shows(line), "{line}");
        }
    }

    #[test]
    fn a_test_that_must_run_is_missed() {
        let mut results = Results::default();
        for line in ["test postgres::a ... ok", "test b ... FAILED", "test c ... ignored, needs PostgreSQL"] {
            results.take(line);
        }
        assert!(results.require(&["a", "b"]).is_ok());
        assert!(results.require(&["a", "c"]).is_err());
    }

    #[test]
    fn names_are_escaped() {
        let results = Results { tests: vec![("a<b>&\"c\"".to_owned(), true)], succeeded: true };
        assert!(results.junit().contains("name=\"a&lt;b&gt;&amp;&quot;c&quot;\""));
    }
}
