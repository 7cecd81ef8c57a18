//! Operations as types. The fields of an operation are its path and query parameters, its constants are the route,
//! its `run` is the logic; routing, OpenAPI, scopes, limits and documentation all come from the list in
//! [`crate::api`].

mod acknowledged;
mod csv;
mod list;
pub(crate) mod paging;
mod stream;
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

/// One operation of the API. The `///` text of the type and of its fields is what the OpenAPI document says of it and of
/// its parameters; who may call comes from [`Operation::SCOPE`].
pub trait Operation: DeserializeOwned + JsonSchema + Send + 'static {
    /// Its `operationId`: a promise, never changed once released.
    const NAME: &'static str;
    /// Its HTTP method.
    const METHOD: Method;
    /// Its path below the base address: `/flows/{org}/{flow_name}`.
    const PATH: &'static str;
    /// Whether the last parameter of the path takes all that is left of it, slashes included. A path that fits another
    /// operation is that one's.
    const CATCH_ALL: bool = false;
    /// What it asks of its caller.
    const SCOPE: Scope;
    /// What it does, in one line.
    const SUMMARY: &'static str;
    /// Whether callers are advised against it.
    const DEPRECATED: bool = false;
    /// Whether HTTP Basic is accepted beside Bearer (specification, Authentication: the repo list).
    const BASIC_AUTH: bool = false;
    /// What is said first of a refused input (specification, Errors).
    const INVALID: &'static str = INVALID_PAYLOAD;
    /// The statuses of its refusals that no other operation has.
    const ERRORS: &'static [u16] = &[];
    /// The request headers it sees, as they are documented: `Idempotency-Key`. Each is a field of the operation beside its
    /// path and query parameters, named by [`header_field`]: `idempotency_key`. Values of a header that is sent several
    /// times come as one, joined by `, ` (RFC 9110, 5.3).
    const REQUEST_HEADERS: &'static [&'static str] = &[];
    /// Whether its answers are cached until the organization's ledger grows: they rest on the ledger, the path, the query and the
    /// caller's role alone, not on the time, on headers, on who calls, or on what is in no ledger. Of GET alone.
    const CACHED: bool = false;
    /// The headers that its answers may carry beside those of every answer, as they are documented; see [`WithHeaders`].
    const ANSWER_HEADERS: &'static [&'static str] = &[];
    /// What it reads: `()`, [`Json`], [`Form`] or [`Raw`].
    type Body: Body;
    /// What it answers: [`Json`], [`Created`], [`Put`], [`JsonList`], [`JsonStream`], [`Raw`], [`Streamed`], [`Download`],
    /// [`Csv`] or [`Pdf`], with headers of its own as [`WithHeaders`].
    type Output: Reply;

    /// The greatest JSON body, or JSON document of a form, in bytes: [`Limits::body`], or [`Limits::document`].
    fn body_limit(limits: &Limits) -> u64 {
        match Self::Body::KIND {
            BodyKind::Form(_) => limits.document,
            BodyKind::Empty | BodyKind::Json | BodyKind::Raw => limits.body,
        }
    }

    /// The organization it concerns.
    fn org(&self) -> Option<&OrgName>;

    /// The flow that a [`Scope::ReadFlow`] operation reads from.
    fn flow(&self) -> Option<&FlowName> {
        None
    }

    /// Does it, for a caller who may.
    fn run(self, body: Self::Body, cx: &Context<'_>) -> impl Future<Output = Result<Self::Output>> + Send;
}

/// The field of an operation that a request header is: `Idempotency-Key` is `idempotency_key`.
pub fn header_field(header: &str) -> String {
    header.to_ascii_lowercase().replace('-', "_")
}

/// Sees every operation of the API in turn; see [`crate::api::operations`].
pub trait Visitor {
    /// Sees one.
    fn visit<O: Operation>(&mut self);
}

/// Operations that are served together: a host's own, beside those of the API.
pub trait Operations {
    /// Shows every one of them to `v`.
    fn visit(v: &mut impl Visitor);
}

/// A body as it came, before the operation's type is known.
#[derive(Debug)]
pub enum RawBody {
    /// None.
    Empty,
    /// JSON text.
    Json(Bytes),
    /// A multipart form.
    Form {
        /// The text of the part that holds the JSON document, if it was there.
        document: Option<Bytes>,
        /// The file parts in the order of their names' numbers: part name and file.
        files: Vec<(String, Upload)>,
    },
    /// Bytes as they came.
    Bytes(Raw),
}

impl RawBody {
    /// The bytes of JSON in it.
    fn json_len(&self) -> usize {
        match self {
            Self::Json(text) => text.len(),
            Self::Form { document, .. } => document.as_ref().map_or(0, Bytes::len),
            Self::Empty | Self::Bytes(_) => 0,
        }
    }
}

/// Which kind of body an operation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// None.
    Empty,
    /// JSON.
    Json,
    /// A multipart form.
    Form(FormParts),
    /// Bytes of any type, up to the operation's limit.
    Raw,
}

/// The parts of a form that are read; others are passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormParts {
    /// The name of the part that holds the JSON document.
    pub document: &'static str,
    /// The name of the file part.
    pub file: &'static str,
    /// Whether `<file>.<n>` are file parts too, and a part `<file>` without a file name is a text to keep as a file.
    pub many: bool,
}

/// What an operation reads from the request's body.
pub trait Body: Sized + Send + 'static {
    /// Which kind it is.
    const KIND: BodyKind;
    /// The schema of its JSON, for the OpenAPI document.
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;
    /// Reads it.
    fn read(raw: RawBody) -> Result<Self>;

    /// The same under these limits, in `compute` where the JSON is long.
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

/// A JSON body, or a JSON answer with status 200.
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

/// Reads a body of JSON.
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

/// A JSON body that is read as the document of a form is.
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

/// The document of a form, and which parts the form has.
pub trait Document: JsonSchema + Sized + Send + 'static {
    /// The form's parts.
    const PARTS: FormParts;
    /// Reads it from its JSON; mostly [`decode::from_json`].
    fn read(text: CheckedJson<'_>) -> Result<Self, InvalidField>;
}

/// A multipart form: a JSON document and files.
#[derive(Debug)]
pub struct Form<T> {
    /// The document.
    pub document: T,
    /// The files, in the order of their parts' numbers.
    pub files: Vec<Upload>,
}

impl<T> Form<T> {
    /// A form without files.
    pub const fn of(document: T) -> Self {
        Self { document, files: Vec::new() }
    }

    /// The file of a form that has one file part, as UTF-8 text of at most `limit` bytes; `part` names it in the error.
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

/// Bytes of any type, as a body that is read as it came (what somebody else has signed) or as an answer with status 200.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Raw {
    /// Their media type, as the request gave it. Of an answer without one: `application/octet-stream`.
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

/// The two statuses of success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Success {
    /// 200.
    Ok,
    /// 201.
    Created,
}

/// An answer, ready to be sent.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: Success,
    /// Its headers, beside those that say what the body is and how it is sent.
    pub headers: Vec<Header>,
    /// Its body.
    pub body: AnswerBody,
}

impl Answer {
    /// An answer with status 200 and no headers of its own.
    pub const fn of(body: AnswerBody) -> Self {
        Self { status: Success::Ok, headers: Vec::new(), body }
    }

    /// The same answer, whose content holds these reservations until it is sent.
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

/// Bytes with the reservations of their memory: a transport may keep them when the rest of the answer is gone.
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

/// The same of content that comes in pieces.
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

/// The body of an answer.
#[derive(Debug)]
pub enum AnswerBody {
    /// JSON text.
    Json(Bytes),
    /// Bytes of another type.
    Raw(Raw),
    /// Content of a length that nobody knows yet.
    Stream(Streamed),
    /// A file.
    Download(Download),
}

/// A header of an answer: a name, and a value that cannot leave its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    name: &'static str,
    value: String,
}

/// A header that no answer may carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no answer may carry the header {name} with this value")]
pub struct InvalidHeader {
    name: &'static str,
}

impl From<InvalidHeader> for Error {
    fn from(source: InvalidHeader) -> Self {
        Self::Internal { what: "an answer has a header that cannot be sent", source: source.into() }
    }
}

impl Header {
    /// What a transport says by itself.
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

    /// The header of this name and value.
    ///
    /// # Errors
    /// [`InvalidHeader`] when the name is no token (RFC 9110, 5.6.2) or one that transports set themselves (`Content-Length`,
    /// `Content-Type`, …), and when the value holds anything but visible ASCII, spaces and tabs: encode what comes from
    /// outside.
    pub fn new(name: &'static str, value: impl Into<String>) -> std::result::Result<Self, InvalidHeader> {
        let value = value.into();
        let of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let of_value = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t');
        let transports = Self::TRANSPORTS.iter().any(|reserved| name.eq_ignore_ascii_case(reserved));
        let good = !name.is_empty() && name.bytes().all(of_token) && value.bytes().all(of_value);
        if good && !transports { Ok(Self { name, value }) } else { Err(InvalidHeader { name }) }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its value.
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// Content that is made while it is sent, of a length that nobody knows yet. Where it fails midway the connection breaks
/// off: it never ends as if it were complete.
pub struct Streamed {
    /// Its media type.
    pub media_type: String,
    /// The content.
    pub content: Box<dyn Chunks>,
}

impl std::fmt::Debug for Streamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streamed").field("media_type", &self.media_type).finish_non_exhaustive()
    }
}

/// A file to be downloaded.
pub struct Download {
    /// Its media type.
    pub media_type: String,
    /// The name it is saved under.
    pub file_name: String,
    /// Its size in bytes.
    pub size: u64,
    /// The digest of its data, for `ETag`.
    pub etag: Option<String>,
    /// Its content.
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

/// What an operation answers.
pub trait Reply: Send + 'static {
    /// The statuses it may have.
    const STATUSES: &'static [u16];
    /// The media type of a success, as the OpenAPI document writes it.
    const MEDIA_TYPE: &'static str = "application/json";
    /// Whether its answers have an `ETag`, by which a caller can ask for the content only if it has changed.
    const HAS_ETAG: bool = false;
    /// The schema of its JSON; none for what is no JSON.
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;
    /// Makes the answer; what takes long, in `compute`.
    fn answer(self, compute: &Compute) -> impl Future<Output = Result<Answer>> + Send;
}

fn unwritable(source: serde_json::Error) -> Error {
    Error::Internal { what: "an answer could not be written as JSON", source: source.into() }
}

/// Writes up to a length, and no more.
struct Short<'a> {
    text: &'a mut Vec<u8>,
    end: usize,
}

impl std::io::Write for Short<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    // The provided one calls `write` in a loop for each token: a third of the time that a list takes.
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

/// Appends a value's JSON to `text`. How long it is shows while it is written: what turns out to be long is written once
/// more, in `compute`.
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

/// A JSON answer with status 201.
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

/// A JSON answer with status 201 where something new came to be, else 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put<T> {
    /// Whether something new came to be.
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

/// An answer with headers of its own; its operation names them in [`Operation::ANSWER_HEADERS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithHeaders<R> {
    /// The headers.
    pub headers: Vec<Header>,
    /// The rest of the answer.
    pub reply: R,
}

/// The header that says how many elements of a list were skipped because they say nothing. Absent if none was.
pub const SKIPPED_ELEMENTS: &str = "Evidence-Skipped-Elements";

impl<R> WithHeaders<R> {
    /// The answer to a body of which so many elements were skipped.
    ///
    /// # Errors
    /// None: the header can be sent.
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

/// A PDF to be downloaded.
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
