//! The table of figures.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;

/// The variable that names a directory in which each program notes its rows, for the page of figures.
pub const NOTED: &str = "EVIDENCE_BENCH_FIGURES";

/// A figure, and whether it is what it should be.
#[derive(Debug, Clone)]
pub struct Row {
    /// What was measured.
    pub measured: String,
    /// What came out.
    pub figure: String,
    /// The figure divided by its baseline: the raw probe, unless the program's heading names another.
    pub ratio: Option<f64>,
    /// What should come out, and whether it did; `None` for orientation.
    pub target: Option<(String, bool)>,
    /// Where it stands in a plot.
    pub point: Option<Point>,
}

/// A point of a plot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// The plot.
    pub plot: String,
    /// The line in it.
    pub line: String,
    /// From left to right.
    pub x: f64,
    /// From below.
    pub y: f64,
}

/// A row as a program notes it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Noted {
    /// What was measured.
    pub measured: String,
    /// What came out.
    pub figure: String,
    /// The figure divided by its baseline.
    pub ratio: Option<f64>,
    /// What should come out.
    pub target: Option<String>,
    /// Whether it did.
    pub met: Option<bool>,
    /// Where it stands in a plot.
    pub point: Option<Point>,
}

impl Row {
    /// A figure with a target.
    pub fn new(measured: impl Into<String>, figure: String, target: impl Into<String>, met: bool) -> Self {
        Self { target: Some((target.into(), met)), ..Self::orientation(measured, figure) }
    }

    /// A figure for orientation.
    pub fn orientation(measured: impl Into<String>, figure: String) -> Self {
        Self { measured: measured.into(), figure, ratio: None, target: None, point: None }
    }
}

/// Prints rows below their heading, and notes them where the environment says so.
pub fn print(rows: &[Row]) {
    println!("\n{:<52} {:<62} {:>6}  {:<10} met", "measurement", "figure", "ratio", "target");
    for Row { measured, figure, ratio, target, .. } in rows {
        let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let (target, met) =
            target.as_ref().map_or(("–", "–"), |(target, met)| (target, if *met { "yes" } else { "NO" }));
        println!("{measured:<52} {figure:<62} {ratio:>6}  {target:<10} {met}");
    }
    if let Some(directory) = std::env::var_os(NOTED)
        && let Err(error) = note(directory.as_ref(), rows)
    {
        println!("the figures are not noted: {error}");
    }
}

/// Adds rows to the file of this program, a line each.
fn note(directory: &Path, rows: &[Row]) -> Result {
    let program = std::env::current_exe()?;
    let name = program.file_stem().and_then(|name| name.to_str()).ok_or("the program has no name")?;
    // Cargo adds a hash to it.
    let name = name.rsplit_once('-').map_or(name, |(name, _)| name);
    let file = OpenOptions::new().create(true).append(true).open(directory.join(format!("{name}.jsonl")));
    let mut file = file?;
    for Row { measured, figure, ratio, target, point } in rows.iter().cloned() {
        let (target, met) = target.unzip();
        let noted = Noted { measured, figure, ratio, target, met, point };
        writeln!(file, "{}", serde_json::to_string(&noted)?)?;
    }
    Ok(())
}
