//! Addresses: URLs and mailboxes.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decode::is_recorded;
use crate::name::BadText;

/// An absolute `http` or `https` URL of at most 2,048 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct WebUrl(String);

/// The greatest length of a URL in a body, in bytes.
const MAX_URL: usize = 2048;

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
        let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        if host.is_empty()
            || host.starts_with(':')
            || text.chars().any(|c| c.is_whitespace() || c.is_control())
        {
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
        schemars::json_schema!({ "type": "string", "format": "uri", "maxLength": MAX_URL })
    }
}

/// The address of a mailbox, as `jane@example.com`: at most 254 characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Mailbox(String);

/// The greatest length of a mailbox: a path of 256 (RFC 5321, section 4.5.3.1.3) without its angle brackets.
const MAX_MAILBOX: usize = 254;

impl Mailbox {
    /// The address's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether it is a mailbox as RFC 5321, section 4.1.2, writes it, without quoted local parts and address literals: it
/// stands in headers and in commands to mail servers.
fn is_mailbox(address: &str) -> bool {
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_atom = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    let atoms = |text: &str| text.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atom));
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    local.len() <= 64 && atoms(local) && domain.split('.').all(label)
}

impl<'de> Deserialize<'de> for Mailbox {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > MAX_MAILBOX {
            return Err(serde::de::Error::custom(BadText::TooLong(MAX_MAILBOX)));
        }
        if !is_mailbox(&text) {
            return Err(serde::de::Error::custom("Input should be an address of the form 'local@domain'"));
        }
        Ok(Self(text))
    }
}

impl JsonSchema for Mailbox {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Mailbox".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "email", "maxLength": MAX_MAILBOX })
    }
}

fn check_url<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.len() > MAX_URL && !is_recorded() {
        return Err(E::custom(format_args!("URL should have at most {MAX_URL} bytes")));
    }
    Ok(())
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
        schemars::json_schema!({ "type": "string", "maxLength": MAX_URL, "x-max-bytes": MAX_URL })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::bounded::tests::accepts;

    #[test]
    fn mailboxes_are_told_from_what_would_end_a_header_or_a_command() {
        let table = [
            ("jane@example.com", true),
            ("jane.doe+ci@mail.example.com", true),
            ("o'hara@example.com", true),
            ("root@localhost", true),
            ("jane", false),
            ("@example.com", false),
            ("jane@", false),
            ("jane@example..com", false),
            ("jane@-example.com", false),
            (".jane@example.com", false),
            ("jane@example.com\r\nBcc: all@example.com", false),
            ("jane@example.com,joe@example.com", false),
            ("<jane@example.com>", false),
            ("Jane <jane@example.com>", false),
            ("jane doe@example.com", false),
            ("jane@[127.0.0.1]", false),
            ("jané@example.com", false),
        ];
        for (address, expected) in table {
            assert_eq!(is_mailbox(address), expected, "{address:?}");
        }
        assert!(is_mailbox(&format!("{}@example.com", "a".repeat(64))));
        assert!(!is_mailbox(&format!("{}@example.com", "a".repeat(65))));
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
            "http://user@/",
            "http://:80/",
            "http://user@:80/",
            "http://e/ x",
            "http://e\n",
            &longer,
        ];
        for url in refused {
            assert!(!accepts::<WebUrl>(&json!(url)), "{url}");
        }
    }

    proptest! {
        #[test]
        fn a_url_reads_back_as_itself_or_is_refused(text in "(https?|ftp|HTTP)://[a-z0-9.:@/?#% \\n-]{0,20}|\\PC{0,20}") {
            accepts::<WebUrl>(&json!(text));
        }
    }
}
