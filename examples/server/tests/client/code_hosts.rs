//! External data that the client looks up before it attests: pull requests at code hosts, issues, quality
//! gates. A small server in this process replaces all of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::attestations::{read, shown, shown_of_commit};
use crate::fixture::{Fixture, TO};
use crate::support::ORG;

/// Responds to requests that begin with this method and path, as long as the process runs. Returns its
/// address.
fn stand_in(answers: Vec<(String, Value)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // The client reports a missing response.
            let _ = answer(&stream.unwrap(), &answers);
        }
    });
    address
}

fn answer(mut stream: &TcpStream, answers: &[(String, Value)]) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut asked = String::new();
    reader.read_line(&mut asked)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.to_ascii_lowercase().split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse().unwrap_or_default(),
            Some(_) => {}
            None => break,
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    let found = answers.iter().find(|(beginning, _)| asked.starts_with(beginning));
    let (status, body) =
        found.map_or(("404 Not Found", "{}".to_owned()), |(_, value)| ("200 OK", value.to_string()));
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

const MADE: &str = "2026-01-02T03:04:05Z";
const MERGED: &str = "2026-01-03T03:04:05Z";

/// Returns a pull request of the commit at each code host, and none at the one below `/empty`.
fn code_hosts(commit: &str) -> String {
    let page = json!({"hasNextPage": false, "endCursor": null});
    let of_github = json!({
        "number": 3, "repository": {"name": "app", "owner": {"login": "acme"}}, "title": "Add", "state": "MERGED",
        "headRefName": "feature", "baseRefName": "main", "url": "https://github.example.com/acme/app/pull/3",
        "createdAt": MADE, "mergedAt": MERGED, "author": {"login": "ada"},
        "commits": {"pageInfo": page, "nodes": [{"commit": {
            "oid": commit, "messageHeadline": "Begin", "committedDate": MADE, "authoredDate": MADE,
            "url": "https://github.example.com/c", "signature": {"isValid": true, "state": "VALID"},
            "author": {"name": "Ada", "email": "ada@example.com", "user": {"login": "ada"}},
        }}]},
        "reviews": {"pageInfo": page, "nodes": [{"author": {"login": "grace"}, "state": "APPROVED", "submittedAt": MADE}]},
    });
    let github = |nodes: Value| json!({"data": {"repository": {"object": {"associatedPullRequests": {"nodes": nodes}}}}});
    let of_gitlab = json!({
        "iid": 7, "web_url": "https://gitlab.example.com/acme/app/-/merge_requests/7", "state": "merged",
        "merge_commit_sha": commit, "title": "Add", "source_branch": "feature", "target_branch": "main",
        "created_at": MADE, "merged_at": MERGED, "author": {"name": "Ada", "username": "ada"},
    });
    let gitlab_commit = json!({
        "id": commit, "message": "Begin", "author_name": "Ada", "author_email": "ada@example.com", "created_at": MADE,
        "committed_date": MADE, "web_url": "https://gitlab.example.com/c",
    });
    // Azure DevOps first returns the locations of its resources.
    let location = |id: &str, name: &str, route: &str| {
        json!({
            "id": id, "area": "git", "resourceName": name, "resourceVersion": 1, "minVersion": "1.0",
            "maxVersion": "7.2", "releasedVersion": "7.1",
            "routeTemplate": format!("{{project}}/_apis/git/repositories/{{repositoryId}}/{route}"),
        })
    };
    let locations = json!([
        {"id": "e81700f7-3be2-46de-8624-2eb35882fcaa", "area": "Location", "resourceName": "ResourceAreas",
         "routeTemplate": "_apis/resourceAreas/{areaId}", "resourceVersion": 1, "minVersion": "1.0",
         "maxVersion": "7.2", "releasedVersion": "7.1"},
        location("b3a6eebe-9cf0-49ea-b6cb-1a4c5f5007b0", "pullRequestQuery", "pullRequestQuery"),
        location("52823034-34a8-4576-922c-8d8b77e9e4c4", "commits", "pullRequests/{pullRequestId}/commits"),
        location("4b6702c7-aa35-4b89-9c96-b9abf6d3e540", "reviewers", "pullRequests/{pullRequestId}/reviewers/{reviewerId}"),
    ]);
    let of_azure = json!({
        "pullRequestId": 9, "status": "completed", "title": "Add", "creationDate": MADE, "closedDate": MERGED,
        "createdBy": {"displayName": "Ada", "uniqueName": "ada"}, "sourceRefName": "refs/heads/feature",
        "targetRefName": "refs/heads/main", "lastMergeCommit": {"commitId": commit},
    });
    let azure_commit = json!({
        "commitId": commit, "comment": "Begin", "url": "https://azure.example.com/c",
        "author": {"name": "Ada", "email": "ada@example.com", "date": MADE},
    });
    let listed = |values: Value| json!({"count": values.as_array().map_or(0, Vec::len), "value": values});
    let reviewer = json!({"displayName": "Grace", "uniqueName": "grace", "vote": 10});
    let merge_requests = "GET /gitlab/api/v4/projects/acme%2Fapp/merge_requests/7";
    let pull_requests = "GET /azure/project/_apis/git/repositories/app/pullRequests/9";
    let answers = [
        ("POST /github/api/graphql".to_owned(), github(json!([of_github]))),
        ("POST /empty/api/graphql".to_owned(), github(json!([]))),
        (format!("GET /empty/api/v3/repos/acme/app/commits/{commit}/pulls"), json!([])),
        (
            format!("GET /gitlab/api/v4/projects/acme%2Fapp/repository/commits/{commit}/merge_requests"),
            json!([of_gitlab]),
        ),
        (
            format!("{merge_requests}/approvals"),
            json!({"approved_by": [{"user": {"name": "Grace", "username": "grace"}}]}),
        ),
        (format!("{merge_requests}/commits"), json!([gitlab_commit])),
        ("OPTIONS /azure/_apis".to_owned(), listed(locations)),
        ("GET /azure/_apis/resourceAreas".to_owned(), listed(json!([]))),
        (
            "POST /azure/project/_apis/git/repositories/app/pullRequestQuery".to_owned(),
            json!({"results": [{commit: [of_azure]}]}),
        ),
        (format!("{pull_requests}/commits"), listed(json!([azure_commit]))),
        (format!("{pull_requests}/reviewers"), listed(json!([reviewer]))),
    ];
    stand_in(answers.into())
}

/// Returns the options for GitHub at this address.
fn of_github(url: &str) -> Vec<&str> {
    vec!["--github-base-url", url, "--github-token", "x", "--github-org", "acme"]
}

pub(crate) fn pull_requests_of_each_code_host(fixture: &mut Fixture) {
    fixture.begin();
    let hosts = code_hosts(&fixture.commit);
    let url = |path: &str| format!("{hosts}{path}");
    let (github, empty, gitlab, azure) = (url("/github"), url("/empty"), url("/gitlab"), url("/azure"));
    let of_gitlab = vec!["--gitlab-base-url", &gitlab, "--gitlab-token", "x", "--gitlab-org", "acme"];
    let of_azure = vec!["--azure-org-url", &azure, "--azure-token", "x", "--project", "project"];
    let attest = |host: &'static str, name: &'static str, options: Vec<&str>| {
        let attest =
            ["attest", "pullrequest", host, "--name", name, "--repository", "app", "--commit", "HEAD"];
        fixture.does(&[&attest[..], &TO, &options].concat())
    };
    let rows = [
        ("github", of_github(&github), "MERGED", "grace", "ada"),
        ("gitlab", of_gitlab, "merged", "Grace (@grace)", "Ada (@ada)"),
        ("azure", of_azure, "completed", "Grace (grace)", "Ada (ada)"),
    ];
    for (host, options, state, approver, author) in rows {
        let said = attest(host, host, options);
        assert!(
            said.contains(&format!("request attestation '{host}' is reported to trail: trail-1")),
            "{said}"
        );
        fixture.prints(&read(host), &shown_of_commit(fixture, host, "pull_request", true));
        let found = &fixture.reads(&read(host))[0];
        assert_eq!(found["git_provider"], host);
        let pull_request = &found["pull_requests"][0];
        assert_eq!(pull_request["state"], state);
        assert_eq!(pull_request["author"], author);
        assert_eq!(pull_request["approvers"][0]["username"], approver);
        assert_eq!(pull_request["merge_commit"], *fixture.commit);
        assert_eq!(pull_request["commits"][0]["sha1"], *fixture.commit);
        assert_eq!(
            (&pull_request["created_at"], &pull_request["merged_at"]),
            (&json!(1_767_323_045), &json!(1_767_409_445))
        );
    }
    attest("github", "none", of_github(&empty));
    fixture.prints(&read("none"), &shown_of_commit(fixture, "none", "pull_request", false));

    // The client's request for Bitbucket, whose address is built in.
    let document = json!({
        "attestation_name": "bitbucket",
        "git_provider": "bitbucket",
        "pull_requests": [{
            "url": "https://bitbucket.org/acme/app/pull-requests/1",
            "merge_commit": fixture.commit,
            "state": "MERGED",
            "author": "Ada",
            "approvers": ["Grace"],
            "commits": null,
        }],
        "user_data": {},
    });
    let form =
        format!("--x\r\ncontent-disposition: form-data; name=\"data_json\"\r\n\r\n{document}\r\n--x--\r\n");
    let path = format!("/api/v2/attestations/{ORG}/delivery/trail/trail-1/pull_request");
    let (status, text) = fixture.server.call("POST", &path, "multipart/form-data; boundary=x", &form);
    assert_eq!(status, 201, "{text}");
    fixture.prints(&read("bitbucket"), &shown("bitbucket", "pull_request", true));
    let found = &fixture.reads(&read("bitbucket"))[0]["pull_requests"][0];
    assert_eq!(found["approvers"][0]["username"], "Grace");
}

/// Returns an issue tracker with the issue of the commit and no other, and a server with the quality gate of
/// an analysis.
fn trackers(commit: &str) -> String {
    let task = json!({
        "id": "T1", "type": "REPORT", "componentKey": "app", "componentName": "App", "status": "SUCCESS",
        "analysisId": "A1", "submittedAt": "2026-01-02T03:04:05+0000",
    });
    let analyses = json!([{"key": "A1", "date": "2026-01-02T03:04:05+0000", "revision": commit}]);
    let gate = |status: &str| {
        let condition = json!({
            "status": status, "metricKey": "new_coverage", "comparator": "LT", "errorThreshold": "80",
            "actualValue": "79.5",
        });
        json!({"projectStatus": {"status": status, "conditions": [condition]}})
    };
    let mut answers = vec![(
        "GET /jira/rest/api/2/issue/PROJ-1?".to_owned(),
        json!({"key": "PROJ-1", "fields": {"summary": "Begin"}}),
    )];
    for (server, status) in [("/passed", "OK"), ("/failed", "ERROR")] {
        let get = |path: &str| format!("GET {server}/api/{path}");
        answers.push((get("ce/task"), json!({"task": task})));
        answers.push((get("project_analyses/search"), json!({"paging": {"total": 1}, "analyses": analyses})));
        answers.push((get("qualitygates/project_status"), gate(status)));
    }
    stand_in(answers)
}

pub(crate) fn issues_and_quality_gates(fixture: &mut Fixture) {
    fixture.begin();
    let trackers = trackers(&fixture.commit);
    let jira = format!("{trackers}/jira");
    let jira =
        ["--jira-base-url", &jira, "--jira-pat", "x", "--commit", "HEAD", "--jira-issue-fields", "summary"];
    let attest = |kind: &'static str, name: &'static str, options: &[&str]| {
        let said = format!("{kind} attestation '{name}' is reported to trail: trail-1");
        fixture.says(&[&["attest", kind, "--name", name], &TO[..], options].concat(), &said);
    };
    attest("jira", "issue", &jira);
    fixture.prints(&read("issue"), &shown_of_commit(fixture, "issue", "jira", true));
    let issue = &fixture.reads(&read("issue"))[0]["jira_results"][0];
    assert_eq!((&issue["issue_id"], &issue["issue_exists"]), (&json!("PROJ-1"), &json!(true)));
    assert_eq!(issue["issue_fields"], json!({"summary": "Begin"}));
    attest("jira", "missing", &[&jira[..], &["--jira-secondary-source", "PROJ-2"]].concat());
    fixture.prints(&read("missing"), &shown_of_commit(fixture, "missing", "jira", false));
    attest("jira", "none", &[&jira[..], &["--jira-project-key", "OTHER"]].concat());
    assert_eq!(fixture.reads(&read("none"))[0]["jira_results"], json!([]));

    // By the scanner's files, which name the task, and by the project alone.
    let left = format!(
        "serverUrl={trackers}/passed\nceTaskUrl={trackers}/passed/api/ce/task?id=T1\nprojectKey=app\n"
    );
    let left = fixture.file("scanner/report-task.txt", &left);
    let directory = left.strip_suffix("/report-task.txt").unwrap();
    attest("sonar", "passed", &["--sonar-api-token", "x", "--sonar-working-dir", directory]);
    fixture.prints(&read("passed"), &shown("passed", "sonar", true));
    let passed = &fixture.reads(&read("passed"))[0]["sonar_results"];
    assert_eq!((&passed["taskId"], &passed["status"]), (&json!("T1"), &json!("SUCCESS")));
    assert_eq!(passed["qualityGate"]["conditions"][0]["value"], "79.5");
    let failed = format!("{trackers}/failed");
    let by_project =
        ["--sonar-project-key", "app", "--sonar-revision", &fixture.commit, "--sonar-api-token", "x"];
    attest("sonar", "failed", &[&by_project[..], &["--sonar-server-url", &failed]].concat());
    fixture.prints(&read("failed"), &shown("failed", "sonar", false));
    assert_eq!(fixture.reads(&read("failed"))[0]["sonar_results"]["revision"], *fixture.commit);
}
