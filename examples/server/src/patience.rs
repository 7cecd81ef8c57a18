//! A limit to waiting for a peer. A connection on which nothing was read and nothing written for a while is cut off,
//! so that clients who stop reading or sending cannot hold sockets and buffers for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

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

#[cfg(test)]
mod tests {
    use super::*;
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
}
