//! The table of figures.

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
    pub target: Option<(&'static str, bool)>,
}

impl Row {
    /// A figure with a target.
    pub fn new(measured: impl Into<String>, figure: String, target: &'static str, met: bool) -> Self {
        Self { measured: measured.into(), figure, ratio: None, target: Some((target, met)) }
    }

    /// A figure for orientation.
    pub fn orientation(measured: impl Into<String>, figure: String) -> Self {
        Self { measured: measured.into(), figure, ratio: None, target: None }
    }
}

/// Prints rows below their heading.
pub fn print(rows: &[Row]) {
    println!("\n{:<52} {:<62} {:>6}  {:<10} met", "measurement", "figure", "ratio", "target");
    for Row { measured, figure, ratio, target } in rows {
        let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let (target, met) =
            target.map_or(("–", "–"), |(target, met)| (target, if met { "yes" } else { "NO" }));
        println!("{measured:<52} {figure:<62} {ratio:>6}  {target:<10} {met}");
    }
}
