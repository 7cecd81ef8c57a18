//! Records with versions, such as policies, as answers carry them: all versions of a record, whose texts come to more than is
//! held at once.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use crate::compute::LONG_JSON;
use crate::error::{Error, Result};
use crate::id::{Id, VersionKey};
use crate::operation::json_text;
use crate::page::Listed;
use crate::service::{Context, OwnedContext};
use crate::store::Store;
use crate::store::error::{StoreError, StoreResult};
use crate::texts::record::in_parts_by;

/// A version of a record.
pub(crate) trait Version: Sized + Send + 'static {
    /// The version as answers carry it.
    type View: From<Self> + Serialize;
    /// What happened to a record as answers carry it; `()` where they do not.
    type Event: Serialize;
    /// What kind of record it is a version of.
    const OF: &'static str;

    /// The record, and the number.
    fn key(&self) -> VersionKey;

    /// That it was made, where answers tell what happened to a record.
    fn made(&self) -> Option<Self::Event>;

    /// How large these versions are, in any order; unknown ones are passed over.
    fn sizes(
        store: &dyn Store,
        org: Id,
        versions: &[VersionKey],
    ) -> impl Future<Output = StoreResult<Vec<Listed<VersionKey>>>> + Send;

    /// These versions, in any order; unknown ones are passed over.
    fn by_number(
        store: &dyn Store,
        org: Id,
        versions: &[VersionKey],
    ) -> impl Future<Output = StoreResult<Vec<Self>>> + Send;

    /// This version, which is there.
    fn one(key: VersionKey, cx: &Context<'_>) -> impl Future<Output = Result<Self>> + Send {
        async move {
            let found = Self::by_number(cx.store(), cx.org()?, &[key]).await?.pop();
            Ok(found.ok_or_else(|| lost::<Self>(key))?)
        }
    }
}

fn lost<V: Version>((record, number): VersionKey) -> StoreError {
    StoreError::corrupt(format_args!("version {number} of {} {record} cannot be read", V::OF))
}

/// What becomes of a version that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// The answer fails.
    Fails,
    /// The answer shows the others.
    IsLeftOut,
}

/// A part of the text of an answer.
enum Slot {
    /// What comes before a record's versions, or between records.
    Between(Vec<u8>),
    Version(VersionKey),
    /// What else happened to the record.
    Event(Vec<u8>),
    /// What comes after a record's versions.
    After {
        text: Vec<u8>,
        /// Whether it comes after what happened to the record, too.
        has_events: bool,
    },
}

/// An item of a record's history.
pub(crate) enum HistoryItem<E> {
    /// The creation of a version.
    Version(VersionKey),
    /// Another event.
    Event(E),
}

/// A record as an answer carries it: two objects that become one, with a list of versions between their fields.
pub(crate) struct Versioned(Vec<Slot>);

/// How the JSON begins of what comes after the versions where it is told what happened to the record, in whose place that
/// is written: it is known once the versions are.
const NO_EVENTS: &[u8] = b"{\"events\":[]";

impl Versioned {
    /// The record's fields before and after its versions, which are listed in this order. There are some before. The first
    /// after them are the empty `events` where events are shown.
    pub(crate) fn new<E: Serialize>(
        before: &impl Serialize,
        history: impl IntoIterator<Item = HistoryItem<E>>,
        after: &impl Serialize,
    ) -> Result<Self> {
        let (mut before, after) = (json_text(before)?, json_text(after)?);
        before.pop();
        before.extend_from_slice(b",\"versions\":[");
        let mut slots = vec![Slot::Between(before)];
        for item in history {
            slots.push(match item {
                HistoryItem::Version(key) => Slot::Version(key),
                HistoryItem::Event(event) => Slot::Event(json_text(&event)?),
            });
        }
        slots.push(match after.strip_prefix(NO_EVENTS) {
            Some(text) => Slot::After { text: text.to_vec(), has_events: true },
            None if after == b"{}" => Slot::After { text: b"}".to_vec(), has_events: false },
            None => {
                let text = [b",", after.strip_prefix(b"{").unwrap_or(&after)].concat();
                Slot::After { text, has_events: false }
            }
        });
        Ok(Self(slots))
    }

    /// The record's JSON text.
    pub(crate) async fn text<V: Version>(
        self,
        cx: &Context<'_>,
    ) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        filled::<V>(self.0, Lost::Fails, cx).await
    }

    /// The JSON text of a list of records, which `read` makes of their ids, some at a time.
    pub(crate) fn list_text<V: Version, F>(
        listed: Vec<Listed>,
        read: impl Fn(Vec<Id>, OwnedContext) -> F + Send + 'static,
        cx: &Context<'_>,
    ) -> BoxStream<'static, Result<Vec<u8>>>
    where
        F: Future<Output = Result<Vec<Self>>> + Send + 'static,
    {
        let rest = (VecDeque::from(Listed::batches(listed)), true, read, cx.to_owned_context());
        let parts = stream::try_unfold(rest, |(mut batches, mut is_first, read, owned)| async move {
            let Some(ids) = batches.pop_front() else { return Ok::<_, Error>(None) };
            let mut slots = Vec::new();
            for record in read(ids, owned.clone()).await? {
                if !std::mem::take(&mut is_first) {
                    slots.push(Slot::Between(b",".to_vec()));
                }
                slots.extend(record.0);
            }
            let text = filled::<V>(slots, Lost::IsLeftOut, &owned.context()).await?;
            Ok(Some((text, (batches, is_first, read, owned))))
        });
        let bracket = |text: &[u8]| stream::iter([Ok(text.to_vec())]);
        bracket(b"[").chain(parts.try_flatten()).chain(bracket(b"]")).boxed()
    }
}

/// The versions among these slots.
fn versions(slots: &[Slot]) -> Vec<VersionKey> {
    let version = |slot: &Slot| match slot {
        Slot::Version(version) => Some(*version),
        Slot::Between(_) | Slot::Event(_) | Slot::After { .. } => None,
    };
    slots.iter().filter_map(version).collect()
}

/// The text of these slots, whose versions are read some at a time.
async fn filled<V: Version>(
    slots: Vec<Slot>,
    lost: Lost,
    cx: &Context<'_>,
) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    let sizes = V::sizes(cx.store(), cx.org()?, &versions(&slots)).await?;
    let sizes: BTreeMap<VersionKey, u64> = sizes.into_iter().map(|size| (size.id, size.bytes)).collect();
    let size = |slot: &Slot| match slot {
        Slot::Version(version) => sizes.get(version).map(|bytes| (*version, *bytes)),
        Slot::Between(_) | Slot::Event(_) | Slot::After { .. } => None,
    };
    let parts = in_parts_by(slots, size).into_iter().map(|part| {
        let bytes = versions(&part).iter().filter_map(|version| sizes.get(version)).sum::<u64>();
        (part, bytes)
    });
    let (parts, owned) = (Vec::from_iter(parts), cx.to_owned_context());
    let pieces =
        stream::iter(parts).then(move |part| read::<V>(part, lost, owned.clone())).map_ok(stream::iter);
    let pieces = pieces.map_ok(|part| part.map(Ok)).try_flatten();
    let text = pieces.scan(Joined::default(), |joined, piece: Result<Piece>| {
        std::future::ready(Some(piece.map(|piece| joined.add(piece))))
    });
    Ok(text.boxed())
}

enum Piece {
    Between(Vec<u8>),
    /// The creation of a version.
    Version(Vec<u8>, Option<Vec<u8>>),
    Event(Vec<u8>),
    After {
        text: Vec<u8>,
        has_events: bool,
    },
}

/// What the text of a record has come to.
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
            Piece::Version(text, made) => {
                made.iter().for_each(|event| self.event(event));
                match std::mem::replace(&mut self.has_versions, true) {
                    true => [b",", &*text].concat(),
                    false => text,
                }
            }
            Piece::Event(event) => {
                self.event(&event);
                Vec::new()
            }
            Piece::After { text, has_events: false } => [b"]", &*text].concat(),
            Piece::After { text, has_events: true } => {
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

/// The text of these slots, whose versions come to so many bytes.
async fn read<V: Version>(
    (part, bytes): (Vec<Slot>, u64),
    lost: Lost,
    owned: OwnedContext,
) -> Result<Vec<Piece>> {
    let (cx, wanted) = (owned.context(), versions(&part));
    let mut found = BTreeMap::new();
    if !wanted.is_empty() {
        let versions = V::by_number(cx.store(), cx.org()?, &wanted).await?;
        found.extend(versions.into_iter().map(|version| (version.key(), version)));
    }
    let write = move || {
        let mut pieces = Vec::with_capacity(part.len());
        for slot in part {
            match slot {
                Slot::Between(text) => pieces.push(Piece::Between(text)),
                Slot::Event(text) => pieces.push(Piece::Event(text)),
                Slot::After { text, has_events } => pieces.push(Piece::After { text, has_events }),
                Slot::Version(key) => match found.remove(&key) {
                    Some(version) => {
                        let made = version.made().as_ref().map(json_text).transpose()?;
                        pieces.push(Piece::Version(json_text(&V::View::from(version))?, made));
                    }
                    None if lost == Lost::IsLeftOut => {}
                    None => return Err(self::lost::<V>(key).into()),
                },
            }
        }
        Ok(pieces)
    };
    cx.compute().run_if(bytes > LONG_JSON as u64, write).await?
}
