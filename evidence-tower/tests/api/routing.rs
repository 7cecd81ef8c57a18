//! Paths, methods and parameters, before any operation sees them.

use std::collections::BTreeSet;

use evidence_tower::EvidenceApi;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use tower::ServiceExt;

use crate::operation_paths::routes;
use crate::support::prelude::*;

/// The list is what clients of the API were promised: nothing leaves it.
#[test]
fn what_is_routed_is_the_list_of_operations() {
    let routed = routes().into_values().map(|(method, path)| format!("{method} {path}"));
    let listed = include_str!("operations.txt").lines().map(ToOwned::to_owned);
    assert_eq!(BTreeSet::from_iter(routed), BTreeSet::from_iter(listed));
}

#[test]
fn an_unknown_path_is_not_found() {
    on_every_mount(async |api| {
        let mut paths = vec!["/", "/flows", "/flows/", "/flows/acme/", "/nowhere/acme/a/b/c/d"];
        if api.mount != Mount::Axum {
            // axum strips one slash more than the prefix has.
            paths.push("//flows/acme");
        }
        for path in paths {
            api.get(path).await.expect_exactly(404, json!({"message": "Not found"}));
        }
    });
}

#[apply(on_every_mount)]
async fn a_name_with_slashes_in_a_path_is_named(api: Api) {
    let table = [
        (
            Method::POST,
            "/attestations/acme/app/trail/feature/login/generic",
            "trail_name",
            "trail name 'feature/login'",
        ),
        (Method::PUT, "/environments/acme/eu/prod/report/K8S", "env_name", "environment name 'eu/prod'"),
        (Method::GET, "/trails/acme/app/feature/log%20in/x", "trail_name", "trail name 'feature/log in/x'"),
        (Method::GET, "/flows/acme/a%2Fb/c/d/e/f", "flow_name", "flow name 'a/b/c/d/e/f'"),
    ];
    for (method, path, field, name) in table {
        let text = format!("{name} should not contain '/'");
        let errors = json!({field: format!("The {text}")});
        let expected = json!({"message": format!("Not found: the {text}"), "errors": errors});
        api.request(method, path).await.expect_exactly(404, expected);
    }
}

#[apply(on_every_mount)]
async fn a_wrong_method_is_told_the_right_ones(api: Api) {
    let refused = json!({"message": "Method not allowed"});
    let mut methods = vec![Method::DELETE, Method::OPTIONS];
    if api.mount != Mount::Rocket {
        // Rocket refuses those that it does not know before it routes.
        methods.push(Method::from_bytes(b"PROPFIND").unwrap());
    }
    for method in methods {
        let reply = api.request(method, "/flows/acme").await;
        let reply = reply.expect_exactly(405, refused.clone());
        assert!(reply.headers[ALLOW].to_str().unwrap().starts_with("GET, HEAD"));
    }
    let reply = api.request(Method::POST, "/openapi.json").anonymous().await;
    reply.expect_exactly(405, refused.clone()).expect_header(ALLOW, "GET, HEAD");
}

#[apply(on_every_mount)]
async fn a_head_is_a_get_without_its_body(api: Api) {
    for path in ["/flows/acme", "/flows/acme/unknown", "/flows/nobody", "/openapi.json"] {
        let get = api.get(path).await;
        let head = api.request(Method::HEAD, path).await;
        assert_eq!((get.status, get.headers), (head.status, head.headers), "{path}");
        assert!(head.body.is_empty() && !get.body.is_empty(), "{path}");
    }
}

#[apply(on_every_mount)]
async fn parameters_are_decoded_and_misfits_are_named(api: Api) {
    let table = [
        ("/flows/acme?page=", "query.page"),
        ("/flows/acme?page=0", "query.page"),
        ("/flows/acme?page=9223372036854775808", "query.page"),
        ("/flows/acme?per_page=101", "query.per_page"),
        ("/flows/acme?case_sensitive=maybe", "query.case_sensitive"),
        ("/flows/acme?search_by_name=%00", "query.search_by_name"),
        ("/flows/acme?search_by_name=%ff", "query.search_by_name"),
        ("/flows/acme?tag=a&tag=%00", "query.tag[1]"),
        ("/flows/acme/-a", "flow_name"),
        ("/flows/acme/a%2Fb", "flow_name"),
        ("/flows/acme/a%0a", "flow_name"),
        ("/flows/acme/%ff", "flow_name"),
    ];
    for (path, field) in table {
        let reply = api.get(path).await;
        let reply = reply.expect(400, json!({"message": INVALID}));
        let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        let fields: Vec<&String> = body["errors"].as_object().unwrap().keys().collect();
        assert_eq!(fields, [field], "{path}");
    }
    let second_page =
        json!({"data": [], "pagination": {"total": 0, "page": 2, "per_page": 20, "page_count": 0}});
    let table = [
        ("/flows/acme?page=1&page=2&unknown=x", second_page),
        ("/flows/acme?org=nobody", json!([])),
        ("/flows/ac%6De?case_sensitive=FALSE", json!([])),
    ];
    for (path, body) in table {
        api.get(path).await.expect_exactly(200, body);
    }
}

#[apply(on_every_mount)]
async fn query_parameters_that_an_operation_does_not_have_are_named_in_a_header(api: Api) {
    const IGNORED: &str = "evidence-ignored-parameters";
    let table = [
        (Method::GET, "/flows/acme?page=1&tag=a&space_id=b", 200, None),
        (Method::GET, "/flows/acme?flow_name=a&page=1&Page=2", 200, Some("flow_name, Page")),
        (Method::GET, "/flows/acme?org=other&per_page=1", 200, Some("org")),
        (Method::GET, "/flows/acme?a%0d%0aSet-Cookie:b=1&%C3%A9", 200, Some("a%0D%0ASet-Cookie%3Ab, %C3%A9")),
        (Method::GET, "/flows/acme?per_page=0&pagesize=1", 400, Some("pagesize")),
        (Method::GET, "/flows/acme/none?tag=a", 404, Some("tag")),
        (Method::GET, "/artifacts/acme?flow_names=a", 200, Some("flow_names")),
        (Method::PUT, "/flows/acme/none/archive?force=1", 404, Some("force")),
        (Method::HEAD, "/flows/acme?x=1", 200, Some("x")),
        (Method::GET, "/schemas/flow-template/v1?x", 200, Some("x")),
    ];
    for (method, path, status, expected) in table {
        let reply = api.request(method, path).await;
        let found = reply.headers.get(IGNORED).map(|names| names.to_str().unwrap());
        assert_eq!((reply.status.as_u16(), found), (status, expected), "{path}");
    }
    // A request that may not be made is told the same; one of no operation is not.
    let denied = api.get("/flows/acme?x=1").anonymous().await;
    assert_eq!((denied.status.as_u16(), denied.headers.get(IGNORED).unwrap().as_bytes()), (401, &b"x"[..]));
    assert!(!api.get("/nothing?x=1").await.headers.contains_key(IGNORED));
}

#[tokio::test]
async fn health_is_told_beside_the_api_and_not_below_a_mount() {
    let api = EvidenceApi::new(in_memory().await);
    let request = async |api: EvidenceApi<_>, method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path).body(Empty::<bytes::Bytes>::new()).unwrap();
        let Ok(response) = api.oneshot(request).await;
        let (head, body) = response.into_parts();
        (head.status.as_u16(), head.headers, body.collect().await.unwrap().to_bytes())
    };
    for path in ["/ready", "/live"] {
        let (status, headers, body) = request(api.clone(), Method::GET, path).await;
        assert_eq!((status, &body[..]), (200, &b"OK"[..]), "{path}");
        assert_eq!(
            (&headers[CONTENT_TYPE], &headers[CONTENT_LENGTH]),
            (&"text/plain; charset=utf-8".parse().unwrap(), &"2".parse().unwrap())
        );
        assert_eq!(request(api.clone(), Method::PUT, path).await.0, 405, "{path}");
        assert_eq!(request(api.clone().relative(), Method::GET, path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn versioning_every_path_is_below_api_v2() {
    let api = EvidenceApi::new(in_memory().await);
    for (path, status) in [
        ("/api/v2/schemas/flow-template/v1", 200),
        ("/api/v1/schemas/flow-template/v1", 404),
        ("/api/schemas/flow-template/v1", 404),
        ("/schemas/flow-template/v1", 404),
    ] {
        let request = Request::builder().uri(path).header(AUTHORIZATION, format!("Bearer {JANE}"));
        let Ok(response) = api.clone().oneshot(request.body(Empty::<bytes::Bytes>::new()).unwrap()).await;
        assert_eq!(response.status(), status, "{path}");
    }
}

#[tokio::test]
async fn a_url_of_8_kib_is_read_and_a_longer_one_is_not() {
    let url = |length: usize| {
        let start = "/api/v2/flows/acme?search_by_name=";
        format!("{start}{}", "a".repeat(length - start.len()))
    };
    let service = EvidenceApi::new(in_memory().await);
    for (length, status) in [(8 << 10, 401), ((8 << 10) + 1, 414)] {
        let request = Request::builder().uri(url(length)).body(Empty::<bytes::Bytes>::new()).unwrap();
        let Ok(response) = service.clone().oneshot(request).await;
        assert_eq!(response.status().as_u16(), status, "{length}");
    }
}
