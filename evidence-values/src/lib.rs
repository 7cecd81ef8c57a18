//! The values of [`evidence`](https://docs.rs/evidence-core), a software delivery evidence service: names, ids, times,
//! digests, addresses, JSON text, and texts and lists of bounded size.
//!
//! A value is validated when it is decoded, so code that has one need not check it again. [`decode`] reads JSON and
//! URL parameters, and its errors name the field and quote the input:
//!
//! ```
//! use evidence_values::bounded::ShortText;
//! use evidence_values::name::FlowName;
//! use evidence_values::time::Timestamp;
//! use evidence_values::{decode, json};
//!
//! #[derive(Debug, serde::Deserialize)]
//! struct Report {
//!     flow: FlowName,
//!     summary: ShortText,
//!     reported_at: Timestamp,
//! }
//!
//! let text = json::check(br#"{"flow": "web-shop", "summary": "nightly build", "reported_at": 1783538510}"#)?;
//! let report: Report = decode::from_json(text)?;
//! assert_eq!(report.flow.as_str(), "web-shop");
//!
//! let text = json::check(br#"{"flow": "web shop", "summary": "nightly build", "reported_at": 0}"#)?;
//! let error = decode::from_json::<Report>(text).unwrap_err();
//! assert_eq!(error.field(), "flow");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `proptest` | no | `Arbitrary` for names, ids, times and addresses, and strategies for texts that a type rejects |

pub mod bounded;
pub mod decode;
pub mod digest;
pub mod git;
pub mod id;
pub mod json;
pub mod limits;
pub mod links;
pub mod name;
mod quote;
pub mod state;
#[cfg(feature = "proptest")]
pub mod strategies;
pub mod time;
