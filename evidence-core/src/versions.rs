//! Records with versions, such as policies, as answers carry them: all versions of a record, whose texts come to more than is
//! held at once.

use std::collections::BTreeMap;
use std::future::Future;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use serde::Serialize;

use crate::compute::LONG_JSON;
use crate::error::Result;
use crate::id::Id;
use crate::operation::json_text;
use crate::page::Listed;
use crate::service::{Context, Lasting};
use crate::store::{Store, StoreError, StoreResult};
use crate::texts::in_parts_by;

/// A record's id, and the number of one of its versions.
pub type VersionKey = (Id, u64);

/// A version of a record.
pub(crate) trait Version: Sized + Send + 'static {
    /// The version as answers carry it.
    type View: From<Self> + Serialize;
    /// What kind of record it is a version of.
    const OF: &'static str;

    /// The record, and the number.
    fn key(&self) -> VersionKey;

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
    Text(Vec<u8>),
    Version(VersionKey),
}

/// A record as an answer carries it: two objects that become one, with a list of versions between their fields.
pub(crate) struct Versioned(Vec<Slot>);

impl Versioned {
    /// The record's fields before and after its versions, which are listed in this order. There are some before.
    pub(crate) fn new(
        before: &impl Serialize,
        versions: impl IntoIterator<Item = VersionKey>,
        after: &impl Serialize,
    ) -> Result<Self> {
        let (mut before, mut after) = (json_text(before)?, json_text(after)?);
        before.pop();
        before.extend_from_slice(b",\"versions\":[");
        let between: &[u8] = if after == b"{}" { b"]" } else { b"]," };
        after.splice(..1, between.iter().copied());
        let versions = versions.into_iter().map(Slot::Version);
        Ok(Self([Slot::Text(before)].into_iter().chain(versions).chain([Slot::Text(after)]).collect()))
    }

    /// The record's JSON text.
    pub(crate) async fn text<V: Version>(
        self,
        cx: &Context<'_>,
    ) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        filled::<V>(self.0, Lost::Fails, cx).await
    }

    /// The JSON text of a list of records.
    pub(crate) async fn list_text<V: Version>(
        records: impl IntoIterator<Item = Result<Self>>,
        cx: &Context<'_>,
    ) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        let mut all = vec![Slot::Text(b"[".to_vec())];
        for (number, record) in records.into_iter().enumerate() {
            if number > 0 {
                all.push(Slot::Text(b",".to_vec()));
            }
            all.extend(record?.0);
        }
        all.push(Slot::Text(b"]".to_vec()));
        filled::<V>(all, Lost::IsLeftOut, cx).await
    }
}

/// The versions among these slots.
fn versions(slots: &[Slot]) -> Vec<VersionKey> {
    let version = |slot: &Slot| match slot {
        Slot::Version(version) => Some(*version),
        Slot::Text(_) => None,
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
        Slot::Text(_) => None,
    };
    let parts = in_parts_by(slots, size).into_iter().map(|part| {
        let bytes = versions(&part).iter().filter_map(|version| sizes.get(version)).sum::<u64>();
        (part, bytes)
    });
    let (parts, lasting) = (Vec::from_iter(parts), cx.lasting());
    let pieces =
        stream::iter(parts).then(move |part| read::<V>(part, lost, lasting.clone())).map_ok(stream::iter);
    // A comma before each version but the first of its record.
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

/// The text of these slots, whose versions come to so many bytes.
async fn read<V: Version>(
    (part, bytes): (Vec<Slot>, u64),
    lost: Lost,
    lasting: Lasting,
) -> Result<Vec<Piece>> {
    let (cx, wanted) = (lasting.context(), versions(&part));
    let mut found = BTreeMap::new();
    if !wanted.is_empty() {
        let versions = V::by_number(cx.store(), cx.org()?, &wanted).await?;
        found.extend(versions.into_iter().map(|version| (version.key(), version)));
    }
    let write = move || {
        let mut pieces = Vec::with_capacity(part.len());
        for slot in part {
            match slot {
                Slot::Text(text) => pieces.push(Piece::Between(text)),
                Slot::Version(key) => match found.remove(&key) {
                    Some(version) => pieces.push(Piece::Version(json_text(&V::View::from(version))?)),
                    None if lost == Lost::IsLeftOut => {}
                    None => return Err(self::lost::<V>(key).into()),
                },
            }
        }
        Ok(pieces)
    };
    cx.compute().run_if(bytes > LONG_JSON as u64, write).await?
}
