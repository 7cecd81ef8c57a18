//! The two embedded typefaces: their characters, the widths of these, and the subset that a document needs.
//!
//! Subsetting happens here and not in the PDF writer, whose subsetting requires a complete layout engine. A
//! report then has some kilobytes of font data instead of a megabyte.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use allsorts::{
    binary::read::ReadScope,
    font_data::FontData,
    subset::{CmapTarget, SubsetProfile, subset},
};
use printpdf::ParsedFont;

use super::{ReportError, style::Face};

/// Replaces every character that cannot be shown.
pub(super) const REPLACEMENT: char = '□';

/// The glyph that a font draws for missing characters: an empty box.
const NOTDEF: u16 = 0;

const REGULAR: &[u8] = include_bytes!("../fonts/NotoSans-Regular.ttf");
const BOLD: &[u8] = include_bytes!("../fonts/NotoSans-Bold.ttf");

/// Both typefaces, parsed.
#[derive(Debug)]
pub(super) struct Fonts {
    regular: Typeface,
    bold: Typeface,
}

impl Fonts {
    /// Returns the embedded typefaces, which are parsed once, on first use.
    pub(super) fn embedded() -> Result<&'static Self, ReportError> {
        static FONTS: OnceLock<Option<Fonts>> = OnceLock::new();
        FONTS
            .get_or_init(|| {
                Some(Self {
                    regular: Typeface::parse("EVRGLR+NotoSans-Regular", REGULAR)?,
                    bold: Typeface::parse("EVBOLD+NotoSans-Bold", BOLD)?,
                })
            })
            .as_ref()
            .ok_or(ReportError::Font)
    }

    /// Returns one of the typefaces.
    pub(super) const fn get(&self, face: Face) -> &Typeface {
        match face {
            Face::Regular => &self.regular,
            Face::Bold => &self.bold,
        }
    }
}

/// One typeface.
#[derive(Debug)]
pub(super) struct Typeface {
    name: &'static str,
    file: &'static [u8],
    parsed: ParsedFont,
    /// Glyph and width of each character, indexed by code point for fast measuring.
    glyphs: Vec<Option<Glyph>>,
}

#[derive(Clone, Copy, Debug)]
struct Glyph {
    id: u16,
    /// Advance in font units.
    advance: u16,
}

impl Typeface {
    fn parse(name: &'static str, file: &'static [u8]) -> Option<Self> {
        let mut parsed = ParsedFont::from_bytes(file, 0, &mut Vec::new())?;
        parsed.original_bytes = Vec::new();
        let last = parsed.codepoint_to_glyph.keys().next_back()?;
        let glyphs = (0..=*last)
            .map(|codepoint| {
                let id = parsed.lookup_glyph_index(codepoint)?;
                let advance = parsed.get_glyph_width(id)?;
                Some(Glyph { id, advance })
            })
            .collect();
        Some(Self { name, file, parsed, glyphs })
    }

    /// Returns whether the typeface has a glyph for a character.
    pub(super) fn has(&self, c: char) -> bool {
        self.lookup(c).is_some()
    }

    /// Returns the width of a text in font units. They are integers, so that line breaks never depend on
    /// rounding.
    pub(super) fn units(&self, text: &str) -> u32 {
        text.chars().map(|c| u32::from(self.glyph(c).advance)).fold(0, u32::saturating_add)
    }

    /// Returns the width of a text at a size, in points.
    pub(super) fn width(&self, text: &str, size: f32) -> f32 {
        self.units(text) as f32 * size / self.units_per_em()
    }

    /// Returns the number of font units that fit into a width at a size.
    pub(super) fn capacity(&self, width: f32, size: f32) -> u32 {
        (width * self.units_per_em() / size) as u32
    }

    /// Returns a font with only the glyphs of the given characters, ready to be embedded.
    pub(super) fn subset(&self, used: &BTreeSet<char>) -> Result<ParsedFont, ReportError> {
        let kept: Vec<u16> = used
            .iter()
            .map(|&c| self.glyph(c).id)
            .chain([NOTDEF])
            .collect::<BTreeSet<u16>>()
            .into_iter()
            .collect();
        let mut font = ParsedFont::with_glyph_data(
            self.subset_file(&kept)?,
            0,
            Some(self.name.to_owned()),
            BTreeMap::new(),
            BTreeMap::new(),
            self.parsed.units_per_em,
            self.parsed.font_metrics.clone(),
        );
        font.pdf_font_metrics = self.parsed.pdf_font_metrics.clone();
        for (new_id, old_id) in (0..).zip(&kept) {
            let advance = self.parsed.get_glyph_width(*old_id).unwrap_or_default();
            font.set_glyph_width(new_id, advance);
        }
        for &c in used {
            // `kept` contains this glyph, so the fallback is never used.
            let position = kept.binary_search(&self.glyph(c).id).unwrap_or_default();
            font.set_codepoint_mapping(c.into(), u16::try_from(position).unwrap_or(NOTDEF));
        }
        Ok(font)
    }

    fn subset_file(&self, kept: &[u16]) -> Result<Vec<u8>, ReportError> {
        let font = ReadScope::new(self.file).read::<FontData<'_>>().map_err(|_| ReportError::Font)?;
        let tables = font.table_provider(0).map_err(|_| ReportError::Font)?;
        subset(&tables, kept, &SubsetProfile::Pdf, CmapTarget::Unicode).map_err(|_| ReportError::Font)
    }

    fn lookup(&self, c: char) -> Option<Glyph> {
        let codepoint = usize::try_from(u32::from(c)).ok()?;
        self.glyphs.get(codepoint).copied().flatten()
    }

    fn glyph(&self, c: char) -> Glyph {
        self.lookup(c).unwrap_or_else(|| Glyph {
            id: NOTDEF,
            advance: self.parsed.get_glyph_width(NOTDEF).unwrap_or_default(),
        })
    }

    fn units_per_em(&self) -> f32 {
        f32::from(self.parsed.units_per_em)
    }
}
