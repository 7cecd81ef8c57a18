//! Templates parsed once a text. Nearly every answer rests on one, a few texts serve most of a store's trails, and reading
//! one from YAML costs more than all the rest of an answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::rules::template::Template;

/// More texts than this are forgotten all at once.
const MOST: usize = 256;

/// A longer text is parsed each time: what is remembered stays below a few megabytes.
const LONGEST: usize = 16 << 10;

/// Templates by their texts, for every request of a service.
#[derive(Debug, Default)]
pub(crate) struct Templates(Mutex<BTreeMap<String, Arc<Template>>>);

impl Templates {
    /// The template of this text; nothing satisfies one that cannot be read.
    pub(crate) fn parsed(&self, yaml: &str) -> Arc<Template> {
        if let Some(known) = self.known(yaml) {
            return known;
        }
        let template = Arc::new(Template::stored(yaml));
        if yaml.len() <= LONGEST {
            self.keep(yaml.to_owned(), Arc::clone(&template));
        }
        template
    }

    fn known(&self, yaml: &str) -> Option<Arc<Template>> {
        // No template is half kept when a holder of the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(yaml).cloned()
    }

    fn keep(&self, yaml: String, template: Arc<Template>) {
        let mut templates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if templates.len() >= MOST {
            templates.clear();
        }
        templates.insert(yaml, template);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_one(name: &str) -> String {
        format!("trail:\n  attestations:\n    - name: {name}\n      type: generic\n")
    }

    #[test]
    fn a_text_is_parsed_once_and_an_unreadable_one_says_so() {
        let templates = Templates::default();
        let first = templates.parsed(&of_one("review"));
        assert_eq!(*first, Template::parse(&of_one("review")).unwrap());
        assert!(Arc::ptr_eq(&first, &templates.parsed(&of_one("review"))));
        let unreadable = templates.parsed("]");
        assert!(unreadable.unreadable().is_some_and(|why| why.starts_with("The template cannot be read: ")));
    }

    #[test]
    fn no_more_is_remembered_than_fits() {
        let templates = Templates::default();
        let remembered = |yaml: &str| templates.known(yaml).is_some();
        let long = format!("{}# {}", of_one("review"), "x".repeat(LONGEST));
        templates.parsed(&long);
        assert!(!remembered(&long));
        for number in 0..=MOST {
            templates.parsed(&of_one(&format!("check-{number}")));
        }
        assert!(!remembered(&of_one("check-0")) && remembered(&of_one(&format!("check-{MOST}"))));
    }
}
