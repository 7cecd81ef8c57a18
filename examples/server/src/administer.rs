//! `user`, `org`, `member` and `key`: the commands of the operator, which work with or without running
//! servers.

use evidence_core::administration::Administration;
use evidence_core::api_keys::ApiKeyInput;
use evidence_core::{Error, Evidence, Settings};

use crate::cli::{HostOptions, KeyCommand, MemberCommand, OrgCommand, UserCommand};
use crate::failure::Failure;
use crate::store::{self, AnyStore};

/// The number of names that are read at a time.
const PAGE: u64 = 1000;

/// Runs a command on the store and closes the store.
async fn over<T>(
    store: AnyStore,
    host: &HostOptions,
    act: impl AsyncFnOnce(Administration<'_>) -> Result<T, Error>,
) -> Result<T, Failure> {
    let service = Evidence::new(store.store(), Settings::default());
    let outcome = act(service.administration(&host.operator)).await;
    store.close().await;
    Ok(outcome?)
}

/// Runs `user`.
pub(crate) async fn user(command: UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Add { name, host } => {
            let store = store::open_existing(&host.store).await?;
            over(store, &host, async |by| by.create_user(&name).await).await?;
        }
        UserCommand::List { host } => {
            let store = store::open_existing(&host.store).await?;
            over(store, &host, async |by| {
                let mut last = None;
                loop {
                    let users = by.users(last.as_ref(), PAGE).await?;
                    users.iter().for_each(|user| println!("{}", user.name));
                    match users.into_iter().next_back() {
                        Some(user) => last = Some(user.name),
                        None => return Ok(()),
                    }
                }
            })
            .await?;
        }
    }
    Ok(())
}

/// Runs `org`.
pub(crate) async fn org(command: OrgCommand) -> Result<(), Failure> {
    match command {
        OrgCommand::Add { name, owner, host } => {
            let store = store::open_existing(&host.store).await?;
            over(store, &host, async |by| by.create_organization(&name, &owner).await).await?;
        }
        OrgCommand::List { host } => {
            let store = store::open_existing(&host.store).await?;
            over(store, &host, async |by| {
                let mut last = None;
                loop {
                    let orgs = by.organizations(last.as_ref(), PAGE).await?;
                    orgs.iter().for_each(|org| println!("{}", org.name));
                    match orgs.into_iter().next_back() {
                        Some(org) => last = Some(org.name),
                        None => return Ok(()),
                    }
                }
            })
            .await?;
        }
    }
    Ok(())
}

/// Runs `member`.
pub(crate) async fn member(command: MemberCommand) -> Result<(), Failure> {
    match command {
        MemberCommand::Set { org, user, role, host } => {
            let store = store::open_existing(&host.store).await?;
            over(store, &host, async |by| by.set_member(&org, &user, role.into()).await).await
        }
        MemberCommand::Remove { org, user, host } => {
            let store = store::open_existing(&host.store).await?;
            over(store, &host, async |by| by.remove_member(&org, &user).await).await
        }
        MemberCommand::List { org, host } => {
            let store = store::open_existing(&host.store).await?;
            let members = over(store, &host, async |by| by.members(&org).await).await?;
            members.iter().for_each(|member| println!("{} {}", member.user.name, member.role));
            Ok(())
        }
    }
}

/// Runs `key`.
pub(crate) async fn key(command: KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::Add { user, description, host } => {
            let store = store::open_existing(&host.store).await?;
            let input = ApiKeyInput { description, expires_at: None };
            let key = over(store, &host, async |by| by.create_key(&user, &input).await).await?;
            println!("{}", key.key);
        }
        KeyCommand::Revoke { user, id, host } => {
            let store = store::open_existing(&host.store).await?;
            over(store, &host, async |by| by.revoke_key(&user, id).await).await?;
        }
        KeyCommand::List { user, host } => {
            let store = store::open_existing(&host.store).await?;
            let keys = over(store, &host, async |by| by.keys(&user).await).await?;
            keys.iter().for_each(|key| println!("{} {:?}", key.id, key.description));
        }
    }
    Ok(())
}
