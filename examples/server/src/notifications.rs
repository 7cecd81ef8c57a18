//! Notifications: the sender of a server, and the commands of the operator.

use evidence_core::actions::egress::Egress;
use evidence_core::notifications::replay;
use evidence_core::time::Timestamp;
use evidence_core::{Evidence, Settings};
use evidence_notify::{NoNotifier, Notifier, Options};

use crate::cli::{NotificationsCommand, NotifyOptions};
use crate::failure::Failure;
use crate::store;

/// Returns the permitted targets in addition to the internet.
pub(crate) fn egress(options: &NotifyOptions) -> Egress {
    Egress { allowed: options.allowed.clone() }
}

/// Creates the sender.
pub(crate) fn notifier(options: &NotifyOptions) -> Result<Notifier, NoNotifier> {
    if options.webhook_secret.is_none() {
        tracing::info!("webhooks are not signed. Set EVIDENCE_WEBHOOK_SECRET to sign them");
    }
    Notifier::new(Options {
        egress: egress(options),
        signing_key: options.webhook_secret.clone(),
        smtp_url: options.smtp_url.clone(),
        mail_from: options.mail_from.clone(),
    })
}

/// Runs `notifications`.
pub(crate) async fn run(command: NotificationsCommand) -> Result<(), Failure> {
    match command {
        NotificationsCommand::Secret { org, webhook_secret, host } => {
            let store = store::open_existing(&host.store).await?;
            let service = Evidence::new(store.store(), Settings::default());
            let found = service.administration(&host.operator).organization(&org).await;
            store.close().await;
            println!("{}", webhook_secret.secret(found?.id));
        }
        NotificationsCommand::Replay { org, number, since, host } => {
            let store = store::open_existing(&host.store).await?;
            let service = Evidence::new(store.store(), Settings::default());
            let told = async {
                let org = service.administration(&host.operator).organization(&org).await?;
                replay(&service, org.id, number, Timestamp::from_seconds(since)).await
            };
            let told = told.await;
            store.close().await;
            println!("{} targets receive the events again", told?);
        }
    }
    Ok(())
}
