//! A parsed template.

use crate::cache::Weigh;
use crate::flows::record::EMPTY_TEMPLATE;
use crate::rules::template::Template;

/// A parsed template, with its text as uploaded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// The YAML text; `""` if the store does not have it.
    pub(crate) text: String,
    pub(crate) template: Template,
}

impl Parsed {
    /// Parses a stored text. No report satisfies a template that cannot be parsed.
    pub(super) fn stored(text: String) -> Self {
        let template = Template::stored(&text);
        Self { text, template }
    }

    /// Returns the template of a flow that was created without one.
    pub(super) fn empty() -> Self {
        Self { text: EMPTY_TEMPLATE.to_owned(), template: Template::default() }
    }

    /// Returns the template for a text missing from the store, which is damage. No report satisfies it.
    pub(super) fn missing() -> Self {
        Self { text: String::new(), template: Template::lost() }
    }
}

impl Weigh for Parsed {
    fn bytes(&self) -> usize {
        self.text.len() + self.template.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_template_says_counts_beside_its_text() {
        let names = (0..1000).map(|number| format!("    - name: a{number}\n      type: '*'\n"));
        let parsed = Parsed::stored(format!("trail:\n  attestations:\n{}", names.collect::<String>()));
        assert_eq!(parsed.template.attestations.len(), 1000);
        assert!(parsed.bytes() > parsed.text.len() + 1000 * size_of::<crate::rules::template::Requirement>());
    }
}
