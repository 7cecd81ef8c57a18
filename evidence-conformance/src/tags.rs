//! Checks of [`evidence_core::tags::TagStore`].

use std::sync::Arc;

use evidence_core::controls::{Control, ControlVersion};
use evidence_core::environments::Environment;
use evidence_core::fact::Fact;
use evidence_core::flows::Flow;
use evidence_core::repos::Repo;
use evidence_core::store::Store;
use evidence_core::tags::{TagChoice, TaggedKind};

use super::controls::{control, version};
use super::fixtures::{Org, environment, flow, tags};
use super::repos::repo;
use super::{Outcome, promises, same};

promises! {
    tags_are_told_once: "`tag_choices` answers each key with each of its values once, by key and value (bytes), of one organization's records of one kind, archived or not: the first of those that come after one.",
    long_tags_are_told_once: "Values of 1,024 characters of four bytes are told once and in order, too, however much they have in common.",
}

/// The tags of controls, a page of any size after each and from the first on.
async fn pages(org: &Org, all: &[TagChoice]) -> Outcome {
    let kind = TaggedKind::Control;
    for limit in 0..=all.len() as u64 + 1 {
        let found = org.store.tag_choices(org.id, kind, None, limit).await?;
        let first = all.iter().zip(0..limit).map(|(choice, _)| choice.clone());
        same(&format!("{limit} of them"), found, first.collect())?;
        for (place, after) in all.iter().enumerate() {
            let found = org.store.tag_choices(org.id, kind, Some(after), limit).await?;
            let next = all[place + 1..].iter().zip(0..limit).map(|(choice, _)| choice.clone());
            same(&format!("{limit} after number {place}"), found, next.collect())?;
        }
    }
    Ok(())
}

async fn tags_are_told_once(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let of = async |kind| store.tag_choices(org.id, kind, None, 100).await;
    same("none", store.tag_choices(org.id, TaggedKind::Control, None, 10).await?, Vec::new())?;
    let tagged =
        |n: u64, pairs: &[(&str, &str)]| Control { tags: tags(pairs), ..control(n, &format!("c{n}")) };
    let records = [
        tagged(100, &[("team", "red"), ("b", "1"), ("Tier", "é")]),
        tagged(101, &[("team", "red"), ("b", "10")]),
        Control { archived: true, ..tagged(102, &[("team", ""), ("b", "B")]) },
        tagged(103, &[]),
    ];
    for record in records {
        let version = ControlVersion { control: record.id, ..version(0, 1) };
        org.record(vec![Fact::ControlCreated { record, version }]).await?;
    }
    // Its former tags are no choices any more.
    org.record(vec![Fact::ControlTagged { record: tagged(103, &[("gone", "x")]) }]).await?;
    org.record(vec![Fact::ControlTagged { record: tagged(103, &[("b", "a")]) }]).await?;
    other
        .record(vec![Fact::ControlCreated { record: tagged(200, &[("a", "a")]), version: version(200, 1) }])
        .await?;
    let all = [("Tier", "é"), ("b", "1"), ("b", "10"), ("b", "B"), ("b", "a"), ("team", ""), ("team", "red")];
    let all = all.map(|(key, value)| TagChoice::new(key.to_owned(), value.to_owned()));
    pages(&org, &all).await?;
    let between = TagChoice::new("b".to_owned(), "1é".to_owned());
    same(
        "after none of them",
        store.tag_choices(org.id, TaggedKind::Control, Some(&between), 1).await?,
        vec![all[3].clone()],
    )?;
    // Two changes of one control in one write, of which the last one counts; a value that another key has, too.
    let changes = [tagged(100, &[("b", "3"), ("x", "1")]), tagged(100, &[("Tier", "ü"), ("b", "1")])];
    org.record(changes.into_iter().map(|record| Fact::ControlTagged { record }).collect()).await?;
    let all = [("Tier", "ü"), ("b", "1"), ("b", "10"), ("b", "B"), ("b", "a"), ("team", ""), ("team", "red")];
    let all = all.map(|(key, value)| TagChoice::new(key.to_owned(), value.to_owned()));
    same("after changes", of(TaggedKind::Control).await?, all.to_vec())?;
    // Other kinds have tags of their own.
    let tagged = Repo { tags: tags(&[("b", "1"), ("repo", "yes")]), ..repo(300, "r") };
    org.record(vec![Fact::RepoReported { record: tagged }]).await?;
    let record = Flow { tags: tags(&[("flow", "yes")]), ..flow(301, "f") };
    org.record(vec![Fact::FlowCreated { record }]).await?;
    let record = Environment { tags: tags(&[("env", "yes")]), ..environment(302, "e") };
    org.record(vec![Fact::EnvironmentTagged { record }]).await?;
    let only = |pairs: &[(&str, &str)]| {
        let choice = |(key, value): &(&str, &str)| TagChoice::new((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(choice).collect::<Vec<_>>()
    };
    same("of repos", of(TaggedKind::Repo).await?, only(&[("b", "1"), ("repo", "yes")]))?;
    same("of flows", of(TaggedKind::Flow).await?, only(&[("flow", "yes")]))?;
    same("of environments", of(TaggedKind::Environment).await?, only(&[("env", "yes")]))?;
    same("of controls", of(TaggedKind::Control).await?, all.to_vec())
}

async fn long_tags_are_told_once(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let common = "\u{1F600}".repeat(1_000);
    // Values with 1,000 characters in common, and shorter ones before, between and after them.
    let mut values: Vec<String> =
        ["a", "\\", "\\x00", "\u{1F5FF}", "\u{1F600}", "\u{1F601}"].map(str::to_owned).into();
    values.push(common.clone());
    values.push("\u{1F600}".repeat(128));
    values.extend(["a", "b", "\u{1F600}", "\u{1F601}"].map(|end| format!("{common}{}", end.repeat(24))));
    for (n, value) in (100..).zip(values.iter().chain(&values)) {
        let tags = tags(&[("key", value.as_str()), ("other", "x")]);
        let record = Control { tags, ..control(n, &format!("c{n}")) };
        let version = ControlVersion { control: record.id, ..version(0, 1) };
        org.record(vec![Fact::ControlCreated { record, version }]).await?;
    }
    values.sort_unstable();
    let mut all: Vec<_> = values.into_iter().map(|value| TagChoice::new("key".to_owned(), value)).collect();
    all.push(TagChoice::new("other".to_owned(), "x".to_owned()));
    pages(&org, &all).await
}
