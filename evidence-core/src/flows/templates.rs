//! Reads templates through the cache, and accepts uploaded ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};

use crate::compute::{LONG_YAML, MANY_EVALUATIONS};
use crate::context::{Context, Draft, OwnedContext};
use crate::error::{Error, Result};
use crate::flows::parsed::Parsed;
use crate::flows::record::EMPTY_TEMPLATE;
use crate::ledger::Hash;
use crate::operation::Form;
use crate::rules::template::Template;
use crate::store::error::StoreError;
use crate::texts::record::{TextRef, in_parts};

/// The templates that a part of a response needs.
#[derive(Debug)]
pub(crate) struct Found(BTreeMap<Hash, Arc<Parsed>>);

impl Found {
    /// Returns the template of this reference, which must be among the requested ones.
    pub(crate) fn of(&self, reference: Option<TextRef>) -> Arc<Parsed> {
        match reference {
            None => Arc::new(Parsed::empty()),
            Some(text) => self.0.get(&text.sha256).cloned().unwrap_or_else(|| Arc::new(Parsed::missing())),
        }
    }
}

impl Context<'_> {
    /// Returns the templates of these references, each read and parsed once. Runs one query, or none if all
    /// are cached.
    pub(crate) async fn templates(&self, wanted: impl IntoIterator<Item = Option<TextRef>>) -> Result<Found> {
        let wanted: BTreeSet<Hash> = wanted.into_iter().flatten().map(|text| text.sha256).collect();
        let load = async |missing: Vec<Hash>| {
            let texts = self.store().texts(self.org()?, &missing).await?;
            let heavy = texts.iter().map(String::len).sum::<usize>() > LONG_YAML;
            // Key by the digest of the text that was read: a damaged text then does not match its reference.
            let parsed = |text: String| (Hash::of(&text), Parsed::stored(text));
            let parse = move || Vec::from_iter(texts.into_iter().map(parsed));
            self.compute().run_if(heavy, parse).await
        };
        self.caches().templates.get_many(wanted, load).await.map(Found)
    }

    /// Returns the template of this reference.
    pub(crate) async fn template(&self, reference: Option<TextRef>) -> Result<Arc<Parsed>> {
        Ok(self.templates([reference]).await?.of(reference))
    }

    /// Returns a form's document and its template, after checking both.
    pub(crate) async fn with_template<T>(&self, form: Form<T>) -> Result<(T, Option<Uploaded>)> {
        let (document, text) = form.into_text(PART, self.limits().template).await?;
        let Some(text) = text else { return Ok((document, None)) };
        let heavy = text.len() > LONG_YAML;
        let uploaded = self.compute().run_if(heavy, move || Uploaded::checked(text)).await??;
        Ok((document, Some(uploaded)))
    }

    /// Caches an uploaded template after it is recorded. Not earlier: this server must not evaluate by a
    /// template that other servers cannot read from the store.
    pub(crate) fn cache_recorded(&self, uploaded: Option<Uploaded>) {
        if let Some(Uploaded { parsed, reference: Some(text) }) = uploaded {
            self.caches().templates.insert(text.sha256, parsed);
        }
    }
}

/// Maps each item and its template with `make`, lazily and in order. Runs off the async runtime if
/// `evaluations` is large. Holds only the templates of one read in memory, however many items there are.
pub(crate) fn map_with_templates<T: Send + 'static, V: Send + 'static>(
    items: Vec<(Option<TextRef>, T)>,
    owned: OwnedContext,
    evaluations: impl Fn(&T, &Template) -> usize + Clone + Send + 'static,
    make: impl Fn(T, Arc<Parsed>, &Context<'_>) -> Result<V> + Clone + Send + 'static,
) -> impl Stream<Item = Result<V>> + Send + 'static {
    let parts = stream::iter(in_parts(items, |(text, _)| *text));
    parts.then(move |part| read(part, owned.clone(), evaluations.clone(), make.clone())).try_flatten()
}

async fn read<T: Send + 'static, V: Send + 'static>(
    part: Vec<(Option<TextRef>, T)>,
    owned: OwnedContext,
    evaluations: impl Fn(&T, &Template) -> usize + Send + 'static,
    make: impl Fn(T, Arc<Parsed>, &Context<'_>) -> Result<V> + Clone + Send + 'static,
) -> Result<BoxStream<'static, Result<V>>> {
    let wanted: Vec<_> = part.iter().map(|(text, _)| *text).collect();
    let templates = owned.context().templates(wanted).await?;
    let make = move |(text, item)| {
        let (template, owned, make) = (templates.of(text), owned.clone(), make.clone());
        let heavy = evaluations(&item, &template.template) > MANY_EVALUATIONS;
        let compute = owned.context().compute();
        let make = move || make(item, template, &owned.context());
        async move { compute.run_if(heavy, make).await? }
    };
    Ok(stream::iter(part).then(make).boxed())
}

/// The name of the form part with the template file.
const PART: &str = "template_file";

/// An uploaded template.
#[derive(Debug)]
pub(crate) struct Uploaded {
    parsed: Arc<Parsed>,
    /// `None` for the empty template, which is not stored.
    pub(crate) reference: Option<TextRef>,
}

impl Uploaded {
    fn checked(text: String) -> Result<Self> {
        let template = Template::parse(&text).map_err(|errors| Error::invalid(PART, errors.to_string()))?;
        let reference = (text != EMPTY_TEMPLATE).then(|| TextRef::of(&text));
        Ok(Self { parsed: Arc::new(Parsed { text, template }), reference })
    }

    /// Builds a template from a list of names instead of a file.
    pub(crate) fn of_names(names: &[String]) -> Result<Self> {
        let text = serde_json::to_string(names).map_err(|error| StoreError::Failed(error.into()))?;
        let reference = Some(TextRef::of(&text));
        Ok(Self { parsed: Arc::new(Parsed::stored(text)), reference })
    }
}

impl Draft {
    /// Adds the text of an uploaded template to the draft if the organization does not have it, or only a
    /// damaged copy.
    pub(crate) async fn add_template_text(&mut self, uploaded: &Uploaded, cx: &Context<'_>) -> Result<()> {
        match uploaded.reference {
            Some(reference) => self.add_text(&uploaded.parsed.text, reference, cx).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_one(name: &str) -> String {
        format!("trail:\n  attestations:\n    - name: {name}\n      type: generic\n")
    }

    #[test]
    fn an_upload_is_referred_to_unless_it_is_the_empty_template() {
        let uploaded = Uploaded::checked(of_one("review")).unwrap();
        assert_eq!(uploaded.reference, Some(TextRef::of(&of_one("review"))));
        assert_eq!(*uploaded.parsed, Parsed::stored(of_one("review")));
        assert_eq!(Uploaded::checked(EMPTY_TEMPLATE.to_owned()).unwrap().reference, None);
        assert!(Uploaded::checked("]".to_owned()).is_err());
    }

    #[test]
    fn what_is_lost_or_cannot_be_read_says_so_and_what_is_absent_asks_for_nothing() {
        let text = TextRef::of("]");
        let found = Found(BTreeMap::from([(text.sha256, Arc::new(Parsed::stored("]".to_owned())))]));
        for reference in [text, TextRef::of("lost")] {
            let parsed = found.of(Some(reference));
            let why = parsed.template.unreadable().unwrap();
            assert!(why.starts_with("The template cannot be read: "), "{why}");
        }
        assert_eq!(*found.of(None), Parsed::empty());
        assert_eq!(Template::parse(EMPTY_TEMPLATE).unwrap(), Parsed::empty().template);
    }
}
