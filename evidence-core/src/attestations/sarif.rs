//! The findings of a scanner in SARIF 2.1.0 (Static Analysis Results Interchange Format): the parts of a log
//! that are read, and the summary that is recorded.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::{Description, List, LongText};

/// A SARIF log. Other keys are recorded too.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SarifData {
    /// The version of the format.
    #[expect(dead_code, reason = "a log is told by it")]
    version: SarifVersion,
    /// The runs of scanners.
    runs: List<Run>,
    /// Parts of the runs that are stored elsewhere in the log. If they contain results or invocations, every
    /// run counts as incomplete, because these are not read.
    #[serde(default)]
    inline_external_properties: Option<List<Elsewhere>>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[schemars(inline)]
enum SarifVersion {
    #[serde(rename = "2.1.0")]
    V2_1_0,
}

/// A run of a scanner.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Run {
    /// The scanner.
    tool: Tool,
    /// The findings. Null or left out if the scan did not complete.
    #[serde(default)]
    results: Option<List<Finding, 100_000>>,
    /// The invocations of the scanner.
    #[serde(default)]
    invocations: Option<List<Invocation>>,
    /// Parts of the run that are in other files. If they contain results or invocations, the run counts as
    /// incomplete, because these are not read.
    #[serde(default)]
    external_property_file_references: Option<Elsewhere>,
}

/// Parts of a run that are stored in another place and not read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Elsewhere {
    /// Results.
    #[serde(default)]
    results: Option<List<Unread, 100_000>>,
    /// Invocations.
    #[serde(default)]
    invocations: Option<List<Unread>>,
}

/// An object whose content is ignored.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Unread {}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Tool {
    /// The main component of the scanner.
    driver: Driver,
    /// The plugins of the scanner. They may define rules.
    #[serde(default)]
    extensions: Option<List<Extension>>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Driver {
    /// The name of the scanner.
    name: LongText,
    /// Its version.
    #[serde(default)]
    version: Option<LongText>,
    /// Its version by Semantic Versioning.
    #[serde(default)]
    semantic_version: Option<LongText>,
    /// Its rules.
    #[serde(default)]
    rules: Option<List<Descriptor, 100_000>>,
    /// The kinds of notifications that it sends.
    #[serde(default)]
    notifications: Option<List<Descriptor, 100_000>>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Extension {
    /// Its rules.
    #[serde(default)]
    rules: Option<List<Descriptor, 100_000>>,
    /// The kinds of notifications that it sends.
    #[serde(default)]
    notifications: Option<List<Descriptor, 100_000>>,
}

/// A rule, or a kind of notification.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    /// Its id. Findings and notifications refer to it by this id.
    #[serde(default)]
    id: Option<LongText>,
    /// The default severity of its findings or notifications.
    #[serde(default)]
    default_configuration: Option<Configuration>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
struct Configuration {
    /// The severity.
    #[serde(default)]
    level: Option<Level>,
}

/// A reference to a rule or to a kind of notification.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Reference {
    /// Its id.
    #[serde(default)]
    id: Option<LongText>,
    /// Its index among those of its component.
    #[serde(default)]
    index: Option<i64>,
    /// The component that defines it. Defaults to the scanner itself.
    #[serde(default)]
    tool_component: Option<ComponentReference>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
struct ComponentReference {
    /// Its index among the plugins of the scanner.
    #[serde(default)]
    index: Option<i64>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Invocation {
    /// Whether the scan completed. The format requires this key.
    #[serde(default)]
    execution_successful: Option<bool>,
    /// The signal that ended the scanner.
    #[serde(default)]
    exit_signal_name: Option<LongText>,
    /// The number of that signal.
    #[serde(default)]
    exit_signal_number: Option<i64>,
    /// The reason why the scanner did not start.
    #[serde(default)]
    process_start_failure_message: Option<Description>,
    /// Messages about the run. An error means that the results may be incomplete.
    #[serde(default)]
    tool_execution_notifications: Option<List<Notification, 100_000>>,
    /// Messages about the scanner's configuration. An error means that the results may be incomplete.
    #[serde(default)]
    tool_configuration_notifications: Option<List<Notification, 100_000>>,
    /// Severities of rules in this invocation.
    #[serde(default)]
    rule_configuration_overrides: Option<List<ConfigurationOverride, 100_000>>,
    /// Severities of notifications in this invocation.
    #[serde(default)]
    notification_configuration_overrides: Option<List<ConfigurationOverride, 100_000>>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Notification {
    /// Its severity. Defaults to the severity of its descriptor, or else to `warning`.
    #[serde(default)]
    level: Option<Level>,
    /// Its kind.
    #[serde(default)]
    descriptor: Option<Reference>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct ConfigurationOverride {
    /// The rule, or the kind of notification.
    #[serde(default)]
    descriptor: Reference,
    /// The configuration that replaces its default.
    #[serde(default)]
    configuration: Option<Configuration>,
}

/// A finding.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Finding {
    /// Its severity. Defaults to the severity of its rule, or else to `warning`.
    #[serde(default)]
    level: Option<Level>,
    /// The kind of result. Defaults to `fail`.
    #[serde(default)]
    kind: Option<Kind>,
    /// The id of its rule.
    #[serde(default)]
    rule_id: Option<LongText>,
    /// The index of its rule among those of the scanner.
    #[serde(default)]
    rule_index: Option<i64>,
    /// Its rule, possibly of a plugin.
    #[serde(default)]
    rule: Option<Reference>,
    /// Its origin.
    #[serde(default)]
    provenance: Option<Provenance>,
    /// The comparison with an earlier run. An `absent` finding was present in that run, and is not in this
    /// one.
    #[serde(default)]
    baseline_state: Option<BaselineState>,
    /// The decisions to suppress it.
    #[serde(default)]
    suppressions: Option<List<Suppression>>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Provenance {
    /// The index of its invocation among those of the run.
    #[serde(default)]
    invocation_index: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
enum BaselineState {
    New,
    Unchanged,
    Updated,
    Absent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Level {
    None,
    Note,
    Warning,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
enum Kind {
    NotApplicable,
    Pass,
    Fail,
    Review,
    Open,
    Informational,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
struct Suppression {
    /// The status of the decision. Defaults to `accepted`.
    #[serde(default)]
    status: Option<SuppressionStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
enum SuppressionStatus {
    Accepted,
    UnderReview,
    Rejected,
}

/// The counts of the findings of scanners.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SarifSummary {
    /// The scanners, one for each run.
    pub tools: Vec<SarifTool>,
    /// Findings of the level `error`.
    pub error_count: u64,
    /// Findings of the level `warning`, and those whose level is unknown.
    pub warning_count: u64,
    /// Findings of the level `note`.
    pub note_count: u64,
    /// Results that are not a problem: those of a kind such as `pass`, or with the `baselineState` `absent`.
    pub none_count: u64,
    /// Suppressed findings. They are in no other count.
    pub suppressed_count: u64,
    /// Incomplete runs. A run is incomplete without results, or with results or invocations elsewhere. It is
    /// also incomplete if an invocation failed, does not report success or failure, or has a notification of
    /// the level `error`.
    pub failed_run_count: u64,
}

/// A scanner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SarifTool {
    /// Its name.
    pub name: String,
    /// Its version, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl SarifSummary {
    /// Returns whether there is at least one run, and every run is complete and has no relevant finding.
    pub(crate) fn is_compliant(&self) -> bool {
        let findings = [self.error_count, self.warning_count, self.note_count, self.failed_run_count];
        !self.tools.is_empty() && findings == [0; 4]
    }
}

impl From<&SarifData> for SarifSummary {
    fn from(log: &SarifData) -> Self {
        let mut summary = Self::default();
        // External properties name their runs by GUIDs, which runs need not have.
        let is_elsewhere = items(log.inline_external_properties.as_ref()).iter().any(Elsewhere::has_any);
        for run in &log.runs.0 {
            run.add_to(&mut summary, is_elsewhere);
        }
        summary
    }
}

/// Returns the items of a list; empty if the list is left out.
fn items<T, const MAX: usize>(list: Option<&List<T, MAX>>) -> &[T] {
    list.map_or(&[], |list| &list.0)
}

impl Elsewhere {
    fn has_any(&self) -> bool {
        !items(self.results.as_ref()).is_empty() || !items(self.invocations.as_ref()).is_empty()
    }
}

impl Run {
    fn add_to(&self, summary: &mut SarifSummary, is_elsewhere: bool) {
        let Driver { name, version, semantic_version, .. } = &self.tool.driver;
        let version = version.as_ref().or(semantic_version.as_ref()).map(ToString::to_string);
        summary.tools.push(SarifTool { name: name.to_string(), version });
        summary.failed_run_count += u64::from(is_elsewhere || !self.is_complete());
        let rules = Descriptors::of(
            self.tool.driver.rules.as_ref(),
            items(self.tool.extensions.as_ref()).iter().map(|extension| extension.rules.as_ref()),
        );
        let invocations = items(self.invocations.as_ref()).iter();
        let overrides = Vec::from_iter(
            invocations.map(|one| rules.overrides(items(one.rule_configuration_overrides.as_ref()))),
        );
        for finding in items(self.results.as_ref()) {
            let count = match finding.level(&rules, &overrides) {
                _ if finding.baseline_state == Some(BaselineState::Absent) => &mut summary.none_count,
                _ if finding.is_suppressed() => &mut summary.suppressed_count,
                Level::None => &mut summary.none_count,
                Level::Note => &mut summary.note_count,
                Level::Warning => &mut summary.warning_count,
                Level::Error => &mut summary.error_count,
            };
            *count += 1;
        }
    }

    /// Returns whether its results are complete, as far as the format shows (SARIF 2.1.0, appendix I).
    fn is_complete(&self) -> bool {
        let sorts = Descriptors::of(
            self.tool.driver.notifications.as_ref(),
            items(self.tool.extensions.as_ref()).iter().map(|extension| extension.notifications.as_ref()),
        );
        let is_elsewhere = self.external_property_file_references.as_ref().is_some_and(Elsewhere::has_any);
        let invocations = items(self.invocations.as_ref());
        self.results.is_some() && !is_elsewhere && invocations.iter().all(|one| one.is_successful(&sorts))
    }
}

impl Invocation {
    /// Returns whether the invocation succeeded. Ignores the exit code: many scanners exit with 1 if they
    /// have findings.
    fn is_successful(&self, sorts: &Descriptors<'_>) -> bool {
        let was_ended = self.exit_signal_name.as_ref().is_some_and(|name| !name.is_empty())
            || self.exit_signal_number.is_some_and(|number| number != 0)
            || self.process_start_failure_message.as_ref().is_some_and(|why| !why.is_empty());
        let overrides = sorts.overrides(items(self.notification_configuration_overrides.as_ref()));
        let is_error = |notification: &Notification| {
            let of_sort = || sorts.level(notification.descriptor.as_ref()?, Some(&overrides));
            notification.level.or_else(of_sort) == Some(Level::Error)
        };
        let notifications = [&self.tool_execution_notifications, &self.tool_configuration_notifications];
        let mut notifications = notifications.into_iter().flat_map(|list| items(list.as_ref()));
        self.execution_successful == Some(true) && !was_ended && !notifications.any(is_error)
    }
}

/// The rules of a scanner, or its kinds of notifications, by component: the scanner itself, and each plugin.
struct Descriptors<'a> {
    driver: Component<'a>,
    extensions: Vec<Component<'a>>,
}

struct Component<'a> {
    descriptors: &'a [Descriptor],
    by_id: BTreeMap<&'a str, &'a Descriptor>,
}

/// The descriptors of a component, if it has any.
type DescriptorList<'a> = Option<&'a List<Descriptor, 100_000>>;

/// The severities that an invocation sets, by descriptor.
type Overrides = BTreeMap<*const Descriptor, Level>;

impl<'a> Component<'a> {
    fn of(descriptors: DescriptorList<'a>) -> Self {
        let descriptors = items(descriptors);
        let by_id = descriptors.iter().filter_map(|one| Some((one.id.as_deref()?, one))).collect();
        Self { descriptors, by_id }
    }
}

/// Returns the item at this index.
fn at<T>(list: &[T], index: i64) -> Option<&T> {
    list.get(usize::try_from(index).ok()?)
}

impl<'a> Descriptors<'a> {
    fn of(driver: DescriptorList<'a>, extensions: impl Iterator<Item = DescriptorList<'a>>) -> Self {
        Self { driver: Component::of(driver), extensions: extensions.map(Component::of).collect() }
    }

    /// Returns the descriptor of a reference. A descriptor with another id than the reference's does not
    /// match.
    fn find(&self, reference: &Reference) -> Option<&'a Descriptor> {
        let component = match reference.tool_component {
            None => &self.driver,
            Some(component) => at(&self.extensions, component.index?)?,
        };
        let id = reference.id.as_deref();
        let fits = |found: &&Descriptor| match id.zip(found.id.as_deref()) {
            // A reference may name a part of a rule: `CA1000/1`.
            Some((id, found)) => {
                id.strip_prefix(found).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            None => true,
        };
        let by_index = reference.index.and_then(|index| at(component.descriptors, index)).filter(fits);
        by_index.or_else(|| component.by_id.get(id?).copied())
    }

    /// Returns the severities that an invocation sets. If it sets several for one descriptor, the most severe
    /// counts.
    fn overrides(&self, overrides: &[ConfigurationOverride]) -> Overrides {
        let mut levels = Overrides::new();
        for one in overrides {
            if let Some((found, level)) =
                self.find(&one.descriptor).zip(one.configuration.and_then(|set| set.level))
            {
                let known = levels.entry(std::ptr::from_ref(found)).or_insert(level);
                *known = level.max(*known);
            }
        }
        levels
    }

    /// Returns the configured severity of a reference's descriptor. An override takes precedence over the
    /// default.
    fn level(&self, reference: &Reference, overrides: Option<&Overrides>) -> Option<Level> {
        let found = self.find(reference)?;
        let overridden = overrides.and_then(|levels| levels.get(&std::ptr::from_ref(found)).copied());
        overridden.or_else(|| found.default_configuration?.level)
    }
}

impl Finding {
    /// Returns its severity. The kind determines whether there is a problem; the level `none` means that
    /// there is none (SARIF 2.1.0, sections 3.27.9 and 3.27.10). If the two contradict each other, it counts
    /// as a problem.
    fn level(&self, rules: &Descriptors<'_>, overrides: &[Overrides]) -> Level {
        let is_problem = |level: &Level| *level != Level::None;
        let of_rule = || {
            let invocation = self.provenance.and_then(|from| at(overrides, from.invocation_index?));
            rules.level(&self.rule(), invocation)
        };
        match self.kind {
            Some(Kind::NotApplicable | Kind::Pass | Kind::Informational) => self.level.unwrap_or(Level::None),
            // Undecided results count as problems.
            Some(Kind::Review | Kind::Open) => self.level.filter(is_problem).unwrap_or(Level::Warning),
            Some(Kind::Fail) | None => {
                let level = self.level.or_else(of_rule);
                level.filter(is_problem).unwrap_or(Level::Warning)
            }
        }
    }

    /// Returns its rule, which it can name in two ways, or in both. The finding's own index refers to the
    /// rules of the scanner itself.
    fn rule(&self) -> Reference {
        let Reference { id, index, tool_component } = self.rule.clone().unwrap_or_default();
        let of_driver = self.rule_index.filter(|_| tool_component.is_none());
        Reference { id: id.or_else(|| self.rule_id.clone()), index: index.or(of_driver), tool_component }
    }

    /// Returns whether it is suppressed: it has suppressions, and all of them are accepted.
    fn is_suppressed(&self) -> bool {
        let accepted = |one: &Suppression| matches!(one.status, None | Some(SuppressionStatus::Accepted));
        let suppressions = items(self.suppressions.as_ref());
        !suppressions.is_empty() && suppressions.iter().all(accepted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode::from_value;

    fn summary(runs: &Value) -> SarifSummary {
        let log: SarifData = from_value(&json!({"version": "2.1.0", "runs": runs, "$schema": "s"})).unwrap();
        SarifSummary::from(&log)
    }

    #[test]
    fn findings_are_counted_by_their_levels() {
        let level = |level: &str| json!({"level": level});
        let rules = json!([
            {"id": "a", "defaultConfiguration": level("error")}, {"id": "b"},
            {"id": "silent", "defaultConfiguration": level("none")},
        ]);
        let plugin = json!({"name": "plugin", "rules": [{"id": "p", "defaultConfiguration": level("note")}]});
        let overrides = json!([
            {"descriptor": {"id": "a"}, "configuration": level("note")},
            {"descriptor": {"index": 1}, "configuration": level("error")},
            {"descriptor": {"id": "b"}, "configuration": level("note")},
            {"descriptor": {"id": "unknown"}, "configuration": level("error")},
        ]);
        let invocations = json!([
            {"executionSuccessful": true, "ruleConfigurationOverrides": overrides}, {"executionSuccessful": true},
        ]);
        // A result, and the count that it increments.
        let table = [
            (json!({"level": "error"}), "error_count"),
            (json!({"level": "warning"}), "warning_count"),
            (json!({"level": "note"}), "note_count"),
            (json!({"level": "none"}), "warning_count"),
            (json!({}), "warning_count"),
            (json!({"ruleId": "a"}), "error_count"),
            (json!({"ruleIndex": 0}), "error_count"),
            (json!({"ruleId": "a", "level": "note"}), "note_count"),
            (json!({"ruleId": "b"}), "warning_count"),
            (json!({"ruleId": "unknown", "ruleIndex": 7}), "warning_count"),
            (json!({"ruleIndex": -1}), "warning_count"),
            (json!({"ruleId": "b", "ruleIndex": 0}), "warning_count"),
            (json!({"ruleId": "a/1", "ruleIndex": 0}), "error_count"),
            (json!({"ruleId": "ab", "ruleIndex": 0}), "warning_count"),
            (json!({"ruleId": "a", "ruleIndex": 1}), "error_count"),
            (json!({"ruleId": "a", "ruleIndex": 7}), "error_count"),
            (json!({"ruleId": "silent"}), "warning_count"),
            (json!({"rule": {"id": "a"}}), "error_count"),
            (json!({"rule": {"index": 0}}), "error_count"),
            (json!({"ruleId": "a", "rule": {"index": 1}}), "error_count"),
            (json!({"rule": {"id": "p", "toolComponent": {"index": 0}}}), "note_count"),
            (json!({"ruleId": "p", "rule": {"index": 0, "toolComponent": {"index": 0}}}), "note_count"),
            (json!({"ruleIndex": 0, "rule": {"id": "p", "toolComponent": {"index": 0}}}), "note_count"),
            (json!({"rule": {"id": "p", "toolComponent": {"index": 1}}}), "warning_count"),
            (json!({"rule": {"id": "p", "toolComponent": {"name": "plugin"}}}), "warning_count"),
            (json!({"ruleId": "a", "provenance": {"invocationIndex": 0}}), "note_count"),
            (json!({"ruleId": "b", "provenance": {"invocationIndex": 0}}), "error_count"),
            (json!({"ruleId": "a", "provenance": {"invocationIndex": 1}}), "error_count"),
            (json!({"ruleId": "a", "provenance": {"invocationIndex": -1}}), "error_count"),
            (
                json!({"ruleId": "a", "level": "warning", "provenance": {"invocationIndex": 0}}),
                "warning_count",
            ),
            (json!({"kind": "fail", "level": "error"}), "error_count"),
            (json!({"kind": "fail", "level": "none"}), "warning_count"),
            (json!({"kind": "fail", "ruleId": "silent"}), "warning_count"),
            (json!({"kind": "pass"}), "none_count"),
            (json!({"kind": "pass", "ruleId": "a"}), "none_count"),
            (json!({"kind": "pass", "level": "error"}), "error_count"),
            (json!({"kind": "notApplicable", "level": "note"}), "note_count"),
            (json!({"kind": "informational", "level": "warning"}), "warning_count"),
            (json!({"level": "error", "baselineState": "new"}), "error_count"),
            (json!({"level": "error", "baselineState": "unchanged"}), "error_count"),
            (json!({"level": "error", "baselineState": "updated"}), "error_count"),
            (json!({"level": "error", "baselineState": "absent"}), "none_count"),
            (json!({"kind": "open", "baselineState": "absent"}), "none_count"),
            (json!({"kind": "informational", "level": "none"}), "none_count"),
            (json!({"kind": "notApplicable", "ruleId": "a"}), "none_count"),
            (json!({"kind": "open", "level": "none"}), "warning_count"),
            (json!({"kind": "review", "level": "error"}), "error_count"),
            (json!({"level": "error", "suppressions": [{"kind": "inSource"}]}), "suppressed_count"),
            (json!({"level": "error", "suppressions": [{"status": "accepted"}]}), "suppressed_count"),
            (json!({"level": "error", "suppressions": []}), "error_count"),
            (
                json!({"level": "error", "suppressions": [{"status": "accepted"}, {"status": "underReview"}]}),
                "error_count",
            ),
            (json!({"level": "error", "suppressions": [{"status": "rejected"}]}), "error_count"),
        ];
        for (result, expected) in table {
            let driver = json!({"name": "scan", "semanticVersion": "1.2.3", "rules": rules});
            let tool = json!({"driver": driver, "extensions": [plugin]});
            let found = summary(&json!([{"tool": tool, "results": [result], "invocations": invocations}]));
            let counts = serde_json::to_value(&found).unwrap();
            let counted = counts.as_object().unwrap().iter().filter(|(_, count)| **count == json!(1));
            assert_eq!(Vec::from_iter(counted.map(|(name, _)| name.as_str())), [expected], "{result}");
            assert_eq!(
                found.tools,
                [SarifTool { name: "scan".to_owned(), version: Some("1.2.3".to_owned()) }]
            );
            assert_eq!(
                found.is_compliant(),
                ["none_count", "suppressed_count"].contains(&expected),
                "{result}"
            );
        }
    }

    #[test]
    fn an_incomplete_run_is_no_run_without_findings() {
        let sorts = json!([{"id": "broken", "defaultConfiguration": {"level": "error"}}, {"id": "slow"}]);
        let tool = json!({"driver": {"name": "scan", "notifications": sorts}});
        let run = |results: Value, invocations: Value| json!({"tool": tool, "results": results, "invocations": invocations});
        let with = |name: &str, value: Value| {
            let mut invocation = json!({"executionSuccessful": true});
            invocation[name] = value;
            json!([run(json!([]), json!([invocation]))])
        };
        let notified = |notification: Value| with("toolExecutionNotifications", json!([notification]));
        let references = |references: Value| {
            let mut run = run(json!([]), Value::Null);
            run["externalPropertyFileReferences"] = references;
            json!([run])
        };
        let louder = json!([{"descriptor": {"id": "slow"}, "configuration": {"level": "error"}}]);
        let mut overridden = notified(json!({"descriptor": {"id": "slow"}}));
        overridden[0]["invocations"][0]["notificationConfigurationOverrides"] = louder;
        let table = [
            (json!([]), false),
            (json!([run(json!([]), Value::Null)]), true),
            (json!([run(json!([]), json!([]))]), true),
            (json!([run(json!([]), json!([{"executionSuccessful": true}]))]), true),
            (
                json!([run(
                    json!([]),
                    json!([{"executionSuccessful": true}, {"executionSuccessful": false}])
                )]),
                false,
            ),
            (json!([run(json!([]), json!([{"executionSuccessful": null}]))]), false),
            (json!([run(json!([]), json!([{}]))]), false),
            (json!([run(json!([]), json!([{"exitCode": 0}]))]), false),
            (json!([run(Value::Null, Value::Null)]), false),
            (json!([{"tool": tool}]), false),
            (json!([run(json!([]), Value::Null), {"tool": tool}]), false),
            // A scanner may exit with 1 because it has findings.
            (with("exitCode", json!(1)), true),
            (with("exitSignalName", json!("SIGKILL")), false),
            (with("exitSignalName", Value::Null), true),
            (with("exitSignalNumber", json!(9)), false),
            (with("processStartFailureMessage", json!("not found")), false),
            (with("toolExecutionNotifications", json!([])), true),
            (with("toolConfigurationNotifications", json!([{"level": "error"}])), false),
            (notified(json!({"level": "error"})), false),
            (notified(json!({"level": "warning"})), true),
            (notified(json!({})), true),
            (notified(json!({"descriptor": {"id": "broken"}})), false),
            (notified(json!({"descriptor": {"index": 0}})), false),
            (notified(json!({"descriptor": {"id": "slow"}})), true),
            (notified(json!({"level": "note", "descriptor": {"id": "broken"}})), true),
            (overridden, false),
            (references(json!({"results": [{"guid": "g"}]})), false),
            (references(json!({"invocations": [{"location": {}}]})), false),
            (references(json!({"results": [], "artifacts": [{"guid": "g"}]})), true),
        ];
        for (runs, compliant) in table {
            assert_eq!(summary(&runs).is_compliant(), compliant, "{runs}");
        }
    }

    #[test]
    fn results_beside_the_runs_are_unread() {
        let runs = json!([{"tool": {"driver": {"name": "scan"}}, "results": []}]);
        for (beside, compliant) in [
            (Value::Null, true),
            (json!([]), true),
            (json!([{"artifacts": [{}]}]), true),
            (json!([{"results": [{"level": "error"}]}]), false),
            (json!([{}, {"invocations": [{"executionSuccessful": false}]}]), false),
        ] {
            let log = json!({"version": "2.1.0", "runs": runs, "inlineExternalProperties": beside});
            let summary = SarifSummary::from(&from_value::<SarifData>(&log).unwrap());
            assert_eq!(summary.is_compliant(), compliant, "{log}");
        }
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let tool = json!({"driver": {"name": "scan"}});
        for (log, field) in [
            (json!({"runs": []}), "version"),
            (json!({"version": "1.0.0", "runs": []}), "version"),
            (json!({"version": "2.1.0"}), "runs"),
            (json!({"version": "2.1.0", "runs": [{}]}), "runs.0.tool"),
            (
                json!({"version": "2.1.0", "runs": [{"tool": tool, "results": [{"level": "fatal"}]}]}),
                "runs.0.results.0.level",
            ),
        ] {
            let refused = from_value::<SarifData>(&log).unwrap_err();
            assert!(refused.field().starts_with(field.split('.').next().unwrap()), "{log}: {refused}");
        }
    }
}
