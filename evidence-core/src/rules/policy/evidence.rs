//! What policies look at: an artifact, the flows it was reported in, and what counts for it there. Of many attestations a
//! rule needs to know a few things, and many artifacts share the same: so these are looked up, not gone through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::ledger::Hash;
use crate::rules::compliance::{AttestationStatus, ReportedAttestation, State};
use crate::rules::template::Kind;

use super::{ANY_NAME, AttestationRule, Condition, Policy, Scope, Truth};

/// What is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Artifact<'a> {
    /// Its name, as the environment reports it; `""` where it is not known.
    pub name: &'a str,
    /// Other names that it has. A condition that not all names agree on is unknown.
    pub other_names: &'a [String],
    /// Its SHA-256; nothing for what has no digest.
    pub fingerprint: Option<&'a str>,
}

/// A flow that an artifact was reported in, with the newest trail of the artifact there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowContext {
    /// Name of the flow.
    pub flow_name: String,
    /// Name of the trail.
    pub trail_name: String,
    /// State of the artifact, not of the trail.
    pub artifact_state: State,
    /// Why it is in that state, where no attestation accounts for it.
    pub reason: Option<String>,
    /// The flow's tags.
    pub tags: Arc<BTreeMap<String, String>>,
    /// Everything that counts for the artifact: of its own attestations and of those of its trail. Artifacts of one trail
    /// share them.
    pub attestations: Vec<Arc<FlowAttestations>>,
}

/// An attestation as policies see it: its standing, without its body.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowAttestation {
    /// Its name.
    pub name: String,
    /// Its type as reported: `generic`, `custom:<name>`, ….
    pub kind: String,
    /// Its verdict, or that of the override that stands in for it.
    pub is_compliant: bool,
}

/// The newest decision of a name about a control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowDecision {
    /// Its name.
    pub name: String,
    /// The control's identifier.
    pub control: String,
    /// Its verdict, or that of the override that stands in for it.
    pub is_compliant: bool,
    /// Its place in the ledger, or that of the override. Larger is newer.
    pub index: u64,
}

/// What counts in one scope: of each name the newest attestation, and of each name and control the newest decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowAttestations {
    /// By name.
    attestations: Vec<FlowAttestation>,
    /// Whether one of a type is compliant, by the type as policies ask for it.
    kinds: BTreeMap<String, bool>,
    /// By control.
    decisions: BTreeMap<String, Decisions>,
    digest: Hash,
}

/// The newest decisions about a control.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decisions {
    /// Of each name.
    by_name: BTreeMap<String, FlowDecision>,
    /// Of all.
    newest: FlowDecision,
}

impl Decisions {
    fn add(&mut self, decision: FlowDecision) {
        if decision.index > self.newest.index {
            self.newest = decision.clone();
        }
        let known = self.by_name.entry(decision.name.clone()).or_insert_with(|| decision.clone());
        if decision.index > known.index {
            *known = decision;
        }
    }
}

impl Default for FlowAttestations {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new())
    }
}

/// What some policies ask of attestations: what they do not ask for need not be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    names: BTreeSet<String>,
    /// Of rules that take any name.
    kinds: BTreeSet<String>,
    controls: BTreeSet<String>,
}

impl Asked {
    /// Adds what this policy asks for.
    pub(crate) fn add(&mut self, policy: &Policy) {
        for AttestationRule { name, kind, for_control, .. } in &policy.attestations {
            match for_control {
                Some(control) => self.controls.insert(control.clone()),
                None if name == ANY_NAME => self.kinds.insert(kind.as_str().to_owned()),
                None => self.names.insert(name.clone()),
            };
        }
    }

    /// Whether they ask for no attestation.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.kinds.is_empty() && self.controls.is_empty()
    }
}

/// What a rule about attestations finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    Nothing,
    NonCompliant,
    Compliant,
}

impl From<bool> for Found {
    fn from(is_compliant: bool) -> Self {
        if is_compliant { Self::Compliant } else { Self::NonCompliant }
    }
}

impl FlowAttestations {
    /// These, in any order.
    pub fn new(mut attestations: Vec<FlowAttestation>, decisions: Vec<FlowDecision>) -> Self {
        attestations.sort_unstable();
        let mut kinds = BTreeMap::new();
        for FlowAttestation { kind, is_compliant, .. } in &attestations {
            *kinds.entry(Kind::of_reported(kind).to_owned()).or_default() |= is_compliant;
        }
        let mut by_control: BTreeMap<String, Decisions> = BTreeMap::new();
        for decision in decisions {
            let first = || Decisions { by_name: BTreeMap::new(), newest: decision.clone() };
            by_control.entry(decision.control.clone()).or_insert_with(first).add(decision);
        }
        let decisions = by_control.values().flat_map(|decisions| decisions.by_name.values());
        let digest = digest(&attestations, decisions);
        Self { attestations, kinds, decisions: by_control, digest }
    }

    /// Those of a scope: its lines, and all that was reported there, in any order. Of these what is asked for is kept, and the
    /// digest of all.
    pub(crate) fn of_scope(
        lines: Vec<AttestationStatus>,
        reported: &[&ReportedAttestation],
        asked: &Asked,
    ) -> Self {
        let counts = |line: AttestationStatus| {
            let AttestationStatus { name, kind, is_compliant, .. } = line;
            is_compliant.map(|is_compliant| FlowAttestation { name, kind, is_compliant })
        };
        let mut all = Self::new(lines.into_iter().filter_map(counts).collect(), newest_decisions(reported));
        all.attestations.retain(|one| asked.names.contains(&one.name));
        all.attestations.shrink_to_fit();
        all.kinds.retain(|kind, _| asked.kinds.contains(kind));
        all.decisions.retain(|control, _| asked.controls.contains(control));
        all
    }

    /// How many of them there are.
    pub(crate) fn len(&self) -> usize {
        let decisions = self.decisions.values().map(|decisions| decisions.by_name.len());
        self.attestations.len() + self.kinds.len() + decisions.sum::<usize>()
    }

    /// The best of this name, and of this kind.
    pub(super) fn named(&self, name: &str, kind: &Kind) -> Found {
        let first = self.attestations.partition_point(|one| one.name.as_str() < name);
        let named = self.attestations.iter().skip(first).take_while(|one| one.name == name);
        let fitting = named.filter(|one| kind.matches(&one.kind)).map(|one| one.is_compliant.into());
        fitting.max().unwrap_or(Found::Nothing)
    }

    /// The best of this kind, whatever its name.
    pub(super) fn of_kind(&self, kind: &Kind) -> Found {
        self.kinds.get(kind.as_str()).map_or(Found::Nothing, |is_compliant| (*is_compliant).into())
    }

    /// The newest decision about this control, or the newest of this name.
    pub(super) fn decision(&self, control: &str, name: Option<&str>) -> Option<&FlowDecision> {
        let decisions = self.decisions.get(control)?;
        name.map_or(Some(&decisions.newest), |name| decisions.by_name.get(name))
    }

    /// What lists are told apart by.
    pub(crate) const fn digest(&self) -> Hash {
        self.digest
    }
}

/// The SHA-256 of a line for each attestation, and for each decision, with their texts as JSON.
fn digest<'a>(attestations: &[FlowAttestation], decisions: impl Iterator<Item = &'a FlowDecision>) -> Hash {
    let json = |text: &str| Value::from(text);
    let attestation = |one: &FlowAttestation| {
        format!("attestation {} {} {}\n", json(&one.name), json(&one.kind), one.is_compliant)
    };
    let decision = |one: &FlowDecision| {
        let (name, control) = (json(&one.name), json(&one.control));
        format!("decision {name} {control} {} {}\n", one.is_compliant, one.index)
    };
    let attestations = attestations.iter().map(attestation);
    Hash::of(attestations.chain(decisions.map(decision)).collect::<String>())
}

/// Of each name and control the newest decision. A name may be about one control after the other; an override is about what
/// the newest attestation of its name is about.
fn newest_decisions(reported: &[&ReportedAttestation]) -> Vec<FlowDecision> {
    let mut reported = reported.to_vec();
    reported.sort_unstable_by_key(|one| one.index);
    let (mut newest, mut controls) = (BTreeMap::new(), BTreeMap::new());
    for one in reported {
        let name = one.name.as_str();
        if !one.is_override {
            controls.insert(name, one.control.as_deref());
        }
        let Some(control) = controls.get(name).copied().flatten() else { continue };
        newest.insert((name, control), (one.is_compliant, one.index));
    }
    let decision = |((name, control), (is_compliant, index)): ((&str, &str), _)| FlowDecision {
        name: name.to_owned(),
        control: control.to_owned(),
        is_compliant,
        index,
    };
    newest.into_iter().map(decision).collect()
}

impl<'a> Artifact<'a> {
    /// Whether the condition holds in this flow, or without one, by whichever of its names.
    pub(super) fn truth(self, condition: &Condition, flow: Option<&FlowContext>) -> Truth {
        let mut scopes = self.scopes(flow).map(|scope| condition.expression.evaluate(&scope));
        let first = scopes.next().unwrap_or(Truth::Unknown);
        if scopes.all(|other| other == first) { first } else { Truth::Unknown }
    }

    /// Why it is unknown whether the condition holds.
    pub(super) fn unknown_because(self, condition: &Condition, flow: Option<&FlowContext>) -> Option<String> {
        if self.truth(condition, flow) != Truth::Unknown {
            return None;
        }
        let why = self.scopes(flow).find_map(|scope| condition.expression.unknown_because(&scope));
        let why = match why {
            Some(why) => why.to_string(),
            None => {
                let names = std::iter::once(self.name).chain(self.other_names.iter().map(String::as_str));
                let names = Vec::from_iter(names.take(SHOWN_NAMES).map(|name| format!("'{name}'")));
                format!("it does not hold alike for the artifact's names {}", names.join(", "))
            }
        };
        let mut text: String = condition.text.chars().take(SHOWN_TEXT).collect();
        if text.len() < condition.text.len() {
            text.push('…');
        }
        Some(format!("the condition '{text}' is unknown, because {why}"))
    }

    /// What conditions look at in this flow, or without one, by each of its names.
    fn scopes(self, flow: Option<&'a FlowContext>) -> impl Iterator<Item = Scope<'a>> {
        let names = std::iter::once(self.name).chain(self.other_names.iter().map(String::as_str));
        names.map(move |artifact_name| Scope {
            artifact_name,
            fingerprint: self.fingerprint,
            flow: flow.map(|flow| (flow.flow_name.as_str(), &*flow.tags)),
        })
    }
}

/// So many characters of a condition a reason shows.
const SHOWN_TEXT: usize = 100;

/// So many names a reason shows.
const SHOWN_NAMES: usize = 3;
