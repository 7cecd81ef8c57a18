//! The bodies of requests: as received, and as an operation reads them.

use std::future::Future;

use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

use crate::blobs::Upload;
use crate::compute::{Compute, LONG_JSON};
use crate::decode::{self, InvalidField};
use crate::error::{Error, Result};
use crate::json::{self, CheckedJson};
use crate::limits::Limits;

/// A body as received, before the type of the operation is known.
#[derive(Debug)]
pub enum RawBody {
    /// No body.
    Empty,
    /// JSON text.
    Json(Bytes),
    /// A multipart form.
    Form {
        /// The text of the JSON part, if present.
        document: Option<Bytes>,
        /// The file parts, sorted by the numbers in their names: the part's name and the file.
        files: Vec<(String, Upload)>,
    },
    /// The bytes of any other body.
    Bytes(Raw),
}

impl RawBody {
    /// Returns the size of its JSON in bytes.
    fn json_len(&self) -> usize {
        match self {
            Self::Json(text) => text.len(),
            Self::Form { document, .. } => document.as_ref().map_or(0, Bytes::len),
            Self::Empty | Self::Bytes(_) => 0,
        }
    }
}

/// The kind of body that an operation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// No body.
    Empty,
    /// JSON.
    Json,
    /// A multipart form.
    Form(FormParts),
    /// Bytes of any type, up to the operation's limit.
    Raw,
}

/// The parts of a form that are read; others are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormParts {
    /// The name of the JSON part.
    pub document: &'static str,
    /// The name of the file part.
    pub file: &'static str,
    /// Whether parts named `<file>.<n>` are files as well, and a part `<file>` without a file name is stored
    /// as a text file.
    pub many: bool,
}

/// The type of an operation's request body.
pub trait Body: Sized + Send + 'static {
    /// The kind of body.
    const KIND: BodyKind;
    /// Returns the schema of its JSON for the OpenAPI document.
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;
    /// Parses the body.
    fn read(raw: RawBody) -> Result<Self>;

    /// Parses the body under these limits; long JSON is parsed in `compute`.
    fn read_in(raw: RawBody, limits: Limits, compute: &Compute) -> impl Future<Output = Result<Self>> + Send {
        let heavy = raw.json_len() > LONG_JSON;
        async move { compute.run_if(heavy, move || limits.apply(|| Self::read(raw))).await? }
    }
}

impl Body for () {
    const KIND: BodyKind = BodyKind::Empty;

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn read(_: RawBody) -> Result<()> {
        Ok(())
    }
}

/// A JSON body, or a JSON response with status 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Body for Json<T> {
    const KIND: BodyKind = BodyKind::Json;

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn read(raw: RawBody) -> Result<Self> {
        read_json(raw, |text| decode::from_json(text)).map(Self)
    }
}

/// Parses a JSON body.
fn read_json<T>(raw: RawBody, read: impl FnOnce(CheckedJson<'_>) -> Result<T, InvalidField>) -> Result<T> {
    let bytes = match raw {
        RawBody::Json(bytes) => bytes,
        RawBody::Empty => Bytes::from_static(b"null"),
        RawBody::Form { .. } | RawBody::Bytes(_) => return Err(Error::UnsupportedMediaType),
    };
    let text = json::check(&bytes).map_err(|text| Error::invalid("body", text))?;
    if text.is_null() {
        return Err(Error::invalid("body", "Field required [input: None]"));
    }
    read(text).map_err(|misfit| Error::invalid_field(&misfit, "body"))
}

/// A JSON body that is parsed like the document of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonDocument<T>(pub T);

impl<T: Document> Body for JsonDocument<T> {
    const KIND: BodyKind = BodyKind::Json;

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn read(raw: RawBody) -> Result<Self> {
        read_json(raw, |text| T::read(text)).map(Self)
    }
}

/// The JSON document of a form.
pub trait Document: JsonSchema + Sized + Send + 'static {
    /// The parts of the form.
    const PARTS: FormParts;
    /// Parses the document; usually [`decode::from_json`].
    fn read(text: CheckedJson<'_>) -> Result<Self, InvalidField>;
}

/// A multipart form: a JSON document and files.
#[derive(Debug)]
pub struct Form<T> {
    /// The document.
    pub document: T,
    /// The files, sorted by the numbers of their parts.
    pub files: Vec<Upload>,
}

impl<T> Form<T> {
    /// Creates a form without files.
    pub const fn of(document: T) -> Self {
        Self { document, files: Vec::new() }
    }

    /// Returns the document and the content of the only file as UTF-8 text of at most `limit` bytes. `part`
    /// names the file in errors.
    pub async fn into_text(self, part: &'static str, limit: u64) -> Result<(T, Option<String>)> {
        let Some(file) = self.files.into_iter().next() else { return Ok((self.document, None)) };
        if file.size > limit {
            return Err(Error::TooLarge { limit, file: false, part });
        }
        let bytes = file.read().await?;
        let text = String::from_utf8(bytes).map_err(|_| Error::invalid(part, "File should be UTF-8 text"))?;
        Ok((self.document, Some(text)))
    }
}

impl<T: Document> Body for Form<T> {
    const KIND: BodyKind = BodyKind::Form(T::PARTS);

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn read(raw: RawBody) -> Result<Self> {
        let part = T::PARTS.document;
        let missing = || Error::invalid(part, "Field required [input: None]");
        let RawBody::Form { document, files } = raw else { return Err(missing()) };
        let bytes = document.ok_or_else(missing)?;
        let text = json::check(&bytes).map_err(|text| Error::invalid(part, text))?;
        let document = T::read(text).map_err(|misfit| Error::invalid_field(&misfit, part))?;
        Ok(Self { document, files: files.into_iter().map(|(_, file)| file).collect() })
    }
}

/// Bytes of any type. As a body, they are not parsed, for example because they are signed. As a response, the
/// status is 200.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Raw {
    /// The media type of the request. A response without one has `application/octet-stream`.
    pub media_type: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

impl Body for Raw {
    const KIND: BodyKind = BodyKind::Raw;

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn read(raw: RawBody) -> Result<Self> {
        match raw {
            RawBody::Bytes(raw) => Ok(raw),
            RawBody::Empty => Ok(Self::default()),
            RawBody::Json(_) | RawBody::Form { .. } => Err(Error::UnsupportedMediaType),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_json_is_refused_and_null_is_nothing() {
        let read = |text: &'static [u8]| match Json::<serde_json::Value>::read(RawBody::Json(
            Bytes::from_static(text),
        )) {
            Ok(Json(value)) => Ok(value),
            Err(Error::Invalid { fields, .. }) => Err(fields.into_iter().next().unwrap()),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(read(b" {\"a\": []}\n"), Ok(serde_json::json!({"a": []})));
        for text in [b"{" as &[u8], b" ", b"{} {}", b"\"\xff\"", b"\xef\xbb\xbf{}", b"NaN", b"'a'"] {
            assert_eq!(read(text).unwrap_err().0, "body", "{text:?}");
        }
        let nothing = Err(("body".to_owned(), "Field required [input: None]".to_owned()));
        assert_eq!([read(b"null"), read(b" null\n")], [nothing.clone(), nothing]);
    }
}
