//! Policies: which are refused, and which checkpoints they accept.

use evidence_ledger::note::{NoteSigner, SignedNote, VerifierKey, sign_note};
use evidence_verify::{Policy, PolicyError};

const LOG: &str = "evidence.example.com/log";

fn signer(name: &str, seed: u8) -> NoteSigner {
    NoteSigner::new(name, &[seed; 32]).unwrap()
}

/// The key of a witness, with the note that it cosigned.
fn key(seed: u8) -> VerifierKey {
    signer(LOG, seed).verifier().clone()
}

/// A key of type 4, which witnesses have, from that of a log.
fn witness(name: &str, seed: u8) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let text = signer(name, seed).verifier().to_string();
    let mut key = STANDARD.decode(text.splitn(3, '+').nth(2).unwrap()).unwrap();
    key[0] = 4;
    let id = evidence_ledger::Hash::of([name.as_bytes(), b"\n", &key].concat());
    let id: String = id.to_string().chars().take(8).collect();
    format!("{name}+{id}+{}", STANDARD.encode(key))
}

#[test]
fn a_policy_is_read_or_refused_with_the_line() {
    let (log, first, second) = (key(1), witness("w1.example", 2), witness("w2.example", 3));
    let good = format!(
        "# whom we trust\n\nlog {log} https://evidence.example.com\n\twitness w1 {first}\nwitness w2 {second} https://w2.example\n\
         group all-of-them all w1 w2\ngroup one any all-of-them\nquorum one\n"
    );
    assert!(good.parse::<Policy>().is_ok(), "{good}");
    let lines = Vec::from_iter(good.lines());
    for (line, problem) in [
        (format!("log {log}"), "another log has the same key"),
        ("log x".to_owned(), "is not a verifier key"),
        (format!("witness w3 {log}"), "has type 4"),
        (format!("witness w3 {first}"), "the same key"),
        (format!("witness none {}", witness("w3.example", 4)), "is taken"),
        (format!("witness w1 {}", witness("w3.example", 4)), "is taken"),
        ("group g 1 w3".to_owned(), "'w3' is not defined above"),
        ("group g 3 one".to_owned(), "3 of 1 members cannot be needed"),
        ("group g 0 one".to_owned(), "0 of 1 members cannot be needed"),
        ("group g many one".to_owned(), "'many' is not"),
        ("group g any w1".to_owned(), "'w1' is a member twice"),
        ("group g any".to_owned(), "not a line of a policy"),
        ("quorum g".to_owned(), "'g' is not defined above"),
        ("nonsense".to_owned(), "not a line of a policy"),
    ] {
        let text = [lines[..7].join("\n"), line.clone(), lines[7..].join("\n")].join("\n");
        let error = text.parse::<Policy>().unwrap_err();
        assert!(
            matches!(&error, PolicyError::Line { line: 8, problem: found } if found.contains(problem)),
            "{line}: {error}"
        );
    }
    assert_eq!("".parse::<Policy>(), Err(PolicyError::Quorum(0)));
    assert_eq!("quorum none\nquorum none\n".parse::<Policy>(), Err(PolicyError::Quorum(2)));
}

#[test]
fn a_quorum_is_needed_as_the_policy_says() {
    let (log, stranger) = (signer(LOG, 1), signer("stranger.example", 9));
    let text = "evidence.example.com/log\n1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
    let note: SignedNote = sign_note(text, [&log, &stranger]).parse().unwrap();
    let accepted = |policy: &str| {
        let policy: Policy = policy.parse().unwrap();
        let signed = note.verify(policy.keys()).unwrap();
        policy.problem(LOG, &signed)
    };
    let log_line = format!("log {}\n", log.verifier());
    let witness = witness("w1.example", 2);
    assert_eq!(accepted(&format!("{log_line}quorum none\n")), None);
    let problem = accepted(&format!("{log_line}witness w {witness}\nquorum w\n")).unwrap();
    assert!(problem.contains("the policy's quorum 'w' did not cosign it"), "{problem}");
    let problem = accepted(&format!("log {}\nquorum none\n", stranger.verifier())).unwrap();
    assert!(problem.contains("none of the given keys of the log"), "{problem}");
}
