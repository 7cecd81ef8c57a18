//! Multipart forms: a JSON document and files. The parser needs a wrapper: on its own it buffers a whole body
//! without a boundary, accepts part headers of any size, and counts no parts.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use evidence_core::admission::RequestBudget;
use evidence_core::blobs::Upload;
use evidence_core::name::Fingerprint;
use evidence_core::operation::{FormParts, RawBody};
use evidence_core::spill_buffer::{HashedContent, HashingBuffer};
use evidence_core::{Error, Limits, Result};
use futures_util::Stream;
use http::header::CONTENT_TYPE;
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use multer::{Field, Multipart};

use crate::BoxError;
use crate::body_buffer::{BODY, BodyBuffer, Loaded, interrupted, spill_error};

/// The maximum number of bytes in boundaries and part headers.
const MAX_FRAMING: u64 = 1 << 20;
/// The number of parts allowed in addition to files: the document, and ignored ones.
const MAX_OTHER_PARTS: usize = 32;
/// The maximum length of a boundary (RFC 2046, section 5.1.1).
const MAX_BOUNDARY: usize = 70;
/// The maximum number of bytes that the parser gets at a time.
const PIECE: usize = 64 << 10;
/// The maximum number of bytes in which the parser finds neither a boundary nor the end of a header. Checked
/// before each piece.
const MAX_UNPARSED: usize = 64 << 10;
const MAX_FILE_NAME: usize = 255;
/// The maximum length of a media type. A longer one is replaced by the default.
const MAX_MEDIA_TYPE: usize = 255;

/// Returns the boundary in a content type.
pub(crate) fn boundary(content_type: &str) -> Result<String> {
    let boundary = multer::parse_boundary(content_type).ok();
    boundary
        .filter(|boundary| (1..=MAX_BOUNDARY).contains(&boundary.len()))
        .ok_or_else(|| Error::invalid("body", "Form should have a boundary of 1 to 70 characters"))
}

/// Returns the maximum size of a form in bytes: its content and framing.
pub(crate) const fn max_form_size(limits: &Limits) -> u64 {
    limits.form.saturating_add(MAX_FRAMING)
}

/// Reads the form in `body`. Its JSON document has at most `document_limit` bytes.
pub(crate) async fn read(
    boundary: String,
    body: UnsyncBoxBody<Bytes, BoxError>,
    parts: FormParts,
    document_limit: u64,
    limits: &Limits,
    budget: &RequestBudget,
) -> Result<Loaded<RawBody>> {
    let mut parser = Parser::new(boundary, body, max_form_size(limits));
    let mut form =
        Form { parts, document_limit, limits: *limits, budget, document: None, files: BTreeMap::new() };
    let most = limits.files.saturating_add(MAX_OTHER_PARTS);
    let mut count = 0;
    while let Some(field) = parser.next().await? {
        count += 1;
        if count > most {
            return Err(Error::invalid("body", format!("Form should have at most {most} parts")));
        }
        form.take(Part { field, state: &parser.state }).await?;
    }
    // Loaded only after all files arrived, which may take minutes.
    let (document, memory) = match form.document {
        Some(document) => {
            let (text, memory) = document.load(budget).await?;
            (Some(text), memory)
        }
        None => (None, None),
    };
    Ok((RawBody::Form { document, files: form.files.into_values().collect() }, memory))
}

/// The state that the parser and its feed share.
#[derive(Debug, Default)]
struct FeedState {
    /// The number of bytes since the parser last found something.
    unparsed: AtomicUsize,
    /// Whether the parser should process its buffer before it gets more.
    pause: AtomicBool,
}

impl FeedState {
    /// Records that the parser found something. It may find more in its buffer.
    fn found(&self) {
        self.unparsed.store(0, Ordering::Relaxed);
        self.pause.store(true, Ordering::Relaxed);
    }
}

/// A body in small pieces, with a pause after each. Otherwise the parser would buffer everything before it
/// parses anything.
struct Feed {
    body: UnsyncBoxBody<Bytes, BoxError>,
    rest: Bytes,
    total: u64,
    limit: u64,
    state: Arc<FeedState>,
}

impl Feed {
    /// Returns the next piece and counts it.
    fn next_piece(&mut self) -> Result<Bytes> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        self.total += piece.len() as u64;
        if self.total > self.limit {
            return Err(Error::TooLarge { limit: self.limit, file: false, part: BODY });
        }
        if self.state.unparsed.fetch_add(piece.len(), Ordering::Relaxed) > MAX_UNPARSED {
            return Err(Error::invalid("body", "Form should have its boundary, and short part headers"));
        }
        Ok(piece)
    }
}

impl Stream for Feed {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if self.state.pause.swap(false, Ordering::Relaxed) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        while self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.rest = frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(interrupted(error.as_ref(), self.limit))));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.state.pause.store(true, Ordering::Relaxed);
        Poll::Ready(Some(self.next_piece()))
    }
}

/// The parser of a body.
struct Parser {
    multipart: Multipart<'static>,
    state: Arc<FeedState>,
}

impl Parser {
    fn new(boundary: String, body: UnsyncBoxBody<Bytes, BoxError>, limit: u64) -> Self {
        let state = Arc::new(FeedState::default());
        let feed = Feed { body, rest: Bytes::new(), total: 0, limit, state: Arc::clone(&state) };
        Self { multipart: Multipart::new(feed, boundary), state }
    }

    async fn next(&mut self) -> Result<Option<Field<'static>>> {
        let field = self.multipart.next_field().await.map_err(unreadable)?;
        self.state.found();
        Ok(field)
    }
}

/// Returns the error of the parser: that of the feed, or that of the content.
fn unreadable(error: multer::Error) -> Error {
    let reason = match error {
        multer::Error::StreamReadFailed(source) => match source.downcast::<Error>() {
            Ok(refused) => return *refused,
            Err(_) => "it cannot be read to its end",
        },
        multer::Error::IncompleteFieldData { .. } | multer::Error::IncompleteStream => {
            "it ends before the boundary that should close it"
        }
        multer::Error::IncompleteHeaders => "it ends within the headers of a part",
        _ => "the headers of a part cannot be read",
    };
    Error::invalid("body", format!("Input should be a valid multipart form: {reason}"))
}

/// A part whose content was not read yet.
struct Part<'a> {
    field: Field<'static>,
    state: &'a FeedState,
}

impl Part<'_> {
    async fn chunk(&mut self) -> Result<Option<Bytes>> {
        let chunk = self.field.chunk().await.map_err(unreadable)?;
        self.state.found();
        Ok(chunk)
    }

    /// Reads the content of a document.
    async fn text(mut self, limit: u64, part: &'static str, budget: &RequestBudget) -> Result<BodyBuffer> {
        let mut text = BodyBuffer::new(budget);
        while let Some(chunk) = self.chunk().await? {
            if text.size() + chunk.len() as u64 > limit {
                return Err(Error::TooLarge { limit, file: false, part });
            }
            text.push(&chunk).await?;
        }
        Ok(text)
    }

    /// Reads the content of a file.
    async fn file(mut self, limit: u64, part: &'static str, budget: &RequestBudget) -> Result<HashedContent> {
        let mut buffer = HashingBuffer::new(budget.temporary_space().clone());
        while let Some(chunk) = self.chunk().await? {
            if buffer.size() + chunk.len() as u64 > limit {
                return Err(Error::TooLarge { limit, file: true, part });
            }
            buffer.push(&chunk).await.map_err(spill_error)?;
        }
        buffer.finish().await.map_err(spill_error)
    }

    async fn skip(mut self) -> Result<()> {
        while self.chunk().await?.is_some() {}
        Ok(())
    }

    fn media_type(&self) -> Option<String> {
        let sent = self.field.headers().get(CONTENT_TYPE)?.to_str().ok()?;
        (1..=MAX_MEDIA_TYPE).contains(&sent.len()).then(|| sent.to_owned())
    }
}

/// The kind of a part that is not the document.
enum PartKind {
    /// A file, and its number if the part's name has one.
    File { number: Option<u64> },
    /// A part that the operation ignores.
    Other,
}

/// The content of a form that was read so far.
struct Form<'a> {
    parts: FormParts,
    document_limit: u64,
    limits: Limits,
    budget: &'a RequestBudget,
    document: Option<BodyBuffer>,
    files: BTreeMap<Option<u64>, (String, Upload)>,
}

impl Form<'_> {
    async fn take(&mut self, part: Part<'_>) -> Result<()> {
        let name = part.field.name().unwrap_or_default().to_owned();
        if name == self.parts.document {
            if self.document.is_some() {
                return Err(duplicate_part(name));
            }
            self.document = Some(part.text(self.document_limit, self.parts.document, self.budget).await?);
            return Ok(());
        }
        match self.part_kind(&name)? {
            PartKind::File { number } => self.take_file(number, name, part).await,
            PartKind::Other => part.skip().await,
        }
    }

    /// Returns the kind of the part with this name.
    fn part_kind(&self, name: &str) -> Result<PartKind> {
        let Some(rest) = name.strip_prefix(self.parts.file) else { return Ok(PartKind::Other) };
        if rest.is_empty() {
            return Ok(PartKind::File { number: None });
        }
        let digits = rest.strip_prefix('.').filter(|_| self.parts.many).unwrap_or_default();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(PartKind::Other);
        }
        match digits.parse() {
            Ok(number) => Ok(PartKind::File { number: Some(number) }),
            Err(_) => Err(Error::invalid(name, format!("Part number should be at most {}", u64::MAX))),
        }
    }

    async fn take_file(&mut self, number: Option<u64>, name: String, part: Part<'_>) -> Result<()> {
        if self.files.contains_key(&number) {
            return Err(duplicate_part(name));
        }
        let most = self.limits.files;
        if self.files.len() >= most {
            return Err(Error::invalid(name, format!("Form should have at most {most} files")));
        }
        let sent_name = part.field.file_name().map(str::to_owned);
        let is_text = self.parts.many && number.is_none() && sent_name.is_none();
        let media_type = part.media_type();
        let file = part.file(self.limits.file, self.parts.file, self.budget).await?;
        // A browser sends a file input without a selected file as a file without name and content.
        let unchosen = sent_name.as_deref() == Some("");
        if file.size == 0 && (is_text || unchosen) {
            return Ok(());
        }
        let (file_name, media_type) = if is_text {
            ("attachment.txt".to_owned(), Some("text/plain; charset=utf-8".to_owned()))
        } else {
            (file_name(sent_name.as_deref().unwrap_or_default(), &name)?, media_type)
        };
        self.files.insert(number, (name, upload(file, file_name, media_type)?));
        Ok(())
    }
}

fn duplicate_part(part: String) -> Error {
    Error::invalid(part, "Part given twice")
}

/// Returns the last segment of a file's name as sent, or the part's name if nothing usable remains.
fn file_name(sent: &str, part: &str) -> Result<String> {
    let last = sent.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = last.chars().filter(|c| !c.is_control()).collect();
    if name.chars().count() > MAX_FILE_NAME {
        let text = format!("File name should have at most {MAX_FILE_NAME} characters");
        return Err(Error::invalid(part, text));
    }
    Ok(match name.as_str() {
        "" | "." | ".." => part.to_owned(),
        _ => name,
    })
}

fn upload(file: HashedContent, file_name: String, media_type: Option<String>) -> Result<Upload> {
    let HashedContent { size, sha256, content } = file;
    let sha256 = Fingerprint::try_from(sha256)
        .map_err(|source| Error::Internal { what: "a digest has the wrong form", source: source.into() })?;
    let media_type = media_type.unwrap_or_else(|| "application/octet-stream".to_owned());
    Ok(Upload { file_name, media_type, size, sha256, content })
}

#[cfg(test)]
mod tests;
