//! Limits to waiting for a peer. A connection on which nothing was read and nothing written for a while is cut off, so
//! that clients who stop reading or sending cannot hold sockets and buffers for ever; a body that keeps coming, byte by
//! byte, ends at a deadline of its own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A stream that fails with [`io::ErrorKind::TimedOut`] once it made no progress, in either direction, for as long as
/// its patience lasts.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Patient<S> {
    /// Waits for `stream` no longer than this without progress.
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, deadline: Box::pin(sleep(patience)) }
    }

    /// Passes progress on and starts the wait anew; turns a wait that took too long into an error.
    fn judge<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.deadline.as_mut().reset(Instant::now() + self.patience);
            return outcome;
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.judge(cx, outcome)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, outcome)
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

/// A request's body that fails with [`io::ErrorKind::TimedOut`] unless all of it comes in time, counted from when it was
/// first waited for.
#[derive(Debug)]
pub(crate) struct Timely<B> {
    body: B,
    patience: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B> Timely<B> {
    /// Waits for the whole of `body` no longer than this.
    pub(crate) const fn new(body: B, patience: Duration) -> Self {
        Self { body, patience, deadline: None }
    }
}

impl<B> Body for Timely<B>
where
    B: Body<Error: Into<BoxError>> + Unpin,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let patience = self.patience;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(deadline.as_mut().poll(cx));
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

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_is_cut_off() {
        let (near, _far) = tokio::io::duplex(16);
        let error = Patient::new(near, PATIENCE).read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_stops_reading_is_cut_off() {
        let (near, _far) = tokio::io::duplex(16);
        let error = Patient::new(near, PATIENCE).write_all(&[0; 17]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_waited_for_while_it_makes_progress() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Patient::new(near, PATIENCE);
        let sender = tokio::spawn(async move {
            for _ in 0..3 {
                sleep(PATIENCE - Duration::from_secs(1)).await;
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
        let pause = Duration::from_secs(1);
        let in_time = Timely::new(dripping(29, pause), PATIENCE).collect().await.unwrap();
        assert_eq!(in_time.to_bytes().len(), 29);
        let error = Timely::new(dripping(31, pause), PATIENCE).collect().await.unwrap_err();
        assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::TimedOut);
    }
}
