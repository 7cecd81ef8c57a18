//! Pages: what a caller asks for, what a store sees, and what it gives back.

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

    /// The number, from 1.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// What to ask a store for, to show this page of `per_page` items.
    pub const fn request(self, per_page: u64) -> PageRequest {
        PageRequest { offset: (self.0 - 1).saturating_mul(per_page), limit: per_page }
    }
}

impl Default for PageNumber {
    fn default() -> Self {
        Self::FIRST
    }
}

/// A number of items per page: an integer from `MIN`, which is not negative, to `MAX`. With 0 the items are counted, and
/// none is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PerPage<const MAX: i64, const MIN: i64 = 1>(u64);

impl<const MAX: i64, const MIN: i64> PerPage<MAX, MIN> {
    /// So many items, held between `MIN` and `MAX`.
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

    /// The number of items.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Reads an integer between two bounds, both included.
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

/// Which part of an ordered list a store should give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    /// How many items to pass over.
    pub offset: u64,
    /// How many items to give at the most.
    pub limit: u64,
}

impl PageRequest {
    /// The whole list.
    pub const ALL: Self = Self { offset: 0, limit: i64::MAX.unsigned_abs() };
}

/// A part of an ordered list, and how long the whole is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of the page, in order.
    pub items: Vec<T>,
    /// How many items there are in all.
    pub total: u64,
}

impl<T> Page<T> {
    /// The page asked for, of a list that is at hand whole.
    pub fn of(all: Vec<T>, request: PageRequest) -> Self {
        let total = all.len() as u64;
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Self { items: all.into_iter().skip(at(request.offset)).take(at(request.limit)).collect(), total }
    }

    /// How many pages of `per_page` the whole list fills; none of 0 items.
    pub const fn pages(&self, per_page: u64) -> u64 {
        if per_page == 0 { 0 } else { self.total.div_ceil(per_page) }
    }

    /// The same page with each item changed.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(change).collect(), total: self.total }
    }
}

/// An item of a list whose items are read apart, some at a time: what tells how many of them fit memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<K = Id> {
    /// The item's id, or what else it is found by.
    pub id: K,
    /// The bytes of its newest fact, as stored.
    pub bytes: u64,
}

impl<K> Listed<K> {
    /// More items are not read at once.
    const MAX_ITEMS: usize = 64;

    /// The ids of these items, in order, in parts that fit memory.
    pub fn batches(items: Vec<Self>) -> Vec<Vec<K>> {
        in_batches(items.into_iter().map(|Self { id, bytes }| (id, bytes)), Self::MAX_ITEMS)
    }
}

/// More bytes are not read at once; what is longer is read alone.
pub(crate) const MAX_BATCH_BYTES: u64 = 1 << 20;

/// Items of so many bytes, in order, in parts that fit memory, of at most so many.
pub(crate) fn in_batches<T>(items: impl IntoIterator<Item = (T, u64)>, most: usize) -> Vec<Vec<T>> {
    in_batches_within(MAX_BATCH_BYTES, items, most)
}

/// The same, in parts of so many bytes.
pub(crate) fn in_batches_within<T>(
    bytes_of_part: u64,
    items: impl IntoIterator<Item = (T, u64)>,
    most: usize,
) -> Vec<Vec<T>> {
    let mut batches: Vec<Vec<T>> = Vec::new();
    let mut room = Room::of(bytes_of_part);
    for (item, bytes) in items {
        match batches.last_mut().filter(|batch| batch.len() < most && room.try_take(bytes)) {
            Some(batch) => batch.push(item),
            None => {
                batches.push(vec![item]);
                room = Room::of(bytes_of_part);
                room.try_take(bytes);
            }
        }
    }
    batches
}

/// What is left of a part of so many bytes.
pub(crate) struct Room {
    left: u64,
    is_empty: bool,
}

impl Room {
    pub(crate) const fn of(bytes: u64) -> Self {
        Self { left: bytes, is_empty: true }
    }

    /// Whether an item of so many bytes comes into the part, of which it takes them: the first does, however long it is.
    pub(crate) const fn try_take(&mut self, bytes: u64) -> bool {
        let admits = self.is_empty || bytes <= self.left;
        if admits {
            self.is_empty = false;
            self.left = self.left.saturating_sub(bytes);
        }
        admits
    }
}

/// Of a list that is answered whole, more items are not listed at once: they come to about a megabyte.
pub(crate) const MAX_LISTED: u64 = 40_000;

/// Streams an append-only list, newest first, in pages of `most` items. Items added meanwhile are left out. How many there are
/// says where it ends: a page may be short, where a row was lost.
pub(crate) fn in_pages<F>(
    most: u64,
    ask: impl Fn(PageRequest) -> F + Send + 'static,
) -> impl Stream<Item = Result<Vec<Listed>>> + Send + 'static
where
    F: Future<Output = Result<Page<Listed>>> + Send + 'static,
{
    /// Where the list goes on.
    #[derive(Default)]
    struct Next {
        offset: u64,
        /// How many there were when the page before was read, or right after; nothing before the first.
        total: Option<u64>,
        /// What that page had.
        told: BTreeSet<Id>,
    }
    stream::try_unfold((Some(Next::default()), ask), move |(next, ask)| async move {
        let Some(Next { mut offset, mut total, told }) = next else { return Ok(None) };
        loop {
            let Page { mut items, total: now } = ask(PageRequest { offset, limit: most }).await?;
            // What came in since has moved the others on: by less than a page, or another page is theirs.
            let added = total.replace(now).map_or(0, |before| now.saturating_sub(before));
            if added >= most {
                offset += added;
                continue;
            }
            let page = items.iter().map(|one| one.id).collect();
            items.retain(|one| !told.contains(&one.id));
            let next = Next { offset: offset + most, total, told: page };
            return Ok(Some((items, ((next.offset < now).then_some(next), ask))));
        }
    })
}

/// Where to go from a page in an envelope, its `_links`.
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
    /// The links of page `page` of `total_pages` in the list at `address` that `query` narrows.
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

/// Where to go from a page of a list that goes on from a cursor, its `_links`.
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
    /// The links of the page after this cursor in the list at `address` that `query` narrows, and of the next one.
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

/// A query value with everything but RFC 3986's unreserved characters encoded.
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
    /// Number of items in all.
    pub total: u64,
    /// This page's number, from 1.
    pub page: u64,
    /// Items a page, as asked.
    pub per_page: u64,
    /// Number of pages.
    pub page_count: u64,
}

impl Pagination {
    /// The JSON text before the list of a page, its `data`, and after it.
    ///
    /// # Errors
    /// [`Error::Internal`] when it cannot be written.
    pub(crate) fn around_data(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let pagination = serde_json::to_string(self).map_err(|source| Error::Internal {
            what: "a page's numbers could not be written as JSON",
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
    /// As the wire has it.
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
            // By their numbers: nothing, one within a page, one where a page ends, several.
            for lost in [&[][..], &[1], &[4], &[6], &[2, 3, 7]] {
                let asked = Arc::new(AtomicU64::new(0));
                let is_there = |number: &u64| !lost.contains(number);
                let ask = {
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
                let told: Vec<Vec<Listed>> = in_pages(4, ask).try_collect().await.unwrap();
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
