//! Connections over a pipe, on a clock that jumps to the next timer whenever everybody waits.

use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{sleep, timeout};
use tower::service_fn;

use super::*;

/// How much a pipe holds.
const PIPE: usize = 64 << 10;

/// A connection to a server that works on each request for so long, and then for as long on the text of its answer.
fn connected(work: Duration) -> DuplexStream {
    let api = service_fn(move |request: Request<BodyDeadline<Incoming>>| async move {
        // One that does not come is none of its business.
        drop(request.into_body().collect().await);
        sleep(work).await;
        let text = stream::once(async move {
            sleep(work).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"done")))
        });
        Ok::<_, Infallible>(Response::new(StreamBody::new(Box::pin(text))))
    });
    let (near, far) = duplex(PIPE);
    tokio::spawn(async move {
        let connections = Connections::new(api);
        connections.serve(near).await;
    });
    far
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_its_answer_is_not_cut_off() {
    let mut client = connected(5 * STALL_TIMEOUT);
    let request = b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    client.write_all(request).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("done\r\n0\r\n\r\n"), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_in_the_middle_of_a_body_is_answered_and_cut_off() {
    let mut client = connected(Duration::ZERO);
    client.write_all(b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{").await.unwrap();
    let mut answer = String::new();
    let ended = timeout(3 * STALL_TIMEOUT, client.read_to_string(&mut answer)).await;
    assert!(ended.is_ok() && answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:?}");
}

/// Asks over HTTP/2, with a flow-control window of so many bytes, and takes the text of the answer after so long.
async fn asked(client: DuplexStream, window: u32, after: Duration) -> Result<Bytes, hyper::Error> {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.initial_stream_window_size(window).timer(TokioTimer::new());
    let (mut requests, connection) = http.handshake(TokioIo::new(client)).await?;
    tokio::spawn(connection);
    let response = requests.send_request(Request::new(Empty::<Bytes>::new())).await?;
    tokio::time::sleep(after).await;
    Ok(response.into_body().collect().await?.to_bytes())
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_takes_is_given_up() {
    // Nothing of it fits, or a part.
    for window in [0, 1, 3] {
        let answer =
            timeout(10 * STALL_TIMEOUT, asked(connected(Duration::ZERO), window, 5 * STALL_TIMEOUT)).await;
        let error = answer.expect("the stream ends").unwrap_err();
        assert!(format!("{error:?}").contains("CANCEL"), "{window}: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_taken_is_whole_however_long_it_is_worked_on() {
    assert_eq!(asked(connected(5 * STALL_TIMEOUT), 1 << 16, Duration::ZERO).await.unwrap(), "done");
}
