//! The trail PDF: a trail's page as a file, for auditors. It contains nothing that writes to other trails can
//! change, so equal trails give equal bytes.

mod details;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Deserialize;

use super::events::{Event, History, TrailEventKind};
use crate::artifacts::record::Artifact;
use crate::attestations::record::{Attestation, Binding};
use crate::auth::actor::Scope;
use crate::blobs::Whole;
use crate::bounded::or_empty;
use crate::context::Context;
use crate::digest::sha256_hex;
use crate::error::{Error, Missing, Result};
use crate::git::GitCommit;
use crate::id::Id;
use crate::json::JsonText;
use crate::ledger;
use crate::name::{Fingerprint, FlowName, OrgName, TrailName};
use crate::operation::{Download, Method, Operation, Pdf, Reply};
use crate::pdf::{self, ExpectationStatus, LedgerPosition, TrailReport};
use crate::rules::compliance::{self, ArtifactState, AttestationStatus, State};
use crate::snapshots::store::Run;
use crate::store::error::StoreError;
use crate::trails::evaluation::EvaluatedTrail;

/// Downloads a trail's page as a PDF report, for auditors. Equal trails give equal bytes, and `ETag` is their
/// SHA-256. A trail whose reports exceed the host's limit (16 MiB by default) is 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetAuditPdf {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The trail's name.
    pub trail_name: TrailName,
}

impl Operation for GetAuditPdf {
    const NAME: &'static str = "download_trail_audit_pdf";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/trails/{org}/{flow_name}/{trail_name}/audit_pdf";
    const SCOPE: Scope = Scope::ReadFlow;
    const SUMMARY: &'static str = "Downloads the trail PDF report";
    type Body = ();
    type Output = Pdf;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    fn flow(&self) -> Option<&FlowName> {
        Some(&self.flow_name)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let cx = &cx.for_long_request();
        let flow = cx.flow(self.flow_name.as_str()).await.map_err(flow_or_trail)?.record;
        let trail = cx.trail(&flow, self.trail_name.as_str()).await.map_err(flow_or_trail)?.record;
        let history = History::read(trail.id, cx).await?;
        let (bytes, most) = (history.bytes(), cx.limits().audit_pdf);
        if bytes > most {
            let text =
                format!("Trail '{}' has {bytes} bytes of reports; a PDF shows {most} at most", trail.name);
            return Err(Error::invalid("trail_name", text));
        }
        // An audit report must be complete, so an unreadable event fails the request.
        let events = history.events(cx).await?;
        let ledger = position(last_entry(&history, cx).await?, cx).await?;
        let (org, flow) = (cx.org_access()?.name.clone(), self.flow_name.clone());
        let shows_runs = cx.sees_environments()?;
        let draw = move || {
            let pages = pages(&org, &flow, ledger, &history, &events, shows_runs);
            pdf::render(&pages).map(|bytes| (sha256_hex(&bytes), bytes))
        };
        let (digest, bytes) = cx.compute().run_long(draw).await?.map_err(|source| Error::Internal {
            what: "the PDF could not be rendered",
            source: source.into(),
        })?;
        cx.reserve_for_answer(bytes.len() as u64).await?;
        Ok(Pdf(Download {
            media_type: Pdf::MEDIA_TYPE.to_owned(),
            file_name: format!("{}-{}.pdf", self.flow_name, self.trail_name),
            size: bytes.len() as u64,
            etag: Some(digest),
            content: Box::new(Whole::new(bytes)),
        }))
    }
}

/// Replaces the error's message: the specification has one message for a missing flow and a missing trail.
fn flow_or_trail(error: Error) -> Error {
    match error {
        Error::NotFound(missing) => Missing::with_message(*missing, "Flow or trail not found").into(),
        other => other,
    }
}

/// Returns the content of the report.
fn pages(
    org: &OrgName,
    flow: &FlowName,
    ledger: LedgerPosition,
    history: &History,
    events: &[Event],
    shows_runs: bool,
) -> TrailReport {
    let History { runs, has_more_runs, evaluated, .. } = history;
    let trail = &evaluated.trail;
    let attestations: Vec<&Attestation> = events.iter().filter_map(Event::attestation).collect();
    let EvaluatedTrail { artifacts: reported, attestations: attested, earlier_names, .. } = evaluated;
    let deciding = compliance::deciding(reported, attested, earlier_names);
    let overridden = compliance::overridden_by(reported, attested, earlier_names);
    let filenames = filenames(events);
    TrailReport {
        organization: org.to_string(),
        flow: flow.to_string(),
        trail: trail.name.to_string(),
        description: trail.description.clone(),
        state: evaluated.status.state,
        state_info: evaluated.status.state_info.clone().unwrap_or_default(),
        origin_url: trail.origin_url.clone(),
        html_url: None,
        created_at: trail.created_at,
        created_by: trail.created_by.name.clone(),
        last_modified_at: evaluated.last_evidence_at(),
        commit: trail.git_commit_info.as_ref().map(commit),
        ledger,
        expectations: expectations(evaluated, &attestations),
        attestations: attestations
            .iter()
            .map(|one| claim(one, (&deciding, &overridden), &filenames))
            .collect(),
        artifacts: artifacts(evaluated, events, shows_runs.then_some(runs)),
        newest_runs: has_more_runs.then_some(runs.len() as u64),
        events: events.iter().map(line).collect(),
        attachments: attestations.iter().flat_map(|attestation| files(attestation)).collect(),
    }
}

/// Returns the ledger index of the last entry that the report shows. It is an entry about the trail itself, or a
/// snapshot in which one of its artifacts started or stopped running.
async fn last_entry(history: &History, cx: &Context<'_>) -> Result<u64> {
    let mut shown: BTreeMap<Id, u64> = BTreeMap::new();
    for run in &history.runs {
        let snapshot = run.until.map_or(run.from.0, |(index, _)| index);
        let last = shown.entry(run.environment).or_default();
        *last = snapshot.max(*last);
    }
    let shown = Vec::from_iter(shown.into_iter().map(|(environment, index)| (environment, index..=index)));
    let rows = if shown.is_empty() { Vec::new() } else { cx.store().snapshots(cx.org()?, &shown).await? };
    Ok(rows.iter().map(|row| row.revision).fold(history.newest, Ord::max))
}

/// Returns the position of the ledger right after this entry.
async fn position(index: u64, cx: &Context<'_>) -> Result<LedgerPosition> {
    let org = cx.org()?;
    let size = index + 1;
    let damaged =
        |error: &dyn std::fmt::Display| StoreError::corrupt(format_args!("ledger of {org}: {error}"));
    let mut needs = ledger::root_needs(size);
    needs.leaves.push(index..size);
    let known = cx.store().ledger_hashes(org, &needs).await?;
    let leaf = known.leaves.get(&index).ok_or_else(|| damaged(&format_args!("no entry {index}")))?;
    let root = ledger::root_at(size, &known).map_err(|error| damaged(&error))?;
    Ok(LedgerPosition { index, leaf_hash: leaf.to_string(), size, root: root.to_string() })
}

impl Event {
    fn attestation(&self) -> Option<&Attestation> {
        match &self.what {
            TrailEventKind::Attestation(attestation) => Some(attestation),
            _ => None,
        }
    }

    fn artifact(&self) -> Option<&Artifact> {
        match &self.what {
            TrailEventKind::Artifact(artifact) => Some(artifact),
            _ => None,
        }
    }
}

fn commit(commit: &GitCommit) -> pdf::Commit {
    pdf::Commit {
        sha1: commit.sha1.to_string(),
        author: or_empty(commit.author.as_deref()),
        message: or_empty(commit.message.as_deref()),
        branch: or_empty(commit.branch.as_deref()),
        timestamp: commit.timestamp.map(|at| at.0),
        url: or_empty(commit.url.as_deref()),
    }
}

/// Returns the commit that an artifact was built from, with the details reported for it.
fn built_from(artifact: &Artifact) -> Option<pdf::Commit> {
    let sha1 = artifact.commit();
    let told = artifact.git_commit_info.as_ref();
    // The reported hash may be abbreviated.
    let told = told.filter(|told| {
        sha1.get(..told.sha1.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(&told.sha1))
    });
    match told.map(commit) {
        Some(told) => Some(pdf::Commit { sha1: sha1.to_owned(), ..told }),
        None if sha1.is_empty() => None,
        None => Some(pdf::Commit { sha1: sha1.to_owned(), ..pdf::Commit::default() }),
    }
}

fn expectations(evaluated: &EvaluatedTrail, attestations: &[&Attestation]) -> Vec<pdf::Expectation> {
    let by_id: BTreeMap<String, &Attestation> =
        attestations.iter().map(|attestation| (attestation.id.to_string(), *attestation)).collect();
    let row = |artifact: Option<&str>, status: &AttestationStatus| {
        let deciding = status.override_id.as_ref().or(status.attestation_id.as_ref());
        let record = deciding.and_then(|id| by_id.get(id));
        pdf::Expectation {
            scope: artifact.map(str::to_owned),
            name: status.name.clone(),
            kind: status.kind.clone(),
            status: match status.is_compliant {
                None => ExpectationStatus::Missing,
                Some(true) => ExpectationStatus::Compliant,
                Some(false) => ExpectationStatus::NonCompliant,
            },
            unexpected: status.unexpected,
            at: record.map(|record| record.created_at),
            by: record.map(|record| record.created_by.name.clone()).unwrap_or_default(),
            override_info: or_empty(status.override_info.as_deref()),
        }
    };
    let mut rows: Vec<_> = evaluated.status.attestations.iter().map(|status| row(None, status)).collect();
    for artifact in &evaluated.status.artifacts {
        if artifact.state == ArtifactState::Missing && !artifact.unexpected {
            rows.push(pdf::Expectation {
                scope: Some(artifact.name.clone()),
                name: artifact.name.clone(),
                kind: "artifact".to_owned(),
                status: ExpectationStatus::Missing,
                unexpected: false,
                at: None,
                by: String::new(),
                override_info: String::new(),
            });
        }
        rows.extend(artifact.attestations.iter().map(|status| row(Some(&artifact.name), status)));
    }
    rows
}

/// The file names of artifacts in their first report, by content.
type FileNames<'a> = BTreeMap<&'a Fingerprint, &'a str>;

fn filenames(events: &[Event]) -> FileNames<'_> {
    let mut names = BTreeMap::new();
    for artifact in events.iter().filter_map(Event::artifact) {
        names.entry(&artifact.fingerprint).or_insert(artifact.filename.as_str());
    }
    names
}

fn claim(
    attestation: &Attestation,
    (deciding, overridden): (&BTreeSet<&str>, &BTreeMap<&str, &str>),
    filenames: &FileNames<'_>,
) -> pdf::Attestation {
    let id = attestation.id.to_string();
    let user_data = Some(&attestation.user_data).filter(|data| !data.is_empty()).map(JsonText::pretty);
    pdf::Attestation {
        superseded: !deciding.contains(id.as_str()),
        override_info: match attestation.override_info() {
            Some(info) => info,
            None => or_empty(overridden.get(id.as_str()).copied()),
        },
        id,
        name: attestation.name.to_string(),
        kind: attestation.kind.clone(),
        is_compliant: attestation.is_compliant,
        at: attestation.created_at,
        by: attestation.created_by.name.clone(),
        target: target(&attestation.binding, filenames),
        description: attestation.description.clone().unwrap_or_default(),
        origin_url: attestation.origin_url.clone(),
        annotations: attestation
            .annotations
            .iter()
            .flat_map(|annotations| &annotations.0)
            .map(|(key, text)| (key.as_ref().to_owned(), text.to_string()))
            .collect(),
        commit: attestation.git_commit_info.as_ref().map(commit),
        details: details::shown(&attestation.details, attestation.data),
        user_data,
    }
}

fn target(binding: &Binding, filenames: &FileNames<'_>) -> String {
    match binding {
        Binding::Trail => "trail".to_owned(),
        Binding::Artifact { fingerprint, target } => {
            let short = fingerprint.as_str().get(..12).unwrap_or_default();
            let reported = filenames.get(fingerprint).copied();
            let name = if target.is_empty() { reported } else { Some(target.as_str()) };
            format!("{} ({short})", name.unwrap_or("artifact"))
        }
        Binding::Named { target, commit } => {
            format!("{target}, commit {}", commit.get(..12).unwrap_or(commit))
        }
    }
}

/// Returns the artifacts as reported. Without `runs`, leaves out where they ran.
fn artifacts(evaluated: &EvaluatedTrail, events: &[Event], runs: Option<&[Run]>) -> Vec<pdf::Artifact> {
    let states = compliance::artifact_states(
        &evaluated.parsed.template,
        &evaluated.artifacts,
        &evaluated.attestations,
        &evaluated.earlier_names,
    );
    let mut ran: BTreeMap<&Fingerprint, Vec<&Run>> = BTreeMap::new();
    for run in runs.unwrap_or_default() {
        ran.entry(&run.fingerprint).or_default().push(run);
    }
    let ran_in = |fingerprint: &Fingerprint| {
        let run = |run: &&Run| pdf::Run {
            environment: run.environment_name.to_string(),
            from_snapshot: run.from.0,
            since: run.from.1,
            until: run.until,
        };
        ran.get(fingerprint).into_iter().flatten().map(run).collect()
    };
    let reported = events.iter().filter_map(Event::artifact);
    reported
        .map(|artifact| {
            let (state, info) =
                states.get(artifact.fingerprint.as_str()).cloned().unwrap_or((State::Incomplete, None));
            pdf::Artifact {
                name: artifact.template_reference_name.clone(),
                filename: artifact.filename.clone(),
                fingerprint: artifact.fingerprint.to_string(),
                state: state.to_string(),
                state_info: info.unwrap_or_default(),
                commit: built_from(artifact),
                build_url: artifact.build_url.clone(),
                at: artifact.created_at,
                by: artifact.created_by.name.clone(),
                runs: runs.is_some().then(|| ran_in(&artifact.fingerprint)),
            }
        })
        .collect()
}

fn line(event: &Event) -> pdf::Event {
    let text = match &event.what {
        TrailEventKind::Begun(_) => "Trail begun".to_owned(),
        TrailEventKind::Updated(_, changes) => format!("Trail changed: {}", changes.join(", ")),
        TrailEventKind::Artifact(artifact) => match artifact.template_reference_name.as_str() {
            "" => format!("Artifact {} reported", artifact.filename),
            name => format!("Artifact {} reported as {name}", artifact.filename),
        },
        TrailEventKind::Attestation(attestation) => {
            let verdict = if attestation.is_compliant { "compliant" } else { "not compliant" };
            let about = match &attestation.binding {
                Binding::Trail => String::new(),
                Binding::Artifact { target, .. } | Binding::Named { target, .. } => format!(" for {target}"),
            };
            let name = &attestation.name;
            match attestation.override_info() {
                Some(info) => format!("Attestation {name}{about} {info} (now {verdict})"),
                None => format!("Attestation {name}{about} ({}): {verdict}", attestation.kind),
            }
        }
        TrailEventKind::Started(moment) => {
            format!(
                "{} started running in {}#{}",
                moment.artifact(),
                moment.environment_name,
                moment.snapshot
            )
        }
        TrailEventKind::Stopped(moment) => {
            format!(
                "{} stopped running in {}#{}",
                moment.artifact(),
                moment.environment_name,
                moment.snapshot
            )
        }
    };
    pdf::Event { at: event.at, text, by: event.by.clone().unwrap_or_default() }
}

fn files(attestation: &Attestation) -> impl Iterator<Item = pdf::Attachment> {
    attestation.attachments.iter().map(|file| pdf::Attachment {
        attestation: attestation.name.to_string(),
        file_name: file.file_name.clone(),
        media_type: file.media_type.clone(),
        size: file.size,
        sha256: file.sha256.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use super::*;
    use crate::attestations::details::{Details, OverrideDetails};
    use crate::fixtures::{artifact, at, attestation, full_commit, jane, robot, trail};
    use crate::flows::parsed::Parsed;
    use crate::rules::template::Template;
    use crate::trails::store::TrailContents;

    #[test]
    fn an_artifact_is_shown_with_the_commit_that_it_was_built_from() {
        let (own, told) = ("a".repeat(40), full_commit());
        let info = |sha1: &str| Some(GitCommit { sha1: sha1.parse().unwrap(), ..full_commit() });
        let told_of = |sha1: &str| Some((sha1.to_owned(), or_empty(told.author.as_deref())));
        let table = [
            (None, None, None),
            (None, info("c"), told_of("c")),
            (Some(own.as_str()), info(&own), told_of(&own)),
            (Some(&own), info(&"A".repeat(40)), told_of(&own)),
            (Some(&own), info("aaaaaaa"), told_of(&own)),
            (Some(&own), info("c"), Some((own.clone(), String::new()))),
            (Some(&own), None, Some((own.clone(), String::new()))),
        ];
        let contents = TrailContents {
            trail: trail(3, 2, "t"),
            revision: 0,
            artifacts: Vec::new(),
            attestations: Vec::new(),
            earlier_names: BTreeMap::new(),
        };
        let parsed = Parsed { text: String::new(), template: Template::default() };
        let evaluated = EvaluatedTrail::new(Cow::Owned(contents), Arc::new(parsed));
        for (git_commit, git_commit_info, expected) in table {
            let reported = Artifact {
                git_commit: git_commit.map(|sha| sha.parse().unwrap()),
                git_commit_info,
                ..artifact(1, 2, Some(3), "f")
            };
            let event = Event { at: at(1), by: None, what: TrailEventKind::Artifact(reported) };
            let shown = artifacts(&evaluated, &[event], None).remove(0).commit;
            assert_eq!(shown.map(|commit| (commit.sha1, commit.author)), expected, "{git_commit:?}");
        }
    }

    #[test]
    fn what_is_expected_of_an_artifact_called_trail_is_not_expected_of_the_trail() {
        let text = "trail: {attestations: [{name: a, type: '*'}], \
                    artifacts: [{name: trail, attestations: [{name: b, type: '*'}]}]}";
        let parsed = Parsed { text: text.to_owned(), template: Template::parse(text).unwrap() };
        let contents = TrailContents {
            trail: trail(3, 2, "t"),
            revision: 0,
            artifacts: Vec::new(),
            attestations: Vec::new(),
            earlier_names: BTreeMap::new(),
        };
        let rows = expectations(&EvaluatedTrail::new(Cow::Owned(contents), Arc::new(parsed)), &[]);
        let rows = Vec::from_iter(rows.iter().map(|row| (row.scope.as_deref(), row.name.as_str())));
        assert_eq!(rows, [(None, "a"), (Some("trail"), "trail"), (Some("trail"), "b")]);
    }

    #[test]
    fn an_expectation_names_who_decided_it_and_when() {
        let reported = Attestation {
            is_compliant: false,
            created_at: at(5),
            created_by: robot(),
            ..attestation(1, 2, 3, "scan")
        };
        let overriding = OverrideDetails {
            reason: "seen by hand".to_owned(),
            original_attestation_type: "generic".to_owned(),
            original_attestation_id: Some(reported.id),
        };
        let overriding = Attestation {
            details: Details::Override(overriding),
            created_at: at(9),
            created_by: jane(),
            ..attestation(4, 2, 3, "scan")
        };
        for (attestations, status, by, moment, override_info) in [
            (vec![reported.clone()], ExpectationStatus::NonCompliant, robot(), at(5), ""),
            (
                vec![reported, overriding],
                ExpectationStatus::Compliant,
                jane(),
                at(9),
                "overridden by jane: seen by hand",
            ),
        ] {
            let contents = TrailContents {
                trail: trail(3, 2, "t"),
                revision: 0,
                artifacts: Vec::new(),
                attestations: attestations.iter().zip(1..).map(|(one, index)| one.row(index)).collect(),
                earlier_names: BTreeMap::new(),
            };
            let parsed = Parsed { text: String::new(), template: Template::default() };
            let evaluated = EvaluatedTrail::new(Cow::Owned(contents), Arc::new(parsed));
            let rows = expectations(&evaluated, &attestations.iter().collect::<Vec<_>>());
            assert_eq!(rows.len(), 1);
            assert_eq!((rows[0].status, &rows[0].by, rows[0].at), (status, &by.name, Some(moment)));
            assert_eq!(rows[0].override_info, override_info);
        }
    }
}
