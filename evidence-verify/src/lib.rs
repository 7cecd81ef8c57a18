//! Verifies the audit packages of [`evidence`](https://docs.rs/evidence-core), without a server, a database or a network. It
//! builds for `wasm32-unknown-unknown`.
//!
//! A package holds if
//!
//! - it has every file of its manifest and no other, unchanged, and the manifest names no problem;
//! - the checkpoint is signed by a log that the caller trusts, and cosigned as the caller's policy asks;
//! - each entry has the leaf hash that its proof leads to, and the payload that its leaf names;
//! - each attachment and each text has its digest, a payload of an entry names it, and none that a payload names is missing.
//!
//! Only regular files with the paths of the format are accepted, so that other tools unpack what was verified.
//!
//! ```no_run
//! use evidence_verify::{Policy, verify};
//!
//! let key = "evidence.example.com/019d9a3b-…+10fcf01b+AS94QVP46p…".parse()?;
//! let report = verify(std::fs::File::open("package.tar")?, &Policy::of_logs(vec![key]))?;
//! println!("{report}");
//! assert!(report.holds());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod package;
mod policy;

use std::fmt;
use std::io::Read;

pub use package::Unreadable;
pub use policy::{Policy, PolicyError};

/// What was found in a package: sentences for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// The statements that hold.
    pub holding: Vec<String>,
    /// The problems. Empty if the package holds.
    pub problems: Vec<String>,
    /// The limits of the proof.
    pub remarks: Vec<String>,
}

impl Report {
    /// Returns whether everything holds.
    pub fn holds(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [
            ("holds:         ", &self.holding),
            ("DOES NOT HOLD: ", &self.problems),
            ("note:          ", &self.remarks),
        ];
        for (begin, lines) in lines {
            for line in lines {
                writeln!(f, "{begin}{}", line.chars().map(shown).collect::<String>())?;
            }
        }
        Ok(())
    }
}

/// Returns a character as a terminal shows it. A package could otherwise move, hide or forge lines of the report.
fn shown(character: char) -> String {
    let directs =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if character.is_control() || directs {
        character.escape_unicode().to_string()
    } else {
        character.to_string()
    }
}

/// Verifies a package: a tar, or a tar in gzip. Reads it once. Attachments are not held in memory.
///
/// Without keys of logs in the policy, those of the package are used, and the report has the problem that nobody vouches for
/// them.
///
/// # Errors
/// [`Unreadable`] if it is not a package.
pub fn verify(package: impl Read, policy: &Policy) -> Result<Report, Unreadable> {
    package::read(package).map(|package| package.check(policy))
}
