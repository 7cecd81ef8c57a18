//! The choice of cases in the tampering tests of both stores.

/// Returns whether all cases run. Otherwise a quarter of them runs, chosen by [`seed`].
pub(crate) fn is_thorough() -> bool {
    std::env::var_os("EVIDENCE_TEST_THOROUGH").is_some()
}

/// Returns `EVIDENCE_TEST_SEED`, or 1.
pub(crate) fn seed() -> u64 {
    std::env::var("EVIDENCE_TEST_SEED")
        .map_or(1, |seed| seed.parse().expect("EVIDENCE_TEST_SEED is a number"))
}

/// Pseudo-random numbers that are the same in every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Returns a number below `sides`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides.max(1)
    }

    /// Returns one of these items.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[usize::try_from(self.roll(items.len() as u64)).unwrap()]
    }
}
