//! Answers as HTTP responses: JSON whole, downloads streamed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use evidence_core::blobs::Chunks;
use evidence_core::operation::{Answer, AnswerBody, Download, Success};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The body of an answer: bytes at hand, or a download that is read as it is sent.
#[derive(Debug)]
pub struct ReplyBody {
    content: Content,
}

enum Content {
    Whole(Bytes),
    Stream { pieces: BoxStream<'static, io::Result<Bytes>>, left: u64 },
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

    fn stream(content: Box<dyn Chunks>, size: u64) -> Self {
        let pieces = stream::try_unfold(content, |mut content| async move {
            let piece = content.next().await;
            let piece = piece.inspect_err(|error| tracing::error!(%error, "a download broke off"))?;
            Ok(piece.map(|piece| (piece, content)))
        });
        Self { content: Content::Stream { pieces: pieces.boxed(), left: size } }
    }
}

/// An empty one, by which layers such as tower-http's timeout answer in place of the API.
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
                let piece = ready!(pieces.poll_next_unpin(cx));
                Poll::Ready(piece.map(|piece| {
                    piece.map(|bytes| {
                        *left = left.saturating_sub(bytes.len() as u64);
                        Frame::data(bytes)
                    })
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match &self.content {
            Content::Whole(bytes) => bytes.len() as u64,
            Content::Stream { left, .. } => *left,
        })
    }
}

/// An operation's answer as a response.
pub(crate) fn response(answer: Answer) -> Response<ReplyBody> {
    let mut response = match answer.body {
        AnswerBody::Json(text) => json_text(text),
        AnswerBody::Download(file) => download(file),
    };
    *response.status_mut() = match answer.status {
        Success::Ok => StatusCode::OK,
        Success::Created => StatusCode::CREATED,
    };
    response
}

/// A response of JSON text.
pub(crate) fn json_text(text: impl Into<Bytes>) -> Response<ReplyBody> {
    whole("application/json", text)
}

/// The text `OK`, by which the health checks answer.
pub(crate) fn ok() -> Response<ReplyBody> {
    whole("text/plain; charset=utf-8", "OK")
}

/// The response to a HEAD: the headers of the one to a GET, without its body.
pub(crate) fn without_body(response: Response<ReplyBody>) -> Response<ReplyBody> {
    response.map(|_| ReplyBody::default())
}

fn whole(media_type: &'static str, text: impl Into<Bytes>) -> Response<ReplyBody> {
    let text = text.into();
    let length = text.len() as u64;
    let mut response = Response::new(ReplyBody::whole(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    response
}

fn download(file: Download) -> Response<ReplyBody> {
    let Download { media_type, file_name, size, etag, content } = file;
    let mut response = Response::new(ReplyBody::stream(content, size));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, header(&media_type, "application/octet-stream"));
    headers.insert(CONTENT_DISPOSITION, header(&disposition(&file_name), "attachment"));
    if let Some(Ok(etag)) = etag.map(|digest| HeaderValue::try_from(format!("\"{digest}\""))) {
        headers.insert(ETAG, etag);
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A header that may come from whoever sent the file.
fn header(value: &str, otherwise: &'static str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static(otherwise))
}

/// What RFC 5987 lets stand as it is, but for rare punctuation.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `Content-Disposition` of a download: a name that is not plain ASCII is also given as RFC 6266 has it.
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
    use http_body_util::BodyExt;

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
        let response = response(Answer { status: Success::Ok, body: AnswerBody::Download(file) });
        let header = |name: http::HeaderName| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header(CONTENT_TYPE), "application/octet-stream");
        assert_eq!(header(CONTENT_DISPOSITION), "attachment; filename=\"a.txt\"");
        assert_eq!((header(ETAG), header(CONTENT_LENGTH)), ("\"abc\"".to_owned(), "5".to_owned()));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "onetw");
    }
}
