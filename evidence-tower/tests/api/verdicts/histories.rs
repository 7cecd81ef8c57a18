//! Random histories, whose verdicts are compared with a small model.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::On::{Artifact, Other, Trail};
use super::Step::{Attest, Decide, Override, Report};
use super::{On, Scene, Step};

use crate::support::prelude::*;
use crate::support::random_cases;

/// The template and the policies of a history.
const HISTORY_TEMPLATE: &str = "trail: {attestations: [{name: go, type: '*'}], \
                                artifacts: [{name: app, attestations: [{name: unit, type: generic}]}]}";
const HISTORY_RULES: [&str; 4] = [
    "{trail-compliance: {required: true}}",
    "{attestations: [{name: unit, type: generic}]}",
    "{attestations: [{type: generic}]}",
    "{attestations: [{type: decision, for_control: C-1}]}",
];

/// Random histories of one trail.
fn histories() -> impl Strategy<Value = Vec<Step>> {
    use proptest::sample::select;
    let on = || select(vec![Trail, Artifact, Artifact, Other]);
    let name = || select(vec!["unit", "go"]);
    let content = select(vec![Artifact, Artifact, Other]);
    let step = prop_oneof![
        2 => (content, select(vec!["app", "zz", ""])).prop_map(|(on, name)| Report(on, name)),
        3 => (name(), on(), any::<bool>()).prop_map(|(name, on, verdict)| Attest(name, on, verdict)),
        1 => (name(), on(), any::<bool>()).prop_map(|(name, on, verdict)| Override(name, on, verdict)),
        2 => (name(), select(vec!["C-1", "C-2"]), on(), any::<bool>())
            .prop_map(|(name, control, on, verdict)| Decide(name, control, on, verdict)),
    ];
    proptest::collection::vec(step, 1..12)
}

/// An attestation that counts: its verdict, its type, its control, and its place in the history.
#[derive(Debug, Clone, Copy)]
struct Counts {
    is_compliant: bool,
    is_override: bool,
    is_decision: bool,
    control: Option<&'static str>,
    at: usize,
}

/// Returns the attestation of a name that decides in a scope: the newest, or an override of it.
fn counts(history: &[Step], name: &str, scope: On) -> Option<Counts> {
    let mut found: Option<Counts> = None;
    for (at, step) in history.iter().enumerate() {
        match *step {
            Attest(of, on, is_compliant) if of == name && on == scope => {
                let (is_override, is_decision, control) = (false, false, None);
                found = Some(Counts { is_compliant, is_override, is_decision, control, at });
            }
            Decide(of, control, on, is_compliant) if of == name && on == scope => {
                let (is_override, is_decision, control) = (false, true, Some(control));
                found = Some(Counts { is_compliant, is_override, is_decision, control, at });
            }
            Override(of, on, is_compliant) if of == name && on == scope => {
                let (is_decision, control) =
                    found.map_or((false, None), |known| (known.is_decision, known.control));
                found = Some(Counts { is_compliant, is_override: true, is_decision, control, at });
            }
            _ => {}
        }
    }
    found
}

/// The state of the artifact, and whether it satisfies each of the policies, once more.
fn model(history: &[Step]) -> (&'static str, [bool; 4]) {
    let names = ["unit", "go"];
    let own = names.map(|name| counts(history, name, Artifact));
    let trail = names.map(|name| counts(history, name, Trail));
    let nearest = [0, 1].map(|at| own[at].or(trail[at]));
    let is_app = history.contains(&Report(Artifact, "app"));
    let fails = own.iter().chain(&trail).flatten().any(|one| !one.is_compliant);
    let lacks_unit = is_app && !own[0].is_some_and(|unit| unit.is_override || !unit.is_decision);
    let lacks = lacks_unit || trail[1].is_none();
    let state = match (fails, lacks) {
        (true, _) => "NON-COMPLIANT",
        (false, true) => "INCOMPLETE",
        (false, false) => "COMPLIANT",
    };
    let is_generic = |one: &&Counts| !one.is_decision;
    let generic = nearest.iter().flatten().filter(is_generic).any(|one| one.is_compliant);
    let about = nearest.iter().flatten().filter(|one| one.control == Some("C-1"));
    let decided = about.max_by_key(|one| one.at).is_some_and(|one| one.is_compliant);
    let unit = nearest[0].is_some_and(|unit| !unit.is_decision && unit.is_compliant);
    (state, [state == "COMPLIANT", unit, generic, decided])
}

#[test]
fn every_place_has_the_verdict_of_the_model_whatever_happened() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = random_cases(96);
    let run = |history: Vec<Step>| {
        runtime.block_on(async {
            let api = Api::new(in_memory().await, Mount::Tower, "memory").await;
            for control in ["C-1", "C-2"] {
                api.post_control(control).await.created();
            }
            for (number, rules) in HISTORY_RULES.iter().enumerate() {
                let scene = Scene::new(&api, number, HISTORY_TEMPLATE, rules).await;
                let mut made = Vec::new();
                for step in &history {
                    if scene.make(*step, None).await {
                        made.push(*step);
                    }
                }
                let reported = made.iter().any(|step| matches!(step, Report(Artifact, _)));
                let (state, places) = scene.verdicts(true).await;
                let (expected, satisfied) = model(&made);
                let yes = |satisfied: bool| if satisfied { "yes" } else { "no" };
                let expected = match reported {
                    true => {
                        let says = yes(satisfied[number]);
                        (expected, [yes(expected == "COMPLIANT"), says, says, says])
                    }
                    // Content that was never reported is unknown.
                    false => ("–", ["404", "404", "404", "no"]),
                };
                assert_eq!((state.as_str(), places), expected, "{rules} {made:?}");
            }
        });
        Ok(())
    };
    TestRunner::new(config).run(&histories(), run).unwrap();
}
