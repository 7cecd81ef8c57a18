//! Long texts that many records have in common, such as templates: kept once an organization, in a ledger entry of their
//! own ([`Fact::TextKept`]), and referred to by digest.

use std::collections::BTreeSet;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::fact::Fact;
use crate::id::Id;
use crate::ledger::Hash;
use crate::service::{Context, Draft};
use crate::store::StoreResult;

/// A text that the organization keeps, as a record refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TextRef {
    /// The SHA-256 of its UTF-8.
    pub sha256: Hash,
    /// Its length in bytes: it tells how many texts fit memory before any is read.
    pub size: u64,
}

impl TextRef {
    /// What refers to this text.
    pub fn of(text: &str) -> Self {
        Self { sha256: Hash::of(text), size: text.len() as u64 }
    }
}

/// Queries about texts.
#[async_trait]
pub trait TextStore: Send + Sync {
    /// Those of the texts with these digests that the organization keeps, once each, in any order; what is unknown or
    /// cannot be read any more is passed over. They are told apart by their digests. Of several entries that keep a text the
    /// newest is read, so that keeping it again puts right what was damaged.
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>>;
}

impl Draft {
    /// Keeps a text, which the facts after this one refer to, where the organization does not have it or it cannot be read
    /// any more. Texts never go, so that this needs no guard; two writes that race may both keep one.
    pub(crate) async fn keep_text(&mut self, text: &str, reference: TextRef, cx: &Context<'_>) -> Result<()> {
        let kept = cx.store().texts(cx.org()?, &[reference.sha256]).await?;
        if !kept.iter().any(|kept| kept == text) {
            self.fact(Fact::TextKept { text: text.to_owned() });
        }
        Ok(())
    }
}

/// Texts that are read at once are no longer than this together, in bytes; a longer one is read alone.
const MAX_BATCH_BYTES: u64 = 1 << 20;

/// Items, in order, in parts whose texts fit memory together.
pub(crate) fn in_parts<T>(
    items: impl IntoIterator<Item = T>,
    text: impl Fn(&T) -> Option<TextRef>,
) -> Vec<Vec<T>> {
    in_parts_by(items, |item| text(item).map(|text| (text.sha256, text.size)))
}

/// The same of texts that are told apart by anything, each with its size in bytes.
pub(crate) fn in_parts_by<T, K: Ord>(
    items: impl IntoIterator<Item = T>,
    text: impl Fn(&T) -> Option<(K, u64)>,
) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let (mut distinct, mut room) = (BTreeSet::new(), 0);
    for item in items {
        let text = text(&item).filter(|(text, _)| !distinct.contains(text));
        let size = text.as_ref().map_or(0, |(_, size)| *size);
        match parts.last_mut().filter(|_| size <= room) {
            Some(part) => {
                part.push(item);
                room -= size;
            }
            None => {
                parts.push(vec![item]);
                distinct.clear();
                room = MAX_BATCH_BYTES.saturating_sub(size);
            }
        }
        distinct.extend(text.map(|(text, _)| text));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_a_megabyte_of_different_texts_at_most() {
        let text = |name: u8, size| Some(TextRef { sha256: Hash::of([name]), size });
        let (a, b, c) = (text(0, 600_000), text(1, 600_000), text(2, 400_000));
        let huge = text(3, 5_000_000);
        for (items, lengths) in [
            (vec![], vec![]),
            (vec![None, None], vec![2]),
            (vec![a, a, None, a], vec![4]),
            (vec![a, c, a, c], vec![4]),
            (vec![a, b, a], vec![1, 1, 1]),
            (vec![a, b, b, c, None], vec![1, 4]),
            (vec![a, huge, huge, a], vec![1, 2, 1]),
            (vec![huge, None], vec![2]),
        ] {
            let parts = in_parts(items.clone(), |text| *text);
            assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{items:?}");
            assert_eq!(parts.concat(), items);
        }
    }
}
