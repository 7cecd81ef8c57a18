//! The inputs of policies: an artifact, the flows it was reported in, and its effective attestations there. A
//! rule needs few facts about many attestations, and many artifacts share them, so the facts are indexed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::compliance::{self, AttestationStatus, ReportedAttestation, State};
use crate::template::Kind;
use evidence_ledger::Hash;

use super::{ANY_NAME, AttestationRule, Condition, Policy, Scope, Truth};

/// The artifact to evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Artifact<'a> {
    /// Its name, as the environment reports it; `""` if unknown.
    pub name: &'a str,
    /// Other names of the artifact. A condition is unknown if it does not have the same value for all names.
    pub other_names: &'a [String],
    /// Its SHA-256; `None` for an artifact without a digest.
    pub fingerprint: Option<&'a str>,
}

/// A flow that an artifact was reported in, with the newest trail of the artifact there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowContext {
    /// Name of the flow.
    pub flow_name: String,
    /// The names that conditions use: the present name and former ones. A condition is unknown if it does not
    /// have the same value for all names. If empty, conditions use [`flow_name`](Self::flow_name).
    pub condition_names: Arc<[String]>,
    /// Name of the trail.
    pub trail_name: String,
    /// State of the artifact, not of the trail.
    pub artifact_state: State,
    /// The reason for that state, if no attestation shows it.
    pub reason: Option<String>,
    /// The flow's tags.
    pub tags: Arc<BTreeMap<String, String>>,
    /// The effective attestations of the artifact: its own, and beneath them those of its trail. Artifacts of
    /// one trail share the latter.
    pub attestations: Arc<FlowAttestations>,
}

/// An attestation as policies see it: its verdict, without its body.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowAttestation {
    /// Its name.
    pub name: String,
    /// Its type as reported: `generic`, `custom:<name>`, and so on.
    pub kind: String,
    /// Its verdict, or that of the override that replaces it.
    pub is_compliant: bool,
}

/// A decision about a control, not superseded by a newer attestation of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowDecision {
    /// Its name.
    pub name: String,
    /// The control's identifier.
    pub control: String,
    /// Its verdict, or that of the override that replaces it.
    pub is_compliant: bool,
    /// Its ledger index, or that of the override. Larger is newer.
    pub index: u64,
}

/// The effective attestations of one scope, and the scope beneath it. The nearest scope has priority: an
/// attestation hides those of the same name beneath it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowAttestations {
    /// Attestations of this scope, sorted by name.
    attestations: Vec<FlowAttestation>,
    /// Attestations of this scope, by type as policies spell it, then by name.
    kinds: BTreeMap<String, BTreeMap<String, bool>>,
    /// Whether an attestation of a type is compliant, in both scopes.
    best: BTreeMap<String, bool>,
    /// Decisions of this scope, by control, then by name.
    decisions: BTreeMap<String, BTreeMap<String, FlowDecision>>,
    /// The newest decision about each control, in both scopes.
    newest: BTreeMap<String, FlowDecision>,
    beneath: Option<Arc<FlowAttestations>>,
    digest: Hash,
}

impl Default for FlowAttestations {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new(), None)
    }
}

/// The attestations that a set of policies requires. Others need not be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredAttestations {
    /// Whether a condition uses the names of artifacts.
    looks_at_names: bool,
    names: BTreeSet<String>,
    /// Types required by rules that match any name.
    kinds: BTreeSet<String>,
    controls: BTreeSet<String>,
}

impl RequiredAttestations {
    /// Adds the requirements of this policy.
    pub fn add(&mut self, policy: &Policy) {
        self.looks_at_names |= policy.looks_at_names();
        for AttestationRule { name, kind, for_control, .. } in &policy.attestations {
            match for_control {
                Some(control) => drop(self.controls.insert(control.clone())),
                None if name == ANY_NAME => drop(self.kinds.insert(kind.as_str().to_owned())),
                None => {}
            }
            if name != ANY_NAME {
                self.names.insert(name.clone());
            }
        }
    }

    /// Returns whether a condition uses the names of artifacts.
    pub const fn looks_at_names(&self) -> bool {
        self.looks_at_names
    }

    /// Returns whether the policies require no attestation.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.kinds.is_empty() && self.controls.is_empty()
    }
}

/// The result of looking up an attestation for a rule.
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
    /// Builds the list from attestations in any order, one for each name, and the scope `beneath`.
    pub fn new(
        mut attestations: Vec<FlowAttestation>,
        decisions: Vec<FlowDecision>,
        beneath: Option<&Arc<Self>>,
    ) -> Self {
        attestations.sort_unstable();
        let mut kinds: BTreeMap<String, BTreeMap<String, bool>> = BTreeMap::new();
        for FlowAttestation { name, kind, is_compliant } in &attestations {
            let kind = Kind::of_reported(kind).to_owned();
            kinds.entry(kind).or_default().insert(name.clone(), *is_compliant);
        }
        let mut by_control: BTreeMap<String, BTreeMap<String, FlowDecision>> = BTreeMap::new();
        for decision in decisions {
            let of_control = by_control.entry(decision.control.clone()).or_default();
            of_control.insert(decision.name.clone(), decision);
        }
        let digest = digest(&attestations, by_control.values().flat_map(BTreeMap::values));
        let (best, newest) = (BTreeMap::new(), BTreeMap::new());
        let mut all =
            Self { attestations, kinds, best, decisions: by_control, newest, beneath: None, digest };
        all.add_beneath(beneath);
        all
    }

    /// Adds the entries of the scope beneath that have other names.
    fn add_beneath(&mut self, beneath: Option<&Arc<Self>>) {
        let names = BTreeSet::from_iter(self.attestations.iter().map(|one| one.name.as_str()));
        let best = |of: &BTreeMap<String, bool>, is_hidden: &dyn Fn(&str) -> bool| {
            let visible =
                of.iter().filter(|(name, _)| !is_hidden(name)).map(|(_, is_compliant)| *is_compliant);
            visible.max()
        };
        let newest = |of: &BTreeMap<String, FlowDecision>, is_hidden: &dyn Fn(&str) -> bool| {
            let visible = of.values().filter(|one| !is_hidden(&one.name));
            visible.max_by_key(|one| one.index).cloned()
        };
        let hides = |name: &str| names.contains(name);
        let none = Self::empty();
        let below = beneath.map_or(&none, |beneath| &**beneath);
        let (mut all_best, mut all_newest) = (BTreeMap::new(), BTreeMap::new());
        for kind in self.kinds.keys().chain(below.kinds.keys()) {
            let own = self.kinds.get(kind).and_then(|of| best(of, &|_| false));
            let under = below.kinds.get(kind).and_then(|of| best(of, &hides));
            all_best.extend(own.max(under).map(|best| (kind.clone(), best)));
        }
        for control in self.decisions.keys().chain(below.decisions.keys()) {
            let own = self.decisions.get(control).and_then(|of| newest(of, &|_| false));
            let under = below.decisions.get(control).and_then(|of| newest(of, &hides));
            let decided = own.into_iter().chain(under).max_by_key(|one| one.index);
            all_newest.extend(decided.map(|one| (control.clone(), one)));
        }
        (self.best, self.newest) = (all_best, all_newest);
        self.beneath = beneath.map(Arc::clone);
    }

    fn empty() -> Self {
        Self {
            attestations: Vec::new(),
            kinds: BTreeMap::new(),
            best: BTreeMap::new(),
            decisions: BTreeMap::new(),
            newest: BTreeMap::new(),
            beneath: None,
            digest: Hash::of(""),
        }
    }

    /// Builds the list of a scope from its lines and all its reports, in any order. Stores only the `required`
    /// attestations, and the digest of everything.
    pub fn of_scope(
        lines: Vec<AttestationStatus>,
        reported: &[&ReportedAttestation],
        beneath: Option<&Arc<Self>>,
        required: &RequiredAttestations,
    ) -> Self {
        let counts = |line: AttestationStatus| {
            let AttestationStatus { name, kind, is_compliant, .. } = line;
            is_compliant.map(|is_compliant| FlowAttestation { name, kind, is_compliant })
        };
        let mut attestations: Vec<_> = lines.into_iter().filter_map(counts).collect();
        attestations.sort_unstable();
        // One attestation may meet two requirements.
        attestations.dedup();
        let mut all = Self::new(attestations, decisions(reported), beneath);
        all.attestations.retain(|one| required.names.contains(&one.name));
        all.attestations.shrink_to_fit();
        all.kinds.retain(|kind, _| required.kinds.contains(kind));
        all.best.retain(|kind, _| required.kinds.contains(kind));
        all.decisions.retain(|control, _| required.controls.contains(control));
        all.newest.retain(|control, _| required.controls.contains(control));
        all
    }

    /// Returns the number of entries of this scope.
    pub fn count(&self) -> usize {
        let kinds = self.kinds.values().map(BTreeMap::len).sum::<usize>();
        let decisions = self.decisions.values().map(BTreeMap::len).sum::<usize>();
        self.attestations.len() + kinds + decisions
    }

    /// Returns the scope in which this name counts: the nearest one that has it.
    fn nearest(&self, name: &str) -> &Self {
        let place = self.attestations.partition_point(|one| one.name.as_str() < name);
        let has_it = self.attestations.get(place).is_some_and(|one| one.name == name);
        if has_it { self } else { self.beneath.as_deref().unwrap_or(self) }
    }

    /// Returns the attestation of this name, if it has this kind.
    pub(super) fn named(&self, name: &str, kind: &Kind) -> Found {
        let nearest = self.nearest(name);
        let first = nearest.attestations.partition_point(|one| one.name.as_str() < name);
        let named = nearest.attestations.iter().skip(first).take_while(|one| one.name == name);
        let fitting = named.filter(|one| kind.matches(&one.kind)).map(|one| one.is_compliant.into());
        fitting.max().unwrap_or(Found::Nothing)
    }

    /// Returns the best attestation of this kind under any name.
    pub(super) fn of_kind(&self, kind: &Kind) -> Found {
        self.best.get(kind.as_str()).map_or(Found::Nothing, |is_compliant| (*is_compliant).into())
    }

    /// Returns the newest decision about this control, or the one with this name.
    pub(super) fn decision(&self, control: &str, name: Option<&str>) -> Option<&FlowDecision> {
        match name {
            None => self.newest.get(control),
            Some(name) => self.nearest(name).decisions.get(control)?.get(name),
        }
    }

    /// Returns this scope and those beneath it.
    pub fn scopes(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |scope| scope.beneath.as_deref())
    }

    /// Returns the digest that identifies the list.
    pub const fn digest(&self) -> Hash {
        self.digest
    }
}

/// Returns the SHA-256 of one line for each attestation and each decision, with their texts as JSON.
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

/// Returns the effective decision of each name. A newer attestation of the name supersedes it, whatever its
/// type. An override refers to the same control as the newest attestation of its name.
fn decisions(reported: &[&ReportedAttestation]) -> Vec<FlowDecision> {
    let decision = |(name, effective): (&str, compliance::Effective<'_>)| {
        Some(FlowDecision {
            name: name.to_owned(),
            control: effective.original?.control.clone()?,
            is_compliant: effective.newest.is_compliant,
            index: effective.newest.index,
        })
    };
    compliance::effective(reported).into_iter().filter_map(decision).collect()
}

impl<'a> Artifact<'a> {
    /// Returns whether the condition holds in this flow, or without one, for all names of the artifact and of
    /// the flow.
    pub(super) fn truth(self, condition: &Condition, flow: Option<&FlowContext>) -> Truth {
        Truth::alike(self.scopes(flow).map(|scope| condition.expression.evaluate(&scope)))
    }

    /// Returns why it is unknown whether the condition holds.
    pub(super) fn unknown_because(self, condition: &Condition, flow: Option<&FlowContext>) -> Option<String> {
        if self.truth(condition, flow) != Truth::Unknown {
            return None;
        }
        let why = self.scopes(flow).find_map(|scope| condition.expression.unknown_because(&scope));
        let why = why.map_or_else(|| self.disagreement(condition, flow), |why| why.to_string());
        let mut text: String = condition.text.chars().take(SHOWN_TEXT).collect();
        if text.len() < condition.text.len() {
            text.push('…');
        }
        Some(format!("the condition '{text}' is unknown, because {why}"))
    }

    /// Returns which names disagree on a condition that is known for each of them.
    fn disagreement(self, condition: &Condition, flow: Option<&FlowContext>) -> String {
        let by_artifact_names =
            self.names().map(|name| condition.expression.evaluate(&self.scope(name, flow.map(flow_of_now))));
        let (whose, names): (_, Vec<&str>) = match (Truth::alike(by_artifact_names), flow) {
            (Truth::Unknown, _) | (_, None) => ("artifact", self.names().collect()),
            (_, Some(flow)) => ("flow", flow.names().collect()),
        };
        // Sorted, so that the gate and snapshots give the same reason.
        let names = BTreeSet::from_iter(names);
        let more = names.len().saturating_sub(SHOWN_NAMES);
        let shown = Vec::from_iter(names.into_iter().take(SHOWN_NAMES).map(|name| format!("'{name}'")));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("it does not hold alike for the {whose}'s names {}{more}", shown.join(", "))
    }

    fn names(self) -> impl Iterator<Item = &'a str> + Clone {
        std::iter::once(self.name).chain(self.other_names.iter().map(String::as_str))
    }

    fn scope(self, artifact_name: &'a str, flow: Option<ConditionFlow<'a>>) -> Scope<'a> {
        Scope { artifact_name, fingerprint: self.fingerprint, flow }
    }

    /// Returns the inputs of conditions in this flow, or without one, for each name of the artifact and of
    /// the flow.
    fn scopes(self, flow: Option<&'a FlowContext>) -> impl Iterator<Item = Scope<'a>> {
        let flows = flow.into_iter().flat_map(|flow| flow.names().map(|name| (name, &*flow.tags)));
        let flows = flows.map(Some).chain(flow.is_none().then_some(None));
        flows.flat_map(move |flow| self.names().map(move |name| self.scope(name, flow)))
    }
}

/// A flow as conditions see it: one of its names, and its tags.
type ConditionFlow<'a> = (&'a str, &'a BTreeMap<String, String>);

fn flow_of_now(flow: &FlowContext) -> ConditionFlow<'_> {
    (flow.names().next().unwrap_or_default(), &flow.tags)
}

impl FlowContext {
    /// Returns the names that conditions use.
    fn names(&self) -> impl Iterator<Item = &str> {
        let present = self.condition_names.is_empty().then_some(self.flow_name.as_str());
        present.into_iter().chain(self.condition_names.iter().map(String::as_str))
    }
}

/// Maximum number of characters of a condition that a reason quotes.
const SHOWN_TEXT: usize = 100;

/// Maximum number of names that a reason lists.
const SHOWN_NAMES: usize = 10;
