//! Assembles the drawn pages into the bytes of a PDF file.
//!
//! The PDF library gives every file a random identifier and several dates. This module replaces them with
//! values derived from the content, so that equal reports are equal files.

use lopdf::{Dictionary, Document, Object, StringFormat, text_string};
use printpdf::{PageAnnotId, PageAnnotation, PdfDocument, PdfFont, PdfPage, PdfSaveOptions, Pt};
use sha2::{Digest, Sha256};

use super::{
    ReportError,
    canvas::{Canvas, font_id},
    style::{Face, PAGE_HEIGHT, PAGE_WIDTH},
};

const VERSION: &str = "1.7";
const PRODUCER: &str = "evidence";

/// The metadata of the file.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) title: String,
    pub(super) subject: String,
    pub(super) author: String,
}

/// A heading in the outline of the document.
#[derive(Debug)]
pub(super) struct Bookmark {
    pub(super) title: String,
    /// Page of the heading, counted from one.
    pub(super) page: usize,
}

/// Returns the bytes of the file.
pub(super) fn write(
    canvas: Canvas,
    metadata: &Metadata,
    bookmarks: &[Bookmark],
) -> Result<Vec<u8>, ReportError> {
    let mut document =
        assemble(canvas, bookmarks)?.to_lopdf_document(&PdfSaveOptions::default(), &mut Vec::new());
    document.version = VERSION.to_owned();
    describe(&mut document, metadata)?;
    document.compress();
    set_identifier(&mut document, &[]);
    let identifier = Sha256::digest(save(&mut document)?);
    set_identifier(&mut document, identifier.get(..16).unwrap_or_default());
    save(&mut document)
}

fn assemble(canvas: Canvas, bookmarks: &[Bookmark]) -> Result<PdfDocument, ReportError> {
    let mut pdf = PdfDocument::new("");
    for face in [Face::Regular, Face::Bold] {
        let font = canvas.fonts.get(face).subset(canvas.used(face))?;
        pdf.resources.fonts.map.insert(font_id(face), PdfFont::new(font));
    }
    for (index, bookmark) in bookmarks.iter().enumerate() {
        pdf.bookmarks.map.insert(
            PageAnnotId(format!("{index:04}")),
            PageAnnotation { name: bookmark.title.clone(), page: bookmark.page },
        );
    }
    pdf.pages = canvas
        .into_pages()
        .into_iter()
        .map(|ops| PdfPage::new(Pt(PAGE_WIDTH).into(), Pt(PAGE_HEIGHT).into(), ops))
        .collect();
    Ok(pdf)
}

/// Replaces the library's metadata, which has dates and an empty PDF/X claim.
fn describe(document: &mut Document, metadata: &Metadata) -> Result<(), ReportError> {
    let info = Dictionary::from_iter([
        ("Title", text_string(&metadata.title)),
        ("Subject", text_string(&metadata.subject)),
        ("Author", text_string(&metadata.author)),
        ("Creator", text_string(PRODUCER)),
        ("Producer", text_string(PRODUCER)),
    ]);
    if let Ok(id) = document.trailer.get(b"Info").and_then(Object::as_reference) {
        document.set_object(id, info);
    }
    let catalog = document.catalog_mut()?;
    catalog.set("Lang", Object::string_literal("en"));
    catalog.set("PageMode", Object::Name(b"UseOutlines".to_vec()));
    catalog.set("ViewerPreferences", Dictionary::from_iter([("DisplayDocTitle", Object::Boolean(true))]));
    Ok(())
}

fn set_identifier(document: &mut Document, identifier: &[u8]) {
    let part = Object::String(identifier.to_vec(), StringFormat::Hexadecimal);
    document.trailer.set("ID", Object::Array(vec![part.clone(), part]));
}

fn save(document: &mut Document) -> Result<Vec<u8>, ReportError> {
    let mut bytes = Vec::new();
    document.save_to(&mut bytes)?;
    Ok(bytes)
}
