//! Sends HTTP/1.1 POST requests to addresses that were checked.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evidence_core::actions::egress::{Egress, Endpoint};
use evidence_core::notifications::NotSent;
use http::{Method, Request, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use url::Host;

use crate::NoNotifier;

/// The timeout for connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout of an attempt, from the name look-up to the head of the response.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(15);

/// The maximum number of addresses of a name that are tried.
const ADDRESSES: usize = 3;

/// The maximum size of a response head.
const HEAD: usize = 64 << 10;

/// The HTTP client.
pub(crate) struct Http {
    egress: Egress,
    tls: TlsConnector,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("egress", &self.egress).finish_non_exhaustive()
    }
}

impl Http {
    pub(crate) fn new(egress: Egress) -> Result<Self, NoNotifier> {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a certificate of this machine cannot be read");
        }
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            tracing::info!("this machine trusts no certificates, so webhooks over https will fail");
        }
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(NoNotifier::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { egress, tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Posts JSON. Succeeds if the status is 200 to 299.
    pub(crate) async fn post(
        &self,
        url: &str,
        headers: &[(&'static str, String)],
        body: String,
    ) -> Result<(), NotSent> {
        // The permitted addresses may have changed since the URL was saved.
        let endpoint = self.egress.check_url(url).map_err(|error| NotSent::new(error.to_string()))?;
        match timeout(WHOLE_TIMEOUT, self.exchange(&endpoint, headers, body)).await {
            Ok(outcome) => outcome.map_err(|why| NotSent::new(format!("{}: {why}", endpoint.host))),
            Err(_) => Err(NotSent::new(format!("{}: no response in time", endpoint.host))),
        }
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        headers: &[(&'static str, String)],
        body: String,
    ) -> Result<(), String> {
        let stream = connect(&self.addresses(endpoint).await?).await?;
        if !endpoint.tls {
            return post_over(stream, endpoint, headers, body).await;
        }
        let name = match &endpoint.host {
            Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|error| error.to_string())?,
            Host::Ipv4(address) => ServerName::IpAddress(IpAddr::from(*address).into()),
            Host::Ipv6(address) => ServerName::IpAddress(IpAddr::from(*address).into()),
        };
        let stream = self.tls.connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
        post_over(stream, endpoint, headers, body).await
    }

    /// Returns the permitted addresses of the endpoint, at least one. Without TLS, these are the ones that
    /// the operator allowed explicitly.
    async fn addresses(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, String> {
        let port = endpoint.port;
        let found: Vec<SocketAddr> = match &endpoint.host {
            Host::Ipv4(address) => vec![(*address, port).into()],
            Host::Ipv6(address) => vec![(*address, port).into()],
            Host::Domain(name) => {
                let found = lookup_host((name.as_str(), port)).await;
                found.map_err(|error| format!("the name cannot be resolved: {error}"))?.collect()
            }
        };
        permitted(found, endpoint.tls, &self.egress)
    }
}

/// Returns the resolved addresses that are permitted.
fn permitted(found: Vec<SocketAddr>, tls: bool, egress: &Egress) -> Result<Vec<SocketAddr>, String> {
    let may =
        |address: &SocketAddr| if tls { egress.permits(address.ip()) } else { egress.allows(address.ip()) };
    let permitted: Vec<_> = found.into_iter().filter(may).take(ADDRESSES).collect();
    if permitted.is_empty() {
        return Err("the name resolves to no permitted address".to_owned());
    }
    Ok(permitted)
}

/// Connects to the first of these addresses that accepts.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut last = "no address".to_owned();
    for address in addresses {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => last = "no connection in time".to_owned(),
        }
    }
    Err(last)
}

async fn post_over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    endpoint: &Endpoint,
    headers: &[(&'static str, String)],
    body: String,
) -> Result<(), String> {
    let told = |error: hyper::Error| error.to_string();
    let connecting = http1::Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connecting.map_err(told)?;
    let usual = if endpoint.tls { 443 } else { 80 };
    let host = match endpoint.port {
        port if port == usual => endpoint.host.to_string(),
        port => format!("{}:{port}", endpoint.host),
    };
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(endpoint.path.as_str())
        .header(header::HOST, host)
        .header(header::USER_AGENT, concat!("evidence/", env!("CARGO_PKG_VERSION")))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
    // Runs in this task, so that dropping it closes the connection. By the end of the connection the response
    // has arrived.
    let mut answer = pin!(sender.send_request(request));
    let answer = tokio::select! {
        answer = &mut answer => answer,
        _ = connection => answer.await,
    };
    let answer = answer.map_err(told)?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("answered {}", status.as_u16())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(ranges: &[&str]) -> Egress {
        Egress { allowed: ranges.iter().map(|range| range.parse().unwrap()).collect() }
    }

    /// The addresses at the time of sending count, not those at the time of saving.
    #[test]
    fn of_the_addresses_of_a_name_those_are_left_that_may_be_connected_to() {
        type Addresses = &'static [&'static str];
        let table: [(Addresses, bool, Addresses, Addresses); 7] = [
            (&["127.0.0.1:443"], true, &[], &[]),
            (&["127.0.0.1:443", "8.8.8.8:443"], true, &[], &["8.8.8.8:443"]),
            (&["169.254.169.254:443", "[::ffff:10.0.0.1]:443", "[fd00::1]:443"], true, &[], &[]),
            (&["8.8.8.8:80"], false, &[], &[]),
            (&["8.8.8.8:80", "10.1.2.3:80"], false, &["10.0.0.0/8"], &["10.1.2.3:80"]),
            (&["10.1.2.3:443"], true, &["10.0.0.0/8"], &["10.1.2.3:443"]),
            (&[], true, &[], &[]),
        ];
        for (found, tls, ranges, expected) in table {
            let parsed = |addresses: &[&str]| {
                addresses.iter().map(|address| address.parse().unwrap()).collect::<Vec<SocketAddr>>()
            };
            let left = permitted(parsed(found), tls, &egress(ranges)).unwrap_or_default();
            assert_eq!(left, parsed(expected), "{found:?} {tls} {ranges:?}");
        }
    }
}
