//! The unread rest of a request body when the response is ready. If a server closes a connection while a body
//! still arrives, it resets the connection, and the client sees a broken pipe instead of the response. The
//! rest is therefore read and discarded before the response is sent, within bounds. Beyond them, the response
//! announces that the connection closes.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::body::declared_length;
use crate::{BoxError, IncomingBody};

/// The maximum number of bytes that are read and discarded.
const MAX_DRAINED: u64 = 1 << 20;
/// The time limit for reading them.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The body of a request, shared with the handler. The unread rest is read here.
#[derive(Debug)]
pub(crate) struct UnreadBody {
    /// `None` without a body.
    shared: Option<SharedBody>,
    version: Version,
}

impl UnreadBody {
    /// Returns the request with a shared body.
    pub(crate) fn of(request: Request<IncomingBody>) -> (Request<IncomingBody>, Self) {
        let (head, body) = request.into_parts();
        let version = head.version;
        if body.is_end_stream() {
            return (Request::from_parts(head, body), Self { shared: None, version });
        }
        let shared = SharedBody::new(&head, body);
        let request = Request::from_parts(head, shared.clone().boxed_unsync());
        (request, Self { shared: Some(shared), version })
    }

    /// Returns the response once the body has ended, or with `Connection: close`.
    pub(crate) async fn finish<B>(self, mut answer: Response<B>) -> Response<B> {
        let Some(shared) = self.shared.filter(|shared| !shared.is_end_stream()) else { return answer };
        if self.version > Version::HTTP_11 {
            // HTTP/2 only resets the stream and keeps the connection. However, clients such as curl discard
            // the response at a reset, so the reset should come later.
            if shared.is_arriving() {
                tokio::spawn(shared.drain());
            }
            return answer;
        }
        let is_near = shared.is_arriving() && shared.with(|state| state.left <= MAX_DRAINED);
        // A panic is caught, because the body belongs to the host.
        let ending = AssertUnwindSafe(shared.drain()).catch_unwind();
        if !(is_near && ending.await.unwrap_or(false)) {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

/// A body with two readers: first the handler, then [`UnreadBody`].
#[derive(Debug, Clone)]
struct SharedBody(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    body: IncomingBody,
    stage: Stage,
    /// The number of remaining bytes, as far as known.
    left: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The client waits to be asked for the body. The server asks when the body is first read.
    Unasked,
    /// The body is arriving.
    Coming,
    Ended,
    /// The body failed, and cannot be read further.
    Failed,
}

impl SharedBody {
    fn new(head: &Parts, body: IncomingBody) -> Self {
        let is_continue = |expected: &HeaderValue| expected.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let waits = head.headers.get_all(EXPECT).iter().any(is_continue);
        let stage = if waits { Stage::Unasked } else { Stage::Coming };
        let left = declared_length(&head.headers, &body);
        Self(Arc::new(Mutex::new(State { body, stage, left })))
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether the body can be read further without asking for it.
    fn is_arriving(&self) -> bool {
        self.with(|state| state.stage == Stage::Coming) && !self.0.is_poisoned()
    }

    /// Reads further within bounds. Returns whether the end was reached.
    async fn drain(mut self) -> bool {
        let mut rest = pin!(async {
            let mut read = 0;
            while let Some(frame) = self.frame().await {
                let Ok(frame) = frame else { return false };
                read += size(&frame).max(1);
                if read > MAX_DRAINED {
                    return false;
                }
            }
            true
        });
        // Most bodies have arrived by now, and need no timer.
        match rest.as_mut().now_or_never() {
            Some(is_ended) => is_ended,
            None => tokio::time::timeout(DRAIN_TIMEOUT, rest).await.unwrap_or(false),
        }
    }
}

fn size(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |piece| piece.len() as u64)
}

impl Body for SharedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.with(|state| {
            if state.stage == Stage::Unasked {
                state.stage = Stage::Coming;
            }
            let frame = ready!(Pin::new(&mut state.body).poll_frame(cx));
            match &frame {
                Some(Ok(frame)) => state.left = state.left.saturating_sub(size(frame)),
                Some(Err(_)) => state.stage = Stage::Failed,
                None => state.stage = Stage::Ended,
            }
            Poll::Ready(frame)
        })
    }

    fn is_end_stream(&self) -> bool {
        !self.0.is_poisoned() && self.with(|state| state.stage == Stage::Ended || state.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|state| state.body.size_hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http::header::{CONTENT_LENGTH, HeaderName};
    use http_body_util::StreamBody;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::Instant;

    const PIECE: usize = 1 << 10;

    /// Creates a request whose body has this many pieces, with a pause before each, and a counter of the
    /// pieces read.
    fn request(pieces: usize, pause: Duration) -> (Request<IncomingBody>, Arc<AtomicUsize>) {
        let taken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&taken);
        let pieces = stream::unfold(pieces, move |left| {
            let counter = Arc::clone(&counter);
            async move {
                let left = left.checked_sub(1)?;
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                counter.fetch_add(1, Ordering::Relaxed);
                Some((Ok(Frame::data(Bytes::from_static(&[0; PIECE]))), left))
            }
        });
        (Request::new(StreamBody::new(pieces).boxed_unsync()), taken)
    }

    fn with_header(
        mut request: Request<IncomingBody>,
        name: HeaderName,
        value: &str,
    ) -> Request<IncomingBody> {
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    }

    /// Returns whether the response to a request with an unread body keeps the connection.
    async fn keeps(request: Request<IncomingBody>) -> bool {
        let (request, unread) = UnreadBody::of(request);
        drop(request);
        let answer = unread.finish(Response::new(())).await;
        !answer.headers().contains_key(CONNECTION)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_read_on_while_it_is_short_and_comes_soon() {
        const NOW: Duration = Duration::ZERO;
        let most = usize::try_from(MAX_DRAINED).unwrap() / PIECE;
        let moment = DRAIN_TIMEOUT / 8;
        for (pieces, pause, is_kept, read, time) in [
            (0, NOW, true, 0, NOW),
            (most, NOW, true, most, NOW),
            (usize::MAX, NOW, false, most + 1, NOW),
            (7, moment, true, 7, 7 * moment),
            (usize::MAX, 3 * moment, false, 2, DRAIN_TIMEOUT),
            (1, 2 * DRAIN_TIMEOUT, false, 0, DRAIN_TIMEOUT),
        ] {
            let ((request, taken), begun) = (request(pieces, pause), Instant::now());
            let found = (keeps(request).await, taken.load(Ordering::Relaxed), begun.elapsed());
            assert_eq!(found, (is_kept, read, time), "{pieces} pieces, each after {pause:?}");
        }
    }

    #[tokio::test]
    async fn a_body_that_is_declared_too_long_is_not_read_on() {
        for (declared, is_kept, read) in [(MAX_DRAINED, true, 3), (MAX_DRAINED + 1, false, 0)] {
            let (request, taken) = request(3, Duration::ZERO);
            let request = with_header(request, CONTENT_LENGTH, &declared.to_string());
            assert_eq!((keeps(request).await, taken.load(Ordering::Relaxed)), (is_kept, read));
        }
    }

    #[tokio::test]
    async fn what_is_left_of_a_long_body_counts() {
        let (request, _) = request(2, Duration::ZERO);
        let (mut request, unread) =
            UnreadBody::of(with_header(request, CONTENT_LENGTH, &(MAX_DRAINED + 1).to_string()));
        assert!(request.body_mut().frame().await.unwrap().is_ok());
        drop(request);
        let answer = unread.finish(Response::new(())).await;
        assert!(answer.headers().is_empty());
    }

    #[tokio::test]
    async fn a_client_that_waits_to_be_asked_is_not_asked_by_a_refusal() {
        let (request, taken) = request(1, Duration::ZERO);
        let request = with_header(request, EXPECT, "100-Continue");
        assert_eq!((keeps(request).await, taken.load(Ordering::Relaxed)), (false, 0));
    }

    #[tokio::test]
    async fn over_http_2_the_answer_does_not_wait() {
        let (mut request, taken) = request(usize::MAX, Duration::ZERO);
        *request.version_mut() = Version::HTTP_2;
        assert_eq!((keeps(request).await, taken.load(Ordering::Relaxed)), (true, 0));
        tokio::task::yield_now().await;
        assert_eq!(taken.load(Ordering::Relaxed), usize::try_from(MAX_DRAINED).unwrap() / PIECE + 1);
    }

    #[tokio::test]
    async fn a_body_that_broke_off_or_panics_is_not_read_again() {
        for panics in [false, true] {
            let pieces = stream::poll_fn(move |_| {
                assert!(!panics, "a defect of the host");
                Poll::Ready(Some(Err::<Frame<Bytes>, BoxError>("reset".into())))
            });
            let (mut request, unread) = UnreadBody::of(Request::new(StreamBody::new(pieces).boxed_unsync()));
            let read = AssertUnwindSafe(request.body_mut().frame()).catch_unwind().await;
            assert_eq!(read.is_err(), panics);
            drop(request);
            let answer = unread.finish(Response::new(())).await;
            assert_eq!(answer.headers()[CONNECTION], "close");
        }
    }
}
