//! Flows as they are recorded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::fact::payload::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::FlowName;
use crate::tags::record::Tags;
use crate::texts::record::TextRef;
use crate::time::Timestamp;

/// A flow as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Flow {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: FlowName,
    /// What it is for.
    pub description: String,
    /// Who may read it.
    pub visibility: Visibility,
    /// The template's YAML text as uploaded; nothing for [`EMPTY_TEMPLATE`].
    pub template: Option<TextRef>,
    /// The id of that text: a new one each time it changes.
    pub template_id: Id,
    /// Empty: no report says where a flow's code is. Each trail and artifact says which repo it comes from, and those of one
    /// flow may come from several.
    pub repo_url: String,
    /// Its tags.
    pub tags: Tags,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
    /// What a newer version of the program recorded beside.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Flow);

/// Who may read a flow. `public` lets callers of other organizations read it by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// Anybody with a credential.
    Public,
    /// The organization's own.
    #[default]
    Private,
}

/// The template of a flow that was made without one.
pub const EMPTY_TEMPLATE: &str = "version: 1";
