//! Clients that hang up while the database works for them: nobody else waits for what they asked.

use crate::support::{ORG, Server};
use crate::writing::WriteOutcome;
use crate::{cluster, create, environments, hold, release, until_waiting};

/// How many connections the program reads with.
const CONNECTIONS: usize = 8;

/// How many of them lists of one organization have at most.
const SHARE: usize = CONNECTIONS / 2;

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn clients_that_hang_up_on_slow_lists_keep_nobody_waiting() {
    let (cluster, database) = cluster();
    let server = Server::start(&database);
    // Of the tables of lists, one that no write looks at.
    hold(&cluster, "LOCK TABLE evidence.repo IN ACCESS EXCLUSIVE MODE");
    let list = format!(
        "GET /api/v2/repos/{ORG} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        server.key
    );
    for round in 0..3 {
        let clients: Vec<_> = (0..CONNECTIONS).map(|_| server.send(&list)).collect();
        until_waiting(&cluster, SHARE);
        drop(clients);
        // Statements that were abandoned and went on would have the whole share for longer than others wait for theirs.
        let name = format!("env-{round}");
        assert_eq!(create(&server.address, &server.key, &name), WriteOutcome::Acknowledged);
        assert!(environments(&server).contains(&name));
        // What nobody waits for is ended, not left to itself.
        until_waiting(&cluster, 0);
    }
    release(&cluster);
}
