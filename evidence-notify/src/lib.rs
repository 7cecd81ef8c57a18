//! Sends notifications of [`evidence_core::notifications`]: webhooks and Slack messages over HTTP, mail over
//! SMTP.
//!
//! Tenants choose the targets, so the address of a request is checked right before it is sent. A name is
//! resolved once. Each address is compared with those that the operator permits ([`Egress`]), and the
//! connection uses that address. Redirects are not followed. Every step has a timeout, and only the head of a
//! response is read. An attempt at a webhook takes at most 15 seconds. An attempt at a mail takes at most 30
//! seconds to connect and log in, ten minutes to send it, and five seconds to close the session.
//!
//! Webhooks are signed according to [Standard Webhooks](https://www.standardwebhooks.com), with a secret per
//! organization. The headers are `webhook-id` (the same for every attempt), `webhook-timestamp` and
//! `webhook-signature`.

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

/// The configuration of a notifier.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The permitted targets in addition to the internet.
    pub egress: Egress,
    /// The key from which the organizations' signing secrets are derived. Without it, webhooks are not
    /// signed.
    pub signing_key: Option<SigningKey>,
    /// The mail server, as `smtps://user:password@mail.example.com` or `smtp://…?tls=required`. Without it,
    /// no mail is sent.
    pub smtp_url: Option<String>,
    /// The sender of mails. Required with a mail server.
    pub mail_from: Option<String>,
}

/// The reason why a notifier cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum NoNotifier {
    /// The URL of the mail server is invalid. The error omits the URL, because it may contain a password.
    #[error("the URL of the mail server cannot be read: {0}")]
    Smtp(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There is a mail server, but no sender.
    #[error("mails need a sender, as evidence@example.com")]
    NoMailFrom,
    /// The sender is not an address.
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
    /// Creates a notifier. Reads the certificates that this machine trusts.
    ///
    /// # Errors
    /// If the options are invalid.
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

/// Returns the text of the event for Slack, with its three special characters escaped.
fn slack_text(message: &Message) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    match &message.link {
        Some(link) => format!("{}\n<{}>", escaped(&message.text), escaped(link)),
        None => escaped(&message.text),
    }
}
