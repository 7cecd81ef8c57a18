//! Normalizes URLs for storage: credentials are removed, and characters that RFC 3986 does not allow are
//! percent-encoded. Nothing else changes, because clients compare the stored URL with the one they sent.

use std::borrow::Cow;
use std::ops::Range;

use url::Url;

/// Schemes whose URLs have no host, so an `@` in them does not indicate credentials.
const WITHOUT_HOST: [&str; 17] = [
    "acct", "cid", "data", "docker", "file", "im", "mailto", "mid", "news", "oci", "pkg", "pres", "sip",
    "sips", "tag", "urn", "xmpp",
];

/// Returns the URL without user name and password, and with the characters percent-encoded that RFC 3986 does
/// not allow. From a text that is not an absolute URL, it only removes credentials.
pub(super) fn recordable(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let url = cleaned(text);
    match without_credentials(&url) {
        Some(url) => Cow::Owned(encoded(&url).unwrap_or(url)),
        None => encoded(&url).map_or(Cow::Borrowed(text), Cow::Owned),
    }
}

/// Returns the URL with the characters percent-encoded that RFC 3986 does not allow, including its
/// credentials.
pub(super) fn recordable_secret(text: &str) -> Cow<'_, str> {
    encoded(&cleaned(text)).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Returns whether the text cannot contain credentials or characters that RFC 3986 does not allow. Most URLs
/// are like this.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte != b'@' && byte != b'%' && byte != b'#' && is_allowed(byte))
}

/// Removes the characters that the URL standard ignores: spaces and control characters around the text, and
/// tabs and line ends within it.
fn cleaned(text: &str) -> String {
    let ignored_around = |c: char| c <= ' ';
    text.trim_matches(ignored_around).chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect()
}

/// Returns the URL without the user information before its host, or `None` if it has none.
fn without_credentials(url: &str) -> Option<String> {
    let mut rest = url.to_owned();
    // Removing the `@` of `https:@/user:secret@host` leaves a URL that again has user information.
    while let Some(found) = user_information(&rest) {
        rest.replace_range(found, "");
        rest = cleaned(&rest);
    }
    (rest.len() < url.len()).then_some(rest)
}

/// Returns the range of the user information of a URL, including its `@`.
fn user_information(url: &str) -> Option<Range<usize>> {
    let begin = authority_begin(url)?;
    let authority = &url[begin..];
    let authority = &authority[..authority.find(authority_ends(url)).unwrap_or(authority.len())];
    let user = authority.rfind('@')?;
    Some(begin..begin + user + 1)
}

/// Returns the start of the authority: user information and host.
fn authority_begin(url: &str) -> Option<usize> {
    let Some((scheme, rest)) = scheme_and_rest(url) else {
        return url.starts_with("//").then_some(2);
    };
    if let Some(slashes) = slashes(scheme, rest) {
        return Some(url.len() - rest.len() + slashes);
    }
    // `scm:git:https://user@host`
    let mut inner = rest;
    loop {
        if inner.starts_with("//") {
            return Some(url.len() - inner.len() + 2);
        }
        match scheme_and_rest(inner) {
            Some((_, rest)) => inner = rest,
            None => break,
        }
    }
    // `user:secret@host:path` parses as a URL with the scheme `user`.
    let names_no_host = WITHOUT_HOST.iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let is_drive = scheme.len() == 1 && rest.starts_with('\\');
    (!names_no_host && !is_drive).then_some(0)
}

/// Returns the characters that end the authority.
fn authority_ends(url: &str) -> &'static [char] {
    match scheme_and_rest(url) {
        Some((scheme, _)) if is_special(scheme) => &['/', '\\', '?', '#'],
        _ => &['/', '?', '#'],
    }
}

/// Returns the scheme of a URL, and the text after the colon.
fn scheme_and_rest(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(of_scheme);
    is_scheme.then_some((scheme, rest))
}

/// Returns whether the URL standard treats a backslash as a slash in URLs of this scheme.
fn is_special(scheme: &str) -> bool {
    ["http", "https", "ws", "wss", "ftp", "file"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// Returns the number of slashes before the authority, or `None` if the URL has no authority.
fn slashes(scheme: &str, rest: &str) -> Option<usize> {
    if !is_special(scheme) {
        return rest.starts_with("//").then_some(2);
    }
    let any = rest.len() - rest.trim_start_matches(['/', '\\']).len();
    if scheme.eq_ignore_ascii_case("file") { (any >= 2).then_some(2) } else { Some(any) }
}

/// Percent-encodes the characters of an absolute URL that RFC 3986 does not allow. Returns `None` for any
/// other text, and for a Windows file path, `C:\file`.
fn encoded(url: &str) -> Option<String> {
    let (scheme, rest) = scheme_and_rest(url).filter(|(scheme, _)| scheme.len() > 1)?;
    Url::parse(url).ok()?;
    let mut written = format!("{scheme}:");
    let mut rest = rest;
    if let Some(slashes) = slashes(scheme, rest) {
        rest = &rest[slashes..];
        let (authority, after) = rest.split_at(rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len()));
        // Brackets are allowed only in a host, and a host must follow exactly two slashes.
        let slashes = if authority.contains('[') { 2 } else { slashes };
        written.extend(std::iter::repeat_n('/', slashes));
        push_encoded(&mut written, authority, |byte| is_allowed(byte) || matches!(byte, b'[' | b']'));
        rest = after;
        if let Some(after) = rest.strip_prefix('\\') {
            written.push('/');
            rest = after;
        }
    }
    let (rest, fragment) =
        rest.split_once('#').map_or((rest, None), |(rest, fragment)| (rest, Some(fragment)));
    push_encoded(&mut written, rest, is_allowed);
    if let Some(fragment) = fragment {
        written.push('#');
        push_encoded(&mut written, fragment, is_allowed);
    }
    Some(written)
}

/// Returns whether RFC 3986 allows this character in a path or a query: `pchar`, `/` and `?`.
const fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b','
        )
        || matches!(byte, b';' | b'=' | b':' | b'@' | b'/' | b'?')
}

/// Appends the text with each byte that is not allowed as `%XX`. Existing percent-encoding is preserved; a
/// `%` without two hex digits is encoded.
fn push_encoded(written: &mut String, text: &str, is_allowed: impl Fn(u8) -> bool) {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().copied().enumerate() {
        let escapes =
            || bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        if is_allowed(byte) || (byte == b'%' && escapes()) {
            written.push(char::from(byte));
        } else {
            written.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_that_the_standard_allows_is_recorded_as_it_was_sent() {
        let table = [
            "https://dev.azure.com/exampleorg/My%20Project/_build/results?buildId=12",
            "HTTPS://Example.com:443/a/../b/./c//d?x=%41&y='()*!$;#frag/?",
            "https://e",
            "https://e?",
            "https:///p",
            "http:e/p",
            "ssh://git.example.com:7999/a.git",
            "file:///srv/git/shop.git",
            "mailto:jane@example.com",
            "https://[2001:db8::1]:8443/a",
            "https://registry.example.com/@scope/package",
            "pkg:npm/%40scope/name@1.0",
            "urn:oasis:names@x",
        ];
        for url in table {
            assert_eq!(recordable(url), url);
        }
    }

    #[test]
    fn only_characters_that_the_standard_does_not_allow_are_encoded() {
        let table = [
            (
                "https://dev.azure.com/exampleorg/My Project/_build/results?buildId=12",
                "https://dev.azure.com/exampleorg/My%20Project/_build/results?buildId=12",
            ),
            ("https://ci/job/[a]/lastBuild?f[x]=1", "https://ci/job/%5Ba%5D/lastBuild?f%5Bx%5D=1"),
            ("https://e/Straße#Ü#2", "https://e/Stra%C3%9Fe#%C3%9C%232"),
            ("https://müller.example/ü", "https://m%C3%BCller.example/%C3%BC"),
            ("https://e/%41%zz%", "https://e/%41%25zz%25"),
            (r#"https://e/<a>"{b}|\^`"#, "https://e/%3Ca%3E%22%7Bb%7D%7C%5C%5E%60"),
            (r"https:\\e\a\b", r"https://e/a%5Cb"),
            (" https://e/a\n", "https://e/a"),
            ("https://e/a\tb", "https://e/ab"),
            ("ssh://git.example.com/My Project", "ssh://git.example.com/My%20Project"),
            ("HTTPS://E:80/a b/../c", "HTTPS://E:80/a%20b/../c"),
        ];
        for (sent, expected) in table {
            assert_eq!(recordable(sent), expected, "{sent}");
            assert_eq!(recordable_secret(sent), expected, "{sent}");
        }
    }

    #[test]
    fn credentials_are_removed_whatever_the_form_of_the_url() {
        let table = [
            ("https://user:secret@e/a", "https://e/a"),
            ("https://user@e:80/a?b#c", "https://e:80/a?b#c"),
            ("https://:secret@e/", "https://e/"),
            ("https://user:p@ss@e/a", "https://e/a"),
            ("https://user:p%40ss@e/My Project", "https://e/My%20Project"),
            (r"https:\\user:secret@e\a", "https://e/a"),
            ("https:user:secret@e/a", "https:e/a"),
            ("https:///user:secret@e/a", "https:///e/a"),
            ("ht\ntps://us\ter:secret@e/a", "https://e/a"),
            ("https:@/user:secret@e/", "https:/e/"),
            ("ssh://git@e/a.git", "ssh://e/a.git"),
            ("git+https://user:secret@e/a.git", "git+https://e/a.git"),
            ("scm:git:https://user:secret@e/a.git", "scm:git:https://e/a.git"),
            ("jdbc:postgresql://user:secret@e/a", "jdbc:postgresql://e/a"),
            ("//user:secret@e/a", "//e/a"),
            ("user:secret@github.com:acme/shop.git", "github.com:acme/shop.git"),
            ("user:secret@github.com/acme/shop", "github.com/acme/shop"),
            ("https://user:secret@e:port/a", "https://e:port/a"),
            ("https://user:secret@ex ample/a", "https://ex ample/a"),
        ];
        for (sent, expected) in table {
            assert_eq!(recordable(sent), expected, "{sent}");
        }
    }

    #[test]
    fn a_text_that_is_no_absolute_url_is_recorded_as_it_was_sent() {
        let table = [
            "",
            "u",
            " ",
            "/srv/git/my shop",
            "git@github.com:acme/shop.git",
            "git@ssh.dev.azure.com:v3/acme/My Project/shop",
            "git@[2001:db8::1]:acme/shop.git",
            "jane@example.com",
            r"C:\git\my shop@2",
            "../a b",
        ];
        for text in table {
            assert_eq!(recordable(text), text);
        }
    }

    /// Texts that are usually URLs, with many kinds of errors.
    fn urls() -> impl Strategy<Value = String> {
        let scheme = "(https?|HTTP|ssh|git\\+https|ftp|file|ws|foo|scm:git:https|[a-z]{1,3})?";
        let slashes = "[:]?[/\\\\\t]{0,3}";
        let user = "(([a-z%@:/\\\\é ]{0,4}@){0,2})";
        let host = "([a-z.é]{0,6}|\\[::1\\]|127\\.0\\.0\\.1)(:[0-9]{0,3})?";
        let rest = "([/?#\\\\][a-zA-Z0-9 %@:?#/\\\\\\[\\]{}|<>\"^`é\u{1}\n-]{0,8}){0,3}";
        let url = proptest::string::string_regex(&format!("[ \n]?{scheme}{slashes}{user}{host}{rest}"));
        prop_oneof![4 => url.expect("a pattern"), 1 => "\\PC{0,20}"]
    }

    /// Returns whether the text matches the grammar of RFC 3986 (appendix A).
    fn is_valid(url: &str) -> bool {
        let allowed = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*";
        let host = r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)";
        let authority = format!("//{host}(?::[0-9]*)?(?:[/?]{allowed})?");
        let pattern = format!(r"\A[A-Za-z][A-Za-z0-9+.-]+:(?:{authority}|{allowed})(?:#{allowed})?\z");
        static PATTERN: OnceLock<regex::Regex> = OnceLock::new();
        PATTERN.get_or_init(|| regex::Regex::new(&pattern).unwrap()).is_match(url)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn what_is_recorded_is_recorded_the_same_again(sent in urls()) {
            let recorded = recordable(&sent).into_owned();
            prop_assert_eq!(recordable(&recorded), recorded.as_str());
        }

        #[test]
        fn what_is_recorded_of_a_url_is_a_valid_url_without_credentials(sent in urls()) {
            let recorded = recordable(&sent);
            if let Ok(url) = Url::parse(&sent) && url.scheme().len() > 1 {
                // Without its credentials, `https:@/…` may name another host, or none.
                let read = Url::parse(&recorded);
                let had_user = url.username() != "" || url.password().is_some() || recorded.len() < sent.len();
                prop_assert!(read.is_ok() || had_user, "{:?} is {:?}", sent, recorded);
                if read.is_ok_and(|read| read.scheme().len() > 1) {
                    prop_assert!(is_valid(&recorded), "{:?} is {:?}", sent, recorded);
                }
            }
            if let Ok(url) = Url::parse(&recorded) {
                prop_assert_eq!((url.username(), url.password()), ("", None), "{:?} is {:?}", sent, recorded);
            }
        }

        #[test]
        fn a_valid_url_without_credentials_is_recorded_as_it_was_sent(
            sent in "(https?|ssh|HTTPS)://[a-zA-Z0-9.-]{1,8}(:[0-9]{1,4})?(/[a-zA-Z0-9._~!$&'()*+,;=:@-]{0,6}|/%[0-9a-fA-F]{2}){0,3}(\\?[a-z0-9/?:@=&%20]{0,4})?(#[a-z/?]{0,4})?"
        ) {
            prop_assume!(is_valid(&sent));
            prop_assert_eq!(recordable(&sent), sent.as_str());
        }

        #[test]
        fn no_url_keeps_a_secret_before_its_host(
            scheme in "https?|ssh|git|git\\+ssh|ftp|HTTPS",
            user in "[a-z]{0,5}",
            secret in "[a-zA-Z0-9%:@!é ]{1,9}",
            rest in "[/?#][a-z]{0,5}",
        ) {
            let recorded = recordable(&format!("{scheme}://{user}:{secret}@example.com{rest}")).into_owned();
            prop_assert_eq!(recorded, format!("{scheme}://example.com{rest}"));
        }
    }
}
