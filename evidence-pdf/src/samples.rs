//! Sample reports for the tests: a usual trail, an empty one, a large one, and one full of hostile text.

use crate::{
    Approver, Artifact, Attachment, Attestation, Commit, Details, Event, Expectation, ExpectationStatus,
    LedgerPosition, PullRequest, Run, Suite, TrailReport,
};
use evidence_values::state::State;
use evidence_values::time::Timestamp;

/// 2026-11-20 14:03:22 UTC.
const START: i64 = 1_795_183_402_000_000;

/// Returns a time some seconds after the start of the sample trail.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(START + seconds * 1_000_000)
}

/// Returns hex digits derived from a seed.
fn hex(seed: u64, digits: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..digits)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from_digit((state >> 20) as u32 % 16, 16).unwrap_or('0')
        })
        .collect()
}

fn commit(seed: u64, message: &str) -> Commit {
    let sha1 = hex(seed, 40);
    Commit {
        url: format!("https://git.example.com/acme/payments-api/commit/{sha1}"),
        sha1,
        author: "Ada Lovelace <ada@example.com>".to_owned(),
        message: message.to_owned(),
        branch: "main".to_owned(),
        timestamp: Some(at(-900)),
    }
}

fn expectation(artifact: Option<&str>, name: &str, kind: &str, status: ExpectationStatus) -> Expectation {
    let known = status != ExpectationStatus::Missing;
    Expectation {
        scope: artifact.map(str::to_owned),
        name: name.to_owned(),
        kind: kind.to_owned(),
        status,
        unexpected: false,
        at: known.then(|| at(120)),
        by: if known { "ci-pipelines" } else { "" }.to_owned(),
        override_info: String::new(),
    }
}

fn attestation(seed: u64, name: &str, kind: &str, target: &str) -> Attestation {
    Attestation {
        id: format!("{}-{}-{}", hex(seed, 8), hex(seed + 1, 4), hex(seed + 2, 8)),
        name: name.to_owned(),
        kind: kind.to_owned(),
        is_compliant: true,
        at: at(60 + i64::try_from(seed).unwrap_or(0)),
        by: "ci-pipelines".to_owned(),
        target: target.to_owned(),
        description: String::new(),
        origin_url: "https://ci.example.com/acme/payments-api/runs/48213".to_owned(),
        annotations: Vec::new(),
        commit: None,
        details: Details::None,
        user_data: None,
        superseded: false,
        override_info: String::new(),
    }
}

fn pull_request() -> PullRequest {
    PullRequest {
        url: "https://git.example.com/acme/payments-api/pull/318".to_owned(),
        state: "MERGED".to_owned(),
        title: "Retry idempotent settlements after a gateway timeout".to_owned(),
        author: "ada".to_owned(),
        head_ref: "fix/settlement-retry".to_owned(),
        merge_commit: hex(1, 40),
        created_at: Some(at(-86_400)),
        merged_at: Some(at(-950)),
        approvers: vec![
            Approver { name: "grace".to_owned(), state: "APPROVED".to_owned(), at: Some(at(-3_600)) },
            Approver {
                name: "Łukasz Żółć".to_owned(),
                state: "CHANGES_REQUESTED".to_owned(),
                at: Some(at(-7_200)),
            },
        ],
        commits: vec![
            commit(11, "Retry settlements that are safe to repeat"),
            commit(12, "Name the timeout in the log\n\nThe gateway team asked for it."),
        ],
    }
}

fn suites() -> Vec<Suite> {
    let suite = |name: &str, total, failures, skipped, duration| Suite {
        name: name.to_owned(),
        total,
        failures,
        errors: 0,
        skipped,
        duration,
    };
    vec![
        suite("com.acme.payments.SettlementTest", 1_284, 0, 3, 48.211),
        suite("com.acme.payments.gateway.TimeoutAndRetryIntegrationTest", 96, 2, 0, 311.5),
        suite("com.acme.payments.api.ContractTest", 210, 0, 0, 12.07),
    ]
}

/// Returns a realistic trail with one finding.
pub(crate) fn usual() -> TrailReport {
    let fingerprint = hex(7, 64);
    let target = format!("payments-api (sha256 {}…)", fingerprint.get(..12).unwrap_or_default());
    let change = commit(
        1,
        "Retry idempotent settlements after a gateway timeout (#318)\n\nA timeout no longer loses the settlement: the request carries a key, and the gateway answers the second attempt like the first.",
    );
    TrailReport {
        organization: "acme".to_owned(),
        flow: "payments-api".to_owned(),
        trail: format!("release-{}", hex(1, 12)),
        description: "Build, test and release of the payments API after the gateway outage of 18 November.".to_owned(),
        state: State::NonCompliant,
        state_info: String::new(),
        origin_url: "https://ci.example.com/acme/payments-api/runs/48213".to_owned(),
        html_url: Some("https://evidence.example.com/acme/flows/payments-api/trails/release-1".to_owned()),
        created_at: at(0),
        created_by: "ci-pipelines".to_owned(),
        last_modified_at: at(5_400),
        commit: Some(change.clone()),
        ledger: LedgerPosition {
            index: 48_211,
            leaf_hash: hex(21, 64),
            size: 48_212,
            root: hex(22, 64),
        },
        expectations: vec![
            expectation(None, "pull-request", "pull_request", ExpectationStatus::Compliant),
            expectation(None, "risk-review", "generic", ExpectationStatus::Missing),
            expectation(Some("payments-api"), "unit-tests", "junit", ExpectationStatus::NonCompliant),
            expectation(Some("payments-api"), "vulnerability-scan", "snyk", ExpectationStatus::Compliant),
            expectation(Some("payments-api"), "sbom", "generic", ExpectationStatus::Compliant),
            Expectation {
                unexpected: true,
                ..expectation(Some("payments-api"), "load-test", "custom:load", ExpectationStatus::Compliant)
            },
        ],
        attestations: vec![
            Attestation {
                details: Details::PullRequests(vec![pull_request()]),
                commit: Some(change.clone()),
                ..attestation(1, "pull-request", "pull_request", "trail")
            },
            Attestation {
                is_compliant: false,
                superseded: true,
                description: "First run, before the flaky gateway stub was fixed.".to_owned(),
                ..attestation(2, "unit-tests", "junit", &target)
            },
            Attestation {
                is_compliant: false,
                details: Details::Suites(suites()),
                ..attestation(3, "unit-tests", "junit", &target)
            },
            Attestation {
                details: Details::Facts(vec![
                    ("Critical".to_owned(), "0".to_owned()),
                    ("High".to_owned(), "0".to_owned()),
                    ("Medium".to_owned(), "4".to_owned()),
                ]),
                annotations: vec![("scanner_version".to_owned(), "1.1294.0".to_owned())],
                ..attestation(4, "vulnerability-scan", "snyk", &target)
            },
            Attestation {
                description: "Software bill of materials, CycloneDX 1.6.".to_owned(),
                ..attestation(5, "sbom", "generic", &target)
            },
            Attestation {
                user_data: Some("{\n  \"requests\": 120000,\n  \"p99_ms\": 41.7,\n  \"profile\": {\n    \"name\": \"black-friday\",\n    \"ramp\": \"10m\"\n  }\n}".to_owned()),
                ..attestation(6, "load-test", "custom:load", &target)
            },
        ],
        artifacts: vec![Artifact {
            name: "payments-api".to_owned(),
            filename: "registry.example.com/acme/payments-api:2.14.0".to_owned(),
            fingerprint,
            state: "NON-COMPLIANT".to_owned(),
            state_info: String::new(),
            commit: Some(change),
            build_url: "https://ci.example.com/acme/payments-api/runs/48213".to_owned(),
            at: at(45),
            by: "ci-pipelines".to_owned(),
            runs: Some(vec![
                Run {
                    environment: "staging".to_owned(),
                    from_snapshot: 1_882,
                    since: at(1_800),
                    until: Some((1_890, at(4_800))),
                },
                Run {
                    environment: "production-eu".to_owned(),
                    from_snapshot: 907,
                    since: at(5_400),
                    until: None,
                },
            ]),
        }],
        newest_runs: None,
        events: events(&["Trail reported", "Artifact payments-api reported", "Attestation pull-request reported: COMPLIANT", "Attestation unit-tests reported for artifact payments-api: NON-COMPLIANT", "Artifact payments-api started running in staging, snapshot 1882"]),
        attachments: vec![Attachment {
            attestation: "sbom".to_owned(),
            file_name: "payments-api-2.14.0.cdx.json".to_owned(),
            media_type: "application/json".to_owned(),
            size: 1_482_013,
            sha256: hex(31, 64),
        }],
    }
}

fn events(texts: &[&str]) -> Vec<Event> {
    (0..)
        .zip(texts)
        .map(|(minute, text)| Event {
            at: at(minute * 60),
            text: (*text).to_owned(),
            by: "ci-pipelines".to_owned(),
        })
        .collect()
}

/// Returns a trail that has just begun.
pub(crate) fn empty() -> TrailReport {
    TrailReport {
        organization: "acme".to_owned(),
        flow: "payments-api".to_owned(),
        trail: "new".to_owned(),
        description: String::new(),
        state: State::Incomplete,
        state_info: String::new(),
        origin_url: String::new(),
        html_url: None,
        created_at: at(0),
        created_by: "ada".to_owned(),
        last_modified_at: at(0),
        commit: None,
        ledger: LedgerPosition { index: 0, leaf_hash: hex(1, 64), size: 1, root: hex(1, 64) },
        expectations: Vec::new(),
        attestations: Vec::new(),
        artifacts: Vec::new(),
        newest_runs: None,
        events: Vec::new(),
        attachments: Vec::new(),
    }
}

/// Returns the usual trail with this number of attestations, expectations and events.
pub(crate) fn large(attestations: u32) -> TrailReport {
    let mut report = usual();
    let slots = (0..attestations).map(u64::from);
    report.expectations.extend(slots.clone().map(|n| {
        expectation(Some("services"), &format!("check-{n:04}"), "generic", ExpectationStatus::Compliant)
    }));
    report.events.extend(slots.clone().map(|n| Event {
        at: at(i64::try_from(n).unwrap_or(0)),
        text: format!("Attestation check-{n:04} reported: COMPLIANT"),
        by: "ci-pipelines".to_owned(),
    }));
    report.attestations.extend(slots.map(|n| Attestation {
        details: match n % 4 {
            0 => Details::Suites(suites()),
            1 => Details::PullRequests(vec![pull_request()]),
            2 => Details::Facts(vec![("Rule".to_owned(), format!("R-{n}"))]),
            _ => Details::None,
        },
        ..attestation(n, &format!("check-{n:04}"), "generic", "trail")
    }));
    report
}

/// Returns the usual trail with one text in every text field.
pub(crate) fn with_text_everywhere(text: &str) -> TrailReport {
    let any = || text.to_owned();
    let commit =
        || Commit { sha1: any(), author: any(), message: any(), branch: any(), timestamp: None, url: any() };
    let details = vec![
        Details::PullRequests(vec![PullRequest {
            url: any(),
            state: any(),
            title: any(),
            author: any(),
            head_ref: any(),
            merge_commit: any(),
            created_at: None,
            merged_at: Some(Timestamp::from_micros(i64::MAX)),
            approvers: vec![Approver {
                name: any(),
                state: any(),
                at: Some(Timestamp::from_micros(i64::MIN)),
            }],
            commits: vec![commit()],
        }]),
        Details::Suites(vec![Suite {
            name: any(),
            total: i64::MAX,
            failures: i64::MIN,
            errors: 1,
            skipped: i64::MIN,
            duration: f64::MAX,
        }]),
        Details::Facts(vec![(any(), any())]),
        Details::None,
    ];
    let attestation = |details| Attestation {
        id: any(),
        name: any(),
        kind: any(),
        by: any(),
        target: any(),
        description: any(),
        origin_url: any(),
        annotations: vec![(any(), any())],
        commit: Some(commit()),
        details,
        user_data: Some(any()),
        ..attestation(1, "", "", "")
    };
    TrailReport {
        organization: any(),
        flow: any(),
        trail: any(),
        description: any(),
        state_info: any(),
        origin_url: any(),
        html_url: Some(any()),
        created_by: any(),
        commit: Some(Commit { timestamp: Some(at(0)), ..commit() }),
        ledger: LedgerPosition { index: u64::MAX, leaf_hash: any(), size: u64::MAX, root: any() },
        expectations: vec![Expectation {
            by: any(),
            ..expectation(Some(text), text, text, ExpectationStatus::NonCompliant)
        }],
        attestations: details.into_iter().map(attestation).collect(),
        artifacts: vec![Artifact {
            name: any(),
            filename: any(),
            fingerprint: any(),
            state: any(),
            state_info: any(),
            commit: Some(commit()),
            build_url: any(),
            at: at(0),
            by: any(),
            runs: Some(vec![Run { environment: any(), from_snapshot: u64::MAX, since: at(0), until: None }]),
        }],
        events: vec![Event { at: at(0), text: any(), by: any() }],
        attachments: vec![Attachment {
            attestation: any(),
            file_name: any(),
            media_type: any(),
            size: u64::MAX,
            sha256: any(),
        }],
        ..empty()
    }
}
