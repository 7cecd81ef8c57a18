//! Pieces that several resources share: git commits, repository information, links, annotations, user data.

mod bounded;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::id::Id;
use crate::name::Fingerprint;
use crate::time::{SentSeconds, WholeSeconds};

pub use bounded::*;

/// A git commit as it is reported and kept. Unknown properties are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GitCommit {
    /// The commit's hash; `sha` is read, too.
    pub sha1: ShortText,
    /// Its message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Description>,
    /// Its author, as `Name <mail>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<ShortText>,
    /// The author's account name at the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author_username: Option<ShortText>,
    /// The branch it was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<ShortText>,
    /// When it was made, in epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<SentSeconds>,
    /// Where it can be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Address>,
    /// Its parents' hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<List<ShortText>>,
    /// Whether the host verified its signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// What the host says of its signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature_state: Option<ShortText>,
}

/// A git commit as it is sent, in whichever spelling.
#[derive(Deserialize)]
struct SentCommit {
    #[serde(default, deserialize_with = "given")]
    sha1: Option<ShortText>,
    #[serde(default, deserialize_with = "given")]
    sha: Option<ShortText>,
    message: Option<Description>,
    author: Option<ShortText>,
    author_username: Option<ShortText>,
    branch: Option<ShortText>,
    timestamp: Option<SentSeconds>,
    url: Option<Address>,
    parents: Option<List<ShortText>>,
    verified: Option<bool>,
    signature_state: Option<ShortText>,
}

impl<'de> Deserialize<'de> for GitCommit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sent = SentCommit::deserialize(deserializer)?;
        Ok(Self {
            sha1: either_spelling::<_, D::Error>("sha1", sent.sha1, sent.sha)?,
            message: sent.message,
            author: sent.author,
            author_username: sent.author_username,
            branch: sent.branch,
            timestamp: sent.timestamp,
            url: sent.url,
            parents: sent.parents,
            verified: sent.verified,
            signature_state: sent.signature_state,
        })
    }
}

/// A value that may be left out and may not be null.
pub(crate) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A field that has two spellings, of which one is sent, or both with one value.
pub(crate) fn either_spelling<T: PartialEq, E: de::Error>(
    field: &'static str,
    spelling: Option<T>,
    other: Option<T>,
) -> Result<T, E> {
    match (spelling, other) {
        (Some(one), Some(another)) if one != another => Err(E::duplicate_field(field)),
        (Some(value), _) | (None, Some(value)) => Ok(value),
        (None, None) => Err(E::missing_field(field)),
    }
}

/// A git commit. Every key is there: what nobody reported is the empty value of its type.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct GitCommitInfo {
    /// The commit's hash.
    pub sha1: String,
    /// Its message.
    pub message: String,
    /// Its author, as `Name <mail>`.
    pub author: String,
    /// The author's account name at the host.
    pub author_username: String,
    /// The branch it was built from.
    pub branch: String,
    /// When it was made, in epoch seconds; 0 where that was not reported.
    pub timestamp: WholeSeconds,
    /// Where it can be looked at.
    pub url: String,
    /// Its parents' hashes.
    pub parents: Vec<String>,
    /// Whether the host verified its signature.
    pub verified: bool,
    /// What the host says of its signature.
    pub signature_state: String,
}

impl From<&GitCommit> for GitCommitInfo {
    fn from(commit: &GitCommit) -> Self {
        Self {
            sha1: commit.sha1.to_string(),
            message: text(commit.message.as_deref()),
            author: text(commit.author.as_deref()),
            author_username: text(commit.author_username.as_deref()),
            branch: text(commit.branch.as_deref()),
            timestamp: commit.timestamp.map(|at| at.0.whole_seconds()).unwrap_or_default(),
            url: text(commit.url.as_deref()),
            parents: commit.parents.iter().flat_map(|parents| &parents.0).map(ToString::to_string).collect(),
            verified: commit.verified.unwrap_or_default(),
            signature_state: text(commit.signature_state.as_deref()),
        }
    }
}

/// The text, or the empty one.
pub(crate) fn text(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

impl GitCommitInfo {
    /// The commit, or the empty one.
    pub fn of(commit: Option<&GitCommit>) -> Self {
        commit.map(Self::from).unwrap_or_default()
    }
}

/// The hosts and systems that repos come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the variants are the specification's values")]
pub enum VcsProvider {
    #[serde(rename = "github")]
    Github,
    #[serde(rename = "gitlab")]
    Gitlab,
    #[serde(rename = "bitbucket")]
    Bitbucket,
    #[serde(rename = "bitbucket_cloud")]
    BitbucketCloud,
    #[serde(rename = "bitbucket_dc")]
    BitbucketDc,
    #[serde(rename = "azure-devops")]
    AzureDevops,
    #[serde(rename = "azure_devops_services")]
    AzureDevopsServices,
    #[serde(rename = "azure_devops_server")]
    AzureDevopsServer,
    #[serde(rename = "circleci")]
    Circleci,
    #[serde(rename = "git")]
    Git,
    #[serde(rename = "subversion")]
    Subversion,
}

impl VcsProvider {
    /// The value on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Gitlab => "gitlab",
            Self::Bitbucket => "bitbucket",
            Self::BitbucketCloud => "bitbucket_cloud",
            Self::BitbucketDc => "bitbucket_dc",
            Self::AzureDevops => "azure-devops",
            Self::AzureDevopsServices => "azure_devops_services",
            Self::AzureDevopsServer => "azure_devops_server",
            Self::Circleci => "circleci",
            Self::Git => "git",
            Self::Subversion => "subversion",
        }
    }
}

/// The repository that something was reported from. Unknown properties are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepoInfo {
    /// The repository's name, with its owner: `owner/repo`.
    pub name: ShortText,
    /// Where it is.
    pub url: Address,
    /// Its id at the host, by which the repo is recognised when its name changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ShortText>,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Description>,
    /// The kind of host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<VcsProvider>,
    /// The groups it lies in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_path: Option<List<ShortText>>,
    /// Anything else that is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_info: Option<FreeForm>,
}

/// Labelled links: label to address and, optionally, the fingerprint of what is there; at most 1,000.
pub type ExternalUrls = Dictionary<LinkLabel, ExternalUrl>;

/// One labelled link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalUrl {
    /// The address.
    pub href: Address,
    /// The SHA-256 of what is there.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
}

/// Short labelled remarks on an attestation, each of at most 4,096 characters; at most 1,000.
pub type Annotations = Dictionary<AnnotationKey, LongText>;

/// Each of these once, in ascending order: what a store is asked about.
pub(crate) fn distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    Vec::from_iter(std::collections::BTreeSet::from_iter(items))
}

/// Puts what a store answered, in any order, into the order of the ids that it was asked about.
pub(crate) fn sort_by_ids<T>(records: &mut [T], ids: &[Id], id: impl Fn(&T) -> Id) {
    let place: BTreeMap<Id, usize> = ids.iter().copied().zip(0..).collect();
    records.sort_unstable_by_key(|record| place.get(&id(record)).copied());
}

/// How many of what happened to a record the record itself lists: each of its facts repeats it.
const MAX_REPEATED: usize = 100;

/// Adds to a list that a record carries, of which the newest 100 are kept.
pub(crate) fn push_newest<T>(list: &mut Vec<T>, newest: T) {
    list.push(newest);
    list.drain(..list.len().saturating_sub(MAX_REPEATED));
}

/// The JSON string `"OK"` that acknowledges a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Acknowledged {
    /// Done.
    #[serde(rename = "OK")]
    Ok,
}

/// Labels on a resource.
pub type Tags = BTreeMap<String, String>;

/// A tag a list is narrowed by: `key`, or `key:value` split at the first colon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFilter {
    /// The key that must be there.
    pub key: String,
    /// The value it must have, if one was given.
    pub value: Option<String>,
}

impl TagFilter {
    /// Reads `key` or `key<separator>value`.
    pub fn parse(text: &str, separator: char) -> Self {
        match text.split_once(separator) {
            Some((key, value)) => Self { key: key.to_owned(), value: Some(value.to_owned()) },
            None => Self { key: text.to_owned(), value: None },
        }
    }

    /// Whether these tags satisfy the filter.
    pub fn matches(&self, tags: &Tags) -> bool {
        tags.get(&self.key).is_some_and(|found| self.value.as_ref().is_none_or(|wanted| wanted == found))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::bounded::MAX_URL;
    use super::*;
    use crate::decode::from_value;

    /// Reads `value`; where that works, what is written again is `value`.
    fn accepts<T: DeserializeOwned + Serialize>(value: &Value) -> bool {
        let Ok(read) = from_value::<T>(&value) else { return false };
        assert_eq!(serde_json::to_value(read).unwrap(), *value);
        true
    }

    fn fits(pattern: &str, text: &str) -> bool {
        regex::Regex::new(pattern).unwrap().is_match(text)
    }

    #[test]
    fn a_long_key_is_told_by_its_beginning() {
        let long = ".".repeat(100_000);
        for told in [long.parse::<AnnotationKey>().unwrap_err(), long.parse::<LinkLabel>().unwrap_err()] {
            assert!(told.len() < 1000, "{}", told.len());
        }
    }

    #[test]
    fn an_origin_is_an_absolute_web_url_of_at_most_2_kib() {
        let longest = format!("https://e/{}", "a".repeat(MAX_URL - 10));
        for url in [
            "http://e",
            "https://e.example/p?q#f",
            "HTTPS://E",
            "http://user@e:80/",
            "http://[::1]/",
            &longest,
        ] {
            assert!(accepts::<WebUrl>(&json!(url)), "{url}");
        }
        let longer = format!("{longest}a");
        let refused = [
            "",
            "e",
            "//e",
            "ftp://e",
            "http:",
            "http://",
            "https:///p",
            "http://?q",
            "http://e/ x",
            "http://e\n",
            &longer,
        ];
        for url in refused {
            assert!(!accepts::<WebUrl>(&json!(url)), "{url}");
        }
    }

    #[test]
    fn user_data_is_an_object_or_a_list() {
        for (data, fits) in [
            (json!({}), true),
            (json!({"a": [1.5, null, {"b": true}]}), true),
            (json!([]), true),
            (json!([1, "x"]), true),
            (json!(null), false),
            (json!("x"), false),
            (json!(1), false),
            (json!(true), false),
        ] {
            assert_eq!(accepts::<UserData>(&data), fits, "{data}");
        }
    }

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

    proptest! {
        #[test]
        fn a_link_is_accepted_iff_its_label_and_fingerprint_fit(
            label in "[a-z]{0,3}[=.]?[a-z]{0,3}|\\PC{0,6}",
            fingerprint in proptest::option::of("[a-f0-9]{63,65}|[A-F0-9]{64}"),
        ) {
            let good = fits(r"^[^=.]+$", &label) && fingerprint.as_deref().is_none_or(|text| fits("^[a-f0-9]{64}$", text));
            let value = json!({label: {"href": "h", "fingerprint": fingerprint}});
            prop_assert_eq!(accepts::<ExternalUrls>(&value), good, "{}", value);
        }

        #[test]
        fn a_remark_is_accepted_iff_its_key_fits(key in "[A-Za-z0-9_-]{0,5}|[a-z]\\.[a-z]|\\PC{0,5}", text in "\\PC{0,9}") {
            let value = json!({key.clone(): text});
            prop_assert_eq!(accepts::<Annotations>(&value), fits(r"^[A-Za-z0-9_-]+$", &key), "{}", value);
        }

        #[test]
        fn a_text_is_accepted_iff_it_is_short_enough(text in "\\PC{0,12}") {
            prop_assert_eq!(accepts::<Text<8>>(&json!(text)), text.chars().count() <= 8);
        }

        #[test]
        fn a_list_is_accepted_iff_it_is_short_enough(items in proptest::collection::vec(any::<u8>(), 0..8)) {
            prop_assert_eq!(accepts::<List<u8, 4>>(&json!(items)), items.len() <= 4);
        }

        #[test]
        fn a_url_reads_back_as_itself_or_is_refused(text in "(https?|ftp|HTTP)://[a-z0-9.:@/?#% \\n-]{0,20}|\\PC{0,20}") {
            accepts::<WebUrl>(&json!(text));
        }
    }
}
