//! Templates: kept once per organization, referred to by digest, and read and parsed once per page.

use std::sync::Mutex;

use evidence_core::fact::Fact;
use evidence_core::id::Id;
use futures_util::FutureExt;
use futures_util::future::ready;

use crate::intercepting_store::{Call, InterceptingStore};
use crate::support::org_id;
use crate::support::prelude::*;

/// Trails with the same template.
const MANY: usize = 50;

fn large() -> String {
    format!("{TEMPLATE}# {}\n", "x".repeat(900_000))
}

/// A service that remembers nothing yet, over a store that notes how many texts it is asked for each time.
async fn noting(store: &Arc<dyn Store>) -> (Api, Arc<Mutex<Vec<usize>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&asked);
    let store = InterceptingStore::new(Arc::clone(store), move |call| {
        if let Call::Texts(many) = call {
            note.lock().unwrap().push(many);
        }
        ready(()).boxed()
    });
    let evidence = Evidence::new(Arc::new(store), Settings::default());
    (Api::new(evidence, Mount::Tower, "noting").await, asked)
}

/// The payloads in the ledger of `acme`.
async fn payloads(store: &dyn Store) -> Vec<String> {
    let entries = store.ledger_entries(acme(store).await, 0, 10_000).await.unwrap();
    entries.into_iter().map(|entry| entry.payload).collect()
}

/// The texts that an organization keeps, in the order of its ledger.
async fn kept(store: &dyn Store, org: Id) -> Vec<String> {
    let entries = store.ledger_entries(org, 0, 10_000).await.unwrap();
    let facts = entries.iter().map(|entry| Fact::read(&entry.payload).unwrap());
    facts.filter_map(|fact| if let Fact::TextKept { text } = fact { Some(text) } else { None }).collect()
}

impl Api {
    /// Begins a trail of `flow` with this template.
    pub(crate) fn put_trail_with_template(&self, flow: &str, name: &str, template: &str) -> RequestBuilder {
        self.put_trail(flow, &json!({ "name": name })).template(template)
    }
}

#[apply(with_every_store)]
async fn a_template_is_in_the_ledger_once_and_read_once_however_many_have_it(
    api: Api,
    store: Arc<dyn Store>,
) {
    let bytes = async || payloads(&*store).await.iter().map(String::len).sum::<usize>();
    let before = bytes().await;
    let template = large();
    api.given_flow("shop", &template).await;
    for number in 0..MANY {
        let name = format!("t{number}");
        api.put_trail("shop", &json!({ "name": name })).await.created();
        api.post_artifact("shop", format!("{number:064x}")).in_trail(name).await.created();
    }
    let grown = bytes().await - before;
    assert!(grown < template.len() + 2 * MANY * 2_000, "{grown} bytes");

    let all = format!("?page=1&per_page={MANY}");
    for (path, items) in [("trails/acme", MANY), ("artifacts/acme", MANY), ("flows/acme", 1)] {
        let (api, asked) = noting(&store).await;
        let listed = api.get(&format!("/{path}{all}")).await.ok();
        let listed = listed.get("data").unwrap_or(&listed).as_array().unwrap();
        assert_eq!(listed.len(), items, "{path}");
        match path {
            "trails/acme" => {
                assert!(listed.iter().all(|trail| trail["template"]["content"] == template));
            }
            "flows/acme" => assert_eq!(listed[0]["template"], template),
            _ => assert!(listed.iter().all(|artifact| artifact["template"] == json!(["bar"]))),
        }
        assert_eq!(*asked.lock().unwrap(), [1], "{path}");
        api.get("/trails/acme/shop/t0").await.ok();
        assert_eq!(*asked.lock().unwrap(), [1], "what was read for {path} is remembered");
    }
}

#[apply(with_every_store)]
async fn a_text_is_kept_before_what_refers_to_it_first_and_then_no_more(_: Api, store: Arc<dyn Store>) {
    let (api, asked) = noting(&store).await;
    let acme = acme(&*store).await;
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("{TEMPLATE}# {name}\n"));
    let step = async |request: RequestBuilder, status: u16, now_kept: &[&String], queries: usize| {
        let reply = request.await;
        assert_eq!(reply.status, status);
        assert_eq!(kept(&*store, acme).await.iter().collect::<Vec<_>>(), now_kept);
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()).len(), queries, "{now_kept:?}");
    };
    step(api.put_trail("implicit", &json!({"name": "t"})), 201, &[], 0).await;
    step(api.put_flow("empty").template("version: 1"), 201, &[], 0).await;
    step(api.put_flow("one").template(&a), 201, &[&a], 1).await;
    step(api.put_flow("one").template(&a), 200, &[&a], 1).await;
    step(api.put_flow("two").template(&a), 201, &[&a], 1).await;
    step(api.put_trail("one", &json!({"name": "t"})), 201, &[&a], 0).await;
    step(api.put_trail_with_template("one", "u", &a), 201, &[&a], 1).await;
    step(api.put_trail_with_template("one", "v", &b), 201, &[&a, &b], 1).await;
    // A result that was not recorded is read again, because no guard was checked.
    step(api.put_trail_with_template("one", "v", &b), 200, &[&a, &b], 2).await;
    step(api.put_trail_with_template("one", "w", &b), 201, &[&a, &b], 1).await;
    step(api.put_flow("two").template(&c), 200, &[&a, &b, &c], 1).await;
    step(api.put_flow("two").template(&a), 200, &[&a, &b, &c], 1).await;
    step(api.put_flow("two").template("version: 1"), 200, &[&a, &b, &c], 0).await;
    step(api.put_flow("three").template("]"), 400, &[&a, &b, &c], 0).await;
    let theirs =
        api.put("/flows/foobar/template_file").data_json(json!({"name": "theirs", "description": ""}));
    step(theirs.template(&a).key(JOHN), 201, &[&a, &b, &c], 1).await;
    assert_eq!(kept(&*store, org_id(&*store, "john", "foobar").await).await, std::slice::from_ref(&a));

    for (path, template) in [("empty", "version: 1"), ("one", a.as_str()), ("two", "version: 1")] {
        api.get(&format!("/flows/acme/{path}")).await.expect(200, json!({ "template": template }));
    }
    for (trail, template) in [("t", &a), ("u", &a), ("v", &b), ("w", &b)] {
        let content = json!({"template": {"content": template}});
        api.get(&format!("/trails/acme/one/{trail}")).await.expect(200, content);
    }
    let implicit = api.get("/trails/acme/implicit/t").await;
    implicit.expect(200, json!({"template": {"content": "version: 1", "trail": {"attestations": []}}}));
    assert!(!payloads(&*store).await.iter().any(|payload| payload.contains("version: 1\"")));
}

#[apply(with_every_store)]
async fn a_page_asks_for_all_its_templates_at_once(api: Api, store: Arc<dyn Store>) {
    for number in 0..MANY {
        let template = format!("{TEMPLATE}# {number}\n");
        api.put_flow(format!("f{number}")).template(&template).await.created();
        api.put_trail(&format!("f{number}"), &json!({"name": "t"})).await.created();
    }
    for path in ["/trails/acme?per_page=50", "/flows/acme"] {
        let (api, asked) = noting(&store).await;
        let listed = api.get(path).await.ok();
        let listed = listed.get("data").unwrap_or(&listed).as_array().unwrap();
        let texts = listed.iter().map(|item| {
            let number = item["flow"]["name"].as_str().or(item["name"].as_str()).unwrap();
            let content = item["template"].get("content").unwrap_or(&item["template"]);
            *content == format!("{TEMPLATE}# {}\n", &number[1..])
        });
        assert_eq!(texts.filter(|same| *same).count(), MANY, "{path}");
        assert_eq!(*asked.lock().unwrap(), [MANY], "{path}");
    }
}
