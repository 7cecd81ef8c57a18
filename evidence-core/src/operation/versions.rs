//! Responses with all versions of a record, such as a policy. The texts of the versions do not fit in memory
//! together.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use crate::compute::LONG_JSON;
use crate::context::{Context, OwnedContext};
use crate::error::{Error, Result};
use crate::id::{Id, VersionKey};
use crate::operation::json_text;
use crate::page::Listed;
use crate::store::Store;
use crate::store::error::{StoreError, StoreResult};
use crate::texts::record::in_parts_by;

/// A version of a record.
pub(crate) trait Version: Sized + Send + 'static {
    /// The version in a response.
    type View: From<Self> + Serialize;
    /// An event of the record in a response; `()` if responses have none.
    type Event: Serialize;
    /// The kind of record, for error messages.
    const OF: &'static str;

    /// Returns the record and the number.
    fn key(&self) -> VersionKey;

    /// Returns the event of its creation, if responses have events.
    fn creation_event(&self) -> Option<Self::Event>;

    /// Returns the sizes of these versions, in any order. Unknown ones are skipped.
    fn sizes(
        store: &dyn Store,
        org: Id,
        versions: &[VersionKey],
    ) -> impl Future<Output = StoreResult<Vec<Listed<VersionKey>>>> + Send;

    /// Returns these versions, in any order. Unknown ones are skipped.
    fn by_number(
        store: &dyn Store,
        org: Id,
        versions: &[VersionKey],
    ) -> impl Future<Output = StoreResult<Vec<Self>>> + Send;

    /// Returns an existing version.
    fn one(key: VersionKey, cx: &Context<'_>) -> impl Future<Output = Result<Self>> + Send {
        async move {
            let found = Self::by_number(cx.store(), cx.org()?, &[key]).await?.pop();
            Ok(found.ok_or_else(|| missing_version::<Self>(key))?)
        }
    }
}

fn missing_version<V: Version>((record, number): VersionKey) -> StoreError {
    StoreError::corrupt(format_args!("version {number} of {} {record} cannot be read", V::OF))
}

/// The handling of a version that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// The response fails.
    Fails,
    /// The response omits the version.
    IsLeftOut,
}

/// A part of the text of a response.
enum Slot {
    /// The text before a record's versions, or between records.
    Between(Vec<u8>),
    Version(VersionKey),
    /// Another event of the record.
    Event(Vec<u8>),
    /// The text after a record's versions.
    After {
        text: Vec<u8>,
        /// Whether the record's events come before it.
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

/// A record in a response. The fields of two objects form one object, with the list of versions between them.
pub(crate) struct Versioned(Vec<Slot>);

/// The beginning of the text after the versions, if the response has events. It is replaced by the events,
/// which are known only after the versions were read.
const NO_EVENTS: &[u8] = b"{\"events\":[]";

impl Versioned {
    /// Creates a record from the fields before and after its versions. `before` has at least one field. If
    /// responses have events, `after` begins with an empty list `events`. The versions keep this order.
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

    /// Streams the JSON of the record.
    pub(crate) async fn text<V: Version>(
        self,
        cx: &Context<'_>,
    ) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        fill_slots::<V>(self.0, Lost::Fails, cx).await
    }

    /// Streams the JSON of a list of records, which `read` returns by id in batches.
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
            let text = fill_slots::<V>(slots, Lost::IsLeftOut, &owned.context()).await?;
            Ok(Some((text, (batches, is_first, read, owned))))
        });
        let bracket = |text: &[u8]| stream::iter([Ok(text.to_vec())]);
        bracket(b"[").chain(parts.try_flatten()).chain(bracket(b"]")).boxed()
    }
}

/// Returns the versions in these slots.
fn versions(slots: &[Slot]) -> Vec<VersionKey> {
    let version = |slot: &Slot| match slot {
        Slot::Version(version) => Some(*version),
        Slot::Between(_) | Slot::Event(_) | Slot::After { .. } => None,
    };
    slots.iter().filter_map(version).collect()
}

/// Streams the text of these slots. Reads the versions in parts.
async fn fill_slots<V: Version>(
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

/// The state of the text that was generated so far.
#[derive(Default)]
struct Joined {
    has_versions: bool,
    /// The text of the record's events, which follow after all its versions.
    events: Vec<u8>,
}

impl Joined {
    /// Returns the text that this piece adds.
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

/// Reads the versions of these slots, which have `bytes` bytes together, and returns the pieces of text.
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
                        let made = version.creation_event().as_ref().map(json_text).transpose()?;
                        pieces.push(Piece::Version(json_text(&V::View::from(version))?, made));
                    }
                    None if lost == Lost::IsLeftOut => {}
                    None => return Err(self::missing_version::<V>(key).into()),
                },
            }
        }
        Ok(pieces)
    };
    cx.compute().run_if(bytes > LONG_JSON as u64, write).await?
}
