//! The recorded form of tags, and filters by tags.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::names::RecordKind;

/// The kinds of resources that have tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the variants are the kinds")]
#[non_exhaustive]
pub enum TaggedKind {
    #[serde(alias = "flows")]
    Flow,
    #[serde(alias = "environments", alias = "env")]
    Environment,
    #[serde(alias = "repos")]
    Repo,
    #[serde(alias = "controls")]
    Control,
}

impl TaggedKind {
    /// Returns the kind of the records.
    pub const fn record_kind(self) -> RecordKind {
        match self {
            Self::Flow => RecordKind::Flow,
            Self::Environment => RecordKind::Environment,
            Self::Repo => RecordKind::Repo,
            Self::Control => RecordKind::Control,
        }
    }
}

/// The tags of a resource: key to value.
pub type Tags = BTreeMap<String, String>;

/// A tag of some resource, for use as a filter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TagChoice {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl TagChoice {
    /// Returns a tag with this key and value.
    pub const fn new(key: String, value: String) -> Self {
        Self { key, value }
    }
}

/// A filter by tag: `key`, or `key:value`, split at the first colon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFilter {
    /// The key that must be present.
    pub key: String,
    /// The required value, if given.
    pub value: Option<String>,
}

impl TagFilter {
    /// Parses `key` or `key<separator>value`.
    pub fn parse(text: &str, separator: char) -> Self {
        match text.split_once(separator) {
            Some((key, value)) => Self { key: key.to_owned(), value: Some(value.to_owned()) },
            None => Self { key: text.to_owned(), value: None },
        }
    }

    /// Returns whether these tags match the filter.
    pub fn matches(&self, tags: &Tags) -> bool {
        tags.get(&self.key).is_some_and(|found| self.value.as_ref().is_none_or(|wanted| wanted == found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_filter_splits_at_the_first_separator() {
        let tags: Tags = [("team".to_owned(), "a:b".to_owned())].into();
        for (text, matches) in [
            ("team", true),
            ("team:a:b", true),
            ("team:a", false),
            ("team:", false),
            ("", false),
            ("TEAM", false),
        ] {
            assert_eq!(TagFilter::parse(text, ':').matches(&tags), matches, "{text}");
        }
    }
}
