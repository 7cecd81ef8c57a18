//! The cost of a host: the same requests to the API on hyper alone, in axum and in Rocket. The store is
//! SQLite, with the same cost for each.

use std::time::Duration;

use evidence_benches::{
    Engine, FLOW, Mount, ORG, Repeater, Result, Round, Row, Server, Stores, print, round, run,
};
use serde_json::json;

const CLIENTS: usize = 16;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1000);

fn main() -> Result {
    run(|servers| async move {
        let stores = Stores::below(env!("CARGO_TARGET_TMPDIR"))?;
        let mut servers_of = Vec::new();
        for mount in [Mount::Hyper, Mount::Axum, Mount::Rocket] {
            let name = format!("{mount:?}").to_lowercase();
            let server = Server::mounted(&servers, &stores, Engine::Sqlite, &name, mount).await?;
            server.client().await?.send(&server.flow(None)).await?;
            servers_of.push((mount, server));
        }
        let mut rows = Vec::new();
        for what in ["GET a flow", "POST that is refused"] {
            let mut rounds = vec![Vec::new(); servers_of.len()];
            for _ in 0..ROUNDS {
                for ((_, server), rounds) in servers_of.iter().zip(&mut rounds) {
                    rounds.push(measured(server, what).await?);
                }
            }
            let medians: Vec<Round> = rounds.iter().map(|rounds| Round::medians(rounds)).collect();
            for ((mount, _), round) in servers_of.iter().zip(&medians) {
                let row =
                    Row::orientation(format!("{what}, {mount:?}, {CLIENTS} connections"), round.to_string());
                rows.push(Row { ratio: Some(round.cpu_micros / medians[0].cpu_micros), ..row });
            }
        }
        println!("\nThe ratio is that of the server's CPU to hyper's.");
        print(&rows);
        Ok(())
    })
}

async fn measured(server: &Server, what: &str) -> Result<Round> {
    let (request, status) = match what {
        "GET a flow" => (server.get(&format!("/flows/{ORG}/{FLOW}")), 200),
        _ => {
            let path = format!("/environments/{ORG}/nowhere/policies");
            (server.json("POST", &path, &json!({ "policy_names": ["a"] })), 404)
        }
    };
    let repeaters = Repeater::several(server.address, &request, status, CLIENTS).await?;
    Ok(round(repeaters, ROUND).await?.1)
}
