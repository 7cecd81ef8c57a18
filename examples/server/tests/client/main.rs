//! Runs the public command-line client against the server: the server accepts the requests of an independent
//! program, which finds and shows the results. `cargo xtask client` fetches the client, provides PostgreSQL,
//! and sets the paths of both.
//!
//! [`SCENARIOS`] has the commands of the client that each scenario covers, and [`NOT_RUN`] the reasons why
//! others do not run. A scenario runs on each store, and fails if it does not run the commands that it
//! covers. `-- flows` runs those with `flows` in their names, `-- sqlite` all of one store.

mod accounts;
mod artifacts;
mod attestations;
mod code_hosts;
mod controls;
mod custom_types;
mod environments;
mod fixture;
mod flows;
mod repos;
#[path = "../support/mod.rs"]
mod support;
mod trails;

use std::collections::BTreeSet;
use std::process::{Command, ExitCode};

use fixture::{Fixture, Store, client};
use libtest_mimic::{Arguments, Trial};

/// A sequence of commands of the client.
struct Scenario {
    name: &'static str,
    /// The commands whose effect and output it checks, for tables as well as for JSON.
    covers: &'static [&'static str],
    run: fn(&mut Fixture),
}

static SCENARIOS: [Scenario; 29] = [
    Scenario {
        name: "accounts::the_server_is_found_and_a_stranger_is_refused",
        covers: &["status", "assert status"],
        run: accounts::the_server_is_found_and_a_stranger_is_refused,
    },
    Scenario {
        name: "accounts::a_user_has_a_default_organization",
        covers: &["get default-org", "update default-org"],
        run: accounts::a_user_has_a_default_organization,
    },
    Scenario {
        name: "accounts::nothing_is_experimental",
        covers: &["enable beta", "disable beta"],
        run: accounts::nothing_is_experimental,
    },
    Scenario {
        name: "accounts::service_accounts",
        covers: &[
            "create service-account",
            "update service-account",
            "get service-account",
            "list service-accounts",
            "delete service-account",
        ],
        run: accounts::service_accounts,
    },
    Scenario {
        name: "accounts::keys_of_service_accounts",
        covers: &["create api-key", "get api-key", "list api-keys", "rotate api-key", "delete api-key"],
        run: accounts::keys_of_service_accounts,
    },
    Scenario {
        name: "flows::a_flow_with_a_template",
        covers: &["create flow", "get flow"],
        run: flows::a_flow_with_a_template,
    },
    Scenario {
        name: "flows::a_flow_of_an_older_pipeline_has_a_list_of_names",
        covers: &["create flow", "get flow"],
        run: flows::a_flow_of_an_older_pipeline_has_a_list_of_names,
    },
    Scenario {
        name: "flows::flows_are_listed_searched_and_tagged",
        covers: &["list flows", "tag"],
        run: flows::flows_are_listed_searched_and_tagged,
    },
    Scenario {
        name: "flows::a_flow_is_renamed_and_archived",
        covers: &["rename flow", "archive flow"],
        run: flows::a_flow_is_renamed_and_archived,
    },
    Scenario {
        name: "trails::a_trail_and_what_happened_to_it",
        covers: &["begin trail", "get trail"],
        run: trails::a_trail_and_what_happened_to_it,
    },
    Scenario {
        name: "trails::trails_over_the_history_of_this_repository",
        covers: &["begin trail", "list trails"],
        run: trails::trails_over_the_history_of_this_repository,
    },
    Scenario {
        name: "trails::trails_are_evaluated_against_a_policy_of_the_clients",
        covers: &["evaluate trail", "evaluate trails"],
        run: trails::trails_are_evaluated_against_a_policy_of_the_clients,
    },
    Scenario {
        name: "artifacts::an_artifact_of_a_trail",
        covers: &["attest artifact", "get artifact", "list artifacts"],
        run: artifacts::an_artifact_of_a_trail,
    },
    Scenario {
        name: "artifacts::an_artifact_of_an_older_pipeline_has_no_trail",
        covers: &["report artifact", "get artifact", "search"],
        run: artifacts::an_artifact_of_an_older_pipeline_has_no_trail,
    },
    Scenario {
        name: "artifacts::artifacts_are_found_by_fingerprint_and_commit",
        covers: &["search"],
        run: artifacts::artifacts_are_found_by_fingerprint_and_commit,
    },
    Scenario {
        name: "attestations::a_trail_becomes_compliant_by_what_is_attested",
        covers: &["attest generic", "attest junit", "get attestation"],
        run: attestations::a_trail_becomes_compliant_by_what_is_attested,
    },
    Scenario {
        name: "attestations::a_scan_is_overridden",
        covers: &["attest snyk", "attest override"],
        run: attestations::a_scan_is_overridden,
    },
    Scenario {
        name: "attestations::a_bill_of_materials",
        covers: &["attest sbom"],
        run: attestations::a_bill_of_materials,
    },
    Scenario {
        name: "code_hosts::pull_requests_of_each_code_host",
        covers: &["attest pullrequest github", "attest pullrequest gitlab", "attest pullrequest azure"],
        run: code_hosts::pull_requests_of_each_code_host,
    },
    Scenario {
        name: "code_hosts::issues_and_quality_gates",
        covers: &["attest jira", "attest sonar"],
        run: code_hosts::issues_and_quality_gates,
    },
    Scenario {
        name: "custom_types::a_custom_type_and_its_versions",
        covers: &["create attestation-type", "get attestation-type", "list attestation-types"],
        run: custom_types::a_custom_type_and_its_versions,
    },
    Scenario {
        name: "custom_types::a_custom_type_decides_until_it_is_archived",
        covers: &["attest custom", "archive attestation-type"],
        run: custom_types::a_custom_type_decides_until_it_is_archived,
    },
    Scenario {
        name: "controls::a_control_and_the_decisions_about_it",
        covers: &[
            "create control",
            "update control",
            "get control",
            "list controls",
            "archive control",
            "unarchive control",
            "attest decision",
            "tag",
        ],
        run: controls::a_control_and_the_decisions_about_it,
    },
    Scenario {
        name: "repos::a_repo_and_what_was_built_of_it",
        covers: &["get repo", "list repos", "list artifacts", "tag"],
        run: repos::a_repo_and_what_was_built_of_it,
    },
    Scenario {
        name: "environments::an_environment_its_snapshots_and_what_is_allowed_there",
        covers: &[
            "create environment",
            "join environment",
            "get environment",
            "list environments",
            "snapshot server",
            "snapshot path",
            "snapshot paths",
            "list snapshots",
            "get snapshot",
            "allow artifact",
        ],
        run: environments::an_environment_its_snapshots_and_what_is_allowed_there,
    },
    Scenario {
        name: "environments::a_policy_decides_whether_a_snapshot_complies",
        covers: &[
            "create policy",
            "attach-policy",
            "get policy",
            "list policies",
            "assert snapshot",
            "assert artifact",
        ],
        run: environments::a_policy_decides_whether_a_snapshot_complies,
    },
    Scenario {
        name: "environments::an_environment_is_renamed_and_archived",
        covers: &["rename environment", "archive environment", "detach-policy"],
        run: environments::an_environment_is_renamed_and_archived,
    },
    Scenario {
        name: "environments::what_happened_is_logged_and_compared",
        covers: &["log environment", "diff snapshots"],
        run: environments::what_happened_is_logged_and_compared,
    },
    Scenario {
        name: "environments::an_environment_is_tagged",
        covers: &["tag"],
        run: environments::an_environment_is_tagged,
    },
];

/// The commands that no scenario covers, with the reasons.
const NOT_RUN: [(&str, &str); 19] = [
    ("snapshot azure", CLOUD),
    ("snapshot cloud-run", CLOUD),
    (
        "snapshot docker",
        "needs a container engine; its report is that of `snapshot server` under another path",
    ),
    ("snapshot ecs", CLOUD),
    ("snapshot k8s", CLOUD),
    ("snapshot lambda", CLOUD),
    ("snapshot s3", CLOUD),
    ("attest pullrequest bitbucket", "asks api.bitbucket.org alone: `code_hosts` sends what it would"),
    ("assert pullrequest azure", CODE_HOST),
    ("assert pullrequest bitbucket", CODE_HOST),
    ("assert pullrequest github", CODE_HOST),
    ("assert pullrequest gitlab", CODE_HOST),
    ("completion", LOCAL),
    ("config", LOCAL),
    ("docs", LOCAL),
    ("evaluate input", LOCAL),
    ("fingerprint", LOCAL),
    ("help", LOCAL),
    ("version", LOCAL),
];
const CLOUD: &str = "asks a cloud what runs there; the reports are those of the API's tests";
const CODE_HOST: &str = "asks the code host, and no server of evidence";
const LOCAL: &str = "asks no server";

/// The commands that no help text of the client lists.
const HIDDEN: [&str; 4] = ["attest override", "docs", "report artifact", "snapshot server"];

/// Returns every command above.
fn known_commands() -> BTreeSet<&'static str> {
    let covered = SCENARIOS.iter().flat_map(|scenario| scenario.covers).copied();
    covered.chain(NOT_RUN.map(|(command, _)| command)).collect()
}

/// Returns the commands with an effect below this one, by the client's help texts.
fn listed_below(command: &str) -> Vec<String> {
    let output = Command::new(client()).args(command.split_whitespace()).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let Some((_, rest)) = help.split_once("Available Commands:\n") else {
        return vec![command.to_owned()];
    };
    let (list, _) = rest.split_once("\nFlags:\n").unwrap_or((rest, ""));
    // A long description continues at the beginning of a line.
    let listed = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    listed.flat_map(|word| listed_below(format!("{command} {word}").trim())).collect()
}

/// A command that a new version of the client adds or removes needs a line above.
fn every_command_of_the_client_is_accounted_for() {
    let listed = Vec::from_iter(listed_below("").into_iter().chain(HIDDEN.map(str::to_owned)));
    let listed = BTreeSet::from_iter(listed.iter().map(String::as_str));
    let known = known_commands();
    assert_eq!(listed.difference(&known).collect::<Vec<_>>(), [&""; 0], "no scenario covers these");
    assert_eq!(known.difference(&listed).collect::<Vec<_>>(), [&""; 0], "the client has none of these");
}

fn main() -> ExitCode {
    let trial = |scenario: &'static Scenario, store: Store| {
        Trial::test(format!("{}::{}", store.name(), scenario.name), move || {
            let mut fixture = Fixture::new(store);
            (scenario.run)(&mut fixture);
            fixture.expect_covered(scenario.covers);
            Ok(())
        })
    };
    let on_each_store = [Store::Sqlite, Store::Postgresql]
        .into_iter()
        .flat_map(|store| SCENARIOS.iter().map(move |scenario| trial(scenario, store)));
    let accounted = Trial::test("every_command_of_the_client_is_accounted_for", || {
        every_command_of_the_client_is_accounted_for();
        Ok(())
    });
    let trials = on_each_store.chain([accounted]).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
