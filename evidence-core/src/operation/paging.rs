//! Pages of plain lists, described by response headers.

use super::{Header, InvalidHeader};
use crate::page::{PageNumber, percent_encoded};

/// A page of a list.
pub(crate) struct PageHeaders<'a> {
    /// The address of the list.
    pub(crate) address: String,
    /// The filters of the list, which the links repeat.
    pub(crate) query: Vec<(&'static str, &'a str)>,
    /// The number of the page.
    pub(crate) page: PageNumber,
    /// The number of items per page.
    pub(crate) per_page: u64,
    /// The number of items on all pages.
    pub(crate) total: u64,
}

impl PageHeaders<'_> {
    /// The names of the headers, as documented.
    pub(crate) const NAMES: &'static [&'static str] =
        &["X-Total-Count", "X-Per-Page", "X-Current-Page", "X-Total-Pages", "Link"];

    /// Returns the headers. `Link` (RFC 8288) is present only with more than one page.
    pub(crate) fn headers(&self) -> Result<Vec<Header>, InvalidHeader> {
        let (page, per_page, pages) =
            (self.page.get(), self.per_page, self.total.div_ceil(self.per_page.max(1)));
        let mut headers = vec![
            Header::new("X-Total-Count", self.total.to_string())?,
            Header::new("X-Per-Page", per_page.to_string())?,
            Header::new("X-Current-Page", page.to_string())?,
            Header::new("X-Total-Pages", pages.to_string())?,
        ];
        if pages > 1 {
            let neighbours = [
                ("first", Some(1)),
                ("prev", (1 < page && page <= pages).then(|| page - 1)),
                ("next", (page < pages).then(|| page + 1)),
                ("last", Some(pages)),
            ];
            let narrowed =
                self.query.iter().map(|(name, value)| format!("&{name}={}", percent_encoded(value)));
            let narrowed: String = narrowed.collect();
            let link = |(relation, page): (&str, Option<u64>)| {
                let address = &self.address;
                page.map(|page| {
                    format!("<{address}?page={page}&per_page={per_page}{narrowed}>; rel=\"{relation}\"")
                })
            };
            let links = Vec::from_iter(neighbours.into_iter().filter_map(link));
            headers.push(Header::new("Link", links.join(", "))?);
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_tell_where_a_page_lies() {
        let link = |page: u64, relation: &str| {
            format!("<http://h/e?page={page}&per_page=5&repo_name=a%2Fb>; rel=\"{relation}\"")
        };
        let (first, last) = (link(1, "first"), link(3, "last"));
        let table = [
            (1, 0, "0", None),
            (1, 5, "1", None),
            (2, 5, "1", None),
            (1, 11, "3", Some(vec![first.clone(), link(2, "next"), last.clone()])),
            (2, 11, "3", Some(vec![first.clone(), link(1, "prev"), link(3, "next"), last.clone()])),
            (3, 15, "3", Some(vec![first.clone(), link(2, "prev"), last.clone()])),
            (9, 15, "3", Some(vec![first, last])),
        ];
        for (page, total, pages, links) in table {
            let page: PageNumber = serde_json::from_value(page.into()).unwrap();
            let query = vec![("repo_name", "a/b")];
            let headers = PageHeaders { address: "http://h/e".to_owned(), query, page, per_page: 5, total };
            let headers = headers.headers().unwrap();
            let value = |name: &str| headers.iter().find(|one| one.name() == name).map(Header::value);
            assert_eq!(value("X-Total-Count"), Some(total.to_string().as_str()));
            assert_eq!(value("X-Per-Page"), Some("5"));
            assert_eq!(value("X-Current-Page"), Some(page.get().to_string().as_str()));
            assert_eq!(value("X-Total-Pages"), Some(pages));
            assert_eq!(value("Link"), links.map(|links| links.join(", ")).as_deref());
        }
    }
}
