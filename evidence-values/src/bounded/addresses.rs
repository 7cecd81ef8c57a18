//! Addresses: URLs and mailboxes.

use std::borrow::Cow;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::urls::{recordable, recordable_secret};
use crate::decode::is_recorded;
use crate::name::InvalidText;

/// Maximum length of a URL in a body, in bytes.
const MAX_URL: usize = 2048;

/// An absolute `http` or `https` URL of at most 2,048 bytes. User name and password are removed, and
/// characters that RFC 3986 does not allow are percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct WebUrl(String);

impl WebUrl {
    /// Returns the text of the URL.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl<'de> Deserialize<'de> for WebUrl {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        web_url(&String::deserialize(deserializer)?, recordable).map(Self)
    }
}

/// Returns the URL as recorded, if it is an absolute web URL.
fn web_url<E: serde::de::Error>(text: &str, recordable: fn(&str) -> Cow<'_, str>) -> Result<String, E> {
    if text.is_empty() {
        return Err(E::custom("Input should be a valid URL, input is empty"));
    }
    let url = recorded_url(text, recordable)?;
    let is_web = |url: Url| matches!(url.scheme(), "http" | "https");
    if Url::parse(&url).is_ok_and(is_web) {
        Ok(url)
    } else {
        Err(E::custom("Input should be a valid URL, absolute and of scheme http or https"))
    }
}

/// Returns the URL as recorded, if it is not too long.
fn recorded_url<E: serde::de::Error>(text: &str, recordable: fn(&str) -> Cow<'_, str>) -> Result<String, E> {
    if is_recorded() {
        return Ok(text.to_owned());
    }
    if text.len() > MAX_URL {
        return Err(E::custom(format_args!("URL should have at most {MAX_URL} bytes")));
    }
    let url = recordable(text);
    if url.len() > MAX_URL {
        return Err(E::custom(format_args!(
            "URL should have at most {MAX_URL} bytes, and has {} once it is percent-encoded",
            url.len()
        )));
    }
    Ok(url.into_owned())
}

impl JsonSchema for WebUrl {
    fn schema_name() -> Cow<'static, str> {
        "WebUrl".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "uri", "maxLength": MAX_URL })
    }
}

/// The URL that notifications are posted to. It differs from [`WebUrl`] in that its credentials are not
/// removed here: the whole URL is a secret, and the rules for webhook URLs decide about credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct WebhookUrl(String);

impl WebhookUrl {
    /// Returns the text of the URL.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl<'de> Deserialize<'de> for WebhookUrl {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        web_url(&String::deserialize(deserializer)?, recordable_secret).map(Self)
    }
}

impl JsonSchema for WebhookUrl {
    fn schema_name() -> Cow<'static, str> {
        "WebhookUrl".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        WebUrl::json_schema(generator)
    }
}

/// The address of a mailbox, such as `jane@example.com`: at most 254 characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Mailbox(String);

/// Maximum length of a mailbox: a path of 256 (RFC 5321, section 4.5.3.1.3) without its angle brackets.
const MAX_MAILBOX: usize = 254;

impl Mailbox {
    /// Returns the text of the address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether it is a mailbox of RFC 5321, section 4.1.2, without quoted local parts and address
/// literals. The strict form is safe in mail headers and SMTP commands.
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
            return Err(serde::de::Error::custom(InvalidText::TooLong(MAX_MAILBOX)));
        }
        if !is_mailbox(&text) {
            return Err(serde::de::Error::custom("Input should be an address of the form 'local@domain'"));
        }
        Ok(Self(text))
    }
}

impl JsonSchema for Mailbox {
    fn schema_name() -> Cow<'static, str> {
        "Mailbox".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "email", "maxLength": MAX_MAILBOX })
    }
}

/// A URL as reported, of any form or none: at most 2,048 bytes. User name and password are removed. In an
/// absolute URL, characters that RFC 3986 does not allow are percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text by value.
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
        recorded_url(text, recordable).map(Self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        recorded_url(&String::deserialize(deserializer)?, recordable).map(Self)
    }
}

impl JsonSchema for Address {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "maxLength": MAX_URL, "x-max-bytes": MAX_URL })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bounded::tests::accepts;
    use crate::decode::from_value;

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
        for url in
            ["http://e", "https://e.example/p?q#f", "HTTPS://E", "http://[::1]/", "https:///p", &longest]
        {
            assert!(accepts::<WebUrl>(&json!(url)), "{url}");
        }
        let longer = format!("{longest}a");
        let longer_encoded = format!("https://e/{}e", " ".repeat(700));
        let refused = [
            "",
            "e",
            "//e",
            "ftp://e",
            "http:",
            "http://",
            "http://?q",
            "http://user@/",
            "http://:80/",
            "http://user@:80/",
            "http://e:port/",
            "http://e e/",
            &longer,
            &longer_encoded,
        ];
        for url in refused {
            assert!(from_value::<WebUrl>(&json!(url)).is_err(), "{url}");
            assert!(from_value::<WebhookUrl>(&json!(url)).is_err(), "{url}");
        }
    }

    #[test]
    fn credentials_are_removed_from_every_url_but_that_of_a_webhook() {
        let sent = json!("https://user:secret@e/My Project");
        assert_eq!(json!(from_value::<WebUrl>(&sent).unwrap()), "https://e/My%20Project");
        assert_eq!(json!(from_value::<Address>(&sent).unwrap()), "https://e/My%20Project");
        assert_eq!(
            "https://user:secret@e/My Project".parse::<Address>().unwrap().as_str(),
            "https://e/My%20Project"
        );
        let webhook = from_value::<WebhookUrl>(&sent).unwrap();
        assert_eq!(json!(webhook), "https://user:secret@e/My%20Project");
    }
}
