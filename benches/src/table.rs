//! The table of figures.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;

/// The variable with the directory to which programs write their rows, for the page of figures.
pub const NOTED: &str = "EVIDENCE_BENCH_FIGURES";

/// A figure and its target.
#[derive(Debug, Clone)]
pub struct Row {
    /// The measurement.
    pub measured: String,
    /// The figure.
    pub figure: String,
    /// The figure divided by its baseline: the raw probe, unless the program's heading has another.
    pub ratio: Option<f64>,
    /// The target, and whether it was reached; `None` for orientation.
    pub target: Option<(String, bool)>,
    /// Its point in a plot.
    pub point: Option<Point>,
}

/// A point of a plot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// The plot.
    pub plot: String,
    /// The line in it.
    pub line: String,
    /// The position from left to right.
    pub x: f64,
    /// The position from bottom to top.
    pub y: f64,
}

/// A row in the file of a program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Noted {
    /// The measurement.
    pub measured: String,
    /// The figure.
    pub figure: String,
    /// The figure divided by its baseline.
    pub ratio: Option<f64>,
    /// The target.
    pub target: Option<String>,
    /// Whether the target was reached.
    pub met: Option<bool>,
    /// Its point in a plot.
    pub point: Option<Point>,
}

impl Row {
    /// Creates a figure with a target.
    pub fn new(measured: impl Into<String>, figure: String, target: impl Into<String>, met: bool) -> Self {
        Self { target: Some((target.into(), met)), ..Self::orientation(measured, figure) }
    }

    /// Creates a figure for orientation.
    pub fn orientation(measured: impl Into<String>, figure: String) -> Self {
        Self { measured: measured.into(), figure, ratio: None, target: None, point: None }
    }
}

/// Prints rows below a heading, and writes them to the directory in the environment, if set.
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

/// Appends rows to the file of this program, one per line.
fn note(directory: &Path, rows: &[Row]) -> Result {
    let program = std::env::current_exe()?;
    let name = program.file_stem().and_then(|name| name.to_str()).ok_or("the program has no name")?;
    // Cargo appends a hash to the name.
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
