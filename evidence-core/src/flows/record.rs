//! The recorded form of flows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::decode::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::{FlowName, InvalidText};
use crate::tags::record::Tags;
use crate::texts::record::TextRef;
use crate::time::Timestamp;

/// A flow as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Flow {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: FlowName,
    /// Its former names, each once, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_names: Vec<FlowName>,
    /// A description of its purpose.
    pub description: String,
    /// Its visibility.
    pub visibility: Visibility,
    /// The template's YAML text, as uploaded. `None` means [`EMPTY_TEMPLATE`].
    pub template: Option<TextRef>,
    /// The id of the template text. It changes with the text.
    pub template_id: Id,
    /// Its tags.
    pub tags: Tags,
    /// When it was created.
    pub created_at: Timestamp,
    /// The user or service account that created it.
    pub created_by: Actor,
    /// When it was archived. `None` while the flow accepts reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Flow);

impl Flow {
    /// Returns whether callers of other organizations may read it: it is public and not archived.
    pub(crate) fn is_public(&self) -> bool {
        self.visibility == Visibility::Public && self.archived_at.is_none()
    }

    /// Returns the flow as archived at this time, under a new name that frees its present one. `more` makes
    /// the new name unique if another flow already has it.
    pub(crate) fn archived(&self, at: Timestamp, more: &str) -> Result<Self, InvalidText> {
        let suffix = format!("-archived-at-{}{more}", at.whole_seconds().0);
        // Names are ASCII, so this cannot split a character.
        let kept = self.name.as_str().get(..FlowName::MAX_LEN.saturating_sub(suffix.len()));
        let name = format!("{}{suffix}", kept.unwrap_or(self.name.as_str())).parse()?;
        Ok(Self { archived_at: Some(at), ..self.renamed(name) })
    }

    /// Returns the flow under another name.
    pub(crate) fn renamed(&self, name: FlowName) -> Self {
        let mut former_names = self.former_names.clone();
        former_names.retain(|former| *former != name && *former != self.name);
        former_names.push(self.name.clone());
        Self { name, former_names, ..self.clone() }
    }

    /// Returns the names that policy conditions are evaluated against: every name that the flow had. The name
    /// given by archiving is not among them, so archiving changes no verdict.
    pub(crate) fn condition_names(&self) -> Vec<String> {
        let present = Some(&self.name).filter(|_| self.archived_at.is_none() || self.former_names.is_empty());
        present.into_iter().chain(self.former_names.iter().rev()).map(ToString::to_string).collect()
    }
}

/// The visibility of a flow. Callers of other organizations can read a `public` flow by name, until it is
/// archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// Readable by every caller with a credential.
    Public,
    /// Readable by the organization's own callers.
    #[default]
    Private,
}

/// The template of a flow that was created without one.
pub const EMPTY_TEMPLATE: &str = "version: 1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{flow, id};

    #[test]
    fn an_archived_flow_has_a_name_of_its_own_however_long_its_name_was() {
        let at = Timestamp::from_micros(1_776_252_299_785_510);
        let more = format!("-{}", id(7));
        for (name, more, expected) in [
            ("web".to_owned(), "", "web-archived-at-1776252299".to_owned()),
            ("web".to_owned(), more.as_str(), format!("web-archived-at-1776252299-{}", id(7))),
            ("a".repeat(255), "", format!("{}-archived-at-1776252299", "a".repeat(232))),
            ("a".repeat(232), "", format!("{}-archived-at-1776252299", "a".repeat(232))),
            ("a".repeat(231), "", format!("{}-archived-at-1776252299", "a".repeat(231))),
        ] {
            let archived = flow(1, &name).archived(at, more).unwrap();
            assert_eq!((archived.name.as_str(), archived.archived_at), (expected.as_str(), Some(at)));
        }
    }

    #[test]
    fn conditions_look_at_all_names_of_a_flow_but_for_that_of_the_archive() {
        let first = flow(1, "critical");
        let second = first.renamed("web".parse().unwrap());
        let back = second.renamed("critical".parse().unwrap());
        let archived = |flow: &Flow| flow.archived(Timestamp::from_micros(0), "").unwrap();
        for (flow, expected) in [
            (first.clone(), &["critical"][..]),
            (archived(&first), &["critical"]),
            (second.clone(), &["web", "critical"]),
            (archived(&second), &["web", "critical"]),
            (back, &["critical", "web"]),
        ] {
            assert_eq!(flow.condition_names(), expected, "{}", flow.name);
        }
        // A record without former names keeps its serialized form.
        assert!(!serde_json::to_string(&first).unwrap().contains("former_names"));
    }
}
