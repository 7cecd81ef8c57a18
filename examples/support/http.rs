//! Sends requests over a socket, for the tests of the examples.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Sends a request to this server on a separate connection, and reads the whole response.
pub(crate) async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Response<Bytes> {
    let request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let client = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}
