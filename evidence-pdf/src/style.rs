//! Page geometry, type sizes and colours of the report, in one place so that the sections are consistent.
//!
//! Lengths are PDF points, measured from the top left corner of the page.

/// Width of A4.
pub(super) const PAGE_WIDTH: f32 = 595.28;
/// Height of A4.
pub(super) const PAGE_HEIGHT: f32 = 841.89;
/// Left and right margin.
pub(super) const MARGIN: f32 = 48.0;
/// Top of the content of a page.
pub(super) const TOP: f32 = 46.0;
/// Bottom of the content of a page; the footer is below.
pub(super) const BOTTOM: f32 = 784.0;
/// Width between the margins.
pub(super) const CONTENT_WIDTH: f32 = PAGE_WIDTH - 2.0 * MARGIN;

/// A colour of the report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rgb(pub(super) u8, pub(super) u8, pub(super) u8);

pub(super) const INK: Rgb = Rgb(0x1b, 0x23, 0x30);
pub(super) const MUTED: Rgb = Rgb(0x5a, 0x65, 0x74);
pub(super) const LINK: Rgb = Rgb(0x1f, 0x4e, 0x8c);
pub(super) const WHITE: Rgb = Rgb(0xff, 0xff, 0xff);
pub(super) const RULE: Rgb = Rgb(0xdc, 0xe1, 0xe8);
pub(super) const STRONG_RULE: Rgb = Rgb(0x1b, 0x23, 0x30);
pub(super) const PANEL: Rgb = Rgb(0xf5, 0xf7, 0xfa);
pub(super) const HEADER_FILL: Rgb = Rgb(0xe9, 0xed, 0xf3);

/// One of the two embedded typefaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    Regular,
    Bold,
}

/// The appearance of a line of text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) face: Face,
    pub(super) size: f32,
    pub(super) color: Rgb,
}

impl Style {
    const fn new(face: Face, size: f32, color: Rgb) -> Self {
        Self { face, size, color }
    }

    /// Returns the height of a line.
    pub(super) fn leading(self) -> f32 {
        self.size * 1.4
    }

    /// Returns the distance from the top of a line to its baseline.
    pub(super) fn baseline(self) -> f32 {
        self.size * 1.07
    }

    /// Returns the same style in another colour.
    pub(super) const fn colored(self, color: Rgb) -> Self {
        Self { color, ..self }
    }
}

pub(super) const TITLE: Style = Style::new(Face::Bold, 21.0, INK);
pub(super) const SUBTITLE: Style = Style::new(Face::Regular, 10.5, MUTED);
pub(super) const SECTION: Style = Style::new(Face::Bold, 13.0, INK);
pub(super) const SUBSECTION: Style = Style::new(Face::Bold, 10.0, INK);
pub(super) const FIGURE: Style = Style::new(Face::Bold, 14.0, INK);
pub(super) const BODY: Style = Style::new(Face::Regular, 8.5, INK);
pub(super) const STRONG: Style = Style::new(Face::Bold, 8.5, INK);
pub(super) const LABEL: Style = Style::new(Face::Regular, 8.5, MUTED);
pub(super) const CELL: Style = Style::new(Face::Regular, 8.0, INK);
pub(super) const CELL_STRONG: Style = Style::new(Face::Bold, 8.0, INK);
pub(super) const CELL_MUTED: Style = Style::new(Face::Regular, 7.5, MUTED);
pub(super) const CELL_HEAD: Style = Style::new(Face::Bold, 7.5, MUTED);
pub(super) const CODE: Style = Style::new(Face::Regular, 7.5, INK);
pub(super) const NOTE: Style = Style::new(Face::Regular, 7.5, MUTED);
pub(super) const EYEBROW: Style = Style::new(Face::Bold, 8.0, MUTED);
pub(super) const BADGE: Style = Style::new(Face::Bold, 7.0, INK);
pub(super) const BIG_BADGE: Style = Style::new(Face::Bold, 11.0, WHITE);

/// The meaning of a state for the reader. Its colour is never used without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Bad,
    Warn,
    Neutral,
}

impl Tone {
    /// Returns the full colour.
    pub(super) const fn solid(self) -> Rgb {
        match self {
            Self::Good => Rgb(0x1a, 0x7f, 0x4b),
            Self::Bad => Rgb(0xb4, 0x23, 0x2c),
            Self::Warn => Rgb(0xb3, 0x6a, 0x00),
            Self::Neutral => Rgb(0x5a, 0x65, 0x74),
        }
    }

    /// Returns the light background for a word in the full colour.
    pub(super) const fn tint(self) -> Rgb {
        match self {
            Self::Good => Rgb(0xe2, 0xf4, 0xea),
            Self::Bad => Rgb(0xfb, 0xe6, 0xe7),
            Self::Warn => Rgb(0xfd, 0xf0, 0xda),
            Self::Neutral => Rgb(0xea, 0xed, 0xf2),
        }
    }
}
