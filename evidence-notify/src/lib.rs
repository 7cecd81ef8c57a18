//! Sends what [`evidence_core::notifications`] has to tell: webhooks and Slack over HTTP, mails over SMTP.
//!
//! Tenants name the targets, so where a request goes is looked at right before it is sent: what a name leads to is asked
//! once, each address is compared with what the operator permits ([`Egress`]), and the connection is made to that address
//! and no other. Redirects are not followed. Everything has a time limit, and of an answer the head alone is read.
//!
//! Webhooks are signed as [Standard Webhooks](https://www.standardwebhooks.com) describes, with a secret of each
//! organization: the headers `webhook-id` (the same of every attempt), `webhook-timestamp` and `webhook-signature`.

mod http;
mod mail;
mod signature;

use async_trait::async_trait;
use evidence_core::actions::Destination;
use evidence_core::actions::egress::Egress;
use evidence_core::notifications::{Message, NotSent, Sender};
use serde_json::json;

use crate::http::Http;
use crate::mail::Mail;
pub use crate::signature::SigningKey;

/// How a notifier behaves.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where targets may be besides the internet.
    pub egress: Egress,
    /// What the secrets of organizations are made of, by which webhooks are signed; without one they are not.
    pub signing_key: Option<SigningKey>,
    /// The mail server, as `smtps://user:password@mail.example.com`, or `smtp://…?tls=required`; without one no mail is sent.
    pub smtp_url: Option<String>,
    /// From whom mails are; needed where there is a mail server.
    pub mail_from: Option<String>,
}

/// Why there is no notifier.
#[derive(Debug, thiserror::Error)]
pub enum NoNotifier {
    /// The address of the mail server cannot be read. It is not repeated here, for it may hold a password.
    #[error("the URL of the mail server cannot be read: {0}")]
    Smtp(#[source] lettre::transport::smtp::Error),
    /// There is a mail server, and nobody from whom mails are.
    #[error("mails need a sender, as evidence@example.com")]
    NoMailFrom,
    /// The sender of mails is none.
    #[error("the sender of mails is not an address: {0}")]
    MailFrom(#[source] lettre::address::AddressError),
    /// TLS cannot be set up.
    #[error("TLS is not available: {0}")]
    Tls(#[source] tokio_rustls::rustls::Error),
}

/// Delivers notifications.
#[derive(Debug)]
pub struct Notifier {
    http: Http,
    mail: Option<Mail>,
    signing_key: Option<SigningKey>,
}

impl Notifier {
    /// A notifier that behaves so. Reads the certificates that this machine trusts.
    ///
    /// # Errors
    /// When the options do not make one.
    pub fn new(options: Options) -> Result<Self, NoNotifier> {
        let Options { egress, signing_key, smtp_url, mail_from } = options;
        let mail = match smtp_url {
            Some(url) => Some(Mail::new(&url, mail_from.as_deref().ok_or(NoNotifier::NoMailFrom)?)?),
            None => None,
        };
        Ok(Self { http: Http::new(egress)?, mail, signing_key })
    }
}

#[async_trait]
impl Sender for Notifier {
    async fn send(&self, message: &Message) -> Result<(), NotSent> {
        match &message.destination {
            Destination::Webhook { url } => {
                let headers = signature::headers(message, self.signing_key.as_ref());
                self.http.post(url.expose(), &headers, message.payload.clone()).await
            }
            Destination::Slack { url, .. } => {
                let body = json!({ "text": slack_text(message) }).to_string();
                self.http.post(url.expose(), &[], body).await
            }
            Destination::Email { addresses } => match &self.mail {
                Some(mail) => mail.send(message, addresses).await,
                None => Err(NotSent::new("no mail server is configured")),
            },
        }
    }
}

/// What happened, with the three characters escaped that Slack gives a meaning.
fn slack_text(message: &Message) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    match &message.link {
        Some(link) => format!("{}\n<{}>", escaped(&message.text), escaped(link)),
        None => escaped(&message.text),
    }
}
