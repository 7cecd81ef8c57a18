//! The outputs of operations, and the responses that are built from them.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::{Json, Raw};
use crate::blobs::Chunks;
use crate::budget::Reservation;
use crate::compute::{Compute, LONG_JSON};
use crate::error::{Error, Result};

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
    pub(crate) fn with_reservations(self, memory: Vec<Reservation>) -> Self {
        if memory.is_empty() {
            return self;
        }
        let memory = Arc::new(memory);
        let hold = |bytes| ReservedBytes::of(bytes, &memory);
        let stream = |content| Box::new(ReservedChunks { content, memory: Arc::clone(&memory) });
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
struct ReservedBytes {
    bytes: Bytes,
    _memory: Arc<Vec<Reservation>>,
}

impl ReservedBytes {
    fn of(bytes: Bytes, memory: &Arc<Vec<Reservation>>) -> Bytes {
        Bytes::from_owner(Self { bytes, _memory: Arc::clone(memory) })
    }
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Streamed content with the reservations of its memory.
struct ReservedChunks {
    content: Box<dyn Chunks>,
    memory: Arc<Vec<Reservation>>,
}

#[async_trait]
impl Chunks for ReservedChunks {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        let piece = self.content.next().await?;
        Ok(piece.map(|piece| ReservedBytes::of(piece, &self.memory)))
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

pub(super) fn serialization_error(source: serde_json::Error) -> Error {
    Error::Internal { what: "a response could not be serialized to JSON", source: source.into() }
}

/// A writer that fails beyond a maximum length.
struct LimitedWriter<'a> {
    text: &'a mut Vec<u8>,
    end: usize,
}

impl std::io::Write for LimitedWriter<'_> {
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
    match serde_json::to_writer(LimitedWriter { end: begin + LONG_JSON, text }, &value) {
        Ok(()) => return Ok(()),
        Err(error) if error.is_io() => text.truncate(begin),
        Err(error) => return Err(serialization_error(error)),
    }
    let mut whole = std::mem::take(text);
    let write = move || serde_json::to_writer(&mut whole, &value).map(|()| whole);
    *text = compute.run(write).await?.map_err(serialization_error)?;
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

/// A response with additional headers, which the operation names in
/// [`Operation::ANSWER_HEADERS`](crate::Operation::ANSWER_HEADERS).
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
