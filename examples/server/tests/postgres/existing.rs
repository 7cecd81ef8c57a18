//! Commands that need an existing store do not create one.

use evidence_test_postgres::SchemaName;

use crate::support::{Database, program};

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn a_schema_without_a_store_stays_without() {
    let schema = SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
    let target = Database::default();
    let at = ["--database-url", &schema.url, "--database-schema", &schema.name];
    for arguments in [
        [&["fsck"][..], &at].concat(),
        [&["fsck", "--rebuild"][..], &at].concat(),
        [&["user", "list"][..], &at].concat(),
        vec!["copy", "--from", &schema.url, "--from-schema", &schema.name, "--to", &target.url],
    ] {
        let refused = program(&arguments).output().unwrap();
        let [stdout, stderr] = [refused.stdout, refused.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!((refused.status.code(), stdout.as_str()), (Some(1), ""), "{arguments:?}: {stderr}");
        let sentence = format!("schema '{}' has no tables of an evidence store", schema.name);
        assert!(stderr.contains(&sentence) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    // The store can still be created here.
    let seeded = program(&[&["seed", "--user", "jane"][..], &at].concat()).output().unwrap();
    assert!(seeded.status.success(), "{}", String::from_utf8_lossy(&seeded.stderr));
}
