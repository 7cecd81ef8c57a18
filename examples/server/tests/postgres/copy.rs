//! Copies from a file to a server and back.

use crate::cluster;
use crate::copying::{copied, fill, sound, trail};
use crate::support::Database;

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn a_store_moves_to_postgresql_and_back() {
    let (file, back) = (Database::default(), Database::default());
    let (_cluster, server) = cluster();
    let key = fill(&file);
    for (from, to) in [(&file, &server), (&server, &back)] {
        let (summary, _) = copied(from, to);
        assert_eq!(summary, "2 organizations, 9 entries (9 new), 1 new attachments\n");
        assert_eq!(sound(to), sound(&file));
        assert_eq!(trail(to, &key), trail(&file, &key));
        let (again, _) = copied(from, to);
        assert_eq!(again, "2 organizations, 9 entries (0 new), 0 new attachments\n");
    }
}
