//! A Rocket application with its own routes, state, fairing and catchers. The evidence API at `/api/v2` needs
//! one `mount` and one `register`, and nothing else changes.

use std::sync::atomic::{AtomicU64, Ordering};

use evidence_core::EvidenceService;
use evidence_tower::EvidenceApi;
use evidence_tower::rocket::{Mount, catchers as evidence_catchers};
use rocket::fairing::AdHoc;
use rocket::{Build, Request, Rocket, State, catch, catchers, get, routes};

/// The number of requests: the application's own state.
#[derive(Debug, Default)]
struct Visits(AtomicU64);

#[get("/visits")]
fn visits(visits: &State<Visits>) -> String {
    format!("{} visits\n", visits.0.load(Ordering::Relaxed))
}

#[catch(404)]
fn nothing_here(request: &Request<'_>) -> String {
    format!("There is no {} in this shop\n", request.uri().path())
}

fn counting() -> AdHoc {
    AdHoc::on_request("count the visits", |request, _| {
        Box::pin(async move {
            if let Some(visits) = request.rocket().state::<Visits>() {
                visits.0.fetch_add(1, Ordering::Relaxed);
            }
        })
    })
}

/// Creates the application without the API.
fn shop(rocket: Rocket<Build>) -> Rocket<Build> {
    rocket
        .manage(Visits::default())
        .attach(counting())
        .mount("/", routes![visits])
        .register("/", catchers![nothing_here])
}

/// Adds the API to the application.
pub fn app<S: EvidenceService>(rocket: Rocket<Build>, api: EvidenceApi<S>) -> Rocket<Build> {
    shop(rocket).mount("/api/v2", Mount::new(api)).register("/api/v2", evidence_catchers())
}
