//! Timeouts of connections and request bodies. A connection is closed if its peer neither sends nor reads for
//! a while, so that it cannot occupy sockets and buffers for ever. A body that arrives byte by byte has a
//! separate deadline. While a request is processed, the peer may be silent.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Any error, as in bodies.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The requests of a connection. A request is *active* while the service works on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActiveRequests(Arc<Mutex<Progress>>);

#[derive(Debug)]
struct Progress {
    active: usize,
    /// When a request was last active, or a byte of a response was last written. Initially when the
    /// connection was opened.
    last: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self { active: 0, last: Instant::now() }
    }
}

impl ActiveRequests {
    /// Counts an active request until the returned guard is dropped.
    pub(crate) fn begin(&self) -> ActiveRequest {
        self.progress().active += 1;
        ActiveRequest(self.clone())
    }

    fn is_any(&self) -> bool {
        self.progress().active > 0
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes when no request was active and no byte of a response was written for `timeout`, even if the
    /// peer sends something else, such as pings.
    pub(crate) async fn idle(&self, timeout: Duration) {
        loop {
            let now = Instant::now();
            let since = if self.is_any() { now } else { self.progress().last };
            let deadline = since + timeout;
            if deadline <= now {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}

/// A request that is being processed.
#[derive(Debug)]
pub(crate) struct ActiveRequest(ActiveRequests);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut progress = self.0.progress();
        progress.active -= 1;
        progress.last = Instant::now();
    }
}

/// A stream that fails with [`io::ErrorKind::TimedOut`] when the peer has sent nothing for `timeout`, or has
/// not read written data for as long. While a request is processed, the read timeout is suspended.
#[derive(Debug)]
pub(crate) struct IdleTimeout<S> {
    stream: S,
    timeout: Duration,
    requests: ActiveRequests,
    read_timer: Pin<Box<Sleep>>,
    /// Active while a write is pending.
    write_timer: Option<Pin<Box<Sleep>>>,
    has_received: bool,
}

impl<S> IdleTimeout<S> {
    /// Adds a timeout to `stream`, which has these requests.
    pub(crate) fn new(stream: S, timeout: Duration, requests: ActiveRequests) -> Self {
        let read_timer = Box::pin(sleep(timeout));
        Self { stream, timeout, requests, read_timer, write_timer: None, has_received: false }
    }

    /// Sets another timeout for the first byte.
    pub(crate) fn with_first_byte_timeout(mut self, first: Duration) -> Self {
        self.read_timer.as_mut().reset(Instant::now() + first);
        self
    }

    fn reset_read_timer(&mut self) {
        self.read_timer.as_mut().reset(Instant::now() + self.timeout);
    }

    /// Returns the progress of a write. A write that is pending for too long becomes an error.
    fn written<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.write_timer = None;
            self.reset_read_timer();
            return outcome;
        }
        let timeout = self.timeout;
        ready!(self.write_timer.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx));
        tracing::warn!(?timeout, "a connection was closed, because the peer did not read the response");
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
            self.has_received = true;
            self.reset_read_timer();
            return outcome;
        }
        if self.requests.is_any() {
            // The response wakes the connection, which then returns here.
            self.reset_read_timer();
            return Poll::Pending;
        }
        ready!(self.read_timer.as_mut().poll(cx));
        // Connections opened in advance or by a port scan are not worth a warning.
        if self.has_received {
            tracing::warn!(timeout = ?self.timeout, "a connection was closed, because the peer was silent");
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

    // A flush is not progress: hyper calls it at each turn, and on a socket it succeeds at once.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The timeouts of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyTimeouts {
    /// The timeout of the next piece.
    pub(crate) piece: Duration,
    /// The timeout of the whole body, from the first read.
    pub(crate) whole: Duration,
}

/// A request body that fails with [`io::ErrorKind::TimedOut`] if it does not arrive in time.
#[derive(Debug)]
pub(crate) struct BodyDeadline<B> {
    body: B,
    timeouts: BodyTimeouts,
    piece: Option<Pin<Box<Sleep>>>,
    whole: Option<Pin<Box<Sleep>>>,
}

impl<B> BodyDeadline<B> {
    /// Adds these timeouts to `body`.
    pub(crate) const fn new(body: B, timeouts: BodyTimeouts) -> Self {
        Self { body, timeouts, piece: None, whole: None }
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
        let BodyTimeouts { piece, whole } = this.timeouts;
        let next = this.piece.get_or_insert_with(|| Box::pin(sleep(piece))).as_mut().poll(cx);
        let end = this.whole.get_or_insert_with(|| Box::pin(sleep(whole))).as_mut().poll(cx);
        if next.is_pending() && end.is_pending() {
            return Poll::Pending;
        }
        tracing::warn!(?piece, ?whole, "a request was aborted, because its body did not arrive in time");
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response. Its request is active while the service generates the next piece.
#[derive(Debug)]
pub(crate) struct TrackedBody<B> {
    body: B,
    requests: ActiveRequests,
    active: Option<ActiveRequest>,
}

impl<B> TrackedBody<B> {
    /// Creates the body of a response on the connection with these requests.
    pub(crate) const fn new(body: B, requests: ActiveRequests) -> Self {
        Self { body, requests, active: None }
    }
}

/// A piece of a response. hyper takes a piece of any size at once and drops the body after the last one, long
/// before it has written the bytes. The progress of a response is therefore that of its pieces.
#[derive(Debug)]
pub(crate) struct TrackedData<D> {
    data: D,
    requests: ActiveRequests,
}

impl<D: Buf> Buf for TrackedData<D> {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    // hyper calls this for bytes that it has written, or copied to a small buffer that it is about to write.
    fn advance(&mut self, count: usize) {
        self.data.advance(count);
        self.requests.progress().last = Instant::now();
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = TrackedData<B::Data>;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, B::Error>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            this.active.get_or_insert_with(|| this.requests.begin());
            return Poll::Pending;
        };
        this.active = None;
        let track = |data| TrackedData { data, requests: this.requests.clone() };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(track))))
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
        IdleTimeout::new(stream, IDLE_TIMEOUT, ActiveRequests::default())
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
        let error = idle_timeout(near).with_first_byte_timeout(first).read_u8().await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, first));

        let (near, mut far) = tokio::io::duplex(16);
        far.write_all(b"a").await.unwrap();
        let (mut near, begun) = (idle_timeout(near).with_first_byte_timeout(first), Instant::now());
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

    /// Returns a body of one byte every `pause`.
    fn dripping(bytes: u32, pause: Duration) -> impl Body<Data = Bytes, Error = io::Error> + Unpin {
        let drops = futures_util::stream::iter(0..bytes).then(move |_| async move {
            sleep(pause).await;
            Ok(Frame::data(Bytes::from_static(b"x")))
        });
        StreamBody::new(Box::pin(drops))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_cut_off_and_one_that_comes_in_time_is_not() {
        let timeouts = BodyTimeouts { piece: Duration::from_secs(5), whole: Duration::from_secs(30) };
        let collected = async |bytes, pause| {
            let body =
                BodyDeadline::new(dripping(bytes, Duration::from_secs(pause)), timeouts).collect().await;
            body.map(|body| body.to_bytes().len())
        };
        assert_eq!(collected(29, 1).await.unwrap(), 29);
        for (bytes, pause) in [(31, 1), (1, 6)] {
            let error = collected(bytes, pause).await.unwrap_err();
            assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::TimedOut);
        }
    }
}
