//! Small validated texts: names, digests and commits. The pattern appears in the JSON Schema and in the error
//! message, and every value matches it as a whole string (specification, Limits).

use std::ops::RangeInclusive;

/// The reason why a text is invalid, in the wording of the API's validation errors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidText {
    /// It does not match the pattern.
    #[error("String should match pattern '{0}'")]
    Pattern(&'static str),
    /// It has more characters than this maximum.
    #[error("String should have at most {0} character{s}", s = plural(*.0))]
    TooLong(usize),
    /// It has fewer characters than this minimum.
    #[error("String should have at least {0} character{s}", s = plural(*.0))]
    TooShort(usize),
}

const fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Returns whether the text begins with an alphanumeric character, followed by alphanumeric characters or
/// `marks`. The checks are written by hand because a store reads thousands of names for one response, and a
/// regular expression is many times slower.
fn is_name(text: &str, marks: &[u8]) -> bool {
    text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric()) && is_word(text, marks)
}

/// Returns whether the text is one or more alphanumeric characters or `marks`.
fn is_word(text: &str, marks: &[u8]) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || marks.contains(&byte))
}

/// Returns whether the text is this number of lower-case hex digits.
fn is_hex(text: &str, digits: RangeInclusive<usize>) -> bool {
    digits.contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $pattern:literal, $longest:literal, |$text:ident| $fits:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The pattern that the whole text matches.
            pub const PATTERN: &'static str = $pattern;
            /// The maximum length in characters.
            pub const MAX_LEN: usize = $longest;

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the text by value.
            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidText;

            fn try_from(text: String) -> Result<Self, InvalidText> {
                let fits = |$text: &str| $fits;
                if !fits(&text) {
                    return Err(InvalidText::Pattern(Self::PATTERN));
                }
                // Every pattern is ASCII, so the number of bytes is the number of characters.
                if text.len() > Self::MAX_LEN {
                    return Err(InvalidText::TooLong(Self::MAX_LEN));
                }
                Ok(Self(text))
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidText;

            fn from_str(text: &str) -> Result<Self, InvalidText> {
                text.to_owned().try_into()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern, "maxLength": $longest })
            }
        }
    )*

    #[cfg(test)]
    mod tests {
        use proptest::prelude::*;
        use regex::Regex;

        proptest! {$(
            #[test]
            #[expect(non_snake_case, reason = "named after the type")]
            fn $name(text in concat!(
                "[a-zA-Z0-9][a-zA-Z0-9._~,-]{0,12}|[a-f0-9]{5,64}|[a-f0-9]{40}|[a-f0-9]{64}|",
                "[a-zA-Z0-9]{63,65}|[a-z]{254,257}|[a-z]{1,4}\n|[a-z]\u{0}[a-z]|\\PC{0,8}"
            )) {
                let fits = Regex::new(&format!("\\A(?:{})\\z", $pattern)).unwrap().is_match(&text)
                    && text.chars().count() <= $longest;
                prop_assert_eq!(text.parse::<super::$name>().is_ok(), fits);
                let json = serde_json::to_string(&text).unwrap();
                let read = serde_json::from_str::<super::$name>(&json);
                prop_assert_eq!(read.is_ok(), fits);
                if let Ok(value) = read {
                    prop_assert_eq!(serde_json::to_string(&value).unwrap(), json);
                    prop_assert_eq!(value.to_string(), text);
                }
            }
        )*}

        #[test]
        fn a_name_at_its_greatest_length_is_accepted_and_one_more_is_not() {$({
            let longest = "a".repeat(super::$name::MAX_LEN);
            prop_assert_eq_plain(longest.parse::<super::$name>().is_ok(), true, stringify!($name));
            prop_assert_eq_plain(format!("{longest}a").parse::<super::$name>().is_ok(), false, stringify!($name));
        })*}

        fn prop_assert_eq_plain(found: bool, expected: bool, name: &str) {
            assert_eq!(found, expected, "{name}");
        }
    }};
}

texts! {
    /// An organization's name.
    OrgName = r"^[a-zA-Z0-9][a-zA-Z0-9\-_.]*$", 64, |text| is_name(text, b"-_.");
    /// A flow's name (specification, Artifacts: `flow_name`).
    FlowName = r"^[a-zA-Z0-9][a-zA-Z0-9\.\-_~]*$", 255, |text| is_name(text, b".-_~");
    /// A trail's name (specification, Limits: artifact name-like field).
    TrailName = r"^[a-zA-Z0-9][a-zA-Z0-9\-_.~]*$", 255, |text| is_name(text, b"-_.~");
    /// The name by which a template refers to an artifact.
    TemplateReferenceName = r"^[a-zA-Z0-9\-_]+$", 255, |text| is_word(text, b"-_");
    /// An environment's name.
    EnvironmentName = r"^[a-zA-Z0-9][a-zA-Z0-9\.\-_]*$", 255, |text| is_name(text, b".-_");
    /// A service account's name (specification, Limits: service account path parameter).
    ServiceAccountName = r"^[a-zA-Z0-9\-]+$", 64, |text| is_word(text, b"-");
    /// A policy's name.
    PolicyName = r"^[a-zA-Z0-9][a-zA-Z0-9\-_\.~]*$", 255, |text| is_name(text, b"-_.~");
    /// An action's name.
    ActionName = r"^[a-zA-Z0-9][a-zA-Z0-9\-_\.~/]*$", 255, |text| is_name(text, b"-_.~/");
    /// An attestation's name.
    AttestationName = r"^[a-zA-Z0-9\-_,]+$", 255, |text| is_word(text, b"-_,");
    /// A custom attestation type's name.
    AttestationTypeName = r"^[a-zA-Z0-9][a-zA-Z0-9\-_~.]*$", 255, |text| is_name(text, b"-_~.");
    /// A control's identifier.
    ControlIdentifier = r"^[a-zA-Z0-9\-._~]+$", 256, |text| is_word(text, b"-._~");
    /// A tag's key.
    TagKey = r"^[a-zA-Z0-9][a-zA-Z0-9\-_\.~]*$", 255, |text| is_name(text, b"-_.~");
    /// A SHA-256 digest in lower-case hex (specification, Artifact: `fingerprint`).
    Fingerprint = r"^[a-f0-9]{64}$", 64, |text| is_hex(text, 64..=64);
    /// A fingerprint, or at least its first five digits (specification, Limits: fingerprint lookup length).
    FingerprintPrefix = r"^[a-f0-9]{5,64}$", 64, |text| is_hex(text, 5..=64);
    /// A full git commit hash (specification, Artifact: `git_commit`).
    CommitSha = r"^[a-f0-9]{40}$", 40, |text| is_hex(text, 40..=40);
    /// A git commit hash, or at least its first five digits.
    CommitPrefix = r"^[a-f0-9]{5,40}$", 40, |text| is_hex(text, 5..=40);
}
