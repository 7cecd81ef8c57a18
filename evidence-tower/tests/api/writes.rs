//! The queries of a write before it records, and the correctness of what it remembers instead of querying.

use std::path::Path;

use evidence_core::artifacts::ArtifactFilter;
use evidence_core::attestations::Binding;
use evidence_core::limits::Limits;
use evidence_core::texts::TextRef;
use evidence_store_sqlite::rusqlite::Connection;

use crate::intercepting_store::{InterceptingStore, take_queries};
use crate::support::prelude::*;
use crate::support::service_on_sqlite;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn fingerprint(number: usize) -> String {
    format!("{number:064x}")
}

fn commit() -> Value {
    json!({"sha1": COMMIT, "message": "m", "author": "a", "branch": "b", "timestamp": 1, "url": ""})
}

fn repo() -> Value {
    json!({"name": "acme/shop", "url": "https://git.example.com/acme/shop"})
}

fn attest(api: &Api, kind: &str, own: &Value, more: &Value) -> RequestBuilder {
    let mut document = json!({"attestation_name": "bar", "repo_info": repo()});
    for part in [own, more] {
        document.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    }
    api.post_attestation("shop", "t", kind).data_json(&document)
}

fn artifact(api: &Api, more: &Value) -> RequestBuilder {
    let artifact = merged(
        json!({
            "fingerprint": fingerprint(1), "filename": "app", "template_reference_name": "cli", "git_commit": COMMIT,
            "build_url": "b", "commit_url": "c", "repo_info": repo(),
        }),
        more,
    );
    api.post("/artifacts/acme/shop").json(artifact)
}

fn flow(api: &Api, template: &str) -> RequestBuilder {
    api.put_flow("shop").template(template)
}

fn begin(api: &Api, name: &str, description: &str) -> RequestBuilder {
    api.put("/trails/acme/shop")
        .data_json(json!({"name": name, "description": description, "repo_info": repo()}))
}

#[tokio::test]
async fn a_write_asks_for_what_it_does_not_know_alone() {
    for StoreUnderTest { name, store, guard, .. } in stores().await {
        let (noting, answered) = InterceptingStore::measured(store);
        let api = Api::new(fixture(Arc::new(noting), Settings::default()).await, Mount::Tower, name).await;
        let generic = json!({"is_compliant": true});
        let pulls = json!({"git_provider": "github", "pull_requests": []});
        let (in_trail, in_flow) = (json!({"trail_name": "t"}), json!({}));
        let by_fingerprint = json!({"artifact_fingerprint": fingerprint(1)});
        let of_commit = json!({"target_artifacts": ["cli"], "git_commit_info": commit()});
        let by_name = json!({"target_artifacts": ["cli"]});
        begin(&api, "t", "").await.created();
        artifact(&api, &in_trail).await.created();
        take_queries(&answered);
        for (what, write, expected) in [
            ("the first attestation", attest(&api, "generic", &generic, &json!({})), vec![]),
            ("of tests", attest(&api, "junit", &json!({"junit_results": []}), &json!({})), vec![]),
            ("of pull requests", attest(&api, "pull_request", &pulls, &json!({})), vec![]),
            ("of a commit", attest(&api, "generic", &generic, &of_commit), vec![]),
            ("of content", attest(&api, "generic", &generic, &by_fingerprint), vec![]),
            ("of a name", attest(&api, "generic", &generic, &by_name), vec![]),
            ("an artifact", artifact(&api, &in_trail), vec![]),
            ("an artifact of no trail", artifact(&api, &in_flow), vec![]),
            ("a trail", begin(&api, "u", ""), vec!["trail"]),
            ("a trail that changes", begin(&api, "t", "changed"), vec!["trail"]),
            // A result that was not recorded is checked by no guard.
            ("the same", begin(&api, "t", "changed"), vec!["trail", "flow", "repo_by_identity", "trail"]),
            // How much the changed trail has is counted once.
            (
                "an attestation then",
                attest(&api, "generic", &generic, &json!({})),
                vec!["trail_report_count"],
            ),
            ("another one", attest(&api, "generic", &generic, &json!({})), vec![]),
        ] {
            let reply = write.await;
            assert!(reply.status.is_success(), "{name}, {what}: {reply:?}");
            assert_eq!(take_queries(&answered), expected, "{name}, {what}");
        }
        drop(guard);
    }
}

/// Two servers over one store.
async fn two(store: &Arc<dyn Store>, settings: &Settings) -> [Api; 2] {
    let server = || Evidence::new(Arc::clone(store), settings.clone());
    [Api::new(server(), Mount::Tower, "one").await, Api::new(server(), Mount::Tower, "another").await]
}

const TEMPLATE: &str = "version: 1\n";

#[apply(with_every_store)]
async fn what_another_server_changed_is_what_a_write_rests_on(_: Api, store: Arc<dyn Store>) {
    let [api, other] = two(&store, &Settings::default()).await;
    let attested = |trail: &str| {
        let document = json!({"attestation_name": "bar", "is_compliant": true}).to_string();
        api.post_attestation("shop", trail, "generic").data_json(&document)
    };
    let template = async |trail: &str| {
        let trail = other.get(&format!("/trails/acme/shop/{trail}")).await.ok();
        trail["template"]["content"].as_str().unwrap().to_owned()
    };
    flow(&api, TEMPLATE).await.created();
    begin(&api, "t", "").await.created();
    attested("t").await.created();
    // The flow's template, which a trail takes that is begun again, with nothing else that is new, and a new one.
    let changed = |times: usize| format!("{TEMPLATE}# changed {times}\n");
    flow(&other, &changed(1)).await.ok();
    begin(&api, "t", "").await.ok();
    assert_eq!(template("t").await, changed(1));
    flow(&other, &changed(2)).await.ok();
    attested("u").await.created();
    assert_eq!((template("u").await, template("t").await), (changed(2), changed(1)));
    // And one of which nothing is new but its repo, that another trail's was called differently meanwhile.
    let of_repo = |trail: &str, description: &str| {
        let mut info = repo();
        info["description"] = description.into();
        api.put("/trails/acme/shop").data_json(json!({"name": trail, "repo_info": info}))
    };
    of_repo("v", "one").await.created();
    of_repo("w", "another").await.created();
    flow(&other, &changed(3)).await.ok();
    of_repo("v", "one").await.ok();
    assert_eq!(template("v").await, changed(3));
    // The trail's, which an artifact takes.
    artifact(&api, &json!({"trail_name": "t"})).await.created();
    let own = format!("{TEMPLATE}# of its own\n");
    other
        .put("/trails/acme/shop")
        .data_json(json!({"name": "t", "description": ""}))
        .template(own.as_str())
        .await
        .ok();
    artifact(&api, &json!({"trail_name": "t"})).await.created();
    let jane = store.user("jane").await.unwrap().unwrap();
    let org = store.org_role("acme", jane.id).await.unwrap().unwrap().organization.id;
    let newest = store.latest_artifact(org, &ArtifactFilter::default()).await.unwrap().unwrap();
    assert_eq!(newest.template, Some(TextRef::of(&own)));
    // The names of the content that an attestation is about.
    let named =
        |api: &Api, name: &str| artifact(api, &json!({"trail_name": "t", "template_reference_name": name}));
    let about = |name: &str| {
        let more = json!({"attestation_name": name, "artifact_fingerprint": fingerprint(1)});
        attest(&api, "generic", &json!({"is_compliant": true}), &more)
    };
    named(&api, "one").await.created();
    about("of-one").await.created();
    named(&other, "another").await.created();
    about("of-another").await.created();
    for (name, target) in [("of-one", "one"), ("of-another", "another")] {
        let found = store.attestations(org, &[newest.trail.unwrap()], name).await.unwrap();
        let (fingerprint, target) = (fingerprint(1).parse().unwrap(), target.to_owned());
        assert_eq!(found[0].row.binding, Binding::Artifact { fingerprint, target });
    }
    // The repo, of which the same report is news again.
    for (api, description) in [(&api, "one"), (&api, "one"), (&other, "another"), (&api, "one")] {
        let mut info = repo();
        info["description"] = description.into();
        artifact(api, &json!({ "repo_info": info })).await.created();
    }
    assert_eq!(api.get("/repos/acme").await.ok()["repos"][0]["description"], "one");
}

#[test]
fn a_trail_is_counted_before_it_is_full() {
    const MOST: usize = 64;
    let limits = Limits { trail_attestations: MOST as u64, ..Limits::default() };
    with_every_store(async |_, store| {
        let [api, other] = two(&store, &Settings { limits, ..Settings::default() }).await;
        let attested =
            async |api: &Api| attest(api, "generic", &json!({"is_compliant": true}), &json!({})).await.status;
        let fill = async |api: &Api| {
            let mut taken = 0;
            while attested(api).await == 201 {
                taken += 1;
            }
            taken
        };
        // This one knows of room, and of nothing that the other takes of it.
        assert_eq!(attested(&other).await, 201);
        assert_eq!(attested(&other).await, 201);
        assert_eq!(fill(&api).await, MOST - 2, "a server alone takes what there is room for");
        let beyond = fill(&other).await;
        assert!((1..=MOST / 16).contains(&beyond), "{beyond}");
        assert_eq!((fill(&api).await, fill(&other).await), (0, 0));
    });
}

/// Puts the tables of another file in the place of this file's, as `.restore` does.
pub(crate) fn restore(file: &Path, backup: &Path) {
    let connection = Connection::open(file).unwrap();
    connection.execute("ATTACH ? AS backup", [backup.to_str().unwrap()]).unwrap();
    let tables: Vec<String> = connection
        .prepare("SELECT name FROM backup.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let moved = tables.iter().map(|table| {
        format!(
            "DELETE FROM main.\"{table}\"; INSERT INTO main.\"{table}\" SELECT * FROM backup.\"{table}\";"
        )
    });
    connection.execute_batch(&format!("BEGIN IMMEDIATE; {} COMMIT", moved.collect::<String>())).unwrap();
}

#[tokio::test]
async fn what_a_backup_that_was_put_back_does_not_have_is_not_written_to() {
    let (evidence, store, folder) = service_on_sqlite().await;
    let (file, backup) = (folder.path().join("evidence.db"), folder.path().join("backup.db"));
    let api = Api::new(evidence, Mount::Tower, "sqlite").await;
    let into = format!("VACUUM INTO '{}'", backup.display());
    Connection::open(&file).unwrap().execute_batch(&into).unwrap();
    let generic = json!({"is_compliant": true});
    let by_fingerprint = json!({"artifact_fingerprint": fingerprint(1)});
    let lost = async |api: &Api| {
        begin(api, "t", "").await.created();
        artifact(api, &json!({"trail_name": "t"})).await.created();
        attest(api, "generic", &generic, &json!({})).await.created();
    };
    lost(&api).await;
    restore(&file, &backup);
    // The same names lead to other records.
    let again = Evidence::new(Arc::clone(&store) as _, Settings::default());
    lost(&Api::new(again, Mount::Tower, "sqlite").await).await;
    attest(&api, "generic", &generic, &by_fingerprint).await.created();
    attest(&api, "generic", &generic, &json!({})).await.created();
    artifact(&api, &json!({"trail_name": "t"})).await.created();
    let attestations = api.get("/attestations/acme/shop/trail/t/bar").await.ok();
    assert_eq!(attestations.as_array().map(Vec::len), Some(2));
    let artifacts = api.get("/artifacts/acme?flow_name=shop").await.ok();
    assert_eq!(artifacts.as_array().map(Vec::len), Some(2));
    // To none.
    restore(&file, &backup);
    attest(&api, "generic", &generic, &by_fingerprint).await.expect(404, json!({}));
    attest(&api, "generic", &generic, &json!({})).await.created();
    assert_eq!(store.fsck().await.unwrap().problems, Vec::<String>::new());
}
