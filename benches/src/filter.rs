//! Selects figures: each word after `--` on the command line narrows them, like the filters of libtest.

/// The words that must occur in the name of a figure.
#[derive(Debug)]
pub struct Filter(Vec<String>);

impl Filter {
    /// Returns the words of the command line, without cargo's own options.
    pub fn from_arguments() -> Self {
        let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
        Self(words.map(|word| word.to_lowercase()).collect())
    }

    /// Returns whether a figure is selected. Its name has its id and the engine, such as `P3 PostgreSQL`.
    pub fn wants(&self, figure: &str) -> bool {
        let figure = figure.to_lowercase();
        self.0.iter().all(|word| figure.contains(word))
    }
}
