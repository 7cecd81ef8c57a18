//! Custom attestation types.

use serde_json::json;

use crate::attestations::{read, shown};
use crate::fixture::{Fixture, TO};

pub(crate) fn a_custom_type_and_its_versions(fixture: &mut Fixture) {
    let list = ["list", "attestation-types"];
    fixture.prints(&list, "No attestation types were found.");
    assert_eq!(fixture.reads(&list), json!([]));
    fixture.says(&["create", "attestation-type", "review"], "attestation-type review was created");
    let schema = fixture.file("schema.json", r#"{"type": "object", "required": ["age"]}"#);
    let create = ["create", "attestation-type", "person", "--description", "Of age", "--schema", &schema];
    let rules = ["--jq", ".age >= 18", "--jq", ".age < 120", "--summary", "Age=.age"];
    fixture.says(&[&create[..], &rules].concat(), "attestation-type person was created");
    let version = "Version: 1\nTimestamp: THEN\nCreated By: jane\n\
        Type schema: {\"required\":[\"age\"],\"type\":\"object\"}\n\
        Evaluator:\nContent Type: jq\nRules:\n.age >= 18\n.age < 120\nSummary:\nAge: .age";
    fixture.prints(
        &["get", "attestation-type", "person"],
        &format!(
            "Name: person\nDescription: Of age\nOrganization: acme\nArchived: false\nCreated By: jane\n\
             Created at: THEN\nLast modified at: THEN\nVersions:\n{version}"
        ),
    );
    let person = fixture.reads(&["get", "attestation-type", "person"]);
    assert_eq!(
        person["versions"][0]["evaluator"],
        json!({"content_type": "jq", "rules": [".age >= 18", ".age < 120"]})
    );

    // Creating the type again creates another version.
    let summary = r#"[{"name": "Approved", "expression": ".approved"}]"#;
    let again = ["create", "attestation-type", "review", "--jq", ".approved", "--summary-json", summary];
    fixture.says(&again, "attestation-type review was created");
    let first = "Version: 1\nTimestamp: THEN\nCreated By: jane\nEvaluator:\nContent Type: default";
    let second = "Version: 2\nTimestamp: THEN\nCreated By: jane\nEvaluator:\nContent Type: jq\nRules:\n.approved\n\
        Summary:\nApproved: .approved";
    fixture.prints(
        &["get", "attestation-type", "review"],
        &format!(
            "Name: review\nOrganization: acme\nArchived: false\nCreated By: jane\nCreated at: THEN\n\
             Last modified at: THEN\nVersions:\n{second}\n{first}"
        ),
    );
    let of_first = ["get", "attestation-type", "review@v1"];
    fixture
        .prints(&of_first, &format!("Name: review\nOrganization: acme\nArchived: false\nVersions:\n{first}"));
    assert_eq!(fixture.reads(&of_first)["versions"].as_array().unwrap().len(), 1);
    fixture.prints(&list, "NAME DESCRIPTION LATEST VERSION\nperson Of age 1\nreview 2");
    assert_eq!(fixture.reads(&list).as_array().unwrap().len(), 2);

    let unknown = "Custom attestation type 'foo' does not exist for org 'acme'";
    fixture.refuses(&["get", "attestation-type", "foo"], unknown);
    fixture.refuses(
        &["get", "attestation-type", "review@v10"],
        "version 10 does not exist for custom attestation type 'review'",
    );
    fixture.refuses(
        &["create", "attestation-type", "broken", "--jq", ".["],
        "Input payload validation failed: map[evaluator.rules[0]:…",
    );
}

pub(crate) fn a_custom_type_decides_until_it_is_archived(fixture: &mut Fixture) {
    fixture.begin();
    let schema = fixture.file("schema.json", r#"{"type": "object", "required": ["age"]}"#);
    fixture.does(&["create", "attestation-type", "person", "--schema", &schema, "--jq", ".age >= 18"]);
    let attest = |kind, name, data| {
        let attest = ["attest", "custom", "--type", kind, "--name", name, "--attestation-data", data];
        [&attest[..], &TO].concat()
    };
    let (old, young) =
        (fixture.file("old.json", r#"{"age": 20}"#), fixture.file("young.json", r#"{"age": 3}"#));
    for (name, data, is_compliant) in [("old", &old, true), ("young", &young, false)] {
        let said = format!("custom:person attestation '{name}' is reported to trail: trail-1");
        fixture.says(&attest("person", name, data), &said);
        fixture.prints(&read(name), &shown(name, "custom:person", is_compliant));
        assert_eq!(fixture.reads(&read(name))[0]["is_compliant"], is_compliant);
    }
    let nobody = fixture.file("nobody.json", "{}");
    fixture.refuses(
        &attest("person", "nobody", &nobody),
        "Input payload validation failed: map[attestation_data:\"age\" is a required property]",
    );
    let unknown = "Custom attestation type 'foo' does not exist for org 'acme'";
    fixture.refuses(&attest("foo", "x", &old), unknown);
    fixture.refuses(&["archive", "attestation-type", "foo"], unknown);

    let archived = "Custom attestation type person was archived";
    fixture.says(&["archive", "attestation-type", "person"], archived);
    fixture.prints(&["list", "attestation-types"], "No attestation types were found.");
    assert_eq!(fixture.reads(&["get", "attestation-type", "person"])["archived"], true);
    fixture.refuses(
        &attest("person", "late", &old),
        "Custom attestation type 'person' is archived for org 'acme'…",
    );
    fixture.prints(&read("old"), &shown("old", "custom:person", true));
}
