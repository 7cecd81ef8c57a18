//! Pages: the request of a caller, the query of a store, and the result.

use std::collections::BTreeSet;

use futures_util::{Stream, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::Id;

/// A page number: an integer from 1 to 2⁶³−1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PageNumber(u64);

impl PageNumber {
    /// The first page.
    pub const FIRST: Self = Self(1);

    /// Returns the number, from 1.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the part of the list for this page with `per_page` items.
    pub const fn request(self, per_page: u64) -> PageRequest {
        PageRequest { offset: (self.0 - 1).saturating_mul(per_page), limit: per_page }
    }
}

impl Default for PageNumber {
    fn default() -> Self {
        Self::FIRST
    }
}

/// The number of items per page: an integer from `MIN` to `MAX`, where `MIN` is not negative. With 0, the
/// page has no items, only their total number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PerPage<const MAX: i64, const MIN: i64 = 1>(u64);

impl<const MAX: i64, const MIN: i64> PerPage<MAX, MIN> {
    /// Returns the number, limited to `MIN` and `MAX`.
    pub const fn clamped(items: u64) -> Self {
        let (min, max) = (MIN.unsigned_abs(), MAX.unsigned_abs());
        Self(if items < min {
            min
        } else if items > max {
            max
        } else {
            items
        })
    }

    /// Returns the number of items.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Decodes an integer between two bounds, both included.
pub(crate) fn integer_between<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
    least: i64,
    most: i64,
) -> Result<i64, D::Error> {
    let number = i64::deserialize(deserializer)?;
    if number < least {
        let text = format_args!("Input should be greater than or equal to {least}");
        return Err(serde::de::Error::custom(text));
    }
    if number > most {
        return Err(serde::de::Error::custom(format_args!("Input should be less than or equal to {most}")));
    }
    Ok(number)
}

impl<'de> Deserialize<'de> for PageNumber {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        integer_between(deserializer, 1, i64::MAX).map(|number| Self(number.unsigned_abs()))
    }
}

impl<'de, const MAX: i64, const MIN: i64> Deserialize<'de> for PerPage<MAX, MIN> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        integer_between(deserializer, MIN, MAX).map(|number| Self(number.unsigned_abs()))
    }
}

impl JsonSchema for PageNumber {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PageNumber".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 1, "maximum": i64::MAX })
    }
}

impl<const MAX: i64, const MIN: i64> JsonSchema for PerPage<MAX, MIN> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("PerPage{MIN}To{MAX}").into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A part of an ordered list, as requested from a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    /// The number of items to skip.
    pub offset: u64,
    /// The maximum number of items to return.
    pub limit: u64,
}

impl PageRequest {
    /// The whole list.
    pub const ALL: Self = Self { offset: 0, limit: i64::MAX.unsigned_abs() };
}

/// A part of an ordered list, and the length of the whole list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of the page, in order.
    pub items: Vec<T>,
    /// The number of items in the whole list.
    pub total: u64,
}

impl<T> Page<T> {
    /// Returns the requested part of a complete list.
    pub fn of(all: Vec<T>, request: PageRequest) -> Self {
        let total = all.len() as u64;
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Self { items: all.into_iter().skip(at(request.offset)).take(at(request.limit)).collect(), total }
    }

    /// Returns the number of pages of `per_page` items; 0 for `per_page` 0.
    pub const fn pages(&self, per_page: u64) -> u64 {
        if per_page == 0 { 0 } else { self.total.div_ceil(per_page) }
    }

    /// Returns the page with each item converted.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(change).collect(), total: self.total }
    }
}

/// An item of a list whose items are read later, in batches that fit in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<K = Id> {
    /// The item's id or other key.
    pub id: K,
    /// The size of its newest fact in the store.
    pub bytes: u64,
}

impl<K> Listed<K> {
    /// The maximum number of items in a batch.
    const MAX_ITEMS: usize = 64;

    /// Splits the ids of these items into batches that fit in memory, in order.
    pub fn batches(items: Vec<Self>) -> Vec<Vec<K>> {
        in_batches(items.into_iter().map(|Self { id, bytes }| (id, bytes)), Self::MAX_ITEMS)
    }
}

/// The maximum size of a batch in bytes. A larger item is read alone.
pub(crate) const MAX_BATCH_BYTES: u64 = 1 << 20;

/// Splits items with these sizes into batches that fit in memory and have at most `most` items, in order.
pub(crate) fn in_batches<T>(items: impl IntoIterator<Item = (T, u64)>, most: usize) -> Vec<Vec<T>> {
    in_batches_within(MAX_BATCH_BYTES, items, most)
}

/// Splits items into batches of at most this many bytes.
pub(crate) fn in_batches_within<T>(
    bytes_of_part: u64,
    items: impl IntoIterator<Item = (T, u64)>,
    most: usize,
) -> Vec<Vec<T>> {
    let mut batches: Vec<Vec<T>> = Vec::new();
    let mut budget = BatchBudget::of(bytes_of_part);
    for (item, bytes) in items {
        match batches.last_mut().filter(|batch| batch.len() < most && budget.try_reserve(bytes)) {
            Some(batch) => batch.push(item),
            None => {
                batches.push(vec![item]);
                budget = BatchBudget::of(bytes_of_part);
                budget.try_reserve(bytes);
            }
        }
    }
    batches
}

/// The remaining bytes of a batch.
pub(crate) struct BatchBudget {
    left: u64,
    is_empty: bool,
}

impl BatchBudget {
    pub(crate) const fn of(bytes: u64) -> Self {
        Self { left: bytes, is_empty: true }
    }

    /// Adds an item of this size if it fits, and returns whether it did. The first item always fits.
    pub(crate) const fn try_reserve(&mut self, bytes: u64) -> bool {
        let admits = self.is_empty || bytes <= self.left;
        if admits {
            self.is_empty = false;
            self.left = self.left.saturating_sub(bytes);
        }
        admits
    }
}

/// The maximum number of items that are listed at once for a complete list. Their ids need about a megabyte.
pub(crate) const MAX_LISTED: u64 = 40_000;

/// Streams an append-only list, newest first, in pages of `most` items. Omits items that are added meanwhile.
/// The end follows from the total number of items, because a page may be short if a row was lost.
pub(crate) fn in_pages<F>(
    most: u64,
    read_page: impl Fn(PageRequest) -> F + Send + 'static,
) -> impl Stream<Item = Result<Vec<Listed>>> + Send + 'static
where
    F: Future<Output = Result<Page<Listed>>> + Send + 'static,
{
    /// The position in the list.
    #[derive(Default)]
    struct Next {
        offset: u64,
        /// The total number of items when the previous page was read, or shortly after; `None` before the
        /// first page.
        total: Option<u64>,
        /// The items of the previous page.
        told: BTreeSet<Id>,
    }
    stream::try_unfold((Some(Next::default()), read_page), move |(next, read_page)| async move {
        let Some(Next { mut offset, mut total, told }) = next else { return Ok(None) };
        loop {
            let Page { mut items, total: now } = read_page(PageRequest { offset, limit: most }).await?;
            // New items have shifted the others. If it is by a page or more, a different page is needed.
            let added = total.replace(now).map_or(0, |before| now.saturating_sub(before));
            if added >= most {
                offset += added;
                continue;
            }
            let page = items.iter().map(|one| one.id).collect();
            items.retain(|one| !told.contains(&one.id));
            let next = Next { offset: offset + most, total, told: page };
            return Ok(Some((items, ((next.offset < now).then_some(next), read_page))));
        }
    })
}

/// The `_links` of a page in an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PageLinks {
    /// This page.
    #[serde(rename = "self")]
    pub this: Link,
    /// The page after it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Link>,
    /// The page before it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev: Option<Link>,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Link {
    /// The absolute address.
    pub href: String,
}

impl PageLinks {
    /// Creates the links of page `page` of `total_pages` in the list at `address` with the filters `query`.
    pub fn new<'a>(
        address: &str,
        query: impl IntoIterator<Item = (&'a str, &'a str)>,
        page: u64,
        per_page: u64,
        total_pages: u64,
    ) -> Self {
        let narrowed: String =
            query.into_iter().map(|(name, value)| format!("&{name}={}", percent_encoded(value))).collect();
        let link = |page: u64| Link { href: format!("{address}?page={page}&per_page={per_page}{narrowed}") };
        Self {
            this: link(page),
            next: (page < total_pages).then(|| link(page + 1)),
            prev: (1 < page && page <= total_pages).then(|| link(page - 1)),
        }
    }
}

/// The `_links` of a page of a list with a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CursorLinks {
    /// This page.
    #[serde(rename = "self")]
    pub this: Link,
    /// The page after it; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Link>,
}

impl CursorLinks {
    /// Creates the links of the page after cursor `after` and of the next one, in the list at `address` with
    /// the filters `query`.
    pub fn new(address: &str, query: &[(&str, String)], after: Option<&str>, next: Option<&str>) -> Self {
        let link = |after: Option<&str>| {
            let given = query.iter().map(|(name, value)| (*name, value.as_str()));
            let given = given.chain(after.map(|after| ("after", after)));
            let given = given.map(|(name, value)| format!("{name}={}", percent_encoded(value)));
            let query = Vec::from_iter(given).join("&");
            Link { href: if query.is_empty() { address.to_owned() } else { format!("{address}?{query}") } }
        };
        Self { this: link(after), next: next.map(|next| link(Some(next))) }
    }
}

/// Percent-encodes a query value, except for the unreserved characters of RFC 3986.
pub(crate) fn percent_encoded(text: &str) -> String {
    let encoded = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encoded).collect()
}

/// The `pagination` block of flow and trail lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ListTrailsPagination")]
pub struct Pagination {
    /// Number of items on all pages.
    pub total: u64,
    /// This page's number, from 1.
    pub page: u64,
    /// Items per page, as requested.
    pub per_page: u64,
    /// Number of pages.
    pub page_count: u64,
}

impl Pagination {
    /// Returns the JSON text before and after the list of a page, its `data`.
    ///
    /// # Errors
    /// [`Error::Internal`] if it cannot be serialized.
    pub(crate) fn around_data(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let pagination = serde_json::to_string(self).map_err(|source| Error::Internal {
            what: "the numbers of a page could not be serialized to JSON",
            source: source.into(),
        })?;
        Ok((b"{\"data\":".to_vec(), format!(",\"pagination\":{pagination}}}").into_bytes()))
    }
}

/// Ascending (the default) or descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SortDirection {
    /// A to Z.
    #[default]
    Asc,
    /// Z to A.
    Desc,
}

impl SortDirection {
    /// Returns the value in requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asc => "asc",
            Self::Desc => "desc",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::TryStreamExt;
    use futures_util::future::ready;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_links_to_its_neighbours() {
        let href = |page: u64| format!("http://h/e?page={page}&per_page=5&tag=a%3Ab%20c");
        let table = [
            (1, 0, None, None),
            (1, 1, None, None),
            (2, 3, Some(3), Some(1)),
            (3, 3, None, Some(2)),
            (9, 3, None, None),
        ];
        for (page, pages, next, prev) in table {
            let links = PageLinks::new("http://h/e", [("tag", "a:b c")], page, 5, pages);
            let link = |page: u64| Link { href: href(page) };
            let expected = PageLinks { this: link(page), next: next.map(link), prev: prev.map(link) };
            assert_eq!(links, expected, "page {page} of {pages}");
        }
    }

    #[test]
    fn items_are_read_in_order_as_many_at_a_time_as_fit() {
        let id = |number: usize| -> Id { format!("00000000-0000-0000-0000-{number:08x}").parse().unwrap() };
        let sizes = |sizes: &[u64]| {
            let items =
                sizes.iter().enumerate().map(|(number, bytes)| Listed { id: id(number), bytes: *bytes });
            let batches = Listed::batches(items.collect());
            assert_eq!(batches.concat(), Vec::from_iter((0..sizes.len()).map(id)));
            Vec::from_iter(batches.iter().map(Vec::len))
        };
        let half = MAX_BATCH_BYTES / 2;
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[half, half, 1, half, half]), [2, 2, 1]);
        assert_eq!(sizes(&[1, MAX_BATCH_BYTES, u64::MAX, 1, 1]), [1, 1, 1, 2]);
        assert_eq!(
            sizes(&[1; Listed::<Id>::MAX_ITEMS * 2 + 1]),
            [Listed::<Id>::MAX_ITEMS, Listed::<Id>::MAX_ITEMS, 1]
        );
    }

    #[tokio::test]
    async fn a_list_that_grows_meanwhile_is_told_once_as_it_was_at_first() {
        let id = |number: u64| -> Id { format!("00000000-0000-0000-0000-{number:08x}").parse().unwrap() };
        for (many, growth) in [(0, 1), (1, 0), (3, 0), (4, 2), (10, 0), (10, 1), (10, 3), (10, 5), (30, 9)] {
            // The numbers of the lost rows: none, one within a page, one at the end of a page, several.
            for lost in [&[][..], &[1], &[4], &[6], &[2, 3, 7]] {
                let asked = Arc::new(AtomicU64::new(0));
                let is_there = |number: &u64| !lost.contains(number);
                let read_page = {
                    let asked = Arc::clone(&asked);
                    move |request: PageRequest| {
                        let newest = many + growth * asked.fetch_add(1, Ordering::Relaxed).min(30);
                        let newest_first =
                            (0..newest).rev().map(|number| Listed { id: id(number), bytes: 1 }).collect();
                        let Page { mut items, total } = Page::of(newest_first, request);
                        items.retain(|one| lost.iter().all(|lost| one.id != id(*lost)));
                        ready(Ok(Page { items, total }))
                    }
                };
                let told: Vec<Vec<Listed>> = in_pages(4, read_page).try_collect().await.unwrap();
                assert!(told.iter().all(|listed| listed.len() <= 4), "{told:?}");
                let ids = told.concat().into_iter().map(|one| one.id);
                let expected = (0..many).rev().filter(is_there).map(id);
                assert_eq!(Vec::from_iter(ids), Vec::from_iter(expected), "{many}, {growth}, {lost:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_page_number_is_an_integer_from_1(number in prop_oneof![-3..4_i128, i128::from(i64::MAX) - 2..i128::from(i64::MAX) + 3]) {
            let read = serde_json::from_str::<PageNumber>(&number.to_string());
            prop_assert_eq!(read.is_ok(), (1..=i128::from(i64::MAX)).contains(&number));
            if let Ok(page) = read {
                prop_assert_eq!(i128::from(page.get()), number);
                prop_assert_eq!(serde_json::to_string(&page).unwrap(), number.to_string());
                prop_assert!(page.request(u64::MAX).offset >= page.request(1).offset);
            }
        }

        #[test]
        fn a_page_size_is_an_integer_from_1_to_its_maximum(number in -2..55_i64) {
            prop_assert_eq!(serde_json::from_str::<PerPage<50>>(&number.to_string()).is_ok(), (1..=50).contains(&number));
            prop_assert_eq!(serde_json::from_str::<PerPage<50, 0>>(&number.to_string()).is_ok(), (0..=50).contains(&number));
        }

        #[test]
        fn a_window_of_a_list_is_what_skip_and_take_give(items in proptest::collection::vec(any::<u8>(), 0..20), offset in 0..25_u64, limit in 0..25_u64) {
            let slice = Page::of(items.clone(), PageRequest { offset, limit });
            let wanted: Vec<u8> = items.iter().copied().skip(usize::try_from(offset).unwrap()).take(usize::try_from(limit).unwrap()).collect();
            prop_assert_eq!((slice.items, slice.total), (wanted, items.len() as u64));
        }

        #[test]
        fn an_encoded_query_value_holds_no_delimiter(text in "\\PC*") {
            let encoded = percent_encoded(&text);
            prop_assert!(encoded.is_ascii() && !encoded.contains(['&', '=', '#', '+', ' ', '?']));
        }
    }
}
