//! The validation rules of [`evidence`](https://docs.rs/evidence-core): flow templates, compliance, policies,
//! conditions, jq and JSON Schema.
//!
//! Everything here is a pure function of its arguments: there is no store, no clock and no randomness. A
//! verdict can therefore be recomputed from the same records at any time, and the tests can be exhaustive.
//!
//! Start with [`template`] and [`compliance`], which together answer "is this trail compliant?"; [`policy`]
//! answers the same question for an environment. Custom attestation types evaluate payloads with [`jq`] and
//! [`schema`].
//!
//! A team can test its own templates and policies without a server:
//!
//! ```
//! use evidence_rules::compliance::{Binding, ReportedAttestation, State, evaluate};
//! use evidence_rules::template::Template;
//! use evidence_rules::time::Timestamp;
//!
//! let template = Template::parse("version: 1\ntrail:\n  attestations:\n    - name: review\n      type: generic\n")?;
//! let begun = Timestamp::from_seconds(1_783_538_510);
//! let earlier_names = Default::default();
//! assert_eq!(evaluate(&template, begun, &[], &[], &earlier_names).state, State::Incomplete);
//!
//! let review = |is_compliant| ReportedAttestation {
//!     id: "1".to_owned(),
//!     name: "review".to_owned(),
//!     kind: "generic".to_owned(),
//!     is_compliant,
//!     at: begun,
//!     index: 1,
//!     binding: Binding::Trail,
//!     override_info: None,
//!     control: None,
//! };
//! assert_eq!(evaluate(&template, begun, &[], &[review(true)], &earlier_names).state, State::Compliant);
//! assert_eq!(evaluate(&template, begun, &[], &[review(false)], &earlier_names).state, State::NonCompliant);
//! # Ok::<(), evidence_rules::template::TemplateErrors>(())
//! ```
//!
//! ```
//! use evidence_rules::compliance::State;
//! use evidence_rules::policy::{Artifact, FlowContext, Policy, evaluate};
//!
//! let policy = Policy::parse("_schema: https://example.com/schemas/policy/v1\nartifacts:\n  provenance:\n    required: true\n")?;
//! let artifact = Artifact { name: "app:1.0", other_names: &[], fingerprint: None };
//! assert!(!evaluate(&policy, artifact, &[]).satisfied, "an artifact that no flow knows has no provenance");
//! let built = FlowContext {
//!     flow_name: "app".to_owned(),
//!     condition_names: Default::default(),
//!     trail_name: "1.0".to_owned(),
//!     artifact_state: State::Compliant,
//!     reason: None,
//!     tags: Default::default(),
//!     attestations: Default::default(),
//! };
//! assert!(evaluate(&policy, artifact, &[built]).satisfied);
//! # Ok::<(), evidence_rules::policy::PolicyErrors>(())
//! ```
//!
//! The names and times in these types come from [`evidence_values`], whose modules [`name`] and [`time`] are also
//! available here.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `proptest` | no | strategies for valid and invalid templates, policies and type schemas, and for names and times |

pub mod compliance;
mod deep;
pub mod document;
mod folding;
pub mod jq;
#[doc(hidden)]
pub mod pattern;
pub mod policy;
pub mod schema;
#[cfg(feature = "proptest")]
pub mod strategies;
pub mod template;

pub use evidence_values::{name, time};
