//! The sizes and counts that a host may set, in one table. The fields of [`Limits`], their defaults, their
//! names for operators, and their descriptions in documents follow from it. The maximum length of a name or
//! another short text is part of its type ([`crate::bounded::Text`], the names).

use std::cell::Cell;
use std::fmt;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The unit of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A size in bytes.
    Bytes,
    /// A number of things.
    Count,
}

/// A limit: its name, its value, and the input that it bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// The name that operators set it by.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: Unit,
    /// The greatest size or count.
    pub value: u64,
    /// The value that it has where no operator set it.
    pub default: u64,
    /// The description of the limited input.
    pub bounds: &'static str,
}

/// The error when a limit is set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// The text is not `NAME=SIZE`.
    #[error("'{0}' should be NAME=SIZE, such as file=200MiB")]
    NoAssignment(String),
    /// No limit has this name.
    #[error("there is no limit '{0}'; the limits are {names}", names = names())]
    UnknownName(String),
    /// The size cannot be read.
    #[error("the limit '{name}' should be a number of bytes, such as 16MiB, 64KiB or 1000, not '{value}'")]
    NoSize {
        /// The limit.
        name: &'static str,
        /// The value as it was given.
        value: String,
    },
    /// The count cannot be read.
    #[error("the limit '{name}' should be a whole number, such as 1000, not '{value}'")]
    NoCount {
        /// The limit.
        name: &'static str,
        /// The value as it was given.
        value: String,
    },
    /// One limit contains another one, and is smaller.
    #[error(
        "the limit '{outer}' ({outer_value}) should be at least the limit '{inner}' ({inner_value}): set both"
    )]
    Contradiction {
        /// The limit of the whole.
        outer: &'static str,
        /// Its value.
        outer_value: String,
        /// The limit of a part.
        inner: &'static str,
        /// Its value.
        inner_value: String,
    },
}

/// The type of a limit's value.
trait Amount: Copy {
    fn amount(self) -> u64;
    fn of(amount: u64) -> Option<Self>;
}

macro_rules! amounts {
    ($($number:ty)*) => {$(
        impl Amount for $number {
            fn amount(self) -> u64 {
                self.try_into().unwrap_or(u64::MAX)
            }

            fn of(amount: u64) -> Option<Self> {
                amount.try_into().ok()
            }
        }
    )*};
}

amounts! { usize u32 u64 }

macro_rules! limits {
    ($($name:ident: $number:ty = $default:expr, $unit:ident, $bounds:literal;)*) => {
        /// The maximum sizes and counts. A request that exceeds a size is too large (`Error::TooLarge` of evidence-core);
        /// one that exceeds a count is invalid (`Error::Invalid`), and the error names the field.
        ///
        /// Limits apply to requests only. Stored records may exceed them, because they may have been recorded
        /// under other limits. Use `..Limits::default()`: a new field is not a breaking change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Limits {
            $(
                #[doc = $bounds]
                #[doc = concat!("\n\nDefault: `", stringify!($default), "`.")]
                pub $name: $number,
            )*
        }

        impl Limits {
            /// The default limits.
            pub const DEFAULT: Self = Self { $($name: $default,)* };

            /// Returns every limit, in the order of the documentation.
            pub fn all(&self) -> Vec<Limit> {
                vec![$(Limit {
                    name: stringify!($name),
                    unit: Unit::$unit,
                    value: self.$name.amount(),
                    default: Self::DEFAULT.$name.amount(),
                    bounds: $bounds,
                },)*]
            }

            /// Sets the limit of this name. Returns `None` if the value does not fit its type.
            fn assign(&mut self, name: &str, value: u64) -> Option<()> {
                match name {
                    $(stringify!($name) => self.$name = Amount::of(value)?,)*
                    _ => return None,
                }
                Some(())
            }
        }
    };
}

limits! {
    url: usize = 8 << 10, Bytes, "A path with its query. A proxy may allow less.";
    body: u64 = MIB, Bytes, "A JSON body without a separate limit.";
    report: u64 = 16 * MIB, Bytes, "A report of an environment.";
    document: u64 = 4 * MIB, Bytes, "The JSON document of a form, and the JSON body of an artifact or of an override.";
    attestation: u64 = 48 * MIB, Bytes,
        "The JSON document of an attestation with data or results: custom, system, junit, pull_request, jira, snyk, sonar.";
    attestation_data: usize = 16 << 20, Bytes, "The data of a custom or system attestation, as JSON without white space.";
    user_data: usize = 256 << 10, Bytes, "user_data and other free-form JSON, without white space.";
    json_values: usize = 1 << 20, Count, "Values in a JSON document.";
    commit_message: usize = 1 << 20, Bytes, "The message of a git commit.";
    commits: usize = 10_000, Count, "Commits of one pull request, and of an artifact's commits_list.";
    findings: usize = 100_000, Count, "Findings of a Snyk attestation, of all projects and severities.";
    junit_suites: usize = 100_000, Count, "Test suites of a JUnit attestation.";
    file: u64 = 100 * MIB, Bytes, "A file of a form, such as an attachment.";
    files: usize = 32, Count, "Files of a form.";
    form: u64 = 256 * MIB, Bytes, "All parts of a form together.";
    template: u64 = MIB, Bytes, "The template of a flow or of a trail.";
    policy: u64 = MIB, Bytes, "A policy.";
    type_schema: u64 = MIB, Bytes, "The JSON Schema of a custom attestation type.";
    tags: usize = 100, Count, "Tags of one resource.";
    environment_policies: usize = 100, Count, "Policies attached to one environment.";
    environment_members: usize = 1_000, Count, "Members of a logical environment.";
    environment_allowances: u64 = 10_000, Count,
        "Artifacts on the allowlist of one environment. Concurrent requests may exceed it slightly.";
    policy_versions: u64 = 1_000, Count, "Versions of one policy. Responses about it contain all of them.";
    attestation_type_versions: u64 = 1_000, Count,
        "Versions of one custom attestation type. Responses about it contain all of them.";
    api_keys: usize = 1_000, Count,
        "Valid API keys of one service account. Concurrent requests may exceed it slightly.";
    actions: usize = 1_000, Count, "Actions of one organization.";
    snapshot: u64 = 32 * MIB, Bytes,
        "A recorded snapshot. Artifacts beyond the limit are not compliant, and their origin is not recorded.";
    running_artifacts: usize = 10_000, Count, "Different artifacts that run in one environment.";
    combined_artifacts: usize = 100_000, Count,
        "Artifacts in a snapshot of a logical environment, of all its members together.";
    evaluations: usize = 100_000_000, Count,
        "Rules and parts of conditions that policies evaluate for one report or one assertion: each counts once per artifact \
         and per flow that it was reported to. Beyond the limit, nothing complies.";
    evaluated_attestations: usize = 1_000_000, Count,
        "Attestations that policies read in one evaluation of an environment. Beyond the limit, nothing there complies.";
    resolutions: usize = 100_000, Count,
        "Results of policy rules for one artifact: each rule counts once per flow that it was reported to. An artifact with \
         more does not comply.";
    trail_artifacts: u64 = 10_000, Count,
        "Artifacts reported to one trail. Concurrent requests may exceed it slightly. Each further server on the same store \
         may exceed it by a sixteenth.";
    trail_attestations: u64 = 10_000, Count, "Attestations of one trail. It may be exceeded in the same way as trail_artifacts.";
    runs: u32 = 100, Count, "Runs of an artifact in one environment that responses contain: the newest, and the first.";
    trail_runs: usize = 10_000, Count, "Runs of all artifacts of a trail that responses contain: the newest.";
    request_memory: u64 = 512 * MIB, Bytes,
        "Memory for the bodies and files of running requests (four times the length of each body over 64 KiB), and for \
         generating responses with long data of attestations. A quarter of it is available in addition for long responses \
         until they are sent. An organization may use half of what the others leave of each. One larger body or response is \
         admitted at a time.";
    temporary_space: u64 = 4 * GIB, Bytes,
        "Temporary files: incoming bodies and attachments, and archives. An organization may use half of what the others \
         leave.";
    audit_pdf: u64 = 16 * MIB, Bytes,
        "Reports to a trail that a PDF contains. Each line about a run of an artifact counts as 200 bytes.";
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Pairs of limits: that of a whole, and that of its part.
const CONTAINED: [(&str, &str); 9] = [
    ("temporary_space", "form"),
    ("form", "file"),
    ("form", "attestation"),
    ("form", "document"),
    ("file", "template"),
    ("file", "policy"),
    ("file", "type_schema"),
    ("attestation", "attestation_data"),
    ("document", "commit_message"),
];

impl Limits {
    /// Sets the limit given as `NAME=SIZE`. A size in bytes may end in `KiB`, `MiB` or `GiB`.
    ///
    /// # Errors
    /// [`InvalidLimit`] if the limit does not exist or the size cannot be parsed.
    pub fn set(&mut self, assignment: &str) -> Result<(), InvalidLimit> {
        let (name, value) =
            assignment.split_once('=').ok_or_else(|| InvalidLimit::NoAssignment(assignment.to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        let limit = self.all().into_iter().find(|limit| limit.name == name);
        let Limit { name, unit, .. } = limit.ok_or_else(|| InvalidLimit::UnknownName(name.to_owned()))?;
        let refused = || match unit {
            Unit::Bytes => InvalidLimit::NoSize { name, value: value.to_owned() },
            Unit::Count => InvalidLimit::NoCount { name, value: value.to_owned() },
        };
        let amount = match unit {
            Unit::Bytes => size(value),
            Unit::Count => whole(value),
        };
        amount.and_then(|amount| self.assign(name, amount)).ok_or_else(refused)
    }

    /// Checks that no limit is smaller than the limit of one of its parts. Otherwise the larger one would
    /// have no effect.
    ///
    /// # Errors
    /// [`InvalidLimit::Contradiction`] with the first two limits that contradict each other.
    pub fn check(&self) -> Result<(), InvalidLimit> {
        let all = self.all();
        let value = |name| all.iter().find(|limit| limit.name == name).map_or(0, |limit| limit.value);
        for (outer, inner) in CONTAINED {
            let (outer_value, inner_value) = (value(outer), value(inner));
            if outer_value < inner_value {
                let [outer_value, inner_value] = [outer_value, inner_value].map(shown_size);
                return Err(InvalidLimit::Contradiction { outer, outer_value, inner, inner_value });
            }
        }
        Ok(())
    }

    /// Runs `read`, which decodes the input of a request, under these limits.
    pub fn apply<T>(self, read: impl FnOnce() -> T) -> T {
        struct Restore(Limits);

        impl Drop for Restore {
            fn drop(&mut self) {
                IN_FORCE.set(self.0);
            }
        }

        let _restore = Restore(IN_FORCE.replace(self));
        read()
    }
}

thread_local! {
    /// The limits of the request that this thread decodes. Serde passes no context to the types that it
    /// decodes.
    static IN_FORCE: Cell<Limits> = const { Cell::new(Limits::DEFAULT) };
}

/// Returns the limits of the request that this thread decodes; the defaults outside of [`Limits::apply`].
#[doc(hidden)]
pub fn in_force() -> Limits {
    IN_FORCE.get()
}

fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses a number of bytes, KiB, MiB or GiB.
fn size(text: &str) -> Option<u64> {
    let units = [("GiB", GIB), ("MiB", MIB), ("KiB", KIB)];
    let found = units.into_iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
    let (number, bytes) = found.unwrap_or((text, 1));
    whole(number.trim_end())?.checked_mul(bytes)
}

/// Formats a number of bytes for [`Limits::set`].
fn shown_size(bytes: u64) -> String {
    let units = [("GiB", GIB), ("MiB", MIB), ("KiB", KIB)];
    let unit = units.into_iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

fn names() -> String {
    Limits::DEFAULT.all().iter().map(|limit| limit.name).collect::<Vec<_>>().join(", ")
}

impl Limit {
    /// Returns its default in the form of [`Limits::set`].
    pub fn shown_default(&self) -> String {
        match self.unit {
            Unit::Bytes => shown_size(self.default),
            Unit::Count => self.default.to_string(),
        }
    }
}

/// Formats a limit as `NAME=DEFAULT`, in the form of [`Limits::set`], with its description.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: {}", self.name, self.shown_default(), self.bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(assignment: &str) -> Result<Limits, String> {
        let mut limits = Limits::default();
        limits.set(assignment).map_err(|refused| refused.to_string())?;
        Ok(limits)
    }

    #[test]
    fn sizes_have_units_and_counts_have_none() {
        let table = [
            ("file=200MiB", Limits { file: 200 << 20, ..Limits::DEFAULT }),
            ("file = 2GiB", Limits { file: 2 << 30, ..Limits::DEFAULT }),
            ("commit_message=64KiB", Limits { commit_message: 64 << 10, ..Limits::DEFAULT }),
            ("url=1000", Limits { url: 1000, ..Limits::DEFAULT }),
            ("runs=7", Limits { runs: 7, ..Limits::DEFAULT }),
            ("files=0", Limits { files: 0, ..Limits::DEFAULT }),
        ];
        for (assignment, expected) in table {
            assert_eq!(set(assignment), Ok(expected), "{assignment}");
        }
    }

    #[test]
    fn nonsense_is_refused_and_an_unknown_name_lists_the_limits() {
        let sizes = [
            "",
            "x",
            "-1",
            "+1",
            "1.5MiB",
            "16MB",
            "16mib",
            "MiB",
            "1e6",
            "99999999999999999999",
            "17179869184GiB",
        ];
        for value in sizes {
            let refused = set(&format!("file={value}")).unwrap_err();
            let text = format!(
                "the limit 'file' should be a number of bytes, such as 16MiB, 64KiB or 1000, not '{value}'"
            );
            assert_eq!(refused, text);
        }
        for value in ["", "x", "1KiB", "-1", "4294967296"] {
            let refused = set(&format!("runs={value}")).unwrap_err();
            assert_eq!(
                refused,
                format!("the limit 'runs' should be a whole number, such as 1000, not '{value}'")
            );
        }
        let refused = set("fiel=1").unwrap_err();
        assert!(
            refused.starts_with("there is no limit 'fiel'; the limits are url, body, report, "),
            "{refused}"
        );
        for limit in Limits::DEFAULT.all() {
            assert!(refused.contains(limit.name), "{refused}");
        }
        assert_eq!(set("file").unwrap_err(), "'file' should be NAME=SIZE, such as file=200MiB");
    }

    #[test]
    fn every_limit_can_be_set_and_shows_a_default_that_can_be_read_back() {
        for Limit { name, default, .. } in Limits::DEFAULT.all() {
            let limits = set(&format!("{name}={}", default + 1)).unwrap();
            let changed = limits.all().into_iter().filter(|limit| limit.value != limit.default);
            assert_eq!(
                changed.map(|limit| (limit.name, limit.value)).collect::<Vec<_>>(),
                [(name, default + 1)]
            );
            let shown = limits.all().into_iter().find(|limit| limit.name == name).unwrap().shown_default();
            assert_eq!(set(&format!("{name}={shown}")), Ok(Limits::DEFAULT), "{name}");
        }
    }

    #[test]
    fn the_limit_of_a_whole_is_at_least_that_of_its_parts() {
        assert_eq!(Limits::DEFAULT.check(), Ok(()));
        let table = [
            (
                Limits { file: 1 << 30, ..Limits::DEFAULT },
                "'form' (256MiB) should be at least the limit 'file' (1GiB)",
            ),
            (
                Limits { attestation_data: (48 << 20) + 1, ..Limits::DEFAULT },
                "'attestation' (48MiB) should be at least the limit 'attestation_data' (50331649)",
            ),
            (
                Limits { commit_message: 8 << 20, ..Limits::DEFAULT },
                "'document' (4MiB) should be at least the limit 'commit_message' (8MiB)",
            ),
        ];
        for (limits, expected) in table {
            let refused = limits.check().unwrap_err().to_string();
            assert_eq!(refused, format!("the limit {expected}: set both"));
        }
    }

    #[test]
    fn limits_are_in_force_while_input_is_read_and_no_longer() {
        let (outer, inner) = (Limits { files: 1, ..Limits::DEFAULT }, Limits { files: 2, ..Limits::DEFAULT });
        let seen = outer.apply(|| [in_force().files, inner.apply(|| in_force().files), in_force().files]);
        assert_eq!((seen, in_force()), ([1, 2, 1], Limits::DEFAULT));
        std::panic::catch_unwind(|| outer.apply(|| assert_eq!(in_force().files, 2))).unwrap_err();
        assert_eq!(in_force(), Limits::DEFAULT);
    }
}
