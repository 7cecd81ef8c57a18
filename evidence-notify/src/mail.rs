//! Mail over the operator's relay. Each attempt is one session, in which a mail is sent once for all
//! addresses. Addresses that the relay refuses permanently get no mail. If the relay refuses one for now,
//! nobody gets the mail, and the delivery is retried like a webhook.

use std::collections::BTreeSet;
use std::time::Duration;

use evidence_core::notifications::{Message, NotSent};
use lettre::Address;
use lettre::address::Envelope;
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message as Letter};
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Tls, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::{Error, SMTP_PORT, SUBMISSION_PORT, SUBMISSIONS_PORT};
use percent_encoding::percent_decode_str;
use tokio::time::timeout;
use url::Url;

use crate::NoNotifier;

/// The timeout for connecting to one address of the relay.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout from the name look-up to the end of the login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout from `MAIL` to the response to the final dot. A relay may take ten minutes for that response
/// (RFC 5321, section 4.5.3.2.6). A mail that the relay accepts later is sent again, with the same
/// `Message-ID`.
const MAIL_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The timeout of `QUIT`.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The operator's relay.
#[derive(Debug)]
pub(crate) struct Mail {
    relay: Relay,
    from: Address,
}

impl Mail {
    pub(crate) fn new(url: &str, from: &str) -> Result<Self, NoNotifier> {
        let from = from.parse().map_err(NoNotifier::MailFrom)?;
        Ok(Self { relay: Relay::at(url).map_err(NoNotifier::Smtp)?, from })
    }

    /// Hands a mail to the relay. Logs the addresses that the relay refuses permanently, if others get the
    /// mail.
    pub(crate) async fn send(&self, message: &Message, to: &[String]) -> Result<(), NotSent> {
        let envelope = self.envelope(to)?;
        let letter = self
            .letter(message, envelope.clone())
            .map_err(|error| NotSent::new(format!("the mail cannot be created: {error}")))?;
        let late = |_| NotSent::new("the mail server does not answer in time");
        let connecting = timeout(CONNECT_TIMEOUT, self.relay.connect());
        let mut connection = connecting.await.map_err(late)?.map_err(failed)?;
        let sent =
            timeout(MAIL_TIMEOUT, transfer(&mut connection, &envelope, &letter)).await.map_err(late)?;
        // By now, the relay has accepted the mail or not, whatever it responds.
        let _ = timeout(QUIT_TIMEOUT, connection.quit()).await;
        for (address, error) in sent? {
            tracing::warn!(id = message.id, %address, %error, "the mail server refuses an address for good");
        }
        Ok(())
    }

    /// Returns the envelope, with each address once.
    fn envelope(&self, to: &[String]) -> Result<Envelope, NotSent> {
        let mut seen = BTreeSet::new();
        let addresses = to.iter().filter(|address| seen.insert(*address)).map(|address| {
            address.parse().map_err(|error| NotSent::new(format!("{address} is not an address: {error}")))
        });
        let addresses = addresses.collect::<Result<Vec<Address>, _>>()?;
        Envelope::new(Some(self.from.clone()), addresses).map_err(|_| NotSent::new("the mail has no address"))
    }

    /// Returns the mail as plain text, so that mail programs interpret no name in it as markup. Its id is the
    /// id of the delivery, by which mail programs recognize a repetition. Only the envelope has the
    /// addresses.
    fn letter(&self, message: &Message, envelope: Envelope) -> Result<Vec<u8>, lettre::error::Error> {
        let link = message.link.as_deref().map(|link| format!("\n\n{link}")).unwrap_or_default();
        let letter = Letter::builder()
            .from(Mailbox::new(None, self.from.clone()))
            .envelope(envelope)
            .message_id(Some(format!("<{}@{}>", message.id, self.from.domain())))
            .subject(&message.subject)
            .header(ContentType::TEXT_PLAIN)
            .body(format!("{}{link}\n", message.text))?;
        Ok(letter.formatted())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn failed(error: Error) -> NotSent {
    NotSent::new(format!("the mail server: {error}"))
}

fn refused(address: &Address, error: &Error) -> NotSent {
    NotSent::new(format!("the mail server refuses {address}: {error}"))
}

/// Sends a mail to the addresses that the relay accepts. Returns those that it refuses permanently. Sends
/// nothing if these are all, or if the relay refuses one for now.
async fn transfer<'e>(
    connection: &mut AsyncSmtpConnection,
    envelope: &'e Envelope,
    letter: &[u8],
) -> Result<Vec<(&'e Address, Error)>, NotSent> {
    let parameters = parameters(connection, envelope, letter)?;
    connection.command(MailFrom::new(envelope.from().cloned(), parameters)).await.map_err(failed)?;
    let mut permanently = Vec::new();
    for address in envelope.to() {
        match connection.command(Rcpt::new(address.clone(), Vec::new())).await {
            Ok(_) => {}
            Err(error) if error.is_permanent() && !is_too_many(&error) => permanently.push((address, error)),
            Err(error) => return Err(refused(address, &error)),
        }
    }
    if let [(address, error), ..] = &permanently[..]
        && permanently.len() == envelope.to().len()
    {
        return Err(refused(address, error));
    }
    connection.command(Data).await.map_err(failed)?;
    connection.message(letter).await.map_err(failed)?;
    Ok(permanently)
}

/// Returns whether the relay accepts no more addresses for this mail. Then the code 552 means 452 (RFC 5321, section
/// 4.5.3.1.10).
fn is_too_many(error: &Error) -> bool {
    error.status().is_some_and(|code| u16::from(code) == 552)
}

/// Returns the parameters of `MAIL` for what is not ASCII (RFC 6152, RFC 6531).
fn parameters(
    connection: &AsyncSmtpConnection,
    envelope: &Envelope,
    letter: &[u8],
) -> Result<Vec<MailParameter>, NotSent> {
    let support = |extension| match connection.server_info().supports_feature(extension) {
        true => Ok(()),
        false => Err(NotSent::new(format!("the mail server does not support {extension}"))),
    };
    let is_ascii = |address: &Address| AsRef::<str>::as_ref(address).is_ascii();
    let mut parameters = Vec::new();
    if !envelope.from().into_iter().chain(envelope.to()).all(is_ascii) {
        support(Extension::SmtpUtfEight)?;
        parameters.push(MailParameter::SmtpUtfEight);
    }
    if !letter.is_ascii() {
        support(Extension::EightBitMime)?;
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    Ok(parameters)
}

/// How to connect to the relay.
#[derive(Debug)]
struct Relay {
    host: String,
    port: u16,
    tls: Tls,
    name: ClientId,
    login: Option<Credentials>,
}

impl Relay {
    /// Reads the URL of a relay, in the form of lettre's `AsyncSmtpTransport::from_url`:
    /// `smtps://user:password@host:port/name-for-ehlo`, or `smtp` with `?tls=required`, `?tls=opportunistic`
    /// or no encryption.
    fn at(url: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let url = Url::parse(url)?;
        let host = url.host_str().ok_or("it has no host")?;
        let mode = url.query_pairs().find(|(key, _)| key == "tls").map(|(_, mode)| mode);
        let parameters = || TlsParameters::new(host.to_owned());
        let (port, tls) = match (url.scheme(), mode.as_deref()) {
            ("smtps", _) => (SUBMISSIONS_PORT, Tls::Wrapper(parameters()?)),
            ("smtp", Some("required")) => (SUBMISSION_PORT, Tls::Required(parameters()?)),
            ("smtp", Some("opportunistic")) => (SUBMISSION_PORT, Tls::Opportunistic(parameters()?)),
            ("smtp", None) => (SMTP_PORT, Tls::None),
            ("smtp", Some(_)) => return Err("tls is 'required' or 'opportunistic'".into()),
            _ => return Err("it begins with 'smtp' or 'smtps'".into()),
        };
        let name = match url.path().trim_matches('/') {
            "" => ClientId::default(),
            name => ClientId::Domain(name.to_owned()),
        };
        let decoded = |text| percent_decode_str(text).decode_utf8().map(String::from);
        let login = match url.password() {
            Some(password) => Some(Credentials::new(decoded(url.username())?, decoded(password)?)),
            None => None,
        };
        let (host, port) = (host.to_owned(), url.port().unwrap_or(port));
        Ok(Self { host, port, tls, name, login })
    }

    /// Connects and logs in.
    async fn connect(&self) -> Result<AsyncSmtpConnection, Error> {
        let (wrapped, upgrade) = match &self.tls {
            Tls::None => (None, None),
            Tls::Wrapper(parameters) => (Some(parameters.clone()), None),
            Tls::Required(parameters) | Tls::Opportunistic(parameters) => (None, Some(parameters.clone())),
        };
        let address = (self.host.as_str(), self.port);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(address, Some(ADDRESS_TIMEOUT), &self.name, wrapped, None)
                .await?;
        // `starttls` fails if the relay does not offer it.
        let is_optional = matches!(self.tls, Tls::Opportunistic(_));
        if let Some(parameters) = upgrade
            && (!is_optional || connection.can_starttls())
        {
            connection.starttls(parameters, &self.name).await?;
        }
        if let Some(login) = &self.login {
            connection.auth(DEFAULT_MECHANISMS, login).await?;
        }
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_connected_to_as_its_url_says() {
        let table = [
            ("smtp://mail.test", "mail.test", 25, "none", "[127.0.0.1]"),
            ("smtp://mail.test:2525/", "mail.test", 2525, "none", "[127.0.0.1]"),
            ("smtp://mail.test?tls=required", "mail.test", 587, "required", "[127.0.0.1]"),
            ("smtp://mail.test?tls=opportunistic", "mail.test", 587, "opportunistic", "[127.0.0.1]"),
            ("smtp://10.1.2.3:25?tls=required", "10.1.2.3", 25, "required", "[127.0.0.1]"),
            ("smtps://jane:secret@mail.test", "mail.test", 465, "wrapper", "[127.0.0.1]"),
            (
                "smtps://mail.test:587/evidence.test?tls=required",
                "mail.test",
                587,
                "wrapper",
                "evidence.test",
            ),
        ];
        for (url, host, port, tls, name) in table {
            let relay = Relay::at(url).unwrap();
            let mode = match &relay.tls {
                Tls::None => "none",
                Tls::Opportunistic(_) => "opportunistic",
                Tls::Required(_) => "required",
                Tls::Wrapper(_) => "wrapper",
            };
            assert_eq!((relay.host.as_str(), relay.port, mode), (host, port, tls), "{url}");
            assert_eq!(relay.name.to_string(), name, "{url}");
            assert_eq!(relay.login.is_some(), url.contains('@'), "{url}");
            assert!(!format!("{relay:?}").contains("secret"), "{relay:?}");
        }
    }
}
