//! What nearly every request asks of the store first, remembered for a moment: who holds a key, and how a caller
//! stands in an organization. What changes through this service is asked anew at once; what changes elsewhere, such as
//! through another server on the same database, when the moment is over.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::time::Timestamp;

/// How long an answer is good for, in microseconds: a revocation has to be effective everywhere within a second.
const MOMENT: i64 = 500_000;

/// More answers than this are forgotten all at once.
const MOST: usize = 4096;

/// Answers by question, each with the instant at which it was asked for.
#[derive(Debug)]
pub(crate) struct Recent<K, V>(Mutex<BTreeMap<K, (Timestamp, V)>>);

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Clone> Recent<K, V> {
    /// The answer, if it was asked for less than a moment before `now`.
    pub(crate) fn known(&self, question: &K, now: Timestamp) -> Option<V> {
        let answers = self.answers();
        let (asked, answer) = answers.get(question)?;
        let age = now.as_micros().checked_sub(asked.as_micros())?;
        (0..MOMENT).contains(&age).then(|| answer.clone())
    }

    /// Remembers an answer to a question that was asked at `asked`.
    pub(crate) fn keep(&self, question: K, asked: Timestamp, answer: V) {
        let mut answers = self.answers();
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(question, (asked, answer));
    }

    /// Forgets everything.
    pub(crate) fn forget(&self) {
        self.answers().clear();
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<K, (Timestamp, V)>> {
        // No answer is half written when a holder of the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_good_for_a_moment_and_not_when_the_clock_went_back() {
        let recent = Recent::default();
        let asked = Timestamp::from_seconds(1000);
        recent.keep("key", asked, "jane");
        let later = |micros| Timestamp::from_micros(asked.as_micros() + micros);
        let table = [(0, true), (MOMENT - 1, true), (MOMENT, false), (-1, false)];
        for (micros, known) in table {
            assert_eq!(recent.known(&"key", later(micros)).is_some(), known, "{micros}");
        }
        assert_eq!(recent.known(&"other", asked), None);
        recent.forget();
        assert_eq!(recent.known(&"key", asked), None);
    }

    #[test]
    fn no_more_is_remembered_than_fits() {
        let recent = Recent::default();
        let now = Timestamp::default();
        for number in 0..=MOST {
            recent.keep(number, now, ());
        }
        assert_eq!((recent.known(&0, now), recent.known(&MOST, now)), (None, Some(())));
    }
}
