//! `demo`: an example organization in a new database, filled from the git repository of the working
//! directory.
//! Everything is reported through the API, with the requests of a normal client. The demo has a flow with a
//! template, a trail for each commit, and this program as the artifact. Test results and reviews are
//! attestations. A server environment has a policy.
//! and a server environment with a policy.

mod client;
mod git;
mod story;

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evidence_core::Evidence;
use evidence_core::auth::ApiKey;
use evidence_core::name::OrgName;
use evidence_core::seed::Seed;
use evidence_store_sqlite::Sqlite;
use evidence_tower::EvidenceApi;

pub(crate) use client::DemoError;

use crate::cli::DemoOptions;
use crate::failure::Failure;
use crate::logging;
use crate::serve::{Listener, Work};
use crate::store::AnyStore;
use client::Client;
use story::Story;

const USER: &str = "demo";
const ORG: &str = "example";

/// Runs the command.
pub(crate) async fn run(options: DemoOptions) -> Result<(), Failure> {
    let DemoOptions { api } = options;
    let _log = logging::start(&api.log)?;
    let limits = api.limits()?;
    let file = fresh_file(&std::env::temp_dir()).map_err(Failure::DemoFile)?;
    let store = AnyStore::Sqlite(Arc::new(Sqlite::open(&file).await?));
    let work = Work::new(&api)?;
    let listener = Listener::open(&api).await?;
    let settings = listener.settings(&api, limits);
    let url = settings.public_url.clone();
    let service = Evidence::new(store.store(), settings);
    let key = seed(&service).await?;
    let history = git::history();
    println!("Filling {} from {} …", file.display(), history.source);
    let client = Client::new(EvidenceApi::new(service.clone()), ORG, key.reveal());
    let story = Story::new(&history, own_binary().map_err(Failure::OwnBinary)?, &url);
    story.report_all(&client).await?;
    println!("{}", welcome(&url, &key, &story));
    listener.serve(service, work, &store).await
}

async fn seed(service: &Evidence) -> Result<ApiKey, Failure> {
    let name = |text: &str| {
        text.parse::<OrgName>().map_err(|error| evidence_core::Error::invalid("name", error.to_string()))
    };
    Ok(service.seed(&Seed { user: name(USER)?, orgs: vec![name(ORG)?], api_key: None }).await?)
}

/// Creates an empty file that did not exist. Only its owner can read it, because it will contain hashes of
/// keys.
fn fresh_file(directory: &Path) -> io::Result<PathBuf> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    for number in 1_u32.. {
        let file = directory.join(format!("evidence-demo-{number}.db"));
        match options.open(&file) {
            Ok(_) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns the digest of this program as an artifact's fingerprint.
fn own_binary() -> io::Result<String> {
    Ok(evidence_core::digest::sha256_hex(&std::fs::read(std::env::current_exe()?)?))
}

fn welcome(url: &str, key: &ApiKey, story: &Story<'_>) -> String {
    let (flow, trail, fingerprint) = (story::FLOW, story.newest_trail(), &story.fingerprint);
    let api = format!("{url}/api/v2");
    format!(
        r#"
API            {api}
OpenAPI        {api}/openapi.json
Organization   {ORG}
Key            {key}

Try:
  export KEY={key}
  curl -H "Authorization: Bearer $KEY" {api}/trails/{ORG}/{flow}/{trail}
  curl -H "Authorization: Bearer $KEY" {api}/artifacts/{ORG}/{flow}/fingerprint/{short}
  curl -H "Authorization: Bearer $KEY" {api}/snapshots/{ORG}/{environment}
  curl -H "Authorization: Bearer $KEY" -o trail.pdf {api}/trails/{ORG}/{flow}/{trail}/audit_pdf

Ctrl-C stops the server; the file stays."#,
        key = key.reveal(),
        short = fingerprint.get(..12).unwrap_or(fingerprint),
        environment = story::ENVIRONMENT,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_demo_has_a_file_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let first = fresh_file(directory.path()).unwrap();
        let second = fresh_file(directory.path()).unwrap();
        assert_ne!(first, second);
        assert!(first.exists() && second.exists());
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_the_file_of_a_demo() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = fresh_file(directory.path()).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
