//! Relaxes decoding for stored records. Any version of the program may have written a record, so it may have
//! unknown fields, and texts and lists longer than this version accepts. Types that occur in both requests
//! and facts are therefore strict only in requests.

use std::cell::Cell;

thread_local! {
    /// Whether this thread is decoding a stored record.
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Restores the flag when decoding ends, even after a panic.
struct Reading {
    before: bool,
}

impl Drop for Reading {
    fn drop(&mut self) {
        READING.set(self.before);
    }
}

/// Returns the result of `read` for a stored record. If it fails, calls `read` again without the limits of
/// requests.
pub fn recorded<T, E>(read: impl Fn() -> Result<T, E>) -> Result<T, E> {
    read().or_else(|refused| {
        let _reading = Reading { before: READING.replace(true) };
        read().map_err(|_| refused)
    })
}

/// Returns whether a stored record is being decoded, to which the limits of requests do not apply.
pub fn is_recorded() -> bool {
    READING.get()
}

/// Implements both serde traits for types whose unknown fields are rejected in requests and ignored in stored
/// records. They build on derived ones (`remote = "Self"`, `deny_unknown_fields`).
#[doc(hidden)]
#[macro_export]
macro_rules! closed_in_requests {
    ($($closed:ty),*) => {$(
        impl serde::Serialize for $closed {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$closed>::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $closed {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if $crate::decode::is_recorded() {
                    let mut passed_over = $crate::decode::UnknownFields::default();
                    <$closed>::deserialize(passed_over.beside(deserializer))
                } else {
                    <$closed>::deserialize(deserializer)
                }
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_requests_again_after_what_is_recorded() {
        let seen = std::cell::RefCell::new(Vec::new());
        let outcome = recorded(|| {
            seen.borrow_mut().push(is_recorded());
            Err::<(), _>(seen.borrow().len())
        });
        assert_eq!(
            (outcome, seen.take()),
            (Err(1), vec![false, true]),
            "it says why it was refused at first"
        );
        assert!(!is_recorded());
        assert_eq!(recorded(|| Ok::<_, ()>(is_recorded())), Ok(false));
        let within =
            recorded(|| if is_recorded() { Ok(recorded(|| Ok::<_, ()>(is_recorded()))) } else { Err(()) });
        assert_eq!(within, Ok(Ok(true)));
        std::panic::catch_unwind(|| recorded(|| if is_recorded() { panic!() } else { Err::<(), _>(()) }))
            .unwrap_err();
        assert!(!is_recorded());
    }
}
