//! Trust policies ([C2SP tlog-policy](https://c2sp.org/tlog-policy)): which logs count, and which witnesses have to have
//! cosigned.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use evidence_ledger::note::{NoteError, SignatureType, Signed, VerifierKey};

/// The reason why a policy cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A line is not understood.
    #[error("line {line} of the policy: {problem}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// There is not exactly one quorum.
    #[error("a policy has one line 'quorum', and this one has {0}")]
    Quorum(usize),
}

/// A member of the quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Member {
    Witness(VerifierKey),
    Group { least: usize, members: Vec<String> },
}

impl Member {
    fn witness(&self) -> Option<&VerifierKey> {
        match self {
            Self::Witness(key) => Some(key),
            Self::Group { .. } => None,
        }
    }
}

/// Whom a verifier trusts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    logs: Vec<VerifierKey>,
    members: BTreeMap<String, Member>,
    /// The name of the member that has to have cosigned, if any.
    quorum: Option<String>,
}

impl Policy {
    /// Returns the policy that trusts these logs and needs no witness.
    pub fn of_logs(logs: Vec<VerifierKey>) -> Self {
        Self { logs, ..Self::default() }
    }

    /// Returns the keys of logs and witnesses.
    pub fn keys(&self) -> impl Iterator<Item = &VerifierKey> {
        self.logs.iter().chain(self.members.values().filter_map(Member::witness))
    }

    /// Returns the keys of logs.
    pub fn logs(&self) -> &[VerifierKey] {
        &self.logs
    }

    /// Returns the problem of a checkpoint of this origin with these verified signatures; `None` if the policy accepts it.
    pub fn problem(&self, origin: &str, signed: &[Signed<'_>]) -> Option<String> {
        let by_log = |signed: &Signed<'_>| self.logs.contains(signed.by) && signed.by.name() == origin;
        if !signed.iter().any(by_log) {
            return Some(format!("none of the given keys of the log '{origin}' signed it"));
        }
        let quorum = self.quorum.as_ref()?;
        let reached = self.has_cosigned(quorum, signed);
        (!reached).then(|| format!("the witnesses of the policy's quorum '{quorum}' did not cosign it"))
    }

    fn has_cosigned(&self, name: &str, signed: &[Signed<'_>]) -> bool {
        match self.members.get(name) {
            Some(Member::Witness(key)) => signed.iter().any(|signed| signed.by == key),
            Some(Member::Group { least, members }) => {
                members.iter().filter(|member| self.has_cosigned(member, signed)).count() >= *least
            }
            None => false,
        }
    }

    /// Adds a line. Returns the quorum, if the line has it.
    fn add(&mut self, words: &[&str], grouped: &mut BTreeSet<String>) -> Result<Option<String>, String> {
        let key = |text: &str| text.parse::<VerifierKey>().map_err(|error: NoteError| error.to_string());
        match *words {
            ["log", log] | ["log", log, _] => {
                let log = key(log)?;
                if self.logs.iter().any(|known| known.is_same_key(&log)) {
                    return Err("another log has the same key".to_owned());
                }
                self.logs.push(log);
            }
            ["witness", name, witness] | ["witness", name, witness, _] => {
                let witness = key(witness)?;
                if witness.algorithm() != SignatureType::Cosignature {
                    return Err("the key of a witness has type 4".to_owned());
                }
                if self.keys().any(|known| known.is_same_key(&witness)) {
                    return Err("another line has the same key".to_owned());
                }
                self.name(name, Member::Witness(witness))?;
            }
            ["group", name, least, ref members @ ..] if !members.is_empty() => {
                let least = match least {
                    "any" => 1,
                    "all" => members.len(),
                    number => {
                        number.parse().map_err(|_| format!("'{number}' is not 'any', 'all' or a number"))?
                    }
                };
                if !(1..=members.len()).contains(&least) {
                    return Err(format!("{least} of {} members cannot be needed", members.len()));
                }
                for member in members {
                    if !self.members.contains_key(*member) {
                        return Err(format!("'{member}' is not defined above"));
                    }
                    if !grouped.insert((*member).to_owned()) {
                        return Err(format!("'{member}' is a member twice"));
                    }
                }
                let members = members.iter().map(|member| (*member).to_owned()).collect();
                self.name(name, Member::Group { least, members })?;
            }
            ["quorum", name] if name == "none" || self.members.contains_key(name) => {
                return Ok(Some(name.to_owned()));
            }
            ["quorum", name] => return Err(format!("'{name}' is not defined above")),
            _ => return Err("it is not a line of a policy".to_owned()),
        }
        Ok(None)
    }

    fn name(&mut self, name: &str, member: Member) -> Result<(), String> {
        if name == "none" || self.members.insert(name.to_owned(), member).is_some() {
            return Err(format!("the name '{name}' is taken"));
        }
        Ok(())
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let (mut policy, mut quorums, mut grouped) = (Self::default(), Vec::new(), BTreeSet::new());
        for (line, text) in (1..).zip(text.split('\n')) {
            let words: Vec<&str> = text.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            let quorum = policy.add(&words, &mut grouped);
            quorums.extend(quorum.map_err(|problem| PolicyError::Line { line, problem })?);
        }
        let [quorum] = quorums.as_slice() else { return Err(PolicyError::Quorum(quorums.len())) };
        policy.quorum = Some(quorum.clone()).filter(|quorum| quorum != "none");
        Ok(policy)
    }
}
