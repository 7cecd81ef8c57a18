//! What is recorded is read whatever version of the program recorded it: it may have fields that this one does not know, and
//! texts and lists that are longer than those that this one takes. So the types that stand in requests and in facts alike
//! are strict in requests alone.

use std::cell::Cell;

thread_local! {
    /// Whether this thread reads what is recorded.
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Ends the reading, however it ends.
struct Reading {
    before: bool,
}

impl Drop for Reading {
    fn drop(&mut self) {
        READING.set(self.before);
    }
}

/// What `read` makes of something recorded; where that is refused, what it makes of it without the limits of requests.
pub(crate) fn recorded<T, E>(read: impl Fn() -> Result<T, E>) -> Result<T, E> {
    read().or_else(|refused| {
        let _reading = Reading { before: READING.replace(true) };
        read().map_err(|_| refused)
    })
}

/// Whether something recorded is read, to which the limits of requests do not apply.
pub(crate) fn is_recorded() -> bool {
    READING.get()
}

/// Writes the two halves of serde for types whose unknown fields are refused in requests and passed over in what is
/// recorded. They stand on derived ones (`remote = "Self"`, `deny_unknown_fields`).
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
                    let mut passed_over = $crate::fact::payload::UnknownFields::default();
                    <$closed>::deserialize(passed_over.beside(deserializer))
                } else {
                    <$closed>::deserialize(deserializer)
                }
            }
        }
    )*};
}
pub(crate) use closed_in_requests;

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
