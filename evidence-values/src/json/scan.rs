//! A scanner over grammatically valid JSON text.

use std::borrow::Cow;

/// A position in grammatically valid JSON text, before a value, a name or the end of the enclosing container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    /// Starts at the beginning of a text.
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// Returns the next byte that is not white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.bytes().next()
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Enters the next array or object.
    pub(crate) fn open(&mut self) {
        self.peek();
        self.take(1);
    }

    /// Returns whether the enclosing array or object has another item or name.
    pub(crate) fn more(&mut self) -> bool {
        if self.peek() == Some(b',') {
            self.take(1);
        }
        !matches!(self.peek(), None | Some(b']' | b'}'))
    }

    /// Leaves the enclosing array or object, skipping the rest of it.
    pub(crate) fn close(&mut self) {
        let mut rest = self.rest.as_bytes().iter();
        let mut depth = 1_usize;
        while depth > 0 {
            match rest.next() {
                Some(b'"') => skip_string(&mut rest),
                Some(b'[' | b'{') => depth += 1,
                Some(b']' | b'}') => depth -= 1,
                Some(_) => {}
                None => break,
            }
        }
        self.take(self.rest.len() - rest.len());
    }

    /// Returns the text of the next value.
    pub(crate) fn value(&mut self) -> &'a str {
        match self.peek() {
            Some(b'[' | b'{') => {
                let begin = self.rest;
                self.open();
                self.close();
                begin.get(..begin.len() - self.rest.len()).unwrap_or(begin)
            }
            Some(b'"') => self.quoted(),
            _ => self.scalar(),
        }
    }

    /// Returns the next null, boolean or number.
    pub(crate) fn scalar(&mut self) -> &'a str {
        let ends = |byte| matches!(byte, b',' | b':' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
        self.peek();
        self.take(self.rest.bytes().position(ends).unwrap_or(self.rest.len()))
    }

    /// Returns the decoded next string.
    ///
    /// # Errors
    /// The string contains half of a surrogate pair, which the grammar allows.
    pub(crate) fn string(&mut self) -> serde_json::Result<Cow<'a, str>> {
        self.peek();
        let quoted = self.quoted();
        if quoted.contains('\\') {
            serde_json::from_str(quoted).map(Cow::Owned)
        } else {
            let text = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            Ok(text.unwrap_or_default().into())
        }
    }

    /// Returns the name of the next field, and advances to its value.
    ///
    /// # Errors
    /// As [`Self::string`].
    pub(crate) fn name(&mut self) -> serde_json::Result<Cow<'a, str>> {
        let name = self.string()?;
        self.peek();
        self.take(1);
        Ok(name)
    }

    fn quoted(&mut self) -> &'a str {
        let mut rest = self.rest.as_bytes().iter();
        rest.next();
        skip_string(&mut rest);
        self.take(self.rest.len() - rest.len())
    }
}

/// Skips the rest of a string, including its closing quote.
pub(super) fn skip_string(rest: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(rest.next()),
            _ => {}
        }
    }
}

/// Returns JSON text without white space between its parts. Strings are spelled as `serde_json` does; numbers
/// keep their characters.
///
/// # Errors
/// As [`Scanner::string`].
pub(crate) fn compact(text: &str) -> serde_json::Result<String> {
    let (mut at, mut written) = (Scanner::new(text), String::with_capacity(text.len()));
    while let Some(byte) = at.peek() {
        if byte == b'"' {
            let quoted = at.quoted();
            if quoted.contains('\\') {
                written.push_str(&serde_json::to_string(&serde_json::from_str::<String>(quoted)?)?);
            } else {
                written.push_str(quoted);
            }
        } else {
            let ends = |byte| matches!(byte, b'"' | b' ' | b'\t' | b'\r' | b'\n');
            written.push_str(at.take(at.rest.bytes().position(ends).unwrap_or(at.rest.len())));
        }
    }
    Ok(written)
}
