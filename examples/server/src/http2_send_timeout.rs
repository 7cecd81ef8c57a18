//! A send timeout per HTTP/2 stream: a peer that reads nothing of an answer holds it in memory, while its pings keep the
//! connection alive. So each piece of an answer has a deadline until it is written to the socket. Over HTTP/1 the timeout of
//! the connection's writes is enough.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::{Instant, sleep_until};

use crate::timeouts::{ActiveRequest, ActiveRequests, OpenRequest};

tokio::task_local! {
    /// The HTTP/2 stream of the request that this task answers.
    static STREAM: Arc<Stream>;
}

/// Runs HTTP/2 streams. One is reset when its peer has read no piece of its answer for `timeout`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamExecutor {
    pub(crate) timeout: Duration,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
{
    fn execute(&self, answering: F) {
        let Self { timeout } = *self;
        tokio::spawn(async move {
            let stream = Arc::new(Stream::new());
            tokio::select! {
                _ = STREAM.scope(Arc::clone(&stream), answering) => {}
                () = stream.stalled(timeout) => {
                    tracing::warn!(?timeout, "an answer was given up: the peer took nothing of it");
                }
            }
        });
    }
}

/// The pieces of an answer that are on their way to the socket.
#[derive(Debug)]
struct Stream {
    sending: Mutex<Sending>,
}

#[derive(Debug)]
struct Sending {
    pieces: usize,
    /// When the last piece was handed over, or written.
    since: Instant,
    /// Woken when all are written.
    sent: Option<Waker>,
}

impl Stream {
    fn new() -> Self {
        Self { sending: Mutex::new(Sending { pieces: 0, since: Instant::now(), sent: None }) }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Sending) -> T) -> T {
        change(&mut self.sending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Completes once nothing was written for `timeout` although there was something to write.
    async fn stalled(&self, timeout: Duration) {
        loop {
            let now = Instant::now();
            let deadline =
                self.change(|sending| if sending.pieces > 0 { sending.since } else { now }) + timeout;
            if deadline <= now {
                return;
            }
            sleep_until(deadline).await;
        }
    }

    fn send(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.change(|sending| {
            sending.pieces += 1;
            sending.since = Instant::now();
        });
        Bytes::from_owner(Piece { bytes, stream: Arc::clone(self) })
    }

    /// Waits until every piece is written.
    fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.change(|sending| {
            if sending.pieces == 0 {
                return Poll::Ready(());
            }
            sending.sent = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    fn is_sent(&self) -> bool {
        self.change(|sending| sending.pieces == 0)
    }
}

/// Bytes of an answer, which hyper drops once they are written.
struct Piece {
    bytes: Bytes,
    stream: Arc<Stream>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let sent = self.stream.change(|sending| {
            sending.pieces -= 1;
            sending.since = Instant::now();
            if sending.pieces == 0 { sending.sent.take() } else { None }
        });
        if let Some(sent) = sent {
            sent.wake();
        }
    }
}

/// The body of an answer. Over HTTP/2 it ends when all of it is written, so that its stream does not end before. While the
/// service makes its next piece, the request counts as active.
#[derive(Debug)]
pub(crate) struct TrackedBody<B> {
    body: B,
    body_ended: bool,
    stream: Option<Arc<Stream>>,
    requests: ActiveRequests,
    active: Option<ActiveRequest>,
    _open: OpenRequest,
}

impl<B> TrackedBody<B> {
    /// The body of an answer to `open` on the connection of these requests; called in the task that answers.
    pub(crate) fn new(body: B, requests: ActiveRequests, open: OpenRequest) -> Self {
        let stream = STREAM.try_with(Arc::clone).ok();
        Self { body, body_ended: false, stream, requests, active: None, _open: open }
    }
}

impl<B> Body for TrackedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if !this.body_ended {
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                this.active.get_or_insert_with(|| this.requests.begin());
                return Poll::Pending;
            };
            this.active = None;
            match (frame, &this.stream) {
                (Some(Ok(frame)), Some(stream)) => {
                    return Poll::Ready(Some(Ok(frame.map_data(|bytes| stream.send(bytes)))));
                }
                (None, _) => this.body_ended = true,
                (frame, _) => return Poll::Ready(frame),
            }
        }
        if let Some(stream) = &this.stream {
            ready!(stream.poll_sent(cx));
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && self.stream.as_ref().is_none_or(|stream| stream.is_sent())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
