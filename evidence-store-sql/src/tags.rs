//! Tags: the tag filters of lists, and the tags that can be chosen for them.

use async_trait::async_trait;
use evidence_core::id::Id;
use evidence_core::store::StoreResult;
use evidence_core::tags::{TagChoice, TagFilter, TagStore, TaggedKind};

use crate::driver::Driver;
use crate::sql::Sql;
use crate::store::SqlStore;
use crate::value::{Column, Value};

/// The condition that a row has the tags in `$5` (in PostgreSQL `$5` and `$6`), which [`tag_columns`] binds.
pub(crate) const TAGGED: Sql = Sql::per_dialect(
    " AND NOT EXISTS (
        SELECT 1 FROM json_each($5) f WHERE NOT EXISTS (
            SELECT 1 FROM json_each(x.tags) t
            WHERE t.key = f.value->>0 AND (f.value->>1 IS NULL OR t.value = f.value->>1)))",
    " AND NOT EXISTS (
        SELECT 1 FROM UNNEST($5::text[], $6::text[]) AS f (key, value)
        WHERE NOT (x.tags ? f.key AND (f.value IS NULL OR x.tags->>f.key = f.value)))",
);

/// The SHA-256 of a value, in the form of PostgreSQL's index `record_tag_pair`.
macro_rules! digest {
    () => {
        r"sha256(replace(t.value, '\', '\\')::bytea)"
    };
}

/// A tag in the form of that index, with this number as `found`.
macro_rules! pair {
    ($found:literal) => {
        concat!(
            "t.key, t.value, left(t.value, 128) AS beginning, ",
            digest!(),
            " AS digest, ",
            $found,
            " AS found FROM evidence.record_tag t"
        )
    };
}

/// The first row in the order of that index.
macro_rules! in_order {
    () => {
        concat!("ORDER BY t.key, left(t.value, 128), ", digest!(), " LIMIT 1")
    };
}

/// Finds each tag from the previous one, so the cost depends on the result and not on the number of records
/// with a tag. PostgreSQL's index orders values by their first 128 characters only. The query therefore finds
/// all values with the same beginning, and sorts them.
const CHOICES: Sql = Sql::per_dialect(
    "WITH RECURSIVE tag (key, value, number) AS (
        SELECT t.key, t.value, 1 FROM evidence.record_tag t WHERE $4 > 0 AND t.rowid = (
            SELECT b.rowid FROM evidence.record_tag b WHERE b.org = $1 AND b.kind = $5 AND (b.key, b.value) > ($2, $3)
            ORDER BY b.key, b.value LIMIT 1)
        UNION ALL
        SELECT t.key, t.value, w.number + 1
        FROM tag w CROSS JOIN evidence.record_tag t WHERE w.number < $4 AND t.rowid = coalesce((
            SELECT n.rowid FROM evidence.record_tag n WHERE n.org = $1 AND n.kind = $5 AND n.key = w.key AND n.value > w.value
            ORDER BY n.value LIMIT 1), (
            SELECT n.rowid FROM evidence.record_tag n WHERE n.org = $1 AND n.kind = $5 AND n.key > w.key
            ORDER BY n.key, n.value LIMIT 1)))
    SELECT key, value FROM tag",
    concat!(
        "WITH RECURSIVE tag AS (
        (SELECT ", pair!("((t.key, t.value) > ($2::text, $3::text))::int"), "
        WHERE $4::bigint > 0 AND t.org = $1 AND t.kind = $5 AND (t.key, left(t.value, 128)) >= ($2::text, left($3::text, 128))
        ", in_order!(), ")
        UNION ALL
        SELECT n.key, n.value, n.beginning, n.digest, w.found + n.found FROM tag w CROSS JOIN LATERAL (
            SELECT ", pair!("((t.key, t.value) > ($2::text, $3::text))::int"), "
            WHERE t.org = $1 AND t.kind = $5 AND (t.key, left(t.value, 128), ", digest!(), ")
                > (w.key, w.beginning, w.digest)
            ", in_order!(), ") n
        WHERE w.found < $4 OR (n.key, n.beginning) = (w.key, w.beginning))
    SELECT key, value FROM tag WHERE (key, value) > ($2::text, $3::text) ORDER BY key, value LIMIT $4"
    ),
);

/// Binds tag filters: the keys, and the values, null if any value matches.
pub(crate) fn tag_columns(tags: &[TagFilter]) -> Value {
    let keys = tags.iter().map(|tag| Some(tag.key.clone())).collect();
    let values = tags.iter().map(|tag| tag.value.clone()).collect();
    Value::Columns(vec![Column::Texts(keys), Column::Texts(values)])
}

#[async_trait]
impl<D: Driver> TagStore for SqlStore<D> {
    async fn tag_choices(
        &self,
        org: Id,
        kind: TaggedKind,
        after: Option<&TagChoice>,
        limit: u64,
    ) -> StoreResult<Vec<TagChoice>> {
        // No key is empty, so every tag comes after an empty one.
        let (key, value) = after.map_or(("", ""), |after| (&after.key, &after.value));
        let query =
            self.query_org(org, CHOICES).bind(key).bind(value).bind(limit).bind(kind.record_kind().as_str());
        let choice = |(key, value): (String, String)| Ok(TagChoice::new(key, value));
        let mut choices = query.long().all_as(choice).await?;
        choices.sort_unstable();
        Ok(choices)
    }
}
