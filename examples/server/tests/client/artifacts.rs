//! Artifacts, as attested and as reported by older pipelines, and searches for them.

use serde_json::json;

use crate::fixture::{Fixture, TO};

pub(crate) fn an_artifact_of_a_trail(fixture: &mut Fixture) {
    fixture.begin();
    let list = ["list", "artifacts", "--flow", "delivery"];
    fixture.prints(&list, "No artifacts were found.");
    assert_eq!(fixture.reads(&list), json!([]));
    let external = ["--external-url", "log=https://ci.example.com/log", "--annotate", "why=because so"];
    let (file, fingerprint) = fixture.attest_artifact(&external);
    let (sha, short) = (&fixture.commit, &fixture.commit[..7]);

    let by_fingerprint = format!("delivery@{fingerprint}");
    let table = format!(
        "Name: binary\nFlow: delivery\nTrail: trail-1\nName in template: binary\nFingerprint: {fingerprint}\n\
         Created on: THEN\nGit commit: {sha}\nCommit URL: https://git.example.com/c/1\n\
         Build URL: https://ci.example.com/1\n\
         Artifact URL: HOST/acme/flows/delivery/artifacts/{fingerprint}?artifact_id=ID\nState: INCOMPLETE\n\
         History:\nbinary reported THEN"
    );
    let beginning = format!("delivery@{}", &fingerprint[..12]);
    let of_commit = format!("delivery:{sha}");
    let of_short_commit = format!("delivery:{short}");
    for expression in [&by_fingerprint, &beginning, &of_commit, &of_short_commit] {
        fixture.prints(&["get", "artifact", expression], &table);
        fixture.prints(&["get", "artifact", expression, "--trail", "trail-1"], &table);
    }
    let artifact = fixture.reads(&["get", "artifact", &by_fingerprint]);
    assert_eq!(artifact["git_commit_info"]["message"], "PROJ-1 Begin");
    assert_eq!(artifact["annotations"], json!({"why": "because so"}));
    assert_eq!(artifact["external_urls"]["log"]["href"], "https://ci.example.com/log");
    assert_eq!(fixture.reads(&["get", "artifact", &of_commit]), json!([artifact]));
    assert_eq!(fixture.reads(&list), json!([artifact]));
    let row = format!("{short} Name: binary INCOMPLETE THEN\nFingerprint: {fingerprint}");
    fixture.prints(&list, &format!("COMMIT ARTIFACT STATE CREATED_AT\n{row}"));
    let second_page = [&list[..], &["--page", "2"]].concat();
    fixture.prints(&second_page, "No artifacts were found at page number 2.");
    let trails = ["list", "trails", "--fingerprint", &fingerprint];
    assert_eq!(fixture.reads(&trails)["data"][0]["name"], "trail-1");
    fixture.says(
        &["get", "trail", "trail-1", "--flow", "delivery"],
        "artifact 'binary' created for template name 'binary'",
    );

    // Creates a trail and a flow that did not exist, and uses a name that no template has.
    let attest = ["attest", "artifact", &file, "--artifact-type", "file", "--commit", "HEAD"];
    let links = ["--build-url", "https://ci.example.com/2", "--commit-url", "https://git.example.com/c/2"];
    let new = ["--flow", "implicit", "--trail", "new", "--name", "other", "--display-name", "The program"];
    fixture.does(&[&attest[..], &links, &new].concat());
    let implicit = fixture.reads(&["get", "artifact", &format!("implicit@{fingerprint}")]);
    assert_eq!((&implicit["filename"], &implicit["state"]), (&json!("The program"), &json!("COMPLIANT")));

    let short = ["--external-url", "log=https://x.org", "--external-fingerprint", "log=7509e5bda0"];
    fixture.refuses(
        &[&attest[..], &links, &TO, &["--name", "binary"], &short].concat(),
        "Input payload validation failed: map[external_urls.log.fingerprint:String should match pattern \
         '^[a-f0-9]{64}$' [input: 7509e5bda0]]",
    );
    let unknown = "f".repeat(64);
    fixture.refuses(
        &["get", "artifact", &format!("delivery@{unknown}")],
        &format!(
            "Artifact with fingerprint '{unknown}' does not exist in flow 'delivery' belonging to organization 'acme'"
        ),
    );
    fixture.refuses(
        &["get", "artifact", "delivery@a@b"],
        "Input payload validation failed: map[fingerprint:String should match pattern '^[a-f0-9]{5,64}$' [input: a@b]]",
    );
    // No artifact was built from this commit.
    fixture.prints(&["get", "artifact", "delivery:deadbeef"], "");
    let nowhere = "Flow named 'nowhere' does not exist for organization 'acme'";
    fixture.refuses(&["get", "artifact", "nowhere@deadbeef"], nowhere);
    fixture.refuses(&["get", "artifact", "nowhere:deadbeef"], nowhere);
    fixture.refuses(&["list", "artifacts", "--flow", "nowhere"], nowhere);
    fixture.refuses(&["list", "artifacts", "--repo", "nowhere"], "Repo 'nowhere' not found");
}

/// The report contains the commits since the last report, for which the client asks.
pub(crate) fn an_artifact_of_an_older_pipeline_has_no_trail(fixture: &mut Fixture) {
    fixture.create_flow();
    // The name of a branch is sent unchanged, with any characters.
    fixture.git(&["checkout", "--quiet", "-b", "100%+a&b#c"]);
    let file = fixture.file("binary", "the program");
    let fingerprint = fixture.does(&["fingerprint", &file, "--artifact-type", "file"]).trim().to_owned();
    let report = ["report", "artifact", &file, "--artifact-type", "file", "--flow", "delivery"];
    let links = ["--build-url", "https://ci.example.com/1", "--commit-url", "https://git.example.com/c/1"];
    let report = [&report[..], &links, &["--git-commit", "HEAD"]].concat();
    let said = format!("artifact binary was reported with fingerprint: {fingerprint}");
    fixture.says(&report, &said);
    fixture.git(&["checkout", "--quiet", "main"]);
    fixture.git(&["commit", "--quiet", "--allow-empty", "--message", "PROJ-2 Go on"]);
    fixture.says(&report, &said);
    fixture.git(&["commit", "--quiet", "--allow-empty", "--message", "PROJ-3 End"]);
    fixture.says(&report, &said);

    let sha = fixture.git(&["rev-parse", "HEAD"]);
    let by_fingerprint = format!("delivery@{fingerprint}");
    fixture.prints(
        &["get", "artifact", &by_fingerprint],
        &format!(
            "Name: binary\nFlow: delivery\nTrail:\nName in template:\nFingerprint: {fingerprint}\nCreated on: THEN\n\
             Git commit: {sha}\nCommit URL: https://git.example.com/c/1\nBuild URL: https://ci.example.com/1\n\
             Artifact URL: HOST/acme/flows/delivery/artifacts/{fingerprint}?artifact_id=ID\nState: INCOMPLETE\n\
             History:\nArtifact created THEN"
        ),
    );
    let artifact = fixture.reads(&["get", "artifact", &by_fingerprint]);
    let commit = &artifact["git_commit_info"];
    assert_eq!((&commit["sha1"], &commit["branch"]), (&json!(sha), &json!("main")));
    assert_eq!(commit["message"].as_str().unwrap().trim_end(), "PROJ-3 End");
    let found = fixture.reads(&["search", &fingerprint]);
    let events = found["artifacts"][0]["history"].as_array().unwrap();
    let events = Vec::from_iter(events.iter().map(|event| event["event"].as_str().unwrap()));
    assert_eq!(events, [&format!("Commit {}", &sha[..7]), "Artifact created"]);
    fixture.says(&["search", &fingerprint], &format!("Commit {}", &sha[..7]));
}

pub(crate) fn artifacts_are_found_by_fingerprint_and_commit(fixture: &mut Fixture) {
    fixture.begin();
    let (_, fingerprint) = fixture.attest_artifact(&[]);
    let (sha, short) = (&fixture.commit, &fixture.commit[..7]);
    let found = format!(
        "Name: binary\nFingerprint: {fingerprint}\nHas provenance: true\nFlow: delivery\nGit commit: {sha}\n\
         Commit URL: https://git.example.com/c/1\nBuild URL: https://ci.example.com/1\n\
         Artifact URL: HOST/acme/flows/delivery/artifacts/{fingerprint}\nCompliance state: INCOMPLETE\n\
         Running in: [ ]\nExited from: [ ]\nHistory:\nCommit {short} THEN\nbinary reported THEN"
    );
    let artifact = format!("Search result resolved to artifact with fingerprint {fingerprint}\n{found}");
    let commit = format!("Search result resolved to commit {sha}\n{found}");
    let ways = [
        (&fingerprint[..], &artifact),
        (&fingerprint[..5], &artifact),
        (&sha[..], &commit),
        (short, &commit),
    ];
    for (value, table) in ways {
        fixture.prints(&["search", value], table);
    }
    let resolved = &fixture.reads(&["search", &fingerprint[..8]])["resolved_to"];
    assert_eq!((&resolved["type"], &resolved["full_match"]), (&json!("fingerprint"), &json!(fingerprint)));
    let resolved = &fixture.reads(&["search", short])["resolved_to"];
    assert_eq!((&resolved["type"], &resolved["commits"]["count"]), (&json!("commit"), &json!(1)));
    let none = "No matches for 'deadbeef1'.";
    fixture.refuses(&["search", "deadbeef1"], none);
    fixture.refuses(&["search", "deadbeef1", "--output", "json"], none);
    fixture.refuses(
        &["search", "abc"],
        "Input payload validation failed: map[search_value:String should match pattern '^[a-f0-9]{5,64}$' [input: abc]]",
    );
}
