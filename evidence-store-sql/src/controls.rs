//! Controls: records with versions, named by their identifiers and listed by their display names.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::controls::{Control, ControlFilter, ControlStore, ControlVersion, VersionKey};
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::store::StoreResult;

use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::Sql;
use crate::store::SqlStore;
use crate::tags::{TAGGED, tag_columns};

const KIND: &str = "control";

const CONTROLS: Sql = Sql::per_dialect(
    "evidence.record x WHERE x.org = $1 AND x.kind = 'control'",
    "evidence.record x WHERE x.org = $1 AND x.kind || '' = 'control'",
);

const CURRENT: Sql = Sql::portable(" AND NOT x.archived");
const ARCHIVED: Sql = Sql::portable(" AND x.archived");

/// In PostgreSQL, the collation of the columns changes the case of ASCII letters only.
const HAS_FOLDED: Sql = Sql::per_dialect(
    " AND (instr(lower(x.name), lower($4)) > 0 OR EXISTS (
        SELECT 1 FROM evidence.name n
        WHERE n.org = $1 AND n.kind = 'control' AND n.id = x.id AND instr(lower(n.name), lower($4)) > 0))",
    " AND (strpos(lower(x.name), lower($4 COLLATE \"C\")) > 0 OR EXISTS (
        SELECT 1 FROM evidence.name n
        WHERE n.org = $1 AND n.kind = 'control' AND n.id = x.id
            AND strpos(lower(n.name), lower($4 COLLATE \"C\")) > 0
        OFFSET 0))",
);

fn listing(filter: &ControlFilter) -> Listing {
    let found = filter.search.as_ref().map(|_| HAS_FOLDED);
    let tagged = (!filter.tags.is_empty()).then_some(TAGGED);
    let archived = if filter.archived { ARCHIVED } else { CURRENT };
    let order = match filter.direction {
        SortDirection::Asc => "x.name, x.id",
        SortDirection::Desc => "x.name DESC, x.id",
    };
    Listing {
        from: CONTROLS,
        filter: [Some(archived), found, tagged].into_iter().flatten().collect(),
        order: Order::By(Sql::portable(order)),
        narrow: false,
        counted: true,
    }
}

#[async_trait]
impl<D: Driver> ControlStore for SqlStore<D> {
    async fn control(&self, org: Id, identifier: &str) -> StoreResult<Option<Current<Control>>> {
        self.by_name(org, KIND, identifier).await
    }

    async fn controls_named(&self, org: Id, identifiers: &[&str]) -> StoreResult<Vec<String>> {
        self.known_names(org, KIND, identifiers).await
    }

    async fn controls(
        &self,
        org: Id,
        filter: &ControlFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>> {
        let values = vec![filter.search.clone().into(), tag_columns(&filter.tags)];
        self.listed(org, &listing(filter), request, values).await
    }

    async fn controls_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Control>> {
        let controls = self.by_ids(org, KIND, ids).await?;
        Ok(controls.into_iter().map(|known| known.record).collect())
    }

    async fn control_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        self.version_sizes(org, versions).await
    }

    async fn control_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<ControlVersion>> {
        self.versions(org, versions).await
    }
}
