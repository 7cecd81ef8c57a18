//! Limits to waiting for a peer. A connection on which the peer is silent, or takes nothing of what is written, for a while
//! is cut off, so that clients who stop reading or sending cannot hold sockets and buffers for ever; a body that keeps
//! coming, byte by byte, ends at a deadline of its own. A peer that waits for the service is never the one to blame.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Any error, as bodies have them.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How much of what came in over a connection the service is at work on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Working(Arc<AtomicUsize>);

impl Working {
    /// Counts one more until what this answers is dropped.
    pub(crate) fn begin(&self) -> Work {
        self.0.fetch_add(1, Ordering::Relaxed);
        Work(self.clone())
    }

    fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// Something that the service is at work on.
#[derive(Debug)]
pub(crate) struct Work(Working);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that fails with [`io::ErrorKind::TimedOut`] once the peer was silent, or took nothing of what is written, for
/// as long as its timeout lasts. While the service works, silence is what the peer owes.
#[derive(Debug)]
pub(crate) struct IdleTimeout<S> {
    stream: S,
    timeout: Duration,
    working: Working,
    silence: Pin<Box<Sleep>>,
    /// Since a write began to wait.
    stuck: Option<Pin<Box<Sleep>>>,
    has_spoken: bool,
}

impl<S> IdleTimeout<S> {
    /// Waits for `stream` no longer than this, but for as long as the service works.
    pub(crate) fn new(stream: S, timeout: Duration, working: Working) -> Self {
        let silence = Box::pin(sleep(timeout));
        Self { stream, timeout, working, silence, stuck: None, has_spoken: false }
    }

    /// The same whose peer has to begin within this time.
    pub(crate) fn spoken_to_within(mut self, first: Duration) -> Self {
        self.silence.as_mut().reset(Instant::now() + first);
        self
    }

    fn begin_silence(&mut self) {
        self.silence.as_mut().reset(Instant::now() + self.timeout);
    }

    /// Passes a write's progress on; turns one that waited too long into an error.
    fn written<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stuck = None;
            self.begin_silence();
            return outcome;
        }
        let timeout = self.timeout;
        ready!(self.stuck.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx));
        tracing::warn!(?timeout, "a connection was cut: the peer took nothing of what was written");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        if outcome.is_ready() {
            self.has_spoken = true;
            self.begin_silence();
            return outcome;
        }
        if self.working.is_any() {
            // The answer wakes the connection, and so brings it back here.
            self.begin_silence();
            return Poll::Pending;
        }
        ready!(self.silence.as_mut().poll(cx));
        // Connections that are opened in advance, or to see who listens, are no news.
        if self.has_spoken {
            tracing::warn!(timeout = ?self.timeout, "a connection was cut: the peer was silent");
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // A flush is no progress: hyper asks for one at each turn, and on a socket it succeeds at once.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// How long a body may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed {
    /// The next piece of it.
    pub(crate) piece: Duration,
    /// The whole, counted from when it was first waited for.
    pub(crate) whole: Duration,
}

/// A request's body that fails with [`io::ErrorKind::TimedOut`] unless it comes in time.
#[derive(Debug)]
pub(crate) struct BodyDeadline<B> {
    body: B,
    allowed: Allowed,
    piece: Option<Pin<Box<Sleep>>>,
    whole: Option<Pin<Box<Sleep>>>,
}

impl<B> BodyDeadline<B> {
    /// Waits for `body` no longer than this.
    pub(crate) const fn new(body: B, allowed: Allowed) -> Self {
        Self { body, allowed, piece: None, whole: None }
    }
}

impl<B> Body for BodyDeadline<B>
where
    B: Body<Error: Into<BoxError>> + Unpin,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.piece = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Allowed { piece, whole } = this.allowed;
        let next = this.piece.get_or_insert_with(|| Box::pin(sleep(piece))).as_mut().poll(cx);
        let end = this.whole.get_or_insert_with(|| Box::pin(sleep(whole))).as_mut().poll(cx);
        if next.is_pending() && end.is_pending() {
            return Poll::Pending;
        }
        tracing::warn!(?piece, ?whole, "a request was given up: its body did not come in time");
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::StreamExt;
    use http_body_util::{BodyExt, StreamBody};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

    fn idle_timeout<S>(stream: S) -> IdleTimeout<S> {
        IdleTimeout::new(stream, IDLE_TIMEOUT, Working::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_is_cut_off() {
        let (near, _far) = tokio::io::duplex(16);
        let error = idle_timeout(near).read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_never_begins_is_cut_off_sooner() {
        let ((near, _far), begun) = (tokio::io::duplex(16), Instant::now());
        let first = Duration::from_millis(1);
        let error = idle_timeout(near).spoken_to_within(first).read_u8().await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, first));

        let (near, mut far) = tokio::io::duplex(16);
        far.write_all(b"a").await.unwrap();
        let (mut near, begun) = (idle_timeout(near).spoken_to_within(first), Instant::now());
        assert_eq!(near.read_u8().await.unwrap(), b'a');
        near.read_u8().await.unwrap_err();
        assert!(begun.elapsed() > first);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_stops_reading_is_cut_off() {
        let (near, _far) = tokio::io::duplex(16);
        let error = idle_timeout(near).write_all(&[0; 17]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_waited_for_while_it_makes_progress() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = idle_timeout(near);
        let sender = tokio::spawn(async move {
            for _ in 0..3 {
                sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
                far.write_u8(7).await.unwrap();
            }
        });
        for _ in 0..3 {
            assert_eq!(near.read_u8().await.unwrap(), 7);
        }
        sender.await.unwrap();
    }

    /// A body of one byte every `pause`.
    fn dripping(bytes: u32, pause: Duration) -> impl Body<Data = Bytes, Error = io::Error> + Unpin {
        let drops = futures_util::stream::iter(0..bytes).then(move |_| async move {
            sleep(pause).await;
            Ok(Frame::data(Bytes::from_static(b"x")))
        });
        StreamBody::new(Box::pin(drops))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_cut_off_and_one_that_comes_in_time_is_not() {
        let allowed = Allowed { piece: Duration::from_secs(5), whole: Duration::from_secs(30) };
        let collected = async |bytes, pause| {
            let body =
                BodyDeadline::new(dripping(bytes, Duration::from_secs(pause)), allowed).collect().await;
            body.map(|body| body.to_bytes().len())
        };
        assert_eq!(collected(29, 1).await.unwrap(), 29);
        for (bytes, pause) in [(31, 1), (1, 6)] {
            let error = collected(bytes, pause).await.unwrap_err();
            assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::TimedOut);
        }
    }
}
