//! Parses store addresses: the file that an address names, and the URI for SQLite.

use std::path::{Path, PathBuf};

use crate::error::ConnectError;

/// The allowed parameters after a file. SQLite has others, with which a store would not be safe, and ignores
/// unknown ones.
const PARAMETERS: [&str; 4] = ["mode", "cache", "vfs", "psow"];

/// A parsed address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    file: String,
    parameters: Option<String>,
}

impl Address {
    /// Parses `sqlite://path?parameters`.
    pub(crate) fn read(url: &str) -> Result<Self, ConnectError> {
        let bad = || ConnectError::InvalidUrl;
        if url.contains(":memory:") || url.contains("mode=memory") {
            return Err(ConnectError::InMemory);
        }
        let path = url.strip_prefix("sqlite:").ok_or_else(bad)?;
        let path = path.strip_prefix("//").unwrap_or(path);
        let (path, parameters) = path.split_once('?').map_or((path, None), |(path, rest)| (path, Some(rest)));
        let mut names = parameters.into_iter().flat_map(|all| all.split('&'));
        let understood = names.all(|one| {
            one.split_once('=').is_some_and(|(name, value)| {
                PARAMETERS.contains(&name) && !value.contains(['?', '#', '%', '\0'])
            })
        });
        let file = decoded(path).filter(|file| !file.is_empty() && !file.contains('\0')).ok_or_else(bad)?;
        // A URI fragment has no meaning here.
        if !understood || path.contains('#') {
            return Err(bad());
        }
        Ok(Self { file, parameters: parameters.map(str::to_owned) })
    }

    /// Returns the name by which SQLite opens the file at `path`, in the form of `name`: an address or a
    /// path.
    pub(crate) fn renamed(name: &Path, path: &Path) -> PathBuf {
        let (Some(name), Some(file)) =
            (name.to_str().filter(|name| name.starts_with("file:")), path.to_str())
        else {
            return path.to_owned();
        };
        // The file exists, so `mode=rwc` is no longer needed.
        let parameters = name.split_once('?').map_or("", |(_, all)| all).split('&');
        let parameters: Vec<_> = parameters.filter(|one| !one.is_empty() && *one != "mode=rwc").collect();
        let parameters = (!parameters.is_empty()).then(|| parameters.join("&"));
        Self { file: file.to_owned(), parameters }.uri().into()
    }

    /// Returns the path of the file in a name of either form, whether or not the file exists.
    pub(crate) fn path_of(name: &Path) -> PathBuf {
        let Some(uri) = name.to_str().and_then(|name| name.strip_prefix("file:")) else {
            return name.to_owned();
        };
        let path = uri.split_once('?').map_or(uri, |(path, _)| path);
        decoded(path).map_or_else(|| name.to_owned(), PathBuf::from)
    }

    /// Returns the path of the file, whether or not it exists.
    pub(crate) fn file(self) -> PathBuf {
        self.file.into()
    }

    /// Returns the URI that SQLite parses. SQLite decodes the path again.
    pub(crate) fn uri(&self) -> String {
        let path = self.file.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        // Two slashes would begin a host name.
        let root = if path.starts_with("//") { "//" } else { "" };
        let parameters = self.parameters.as_ref().map(|all| format!("?{all}")).unwrap_or_default();
        format!("file:{root}{path}{parameters}")
    }
}

/// Decodes the percent-encoded bytes of a path (`%20`).
fn decoded(path: &str) -> Option<String> {
    let mut pieces = path.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(piece.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_decoded_once_and_written_for_sqlite() {
        for (url, file, uri) in [
            ("sqlite://a/b.db", "a/b.db", "file:a/b.db"),
            ("sqlite:a.db?mode=rw&cache=private", "a.db", "file:a.db?mode=rw&cache=private"),
            ("sqlite:///a%20b.db", "/a b.db", "file:/a b.db"),
            ("sqlite:////a.db", "//a.db", "file:////a.db"),
            ("sqlite://100%2525%3f%23.db", "100%25?#.db", "file:100%2525%3f%23.db"),
            ("sqlite://%c3%a4ö.db", "äö.db", "file:äö.db"),
        ] {
            let address = Address::read(url).unwrap();
            assert_eq!((address.uri().as_str(), address.file()), (uri, file.into()), "{url}");
        }
        for url in [
            "sqlite://",
            "a.db",
            "sqlite://a#b",
            "sqlite://a%",
            "sqlite://a%2",
            "sqlite://a%+1",
            "sqlite://%ff",
            "sqlite://a%00",
            "sqlite://a?",
            "sqlite://a?b",
            "sqlite://a?nolock=1",
            "sqlite://a?mode=rw#b",
        ] {
            assert!(matches!(Address::read(url), Err(ConnectError::InvalidUrl)), "{url}");
        }
    }
}
