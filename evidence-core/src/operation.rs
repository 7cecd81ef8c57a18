//! Operations as types. The fields of an operation are its path and query parameters, its constants are the route,
//! its `run` is the logic; routing, OpenAPI, scopes, limits and documentation all come from the list in
//! [`crate::api`].

use std::future::Future;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::auth::Scope;
use crate::blobs::{Chunks, Upload};
use crate::decode::{self, Misfit};
use crate::error::{Error, INVALID_PAYLOAD, Result};
use crate::name::{FlowName, OrgName};
use crate::service::Context;

/// The five HTTP methods of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the variants are HTTP's")]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// One operation of the API.
pub trait Operation: DeserializeOwned + JsonSchema + Send + 'static {
    /// Its `operationId`: a promise, never changed once released.
    const NAME: &'static str;
    /// Its HTTP method.
    const METHOD: Method;
    /// Its path below the base address: `/flows/{org}/{flow_name}`.
    const PATH: &'static str;
    /// What it asks of its caller.
    const SCOPE: Scope;
    /// What it does, in one line.
    const SUMMARY: &'static str;
    /// The greatest JSON body, in bytes.
    const BODY_LIMIT: usize = 1 << 20;
    /// Whether HTTP Basic is accepted beside Bearer (specification, Authentication: the repo list).
    const BASIC_AUTH: bool = false;
    /// What is said first of a refused input (specification, Errors).
    const INVALID: &'static str = INVALID_PAYLOAD;
    /// What it reads: `()`, [`Json`] or [`Form`].
    type Body: Body;
    /// What it answers: [`Json`], [`Created`], [`Put`], [`Download`] or [`Pdf`].
    type Output: Reply;

    /// The organization it concerns.
    fn org(&self) -> Option<&OrgName>;

    /// The flow that a [`Scope::ReadFlow`] operation reads from.
    fn flow(&self) -> Option<&FlowName> {
        None
    }

    /// Does it, for a caller who may.
    fn run(self, body: Self::Body, cx: &Context<'_>) -> impl Future<Output = Result<Self::Output>> + Send;
}

/// Sees every operation of the API in turn; see [`crate::api::operations`].
pub trait Visitor {
    /// Sees one.
    fn visit<O: Operation>(&mut self);
}

/// A body as it came, before the operation's type is known.
#[derive(Debug)]
pub enum RawBody {
    /// None, or the literal `null`.
    Empty,
    /// A JSON value.
    Json(Value),
    /// A multipart form.
    Form {
        /// The text of the part that holds the JSON document, if it was there.
        document: Option<Vec<u8>>,
        /// The file parts in the order of their names' numbers: part name and file.
        files: Vec<(String, Upload)>,
    },
}

/// Which kind of body an operation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// None.
    Empty,
    /// JSON.
    Json,
    /// A multipart form.
    Form(FormParts),
}

/// The parts of a form that are read; others are passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormParts {
    /// The name of the part that holds the JSON document.
    pub document: &'static str,
    /// The name of the file part.
    pub file: &'static str,
    /// Whether `<file>.<n>` are file parts too, and a part `<file>` without a file name is a text to keep as a file.
    pub many: bool,
}

/// What an operation reads from the request's body.
pub trait Body: Sized + Send + 'static {
    /// Which kind it is.
    const KIND: BodyKind;
    /// The schema of its JSON, for the OpenAPI document.
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;
    /// Reads it.
    fn read(raw: RawBody) -> Result<Self>;
}

impl Body for () {
    const KIND: BodyKind = BodyKind::Empty;

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn read(_: RawBody) -> Result<()> {
        Ok(())
    }
}

/// A JSON body, or a JSON answer with status 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Body for Json<T> {
    const KIND: BodyKind = BodyKind::Json;

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn read(raw: RawBody) -> Result<Self> {
        match raw {
            RawBody::Json(value) => {
                decode::from_json(&value).map(Self).map_err(|misfit| Error::misfit(&misfit, "body"))
            }
            RawBody::Empty => Err(Error::invalid("body", "Field required [input: None]")),
            RawBody::Form { .. } => Err(Error::UnsupportedMediaType),
        }
    }
}

/// The document of a form, and which parts the form has.
pub trait Document: JsonSchema + Sized + Send + 'static {
    /// The form's parts.
    const PARTS: FormParts;
    /// Reads it from its JSON; mostly [`decode::from_json`].
    fn read(value: &Value) -> Result<Self, Misfit>;
}

/// A multipart form: a JSON document and files.
#[derive(Debug)]
pub struct Form<T> {
    /// The document.
    pub document: T,
    /// The files, in the order of their parts' numbers.
    pub files: Vec<Upload>,
}

impl<T> Form<T> {
    /// A form without files.
    pub const fn of(document: T) -> Self {
        Self { document, files: Vec::new() }
    }

    /// The file of a form that has one file part, as UTF-8 text; `part` names it in the error.
    pub async fn into_text(self, part: &'static str) -> Result<(T, Option<String>)> {
        let Some(file) = self.files.into_iter().next() else { return Ok((self.document, None)) };
        let bytes = file.read().await?;
        let text = String::from_utf8(bytes).map_err(|_| Error::invalid(part, "File should be UTF-8 text"))?;
        Ok((self.document, Some(text)))
    }
}

impl<T: Document> Body for Form<T> {
    const KIND: BodyKind = BodyKind::Form(T::PARTS);

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn read(raw: RawBody) -> Result<Self> {
        let part = T::PARTS.document;
        let missing = || Error::invalid(part, "Field required [input: None]");
        let RawBody::Form { document, files } = raw else { return Err(missing()) };
        let value =
            decode::parse(&document.ok_or_else(missing)?).map_err(|text| Error::invalid(part, text))?;
        let document = T::read(&value).map_err(|misfit| Error::misfit(&misfit, part))?;
        Ok(Self { document, files: files.into_iter().map(|(_, file)| file).collect() })
    }
}

/// The two statuses of success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Success {
    /// 200.
    Ok,
    /// 201.
    Created,
}

/// An answer, ready to be sent.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: Success,
    /// Its body.
    pub body: AnswerBody,
}

/// The body of an answer.
#[derive(Debug)]
pub enum AnswerBody {
    /// JSON text.
    Json(Vec<u8>),
    /// A file.
    Download(Download),
}

/// A file to be downloaded.
pub struct Download {
    /// Its media type.
    pub media_type: String,
    /// The name it is saved under.
    pub file_name: String,
    /// Its size in bytes.
    pub size: u64,
    /// The digest of its data, for `ETag`.
    pub etag: Option<String>,
    /// Its content.
    pub content: Box<dyn Chunks>,
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Download")
            .field("file_name", &self.file_name)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// What an operation answers.
pub trait Reply: Send + 'static {
    /// The statuses it may have.
    const STATUSES: &'static [u16];
    /// The media type of a success, as the OpenAPI document writes it.
    const MEDIA_TYPE: &'static str = "application/json";
    /// The schema of its JSON; none for a download.
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;
    /// Makes the answer.
    fn answer(self) -> Result<Answer>;
}

fn json_answer(status: Success, value: &impl Serialize) -> Result<Answer> {
    let json = serde_json::to_vec(value).map_err(|source| Error::Internal {
        what: "an answer could not be written as JSON",
        source: source.into(),
    })?;
    Ok(Answer { status, body: AnswerBody::Json(json) })
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Json<T> {
    const STATUSES: &'static [u16] = &[200];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn answer(self) -> Result<Answer> {
        json_answer(Success::Ok, &self.0)
    }
}

/// A JSON answer with status 201.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created<T>(pub T);

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Created<T> {
    const STATUSES: &'static [u16] = &[201];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn answer(self) -> Result<Answer> {
        json_answer(Success::Created, &self.0)
    }
}

/// A JSON answer with status 201 where something new came to be, else 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put<T> {
    /// Whether something new came to be.
    pub created: bool,
    /// The body.
    pub body: T,
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Put<T> {
    const STATUSES: &'static [u16] = &[200, 201];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }

    fn answer(self) -> Result<Answer> {
        json_answer(if self.created { Success::Created } else { Success::Ok }, &self.body)
    }
}

impl Reply for Download {
    const STATUSES: &'static [u16] = &[200];
    const MEDIA_TYPE: &'static str = "*/*";

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn answer(self) -> Result<Answer> {
        Ok(Answer { status: Success::Ok, body: AnswerBody::Download(self) })
    }
}

/// A PDF to be downloaded.
#[derive(Debug)]
pub struct Pdf(pub Download);

impl Reply for Pdf {
    const STATUSES: &'static [u16] = Download::STATUSES;
    const MEDIA_TYPE: &'static str = "application/pdf";

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    fn answer(self) -> Result<Answer> {
        self.0.answer()
    }
}
