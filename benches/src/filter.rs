//! Which figures are wanted: each word after `--` on the command line narrows them, as libtest does with tests.

/// The words that a figure's name has to have.
#[derive(Debug)]
pub struct Filter(Vec<String>);

impl Filter {
    /// The words of the command line; cargo's own options are none.
    pub fn from_arguments() -> Self {
        let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
        Self(words.map(|word| word.to_lowercase()).collect())
    }

    /// Whether a figure of this name is wanted: its id and the engine, such as `P3 PostgreSQL`.
    pub fn wants(&self, figure: &str) -> bool {
        let figure = figure.to_lowercase();
        self.0.iter().all(|word| figure.contains(word))
    }
}
