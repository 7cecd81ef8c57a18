//! Strategies for [proptest](https://docs.rs/proptest). Each small type implements [`Arbitrary`], so `any::<FlowName>()`
//! generates values. Texts are generated from the patterns that validate them.

mod shape;

use std::fmt::Debug;
use std::str::FromStr;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::string::string_regex;

use crate::bounded::WebUrl;
use crate::decode;
use crate::id::{ID_PATTERN, Id};
use crate::name::{
    ActionName, AttestationName, AttestationTypeName, CommitPrefix, CommitSha, ControlIdentifier,
    EnvironmentName, Fingerprint, FingerprintPrefix, FlowName, OrgName, PolicyName, ServiceAccountName,
    TagKey, TemplateReferenceName, TrailName,
};
use crate::time::Timestamp;

pub use shape::{Invalid, Object, Shape};

/// A text type that is defined by its pattern and its maximum length.
pub trait Patterned: FromStr<Err: Debug> + Debug + 'static {
    /// The pattern that the whole text matches.
    const PATTERN: &'static str;
    /// The maximum length in characters.
    const MAX_LEN: usize;
}

macro_rules! patterned {
    ($($name:ident: $pattern:expr, $longest:expr;)*) => {$(
        impl Patterned for $name {
            const PATTERN: &'static str = $pattern;
            const MAX_LEN: usize = $longest;
        }

        impl Arbitrary for $name {
            type Parameters = ();
            type Strategy = BoxedStrategy<Self>;

            fn arbitrary_with((): ()) -> Self::Strategy {
                fitting::<Self>().prop_filter_map("the type accepts its pattern", |text| text.parse().ok()).boxed()
            }
        }
    )*};
}

macro_rules! names {
    ($($name:ident)*) => { patterned! { $($name: $name::PATTERN, $name::MAX_LEN;)* } };
}

names! {
    ActionName OrgName FlowName TrailName TemplateReferenceName EnvironmentName ServiceAccountName PolicyName AttestationName
    AttestationTypeName ControlIdentifier TagKey Fingerprint FingerprintPrefix CommitSha CommitPrefix
}
patterned! { Id: ID_PATTERN, 32; }

/// Texts that `T` accepts, occasionally of the maximum length.
pub fn fitting<T: Patterned>() -> BoxedStrategy<String> {
    // Anchors only say that the pattern matches the whole string, which holds here anyway.
    let pattern = T::PATTERN.trim_start_matches('^').trim_end_matches('$');
    let texts = string_regex(pattern).expect("the pattern of a type is a regular expression").boxed();
    let longest = texts.clone().prop_map(|text| repeated(&text, T::MAX_LEN));
    prop_oneof![9 => texts, 1 => longest]
        .prop_filter("not longer than the type allows", |text| text.len() <= T::MAX_LEN)
        .boxed()
}

/// Texts that `T` rejects, mostly because of one additional or wrong character.
pub fn misfits<T: Patterned>() -> BoxedStrategy<String> {
    let spoiled =
        (fitting::<T>(), select(&["\n", " ", "é", "/", "\u{0}"])).prop_map(|(text, more)| text + more);
    let longer = fitting::<T>().prop_map(|text| repeated(&text, T::MAX_LEN + 1));
    prop_oneof![Just(String::new()), spoiled, longer]
        .prop_filter("refused by the type", |text| text.parse::<T>().is_err())
        .boxed()
}

/// Returns the text repeated up to this number of characters.
fn repeated(text: &str, length: usize) -> String {
    text.chars().cycle().take(length).collect()
}

/// Short texts of any printable characters, without NUL.
pub fn printable() -> BoxedStrategy<String> {
    "\\PC{0,16}".boxed()
}

/// Absolute `http` and `https` addresses. No host begins with `xn--`, which promises a valid Punycode.
pub fn addresses() -> BoxedStrategy<String> {
    "(https?|HTTPS)://([a-z]{1,8}@)?([a-z][a-z0-9-]{0,8}\\.){0,2}[a-z]{1,8}(:[0-9]{1,4})?(/[a-zA-Z0-9._~%-]{0,8}){0,3}(\\?[a-z]=[a-z0-9]{0,4})?"
        .prop_filter("no Punycode", |address| !address.contains("xn--"))
        .boxed()
}

impl Arbitrary for WebUrl {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        addresses().prop_filter_map("a web address", |text| decode::from_value(&text.into()).ok()).boxed()
    }
}

impl Arbitrary for Timestamp {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    /// Instants between the years 1970 and 2100.
    fn arbitrary_with((): ()) -> Self::Strategy {
        (0..4_102_444_800_000_000_i64).prop_map(Self::from_micros).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every generated text is accepted, and every misfit is rejected.
    fn told_apart<T: Patterned>(fitting_text: &str, misfit: &str) -> Result<(), TestCaseError> {
        let accepts = |text: &str| text.parse::<T>().is_ok();
        prop_assert!(accepts(fitting_text), "{fitting_text:?} is refused");
        prop_assert!(!accepts(misfit), "{misfit:?} is accepted");
        Ok(())
    }

    macro_rules! told_apart {
        ($($name:ident)*) => { proptest! {$(
            #[test]
            #[expect(non_snake_case, reason = "named after the type")]
            fn $name(text in fitting::<super::$name>(), misfit in misfits::<super::$name>()) {
                told_apart::<super::$name>(&text, &misfit)?;
            }
        )*} };
    }

    told_apart! {
        OrgName FlowName TrailName TemplateReferenceName EnvironmentName ServiceAccountName PolicyName AttestationName
        AttestationTypeName ControlIdentifier TagKey Fingerprint FingerprintPrefix CommitSha CommitPrefix Id
    }

    proptest! {
        #[test]
        fn every_small_type_has_values(
            _ in any::<WebUrl>(),
            _ in any::<Timestamp>(),
        ) {}
    }
}
