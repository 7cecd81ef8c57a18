//! Operations as types. The fields of an operation are its path and query parameters, its constants describe
//! the route, and `run` has the logic. Routing, OpenAPI, scopes, limits and documentation follow from the
//! list in [`crate::api`].

mod acknowledged;
mod csv;
mod list;
pub(crate) mod paging;
mod stream;
mod target;
pub(crate) mod versions;

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::auth::actor::Scope;
use crate::blobs::{Chunks, Upload};
use crate::budget::Reservation;
use crate::compute::{Compute, LONG_JSON};
use crate::decode::{self, InvalidField};
use crate::error::{Error, INVALID_PAYLOAD, Result};
use crate::json::{self, CheckedJson};
use crate::limits::Limits;
use crate::name::{FlowName, OrgName};
use crate::service::Context;

pub use acknowledged::Acknowledged;
pub use csv::*;
pub use list::*;
pub use stream::*;

/// The five HTTP methods of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the variants are HTTP's")]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// One operation of the API. The `///` text of the type and of its fields is their description in the OpenAPI
/// document. [`Operation::SCOPE`] decides who may call it.
pub trait Operation: DeserializeOwned + JsonSchema + Send + 'static {
    /// The `operationId`, which never changes once it is released.
    const NAME: &'static str;
    /// The HTTP method.
    const METHOD: Method;
    /// The path below the base address, such as `/flows/{org}/{flow_name}`.
    const PATH: &'static str;
    /// Whether the last path parameter matches the rest of the path, including slashes. Other
    /// operations that match take precedence.
    const CATCH_ALL: bool = false;
    /// The access that the caller needs.
    const SCOPE: Scope;
    /// The summary, in one line.
    const SUMMARY: &'static str;
    /// Whether it is deprecated.
    const DEPRECATED: bool = false;
    /// Whether it accepts HTTP Basic in addition to Bearer (specification, Authentication: the repo list).
    const BASIC_AUTH: bool = false;
    /// The first sentence of its validation errors (specification, Errors).
    const INVALID: &'static str = INVALID_PAYLOAD;
    /// The error statuses that are specific to this operation.
    const ERRORS: &'static [u16] = &[];
    /// The request headers that it reads, as documented, such as `Idempotency-Key`. Each is a field of the
    /// operation, named by [`header_field`], such as `idempotency_key`. Repeated headers are joined by `, `
    /// (RFC 9110, 5.3).
    const REQUEST_HEADERS: &'static [&'static str] = &[];
    /// Whether its responses are cached until the organization's ledger grows. They must depend on nothing
    /// but the ledger, the path, the query and the caller's role: not on the time, on headers, on the caller,
    /// or on data outside ledgers. Only for GET.
    const CACHED: bool = false;
    /// The headers of its responses in addition to the common ones, as documented; see [`WithHeaders`].
    const ANSWER_HEADERS: &'static [&'static str] = &[];
    /// The request body: `()`, [`Json`], [`Form`] or [`Raw`].
    type Body: Body;
    /// The response: [`Json`], [`Created`], [`Put`], [`JsonList`], [`JsonStream`], [`Raw`], [`Streamed`],
    /// [`Download`], [`Csv`] or [`Pdf`], or one of them with headers as [`WithHeaders`].
    type Output: Reply;

    /// Returns the maximum size of a JSON body, or of the JSON document of a form, in bytes: [`Limits::body`]
    /// or [`Limits::document`].
    fn body_limit(limits: &Limits) -> u64 {
        match Self::Body::KIND {
            BodyKind::Form(_) => limits.document,
            BodyKind::Empty | BodyKind::Json | BodyKind::Raw => limits.body,
        }
    }

    /// Returns the organization of the request, if it has one.
    fn org(&self) -> Option<&OrgName>;

    /// Returns the flow that a [`Scope::ReadFlow`] operation reads.
    fn flow(&self) -> Option<&FlowName> {
        None
    }

    /// Runs the operation. The caller is already authorized.
    fn run(self, body: Self::Body, cx: &Context<'_>) -> impl Future<Output = Result<Self::Output>> + Send;
}

/// Returns the field of an operation for a request header: `idempotency_key` for `Idempotency-Key`.
pub fn header_field(header: &str) -> String {
    header.to_ascii_lowercase().replace('-', "_")
}

/// Visits every operation of the API; see [`crate::api::operations`].
pub trait Visitor {
    /// Visits one operation.
    fn visit<O: Operation>(&mut self);
}

/// Operations that a host serves in addition to those of the API.
pub trait Operations {
    /// Passes each operation to `v`.
    fn visit(v: &mut impl Visitor);
}

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

/// The two success statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Success {
    /// 200.
    Ok,
    /// 201.
    Created,
}

/// A response that is ready to be sent.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: Success,
    /// The headers, except those that describe the body and its transfer.
    pub headers: Vec<Header>,
    /// The body.
    pub body: AnswerBody,
}

impl Answer {
    /// Creates a response with status 200 and without headers.
    pub const fn of(body: AnswerBody) -> Self {
        Self { status: Success::Ok, headers: Vec::new(), body }
    }

    /// Returns the response, whose content keeps these reservations until it is sent.
    pub(crate) fn holding(self, memory: Vec<Reservation>) -> Self {
        if memory.is_empty() {
            return self;
        }
        let memory = Arc::new(memory);
        let hold = |bytes| HeldBytes::of(bytes, &memory);
        let stream = |content| Box::new(HeldChunks { content, memory: Arc::clone(&memory) });
        let body = match self.body {
            AnswerBody::Json(text) => AnswerBody::Json(hold(text)),
            AnswerBody::Raw(raw) => AnswerBody::Raw(Raw { bytes: hold(raw.bytes), ..raw }),
            AnswerBody::Stream(Streamed { media_type, content }) => {
                AnswerBody::Stream(Streamed { media_type, content: stream(content) })
            }
            AnswerBody::Download(Download { media_type, file_name, size, etag, content }) => {
                AnswerBody::Download(Download { media_type, file_name, size, etag, content: stream(content) })
            }
        };
        Self { body, ..self }
    }
}

/// Bytes with the reservations of their memory. A transport may keep them after it dropped the response.
struct HeldBytes {
    bytes: Bytes,
    _memory: Arc<Vec<Reservation>>,
}

impl HeldBytes {
    fn of(bytes: Bytes, memory: &Arc<Vec<Reservation>>) -> Bytes {
        Bytes::from_owner(Self { bytes, _memory: Arc::clone(memory) })
    }
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Streamed content with the reservations of its memory.
struct HeldChunks {
    content: Box<dyn Chunks>,
    memory: Arc<Vec<Reservation>>,
}

#[async_trait]
impl Chunks for HeldChunks {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        let piece = self.content.next().await?;
        Ok(piece.map(|piece| HeldBytes::of(piece, &self.memory)))
    }
}

/// The body of a response.
#[derive(Debug)]
pub enum AnswerBody {
    /// JSON text.
    Json(Bytes),
    /// Bytes of another type.
    Raw(Raw),
    /// Content of unknown length.
    Stream(Streamed),
    /// A file.
    Download(Download),
}

/// A header of a response: a name, and a value without line breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    name: &'static str,
    value: String,
}

/// The error for a header that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a response cannot have the header {name} with this value")]
pub struct InvalidHeader {
    name: &'static str,
}

impl From<InvalidHeader> for Error {
    fn from(source: InvalidHeader) -> Self {
        Self::Internal { what: "a response has a header that cannot be sent", source: source.into() }
    }
}

impl Header {
    /// The headers that transports set themselves.
    const TRANSPORTS: [&'static str; 8] = [
        "connection",
        "content-length",
        "content-type",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];

    /// Creates a header.
    ///
    /// # Errors
    /// [`InvalidHeader`] if the name is not a token (RFC 9110, 5.6.2), or is one that transports set
    /// themselves, such as `Content-Length` or `Content-Type`. The value may contain only visible ASCII,
    /// spaces and tabs; encode values from outside.
    pub fn new(name: &'static str, value: impl Into<String>) -> std::result::Result<Self, InvalidHeader> {
        let value = value.into();
        let of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let of_value = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t');
        let transports = Self::TRANSPORTS.iter().any(|reserved| name.eq_ignore_ascii_case(reserved));
        let good = !name.is_empty() && name.bytes().all(of_token) && value.bytes().all(of_value);
        if good && !transports { Ok(Self { name, value }) } else { Err(InvalidHeader { name }) }
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the value.
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// Content of unknown length that is generated while it is sent. After a failure the connection is aborted,
/// so that the client never takes a part for the whole.
pub struct Streamed {
    /// The media type.
    pub media_type: String,
    /// The content.
    pub content: Box<dyn Chunks>,
}

impl std::fmt::Debug for Streamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streamed").field("media_type", &self.media_type).finish_non_exhaustive()
    }
}

/// A file to download.
pub struct Download {
    /// The media type.
    pub media_type: String,
    /// The suggested file name.
    pub file_name: String,
    /// The size in bytes.
    pub size: u64,
    /// The digest of the data, for `ETag`.
    pub etag: Option<String>,
    /// The content.
    pub content: Box<dyn Chunks>,
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Download")
            .field("file_name", &self.file_name)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// The type of an operation's response.
pub trait Reply: Send + 'static {
    /// The possible statuses.
    const STATUSES: &'static [u16];
    /// The media type of a success in the OpenAPI document.
    const MEDIA_TYPE: &'static str = "application/json";
    /// Whether responses have an `ETag` for conditional requests.
    const HAS_ETAG: bool = false;
    /// Returns the schema of its JSON; `None` for other types.
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;
    /// Builds the response; long work runs in `compute`.
    fn answer(self, compute: &Compute) -> impl Future<Output = Result<Answer>> + Send;
}

fn unwritable(source: serde_json::Error) -> Error {
    Error::Internal { what: "a response could not be serialized to JSON", source: source.into() }
}

/// A writer that fails beyond a maximum length.
struct Short<'a> {
    text: &'a mut Vec<u8>,
    end: usize,
}

impl std::io::Write for Short<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    // The default implementation calls `write` in a loop for each token, which takes a third of the time of a
    // list.
    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.text.len() + bytes.len() > self.end {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Appends the JSON of a value to `text`. If it turns out to be long, the value is serialized again in
/// `compute`.
pub(crate) async fn write_json<T: Serialize + Send + 'static>(
    text: &mut Vec<u8>,
    value: T,
    compute: &Compute,
) -> Result<()> {
    let begin = text.len();
    match serde_json::to_writer(Short { end: begin + LONG_JSON, text }, &value) {
        Ok(()) => return Ok(()),
        Err(error) if error.is_io() => text.truncate(begin),
        Err(error) => return Err(unwritable(error)),
    }
    let mut whole = std::mem::take(text);
    let write = move || serde_json::to_writer(&mut whole, &value).map(|()| whole);
    *text = compute.run(write).await?.map_err(unwritable)?;
    Ok(())
}

async fn json_answer<T: Serialize + Send + 'static>(
    status: Success,
    value: T,
    compute: &Compute,
) -> Result<Answer> {
    let mut json = Vec::new();
    write_json(&mut json, value, compute).await?;
    Ok(Answer { status, ..Answer::of(AnswerBody::Json(json.into())) })
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Json<T> {
    const STATUSES: &'static [u16] = &[200];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    async fn answer(self, compute: &Compute) -> Result<Answer> {
        json_answer(Success::Ok, self.0, compute).await
    }
}

/// A JSON response with status 201.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created<T>(pub T);

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Created<T> {
    const STATUSES: &'static [u16] = &[201];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    async fn answer(self, compute: &Compute) -> Result<Answer> {
        json_answer(Success::Created, self.0, compute).await
    }
}

/// A JSON response with status 201 if something was created, otherwise 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put<T> {
    /// Whether something was created.
    pub created: bool,
    /// The body.
    pub body: T,
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Put<T> {
    const STATUSES: &'static [u16] = &[200, 201];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    async fn answer(self, compute: &Compute) -> Result<Answer> {
        let status = if self.created { Success::Created } else { Success::Ok };
        json_answer(status, self.body, compute).await
    }
}

/// A response with additional headers, which the operation names in [`Operation::ANSWER_HEADERS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithHeaders<R> {
    /// The headers.
    pub headers: Vec<Header>,
    /// The rest of the response.
    pub reply: R,
}

/// The header with the number of list elements that were skipped because they carry no information. Absent if
/// none was skipped.
pub const SKIPPED_ELEMENTS: &str = "Evidence-Skipped-Elements";

impl<R> WithHeaders<R> {
    /// Creates the response to a body with this number of skipped elements.
    ///
    /// # Errors
    /// None, because the header can be sent.
    pub fn skipping(reply: R, skipped: usize) -> Result<Self> {
        let header = || Header::new(SKIPPED_ELEMENTS, skipped.to_string());
        let headers = (skipped > 0).then(header).transpose()?.into_iter().collect();
        Ok(Self { headers, reply })
    }
}

impl<R: Reply> Reply for WithHeaders<R> {
    const STATUSES: &'static [u16] = R::STATUSES;
    const MEDIA_TYPE: &'static str = R::MEDIA_TYPE;
    const HAS_ETAG: bool = R::HAS_ETAG;

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        R::schema(generator)
    }

    async fn answer(self, compute: &Compute) -> Result<Answer> {
        let mut answer = self.reply.answer(compute).await?;
        answer.headers.extend(self.headers);
        Ok(answer)
    }
}

impl Reply for Raw {
    const STATUSES: &'static [u16] = &[200];
    const MEDIA_TYPE: &'static str = "*/*";

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    async fn answer(self, _: &Compute) -> Result<Answer> {
        Ok(Answer::of(AnswerBody::Raw(self)))
    }
}

impl Reply for Streamed {
    const STATUSES: &'static [u16] = &[200];
    const MEDIA_TYPE: &'static str = "*/*";

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    async fn answer(self, _: &Compute) -> Result<Answer> {
        Ok(Answer::of(AnswerBody::Stream(self)))
    }
}

impl Reply for Download {
    const STATUSES: &'static [u16] = &[200];
    const MEDIA_TYPE: &'static str = "*/*";
    const HAS_ETAG: bool = true;

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    async fn answer(self, _: &Compute) -> Result<Answer> {
        Ok(Answer::of(AnswerBody::Download(self)))
    }
}

/// A PDF to download.
#[derive(Debug)]
pub struct Pdf(pub Download);

impl Reply for Pdf {
    const STATUSES: &'static [u16] = Download::STATUSES;
    const MEDIA_TYPE: &'static str = "application/pdf";
    const HAS_ETAG: bool = Download::HAS_ETAG;

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    async fn answer(self, compute: &Compute) -> Result<Answer> {
        self.0.answer(compute).await
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

    #[test]
    fn a_header_cannot_leave_its_line_nor_say_how_the_body_is_sent() {
        let table = [
            ("Link", "<http://h/?page=2>; rel=\"next\"", true),
            ("X-Total-Count", "", true),
            ("Link", "a\r\nSet-Cookie: b", false),
            ("Link", "é", false),
            ("Link", "\0", false),
            ("", "a", false),
            ("a b", "a", false),
            ("a:", "a", false),
            ("Content-Length", "1", false),
            ("transfer-encoding", "chunked", false),
        ];
        for (name, value, good) in table {
            assert_eq!(Header::new(name, value).is_ok(), good, "{name}: {value}");
        }
    }
}
