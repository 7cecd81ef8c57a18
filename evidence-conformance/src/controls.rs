//! Checks of [`evidence_core::controls::ControlStore`].

use std::collections::BTreeMap;
use std::sync::Arc;

use evidence_core::controls::{Control, ControlFilter, ControlStatus, ControlVersion};
use evidence_core::fact::{Fact, UnknownFields};
use evidence_core::id::Id;
use evidence_core::page::{PageRequest, SortDirection};
use evidence_core::store::{Current, Store};
use evidence_core::tags::{TagFilter, Tags};

use super::fixtures::{Org, at, awkward, id, jane, named, robot, tags};
use super::shared::{found_by_number, largest_is_long, long_text, narrowed, paged, sized};
use super::{Failure, Outcome, promises, same};

promises! {
    controls_read_back: "Controls are what was recorded last, archived or not, and are found by their identifier.",
    controls_are_found_by_identifier: "`controls_named` answers which of these identifiers controls have, archived or not, each once.",
    controls_are_listed_by_name: "`controls` is ordered by name (bytes) in the direction asked, equal names by id ascending, and shows one organization's.",
    control_pages_have_the_right_total: "A page past the end is empty, with the right total.",
    controls_are_narrowed: "Everything given in a control filter must match; archived controls are listed apart from the others.",
    control_versions_are_found_by_number: "`control_versions_by_number` and `control_version_sizes` answer these versions of these controls, each once.",
    sizes_are_of_whole_control_versions: "`control_version_sizes` answers no less than a version has.",
}

/// The control of this id and identifier, whose name is the identifier.
pub(super) fn control(n: u64, identifier: &str) -> Control {
    Control {
        id: id(n),
        identifier: named(identifier),
        name: identifier.to_owned(),
        description: String::new(),
        links: BTreeMap::new(),
        version: 1,
        archived: false,
        tags: Tags::new(),
        created_at: at(2),
        created_by: jane(),
        last_modified_at: at(2),
        unknown: UnknownFields::default(),
    }
}

pub(super) fn version(control: u64, version: u64) -> ControlVersion {
    ControlVersion {
        control: id(control),
        version,
        name: awkward(),
        description: awkward(),
        links: links(),
        status: ControlStatus::Created,
        at: at(10 * i64::try_from(version).unwrap_or_default()),
        by: robot(),
    }
}

fn links() -> BTreeMap<String, String> {
    let link = |label: &str, address: &str| (label.to_owned(), address.to_owned());
    [link("the.standard", "https://example.com/%41"), link(&awkward(), "")].into()
}

pub(super) fn created(n: u64, identifier: &str) -> Fact {
    Fact::ControlCreated { record: control(n, identifier), version: version(n, 1) }
}

fn updated(record: Control, number: u64) -> Fact {
    let version = ControlVersion { control: record.id, status: ControlStatus::Edited, ..version(0, number) };
    Fact::ControlUpdated { record, version }
}

async fn controls_read_back(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let bare = control(100, ".c-1_~");
    let full = Control {
        name: awkward(),
        description: awkward(),
        links: links(),
        version: 2,
        tags: tags(&[("a", "1")]),
        created_by: robot(),
        last_modified_at: at(9),
        ..bare.clone()
    };
    let tagged = Control { tags: tags(&[("b", &awkward())]), ..bare.clone() };
    let archived = Control { archived: true, version: 4, ..bare.clone() };
    let made = |number, status| ControlVersion { status, ..version(100, number) };
    let facts = [
        (created(100, ".c-1_~"), bare.clone()),
        (updated(full.clone(), 2), full.clone()),
        (updated(bare.clone(), 3), bare.clone()),
        (Fact::ControlTagged { record: tagged.clone() }, tagged),
        (
            Fact::ControlArchived { record: archived.clone(), version: made(4, ControlStatus::Archived) },
            archived,
        ),
        (Fact::ControlUnarchived { record: bare.clone(), version: made(5, ControlStatus::Unarchived) }, bare),
    ];
    for (revision, (fact, record)) in (1..).zip(facts) {
        org.record(vec![fact]).await?;
        let current = Current { revision, record: record.clone() };
        same("by identifier", store.control(org.id, ".c-1_~").await?, Some(current))?;
        same("by id", store.controls_by_id(org.id, &[100, 999, 100].map(id)).await?, vec![record])?;
    }
    for (org, identifier) in [(&other, ".c-1_~"), (&org, ".C-1_~"), (&org, "%"), (&org, "_"), (&org, "")] {
        same(identifier, store.control(org.id, identifier).await?, None)?;
    }
    Ok(())
}

async fn controls_are_found_by_identifier(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![created(100, "a"), created(101, "b"), created(102, "B")]).await?;
    other.record(vec![created(200, "c")]).await?;
    let archived = Control { archived: true, version: 2, ..control(101, "b") };
    let version = ControlVersion { status: ControlStatus::Archived, ..version(101, 2) };
    org.record(vec![Fact::ControlArchived { record: archived, version }]).await?;
    for (asked, expected) in [
        (vec![], vec![]),
        (vec!["c", "A", "%", ""], vec![]),
        (vec!["b", "a", "b"], vec!["a", "b"]),
        (vec!["B", "c"], vec!["B"]),
    ] {
        let mut found = store.controls_named(org.id, &asked).await?;
        found.sort_unstable();
        same(&format!("{asked:?}"), found, expected.into_iter().map(str::to_owned).collect())?;
    }
    Ok(())
}

/// The ids of all that the filter admits.
async fn found(org: &Org, filter: &ControlFilter) -> Result<Vec<Id>, Failure> {
    let found = org.store.controls(org.id, filter, PageRequest::ALL).await?;
    same("the total", found.total, found.items.len() as u64)?;
    Ok(found.items.into_iter().map(|listed| listed.id).collect())
}

async fn controls_are_listed_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    same("none", found(&org, &ControlFilter::default()).await?, Vec::new())?;
    let called = |n: u64, name: &str| Control { name: name.to_owned(), ..control(n, &format!("c{n}")) };
    for (n, name) in [(103, "b"), (101, "a"), (102, "B"), (100, "b"), (104, "a~")] {
        let fact = Fact::ControlCreated { record: called(n, name), version: version(n, 1) };
        org.record(vec![fact]).await?;
    }
    other.record(vec![created(200, "aa")]).await?;
    let long = Control { description: long_text(), ..called(101, "c") };
    org.record(vec![updated(long, 2)]).await?;
    let ascending = ControlFilter::default();
    same("ascending", found(&org, &ascending).await?, [102, 104, 100, 103, 101].map(id).to_vec())?;
    let descending = ControlFilter { direction: SortDirection::Desc, ..ControlFilter::default() };
    same("descending", found(&org, &descending).await?, [101, 100, 103, 104, 102].map(id).to_vec())?;
    let listed = store.controls(org.id, &ascending, PageRequest::ALL).await?;
    largest_is_long(&listed.items)
}

async fn control_pages_have_the_right_total(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record((100..105).map(|n| created(n, &format!("c{n}"))).collect()).await?;
    let filter = ControlFilter::default();
    let controls = [100, 101, 102, 103, 104].map(id);
    paged("the controls", &controls, |asked| store.controls(org.id, &filter, asked), |one| one.id).await
}

async fn controls_are_narrowed(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let records = [
        Control { name: named("Code Review"), tags: tags(&[("team", "red")]), ..control(100, "SDLC-1") },
        Control { name: named("Éclair 100%"), tags: tags(&[("team", "")]), ..control(101, "sdlc_2") },
        Control { archived: true, tags: tags(&[("team", "red")]), ..control(102, "SDLC-3") },
    ];
    for record in records {
        let version = ControlVersion { control: record.id, ..version(0, 1) };
        org.record(vec![Fact::ControlCreated { record, version }]).await?;
    }
    other.record(vec![created(200, "SDLC-1")]).await?;
    let tag = |text: &str| TagFilter::parse(text, ':');
    let table = [
        (None, vec![], false, vec![100, 101]),
        (None, vec![], true, vec![102]),
        (Some("sdlc"), vec![], false, vec![100, 101]),
        (Some("sdlc"), vec![], true, vec![102]),
        (Some("REVIEW"), vec![], false, vec![100]),
        (Some("C-1"), vec![], false, vec![100]),
        (Some("_"), vec![], false, vec![101]),
        (Some("%"), vec![], false, vec![101]),
        (Some("é"), vec![], false, vec![]),
        (Some("É"), vec![], false, vec![101]),
        (Some(""), vec![], false, vec![100, 101]),
        (None, vec![tag("team")], false, vec![100, 101]),
        (None, vec![tag("team:red")], false, vec![100]),
        (None, vec![tag("team:red")], true, vec![102]),
        (None, vec![tag("team:")], false, vec![101]),
        (None, vec![tag("team"), tag("tier")], false, vec![]),
        (None, vec![tag("")], false, vec![]),
        (Some("eclair"), vec![tag("team")], false, vec![]),
        (Some("100%"), vec![tag("team")], false, vec![101]),
    ];
    let filter = |(search, tags, archived, ids): (Option<&str>, _, _, _)| {
        let search = search.map(str::to_owned);
        (ControlFilter { search, tags, archived, ..Default::default() }, ids)
    };
    let org = &org;
    narrowed(table.map(filter), |filter| async move { found(org, &filter).await }).await
}

async fn control_versions_are_found_by_number(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![created(100, "a"), created(101, "b")]).await?;
    other.record(vec![created(200, "a")]).await?;
    let edited = |control, number| ControlVersion {
        status: if number == 1 { ControlStatus::Created } else { ControlStatus::Edited },
        ..version(control, number)
    };
    for n in 2..=11 {
        org.record(vec![updated(Control { version: n, ..control(100, "a") }, n)]).await?;
    }
    let store = &store;
    let read = |wanted: Vec<_>| async move {
        let sizes = store.control_version_sizes(org.id, &wanted).await?;
        Ok((sizes, store.control_versions_by_number(org.id, &wanted).await?))
    };
    found_by_number(read, |found| (found.control, found.version), edited).await
}

async fn sizes_are_of_whole_control_versions(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let created = |n, description| Fact::ControlCreated {
        record: control(n, &format!("c{n}")),
        version: ControlVersion { description, ..version(n, 1) },
    };
    let store = &store;
    sized(&org, created, |of| async move { store.control_version_sizes(org.id, &[of]).await }).await
}
