//! Closes a connection without losing its last response. A system that closes a socket with unread data
//! resets the connection, and a peer that is still sending may lose the response. The connection is therefore
//! first closed in one direction. Data from the peer is discarded until it is done, within bounds.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The number of bytes that are read at once.
const PIECE: usize = 16 << 10;

/// The bounds for the time and the bytes for which a closing connection waits for its peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LingerBounds {
    pub(crate) time: Duration,
    pub(crate) bytes: usize,
}

/// A stream whose shutdown is complete when the peer has closed its side too, or has exceeded the bounds.
#[derive(Debug)]
pub(crate) struct Lingering<S> {
    stream: S,
    bounds: LingerBounds,
    /// Active once this side is shut down.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    /// Applies these bounds to the shutdown of `stream`.
    pub(crate) const fn new(stream: S, bounds: LingerBounds) -> Self {
        Self { stream, bounds, timer: None }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.timer.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let time = this.bounds.time;
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(time)));
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut piece = [0; PIECE];
        while this.bounds.bytes > 0 {
            let mut piece = ReadBuf::new(&mut piece);
            let read = ready!(Pin::new(&mut this.stream).poll_read(cx, &mut piece));
            if read.is_err() || piece.filled().is_empty() {
                break;
            }
            this.bounds.bytes = this.bounds.bytes.saturating_sub(piece.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    const BOUNDS: LingerBounds = LingerBounds { time: Duration::from_secs(2), bytes: 100 };

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_waits_for_a_peer_that_is_still_sending() {
        let (near, mut far) = duplex(16);
        let mut near = Lingering::new(near, BOUNDS);
        near.write_all(b"refused").await.unwrap();
        let peer = tokio::spawn(async move {
            far.write_all(&[0; 99]).await.unwrap();
            let mut answer = String::new();
            far.read_to_string(&mut answer).await.unwrap();
            answer
        });
        near.shutdown().await.unwrap();
        drop(near);
        assert_eq!(peer.await.unwrap(), "refused");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_longer_than_the_bounds() {
        let ((near, far), begun) = (duplex(16), Instant::now());
        Lingering::new(near, BOUNDS).shutdown().await.unwrap();
        assert_eq!(begun.elapsed(), BOUNDS.time);
        drop(far);

        // A byte per second, and an endless stream.
        for (pause, time) in [(1, 2), (0, 0)] {
            let ((near, mut far), begun) = (duplex(16), Instant::now());
            let sender = tokio::spawn(async move {
                while far.write_u8(0).await.is_ok() {
                    sleep(Duration::from_secs(pause)).await;
                }
            });
            Lingering::new(near, BOUNDS).shutdown().await.unwrap();
            assert_eq!(begun.elapsed().as_secs(), time);
            sender.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_has_ended_is_not_waited_for() {
        let ((near, far), begun) = (duplex(16), Instant::now());
        drop(far);
        Lingering::new(near, BOUNDS).shutdown().await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
