//! Checks of [`evidence_core::texts::TextStore`].

use std::sync::Arc;

use evidence_core::fact::Fact;
use evidence_core::flows::Flow;
use evidence_core::ledger::Hash;
use evidence_core::store::Store;
use evidence_core::texts::TextRef;

use super::fixtures::{Org, awkward, flow, flow_created, id};
use super::{Outcome, promises, same, same_set};

promises! {
    texts_are_answered_by_their_digests: "`texts` answers those with these digests, byte for byte, and passes over unknown ones.",
    a_text_that_is_kept_twice_is_one: "A text that several facts keep is answered once, be they of one write or of several.",
    texts_are_an_organizations_own: "The texts of an organization are not another's.",
}

/// Keeps a text.
pub(crate) fn kept(text: &str) -> Fact {
    Fact::TextKept { text: text.to_owned() }
}

async fn texts_are_answered_by_their_digests(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let [empty, awkward, nul] = ["".to_owned(), awkward(), "a\u{0}b".to_owned()];
    let long = (0..40).map(|number| format!("line {number}: {}\n", Hash::of([1, 2, 3]))).collect::<String>();
    org.record(vec![kept(&empty), kept(&awkward), flow_created(100, "f")]).await?;
    org.record(vec![kept(&nul), kept(&long)]).await?;
    for text in [&empty, &awkward, &nul, &long] {
        let found = store.texts(org.id, &[Hash::of(text)]).await?;
        same("one text", found, vec![text.clone()])?;
    }
    let asked = [&awkward, "unknown", &nul, &awkward].map(Hash::of);
    same_set("some texts", store.texts(org.id, &asked).await?, vec![awkward, nul])?;
    same("no texts", store.texts(org.id, &[]).await?, Vec::new())
}

async fn a_text_that_is_kept_twice_is_one(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let text = "version: 1\n# once\n";
    let template = Some(TextRef::of(text));
    org.record(vec![
        kept(text),
        kept(text),
        Fact::FlowCreated { record: Flow { template, ..flow(100, "f") } },
    ])
    .await?;
    org.record(vec![kept(text)]).await?;
    same("the text", store.texts(org.id, &[Hash::of(text)]).await?, vec![text.to_owned()])?;
    let found = store.flow(org.id, "f").await?.map(|flow| flow.record.template);
    same("the flow's", found, Some(template))
}

async fn texts_are_an_organizations_own(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![kept("ours"), kept("both")]).await?;
    other.record(vec![kept("theirs"), kept("both")]).await?;
    let asked = ["ours", "theirs", "both"].map(Hash::of);
    let texts = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
    same_set("ours", store.texts(org.id, &asked).await?, texts(["ours", "both"]))?;
    same_set("theirs", store.texts(other.id, &asked).await?, texts(["theirs", "both"]))?;
    same("of no organization", store.texts(id(3), &asked).await?, Vec::new())
}
