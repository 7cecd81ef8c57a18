//! Names and revisions. Decides whether preconditions hold, and applies the effects of facts on names. Every
//! store uses it. SQL stores fill it with the data that a group of writes needs; the memory store holds all
//! data.

use std::collections::{BTreeMap, BTreeSet};

use crate::fact::Fact;
use crate::fact::names::{Denoted, Key, NameEffect, Precondition, RecordKind};
use crate::id::Id;

/// A name in the scope in which it is unique: an organization, or the whole store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The organization; `None` for the names of organizations and users.
    pub org: Option<Id>,
    /// The name itself.
    pub key: Key,
}

impl Name {
    /// Creates the name that `key` denotes in a write to this organization.
    pub fn new(org: Id, key: Key) -> Self {
        Self { org: key.kind().map(|_| org), key }
    }
}

/// A record with a revision: its organization, kind and id.
pub type RecordRef = (Id, RecordKind, Id);

/// The data that must be read before writes can be decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredReads {
    /// The names in preconditions and claims.
    pub names: BTreeSet<Name>,
    /// The records whose revisions are preconditions.
    pub revisions: BTreeSet<RecordRef>,
}

impl RequiredReads {
    /// Adds the data that a write to `org` depends on.
    pub fn add<'a>(
        &mut self,
        org: Id,
        preconditions: &[Precondition],
        facts: impl IntoIterator<Item = &'a Fact>,
    ) {
        for precondition in preconditions {
            match precondition {
                Precondition::Vacant(key) | Precondition::Denotes(key, _) => {
                    self.names.insert(Name::new(org, key.clone()));
                }
                Precondition::Revision(kind, id, _) => {
                    self.revisions.insert((org, *kind, *id));
                }
            }
        }
        for effect in facts.into_iter().flat_map(Fact::name_effects) {
            if let NameEffect::Claim(key, _) = effect {
                self.names.insert(Name::new(org, key));
            }
        }
    }
}

/// Known names and revisions.
#[derive(Debug, Clone, Default)]
pub struct NameIndex {
    names: BTreeMap<Name, Denoted>,
    revisions: BTreeMap<RecordRef, u64>,
}

impl NameIndex {
    /// Adds a name that was read from the store.
    pub fn insert_name(&mut self, name: Name, denoted: Denoted) {
        self.names.insert(name, denoted);
    }

    /// Adds a record's revision that was read from the store: the ledger index of its newest fact.
    pub fn insert_revision(&mut self, record: RecordRef, revision: u64) {
        self.revisions.insert(record, revision);
    }

    /// Returns the record that the name leads to.
    pub fn denoted(&self, name: &Name) -> Option<Denoted> {
        self.names.get(name).copied()
    }

    /// Returns whether a write to `org` may be recorded. Its preconditions must hold, and no other record may
    /// claim a name that its facts claim.
    pub fn admits<'a>(
        &self,
        org: Id,
        preconditions: &[Precondition],
        facts: impl IntoIterator<Item = &'a Fact>,
    ) -> bool {
        let holds = |precondition: &Precondition| match precondition {
            Precondition::Vacant(key) => {
                self.denoted(&Name::new(org, key.clone())).is_none_or(|denoted| denoted.alias)
            }
            Precondition::Denotes(key, id) => {
                self.denoted(&Name::new(org, key.clone())).is_some_and(|denoted| denoted.id == *id)
            }
            Precondition::Revision(kind, id, revision) => {
                self.revisions.get(&(org, *kind, *id)) == Some(revision)
            }
        };
        preconditions.iter().all(holds) && self.claims_are_free(org, facts)
    }

    fn claims_are_free<'a>(&self, org: Id, facts: impl IntoIterator<Item = &'a Fact>) -> bool {
        let mut changes = NameChanges::default();
        for effect in facts.into_iter().flat_map(Fact::name_effects) {
            if let NameEffect::Claim(key, id) = &effect {
                let name = Name::new(org, key.clone());
                let known = || {
                    let known = self.denoted(&name).filter(|_| !changes.gone.contains(&name));
                    known.filter(|denoted| !changes.releases(&name, denoted.id))
                };
                let claimed = changes.denoted(&name).or_else(known).filter(|denoted| !denoted.alias);
                if claimed.is_some_and(|claimed| claimed.id != *id || key.is_claimed_once()) {
                    return false;
                }
            }
            changes.apply(org, effect);
        }
        true
    }

    /// Applies a fact that was recorded at this ledger index.
    pub fn apply(&mut self, org: Id, fact: &Fact, index: u64) {
        if let Some((kind, id)) = fact.subject() {
            self.revisions.insert((org, kind, id), index);
        }
        for effect in fact.name_effects() {
            match effect {
                NameEffect::Claim(key, id) => {
                    self.names.insert(Name::new(org, key), Denoted { id, alias: false });
                }
                NameEffect::Alias(key, id) => {
                    self.names.insert(Name::new(org, key), Denoted { id, alias: true });
                }
                NameEffect::Release(kind, id) => {
                    let given_up = |name: &Name, denoted: &Denoted| {
                        name.org == Some(org) && name.key.kind() == Some(kind) && denoted.id == id
                    };
                    self.names.retain(|name, denoted| !given_up(name, denoted));
                }
            }
        }
    }
}

/// The combined effects of several facts on names. Several effects on one name result in one row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameChanges {
    put: BTreeMap<Name, Denoted>,
    released: BTreeSet<RecordRef>,
    /// Names that were claimed and then released. They lead nowhere, whatever they led to before.
    gone: BTreeSet<Name>,
}

impl NameChanges {
    /// Applies the next effect of a fact of `org`.
    pub fn apply(&mut self, org: Id, effect: NameEffect) {
        match effect {
            NameEffect::Claim(key, id) => self.assign(Name::new(org, key), Denoted { id, alias: false }),
            NameEffect::Alias(key, id) => self.assign(Name::new(org, key), Denoted { id, alias: true }),
            NameEffect::Release(kind, id) => {
                let released = |name: &Name, denoted: &mut Denoted| {
                    name.org == Some(org) && name.key.kind() == Some(kind) && denoted.id == id
                };
                self.gone.extend(self.put.extract_if(.., released).map(|(name, _)| name));
                self.released.insert((org, kind, id));
            }
        }
    }

    fn assign(&mut self, name: Name, to: Denoted) {
        self.gone.remove(&name);
        self.put.insert(name, to);
    }

    /// Returns the names that no longer lead anywhere. Names that [`released`](Self::released) records had
    /// before are not included.
    pub fn removed(&self) -> impl Iterator<Item = &Name> {
        self.gone.iter()
    }

    /// Returns the names that lead to another record than before.
    pub fn assigned(&self) -> impl Iterator<Item = (&Name, Denoted)> {
        self.put.iter().map(|(name, denoted)| (name, *denoted))
    }

    /// Returns the records that released all names they had before. Names in [`assigned`](Self::assigned) were claimed
    /// later.
    pub fn released(&self) -> impl Iterator<Item = RecordRef> {
        self.released.iter().copied()
    }

    fn denoted(&self, name: &Name) -> Option<Denoted> {
        self.put.get(name).copied()
    }

    fn releases(&self, name: &Name, id: Id) -> bool {
        let (Some(org), Some(kind)) = (name.org, name.key.kind()) else { return false };
        self.released.contains(&(org, kind, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environments::record::Environment;
    use crate::fixtures::{environment, id, named};

    fn created(n: u64, name: &str) -> Fact {
        Fact::EnvironmentCreated { record: environment(n, name) }
    }

    fn renamed(n: u64, was: &str, name: &str) -> Fact {
        Fact::EnvironmentRenamed {
            record: Environment { name: named(name), ..environment(n, was) },
            was: named(was),
        }
    }

    fn archived(n: u64, name: &str) -> Fact {
        Fact::EnvironmentArchived { record: environment(n, name) }
    }

    fn after(facts: &[Fact]) -> NameIndex {
        let mut name_index = NameIndex::default();
        for (index, fact) in (0..).zip(facts) {
            name_index.apply(id(1), fact, index);
        }
        name_index
    }

    #[test]
    fn a_write_is_admitted_when_its_claims_are_free_at_their_turn() {
        let table = [
            (vec![], vec![created(1, "a")], true),
            (vec![created(1, "a")], vec![created(2, "a")], false),
            (vec![], vec![created(1, "a"), created(2, "a")], false),
            (vec![created(1, "a")], vec![renamed(1, "a", "b"), created(2, "a")], true),
            (vec![created(1, "a"), created(2, "b")], vec![renamed(1, "a", "b")], false),
            (vec![created(1, "a")], vec![archived(1, "a"), created(2, "a")], true),
            (vec![created(1, "a")], vec![created(2, "a"), archived(1, "a")], false),
            (vec![created(1, "a"), renamed(1, "a", "b")], vec![renamed(1, "b", "a")], true),
            (
                vec![created(1, "a")],
                vec![renamed(1, "a", "b"), created(2, "a"), archived(2, "a"), created(3, "a")],
                true,
            ),
        ];
        for (before, facts, admitted) in table {
            assert_eq!(after(&before).admits(id(1), &[], &facts), admitted, "{before:?} {facts:?}");
        }
    }

    #[test]
    fn changes_leave_of_each_name_what_came_last() {
        let facts = [
            created(1, "a"),
            renamed(1, "a", "b"),
            created(2, "a"),
            archived(1, "b"),
            created(3, "b"),
            created(4, "c"),
            archived(4, "c"),
        ];
        let mut changes = NameChanges::default();
        facts.iter().flat_map(Fact::name_effects).for_each(|effect| changes.apply(id(1), effect));
        let put: Vec<_> = changes.assigned().map(|(name, to)| (name.key.name(), to.id, to.alias)).collect();
        assert_eq!(put, [("a".into(), id(2), false), ("b".into(), id(3), false)]);
        let released: Vec<_> = changes.released().map(|(.., record)| record).collect();
        assert_eq!(released, [id(1), id(4)]);
        let gone: Vec<_> = changes.removed().map(|name| name.key.name()).collect();
        assert_eq!(gone, ["c"]);
    }
}
