//! Attachments whose content was lost or altered where it is kept: no download of them looks whole, and the same file
//! uploaded again puts them right.

use std::any::Any;

use bytes::Bytes;
use evidence_core::blobs::CHUNK;
use evidence_store_postgres::sqlx::{self, Connection};
use evidence_store_sqlite::rusqlite;
use evidence_test_postgres::SchemaName;
use evidence_tower::EvidenceApi;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, ETAG, IF_NONE_MATCH};
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::support::prelude::*;

/// Damages chunks in SQLite and in PostgreSQL.
const DAMAGES: [(&str, &str); 3] = [
    (
        "UPDATE blob_chunk SET data = zeroblob(length(data)) WHERE seq = 1",
        "UPDATE blob_chunk SET data = decode(repeat('00', length(data)), 'hex') WHERE seq = 1",
    ),
    ("DELETE FROM blob_chunk WHERE seq = 1", "DELETE FROM blob_chunk WHERE seq = 1"),
    ("UPDATE blob_chunk SET data = substr(data, 1, 1)", "UPDATE blob_chunk SET data = substr(data, 1, 1)"),
];

async fn damage(guard: &(dyn Any + Send), (sqlite, postgres): (&str, &str)) {
    if let Some(folder) = guard.downcast_ref::<TempDir>() {
        let connection = rusqlite::Connection::open(folder.path().join("evidence.db")).unwrap();
        assert!(connection.execute(sqlite, []).unwrap() > 0);
    } else {
        let schema = guard.downcast_ref::<SchemaName>().unwrap();
        let mut connection = sqlx::PgConnection::connect(&schema.url).await.unwrap();
        let path = format!("SET search_path TO {}", schema.name);
        sqlx::raw_sql(sqlx::AssertSqlSafe(path)).execute(&mut connection).await.unwrap();
        let damage = sqlx::raw_sql(sqlx::AssertSqlSafe(postgres.to_owned()));
        assert!(damage.execute(&mut connection).await.unwrap().rows_affected() > 0);
    }
}

#[apply(on_every_store)]
async fn content_that_the_client_has_is_answered_with_304(api: Api) {
    let file = attest(&api, "one", &["some content"]).await;
    let (file, pdf) = (file.strip_prefix("/api/v2").unwrap(), "/trails/acme/shop/t/audit_pdf");
    for path in [file, pdf] {
        let whole = api.get(path).await;
        let etag = whole.headers[ETAG].to_str().unwrap().to_owned();
        for (sent, is_known) in [
            (etag.clone(), true),
            (format!("\"other\", W/{etag}"), true),
            ("*".to_owned(), true),
            ("\"other\"".to_owned(), false),
        ] {
            for method in [Method::GET, Method::HEAD] {
                let reply = api.request(method.clone(), path).header(IF_NONE_MATCH, sent.as_str()).await;
                assert_eq!(reply.headers[ETAG], etag, "{method} {path} {sent}");
                let status = if is_known { 304 } else { 200 };
                assert_eq!(reply.status.as_u16(), status, "{method} {path} {sent}");
                let has_body = !is_known && method == Method::GET;
                assert_eq!(
                    reply.body,
                    if has_body { whole.body.clone() } else { Bytes::new() },
                    "{path} {sent}"
                );
                assert_eq!(reply.headers.contains_key(CONTENT_LENGTH), !is_known, "{method} {path} {sent}");
            }
        }
    }
    // A response without a tag does not match, and a refusal is no content.
    api.get("/flows/acme").header(IF_NONE_MATCH, "*").await.ok();
    let missing = api.get("/trails/acme/shop/none/audit_pdf").header(IF_NONE_MATCH, "*").await;
    assert_eq!(missing.status.as_u16(), 404);
}

/// Attests with these files, and answers where to get them.
async fn attest(api: &Api, name: &str, files: &[&str]) -> String {
    let document = json!({"attestation_name": name, "is_compliant": true}).to_string();
    let names: Vec<String> = (0..files.len())
        .map(|number| format!("name=\"attachment_file.{number}\"; filename=\"{number}.txt\""))
        .collect();
    let mut parts = vec![("name=\"data_json\"", document.as_str())];
    parts.extend(names.iter().map(String::as_str).zip(files.iter().copied()));
    api.post_attestation("shop", "t", "generic").form(&parts).await.created();
    let found = api.get(&format!("/attestations/acme/shop/trail/t/{name}")).await.ok();
    let id = found[0]["attestation_id"].as_str().unwrap();
    format!("/api/v2/attestations/acme/shop/trail/t/attestation/{id}/evidence")
}

/// A download with the digest that it is announced with; `None` if it fails or breaks off.
async fn download(evidence: &Evidence, path: &str) -> Option<(String, Bytes)> {
    let request = Request::get(path).header(AUTHORIZATION, format!("Bearer {JANE}"));
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let Ok(response) = EvidenceApi::new(evidence.clone()).oneshot(request).await;
    let (head, body) = response.into_parts();
    let body = body.collect().await.ok().filter(|_| head.status == 200)?;
    Some((head.headers[ETAG].to_str().unwrap().trim_matches('"').to_owned(), body.to_bytes()))
}

#[tokio::test]
async fn damaged_content_is_never_given_out_as_whole_and_uploading_it_again_puts_it_right() {
    let long = "0123456789abcdef".repeat(CHUNK / 8) + "the end";
    for StoreUnderTest { name, store, guard, .. } in stores().await {
        if name == "memory" {
            continue;
        }
        let evidence = fixture(Arc::clone(&store), Settings::default()).await;
        let api = Api::new(evidence.clone(), Mount::Tower, name).await;
        let first = attest(&api, "one", &[&long]).await;
        for what in DAMAGES {
            damage(&*guard, what).await;
            let found = download(&evidence, &first).await;
            assert!(found.is_none(), "{name}: {what:?}: {:?}", found.map(|(etag, body)| (etag, body.len())));
            let second = attest(&api, "two", &[&long]).await;
            for path in [&first, &second] {
                let (etag, body) = download(&evidence, path).await.expect(what.0);
                assert!(body == long, "{name}: {what:?}");
                assert_eq!(etag, evidence_core::digest::sha256_hex(&body));
            }
        }
    }
}

#[tokio::test]
async fn a_damaged_archive_is_never_given_out_as_whole_and_uploading_its_files_again_puts_it_right() {
    for StoreUnderTest { name, store, guard, .. } in stores().await {
        if name == "memory" {
            continue;
        }
        let evidence = fixture(Arc::clone(&store), Settings::default()).await;
        let api = Api::new(evidence.clone(), Mount::Tower, name).await;
        let first = attest(&api, "one", &["a", "b"]).await;
        let whole = download(&evidence, &first).await.unwrap();
        let reversed = "UPDATE blob_chunk SET data = substr(data, 2) || substr(data, 1, 1)";
        damage(&*guard, ("UPDATE blob_chunk SET data = zeroblob(length(data))", reversed)).await;
        assert_eq!(download(&evidence, &first).await, None, "{name}");
        attest(&api, "two", &["a", "b"]).await;
        assert_eq!(download(&evidence, &first).await, Some(whole), "{name}");
    }
}
