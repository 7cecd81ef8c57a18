//! Responses over HTTP, either complete or generated while they are sent. A failure midway is an error of the
//! body. The server then aborts the connection, and no client takes a part for the whole.

use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use evidence_core::blobs::Chunks;
use evidence_core::operation::{Answer, AnswerBody, Download, Raw, Streamed, Success};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use http::header::{
    CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
#[cfg(feature = "rocket")]
use http_body_util::BodyExt as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The body of a response: bytes, or content that is generated while it is sent.
#[derive(Debug)]
pub struct ReplyBody {
    content: Content,
}

enum Content {
    Whole(Bytes),
    /// `left` is the number of remaining bytes, if known.
    Stream {
        pieces: BoxStream<'static, io::Result<Bytes>>,
        left: Option<u64>,
    },
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(bytes) => f.debug_tuple("Whole").field(&bytes.len()).finish(),
            Self::Stream { left, .. } => f.debug_struct("Stream").field("left", left).finish_non_exhaustive(),
        }
    }
}

impl ReplyBody {
    fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(bytes.into()) }
    }

    fn stream(content: Box<dyn Chunks>, size: Option<u64>) -> Self {
        let pieces = stream::try_unfold(content, |mut content| async move {
            let piece = content.next().await?;
            Ok(piece.map(|piece| (piece, content)))
        });
        let pieces = AssertUnwindSafe(pieces).catch_unwind();
        let pieces = pieces.map(|piece| piece.unwrap_or_else(|_| Err(io::Error::other("it panicked"))));
        let logged = |error: &io::Error| tracing::error!(%error, "a response failed midway");
        Self { content: Content::Stream { pieces: pieces.inspect_err(logged).boxed(), left: size } }
    }

    /// Returns its length, if known.
    #[cfg(feature = "rocket")]
    pub(crate) fn length(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    /// Buffers the whole body in this space, for hosts that cannot break off a response.
    #[cfg(feature = "rocket")]
    pub(crate) async fn buffered(
        mut self,
        space: evidence_core::spill_buffer::TemporarySpace,
    ) -> io::Result<Self> {
        let mut buffer = evidence_core::spill_buffer::SpillBuffer::new(space);
        while let Some(frame) = self.frame().await {
            if let Ok(piece) = frame?.into_data() {
                buffer.push(&piece).await?;
            }
        }
        let size = buffer.size();
        Ok(Self::stream(buffer.finish().await?, Some(size)))
    }
}

/// Returns the error for a body whose length differs from the announced one.
fn not_as_announced() -> io::Error {
    tracing::error!("a response does not have the announced length");
    io::ErrorKind::UnexpectedEof.into()
}

/// An empty body, for layers that respond instead of the API, such as tower-http's timeout.
impl Default for ReplyBody {
    fn default() -> Self {
        Self::whole(Bytes::new())
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Stream { pieces, left } => {
                let piece = ready!(pieces.poll_next_unpin(cx)).transpose()?;
                let size = piece.as_ref().map_or(0, |bytes| bytes.len() as u64);
                if let Some(left) = left {
                    let after = left.checked_sub(size).filter(|after| piece.is_some() || *after == 0);
                    *left = after.ok_or_else(not_as_announced)?;
                }
                Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream { left, .. } => left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// Returns the HTTP response for an operation's response.
pub(crate) fn response(answer: Answer) -> Response<ReplyBody> {
    let mut response = match answer.body {
        AnswerBody::Json(text) => json_text(text),
        AnswerBody::Raw(Raw { media_type, bytes }) => {
            whole(header(&media_type.unwrap_or_default(), OCTETS), bytes)
        }
        AnswerBody::Stream(Streamed { media_type, content }) => {
            let mut response = Response::new(ReplyBody::stream(content, None));
            response.headers_mut().insert(CONTENT_TYPE, header(&media_type, OCTETS));
            response
        }
        AnswerBody::Download(file) => download(file),
    };
    for header in answer.headers {
        let name = HeaderName::from_bytes(header.name().as_bytes());
        // The core has validated both.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(header.value())) {
            response.headers_mut().append(name, value);
        }
    }
    *response.status_mut() = match answer.status {
        Success::Ok => StatusCode::OK,
        Success::Created => StatusCode::CREATED,
    };
    response
}

/// Returns a response with JSON text.
pub(crate) fn json_text(text: impl Into<Bytes>) -> Response<ReplyBody> {
    whole(HeaderValue::from_static("application/json"), text)
}

/// Returns the text `OK` of the health checks.
pub(crate) fn ok() -> Response<ReplyBody> {
    whole(HeaderValue::from_static("text/plain; charset=utf-8"), "OK")
}

/// Returns the text `OK` with a line for each warning.
pub(crate) fn ok_with(warnings: &[String]) -> Response<ReplyBody> {
    let lines = warnings.iter().map(|warning| format!("\nwarning: {warning}"));
    let text = std::iter::once("OK".to_owned()).chain(lines).collect::<String>();
    whole(HeaderValue::from_static("text/plain; charset=utf-8"), text)
}

/// Returns the response to a HEAD: the headers of the response to a GET, without the body.
pub(crate) fn without_body(response: Response<ReplyBody>) -> Response<ReplyBody> {
    response.map(|_| ReplyBody::default())
}

/// Handles a conditional GET (RFC 9110, 13.1.2): returns 304 without content if `If-None-Match` of the
/// request has the `ETag` of the content, otherwise the response.
pub(crate) fn apply_conditional_get(
    mut response: Response<ReplyBody>,
    request: &HeaderMap,
) -> Response<ReplyBody> {
    // The API's tags have no quotes or commas, so a part of another tag never equals one.
    let sent = request.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = sent.flat_map(|value| value.split(',')).map(str::trim);
    let is_known = response.status() == StatusCode::OK
        && response.headers().get(ETAG).is_some_and(|tag| {
            tags.any(|sent| {
                sent == "*" || sent.strip_prefix("W/").unwrap_or(sent).as_bytes() == tag.as_bytes()
            })
        });
    if !is_known {
        return response;
    }
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    for name in [CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS] {
        response.headers_mut().remove(name);
    }
    without_body(response)
}

fn whole(media_type: HeaderValue, text: impl Into<Bytes>) -> Response<ReplyBody> {
    let text = text.into();
    let length = text.len() as u64;
    let mut response = Response::new(ReplyBody::whole(text));
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    response
}

fn download(file: Download) -> Response<ReplyBody> {
    let Download { media_type, file_name, size, etag, content } = file;
    let mut response = Response::new(ReplyBody::stream(content, Some(size)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, header(&media_type, OCTETS));
    headers.insert(CONTENT_DISPOSITION, header(&disposition(&file_name), "attachment"));
    if let Some(Ok(etag)) = etag.map(|digest| HeaderValue::try_from(format!("\"{digest}\""))) {
        headers.insert(ETAG, etag);
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The media type of content without one.
const OCTETS: &str = "application/octet-stream";

/// Returns a header whose value may come from the sender of a file.
fn header(value: &str, otherwise: &'static str) -> HeaderValue {
    let sent = Some(value).filter(|value| !value.is_empty());
    let sent = sent.and_then(|value| HeaderValue::from_str(value).ok());
    sent.unwrap_or(HeaderValue::from_static(otherwise))
}

/// The characters that RFC 8187 leaves unencoded, except some rare punctuation.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the `Content-Disposition` of a download. A name that is not plain ASCII is also given in the form
/// of RFC 6266.
fn disposition(file_name: &str) -> String {
    let plain = |c: char| (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\' | '%');
    let safe: String = file_name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    if safe == file_name {
        format!("attachment; filename=\"{safe}\"")
    } else {
        format!(
            "attachment; filename=\"{safe}\"; filename*=UTF-8''{}",
            utf8_percent_encode(file_name, ENCODED)
        )
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn a_file_name_cannot_leave_its_quotes() {
        let table = [
            ("report.pdf", "attachment; filename=\"report.pdf\""),
            ("a b.txt", "attachment; filename=\"a b.txt\""),
            ("a\"b\r\n.txt", "attachment; filename=\"a_b__.txt\"; filename*=UTF-8''a%22b%0D%0A.txt"),
            ("é.txt", "attachment; filename=\"_.txt\"; filename*=UTF-8''%C3%A9.txt"),
        ];
        for (name, header) in table {
            assert_eq!(disposition(name), header);
        }
    }

    struct Pieces(Vec<&'static str>);

    #[async_trait::async_trait]
    impl Chunks for Pieces {
        async fn next(&mut self) -> io::Result<Option<Bytes>> {
            Ok((!self.0.is_empty()).then(|| Bytes::from(self.0.remove(0))))
        }
    }

    #[tokio::test]
    async fn a_download_is_sent_piece_by_piece_under_its_name_and_digest() {
        let file = Download {
            media_type: "text/plain\n".to_owned(),
            file_name: "a.txt".to_owned(),
            size: 5,
            etag: Some("abc".to_owned()),
            content: Box::new(Pieces(vec!["on", "e", "tw"])),
        };
        let response = response(Answer::of(AnswerBody::Download(file)));
        let header = |name: http::HeaderName| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header(CONTENT_TYPE), "application/octet-stream");
        assert_eq!(header(CONTENT_DISPOSITION), "attachment; filename=\"a.txt\"");
        assert_eq!((header(ETAG), header(CONTENT_LENGTH)), ("\"abc\"".to_owned(), "5".to_owned()));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "onetw");
    }

    #[test]
    fn content_that_the_client_has_is_not_sent_again() {
        let table = [
            (None, false),
            (Some("\"abc\""), true),
            (Some("W/\"abc\""), true),
            (Some("\"x\", W/\"y\" ,\"abc\""), true),
            (Some("*"), true),
            (Some("abc"), false),
            (Some("\"ab\", \"c\""), false),
            (Some("\"ABC\""), false),
            (Some("w/\"abc\""), false),
            (Some(""), false),
            (Some("\"*\""), false),
        ];
        for (sent, is_known) in table {
            let mut response = Response::new(ReplyBody::whole("content"));
            response.headers_mut().insert(ETAG, HeaderValue::from_static("\"abc\""));
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
            let request =
                sent.map(|tags| (IF_NONE_MATCH, HeaderValue::from_static(tags))).into_iter().collect();
            let response = apply_conditional_get(response, &request);
            let status = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
            assert_eq!((response.status(), response.body().is_end_stream()), (status, is_known), "{sent:?}");
            assert_eq!(response.headers().contains_key(CONTENT_LENGTH), !is_known, "{sent:?}");
            assert_eq!(response.headers()[ETAG], "\"abc\"");
        }
        let untagged = Response::new(ReplyBody::whole("content"));
        let request = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static("*"))]);
        assert_eq!(apply_conditional_get(untagged, &request).status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_body_that_has_not_the_announced_length_breaks_off() {
        for (announced, complete) in [(4, false), (5, true), (6, false)] {
            let content = Box::new(Pieces(vec!["on", "e", "tw"]));
            let body = ReplyBody::stream(content, Some(announced));
            assert_eq!(body.collect().await.is_ok(), complete, "{announced}");
        }
    }
}
