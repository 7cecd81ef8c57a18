//! Request bodies, and their possible errors.

use std::fmt::Debug;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use crate::blobs::{Upload, Whole};
use crate::digest::sha256_hex;
use crate::error::{Error, Result};
use crate::operation::{Body, BodyKind, FormParts, Raw, RawBody};
use evidence_values::strategies::Shape;

/// The content of a request: a JSON body, or the JSON document of a form and an optional file.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    /// The body or the document.
    pub document: Value,
    /// The text of the form's file.
    pub file: Option<String>,
}

impl Sent {
    /// Decodes the content as an operation does after a transport has received it.
    ///
    /// # Errors
    /// The errors of [`Body::read`].
    pub fn read<B: Body>(&self) -> Result<B> {
        B::read(match B::KIND {
            BodyKind::Empty => RawBody::Empty,
            BodyKind::Json => RawBody::Json(self.document.to_string().into()),
            BodyKind::Form(parts) => self.form(parts)?,
            BodyKind::Raw => {
                RawBody::Bytes(Raw { media_type: None, bytes: self.document.to_string().into() })
            }
        })
    }

    fn form(&self, parts: FormParts) -> Result<RawBody> {
        let file = self.file.as_ref().map(|text| Ok::<_, Error>((parts.file.to_owned(), upload(text)?)));
        Ok(RawBody::Form {
            document: Some(self.document.to_string().into_bytes().into()),
            files: file.transpose()?.into_iter().collect(),
        })
    }
}

fn upload(text: &str) -> Result<Upload> {
    let content = Bytes::copy_from_slice(text.as_bytes());
    let digest = sha256_hex(&content);
    let no_digest = |source| Error::Internal { what: "a text has no digest", source: Box::new(source) };
    Ok(Upload {
        file_name: "file.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        size: content.len() as u64,
        sha256: digest.parse().map_err(no_digest)?,
        content: Box::new(Whole::new(content)),
    })
}

/// A request with exactly one error.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// The content of the request.
    pub sent: Sent,
    /// The field that the response names in its `errors`.
    pub field: String,
}

/// The valid and invalid requests of one operation. All generated values shrink.
///
/// ```
/// use evidence_core::artifacts::ReportArtifact;
/// use evidence_core::operation::Operation;
/// use evidence_core::strategies::{ExistingNames, Requests};
/// use proptest::prelude::*;
/// use proptest::test_runner::TestRunner;
///
/// let requests = Requests::of(ReportArtifact::NAME, &ExistingNames::default()).expect("it has a body");
/// let checked = TestRunner::default().run(&requests.refused(), |refused| {
///     let error = refused.sent.read::<<ReportArtifact as Operation>::Body>();
///     // Names what is wrong, or is refused once the operation runs.
///     let named = error.err().is_none_or(|error| format!("{error:?}").contains(&refused.field));
///     prop_assert!(named);
///     Ok(())
/// });
/// assert!(checked.is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Requests {
    valid: BoxedStrategy<Sent>,
    refused: BoxedStrategy<Refused>,
}

impl Requests {
    /// Requests with a JSON body of this shape.
    pub fn json(body: &Shape) -> Self {
        Self::new(body, "body")
    }

    /// Requests with a form whose part `part` is a document of this shape.
    pub fn form(document: &Shape, part: &'static str) -> Self {
        Self::new(document, part)
    }

    /// Creates requests; `whole` is the field that an error names if no field is the cause.
    fn new(document: &Shape, whole: &'static str) -> Self {
        let sent = |document| Sent { document, file: None };
        let refused = document.invalid().prop_map(move |invalid| Refused {
            sent: sent(invalid.value),
            field: if invalid.field.is_empty() { whole.to_owned() } else { invalid.field },
        });
        Self { valid: document.valid().prop_map(sent).boxed(), refused: refused.boxed() }
    }

    /// Adds an optional file.
    #[must_use]
    pub fn with_file(self, files: impl Strategy<Value = Option<String>> + 'static) -> Self {
        let files = files.boxed();
        let valid = (self.valid, files.clone()).prop_map(|(sent, file)| Sent { file, ..sent });
        let refused = (self.refused, files)
            .prop_map(|(refused, file)| Refused { sent: Sent { file, ..refused.sent }, ..refused });
        Self { valid: valid.boxed(), refused: refused.boxed() }
    }

    /// Adds invalid files, for which the error names `part`.
    #[must_use]
    pub fn with_invalid_file(
        self,
        files: impl Strategy<Value = String> + 'static,
        part: &'static str,
    ) -> Self {
        let refused = (self.valid.clone(), files).prop_map(move |(sent, file)| Refused {
            sent: Sent { file: Some(file), ..sent },
            field: part.to_owned(),
        });
        Self { refused: prop_oneof![2 => self.refused, 1 => refused].boxed(), ..self }
    }

    /// Returns the accepted requests.
    pub fn valid(&self) -> BoxedStrategy<Sent> {
        self.valid.clone()
    }

    /// Returns the rejected requests, each with one error.
    pub fn refused(&self) -> BoxedStrategy<Refused> {
        self.refused.clone()
    }
}
