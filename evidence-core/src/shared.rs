//! Pieces that several resources share: git commits, repository information, links, annotations, user data.

use std::collections::BTreeMap;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::name::{BadText, Fingerprint};
use crate::time::{SentSeconds, WholeSeconds};

/// A git commit as it is reported and kept. Unknown properties are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GitCommit {
    /// The commit's hash. The specification's example of a pull request calls it `sha`.
    #[serde(alias = "sha")]
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
    /// When it was made.
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

/// A git commit as answers carry it (specification, Artifact: git_commit_info): every key present, and the empty
/// value of its type where nothing was reported.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields are the specification's, in its order")]
pub struct GitCommitInfo {
    pub sha1: String,
    pub message: String,
    pub author: String,
    pub author_username: String,
    pub branch: String,
    pub timestamp: WholeSeconds,
    pub url: String,
    pub parents: Vec<String>,
    pub verified: bool,
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

/// The version-control hosts and systems that repos come from (specification, Repo: `provider`).
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
    /// Its id at the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ShortText>,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Description>,
    /// The host's kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<VcsProvider>,
    /// The groups it lies in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_path: Option<List<ShortText>>,
    /// Anything else.
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

/// The greatest size of free-form JSON, in bytes as it is written without white space.
const LARGEST_FREE_FORM: usize = 256 << 10;

/// Refuses free-form JSON that is too large.
fn check_size<E: serde::de::Error>(value: &impl Serialize) -> Result<(), E> {
    let size = serde_json::to_vec(value).map_err(E::custom)?.len();
    if size > LARGEST_FREE_FORM {
        return Err(E::custom(format_args!("Input should have at most {LARGEST_FREE_FORM} bytes as JSON")));
    }
    Ok(())
}

/// Anything a reporter wants kept along: a JSON object or list of at most 256 KiB.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct UserData(pub Value);

impl<'de> Deserialize<'de> for UserData {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            value @ (Value::Object(_) | Value::Array(_)) => {
                check_size(&value)?;
                Ok(Self(value))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Err(serde::de::Error::custom("Input should be a valid dictionary or list"))
            }
        }
    }
}

impl JsonSchema for UserData {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "UserData".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["object", "array"], "x-max-bytes": LARGEST_FREE_FORM })
    }
}

/// A JSON object with whatever a reporter puts into it, of at most 256 KiB.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct FreeForm(pub serde_json::Map<String, Value>);

impl<'de> Deserialize<'de> for FreeForm {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = serde_json::Map::deserialize(deserializer)?;
        check_size(&fields)?;
        Ok(Self(fields))
    }
}

impl JsonSchema for FreeForm {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FreeForm".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "x-max-bytes": LARGEST_FREE_FORM })
    }
}

/// An absolute `http` or `https` URL of at most 2,048 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct WebUrl(String);

/// The greatest length of a URL in a body, in bytes.
const LONGEST_URL: usize = 2048;

impl WebUrl {
    /// The URL's text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl<'de> Deserialize<'de> for WebUrl {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Err(serde::de::Error::custom("Input should be a valid URL, input is empty"));
        }
        check_url(&text)?;
        let rest = ["https://", "http://"].into_iter().find_map(|scheme| {
            text.get(..scheme.len())
                .filter(|start| start.eq_ignore_ascii_case(scheme))
                .map(|_| &text[scheme.len()..])
        });
        let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
        if host.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(serde::de::Error::custom(
                "Input should be a valid URL, absolute and of scheme http or https",
            ));
        }
        Ok(Self(text))
    }
}

impl JsonSchema for WebUrl {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WebUrl".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "uri", "maxLength": LONGEST_URL })
    }
}

fn check_url<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.len() > LONGEST_URL {
        return Err(E::custom(format_args!("URL should have at most {LONGEST_URL} bytes")));
    }
    Ok(())
}

/// A text of `MIN` to `MAX` characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text<const MAX: usize, const MIN: usize = 0>(String);

/// A name, a title or an identifier: at most 255 characters.
pub type ShortText = Text<255>;

/// A tag that a list is narrowed by: a key, and a value of at most 1,024 characters.
pub type TagText = Text<1280>;

/// A tag's value: at most 1,024 characters.
pub type TagValue = Text<1024>;

/// What is neither short nor a description: at most 4,096 characters.
pub type LongText = Text<{ 4 << 10 }>;

/// A description: at most 64 Ki characters.
pub type Description = Text<{ 64 << 10 }>;

impl<const MAX: usize, const MIN: usize> Text<MAX, MIN> {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, by value.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl<const MAX: usize, const MIN: usize> std::ops::Deref for Text<MAX, MIN> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize, const MIN: usize> std::fmt::Display for Text<MAX, MIN> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const MAX: usize> Default for Text<MAX> {
    fn default() -> Self {
        Self(String::new())
    }
}

impl<const MAX: usize, const MIN: usize> TryFrom<String> for Text<MAX, MIN> {
    type Error = BadText;

    fn try_from(text: String) -> Result<Self, BadText> {
        match text.chars().count() {
            length if length < MIN => Err(BadText::TooShort(MIN)),
            length if length > MAX => Err(BadText::TooLong(MAX)),
            _ => Ok(Self(text)),
        }
    }
}

impl<const MAX: usize, const MIN: usize> FromStr for Text<MAX, MIN> {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        text.to_owned().try_into()
    }
}

impl<'de, const MAX: usize, const MIN: usize> Deserialize<'de> for Text<MAX, MIN> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}

impl<const MAX: usize, const MIN: usize> JsonSchema for Text<MAX, MIN> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Text{MIN}To{MAX}").into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        match MIN {
            0 => schemars::json_schema!({ "type": "string", "maxLength": MAX }),
            _ => schemars::json_schema!({ "type": "string", "minLength": MIN, "maxLength": MAX }),
        }
    }
}

/// A URL as it is reported, of any form or none: at most 2,048 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, by value.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl std::ops::Deref for Address {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Address {
    type Err = serde::de::value::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        check_url(text)?;
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        check_url(&text)?;
        Ok(Self(text))
    }
}

impl JsonSchema for Address {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Address".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "maxLength": LONGEST_URL, "x-max-bytes": LONGEST_URL })
    }
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident = $word:literal $pattern:literal, |$text:ident| $fits:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(ShortText);

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let fits = |$text: &str| $fits;
                if text.is_empty() || !fits(text) {
                    return Err(format!(concat!($word, " '{}' should match pattern '{}'"), text, $pattern));
                }
                text.parse().map(Self).map_err(|error: BadText| error.to_string())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern, "maxLength": 255 })
            }
        }
    )*};
}

keys! {
    /// What a link is called.
    LinkLabel = "Label" "^[^=.]+$", |text| !text.contains(['=', '.']);
    /// What a remark is called.
    AnnotationKey = "Key" "^[A-Za-z0-9_-]+$",
        |text| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
}

/// At most `MAX` values by their keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Dictionary<K, V, const MAX: usize = 1000>(pub BTreeMap<K, V>);

impl<K, V, const MAX: usize> Default for Dictionary<K, V, MAX> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, const MAX: usize> Deserialize<'de>
    for Dictionary<K, V, MAX>
{
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = BTreeMap::deserialize(deserializer)?;
        if entries.len() > MAX {
            return Err(serde::de::Error::custom(format_args!("Dictionary should have at most {MAX} items")));
        }
        Ok(Self(entries))
    }
}

impl<K: JsonSchema, V: JsonSchema, const MAX: usize> JsonSchema for Dictionary<K, V, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("{}By{}", V::schema_name(), K::schema_name()).into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let (keys, values) = (generator.subschema_for::<K>(), generator.subschema_for::<V>());
        schemars::json_schema!({
            "type": "object", "propertyNames": keys, "additionalProperties": values, "maxProperties": MAX,
        })
    }
}

/// A list of at most `MAX` items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct List<T, const MAX: usize = 1000>(pub Vec<T>);

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::deserialize(deserializer)?;
        if items.len() > MAX {
            return Err(serde::de::Error::custom(format_args!("List should have at most {MAX} items")));
        }
        Ok(Self(items))
    }
}

impl<T: JsonSchema, const MAX: usize> JsonSchema for List<T, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("ListOf{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let items = generator.subschema_for::<T>();
        schemars::json_schema!({ "type": "array", "items": items, "maxItems": MAX })
    }
}

/// Each of these once, in ascending order: what a store is asked about.
pub(crate) fn distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    Vec::from_iter(std::collections::BTreeSet::from_iter(items))
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
    use serde_json::json;

    use super::*;
    use crate::decode::from_json;

    /// Reads `value`; where that works, what is written again is `value`.
    fn accepts<T: DeserializeOwned + Serialize>(value: &Value) -> bool {
        let Ok(read) = from_json::<T>(value) else { return false };
        assert_eq!(serde_json::to_value(read).unwrap(), *value);
        true
    }

    fn fits(pattern: &str, text: &str) -> bool {
        regex::Regex::new(pattern).unwrap().is_match(text)
    }

    #[test]
    fn an_origin_is_an_absolute_web_url_of_at_most_2_kib() {
        let longest = format!("https://e/{}", "a".repeat(LONGEST_URL - 10));
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
