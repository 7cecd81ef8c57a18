//! Policies as answers carry them: with all their versions, whose texts come to more than is held at once.

use std::collections::BTreeMap;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Policy, PolicyEvent, PolicyVersion, VersionKey, consumers};
use crate::environments::KnownEnvironment;
use crate::error::Result;
use crate::name::{EnvironmentName, PolicyName};
use crate::operation::json_text;
use crate::service::{Context, Lasting};
use crate::store::StoreError;
use crate::texts::in_parts_by;
use crate::time::Seconds;

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
    /// Oldest first.
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

impl From<PolicyEvent> for PolicyEventView {
    fn from(event: PolicyEvent) -> Self {
        Self { kind: event.kind, timestamp: event.at.seconds(), user: event.by.name, data: BTreeMap::new() }
    }
}

/// A part of the text of policies.
enum Slot {
    Text(Vec<u8>),
    Version(VersionKey),
}

/// The slots of a policy's text, one for each version.
fn slots(policy: Policy, environments: &[KnownEnvironment]) -> Result<Vec<Slot>> {
    let consumers = consumers(environments, policy.id).map(|known| known.record.name.clone());
    let after = AfterVersions {
        consuming_envs: consumers.collect(),
        events: policy.events.into_iter().map(Into::into).collect(),
    };
    let before = BeforeVersions {
        name: policy.name,
        description: policy.description,
        created_by: policy.created_by.name,
        created_at: policy.created_at.seconds(),
        last_modified_at: policy.last_modified_at.seconds(),
        archived: false,
    };
    let (mut before, mut after) = (json_text(&before)?, json_text(&after)?);
    // Two objects that become one.
    before.pop();
    before.extend_from_slice(b",\"versions\":[");
    drop(after.splice(..1, *b"],"));
    let versions = (1..=policy.version).map(|number| Slot::Version((policy.id, number)));
    Ok([Slot::Text(before)].into_iter().chain(versions).chain([Slot::Text(after)]).collect())
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
    let mut all = vec![Slot::Text(b"[".to_vec())];
    for (number, policy) in policies.into_iter().enumerate() {
        if number > 0 {
            all.push(Slot::Text(b",".to_vec()));
        }
        all.extend(slots(policy, environments)?);
    }
    all.push(Slot::Text(b"]".to_vec()));
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
        Slot::Text(_) => None,
    });
    let versions: Vec<VersionKey> = versions.collect();
    let sizes = cx.store().policy_version_sizes(cx.org()?, &versions).await?;
    let sizes: BTreeMap<VersionKey, u64> = sizes.into_iter().map(|size| (size.id, size.bytes)).collect();
    let size = |slot: &Slot| match slot {
        Slot::Version(version) => sizes.get(version).map(|bytes| (*version, *bytes)),
        Slot::Text(_) => None,
    };
    let (parts, lasting) = (in_parts_by(slots, size), cx.lasting());
    let pieces = stream::iter(parts).then(move |part| read(part, lost, lasting.clone())).map_ok(stream::iter);
    // A comma before each version but the first of its policy.
    let with_commas = |is_first: &mut bool, piece: Piece| {
        let text = match piece {
            Piece::Between(text) => {
                *is_first = true;
                text
            }
            Piece::Version(text) if std::mem::take(is_first) => text,
            Piece::Version(text) => [b",".as_slice(), &text].concat(),
        };
        std::future::ready(Some(Ok(text)))
    };
    let pieces = pieces.map_ok(|part| part.map(Ok)).try_flatten();
    let text = pieces.scan(true, move |is_first, piece: Result<Piece>| match piece {
        Ok(piece) => with_commas(is_first, piece),
        Err(error) => std::future::ready(Some(Err(error))),
    });
    Ok(text.boxed())
}

enum Piece {
    Between(Vec<u8>),
    Version(Vec<u8>),
}

async fn read(part: Vec<Slot>, lost: Lost, lasting: Lasting) -> Result<Vec<Piece>> {
    let cx = lasting.context();
    let wanted = part.iter().filter_map(|slot| match slot {
        Slot::Version(version) => Some(*version),
        Slot::Text(_) => None,
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
            Slot::Text(text) => pieces.push(Piece::Between(text)),
            Slot::Version(key) => match versions.remove(&key) {
                Some(version) => {
                    let heavy = version.policy_yaml.len() > crate::compute::LONG_JSON;
                    let write = move || json_text(&PolicyVersionView::from(version));
                    pieces.push(Piece::Version(cx.compute().run_if(heavy, write).await??));
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
