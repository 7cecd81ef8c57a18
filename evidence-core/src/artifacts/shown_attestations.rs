//! The selection of the attestations to show for an artifact.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::attestations::store::AttestationRow;

/// The indexes of the attestations to show for one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShownAttestation {
    /// The newest attestation, whose verdict counts.
    pub(super) newest: usize,
    /// The newest attestation that is not an override. If there is none, the newest.
    pub(super) evidence: usize,
}

/// Returns the attestations to show for each name, among those at these indexes, which are oldest first.
pub(super) fn shown_attestations(attestations: &[AttestationRow], places: &[usize]) -> Vec<ShownAttestation> {
    let mut named: BTreeMap<&str, ShownAttestation> = BTreeMap::new();
    for place in places.iter().copied() {
        let Some(row) = attestations.get(place) else { continue };
        let shown = ShownAttestation { newest: place, evidence: place };
        match named.entry(&row.name) {
            Entry::Vacant(entry) => {
                entry.insert(shown);
            }
            Entry::Occupied(mut entry) => {
                let before = entry.get().evidence;
                let overrides =
                    row.is_override() && attestations.get(before).is_some_and(|row| !row.is_override());
                entry.insert(ShownAttestation { evidence: if overrides { before } else { place }, ..shown });
            }
        }
    }
    named.into_values().collect()
}
