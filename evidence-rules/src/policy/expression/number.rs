//! Decimal numbers as text, compared exactly at any length. A version number or an id may exceed the
//! precision of a float.

use std::cmp::Ordering;

/// A number with an optional sign, digits, and an optional fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal<'a> {
    is_negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    /// Without trailing zeros.
    fraction: &'a str,
}

impl<'a> Decimal<'a> {
    /// Parses the whole text as a number; returns `None` if it is not one.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let (whole, fraction) = match digits.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (digits, ""),
        };
        let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !are_digits(whole) || !are_digits(fraction) {
            return None;
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        // Negative zero equals zero.
        let is_negative = is_negative && !(whole.is_empty() && fraction.is_empty());
        Some(Self { is_negative, whole, fraction })
    }

    fn size(&self) -> (usize, &str, &str) {
        (self.whole.len(), self.whole, self.fraction)
    }
}

impl PartialOrd for Decimal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, false) => self.size().cmp(&other.size()),
            (true, true) => other.size().cmp(&self.size()),
            (is_negative, other_is) => other_is.cmp(&is_negative),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_exactly() {
        let ascending = [
            "-9007199254740993",
            "-9007199254740992",
            "-10",
            "-9.5",
            "-9.25",
            "-0.1",
            "0",
            "0.09",
            "0.1",
            "0.11",
            "9",
            "10",
            "9007199254740992",
            "9007199254740993",
            "123456789012345678901234567890",
        ];
        for (place, one) in ascending.iter().enumerate() {
            for (other_place, other) in ascending.iter().enumerate() {
                let order = Decimal::read(one).unwrap().cmp(&Decimal::read(other).unwrap());
                assert_eq!(order, place.cmp(&other_place), "{one} {other}");
            }
        }
    }

    #[test]
    fn a_number_is_written_in_several_ways() {
        for (one, other) in [("1", "1.0"), ("007", "7"), ("-0", "0"), ("0.50", "0.5"), ("-1.10", "-01.1")] {
            assert_eq!(Decimal::read(one).unwrap(), Decimal::read(other).unwrap(), "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in
            ["", "-", "+1", ".5", "1.", "1.2.3", "1e5", "0x1", " 1", "1 ", "1,5", "--1", "\u{661}", "NaN"]
        {
            assert_eq!(Decimal::read(text), None, "{text}");
        }
    }
}
