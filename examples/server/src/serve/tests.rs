//! Tests connections over a pipe, with a clock that jumps to the next timer when everything waits.

use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy_bidirectional, duplex};
use tokio::time::{Instant, sleep, timeout};
use tower::service_fn;

use super::*;

/// The capacity of a pipe.
const PIPE: usize = 64 << 10;

/// Serves a connection. [`Connections`] exists until it ends, because dropping it stops the server.
async fn serve<A, B>(api: A, stream: DuplexStream)
where
    A: Service<Request<BodyDeadline<Incoming>>, Response = Response<B>, Error = Infallible>,
    A: Clone + Send + 'static,
    A::Future: Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let connections = Connections::new(api);
    connections.serve(stream).await;
}

/// Connects to a server that processes each request for this long, and then generates the text of the
/// response for as long.
fn connected(work: Duration) -> DuplexStream {
    let api = service_fn(move |request: Request<BodyDeadline<Incoming>>| async move {
        // An incomplete body does not matter here.
        drop(request.into_body().collect().await);
        sleep(work).await;
        let text = stream::once(async move {
            sleep(work).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"done")))
        });
        Ok::<_, Infallible>(Response::new(StreamBody::new(Box::pin(text))))
    });
    let (near, far) = duplex(PIPE);
    tokio::spawn(serve(api, near));
    far
}

/// The size of [`long_piece`]: a reader of 16 KiB a second needs longer than all timeouts together.
const LONG_PIECE: usize = 4 << 20;
const READ_PER_SECOND: usize = 16 << 10;

/// Connects to a server that answers with one long piece. Returns the time until the server closed the
/// connection, too.
fn long_piece(pipe: usize) -> (DuplexStream, impl Future<Output = Duration>) {
    let api = service_fn(|_: Request<BodyDeadline<Incoming>>| {
        ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![b'a'; LONG_PIECE])))))
    });
    let (near, far) = duplex(pipe);
    let since = Instant::now();
    let served = tokio::spawn(serve(api, near));
    (far, async move {
        served.await.unwrap();
        since.elapsed()
    })
}

/// Reads the response to a request over HTTP/1 slowly, at most `limit` bytes of it. Returns the number of
/// bytes.
async fn read_slowly(client: &mut DuplexStream, limit: usize) -> usize {
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let (mut read, mut buffer) = (0, vec![0; READ_PER_SECOND]);
    while read < limit {
        let piece = client.read(&mut buffer).await.unwrap();
        if piece == 0 {
            break;
        }
        read += piece;
        sleep(Duration::from_secs(1)).await;
    }
    read
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_gets_the_whole_piece() {
    let (mut client, elapsed) = long_piece(PIPE);
    let read = read_slowly(&mut client, usize::MAX).await;
    drop(client);
    assert!(read > LONG_PIECE, "{read}");
    assert!(elapsed.await > 2 * IDLE_TIMEOUT + STALL_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_is_cut_off() {
    for limit in [0, 4 * READ_PER_SECOND] {
        let (mut client, elapsed) = long_piece(PIPE);
        let read = read_slowly(&mut client, limit).await;
        let pauses = Duration::from_secs(u64::try_from(read / READ_PER_SECOND).unwrap());
        let elapsed = elapsed.await;
        let longest = STALL_TIMEOUT + pauses + Duration::from_secs(1);
        assert!((STALL_TIMEOUT..=longest).contains(&elapsed), "{limit}: {elapsed:?}");
        drop(client);
    }
}

/// Sends a request over HTTP/2 and returns the body of the response. Its stream has a window of this size, and
/// the client answers pings.
async fn body_over_http2(client: DuplexStream, window: u32) -> Incoming {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.initial_stream_window_size(window).initial_connection_window_size(16 << 20);
    let (mut requests, connection) = http.handshake(TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection);
    requests.send_request(Request::new(Empty::<Bytes>::new())).await.unwrap().into_body()
}

/// Returns the length of the next piece of a response.
async fn next_piece(body: &mut Incoming) -> usize {
    body.frame().await.unwrap().unwrap().into_data().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_over_http2_gets_the_whole_piece() {
    let (client, _) = long_piece(PIPE);
    let (mut body, mut read, since) = (body_over_http2(client, 64 << 10).await, 0, Instant::now());
    while read < LONG_PIECE {
        let length = next_piece(&mut body).await;
        read += length;
        sleep(Duration::from_secs(1).mul_f64(length as f64 / READ_PER_SECOND as f64)).await;
    }
    assert!(since.elapsed() > 2 * IDLE_TIMEOUT + STALL_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_pings_and_stops_reading_is_cut_off() {
    for (window, pieces) in [(0, 0), (1000, 0), (1000, 3)] {
        let (client, elapsed) = long_piece(PIPE);
        let mut body = body_over_http2(client, window).await;
        for _ in 0..pieces {
            next_piece(&mut body).await;
        }
        let elapsed = timeout(10 * IDLE_TIMEOUT, elapsed).await.expect("the connection ends");
        let limit = IDLE_TIMEOUT + CLOSE_TIMEOUT;
        assert!((limit..=limit + Duration::from_secs(1)).contains(&elapsed), "{window}: {elapsed:?}");
        drop(body);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_a_little_now_and_then_is_not_cut_off() {
    let (client, _) = long_piece(PIPE);
    let (mut body, mut read) = (body_over_http2(client, 1000).await, 0);
    for _ in 0..10 {
        read += next_piece(&mut body).await;
        sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
    }
    assert!(read <= 10_000, "{read}");
    assert_eq!(read + body.collect().await.unwrap().to_bytes().len(), LONG_PIECE);
}

/// The client takes what it receives only slowly from a line with large buffers, so that pings are behind the
/// response.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_need_not_answer_pings_at_once() {
    let (mut far, _) = long_piece(8 * PIPE);
    let (client, mut line) = duplex(PIPE);
    tokio::spawn(async move {
        let (mut from_server, mut to_server) = tokio::io::split(&mut far);
        let (mut from_client, mut to_client) = tokio::io::split(&mut line);
        let slowly = async {
            let mut buffer = vec![0; READ_PER_SECOND];
            while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                to_client.write_all(&buffer[..read]).await.unwrap();
                sleep(Duration::from_secs(1)).await;
            }
            to_client.shutdown().await
        };
        tokio::join!(slowly, tokio::io::copy(&mut from_client, &mut to_server))
    });
    let body = body_over_http2(client, 16 << 20).await;
    assert_eq!(body.collect().await.unwrap().to_bytes().len(), LONG_PIECE);
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

#[tokio::test(start_paused = true)]
async fn a_head_that_is_longer_than_the_buffer_is_refused() {
    for (header, status) in
        [(MAX_BUFFER - 100, "200 OK"), (MAX_BUFFER, "431 Request Header Fields Too Large")]
    {
        let mut client = connected(Duration::ZERO);
        let request = format!("GET / HTTP/1.1\r\nconnection: close\r\nx: {}\r\n\r\n", "a".repeat(header));
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{header}: {answer:?}");
    }
}

/// Sends a request over HTTP/2 and returns the body of the response.
async fn response_over_http2(client: DuplexStream) -> Result<Bytes, hyper::Error> {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new());
    let (mut requests, connection) = http.handshake(TokioIo::new(client)).await?;
    tokio::spawn(connection);
    let response = requests.send_request(Request::new(Empty::<Bytes>::new())).await?;
    Ok(response.into_body().collect().await?.to_bytes())
}

#[tokio::test(start_paused = true)]
async fn of_an_answer_that_is_not_read_little_is_taken() {
    const PIECE: usize = 16 << 10;
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let api = service_fn(move |_: Request<BodyDeadline<Incoming>>| {
        let count = Arc::clone(&count);
        let pieces = stream::repeat_with(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'a'; PIECE])))
        });
        let pieces = stream::once(sleep(Duration::from_secs(1))).flat_map(move |()| pieces.clone());
        ready(Ok::<_, Infallible>(Response::new(StreamBody::new(Box::pin(pieces)))))
    });
    let (near, mut far) = duplex(PIPE);
    tokio::spawn(serve(api, near));
    let (client, mut line) = duplex(PIPE);
    tokio::spawn(async move {
        // The line breaks unnoticed before the text of the response arrives.
        timeout(Duration::from_millis(500), copy_bidirectional(&mut line, &mut far)).await.ok();
        pending::<()>().await;
    });
    let _unread = body_over_http2(client, 16 << 20).await;
    sleep(STALL_TIMEOUT / 2).await;
    let taken = taken.load(Ordering::Relaxed) * PIECE;
    assert!((1..=MAX_BUFFER + PIPE + 4 * PIECE).contains(&taken), "{taken}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_taken_is_whole_however_long_it_is_worked_on() {
    assert_eq!(response_over_http2(connected(5 * STALL_TIMEOUT)).await.unwrap(), "done");
}

/// Sends `requests` over one HTTP/2 connection, with a pause after each, and answers pings meanwhile. Returns
/// the time until the server closed the connection.
async fn time_until_closed(requests: u32, pause: Duration) -> Duration {
    let mut http = http2::Builder::new(TokioExecutor::new());
    let ping = Duration::from_secs(10);
    http.timer(TokioTimer::new()).keep_alive_interval(ping).keep_alive_while_idle(true);
    let client = TokioIo::new(connected(Duration::ZERO));
    let (mut sender, connection) = http.handshake(client).await.unwrap();
    let connection = tokio::spawn(connection);
    for _ in 0..requests {
        let response = sender.send_request(Request::new(Empty::<Bytes>::new())).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "done");
        sleep(pause).await;
    }
    let since = Instant::now();
    timeout(10 * IDLE_TIMEOUT, connection).await.expect("the connection ends").unwrap().unwrap();
    drop(sender);
    since.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_ends_although_its_peer_answers_pings() {
    for (requests, pause) in [(0, Duration::ZERO), (1, Duration::ZERO), (10, IDLE_TIMEOUT / 2)] {
        let elapsed = time_until_closed(requests, pause).await;
        assert!((IDLE_TIMEOUT / 2..=2 * IDLE_TIMEOUT).contains(&elapsed), "{requests}: {elapsed:?}");
    }
}
