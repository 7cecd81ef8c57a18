//! Checks of [`evidence_core::sweep::PendingStore`].

use std::sync::Arc;

use evidence_core::attestations::{Attachment, Attestation};
use evidence_core::blobs::Whole;
use evidence_core::digest::sha256_hex;
use evidence_core::fact::Fact;
use evidence_core::name::Fingerprint;
use evidence_core::store::{Store, StoreResult};
use evidence_core::sweep::{AttachmentPlace, AttachmentState, Pending};

use super::fixtures::{Org, at, attestation, flow_created, id, named, trail_begun};
use super::races::on_tasks;
use super::{Failure, Outcome, present, promises, same, same_set};

promises! {
    what_is_kept_is_pending_until_a_record_names_it: "A content is pending from its note until the write that names it.",
    an_earlier_time_changes_no_note: "A note that is made again has the later of the times.",
    notes_come_in_pages: "`pending` answers at most `limit` notes of all organizations, in one order, beginning after one.",
    an_organizations_notes_are_its_own: "What becomes of a content of one organization changes nothing for another's.",
    only_what_is_as_it_was_read_is_removed: "A removal begins, and ends, where the note is as it was read, and nowhere else.",
    what_is_being_removed_is_not_kept: "While a content is being removed it cannot be noted again.",
    an_abandoned_removal_leaves_the_note: "A removal that is abandoned leaves the content noted as if it had been kept then.",
    a_removal_happens_once: "Of 16 removals of one content at the same time one succeeds.",
    one_place_of_attachments_is_noted: "One place of attachments is noted, of 16 at the same time the first; its mark stays.",
    who_keeps_it_again_has_it: "Whoever has noted a content that is removed at the same time, and keeps it then, has it.",
}

/// The content of the attachment.
pub(super) const CONTENT: &[u8] = b"what was attached";

pub(super) fn digest(content: &[u8]) -> Fingerprint {
    named(&sha256_hex(content))
}

/// An attestation with this file, which is also what its download gives.
pub(super) fn attested(n: u64, content: &[u8]) -> Fact {
    let file = Attachment {
        file_name: "a.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        size: content.len() as u64,
        sha256: digest(content),
    };
    // The numbers of the other organization begin at 2000. No two organizations share a flow.
    let flow = if n < 2000 { 100 } else { 200 };
    let record = attestation(n, flow, flow + 1, "a");
    Fact::AttestationAdded {
        record: Attestation { attachments: vec![file.clone(), file.clone()], evidence: Some(file), ..record },
    }
}

async fn two_with_trails(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t")]).await?;
    Ok((org, other))
}

impl Org {
    async fn keep(&self, content: &[u8]) -> Outcome {
        let mut whole = Whole::new(content.to_vec());
        Ok(self.store.put(self.id, &digest(content), &mut whole).await?)
    }

    async fn has(&self, content: &[u8]) -> Result<bool, Failure> {
        Ok(self.store.get_chunk(self.id, &digest(content), 0).await?.is_some())
    }

    async fn is(&self, what: &str, content: &[u8], state: AttachmentState) -> Outcome {
        same(what, self.store.attachment_state(self.id, &digest(content)).await?, state)
    }

    async fn note(&self, content: &[u8], n: i64) -> StoreResult<bool> {
        self.store.put_pending(self.id, &digest(content), at(n)).await
    }

    /// The note of a content that is kept, as of the instant `n`.
    async fn noted(&self, content: &[u8], n: i64) -> Result<Pending, Failure> {
        same("whether it is noted", self.note(content, n).await?, true)?;
        self.keep(content).await?;
        let (notes, sha256) = (self.store.pending(None, 100).await?, digest(content));
        present("its note", notes.into_iter().find(|note| note.org == self.id && note.sha256 == sha256))
    }
}

async fn what_is_kept_is_pending_until_a_record_names_it(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = two_with_trails(&store).await?;
    let other = b"another";
    org.is("before its note", CONTENT, AttachmentState::Unknown).await?;
    let note = org.noted(CONTENT, 1).await?;
    let expected = Pending { org: org.id, sha256: digest(CONTENT), kept_at: at(1), removing_at: None };
    same("the note", &note, &expected)?;
    org.is("after its note", CONTENT, AttachmentState::Pending).await?;
    let left = org.noted(other, 1).await?;
    org.record(vec![attested(111, CONTENT), attested(112, CONTENT)]).await?;
    org.is("when it is named", CONTENT, AttachmentState::Named).await?;
    org.is("the other", other, AttachmentState::Pending).await?;
    same("what is named", store.named_attachments(100).await?, vec![(org.id, digest(CONTENT))])?;
    same("none of what is named", store.named_attachments(0).await?, Vec::new())?;
    same("the notes", store.pending(None, 100).await?, vec![left])?;
    same("a note of what is named", org.note(CONTENT, 3).await?, false)?;
    for removes in [store.begin_removal(&note, at(4)).await?, store.end_removal(&note).await?] {
        same("a removal of what is named", removes, false)?;
    }
    org.record(vec![attested(113, CONTENT)]).await?;
    same("whether it is there", org.has(CONTENT).await?, true)
}

async fn an_earlier_time_changes_no_note(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    for (again, kept_at) in [(5, 5), (3, 5), (6, 6)] {
        same("since when it is kept", org.noted(CONTENT, again).await?.kept_at, at(kept_at))?;
    }
    let nowhere = store.put_pending(id(7), &digest(CONTENT), at(1)).await?;
    same("a note of an organization that does not exist", nowhere, false)
}

async fn notes_come_in_pages(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let contents: Vec<[u8; 1]> = (0..5_u8).map(|n| [n]).collect();
    for content in &contents {
        org.noted(content, 1).await?;
        other.noted(content, 2).await?;
    }
    let all = store.pending(None, 100).await?;
    for org in [&org, &other] {
        let of_org = all.iter().filter(|note| note.org == org.id);
        let found = of_org.map(|note| note.sha256.clone()).collect();
        same_set("the contents", found, contents.iter().map(|content| digest(content)).collect())?;
    }
    let (mut pages, mut last) = (Vec::new(), None);
    loop {
        let page = store.pending(last.as_ref(), 3).await?;
        let Some(end) = page.last().cloned() else { break };
        same("whether a page is longer than it may be", page.len() > 3, false)?;
        pages.extend(page);
        last = Some(end);
    }
    same("the pages", pages, all)
}

async fn an_organizations_notes_are_its_own(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = two_with_trails(&store).await?;
    let (ours, theirs) = (org.noted(CONTENT, 1).await?, other.noted(CONTENT, 1).await?);
    org.record(vec![attested(111, CONTENT)]).await?;
    other.is("the other's", CONTENT, AttachmentState::Pending).await?;
    same("a removal of ours", store.end_removal(&ours).await?, false)?;
    same("a removal of the other's", store.end_removal(&theirs).await?, true)?;
    other.is("what was removed", CONTENT, AttachmentState::Unknown).await?;
    same("what is there", (org.has(CONTENT).await?, other.has(CONTENT).await?), (true, false))
}

async fn only_what_is_as_it_was_read_is_removed(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let read = org.noted(CONTENT, 1).await?;
    let renewed = org.noted(CONTENT, 2).await?;
    for removes in [store.begin_removal(&read, at(9)).await?, store.end_removal(&read).await?] {
        same("a removal of what was kept again", removes, false)?;
    }
    same("whether it is there", org.has(CONTENT).await?, true)?;
    same("a beginning", store.begin_removal(&renewed, at(10)).await?, true)?;
    same("a second beginning", store.begin_removal(&renewed, at(11)).await?, false)?;
    same("an end by who did not begin", store.end_removal(&renewed).await?, false)?;
    let first = Pending { removing_at: Some(at(10)), ..renewed };
    same("who takes over", store.begin_removal(&first, at(12)).await?, true)?;
    same("an end by who was too slow", store.end_removal(&first).await?, false)?;
    let second = Pending { removing_at: Some(at(12)), ..first };
    same("the note", store.pending(None, 10).await?, vec![second.clone()])?;
    same("the end", store.end_removal(&second).await?, true)?;
    same("a second end", store.end_removal(&second).await?, false)?;
    same("what is left", (org.has(CONTENT).await?, store.pending(None, 10).await?), (false, Vec::new()))
}

async fn what_is_being_removed_is_not_kept(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let note = org.noted(CONTENT, 1).await?;
    same("the beginning", store.begin_removal(&note, at(9)).await?, true)?;
    org.is("what is being removed", CONTENT, AttachmentState::Removing).await?;
    same("a note meanwhile", org.note(CONTENT, 10).await?, false)?;
    store.end_removal(&Pending { removing_at: Some(at(9)), ..note }).await?;
    let again = org.noted(CONTENT, 11).await?;
    same("a note afterwards", (again.kept_at, again.removing_at), (at(11), None))?;
    same("whether it is there", org.has(CONTENT).await?, true)
}

async fn an_abandoned_removal_leaves_the_note(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let note = org.noted(CONTENT, 1).await?;
    let theirs = other.noted(CONTENT, 1).await?;
    let begun = Pending { removing_at: Some(at(9)), ..note.clone() };
    same("what was not begun", store.abandon_removal(&begun, at(10)).await?, false)?;
    same("the beginning", store.begin_removal(&note, at(9)).await?, true)?;
    same("by who did not begin", store.abandon_removal(&note, at(10)).await?, false)?;
    same("by who did", store.abandon_removal(&begun, at(10)).await?, true)?;
    same("a second time", store.abandon_removal(&begun, at(11)).await?, false)?;
    same("an end after that", store.end_removal(&begun).await?, false)?;
    let left = Pending { kept_at: at(10), removing_at: None, ..note };
    same_set("the notes", store.pending(None, 10).await?, vec![left, theirs])?;
    same("a note", org.note(CONTENT, 12).await?, true)?;
    same("whether it is there", org.has(CONTENT).await?, true)
}

async fn a_removal_happens_once(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    for round in 0..4 {
        let note = org.noted(CONTENT, round).await?;
        let racer = |_| {
            let (store, note) = (Arc::clone(&store), note.clone());
            async move { store.end_removal(&note).await }
        };
        let mut removed = 0;
        for answer in on_tasks((0..16).map(racer)).await? {
            removed += u32::from(answer?);
        }
        same("how many removed it", removed, 1)?;
    }
    Ok(())
}

async fn who_keeps_it_again_has_it(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    for round in 0..16 {
        let content = format!("round {round}").into_bytes();
        let note = org.noted(&content, 1).await?;
        let racer = |keeps: bool| {
            let (org, note, content) = (org.clone(), note.clone(), content.clone());
            async move {
                if keeps {
                    same("a note", org.note(&content, 2).await?, true)?;
                    return org.keep(&content).await;
                }
                Ok(org.store.end_removal(&note).await.map(drop)?)
            }
        };
        for outcome in on_tasks([round % 2 == 0, round % 2 != 0].into_iter().map(racer)).await? {
            outcome?;
        }
        org.is("what was kept again", &content, AttachmentState::Pending).await?;
        same("whether it is there", org.has(&content).await?, true)?;
    }
    Ok(())
}

async fn one_place_of_attachments_is_noted(store: Arc<dyn Store>) -> Outcome {
    same("the place of a new store", store.attachment_place().await?, None)?;
    let racer = |n| {
        let (store, place) = (Arc::clone(&store), AttachmentPlace { id: id(n), is_marked: false });
        async move { store.put_attachment_place(place).await }
    };
    let mut noted = 0;
    for outcome in on_tasks((1..=16).map(racer)).await? {
        noted += u32::from(outcome?);
    }
    same("notes that were made", noted, 1)?;
    let first = present("the place", store.attachment_place().await?)?;
    same("the mark of a new place", first.is_marked, false)?;
    let other = AttachmentPlace { id: id(99), is_marked: true };
    same("a second place", store.put_attachment_place(other).await?, false)?;
    same("the place after that", store.attachment_place().await?, Some(first))?;
    for is_marked in [true, false] {
        let again = AttachmentPlace { is_marked, ..first };
        same("the same place", store.put_attachment_place(again).await?, true)?;
        let marked = AttachmentPlace { is_marked: true, ..first };
        same("the marked place", store.attachment_place().await?, Some(marked))?;
    }
    Ok(())
}
