//! Policies as answers carry them: with all their versions, whose texts come to more than is held at once.

use std::collections::BTreeMap;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Policy, PolicyVersion, VersionKey, consumers};
use crate::auth::Actor;
use crate::environments::KnownEnvironment;
use crate::error::{Error, Result};
use crate::name::{EnvironmentName, PolicyName};
use crate::operation::json_text;
use crate::service::{Context, Lasting};
use crate::store::StoreError;
use crate::texts::in_parts_by;
use crate::time::{Seconds, Timestamp};

/// A policy as answers carry it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Policy")]
pub struct PolicyView {
    /// What comes before its versions.
    #[serde(flatten)]
    pub before: BeforeVersions,
    /// Oldest first.
    pub versions: Vec<PolicyVersionView>,
    /// What comes after its versions.
    #[serde(flatten)]
    pub after: AfterVersions,
}

/// What an answer says of a policy before it shows the versions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct BeforeVersions {
    pub name: PolicyName,
    pub description: String,
    pub created_by: String,
    pub created_at: Seconds,
    pub last_modified_at: Seconds,
    /// Always false: policies stay.
    pub archived: bool,
}

/// What an answer says of a policy after the versions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AfterVersions {
    /// Oldest first. Of the changes of its description the newest 100 are there.
    pub events: Vec<PolicyEventView>,
    /// The names of the environments that it is attached to, sorted.
    pub consuming_envs: Vec<EnvironmentName>,
}

/// A version of a policy as answers carry it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PolicyVersionView {
    pub version: u64,
    pub comment: String,
    pub timestamp: Seconds,
    pub created_by: String,
    /// The text as uploaded, byte for byte.
    pub policy_yaml: String,
}

/// Something that happened to a policy, as answers carry it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PolicyEventView {
    #[serde(rename = "type")]
    pub kind: String,
    pub timestamp: Seconds,
    pub user: String,
    pub data: BTreeMap<String, Value>,
}

impl From<PolicyVersion> for PolicyVersionView {
    fn from(version: PolicyVersion) -> Self {
        Self {
            version: version.version,
            comment: version.comment,
            timestamp: version.at.seconds(),
            created_by: version.by.name,
            policy_yaml: version.policy_yaml,
        }
    }
}

impl PolicyEventView {
    fn new(kind: &str, at: Timestamp, by: &Actor) -> Self {
        Self { kind: kind.to_owned(), timestamp: at.seconds(), user: by.name.clone(), data: BTreeMap::new() }
    }

    /// That a version was made.
    fn made(version: &PolicyVersion) -> Self {
        let kind = if version.version == 1 { "creation" } else { "new_version" };
        Self::new(kind, version.at, &version.by)
    }
}

/// A part of the text of policies.
enum Slot {
    /// What comes before a policy's versions, or between policies.
    Between(Vec<u8>),
    Version(VersionKey),
    /// What else happened to the policy.
    Event(Vec<u8>),
    /// What comes after a policy's events.
    After(Vec<u8>),
}

/// How the JSON begins of what comes after the versions, in whose place the events are written.
const NO_EVENTS: &[u8] = b"{\"events\":[]";

/// The slots of a policy's text: what happened to it follows from its versions, but for the changes of its description,
/// each of which comes after the version that it found.
fn slots(policy: Policy, environments: &[KnownEnvironment]) -> Result<Vec<Slot>> {
    let consumers = consumers(environments, policy.id).map(|known| known.record.name.clone());
    let after = AfterVersions { events: Vec::new(), consuming_envs: consumers.collect() };
    let before = BeforeVersions {
        name: policy.name,
        description: policy.description,
        created_by: policy.created_by.name,
        created_at: policy.created_at.seconds(),
        last_modified_at: policy.last_modified_at.seconds(),
        archived: false,
    };
    let (mut before, after) = (json_text(&before)?, json_text(&after)?);
    // Two objects that become one.
    before.pop();
    before.extend_from_slice(b",\"versions\":[");
    let after = after.strip_prefix(NO_EVENTS).ok_or_else(|| Error::Internal {
        what: "a policy could not be written as JSON",
        source: "its events are not first after its versions".into(),
    })?;
    let mut slots = vec![Slot::Between(before)];
    let mut changes = policy.description_changes.iter().peekable();
    for number in 1..=policy.version {
        slots.push(Slot::Version((policy.id, number)));
        while let Some(change) = changes.next_if(|change| change.version <= number) {
            let event = PolicyEventView::new("metadata_update", change.at, &change.by);
            slots.push(Slot::Event(json_text(&event)?));
        }
    }
    slots.push(Slot::After(after.to_vec()));
    Ok(slots)
}

/// What becomes of a version that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// The answer fails.
    Fails,
    /// The answer shows the others.
    IsLeftOut,
}

/// The JSON text of a policy.
pub(super) async fn text(
    policy: Policy,
    environments: &[KnownEnvironment],
    cx: &Context<'_>,
) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    filled(slots(policy, environments)?, Lost::Fails, cx).await
}

/// The JSON text of a list of policies.
pub(super) async fn list_text(
    policies: Vec<Policy>,
    environments: &[KnownEnvironment],
    cx: &Context<'_>,
) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    let mut all = vec![Slot::Between(b"[".to_vec())];
    for (number, policy) in policies.into_iter().enumerate() {
        if number > 0 {
            all.push(Slot::Between(b",".to_vec()));
        }
        all.extend(slots(policy, environments)?);
    }
    all.push(Slot::Between(b"]".to_vec()));
    filled(all, Lost::IsLeftOut, cx).await
}

/// The text of these slots, whose versions are read some at a time.
async fn filled(
    slots: Vec<Slot>,
    lost: Lost,
    cx: &Context<'_>,
) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    let versions = slots.iter().filter_map(|slot| match slot {
        Slot::Version(version) => Some(*version),
        Slot::Between(_) | Slot::Event(_) | Slot::After(_) => None,
    });
    let versions: Vec<VersionKey> = versions.collect();
    let sizes = cx.store().policy_version_sizes(cx.org()?, &versions).await?;
    let sizes: BTreeMap<VersionKey, u64> = sizes.into_iter().map(|size| (size.id, size.bytes)).collect();
    let size = |slot: &Slot| match slot {
        Slot::Version(version) => sizes.get(version).map(|bytes| (*version, *bytes)),
        Slot::Between(_) | Slot::Event(_) | Slot::After(_) => None,
    };
    let (parts, lasting) = (in_parts_by(slots, size), cx.lasting());
    let pieces = stream::iter(parts).then(move |part| read(part, lost, lasting.clone())).map_ok(stream::iter);
    let pieces = pieces.map_ok(|part| part.map(Ok)).try_flatten();
    let text = pieces.scan(Joined::default(), |joined, piece: Result<Piece>| {
        std::future::ready(Some(piece.map(|piece| joined.add(piece))))
    });
    Ok(text.boxed())
}

enum Piece {
    Between(Vec<u8>),
    /// A version, and that it was made.
    Version(Vec<u8>, Vec<u8>),
    Event(Vec<u8>),
    After(Vec<u8>),
}

/// What the text of a policy has come to.
#[derive(Default)]
struct Joined {
    has_versions: bool,
    /// The text of its events, which come after all its versions.
    events: Vec<u8>,
}

impl Joined {
    /// The text that this piece adds.
    fn add(&mut self, piece: Piece) -> Vec<u8> {
        match piece {
            Piece::Between(text) => {
                self.has_versions = false;
                text
            }
            Piece::Version(text, event) => {
                self.event(&event);
                match std::mem::replace(&mut self.has_versions, true) {
                    true => [b",", &*text].concat(),
                    false => text,
                }
            }
            Piece::Event(event) => {
                self.event(&event);
                Vec::new()
            }
            Piece::After(text) => {
                let events = std::mem::take(&mut self.events);
                [b"],\"events\":[", &*events, b"]", &*text].concat()
            }
        }
    }

    fn event(&mut self, event: &[u8]) {
        if !self.events.is_empty() {
            self.events.push(b',');
        }
        self.events.extend_from_slice(event);
    }
}

async fn read(part: Vec<Slot>, lost: Lost, lasting: Lasting) -> Result<Vec<Piece>> {
    let cx = lasting.context();
    let wanted = part.iter().filter_map(|slot| match slot {
        Slot::Version(version) => Some(*version),
        Slot::Between(_) | Slot::Event(_) | Slot::After(_) => None,
    });
    let wanted: Vec<VersionKey> = wanted.collect();
    let mut versions = BTreeMap::new();
    if !wanted.is_empty() {
        let found = cx.store().policy_versions_by_number(cx.org()?, &wanted).await?;
        versions.extend(found.into_iter().map(|version| ((version.policy, version.version), version)));
    }
    let mut pieces = Vec::with_capacity(part.len());
    for slot in part {
        match slot {
            Slot::Between(text) => pieces.push(Piece::Between(text)),
            Slot::Event(text) => pieces.push(Piece::Event(text)),
            Slot::After(text) => pieces.push(Piece::After(text)),
            Slot::Version(key) => match versions.remove(&key) {
                Some(version) => {
                    let heavy = version.policy_yaml.len() > crate::compute::LONG_JSON;
                    let event = json_text(&PolicyEventView::made(&version))?;
                    let write = move || json_text(&PolicyVersionView::from(version));
                    pieces.push(Piece::Version(cx.compute().run_if(heavy, write).await??, event));
                }
                None if lost == Lost::IsLeftOut => {}
                None => {
                    let what = format_args!("version {} of policy {} cannot be read", key.1, key.0);
                    return Err(StoreError::corrupt(what).into());
                }
            },
        }
    }
    Ok(pieces)
}
