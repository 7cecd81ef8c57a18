//! Controls and decisions about them.

use serde_json::json;

use crate::attestations::{read, shown};
use crate::fixture::{Fixture, TO};

pub(crate) fn a_control_and_the_decisions_about_it(fixture: &mut Fixture) {
    let list = |options: &[&'static str]| [&["list", "controls"], options].concat();
    fixture.prints(&list(&[]), "No controls were found.");
    let create = ["create", "control", "SDLC-1", "--name", "Reviewed", "--description", "By somebody else"];
    fixture.says(&create, "control SDLC-1 was created");
    // The response has the only such status that the client does not retry.
    let exists = "A control with identifier 'SDLC-1' already exists in organization 'acme'";
    fixture.refuses(&create, exists);
    let pattern = r"String should match pattern '^[a-zA-Z0-9\-._~]+$' [input: bad identifier]";
    fixture.refuses(
        &["create", "control", "bad identifier", "--name", "x"],
        &format!("Input payload validation failed: map[identifier:{pattern}]"),
    );
    let get = ["get", "control", "SDLC-1"];
    let head = "Identifier: SDLC-1\nName: Reviewed";
    let made = "Archived: false\nCreated by: jane\nCreated at: THEN";
    fixture.prints(&get, &format!("{head}\nDescription: By somebody else\nVersion: 1\n{made}"));
    let update = ["update", "control", "SDLC-1", "--description", "By a peer", "--link", "doc=https://x.org"];
    fixture.says(&update, "control SDLC-1 was updated");
    fixture.prints(
        &get,
        &format!("{head}\nDescription: By a peer\nVersion: 2\n{made}\nLinks:\ndoc: https://x.org"),
    );
    let tag = ["tag", "control", "SDLC-1", "--set", "framework=own"];
    fixture.says(&tag, "Tag(s) [framework] added for control 'SDLC-1'");
    let control = fixture.reads(&get);
    assert_eq!((&control["name"], &control["tags"]), (&json!("Reviewed"), &json!({"framework": "own"})));
    assert_eq!(control["links"], json!({"doc": "https://x.org"}));

    fixture.does(&["create", "control", "SDLC-2", "--name", "Tested"]);
    let columns = "IDENTIFIER NAME DESCRIPTION CREATED AT";
    let (first, second) = ("SDLC-1 Reviewed By a peer THEN", "SDLC-2 Tested THEN");
    let one = "Showing page 1 of 1, total 1 controls";
    fixture
        .prints(&list(&[]), &format!("{columns}\n{first}\n{second}\nShowing page 1 of 1, total 2 controls"));
    let reversed = list(&["--sort-direction", "desc"]);
    fixture
        .prints(&reversed, &format!("{columns}\n{second}\n{first}\nShowing page 1 of 1, total 2 controls"));
    for found in
        [list(&["--search", "rev"]), list(&["--tag", "framework:own"]), list(&["--tag", "framework"])]
    {
        fixture.prints(&found, &format!("{columns}\n{first}\n{one}"));
    }
    let paged = list(&["--page", "2", "--page-limit", "1"]);
    fixture.prints(&paged, &format!("{columns}\n{second}\nShowing page 2 of 2, total 2 controls"));
    let found = fixture.reads(&paged);
    assert_eq!(
        (&found["page"], &found["per_page"], &found["total_count"]),
        (&json!(2), &json!(1), &json!(2))
    );
    fixture.prints(&list(&["--page", "99"]), "No controls were found at page number 99.");

    fixture.begin();
    let decide = |name, control, verdict| {
        let decide = ["attest", "decision", "--name", name, "--control", control, verdict];
        let said = format!("decision attestation '{name}' is reported to trail: trail-1");
        fixture.says(&[&decide[..], &TO].concat(), &said);
    };
    decide("review", "SDLC-1", "--compliant=false");
    fixture.prints(&read("review"), &shown("review", "system:decision", false));
    decide("review", "SDLC-1", "--compliant=true");
    let found = fixture.reads(&read("review"));
    assert_eq!((&found[0]["is_compliant"], &found[1]["is_compliant"]), (&json!(true), &json!(false)));
    // About a control that does not exist.
    decide("other", "RCTL-043", "--compliant=true");
    fixture.prints(&read("other"), &shown("other", "system:decision", true));

    fixture.says(&["archive", "control", "SDLC-1"], "control SDLC-1 was archived");
    fixture.prints(&list(&[]), &format!("{columns}\n{second}\n{one}"));
    fixture.prints(&list(&["--archived"]), &format!("{columns}\n{first}\n{one}"));
    assert_eq!(fixture.reads(&get)["archived"], true);
    fixture.refuses(&create, exists);
    fixture.says(&["unarchive", "control", "SDLC-1"], "control SDLC-1 was unarchived");
    fixture.prints(&list(&["--archived"]), "No controls were found.");

    let unknown = "Control 'no-such-control' does not exist in organization 'acme'";
    fixture.refuses(&["get", "control", "no-such-control"], unknown);
    fixture.refuses(&["update", "control", "no-such-control", "--name", "x"], unknown);
    fixture.refuses(&["archive", "control", "no-such-control"], unknown);
    fixture.refuses(&["unarchive", "control", "no-such-control"], unknown);
    fixture.refuses(&["tag", "control", "no-such-control", "--set", "a=b"], &format!("\"{unknown}\""));
}
