//! Converts facts to the index rows of the tables beside the ledger.

use std::collections::{BTreeMap, BTreeSet};

use evidence_core::Fact;
use evidence_core::actions::StoredUrl;
use evidence_core::auth::KeyHash;
use evidence_core::fact::Denoted;
use evidence_core::id::Id;
use evidence_core::index::IndexRow;
use evidence_core::name::Fingerprint;
use evidence_core::name_index::{Name, NameChanges};
use evidence_core::tags::Tags;
use evidence_core::time::Timestamp;
use serde::Serialize;

use crate::group_rows::GroupRows;
use crate::repos;
use crate::snapshots::{End, Intervals};
use crate::tables::TableWrite;
use crate::value::Value;

/// An organization, or a flow in it.
type NumberedWithin = (Id, Option<Id>);

/// A numbered series of builds, decisions or deployments in an organization.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Series {
    /// Builds of one content: at most one.
    Content(Fingerprint),
    /// Builds.
    Builds,
    /// Builds of a repo.
    RepoBuilds(Id),
    /// Decisions about the control with this identifier.
    Decisions(String),
    /// Deployments.
    Deployments,
    /// Deployments to an environment.
    EnvironmentDeployments(Id),
    /// Deployments from a repo.
    RepoDeployments(Id),
}

impl Series {
    /// Returns the series that a fact extends, or may extend.
    pub(crate) fn of(fact: &Fact) -> Vec<Self> {
        match fact {
            Fact::ArtifactReported { record } => {
                let content = Self::Content(record.fingerprint.clone());
                [content, Self::Builds].into_iter().chain(record.repo.map(Self::RepoBuilds)).collect()
            }
            Fact::AttestationAdded { record } => record
                .details
                .control()
                .map(|control| Self::Decisions(control.to_owned()))
                .into_iter()
                .collect(),
            Fact::SnapshotTaken { snapshot } => {
                let begun = snapshot.changes.iter().filter(|change| change.begins_a_run());
                let repos = begun.clone().filter_map(|begun| begun.source.as_ref()?.repo);
                let repos: BTreeSet<Id> = repos.collect();
                let all = [Self::Deployments, Self::EnvironmentDeployments(snapshot.environment)];
                let all = all.into_iter().filter(|_| begun.clone().next().is_some());
                all.chain(repos.into_iter().map(Self::RepoDeployments)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the name of the series in the prefetch statement, and its subject.
    pub(crate) fn key(&self) -> (&'static str, String) {
        match self {
            Self::Content(fingerprint) => ("content", fingerprint.to_string()),
            Self::Builds => ("builds", String::new()),
            Self::RepoBuilds(repo) => ("repo", repo.to_string()),
            Self::Decisions(control) => ("control", control.clone()),
            Self::Deployments => ("deployments", String::new()),
            Self::EnvironmentDeployments(environment) => ("environment", environment.to_string()),
            Self::RepoDeployments(repo) => ("deployed", repo.to_string()),
        }
    }
}

/// The greatest ordinals of trails and artifacts (per organization and flow), of attestations (per flow), and
/// of each series. New items get the next ordinal, starting at 1.
#[derive(Debug, Default)]
pub(crate) struct Ordinals {
    trails: BTreeMap<NumberedWithin, u64>,
    artifacts: BTreeMap<NumberedWithin, u64>,
    /// Per flow only.
    attestations: BTreeMap<NumberedWithin, u64>,
    series: BTreeMap<(Id, Series), u64>,
}

impl Ordinals {
    fn next_of(&mut self, org: Id, series: Series) -> u64 {
        let ordinal = self.series.entry((org, series)).or_default();
        *ordinal += 1;
        *ordinal
    }

    pub(crate) fn set_greatest_of(&mut self, org: Id, series: Series, ordinal: u64) {
        self.series.insert((org, series), ordinal);
    }

    /// Forgets which contents were built.
    pub(crate) fn forget_contents(&mut self) {
        self.series.retain(|(_, series), _| !matches!(series, Series::Content(_)));
    }

    fn next(of: &mut BTreeMap<NumberedWithin, u64>, org: Id, flow: Id) -> [Value; 2] {
        [(org, None), (org, Some(flow))].map(|within| Self::next_within(of, within))
    }

    fn next_within(of: &mut BTreeMap<NumberedWithin, u64>, within: NumberedWithin) -> Value {
        let ordinal = of.entry(within).or_default();
        *ordinal += 1;
        Value::from(*ordinal)
    }

    pub(crate) fn set_greatest_attestation(&mut self, within: NumberedWithin, ordinal: u64) {
        self.attestations.insert(within, ordinal);
    }

    pub(crate) fn set_greatest(
        &mut self,
        within: NumberedWithin,
        trails: Option<u64>,
        artifacts: Option<u64>,
    ) {
        self.trails.insert(within, trails.unwrap_or_default());
        self.artifacts.insert(within, artifacts.unwrap_or_default());
    }
}

/// Collects the rows of facts.
#[derive(Debug, Default)]
pub(crate) struct RowBuilder {
    rows: GroupRows,
    names: NameChanges,
    /// By trail, so that each pair is written once.
    commits: BTreeSet<(Id, String)>,
    /// The final tags by organization, and by kind and id of the record.
    tags: BTreeMap<(Id, &'static str, Id), Tags>,
    intervals: Intervals,
    /// The final secret URLs by organization and id; `None` if they are removed. A statement of PostgreSQL cannot delete a
    /// row that it writes.
    urls: BTreeMap<(Id, Id), Option<StoredUrl>>,
}

impl RowBuilder {
    /// Stores a secret URL that the next facts of the organization introduce.
    pub(crate) fn set_url(&mut self, org: Id, id: Id, kept: StoredUrl) {
        self.urls.insert((org, id), Some(kept));
    }

    /// Adds a row: the table's columns in order.
    pub(crate) fn push(&mut self, table: TableWrite, row: Vec<Value>) {
        self.rows.push(table, row);
    }

    /// Adds the index rows of a fact. The fact was recorded at this time as the entry at this index of its
    /// organization's ledger. The rows comprise everything that follows from the ledger.
    pub(crate) fn index(
        &mut self,
        (org, index): (Id, u64),
        recorded_at: Timestamp,
        fact: &Fact,
        key_hashes: &[(Id, KeyHash)],
        ordinals: &mut Ordinals,
    ) -> serde_json::Result<()> {
        let (this, index) = (Value::Org(org), Value::from(index));
        for row in fact.index_rows(recorded_at) {
            let rows = &mut self.rows;
            match row {
                IndexRow::Organization(record) => {
                    let name = record.name.as_str().into();
                    rows.push(
                        TableWrite::Organization,
                        vec![this.clone(), record.id.into(), name, json(record)?],
                    );
                    let name = record.name.as_str().into();
                    rows.push(TableWrite::KnownOrganization, vec![record.id.into(), name]);
                }
                IndexRow::User(record) => {
                    let name = record.name.as_str().into();
                    let row = vec![this.clone(), record.id.into(), name, json(record)?, index.clone()];
                    rows.push(TableWrite::User, row);
                }
                IndexRow::Member { user, role } => {
                    rows.push(TableWrite::Membership, vec![this.clone(), user.into(), word(&role)?]);
                }
                IndexRow::Name(effect) => self.names.apply(org, effect),
                IndexRow::Record { kind, id, name, tags, archived } => {
                    let tags = tags.map_or(Ok("{}".into()), json)?;
                    let (kind, name) = (kind.as_str().into(), (*name).into());
                    let row = vec![this.clone(), kind, id.into(), name, index.clone(), archived.into(), tags];
                    rows.push(TableWrite::Record, row);
                }
                IndexRow::Tags { kind, id, tags } => {
                    self.tags.insert((org, kind.as_str(), id), tags.clone());
                }
                IndexRow::ApiKey { id, owner, created_at, expires_at, revoked_at } => {
                    let hash = key_hashes.iter().find(|(key, _)| *key == id).map(|(_, hash)| hash.as_str());
                    rows.push(
                        TableWrite::ApiKey,
                        vec![
                            this.clone(),
                            id.into(),
                            json(owner)?,
                            owner.id.into(),
                            hash.into(),
                            created_at.into(),
                            expires_at.into(),
                            revoked_at.into(),
                        ],
                    );
                }
                IndexRow::Trail { id, flow, name, begins: true } => {
                    let [ordinal, flow_ordinal] = Ordinals::next(&mut ordinals.trails, org, flow);
                    rows.push(
                        TableWrite::Trail,
                        vec![
                            this.clone(),
                            id.into(),
                            flow.into(),
                            name.as_str().into(),
                            index.clone(),
                            index.clone(),
                            ordinal,
                            flow_ordinal,
                        ],
                    );
                }
                IndexRow::Trail { id, begins: false, .. } => {
                    let row = || vec![this.clone(), id.into(), index.clone()];
                    rows.push_trail_revision(row());
                    rows.push(TableWrite::TrailEntry, row());
                }
                IndexRow::Artifact {
                    id,
                    flow,
                    trail,
                    fingerprint,
                    name,
                    commit,
                    branch,
                    repo,
                    committed_at,
                    template,
                    at,
                } => {
                    let [ordinal, flow_ordinal] = Ordinals::next(&mut ordinals.artifacts, org, flow);
                    rows.push(
                        TableWrite::Artifact,
                        vec![
                            this.clone(),
                            id.into(),
                            flow.into(),
                            trail.into(),
                            fingerprint.into(),
                            name.into(),
                            commit.into(),
                            branch.into(),
                            repo.into(),
                            committed_at.into(),
                            template.map_or(Ok(Value::Text(None)), |template| json(&template))?,
                            at.into(),
                            index.clone(),
                            ordinal,
                            flow_ordinal,
                        ],
                    );
                    if ordinals.next_of(org, Series::Content(fingerprint.clone())) == 1 {
                        let ordinal = ordinals.next_of(org, Series::Builds);
                        let repo_ordinal = repo.map(|repo| ordinals.next_of(org, Series::RepoBuilds(repo)));
                        let build = vec![
                            this.clone(),
                            ordinal.into(),
                            id.into(),
                            repo.into(),
                            repo_ordinal.into(),
                            recorded_at.into(),
                            index.clone(),
                        ];
                        rows.push(TableWrite::Build, build);
                    }
                }
                IndexRow::Attestation {
                    id,
                    flow,
                    trail,
                    name,
                    kind,
                    is_compliant,
                    override_info,
                    control,
                    control_version,
                    decided_by,
                    binding,
                    commit,
                    at,
                } => {
                    let decisions = control.map(|control| Series::Decisions(control.to_owned()));
                    rows.push(
                        TableWrite::Attestation,
                        vec![
                            this.clone(),
                            id.into(),
                            flow.into(),
                            trail.into(),
                            name.into(),
                            kind.into(),
                            is_compliant.into(),
                            override_info.into(),
                            control.into(),
                            control_version.into(),
                            decided_by.into(),
                            json(binding)?,
                            commit.into(),
                            at.into(),
                            recorded_at.into(),
                            index.clone(),
                            Ordinals::next_within(&mut ordinals.attestations, (org, Some(flow))),
                            decisions.map(|decisions| ordinals.next_of(org, decisions)).into(),
                        ],
                    );
                }
                IndexRow::CommitTrail { commit, trail, flow } => {
                    if self.commits.insert((trail, commit.to_owned())) {
                        let row = vec![this.clone(), commit.into(), trail.into(), flow.into()];
                        rows.push(TableWrite::CommitTrail, row);
                    }
                }
                IndexRow::FlowRepo { flow, url } => {
                    rows.push(TableWrite::FlowRepo, vec![this.clone(), flow.into(), url.into()]);
                }
                IndexRow::Repo { id, name, provider, external_id, vcs_instance, namespace } => {
                    rows.push(
                        TableWrite::Repo,
                        vec![
                            this.clone(),
                            id.into(),
                            name.into(),
                            word(&provider)?,
                            external_id.into(),
                            vcs_instance.into(),
                            repos::path(namespace).into(),
                            index.clone(),
                        ],
                    );
                }
                IndexRow::Snapshot { environment, index: number, at, compliant, events, logical } => {
                    let logical = match logical {
                        [] => None,
                        some => Some(serde_json::to_string(some)?),
                    };
                    rows.push(
                        TableWrite::Snapshot,
                        vec![
                            this.clone(),
                            Value::Id(Some(environment)),
                            number.into(),
                            at.into(),
                            compliant.into(),
                            index.clone(),
                            events.into(),
                            logical.into(),
                        ],
                    );
                }
                IndexRow::Reported { environment, at } => {
                    rows.push(
                        TableWrite::EnvironmentReport,
                        vec![this.clone(), environment.into(), at.into()],
                    );
                }
                IndexRow::IntervalEnded { environment, artifact, until, exit } => {
                    self.intervals.end(org, environment, artifact, End { until, exit });
                }
                IndexRow::IntervalBegun { environment, instance, event } => {
                    self.intervals.begin(org, environment, instance.clone(), event);
                }
                IndexRow::EnvironmentMember { environment, member, joined } => {
                    let row =
                        vec![this.clone(), environment.into(), index.clone(), member.into(), joined.into()];
                    rows.push(TableWrite::EnvironmentMember, row);
                }
                IndexRow::Origin { environment, flow, reference, since, artifact, report } => {
                    rows.push(
                        TableWrite::RunOrigin,
                        vec![
                            this.clone(),
                            Value::Id(Some(environment)),
                            Value::Id(Some(flow)),
                            reference.into(),
                            since.into(),
                            artifact.as_str().into(),
                            Value::Id(Some(report)),
                        ],
                    );
                }
                IndexRow::Deployment { environment, instance } => {
                    let ordinal = ordinals.next_of(org, Series::Deployments);
                    let in_environment = ordinals.next_of(org, Series::EnvironmentDeployments(environment));
                    let source = instance.source.as_ref();
                    let repo = source.and_then(|source| source.repo);
                    let of_repo = repo.map(|repo| ordinals.next_of(org, Series::RepoDeployments(repo)));
                    let row = vec![
                        this.clone(),
                        ordinal.into(),
                        Value::Id(Some(environment)),
                        in_environment.into(),
                        instance.from.into(),
                        instance.key().as_str().into(),
                        instance.name.as_str().into(),
                        instance.compliant.into(),
                        Value::Id(source.map(|source| source.report)),
                        Value::Id(source.map(|source| source.flow)),
                        repo.into(),
                        of_repo.into(),
                        source.and_then(|source| source.committed_at).into(),
                        recorded_at.into(),
                        index.clone(),
                    ];
                    rows.push(TableWrite::Deployment, row);
                }
                IndexRow::Version { of, number } => {
                    rows.push(
                        TableWrite::Version,
                        vec![this.clone(), of.into(), number.into(), index.clone()],
                    );
                }
                IndexRow::Allowed { environment, fingerprint, ends_at, withdrawn } => {
                    let key = [this.clone(), environment.into(), fingerprint.into(), index.clone()];
                    // A withdrawn entry is never in force; an entry without an end always is.
                    let end =
                        if withdrawn { i64::MIN } else { ends_at.map_or(i64::MAX, Timestamp::as_micros) };
                    rows.push(TableWrite::Allowed, [&key[..], &[end.into()]].concat());
                    let ends = [ends_at.into(), withdrawn.into()];
                    rows.push(TableWrite::Allowance, [&key[..], &ends[..]].concat());
                }
                IndexRow::TimeCorrected => {
                    rows.set_back(org, recorded_at);
                    let row = vec![this.clone(), index.clone(), recorded_at.into()];
                    rows.push(TableWrite::ClockCorrection, row);
                }
                IndexRow::Text { sha256 } => {
                    rows.push(TableWrite::Text, vec![this.clone(), sha256.to_string().into(), index.clone()]);
                }
                IndexRow::Attachment(file) => {
                    let sha256 = || Value::from(&file.sha256);
                    rows.push(TableWrite::Attachment, vec![this.clone(), sha256(), file.size.into()]);
                    rows.push(TableWrite::DeletePending, vec![this.clone(), sha256()]);
                }
                IndexRow::RemovedUrl { id } => {
                    self.urls.insert((org, id), None);
                }
                // `fsck` derives the expected texts from the ledger, so no row records their use.
                IndexRow::TextUse { .. } => {}
            }
        }
        Ok(())
    }

    /// Returns the rows of all facts that were added.
    pub(crate) fn into_rows(self) -> serde_json::Result<GroupRows> {
        let Self { mut rows, names, tags, intervals, urls, .. } = self;
        intervals.write(&mut rows)?;
        for ((org, id), kept) in urls {
            let key = [Value::Org(org), id.into()];
            match kept {
                Some(kept) => rows.push(TableWrite::SecretUrl, [&key[..], &[kept.as_str().into()]].concat()),
                None => rows.push(TableWrite::DeleteSecretUrl, key.to_vec()),
            }
        }
        for (org, kind, id) in names.released() {
            let claimed = names.assigned().map(|(name, _)| name).filter(|name| name.org == Some(org));
            let claimed = claimed.filter(|name| name.key.kind() == Some(kind)).map(|name| name.key.name());
            let claimed = json(&claimed.collect::<Vec<_>>())?;
            rows.push(
                TableWrite::ReleaseNames,
                vec![Value::Org(org), kind.as_str().into(), id.into(), claimed],
            );
        }
        for Name { org, key } in names.removed() {
            if let (Some(org), Some(kind)) = (org, key.kind()) {
                let row = vec![Value::Org(*org), kind.as_str().into(), (*key.name()).into()];
                rows.push(TableWrite::DeleteNames, row);
            }
        }
        for (Name { org, key }, Denoted { id, alias }) in names.assigned() {
            // Other names are columns of their own tables.
            if let (Some(org), Some(kind)) = (org, key.kind().filter(|kind| !kind.has_own_name_rows())) {
                let (kind, name) = (kind.as_str().into(), (*key.name()).into());
                rows.push(TableWrite::Name, vec![Value::Org(*org), kind, name, id.into(), alias.into()]);
            }
        }
        for ((org, kind, id), tags) in tags {
            let record = || vec![Value::Org(org), kind.into(), id.into()];
            let kept = json(&tags.keys().collect::<Vec<_>>())?;
            rows.push(TableWrite::ReleaseTags, [record(), vec![kept]].concat());
            for (key, value) in tags {
                rows.push(TableWrite::RecordTag, [record(), vec![key.into(), value.into()]].concat());
            }
        }
        Ok(rows)
    }
}

/// Encodes a JSON column.
fn json(value: &(impl Serialize + ?Sized)) -> serde_json::Result<Value> {
    serde_json::to_string(value).map(Value::from)
}

/// Encodes a value that serializes to a JSON string (a role, a provider), or null.
fn word(value: &impl Serialize) -> serde_json::Result<Value> {
    match serde_json::to_value(value)? {
        serde_json::Value::String(text) => Ok(text.into()),
        serde_json::Value::Null => Ok(Value::Text(None)),
        _ => Err(serde::ser::Error::custom("it is no word")),
    }
}
