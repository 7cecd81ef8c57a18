//! Steps through JSON text whose grammar is right.

use std::borrow::Cow;

/// A place in JSON text whose grammar is right: where a value, a name or the end of what is around them comes next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    /// The beginning of a text.
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// The next byte that is no white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.bytes().next()
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Goes into the array or object that comes.
    pub(crate) fn open(&mut self) {
        self.peek();
        self.take(1);
    }

    /// Whether another item or name comes in the array or object that it is in.
    pub(crate) fn more(&mut self) -> bool {
        if self.peek() == Some(b',') {
            self.take(1);
        }
        !matches!(self.peek(), None | Some(b']' | b'}'))
    }

    /// Goes behind the array or object that it is in, over whatever is left of it.
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

    /// The text of the value that comes.
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

    /// The null, boolean or number that comes.
    pub(crate) fn scalar(&mut self) -> &'a str {
        let ends = |byte| matches!(byte, b',' | b':' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
        self.peek();
        self.take(self.rest.bytes().position(ends).unwrap_or(self.rest.len()))
    }

    /// What the string that comes spells.
    ///
    /// # Errors
    /// When it spells half of a surrogate pair, which the grammar allows.
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

    /// The name of the field that comes, whose value is next.
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

/// Goes on behind the end of the string that has begun.
pub(super) fn skip_string(rest: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(rest.next()),
            _ => {}
        }
    }
}

/// JSON text without white space between its parts and with its strings as `serde_json` writes them; its numbers are the
/// same characters.
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
