//! Texts as errors quote them.

use std::borrow::Cow;

/// The maximum number of characters that an error quotes.
pub(crate) const MAX_ECHO: usize = 200;

/// Returns the beginning of an input text, as errors quote it.
pub fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_ECHO) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}
