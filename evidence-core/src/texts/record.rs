//! References to stored texts, and batches for reading them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ledger::Hash;

/// A record's reference to a text that the organization stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TextRef {
    /// The SHA-256 of the text in UTF-8.
    pub sha256: Hash,
    /// Its length in bytes. It decides how many texts fit in memory before any is read.
    pub size: u64,
}

impl TextRef {
    /// Returns the reference to this text.
    pub fn of(text: &str) -> Self {
        Self { sha256: Hash::of(text), size: text.len() as u64 }
    }
}

/// The maximum total size of texts that are read at once, in bytes. A longer text is read alone.
const MAX_BATCH_BYTES: u64 = 1 << 20;

/// Splits items into parts whose texts fit in memory, in order.
pub(crate) fn in_parts<T>(
    items: impl IntoIterator<Item = T>,
    text: impl Fn(&T) -> Option<TextRef>,
) -> Vec<Vec<T>> {
    in_parts_by(items, |item| text(item).map(|text| (text.sha256, text.size)))
}

/// Splits items with texts of any key type, each with its size in bytes.
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
