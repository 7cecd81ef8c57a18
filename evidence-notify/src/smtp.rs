//! The operator's mail server, and how a session with it begins. The transport of lettre gives a mail up at the first address
//! that is refused, and keeps its settings to itself, so what a URL says is read here, as lettre reads it.

use std::error::Error;
use std::time::Duration;

use lettre::transport::smtp;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use percent_encoding::percent_decode_str;
use url::Url;

/// How long connecting to each address of the server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A mail server.
#[derive(Debug)]
pub(crate) struct Server {
    host: String,
    port: u16,
    tls: Tls,
    hello_name: ClientId,
    credentials: Option<Credentials>,
}

impl Server {
    /// The server that a URL names: `smtps://` is TLS from the beginning, `?tls=required` and `?tls=opportunistic` are STARTTLS,
    /// and a path is the name that the server is greeted by.
    pub(crate) fn at(url: &str) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let url = Url::parse(url)?;
        let host = url.host_str().ok_or("it names no host")?.to_owned();
        let mode = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, mode)| mode.into_owned());
        let parameters = || TlsParameters::new(host.clone());
        let (tls, default_port) = match (url.scheme(), mode.as_deref()) {
            ("smtp", None) => (Tls::None, smtp::SMTP_PORT),
            ("smtp", Some("required")) => (Tls::Required(parameters()?), smtp::SUBMISSION_PORT),
            ("smtp", Some("opportunistic")) => (Tls::Opportunistic(parameters()?), smtp::SUBMISSION_PORT),
            ("smtps", _) => (Tls::Wrapper(parameters()?), smtp::SUBMISSIONS_PORT),
            ("smtp", _) => return Err("`tls` is neither `required` nor `opportunistic`".into()),
            _ => return Err("it is neither `smtp://` nor `smtps://`".into()),
        };
        let hello_name = match url.path().trim_matches('/') {
            "" => ClientId::default(),
            name => ClientId::Domain(name.to_owned()),
        };
        let decoded = |text| percent_decode_str(text).decode_utf8().map(|text| text.into_owned());
        let credentials = match url.password() {
            Some(password) => Some(Credentials::new(decoded(url.username())?, decoded(password)?)),
            None => None,
        };
        Ok(Self { port: url.port().unwrap_or(default_port), host, tls, hello_name, credentials })
    }

    /// Begins a session: as encrypted as the URL asks for, and logged in.
    pub(crate) async fn connect(&self) -> Result<AsyncSmtpConnection, smtp::Error> {
        let (at, hello_name) = ((self.host.as_str(), self.port), &self.hello_name);
        let encrypted = match &self.tls {
            Tls::Wrapper(parameters) => Some(parameters.clone()),
            _ => None,
        };
        let connecting =
            AsyncSmtpConnection::connect_tokio1(at, Some(CONNECT_TIMEOUT), hello_name, encrypted, None);
        let mut connection = connecting.await?;
        match &self.tls {
            Tls::Required(parameters) => connection.starttls(parameters.clone(), hello_name).await?,
            Tls::Opportunistic(parameters) if connection.can_starttls() => {
                connection.starttls(parameters.clone(), hello_name).await?;
            }
            _ => {}
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(DEFAULT_MECHANISMS, credentials).await?;
        }
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_how_the_server_is_reached() {
        // The URL; then the port, how it is encrypted, and the name that it is greeted by.
        let table = [
            ("smtp://mail.test", 25, "none", "[127.0.0.1]"),
            ("smtp://mail.test:2525/host.test", 2525, "none", "host.test"),
            ("smtp://mail.test?tls=required", 587, "required", "[127.0.0.1]"),
            ("smtp://mail.test?tls=opportunistic", 587, "opportunistic", "[127.0.0.1]"),
            ("smtps://mail.test", 465, "wrapper", "[127.0.0.1]"),
            ("smtps://mail.test:1465/", 1465, "wrapper", "[127.0.0.1]"),
        ];
        for (url, port, encrypted, greeting) in table {
            let server = Server::at(url).unwrap();
            let tls = match &server.tls {
                Tls::None => "none",
                Tls::Required(_) => "required",
                Tls::Opportunistic(_) => "opportunistic",
                Tls::Wrapper(_) => "wrapper",
            };
            let found = (server.host.as_str(), server.port, tls, server.hello_name.to_string());
            assert_eq!(found, ("mail.test", port, encrypted, greeting.to_owned()), "{url}");
            assert!(server.credentials.is_none(), "{url}");
        }
        for url in ["mail.test", "smtp:mail.test", "http://mail.test", "smtp://mail.test?tls=none"] {
            assert!(Server::at(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_login_may_have_any_characters() {
        let server = Server::at("smtps://jane%40mail.test:a%2Fb%3A@mail.test").unwrap();
        let expected = Credentials::new("jane@mail.test".to_owned(), "a/b:".to_owned());
        assert!(server.credentials == Some(expected));
        assert!(Server::at("smtps://jane:%ff@mail.test").is_err());
    }
}
