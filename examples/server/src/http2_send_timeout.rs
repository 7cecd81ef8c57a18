//! Limits to waiting for a peer over HTTP/2, where one connection carries many answers: a peer that takes nothing of an
//! answer holds it in memory, while the connection is as alive as its pings. So each piece of an answer has a deadline
//! until it is written to the socket. Over HTTP/1 a write that does not end is enough to tell.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::{Instant, sleep_until};

use crate::timeouts::{Work, Working};

tokio::task_local! {
    /// The stream that the answer in the making is for, over HTTP/2.
    static STREAM: Arc<Stream>;
}

/// Runs HTTP/2 streams. One is reset when its peer has taken no piece of its answer for as long as this.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streams {
    pub(crate) timeout: Duration,
}

impl<F> Executor<F> for Streams
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
    /// Who waits until all are written.
    end: Option<Waker>,
}

impl Stream {
    fn new() -> Self {
        Self { sending: Mutex::new(Sending { pieces: 0, since: Instant::now(), end: None }) }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Sending) -> T) -> T {
        change(&mut self.sending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers once nothing was written for this long although there was something to write.
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
            sending.end = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    fn is_sent(&self) -> bool {
        self.change(|sending| sending.pieces == 0)
    }
}

/// Bytes of an answer, which are let go once they are written.
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
        let end = self.stream.change(|sending| {
            sending.pieces -= 1;
            sending.since = Instant::now();
            if sending.pieces == 0 { sending.end.take() } else { None }
        });
        if let Some(end) = end {
            end.wake();
        }
    }
}

/// The body of an answer. It ends, over HTTP/2, when all of it is written, so that its stream does not end before; and
/// while the service makes its next piece the peer is not the one who is waited for.
#[derive(Debug)]
pub(crate) struct Answer<B> {
    body: B,
    is_made: bool,
    stream: Option<Arc<Stream>>,
    working: Working,
    work: Option<Work>,
}

impl<B> Answer<B> {
    /// An answer on a connection, made where the request was answered.
    pub(crate) fn new(body: B, working: Working) -> Self {
        let stream = STREAM.try_with(Arc::clone).ok();
        Self { body, is_made: false, stream, working, work: None }
    }
}

impl<B> Body for Answer<B>
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
        if !this.is_made {
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                this.work.get_or_insert_with(|| this.working.begin());
                return Poll::Pending;
            };
            this.work = None;
            match (frame, &this.stream) {
                (Some(Ok(frame)), Some(stream)) => {
                    return Poll::Ready(Some(Ok(frame.map_data(|bytes| stream.send(bytes)))));
                }
                (None, _) => this.is_made = true,
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
