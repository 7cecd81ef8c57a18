//! Checks that resources share: pages, narrowed lists, versions and sizes.

use std::fmt::Debug;

use evidence_core::fact::Fact;
use evidence_core::id::{Id, VersionKey};
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::StoreResult;

use super::fixtures::{Org, id, request};
use super::{Failure, Outcome, ensure, same};

/// Lists up to this length are read in pages of every size.
const SHORT: u64 = 6;

/// Pages within a list and past its end.
fn requests(total: u64) -> Vec<PageRequest> {
    let far = PageRequest::ALL.limit;
    let past = [PageRequest::ALL, request(1, 0), request(far, 1), request(far, far)];
    let within = if total <= SHORT {
        (0..=total).flat_map(|offset| (0..=total).map(move |limit| request(offset, limit))).collect()
    } else {
        vec![request(0, 5), request(4, 3), request(total - 2, 5), request(total, 1)]
    };
    [within, past.to_vec()].concat()
}

/// Asserts that each page has its part of this list, and the total of the whole.
pub(super) async fn paged<T, K, F>(
    what: &str,
    list: &[K],
    page: impl Fn(PageRequest) -> F,
    key: impl Fn(T) -> K,
) -> Outcome
where
    K: Clone + PartialEq + Debug,
    F: Future<Output = StoreResult<Page<T>>>,
{
    let total = list.len() as u64;
    for asked in requests(total) {
        let items = list.iter().skip(asked.offset as usize).take(asked.limit as usize).cloned().collect();
        same(&format!("{what}: {asked:?}"), page(asked).await?.map(&key), Page { items, total })?;
    }
    Ok(())
}

/// Asserts that each filter leaves the records of these ids, in this order.
pub(super) async fn narrowed<Q, F>(
    cases: impl IntoIterator<Item = (Q, Vec<u64>)>,
    listed: impl Fn(Q) -> F,
) -> Outcome
where
    Q: Debug,
    F: Future<Output = Result<Vec<Id>, Failure>>,
{
    for (filter, expected) in cases {
        let what = format!("{filter:?}");
        same(&what, listed(filter).await?, expected.into_iter().map(id).collect())?;
    }
    Ok(())
}

/// Asserts that `read` answers the sizes and the versions of these numbers, each once. The record 100 has eleven versions, 101
/// has one, and 200 is another organization's.
pub(super) async fn found_by_number<V, F>(
    read: impl Fn(Vec<VersionKey>) -> F,
    key: impl Fn(&V) -> VersionKey,
    version: impl Fn(u64, u64) -> V,
) -> Outcome
where
    V: PartialEq + Debug,
    F: Future<Output = StoreResult<(Vec<Listed<VersionKey>>, Vec<V>)>>,
{
    for (wanted, found) in [
        (vec![], vec![]),
        (vec![(100, 11)], vec![(100, 11)]),
        (vec![(101, 1), (100, 2), (101, 1), (100, 10)], vec![(100, 2), (100, 10), (101, 1)]),
        (vec![(100, 0), (100, 12), (101, 2), (200, 1), (999, 1), (100, u64::MAX)], vec![]),
    ] {
        let wanted = wanted.into_iter().map(|(of, number)| (id(of), number)).collect();
        let (sizes, mut versions) = read(wanted).await?;
        let mut sizes = Vec::from_iter(sizes.into_iter().map(|listed| listed.id));
        sizes.sort_unstable();
        versions.sort_by_key(&key);
        let keys = found.iter().map(|(of, number)| (id(*of), *number)).collect();
        same("the sizes", sizes, keys)?;
        let found = found.into_iter().map(|(of, number)| version(of, number)).collect();
        same("the versions", versions, found)?;
    }
    Ok(())
}

/// Asserts that the size of a version follows the text in it. `created` makes a record of this id and a version with this text.
pub(super) async fn sized<F>(
    org: &Org,
    created: impl Fn(u64, String) -> Fact,
    sizes: impl Fn(VersionKey) -> F,
) -> Outcome
where
    F: Future<Output = StoreResult<Vec<Listed<VersionKey>>>>,
{
    for (n, length) in [(100, 0), (101, 3_000), (102, 300_000)] {
        org.record(vec![created(n, "ü".repeat(length))]).await?;
        let bytes = sizes((id(n), 1)).await?.iter().map(|listed| listed.bytes).sum::<u64>();
        let least = 2 * length as u64;
        ensure((least..least + 2_000).contains(&bytes), &format!("{bytes} bytes of {length} characters"))?;
    }
    Ok(())
}

/// A text of 6,000 bytes.
pub(super) fn long_text() -> String {
    "ü".repeat(3_000)
}

/// Asserts that the largest of these records has the size of [`long_text`], and little more.
pub(super) fn largest_is_long<T>(listed: &[Listed<T>]) -> Outcome {
    let bytes = listed.iter().map(|one| one.bytes).max().unwrap_or_default();
    ensure((6_000..8_000).contains(&bytes), &format!("{bytes} bytes of the largest record"))
}
