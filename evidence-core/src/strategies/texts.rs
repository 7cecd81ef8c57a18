//! The small validated types. Each implements [`Arbitrary`], so `any::<FlowName>()` generates values.

use std::fmt::Debug;

pub use evidence_values::strategies::{Patterned, addresses, fitting, misfits, printable};
use proptest::prelude::*;
use proptest::sample::select;
use serde::de::DeserializeOwned;

use crate::auth::Role;
use crate::decode;
use crate::environments::EnvironmentKind;
use crate::flows::Visibility;
use crate::repos::VcsProvider;
use crate::tags::TaggedKind;

/// The values of a field with these words, as the type that it decodes to.
fn read<T: DeserializeOwned + Debug>(words: &'static [&'static str]) -> BoxedStrategy<T> {
    select(words)
        .prop_filter_map("the type knows the word", |word| decode::from_value(&(*word).into()).ok())
        .boxed()
}

macro_rules! words {
    ($($(#[$doc:meta])* $constant:ident: $name:ident = [$($word:literal),*];)*) => {$(
        $(#[$doc])*
        pub const $constant: &[&str] = &[$($word),*];

        impl Arbitrary for $name {
            type Parameters = ();
            type Strategy = BoxedStrategy<Self>;

            fn arbitrary_with((): ()) -> Self::Strategy {
                read($constant)
            }
        }
    )*};
}

words! {
    /// The roles, least first.
    ROLES: Role = ["reader", "snapshotter", "member", "admin"];
    /// The visibilities of a flow.
    VISIBILITIES: Visibility = ["private", "public"];
    /// The types of environments.
    ENVIRONMENT_KINDS: EnvironmentKind =
        ["docker", "server", "K8S", "ECS", "S3", "lambda", "azure-apps", "cloud-run", "logical"];
    /// The spellings of the kinds of records with tags.
    TAGGED_KINDS: TaggedKind =
        ["flow", "flows", "environment", "environments", "env", "repo", "repos", "control", "controls"];
    /// The version-control hosts and systems.
    PROVIDERS: VcsProvider = [
        "github", "gitlab", "bitbucket", "bitbucket_cloud", "bitbucket_dc", "azure-devops", "azure_devops_services",
        "azure_devops_server", "circleci", "git", "subversion"
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #[test]
        fn every_word_type_has_values(
            _ in any::<Role>(),
            _ in any::<Visibility>(),
            _ in any::<EnvironmentKind>(),
            _ in any::<TaggedKind>(),
            _ in any::<VcsProvider>(),
        ) {}
    }
}
