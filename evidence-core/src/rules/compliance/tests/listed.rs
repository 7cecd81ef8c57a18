//! Whatever was reported in whatever order: each attestation is listed and counts, or something newer has its place.

use super::*;

/// Whether nothing is left of an attestation: a newer one of its name is in its scope, or its artifact was replaced by
/// another content. The rule of the trail once more, by looking at everything for everything.
fn is_superseded(
    attestation: &ReportedAttestation,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
) -> bool {
    let is_about = |binding: &Binding, artifact: &ReportedArtifact| match binding {
        Binding::Trail => false,
        Binding::Artifact { fingerprint } => *fingerprint == artifact.fingerprint,
        Binding::Named { name, commit } => artifacts.iter().any(|report| {
            let same = (&report.name, &report.fingerprint) == (&artifact.name, &artifact.fingerprint);
            same && !commit.is_empty() && *name == report.name && *commit == report.commit
        }),
    };
    let listed = |artifact: &ReportedArtifact| {
        let is_named = !artifact.name.is_empty();
        (is_named, if is_named { artifact.name.clone() } else { artifact.fingerprint.clone() })
    };
    let is_newest = |artifact: &ReportedArtifact| {
        artifacts.iter().all(|other| listed(other) != listed(artifact) || other.index <= artifact.index)
    };
    let newer = |in_scope: &dyn Fn(&Binding) -> bool| {
        attestations.iter().any(|other| {
            other.name == attestation.name && other.index > attestation.index && in_scope(&other.binding)
        })
    };
    let about = artifacts.iter().filter(|artifact| is_about(&attestation.binding, artifact));
    match about.clone().count() {
        0 => newer(&|other| *other == attestation.binding),
        _ => about
            .filter(|artifact| is_newest(artifact))
            .all(|artifact| newer(&|other| is_about(other, artifact))),
    }
}

/// What must hold of every attestation: it is listed with its verdict, which counts, or superseded.
fn expect_listed(template: &Template, artifacts: &[ReportedArtifact], attestations: &[ReportedAttestation]) {
    let status = evaluate(template, BEGUN, artifacts, attestations);
    let of_artifacts = status.artifacts.iter().flat_map(|artifact| &artifact.attestations);
    let lines = Vec::from_iter(of_artifacts.chain(&status.attestations));
    let deciding = deciding(artifacts, attestations);
    for attestation in attestations {
        let ids =
            |line: &AttestationStatus| [line.attestation_id.clone(), line.overridden_attestation_id.clone()];
        let is_listed = lines.iter().any(|line| {
            ids(line).contains(&Some(attestation.id.clone()))
                && line.is_compliant == Some(attestation.is_compliant)
        });
        let counts = deciding.contains(attestation.id.as_str());
        let superseded = is_superseded(attestation, artifacts, attestations);
        assert_eq!(counts, !superseded, "{} of {artifacts:?} {attestations:?}", attestation.id);
        assert!(is_listed || superseded, "{} of {artifacts:?} {attestations:?}", attestation.id);
        if !superseded && !attestation.is_compliant {
            assert_eq!(status.state, State::NonCompliant, "{artifacts:?} {attestations:?}");
        }
    }
    let names = BTreeSet::from_iter(status.artifacts.iter().map(|artifact| &artifact.name));
    assert_eq!(names.len(), status.artifacts.len(), "{names:?}");
}

/// A name that spells a fingerprint replaces nothing that has it.
#[test]
fn a_name_that_spells_a_fingerprint_hides_nothing() {
    let content = |fingerprint: &str| Binding::Artifact { fingerprint: fingerprint.to_owned() };
    let unnamed = ReportedArtifact { fingerprint: "f1".into(), ..artifact("", 1) };
    let spelled = ReportedArtifact { fingerprint: "f2".into(), ..artifact("f1", 3) };
    let artifacts = [unnamed, spelled];
    let failing = [attestation("scan", false, content("f1"), 2)];
    for template in [Template::default(), template("trail: {artifacts: [{name: f1}]}")] {
        let status = evaluate(&template, BEGUN, &artifacts, &failing);
        assert_eq!(status.state, State::NonCompliant);
        let names = Vec::from_iter(status.artifacts.iter().map(|artifact| artifact.name.as_str()));
        assert_eq!(BTreeSet::from_iter(names), BTreeSet::from(["f1", "sha256:f1"]));
    }
}

/// Two artifacts of one name, one of them also without its commit, and an attestation of one name about either, by either
/// way, or about the trail.
#[test]
fn whatever_happens_in_whatever_order_no_failing_attestation_is_unlisted() {
    let bindings = || {
        let contents =
            ["f1", "f2"].map(|fingerprint| Binding::Artifact { fingerprint: fingerprint.to_owned() });
        [Binding::Trail, named("x", "c1"), named("x", "c2")].into_iter().chain(contents)
    };
    let built = |number: u64, index| ReportedArtifact {
        fingerprint: format!("f{number}"),
        commit: format!("c{number}"),
        ..artifact("x", index)
    };
    let attested = Vec::from_iter(bindings().flat_map(|binding| [(binding.clone(), true), (binding, false)]));
    let letters = attested.len() + 3;
    let templates = [
        Template::default(),
        template("trail: {artifacts: [{name: x, attestations: [{name: a, type: generic}]}]}"),
    ];
    for length in 1..=4 {
        for number in 0..letters.pow(length) {
            let (mut artifacts, mut attestations) = (Vec::new(), Vec::new());
            for place in 0..length {
                let index = u64::from(place);
                match number / letters.pow(place) % letters {
                    letter @ 0..2 => artifacts.push(built(letter as u64 + 1, index)),
                    2 => artifacts.push(ReportedArtifact { commit: String::new(), ..built(1, index) }),
                    letter => {
                        let (binding, verdict) = attested[letter - 3].clone();
                        attestations.push(attestation("a", verdict, binding, index));
                    }
                }
            }
            for template in &templates {
                expect_listed(template, &artifacts, &attestations);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_failing_attestation_is_ever_unlisted((artifacts, attestations) in arbitrary_reports()) {
        for template in [Template::default(), template_of_names()] {
            expect_listed(&template, &artifacts, &attestations);
        }
    }
}
