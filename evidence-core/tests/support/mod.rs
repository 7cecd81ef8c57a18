//! The least executor: stores in memory never wait.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Polls a future that is never pending for long.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
}
