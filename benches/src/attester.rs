//! Clients that write attestations of about a kilobyte, each to separate trails.

use std::sync::Arc;

use crate::{Client, FLOW, Request, Result, Server, Worker, attestation_document, form};

/// The number of attestations after which a client begins a new trail.
const PER_TRAIL: usize = 8;

/// A client that attests on its own connection, to its own trails.
#[derive(Debug)]
pub struct Attester {
    server: Arc<Server>,
    client: Client,
    org: String,
    number: usize,
    turn: usize,
    request: Request,
}

impl Attester {
    async fn new(server: Arc<Server>, org: &str, number: usize) -> Result<Self> {
        let client = server.client().await?;
        Ok(Self { client, org: org.to_owned(), number, turn: 0, request: Request::plain("/live"), server })
    }

    /// Creates clients, which distribute the organizations among them.
    ///
    /// # Errors
    /// If nothing listens.
    pub async fn several(server: &Arc<Server>, orgs: &[String], clients: usize) -> Result<Vec<Self>> {
        let mut attesters = Vec::new();
        for (number, org) in (0..clients).zip(orgs.iter().cycle()) {
            attesters.push(Self::new(Arc::clone(server), org, number).await?);
        }
        Ok(attesters)
    }
}

impl Worker for Attester {
    async fn work(&mut self) -> Result {
        if self.turn.is_multiple_of(PER_TRAIL) {
            let trail = format!("trail-{}-{}", self.number, self.turn);
            self.request = attestation(&self.server, &self.org, &trail, &attestation_document("test"));
        }
        self.turn += 1;
        self.client.send(&self.request).await.map(drop)
    }
}

/// Returns a request that attests to this trail, which it begins if necessary.
pub fn attestation(server: &Server, org: &str, trail: &str, document: &str) -> Request {
    let (media_type, body) = form(&[("name=\"data_json\"", document)]);
    let path = format!("/attestations/{org}/{FLOW}/trail/{trail}/generic");
    server.request("POST", &path, (&media_type, &body))
}
