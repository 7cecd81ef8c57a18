//! The differences between two snapshots, of one environment or of two.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use futures_util::future::try_join;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Scope;
use crate::bounded::ShortText;
use crate::compute::MANY_EVALUATIONS;
use crate::context::{Context, OwnedContext};
use crate::error::{Error, Resource, Result};
use crate::json::JsonFields;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{JsonStream, Method, Operation, json_items, json_text};
use crate::snapshots::expression::Expression;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::logical::{Part, Shown};
use crate::snapshots::operations::unresolved;
use crate::snapshots::record::RunningArtifact;
use crate::snapshots::sources::{RanArtifact, Sources, WithReplaced, in_parts};
use crate::snapshots::store::SnapshotEntry;
use crate::snapshots::timeline::Timeline;
use crate::snapshots::view::fingerprint;

/// Compares two snapshots. Lists the artifacts in only one of them, those in both with different numbers of
/// instances, and those in both with equal numbers. A snapshot is named by its environment and optionally a
/// snapshot expression: `staging#10`, `staging~2`, `staging@{2026-10-02T12:00:00}`, `staging@{2.hours.ago}`.
/// The default is the current snapshot. If neither exists, the error is about the first.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct CompareSnapshots {
    /// The organization's name.
    pub org: OrgName,
    /// The first snapshot.
    pub snappish1: ShortText,
    /// The second snapshot.
    pub snappish2: ShortText,
}

impl Operation for CompareSnapshots {
    const NAME: &'static str = "environment_diff";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/env-diff/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Compares two snapshots";
    type Body = ();
    type Output = JsonStream<EnvironmentDiff>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let first = Snappish::parse(&self.snappish1, "query.snappish1")?;
        let second = Snappish::parse(&self.snappish2, "query.snappish2")?;
        let (first, second) = (first.find(cx).await?, second.find(cx).await?);
        let (one, other) = try_join(first.running(cx), second.running(cx)).await?;
        let is_long = one.len() + other.len() > MANY_EVALUATIONS;
        let sections = cx.compute().run_if(is_long, move || Sections::of(one, other)).await?;
        let Sections { first_alone, second_alone, changed, not_changed } = sections;
        let parts = [
            (first.head("snappish1")?, first_alone),
            (second.head("snappish2")?, second_alone),
            (b"\"changed\":{\"artifacts\":[".to_vec(), changed),
            (b"\"not-changed\":{\"artifacts\":[".to_vec(), not_changed),
        ];
        let owned = cx.to_owned_context();
        let section = move |(place, (head, compared)): (usize, (Vec<u8>, Vec<Compared>))| {
            let owned = owned.clone();
            async move {
                let separator: &[u8] = if place == 0 { b"{" } else { b"," };
                let head = stream::iter([Ok([separator, &head].concat())]);
                let compute = owned.context().compute();
                let items = json_items(items(compared, owned).await?, compute);
                Ok::<_, Error>(head.chain(items).chain(stream::iter([Ok(b"]}".to_vec())])))
            }
        };
        let text = stream::iter(parts.into_iter().enumerate()).then(section).try_flatten();
        let text = text.chain(stream::iter([Ok(b"}".to_vec())]));
        Ok(JsonStream::new(text, cx.compute()))
    }
}

/// A snapshot as named by a caller.
struct Snappish {
    field: &'static str,
    environment: EnvironmentName,
    /// The text after the environment's name.
    asked: String,
    expression: Expression,
}

impl Snappish {
    fn parse(text: &str, field: &'static str) -> Result<Self> {
        let bad = || {
            let text = format!("Bad snappish {text}");
            Error::invalid_with(text.clone(), field, text)
        };
        let end = text.find(['#', '~', '@']).unwrap_or(text.len());
        let (name, asked) = text.split_at_checked(end).ok_or_else(bad)?;
        let environment = name.parse().map_err(|_| bad())?;
        let expression = match asked {
            "" => Expression::Index(-1),
            asked => Expression::parse(asked).map_err(|_| bad())?,
        };
        Ok(Self { field, environment, asked: asked.to_owned(), expression })
    }

    async fn find(self, cx: &Context<'_>) -> Result<Found> {
        let environment = cx.environment(self.environment.as_str()).await;
        let environment = environment.map_err(|error| error.named_by(self.field))?;
        let timeline = Timeline::of(environment, cx).await?;
        let index = timeline.resolve(&self.expression, cx).await?;
        let exists = |index: &u64| (1..=timeline.count()).contains(index);
        match u64::try_from(index).ok().filter(exists) {
            Some(index) => Ok(Found { field: self.field, timeline, index }),
            None => {
                let sentence = unresolved(&timeline.environment, &self.asked, index, cx);
                Err(cx.missing(Resource::Snapshot, sentence).named_by(self.field).into())
            }
        }
    }
}

/// An existing snapshot.
struct Found {
    field: &'static str,
    timeline: Timeline,
    index: u64,
}

/// The artifacts that ran, by key.
type Running = BTreeMap<ArtifactKey, Runs>;

/// An artifact that ran.
#[derive(Debug, PartialEq)]
struct Runs {
    /// The artifact in the first member that ran it, without the data that are not compared.
    instance: RunningArtifact,
    /// The number of instances in all members.
    count: u64,
    /// When the newest instance was created.
    newest: Option<i64>,
}

impl From<RunningArtifact> for Runs {
    fn from(instance: RunningArtifact) -> Self {
        let (count, newest) = (instance.created.len() as u64, instance.created.iter().max().copied());
        let (created, context, outcomes) = (Vec::new(), JsonFields::default(), Vec::new());
        Self { instance: RunningArtifact { created, context, outcomes, ..instance }, count, newest }
    }
}

impl Found {
    /// Returns the bytes before the artifacts that ran only in this snapshot.
    fn head(&self, key: &str) -> Result<Vec<u8>> {
        let id = json_text(&format!("{}#{}", self.timeline.environment.record.name, self.index))?;
        Ok([format!("\"{key}\":{{\"snapshot_id\":").as_bytes(), &id, b",\"artifacts\":["].concat())
    }

    async fn running(&self, cx: &Context<'_>) -> Result<Running> {
        let (org, mut running) = (cx.org()?, Running::new());
        for Part { environment, index, shown } in self.timeline.parts_of(self.index, cx).await? {
            let placed = cx.store().instances(org, environment, index).await?;
            let runs = |placed: &SnapshotEntry| !placed.exited && shown != Shown::Left;
            for placed in placed.into_iter().filter(runs) {
                add(&mut running, placed.instance.into());
            }
            self.timeline.at_most(running.len(), self.field, cx)?;
        }
        Ok(running)
    }
}

/// Adds an artifact of a member of a logical environment. If another member runs the same artifact, adds up
/// the instances.
fn add(running: &mut Running, runs: Runs) {
    match running.entry(runs.instance.key()) {
        Entry::Vacant(vacant) => {
            vacant.insert(runs);
        }
        Entry::Occupied(mut known) => {
            let known = known.get_mut();
            known.count += runs.count;
            known.newest = known.newest.max(runs.newest);
        }
    }
}

/// An artifact in a comparison.
#[derive(Debug, PartialEq)]
struct Compared {
    runs: Runs,
    /// The numbers of instances in both snapshots, if they differ.
    counts: Option<(u64, u64)>,
}

impl RanArtifact for Compared {
    fn ran(&self) -> &RunningArtifact {
        &self.runs.instance
    }
}

/// The result of a comparison.
#[derive(Debug, Default, PartialEq)]
struct Sections {
    first_alone: Vec<Compared>,
    second_alone: Vec<Compared>,
    changed: Vec<Compared>,
    not_changed: Vec<Compared>,
}

impl Sections {
    /// Compares the artifacts. Each section is sorted by name, then by key.
    fn of(one: Running, mut other: Running) -> Self {
        let mut sections = Self::default();
        for (key, runs) in one {
            match other.remove(&key) {
                None => sections.first_alone.push(Compared { runs, counts: None }),
                Some(newer) if newer.count == runs.count => {
                    sections.not_changed.push(Compared { runs: newer, counts: None });
                }
                Some(newer) => {
                    let counts = Some((runs.count, newer.count));
                    sections.changed.push(Compared { runs: newer, counts });
                }
            }
        }
        let alone = other.into_values().map(|runs| Compared { runs, counts: None });
        sections.second_alone.extend(alone);
        let Self { first_alone, second_alone, changed, not_changed } = &mut sections;
        for section in [first_alone, second_alone, changed, not_changed] {
            section.sort_by(|one, other| one.ran().name.cmp(&other.ran().name));
        }
        sections
    }
}

/// The differences between two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "EnvironmentDiffResponse")]
#[non_exhaustive]
pub struct EnvironmentDiff {
    /// The artifacts that ran only in the first.
    pub snappish1: DiffSection,
    /// The artifacts that ran only in the second.
    pub snappish2: DiffSection,
    /// The artifacts that ran in both, with different numbers of instances.
    pub changed: SharedSection,
    /// The artifacts that ran in both, with equal numbers of instances.
    #[serde(rename = "not-changed")]
    pub not_changed: SharedSection,
}

/// The artifacts that ran in only one of two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "DiffItem")]
#[non_exhaustive]
pub struct DiffSection {
    /// The snapshot: the environment's name, `#` and its number.
    pub snapshot_id: String,
    /// The artifacts, sorted by name.
    pub artifacts: Vec<DiffArtifact>,
}

/// The artifacts that ran in both of two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SharedSection {
    /// The artifacts, sorted by name.
    pub artifacts: Vec<DiffArtifact>,
}

/// An artifact in a comparison of two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ArtifactInfo")]
#[non_exhaustive]
pub struct DiffArtifact {
    /// Its SHA-256; empty for an artifact without a digest.
    pub fingerprint: String,
    /// Its name, as the environment knows it.
    pub name: String,
    /// When the newest of its instances was created, in epoch seconds.
    pub most_recent_timestamp: i64,
    /// The name of the first flow that it was reported to; empty without one.
    pub flow: String,
    /// The URL of the page of the commit that it was built from; null if not known.
    pub commit_url: Option<String>,
    /// The number of instances; for an artifact in both snapshots, in the second.
    pub instance_count: u64,
    /// The number of instances in the first; absent if the numbers are equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s1_instance_count: Option<u64>,
    /// The number of instances in the second; absent if the numbers are equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s2_instance_count: Option<u64>,
}

/// Streams these artifacts for the response.
async fn items(
    compared: Vec<Compared>,
    owned: OwnedContext,
) -> Result<impl Stream<Item = Result<DiffArtifact>> + Send + 'static> {
    let parts = in_parts(compared.into_iter().map(WithReplaced::new).collect(), &owned.context()).await?;
    let read = move |part: Vec<WithReplaced<Compared>>| {
        let owned = owned.clone();
        async move {
            let sources = Arc::new(Sources::read(&part, &owned.context()).await?);
            Ok::<_, Error>(stream::iter(part).map(move |traced| Ok(item(traced.item, &sources))))
        }
    };
    Ok(stream::iter(parts).then(read).try_flatten())
}

fn item(
    Compared { runs: Runs { instance, count, newest }, counts }: Compared,
    sources: &Sources,
) -> DiffArtifact {
    let first = instance.provenance.iter().find_map(|from| sources.of(from));
    let commit_url = first.map(|(_, source)| source.commit_url.clone()).filter(|url| !url.is_empty());
    DiffArtifact {
        fingerprint: fingerprint(&instance),
        most_recent_timestamp: newest.unwrap_or_default(),
        flow: first.map(|(flow, _)| flow.to_owned()).unwrap_or_default(),
        commit_url,
        instance_count: count,
        s1_instance_count: counts.map(|(first, _)| first),
        s2_instance_count: counts.map(|(_, second)| second),
        name: instance.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(name: &str, instances: i64) -> (ArtifactKey, Runs) {
        let instance = serde_json::json!({
            "name": name, "created": Vec::from_iter(0..instances), "from": 1, "since": 1, "compliant": null,
            "annotation": {"type": "started-unknown", "was": 0, "now": instances}, "provenance": [],
        });
        let instance: RunningArtifact = serde_json::from_value(instance).unwrap();
        (instance.key(), instance.into())
    }

    #[test]
    fn instances_in_several_members_count_together() {
        let mut running = Running::new();
        for instances in [2, 0, 3] {
            add(&mut running, ran("app", instances).1);
        }
        let counts = Vec::from_iter(running.values().map(|runs| (runs.count, runs.newest)));
        assert_eq!(counts, [(5, Some(2))]);
    }

    #[test]
    fn what_ran_is_in_one_section() {
        let one = Running::from([ran("gone", 1), ran("more", 1), ran("same", 2), ran("fewer", 3)]);
        let other =
            Running::from([ran("new", 1), ran("more", 2), ran("same", 2), ran("fewer", 1), ran("b", 0)]);
        let Sections { first_alone, second_alone, changed, not_changed } = Sections::of(one, other);
        let told = |section: Vec<Compared>| {
            Vec::from_iter(section.into_iter().map(|one| (one.runs.instance.name, one.counts)))
        };
        let named = |name: &str, counts| (name.to_owned(), counts);
        assert_eq!(told(first_alone), [named("gone", None)]);
        assert_eq!(told(second_alone), [named("b", None), named("new", None)]);
        assert_eq!(told(changed), [named("fewer", Some((3, 1))), named("more", Some((1, 2)))]);
        assert_eq!(told(not_changed), [named("same", None)]);
    }

    #[test]
    fn a_snapshot_is_named_by_its_environment_and_a_number_a_distance_or_a_time() {
        let table = [
            ("prod", Some(("prod", Expression::Index(-1)))),
            ("prod#3", Some(("prod", Expression::Index(3)))),
            ("prod#-2", Some(("prod", Expression::Index(-2)))),
            ("prod~2", Some(("prod", Expression::Back(2)))),
            ("prod@{now}", Some(("prod", Expression::Now))),
            ("a.b-c_d~0", Some(("a.b-c_d", Expression::Back(0)))),
            ("", None),
            ("#3", None),
            ("~1", None),
            ("prod#", None),
            ("prod~", None),
            ("prod@", None),
            ("prod@now", None),
            ("prod~1#2", None),
            ("prod#five", None),
            ("two words", None),
            ("\u{e9}#1", None),
        ];
        for (text, expected) in table {
            let read = Snappish::parse(text, "query.snappish1");
            match (read, expected) {
                (Ok(read), Some((name, expression))) => {
                    assert_eq!((read.environment.as_str(), read.expression), (name, expression), "{text}");
                }
                (Err(Error::Invalid { message, .. }), None) => {
                    assert_eq!(message, format!("Bad snappish {text}"))
                }
                (read, _) => panic!("{text}: {:?}", read.map(|read| read.asked)),
            }
        }
    }
}
