//! A Rocket application with routes, state, a fairing and catchers of its own that gains the evidence API at `/api/v2`:
//! one `mount`, one `register`, and nothing else changes.

use std::sync::atomic::{AtomicU64, Ordering};

use evidence_core::EvidenceService;
use evidence_tower::EvidenceApi;
use evidence_tower::rocket::{Mount, catchers as evidence_catchers};
use rocket::fairing::AdHoc;
use rocket::{Build, Request, Rocket, State, catch, catchers, get, routes};

/// How many requests have come: the application's own state.
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

/// The application as it was.
fn shop(rocket: Rocket<Build>) -> Rocket<Build> {
    rocket
        .manage(Visits::default())
        .attach(counting())
        .mount("/", routes![visits])
        .register("/", catchers![nothing_here])
}

/// The application with the API.
pub fn app<S: EvidenceService>(rocket: Rocket<Build>, api: EvidenceApi<S>) -> Rocket<Build> {
    shop(rocket).mount("/api/v2", Mount::new(api)).register("/api/v2", evidence_catchers())
}
