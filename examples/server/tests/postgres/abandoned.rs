//! Clients disconnect while the database works for them. Other clients do not wait for that work.

use crate::support::{ORG, Server};
use crate::writing::WriteOutcome;
use crate::{cluster, create, environments, hold, release, until_waiting};

/// The number of connections with which the program reads.
const CONNECTIONS: usize = 8;

/// The maximum number of them for the lists of one organization.
const SHARE: usize = CONNECTIONS / 2;

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn clients_that_hang_up_on_slow_lists_keep_nobody_waiting() {
    let (cluster, database) = cluster();
    let server = Server::start(&database);
    // A table of lists that no write reads.
    hold(&cluster, "LOCK TABLE evidence.repo IN ACCESS EXCLUSIVE MODE");
    let list = format!(
        "GET /api/v2/repos/{ORG} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        server.key
    );
    for round in 0..3 {
        let clients: Vec<_> = (0..CONNECTIONS).map(|_| server.send(&list)).collect();
        until_waiting(&cluster, SHARE);
        drop(clients);
        // If abandoned statements continued, they would occupy the whole share for longer than others wait.
        let name = format!("env-{round}");
        assert_eq!(create(&server.address, &server.key, &name), WriteOutcome::Acknowledged);
        assert!(environments(&server).contains(&name));
        // Abandoned statements are cancelled, not just ignored.
        until_waiting(&cluster, 0);
    }
    release(&cluster);
}
