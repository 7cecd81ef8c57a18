//! Draws text and shapes onto pages. Only this module uses the drawing types of the PDF library.

use std::collections::BTreeSet;

use printpdf::{
    Actions, BorderArray, Color, ColorArray, FontId, HighlightingMode, LinePoint, LinkAnnotation, Op,
    PaintMode, PdfFontHandle, Point, Polygon, PolygonRing, Pt, Rect, TextItem, WindingOrder,
};

use super::{
    ReportError,
    font::Fonts,
    style::{Face, PAGE_HEIGHT, Rgb, Style},
};

/// Distance of a control point of a quarter circle from its end, as a fraction of the radius.
const CIRCLE: f32 = 0.5523;

/// An area of the page, measured from its top left corner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) x: f32,
    pub(super) y: f32,
    pub(super) width: f32,
    pub(super) height: f32,
}

impl Area {
    fn rect(self) -> Rect {
        Rect {
            x: Pt(self.x),
            y: Pt(PAGE_HEIGHT - self.y - self.height),
            width: Pt(self.width),
            height: Pt(self.height),
            mode: Some(PaintMode::Fill),
            winding_order: Some(WindingOrder::NonZero),
        }
    }
}

/// A page: its drawing operations, and the current font and colour. Font and colour are set again only when
/// they change, which leaves less to compress.
#[derive(Debug, Default)]
struct Page {
    ops: Vec<Op>,
    font: Option<(Face, f32)>,
    color: Option<Rgb>,
}

impl Page {
    fn set_font(&mut self, style: Style) {
        let font = (style.face, style.size);
        if self.font.replace(font) != Some(font) {
            self.ops.push(Op::SetFont {
                font: PdfFontHandle::External(font_id(style.face)),
                size: Pt(style.size),
            });
        }
    }

    fn set_color(&mut self, color: Rgb) {
        if self.color.replace(color) != Some(color) {
            self.ops.push(Op::SetFillColor { col: fill(color) });
        }
    }
}

/// The pages drawn so far.
#[derive(Debug)]
pub(super) struct Canvas {
    pub(super) fonts: &'static Fonts,
    pages: Vec<Page>,
    regular: BTreeSet<char>,
    bold: BTreeSet<char>,
}

impl Canvas {
    /// Creates a canvas without pages.
    pub(super) fn new() -> Result<Self, ReportError> {
        Ok(Self {
            fonts: Fonts::embedded()?,
            pages: Vec::new(),
            regular: BTreeSet::new(),
            bold: BTreeSet::new(),
        })
    }

    /// Starts a page, which becomes the target of drawing until the next one starts.
    pub(super) fn start_page(&mut self) {
        self.pages.push(Page::default());
    }

    /// Returns the number of pages.
    pub(super) fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Returns the drawing operations of each page.
    pub(super) fn into_pages(self) -> Vec<Vec<Op>> {
        self.pages.into_iter().map(|page| page.ops).collect()
    }

    /// Returns the characters drawn in a typeface.
    pub(super) const fn used(&self, face: Face) -> &BTreeSet<char> {
        match face {
            Face::Regular => &self.regular,
            Face::Bold => &self.bold,
        }
    }

    /// Returns the width of a text in points.
    pub(super) fn width(&self, text: &str, style: Style) -> f32 {
        self.fonts.get(style.face).width(text, style.size)
    }

    /// Draws one line of text onto the newest page; `baseline` is measured from the top.
    pub(super) fn text(&mut self, x: f32, baseline: f32, text: &str, style: Style) {
        let page = self.page_count().saturating_sub(1);
        self.text_on(page, x, baseline, text, style);
    }

    /// Draws one line of text onto a page counted from zero; does nothing if there is no such page.
    pub(super) fn text_on(&mut self, page: usize, x: f32, baseline: f32, text: &str, style: Style) {
        if text.is_empty() {
            return;
        }
        let Some(page) = self.pages.get_mut(page) else {
            return;
        };
        page.set_font(style);
        page.set_color(style.color);
        page.ops.extend([
            Op::StartTextSection,
            Op::SetTextCursor { pos: point(x, baseline) },
            Op::ShowText { items: vec![TextItem::Text(text.to_owned())] },
            Op::EndTextSection,
        ]);
        match style.face {
            Face::Regular => &mut self.regular,
            Face::Bold => &mut self.bold,
        }
        .extend(text.chars());
    }

    /// Fills a rectangle on the newest page.
    pub(super) fn rectangle(&mut self, area: Area, color: Rgb) {
        let page = self.page_count().saturating_sub(1);
        self.rectangle_on(page, area, color);
    }

    /// Fills a rectangle on a page counted from zero.
    pub(super) fn rectangle_on(&mut self, page: usize, area: Area, color: Rgb) {
        let rectangle = area.rect();
        if let Some(page) = self.pages.get_mut(page) {
            page.set_color(color);
            page.ops.push(Op::DrawRectangle { rectangle });
        }
    }

    /// Fills a rectangle with rounded corners on the newest page.
    pub(super) fn rounded(&mut self, area: Area, radius: f32, color: Rgb) {
        let polygon = Polygon {
            rings: vec![PolygonRing { points: rounded_outline(area, radius) }],
            mode: PaintMode::Fill,
            winding_order: WindingOrder::NonZero,
        };
        if let Some(page) = self.pages.last_mut() {
            page.set_color(color);
            page.ops.push(Op::DrawPolygon { polygon });
        }
    }

    /// Makes an area of the newest page a link.
    pub(super) fn link(&mut self, area: Area, url: &str) {
        let link = LinkAnnotation::new(
            area.rect(),
            Actions::uri(url.to_owned()),
            Some(BorderArray::Solid([0.0, 0.0, 0.0])),
            Some(ColorArray::Transparent),
            Some(HighlightingMode::None),
        );
        if let Some(page) = self.pages.last_mut() {
            page.ops.push(Op::LinkAnnotation { link });
        }
    }
}

/// Returns the name of a typeface among the resources of the document.
pub(super) fn font_id(face: Face) -> FontId {
    FontId(
        match face {
            Face::Regular => "Regular",
            Face::Bold => "Bold",
        }
        .to_owned(),
    )
}

/// Converts a colour to the library's type, rounded to three decimals, which is finer than a screen shows.
fn fill(Rgb(r, g, b): Rgb) -> Color {
    let share = |part: u8| (f32::from(part) / 255.0 * 1_000.0).round() / 1_000.0;
    Color::Rgb(printpdf::Rgb::new(share(r), share(g), share(b), None))
}

fn point(x: f32, y: f32) -> Point {
    Point { x: Pt(x), y: Pt(PAGE_HEIGHT - y) }
}

/// Returns the outline of a rounded rectangle: a straight side, then a quarter circle, four times.
fn rounded_outline(area: Area, radius: f32) -> Vec<LinePoint> {
    let Area { x, y, width, height } = area;
    let (right, bottom) = (x + width, y + height);
    let near = radius * (1.0 - CIRCLE);
    [
        (x + radius, y, false),
        (right - radius, y, false),
        (right - near, y, true),
        (right, y + near, true),
        (right, y + radius, false),
        (right, bottom - radius, false),
        (right, bottom - near, true),
        (right - near, bottom, true),
        (right - radius, bottom, false),
        (x + radius, bottom, false),
        (x + near, bottom, true),
        (x, bottom - near, true),
        (x, bottom - radius, false),
        (x, y + radius, false),
        (x, y + near, true),
        (x + near, y, true),
        (x + radius, y, false),
    ]
    .into_iter()
    .map(|(x, y, bezier)| LinePoint { p: point(x, y), bezier })
    .collect()
}
