//! Properties that hold for all reports in any order.

use proptest::prelude::*;

use super::*;

/// Returns whether the binding has the template name and commit of the report.
fn is_called(binding: &Binding, report: &ReportedArtifact) -> bool {
    let Binding::Named { name, commit } = binding else { return false };
    !commit.is_empty() && *name == report.name && *commit == report.commit
}

/// Returns whether a failed attestation by name may refer to the report, which has no commit. The newest
/// attestation of its name with this template name and commit must fail.
fn may_be_about(
    one: &ReportedAttestation,
    report: &ReportedArtifact,
    attestations: &[ReportedAttestation],
) -> bool {
    let Binding::Named { name, .. } = &one.binding else { return false };
    let alike = || attestations.iter().filter(|other| other.binding == one.binding && other.name == one.name);
    let newest = alike().max_by_key(|other| other.index);
    report.commit.is_empty() && *name == report.name && newest.is_some_and(|newest| !newest.is_compliant)
}

/// Returns whether an attestation refers to content, by any kind of reference.
fn is_about(
    one: &ReportedAttestation,
    content: &str,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
) -> bool {
    match &one.binding {
        Binding::Trail => false,
        Binding::Artifact { fingerprint } => fingerprint == content,
        binding @ Binding::Named { .. } => artifacts
            .iter()
            .filter(|report| report.fingerprint == content)
            .any(|report| is_called(binding, report) || may_be_about(one, report, attestations)),
    }
}

/// Returns whether each scope of an attestation has a newer attestation of its name, and whether the trail
/// replaced all content it refers to. It restates the rule of the trail by comparing everything with
/// everything.
fn is_superseded_or_replaced(
    attestation: &ReportedAttestation,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
) -> (bool, bool) {
    let is_about = |one: &ReportedAttestation, artifact: &ReportedArtifact| {
        is_about(one, &artifact.fingerprint, artifacts, attestations)
    };
    let listed = |artifact: &ReportedArtifact| {
        let is_named = !artifact.name.is_empty();
        (is_named, if is_named { artifact.name.clone() } else { artifact.fingerprint.clone() })
    };
    let is_newest = |artifact: &ReportedArtifact| {
        artifacts.iter().all(|other| listed(other) != listed(artifact) || other.index <= artifact.index)
    };
    let newer = |in_scope: &dyn Fn(&ReportedAttestation) -> bool| {
        attestations
            .iter()
            .any(|other| other.name == attestation.name && other.index > attestation.index && in_scope(other))
    };
    let about = artifacts.iter().filter(|artifact| is_about(attestation, artifact));
    // An attestation that only may refer to content also waits for other content.
    let waits = match &attestation.binding {
        binding @ Binding::Named { .. } => !artifacts.iter().any(|report| is_called(binding, report)),
        _ => about.clone().count() == 0,
    };
    match waits {
        true => (newer(&|other| other.binding == attestation.binding), false),
        false => (
            about.clone().all(|artifact| newer(&|other| is_about(other, artifact))),
            about
                .filter(|artifact| is_newest(artifact))
                .all(|artifact| newer(&|other| is_about(other, artifact))),
        ),
    }
}

/// Asserts that every attestation is listed with its verdict, which counts, or is superseded.
fn expect_listed(template: &Template, artifacts: &[ReportedArtifact], attestations: &[ReportedAttestation]) {
    let status = evaluate(template, BEGUN, artifacts, attestations);
    let of_artifacts = status.artifacts.iter().flat_map(|artifact| &artifact.attestations);
    let lines = Vec::from_iter(of_artifacts.chain(&status.attestations));
    let deciding = deciding(artifacts, attestations, &NONE);
    for attestation in attestations {
        let ids = |line: &AttestationStatus| [line.attestation_id.clone(), line.override_id.clone()];
        let is_listed = lines.iter().any(|line| {
            ids(line).contains(&Some(attestation.id.clone()))
                && line.is_compliant == Some(attestation.is_compliant)
        });
        let counts = deciding.contains(attestation.id.as_str());
        let (superseded, replaced) = is_superseded_or_replaced(attestation, artifacts, attestations);
        assert_eq!(counts, !superseded, "{} of {artifacts:?} {attestations:?}", attestation.id);
        assert!(is_listed || superseded || replaced, "{} of {artifacts:?} {attestations:?}", attestation.id);
        if !superseded && !replaced && !attestation.is_compliant {
            assert_eq!(status.state, State::NonCompliant, "{artifacts:?} {attestations:?}");
        }
    }
    let names = BTreeSet::from_iter(status.artifacts.iter().map(|artifact| &artifact.name));
    assert_eq!(names.len(), status.artifacts.len(), "{names:?}");
}

/// Asserts the gate's verdict on all reported content. The content fails exactly if the newest attestation of
/// a name fails, among those that refer to it by any kind of reference, or to its trail.
fn expect_refused(template: &Template, artifacts: &[ReportedArtifact], attestations: &[ReportedAttestation]) {
    let running = BTreeSet::from_iter(artifacts.iter().map(|artifact| artifact.fingerprint.as_str()));
    let reports = (artifacts, attestations);
    let found = content_statuses(template, reports, &NONE, &running, usize::MAX, |lines, _, _| lines);
    for fingerprint in running {
        let on_trail = |one: &ReportedAttestation| one.binding == Binding::Trail;
        let about_it = |one: &ReportedAttestation| is_about(one, fingerprint, artifacts, attestations);
        let fails = |in_scope: &dyn Fn(&ReportedAttestation) -> bool| {
            let scope = || attestations.iter().filter(|attestation| in_scope(attestation));
            let newest = |one: &&ReportedAttestation| {
                scope().all(|other| other.name != one.name || other.index <= one.index)
            };
            scope().filter(newest).any(|attestation| !attestation.is_compliant)
        };
        let refused = found[fingerprint].state == State::NonCompliant;
        let expected = fails(&on_trail) || fails(&about_it);
        assert_eq!(refused, expected, "{fingerprint} of {artifacts:?} {attestations:?}");
    }
}

/// Two artifacts of one name, one of them also reported without a commit, under another name and without a
/// name. Attestations of one name refer to either of them, by every kind of reference, or to the trail.
#[test]
fn whatever_happens_in_whatever_order_no_failing_attestation_is_unlisted_or_passes_a_gate() {
    let bindings = || {
        let contents =
            ["f1", "f2"].map(|fingerprint| Binding::Artifact { fingerprint: fingerprint.to_owned() });
        let names = [("x", "c1"), ("x", "c2"), ("y", "c1")].map(|(name, commit)| named(name, commit));
        [Binding::Trail].into_iter().chain(names).chain(contents)
    };
    let built = |number: u64| ReportedArtifact {
        fingerprint: format!("f{number}"),
        commit: format!("c{number}"),
        ..artifact("x", 0)
    };
    let attested = Vec::from_iter(bindings().flat_map(|binding| [(binding.clone(), true), (binding, false)]));
    let reported = [
        built(1),
        built(2),
        ReportedArtifact { commit: String::new(), ..built(1) },
        ReportedArtifact { name: "y".to_owned(), ..built(1) },
        ReportedArtifact { name: String::new(), ..built(1) },
    ];
    let letters = attested.len() + reported.len();
    let templates = [
        Template::default(),
        template("trail: {artifacts: [{name: x, attestations: [{name: a, type: generic}]}]}"),
    ];
    for length in 1..=4 {
        for number in 0..letters.pow(length) {
            let (mut artifacts, mut attestations) = (Vec::new(), Vec::new());
            for place in 0..length {
                let index = u64::from(place);
                let letter = number / letters.pow(place) % letters;
                match reported.get(letter) {
                    Some(report) => artifacts.push(ReportedArtifact { index, ..report.clone() }),
                    None => {
                        let (binding, verdict) = attested[letter - reported.len()].clone();
                        attestations.push(attestation("a", verdict, binding, index));
                    }
                }
            }
            for template in &templates {
                expect_listed(template, &artifacts, &attestations);
            }
            expect_refused(&templates[1], &artifacts, &attestations);
        }
    }
}

/// Restates the verdict on content: failures, requirements of each of its names, and requirements of the
/// trail.
fn model(
    template: &Template,
    content: &str,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
) -> State {
    let of_it = || artifacts.iter().filter(|artifact| artifact.fingerprint == content);
    let about_it = |one: &ReportedAttestation| is_about(one, content, artifacts, attestations);
    let newest = |name: &str, in_scope: &dyn Fn(&ReportedAttestation) -> bool| {
        let named = attestations.iter().filter(|one| one.name == name && in_scope(one));
        named.max_by_key(|one| one.index)
    };
    let scopes: [&dyn Fn(&ReportedAttestation) -> bool; 2] =
        [&about_it, &|one: &ReportedAttestation| one.binding == Binding::Trail];
    let fails = attestations.iter().any(|one| {
        let failing = |scope: &&dyn Fn(&ReportedAttestation) -> bool| {
            newest(&one.name, *scope).is_some_and(|newest| !newest.is_compliant)
        };
        scopes.iter().any(failing)
    });
    if fails {
        return State::NonCompliant;
    }
    let met = |requirement: &Requirement, in_scope: &dyn Fn(&ReportedAttestation) -> bool| {
        newest(&requirement.name, in_scope)
            .is_some_and(|newest| newest.is_override() || requirement.kind.matches(&newest.kind))
    };
    let slots = template.artifacts.iter().filter(|slot| of_it().any(|report| report.name == slot.name));
    let own = slots.flat_map(|slot| &slot.attestations).all(|one| met(one, scopes[0]));
    let trail = template.attestations.iter().all(|one| met(one, scopes[1]));
    if own && trail { State::Compliant } else { State::Incomplete }
}

fn arbitrary_binding() -> impl Strategy<Value = Binding> {
    let fingerprint = || "f[12]";
    let by_content = fingerprint().prop_map(|fingerprint| Binding::Artifact { fingerprint });
    let by_name = ("[xy]", "(c[12])?").prop_map(|(name, commit)| Binding::Named { name, commit });
    prop_oneof![Just(Binding::Trail), by_content, by_name]
}

type Reports = (Vec<ReportedArtifact>, Vec<ReportedAttestation>);

/// Artifacts and attestations with distinct ledger indexes.
fn arbitrary_reports() -> impl Strategy<Value = Reports> {
    let artifacts = prop::collection::vec(("f[12]", "[xy]?", "(c[12])?"), 0..6);
    let fields = ("[abc]", any::<bool>(), arbitrary_binding(), any::<bool>());
    let attestations = prop::collection::vec(fields, 0..8);
    (artifacts, attestations).prop_map(|(artifacts, attestations)| {
        let artifacts = artifacts.into_iter().zip((0..).step_by(2));
        let attestations = attestations.into_iter().zip((1..).step_by(2));
        let artifacts = artifacts.map(|((fingerprint, name, commit), index)| ReportedArtifact {
            fingerprint,
            commit,
            ..artifact(&name, index)
        });
        let attestations = attestations.map(|((name, verdict, binding, is_override), index)| {
            let override_info = is_override.then(|| "overridden by jane: seen by hand".into());
            ReportedAttestation { override_info, ..attestation(&name, verdict, binding, index) }
        });
        (artifacts.collect(), attestations.collect())
    })
}

/// Reports in ledger order and in another order.
fn shuffled() -> impl Strategy<Value = (Reports, Reports)> {
    arbitrary_reports().prop_flat_map(|(artifacts, attestations)| {
        let mixed = (Just(artifacts.clone()).prop_shuffle(), Just(attestations.clone()).prop_shuffle());
        (Just((artifacts, attestations)), mixed)
    })
}

fn template_of_names() -> Template {
    template(
        "trail: {attestations: [{name: a, type: generic}, {name: b, type: junit}],
                 artifacts: [{name: x, attestations: [{name: a, type: '*'}]}]}",
    )
}

proptest! {
    #[test]
    fn the_order_of_the_inputs_does_not_matter(((artifacts, attestations), mixed) in shuffled()) {
        let template = template_of_names();
        prop_assert_eq!(
            evaluate(&template, BEGUN, &artifacts, &attestations),
            evaluate(&template, BEGUN, &mixed.0, &mixed.1)
        );
    }

    #[test]
    fn a_trail_says_of_its_artifacts_what_they_say_of_themselves(
        (artifacts, attestations) in arbitrary_reports()
    ) {
        let template = template_of_names();
        let status = evaluate(&template, BEGUN, &artifacts, &attestations);
        for listed in &status.artifacts {
            let report = artifacts.iter().find(|report| Some(&report.id) == listed.artifact_id.as_ref());
            match report {
                Some(report) => {
                    let alone = evaluate_artifact(&template, report, &artifacts, &attestations);
                    prop_assert_eq!(&alone, listed);
                }
                None => prop_assert_eq!(listed.state, ArtifactState::Missing),
            }
        }
        let wanted = status.artifacts.iter().filter(|artifact| {
            !artifact.unexpected || artifact.state != ArtifactState::Missing
        });
        let compliant = wanted.into_iter().all(|artifact| artifact.is_compliant == Some(true));
        prop_assert!(compliant || !status.is_compliant);
    }

    #[test]
    fn the_states_of_all_artifacts_are_those_of_each((artifacts, attestations) in arbitrary_reports()) {
        let template = template_of_names();
        let states = artifact_states(&template, &artifacts, &attestations, &NONE);
        for report in &artifacts {
            let alone = evaluate_artifact(&template, report, &artifacts, &attestations).state;
            let state = states.get(report.fingerprint.as_str()).map(|(state, _)| *state);
            prop_assert_eq!(state.map(ArtifactState::Reported), Some(alone));
        }
    }

    #[test]
    fn what_is_found_by_content_says_of_each_artifact_what_it_says_of_itself(
        (artifacts, attestations) in arbitrary_reports()
    ) {
        let template = template_of_names();
        let reports = ContentIndex::new(&artifacts, attestations.clone(), &NONE);
        for report in &artifacts {
            let alone = evaluate_artifact(&template, report, &artifacts, &attestations);
            let (state, info) = reports.state(&template, &report.fingerprint, &report.name);
            prop_assert_eq!((ArtifactState::Reported(state), info), (alone.state, alone.state_info));
            let same = Vec::from_iter(artifacts.iter().filter(|other| other.fingerprint == report.fingerprint).cloned());
            let about = about_content(&report.fingerprint, &same, &attestations, &NONE);
            let places = (0..attestations.len()).filter(|place| about.contains(&attestations[*place].index));
            prop_assert_eq!(reports.about(&report.fingerprint), Vec::from_iter(places));
        }
    }

    /// All functions agree with a model that compares everything with everything.
    #[test]
    fn the_verdict_on_content_is_the_same_wherever_it_is_shown((artifacts, attestations) in arbitrary_reports()) {
        let template = template_of_names();
        let wanted = BTreeSet::from_iter(artifacts.iter().map(|artifact| artifact.fingerprint.as_str()));
        let reports = (&artifacts[..], &attestations[..]);
        let contents = content_statuses(&template, reports, &NONE, &wanted, usize::MAX, |_, _, _| ());
        let trail = evaluate(&template, BEGUN, &artifacts, &attestations);
        for content in wanted {
            let expected = model(&template, content, &artifacts, &attestations);
            prop_assert_eq!(contents[content].state, expected, "{}", content);
            let shown = trail.artifacts.iter().filter(|one| one.fingerprint.as_deref() == Some(content));
            for shown in shown {
                prop_assert_eq!(shown.state, ArtifactState::Reported(expected), "{}", content);
            }
        }
    }

    /// An override is recorded with the same original that the trail then shows as overridden.
    #[test]
    fn an_override_is_of_what_the_trail_shows_that_it_overrides(
        (artifacts, attestations) in arbitrary_reports(), name in "[abc]", binding in arbitrary_binding()
    ) {
        let original = overridden(&name, &binding, &artifacts, &attestations, &NONE);
        let mut all = attestations.clone();
        let over = overriding(attestation(&name, true, binding, 100));
        all.push(over.clone());
        let status = evaluate(&template_of_names(), BEGUN, &artifacts, &all);
        let of_artifacts = status.artifacts.iter().flat_map(|artifact| &artifact.attestations);
        let lines = of_artifacts.chain(&status.attestations);
        let by_it = lines.filter(|line| line.override_id.as_ref() == Some(&over.id));
        let shown = Vec::from_iter(by_it.filter_map(|line| line.attestation_id.as_deref()));
        let ordinary = attestations.iter().filter(|one| !one.is_override() && shown.contains(&one.id.as_str()));
        let newest = ordinary.max_by_key(|one| one.index);
        if !shown.is_empty() {
            prop_assert_eq!(original, newest);
        }
    }

    /// No trail complies with a template that cannot be read, and every verdict has the reason.
    #[test]
    fn nothing_complies_with_a_template_that_cannot_be_read(
        yaml in "\\PC{0,40}", (artifacts, attestations) in arbitrary_reports()
    ) {
        let template = Template::stored(&yaml);
        let status = evaluate(&template, BEGUN, &artifacts, &attestations);
        prop_assert_eq!(template.unreadable().is_some(), Template::parse(&yaml).is_err());
        prop_assert_eq!(status.state_info.as_deref(), template.unreadable());
        if template.unreadable().is_some() {
            prop_assert!(!status.is_compliant);
            for artifact in &status.artifacts {
                prop_assert!(artifact.is_compliant != Some(true));
                prop_assert_eq!(artifact.state_info.is_some(), artifact.artifact_id.is_some());
            }
        }
        // An unreadable template still counts every failure that a readable one would.
        let readable = evaluate(&Template::default(), BEGUN, &artifacts, &attestations);
        prop_assert!(readable.state != State::NonCompliant || status.state == State::NonCompliant);
    }

    #[test]
    fn no_failing_attestation_is_ever_unlisted_or_passes_a_gate(
        (artifacts, attestations) in arbitrary_reports()
    ) {
        for template in [Template::default(), template_of_names()] {
            expect_listed(&template, &artifacts, &attestations);
            expect_refused(&template, &artifacts, &attestations);
        }
    }
}
