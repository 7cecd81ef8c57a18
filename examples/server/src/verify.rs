//! `verify`: checks an audit package without a server.

use std::fs::{self, File};
use std::path::Path;

use evidence_verify::{Policy, Report, verify};

use crate::cli::VerifyOptions;

/// The reason why a package was not verified, as a sentence for standard error.
type Unverified = Box<dyn std::error::Error>;

/// Verifies the package and prints what holds and what does not. Returns the exit status.
pub(crate) fn run(options: &VerifyOptions) -> u8 {
    match report(options) {
        Ok(report) => {
            print!("{report}");
            println!("{}", if report.holds() { "The package holds." } else { "The package does not hold." });
            u8::from(!report.holds())
        }
        Err(error) => {
            eprintln!("evidence-server: {error}");
            2
        }
    }
}

fn report(options: &VerifyOptions) -> Result<Report, Unverified> {
    let policy = policy(options)?;
    let package = &options.package;
    let file = File::open(package).map_err(|error| in_file(package, &error))?;
    verify(file, &policy).map_err(|error| in_file(package, &error))
}

fn in_file(path: &Path, error: &dyn std::fmt::Display) -> Unverified {
    format!("{}: {error}", path.display()).into()
}

fn policy(options: &VerifyOptions) -> Result<Policy, Unverified> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| in_file(path, &error));
    if let Some(path) = &options.policy {
        return read(path)?.parse().map_err(|error| in_file(path, &error));
    }
    let mut keys = Vec::new();
    for path in &options.keys {
        let known = keys.len();
        for line in read(path)?.lines().filter(|line| !line.trim().is_empty()) {
            keys.push(line.trim().parse().map_err(|error| in_file(path, &error))?);
        }
        if keys.len() == known {
            return Err(in_file(path, &"it has no key"));
        }
    }
    Ok(Policy::of_logs(keys))
}
