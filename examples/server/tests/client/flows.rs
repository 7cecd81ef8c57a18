//! Flows.

use serde_json::json;

use crate::fixture::{Fixture, TEMPLATE, TO};

pub(crate) fn a_flow_with_a_template(fixture: &mut Fixture) {
    fixture.create_flow();
    let template = fixture.file("template.yml", TEMPLATE);
    let put = ["create", "flow", "delivery", "--template-file", &template, "--description", "Ships"];
    fixture.says(&put, "flow 'delivery' was updated");
    let get = ["get", "flow", "delivery"];
    fixture.prints(
        &get,
        &format!(
            "Name: delivery\nDescription: Ships\nTemplate:\n{TEMPLATE}\nLast Deployment At: N/A\nTags: None"
        ),
    );
    let flow = fixture.reads(&get);
    assert_eq!(flow["template"], TEMPLATE);
    assert_eq!((&flow["visibility"], &flow["org"]), (&json!("private"), &json!("acme")));

    fixture.says(&["create", "flow", "empty", "--use-empty-template"], "flow 'empty' was created");
    fixture.prints(
        &["get", "flow", "empty"],
        "Name: empty\nDescription:\nTemplate:\nversion: 1\nLast Deployment At: N/A\nTags: None",
    );
    assert_eq!(fixture.reads(&["get", "flow", "empty"])["template"], "version: 1");

    let wrong = "version: 1\ntrail:\n  attestations: [{name: bar, type: not-supported}, {type: generic}]\n";
    let wrong = fixture.file("wrong.yml", wrong);
    fixture.refuses(
        &["create", "flow", "wrong", "--template-file", &wrong],
        "Input payload validation failed: map[template_file:2 validation errors for Template\n\
         trail.attestations[0].type: Input should be …",
    );
    let pattern = r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\.\-_~]*$' [input: foo bar]";
    fixture.refuses(
        &["create", "flow", "foo bar", "--use-empty-template"],
        &format!("Input payload validation failed: map[name:{pattern}]"),
    );
    let unknown = "Flow named 'non-existing' does not exist for organization 'acme'";
    fixture.refuses(&["get", "flow", "non-existing"], unknown);
}

/// The client still sends lists of names instead of a template.
pub(crate) fn a_flow_of_an_older_pipeline_has_a_list_of_names(fixture: &mut Fixture) {
    let create = ["create", "flow", "older", "--template", "unit-tests,scan", "--description", "Old"];
    fixture.says(&create, "flow 'older' was created");
    fixture.says(&create, "flow 'older' was updated");
    let get = ["get", "flow", "older"];
    fixture.prints(
        &get,
        "Name: older\nDescription: Old\nTemplate: [unit-tests, scan, artifact]\nLast Deployment At: N/A\nTags: None",
    );
    assert_eq!(fixture.reads(&get)["template"], json!(["unit-tests", "scan", "artifact"]));
    fixture.says(&["create", "flow", "older"], "flow 'older' was updated");
    assert_eq!(fixture.reads(&get)["template"], json!(["artifact"]));
    // A flow with names becomes one with a template.
    fixture.says(&["create", "flow", "older", "--use-empty-template"], "flow 'older' was updated");
    assert_eq!(fixture.reads(&get)["template"], "version: 1");
    let pattern = r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\.\-_~]*$' [input: foo bar]";
    fixture.refuses(
        &["create", "flow", "foo bar"],
        &format!("Input payload validation failed: map[name:{pattern}]"),
    );
}

pub(crate) fn flows_are_listed_searched_and_tagged(fixture: &mut Fixture) {
    let list = |options: &[&'static str]| [&["list", "flows"], options].concat();
    fixture.prints(&list(&[]), "No flows were found.");
    assert_eq!(fixture.reads(&list(&[])), json!([]));
    for flow in ["web", "api", "web-admin"] {
        fixture.does(&["create", "flow", flow, "--use-empty-template", "--description", "Ships"]);
    }
    let head = "NAME DESCRIPTION TAGS";
    fixture.prints(&list(&[]), &format!("{head}\napi Ships\nweb Ships\nweb-admin Ships"));
    assert_eq!(fixture.reads(&list(&[]))[2]["name"], "web-admin");
    let paged = list(&["--page", "2", "--page-limit", "2"]);
    fixture.prints(&paged, &format!("{head}\nweb-admin Ships\nShowing page 2 of 2, total 3 items"));
    let found = fixture.reads(&paged);
    assert_eq!(found["pagination"], json!({"total": 3, "page": 2, "per_page": 2, "page_count": 2}));
    assert_eq!(found["data"][0]["name"], "web-admin");
    fixture.prints(&list(&["--page", "99"]), "No flows were found at page number 99.");
    fixture.prints(&list(&["--name", "eb"]), &format!("{head}\nweb Ships\nweb-admin Ships"));
    fixture.prints(&list(&["--name", "ADMIN"]), "No flows were found.");
    let folded = list(&["--name", "ADMIN", "--ignore-case"]);
    fixture.prints(&folded, &format!("{head}\nweb-admin Ships"));
    assert_eq!(fixture.reads(&folded)[0]["name"], "web-admin");

    let set = ["tag", "flow", "web", "--set", "team=a", "--set", "tier=one"];
    fixture.says(&set, "Tag(s) [team, tier] added for flow 'web'");
    fixture.says(&["tag", "flows", "web", "--unset", "tier"], "Tag(s) [tier] removed for flows 'web'");
    // Removing a missing tag succeeds.
    fixture.does(&["tag", "flow", "web", "--unset", "tier"]);
    assert_eq!(fixture.reads(&["get", "flow", "web"])["tags"], json!({"team": "a"}));
    fixture.says(&["get", "flow", "web"], "[team=a]");
    fixture.says(&list(&["--name", "web"]), "team=a");
    fixture.refuses(
        &["tag", "flow", "nowhere", "--set", "a=b"],
        "\"Flow 'nowhere' does not exist in organization 'acme'\"",
    );
}

pub(crate) fn a_flow_is_renamed_and_archived(fixture: &mut Fixture) {
    fixture.begin();
    let rename = ["rename", "flow", "delivery", "shipping"];
    fixture.says(&rename, "flow delivery was renamed to shipping");
    // The former name still leads to the flow, also for reports.
    assert_eq!(fixture.reads(&["get", "flow", "delivery"])["name"], "shipping");
    fixture
        .says(&[&["attest", "generic", "--name", "late"], &TO[..]].concat(), "'late' is reported to trail");
    fixture.says(&["get", "trail", "trail-1", "--flow", "shipping"], "reported for late on the trail");
    let unknown = "Flow named 'non-existing' does not exist for organization 'acme'";
    fixture.refuses(&["rename", "flow", "non-existing", "other"], unknown);
    let pattern = r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\.\-_~]*$' [input: new illegal name]";
    fixture.refuses(
        &["rename", "flow", "shipping", "new illegal name"],
        &format!("Input payload validation failed: map[new_name:{pattern}]"),
    );
    fixture.does(&["create", "flow", "taken", "--use-empty-template"]);
    fixture.refuses(
        &["rename", "flow", "shipping", "taken"],
        "Input payload validation failed: map[new_name:'taken' is the name of another flow]",
    );

    fixture.says(&["archive", "flow", "shipping"], "flow shipping was archived");
    fixture.prints(&["list", "flows"], "NAME DESCRIPTION TAGS\ntaken");
    let gone = "Flow named 'shipping' does not exist for organization 'acme'";
    fixture.refuses(&["get", "flow", "shipping"], gone);
    fixture.refuses(&["archive", "flow", "shipping"], gone);
}
