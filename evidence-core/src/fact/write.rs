//! Writes: facts that are recorded atomically, what they require and introduce, and their recorded form.

use crate::actions::secret_url::StoredUrl;
use crate::auth::actor::Actor;
use crate::auth::credentials::KeyHash;
use crate::compute::LONG_JSON;
use crate::fact::names::Precondition;
use crate::fact::{Fact, payload};
use crate::id::{Id, Random};
use crate::ledger::{Hash, Header, Salt, payload_hash};
use crate::store::entry::StoredEntry;
use crate::store::error::{StoreError, StoreResult};
use crate::time::Timestamp;

/// Facts that are recorded atomically, with their preconditions.
#[derive(Debug, Clone)]
pub struct Write {
    /// The organization whose ledger records the facts. If the first fact is [`Fact::OrganizationCreated`]
    /// with this id, the write starts the ledger.
    pub org: Id,
    /// The actor that caused the facts.
    pub by: Actor,
    /// The time of the facts.
    pub at: Timestamp,
    /// The facts, in order.
    pub facts: Vec<Fact>,
    /// The preconditions of the write.
    pub preconditions: Vec<Precondition>,
    /// The secrets that the facts introduce. They are stored beside the ledger, never in it.
    pub secrets: Secrets,
    /// The source of the facts' salts.
    pub salts: SaltSeed,
}

impl Write {
    /// Creates a write without preconditions and secrets.
    pub fn new(org: Id, by: Actor, at: Timestamp, facts: Vec<Fact>, random: &dyn Random) -> Self {
        let (preconditions, secrets) = (Vec::new(), Secrets::default());
        Self { org, by, at, facts, preconditions, secrets, salts: SaltSeed::new(random) }
    }

    /// Returns whether the write starts its organization's ledger. A store accepts such a write only if the
    /// organization does not exist, and every other write only if it does.
    pub fn begins_ledger(&self) -> bool {
        self.facts.first().is_some_and(|fact| fact.creates_org(self.org))
    }
}

/// Secrets that facts introduce, by the ids that the facts give them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The hashes of API keys, by key id.
    pub key_hashes: Vec<(Id, KeyHash)>,
    /// The URLs of notifications, by their ids.
    pub urls: Vec<(Id, StoredUrl)>,
}

impl Secrets {
    /// Adds all of these.
    pub fn extend(&mut self, more: Self) {
        self.key_hashes.extend(more.key_hashes);
        self.urls.extend(more.urls);
    }
}

/// The random value from which the salts of a write's facts are derived. It is not stored: with it, each salt of the write
/// could be computed after its destruction.
#[derive(Clone, Copy)]
pub struct SaltSeed([u8; 32]);

impl SaltSeed {
    /// Draws a seed.
    pub fn new(random: &dyn Random) -> Self {
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        Self(bytes)
    }

    /// Returns the salt of the write's fact at this position.
    pub fn salt(&self, position: u64) -> Salt {
        let digest = Hash::of([self.0.as_slice(), &position.to_be_bytes()].concat());
        let (salt, _) = digest.as_bytes().split_first_chunk().expect("a digest is longer than a salt");
        Salt::from_bytes(*salt)
    }
}

impl std::fmt::Debug for SaltSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SaltSeed(…)")
    }
}

/// Returns whether serializing these facts to JSON takes about a millisecond or more.
fn is_long(facts: &[Fact]) -> bool {
    let mut limit = LengthLimit(LONG_JSON);
    facts.iter().any(|fact| serde_json::to_writer(&mut limit, fact).is_err())
}

/// A writer that fails after this number of bytes.
struct LengthLimit(usize);

impl std::io::Write for LengthLimit {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A fact as recorded in a ledger: everything that its leaf covers, except the index.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedFact {
    /// The fact.
    pub fact: Fact,
    /// The time of the fact, by the caller's clock.
    pub at: Timestamp,
    /// The actor, without a name: `user:<id>`, `service-account:<id>` or `operator`.
    pub actor: String,
    /// The JSON of the fact and of its actor's name.
    pub payload: String,
    /// The salt of the payload's hash.
    pub salt: Salt,
    /// The [salted digest](payload_hash) of the payload.
    pub payload_hash: Hash,
}

impl EncodedFact {
    /// Encodes the fact as JSON.
    ///
    /// # Errors
    /// Serialization failed, which is a defect of the program.
    pub fn new(fact: Fact, at: Timestamp, by: &Actor, salt: Salt) -> serde_json::Result<Self> {
        let payload = payload::write(&fact, &by.name)?;
        Ok(Self::of_payload(fact, at, by.to_string(), payload, salt))
    }

    /// Returns the fact with a payload that contains it, as another store recorded it.
    pub fn of_payload(fact: Fact, at: Timestamp, actor: String, payload: String, salt: Salt) -> Self {
        Self { fact, at, actor, payload_hash: payload_hash(&salt, &payload), payload, salt }
    }

    /// Encodes the facts of one write. Long facts are encoded on a blocking thread, so that they do not delay
    /// other requests.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if a fact cannot be serialized.
    pub async fn all(facts: Vec<Fact>, at: Timestamp, by: Actor, salts: SaltSeed) -> StoreResult<Vec<Self>> {
        let prepare = move |facts: Vec<Fact>| {
            let prepared =
                (0..).zip(facts).map(|(position, fact)| Self::new(fact, at, &by, salts.salt(position)));
            prepared.collect::<serde_json::Result<Vec<_>>>()
        };
        let prepared = if is_long(&facts) {
            let prepared = tokio::task::spawn_blocking(move || prepare(facts)).await;
            prepared.map_err(|error| StoreError::Failed(error.into()))?
        } else {
            prepare(facts)
        };
        prepared.map_err(|error| StoreError::Failed(error.into()))
    }

    /// Returns whether the fact is older than the preceding entry, recorded at `last`, and is not a clock
    /// correction.
    pub fn is_older_than(&self, last: Option<Timestamp>) -> bool {
        !self.fact.corrects_clock() && last.is_some_and(|last| self.at < last)
    }

    /// Returns the leaf hash of the fact at this index, recorded at this time. The time is the fact's own, or
    /// that of the preceding entry if that is later, so that time never goes back in a ledger.
    pub fn leaf_hash(&self, index: u64, at: Timestamp) -> Hash {
        let Self { fact, actor, payload_hash, .. } = self;
        let header =
            Header { index, kind: fact.kind(), at: at.as_micros(), actor, payload_hash: *payload_hash };
        header.leaf_hash()
    }

    /// Returns the ledger entry of the fact at this index, recorded at this time.
    pub fn into_entry(self, index: u64, at: Timestamp) -> StoredEntry {
        let leaf_hash = self.leaf_hash(index, at);
        let Self { fact, actor, payload, salt, payload_hash, .. } = self;
        let kind = fact.kind().to_owned();
        StoredEntry { index, kind, at, effective_at: at, actor, payload_hash, leaf_hash, salt, payload }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::fixtures::jane;

    #[tokio::test]
    async fn long_facts_are_written_on_another_thread() {
        let facts = |length: usize| vec![Fact::TextKept { text: "x".repeat(length) }; 2];
        let at = Timestamp::from_seconds(5);
        let salts = SaltSeed([7; 32]);
        let prepare = |length| EncodedFact::all(facts(length), at, jane(), salts);
        let expected = |length| {
            let prepared =
                |(position, fact)| EncodedFact::new(fact, at, &jane(), salts.salt(position)).unwrap();
            (0..).zip(facts(length)).map(prepared).collect::<Vec<_>>()
        };
        let short = prepare(1_000).now_or_never().expect("short facts are written at once");
        assert_eq!(short.unwrap(), expected(1_000));
        assert!(prepare(4 << 20).now_or_never().is_none());
        assert_eq!(prepare(4 << 20).await.unwrap(), expected(4 << 20));
    }
}
