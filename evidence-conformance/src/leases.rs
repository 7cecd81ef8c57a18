//! Checks of [`evidence_core::leases::LeaseStore`]: leases, of which one holder has each, and cursors, which go forward alone.

use std::sync::Arc;

use evidence_core::leases::{Advance, Lease, MAX_LEASE};
use evidence_core::store::Store;

use super::fixtures::{Org, at, id};
use super::races::on_tasks;
use super::{Outcome, promises, same};

promises! {
    one_holds_a_lease: "Of 64 that want a lease at the same time one gets it, and the others do not while it lasts.",
    a_lease_that_expired_is_taken_over: "A lease is renewed by its holder, and taken by another once it has expired.",
    a_late_renewal_shortens_nothing: "A lease ends when the latest end is reached that its holder asked for, in any order.",
    a_lease_that_ends_too_far_ahead_is_nobodys: "A lease that lasts longer than any may, by the clock of whoever wants it, is free.",
    a_lease_that_was_given_back_is_free: "A lease is given back by its holder alone.",
    a_lease_that_was_lost_is_not_renewed: "A lease is renewed where its holder has it still; where it was given back or taken, nothing changes.",
    a_cursor_goes_on_by_compare_and_swap: "A cursor moves on from where it is, and never back or by an old position.",
    cursors_are_apart: "A consumer's cursors in two organizations, and two consumers' in one, have nothing in common.",
    who_lost_the_lease_moves_nothing: "A cursor moves for whoever holds its consumer's lease at that time, and nobody else.",
    a_cursor_is_moved_once: "Of 16 moves from the same position at the same time one succeeds.",
}

/// A lease from the instant 0 until `ends`.
fn lease(holder: u64, ends: i64) -> Lease {
    Lease { name: "job".to_owned(), holder: id(holder), expires_at: at(ends) }
}

fn step(org: &Org, holder: u64, from: u64, to: u64) -> Advance {
    Advance { consumer: "job".to_owned(), org: org.id, holder: id(holder), from, to }
}

async fn one_holds_a_lease(store: Arc<dyn Store>) -> Outcome {
    for round in 0..4 {
        let racer = |holder| {
            let store = Arc::clone(&store);
            let lease = Lease { name: format!("job {round}"), ..lease(holder, 10) };
            async move { store.acquire_lease(&lease, at(1)).await }
        };
        let mut held = 0;
        for answer in on_tasks((100..164).map(racer)).await? {
            held += u32::from(answer?);
        }
        same("how many hold it", held, 1)?;
    }
    Ok(())
}

async fn a_lease_that_expired_is_taken_over(store: Arc<dyn Store>) -> Outcome {
    for (what, holder, ends, now, expected) in [
        ("a free one", 90, 10, 1, true),
        ("one that another holds", 91, 19, 9, false),
        ("one that is renewed", 90, 20, 9, true),
        ("one that was renewed", 91, 29, 19, false),
        ("one that has expired", 91, 30, 20, true),
        ("one that was lost", 90, 39, 29, false),
    ] {
        same(what, store.acquire_lease(&lease(holder, ends), at(now)).await?, expected)?;
    }
    let other = Lease { name: "another job".to_owned(), ..lease(90, 40) };
    same("another job's", store.acquire_lease(&other, at(1)).await?, true)
}

async fn a_late_renewal_shortens_nothing(store: Arc<dyn Store>) -> Outcome {
    for (what, holder, ends, now, expected) in [
        ("a free one", 90, 10, 1, true),
        ("one that is renewed", 90, 20, 2, true),
        ("one whose earlier renewal comes late", 90, 15, 1, true),
        ("one that was renewed before", 91, 29, 16, false),
        ("one that has expired", 91, 30, 20, true),
    ] {
        same(what, store.acquire_lease(&lease(holder, ends), at(now)).await?, expected)?;
    }
    Ok(())
}

async fn a_lease_that_ends_too_far_ahead_is_nobodys(store: Arc<dyn Store>) -> Outcome {
    let longest = i64::try_from(MAX_LEASE.as_secs()).unwrap_or(i64::MAX);
    for (what, holder, ends, now, expected) in [
        ("one by a clock that is an hour ahead", 90, 3610, 3600, true),
        ("one that ends too far ahead", 91, 30, 20, true),
        ("one that was lost", 90, 31, 21, false),
        ("its own from before", 91, 40, 29, true),
        ("one of the longest", 91, 30 + longest, 30, true),
        ("one that lasts no longer than any may", 90, 40, 31, false),
        ("one that does, by another clock", 90, 39, 29, true),
    ] {
        same(what, store.acquire_lease(&lease(holder, ends), at(now)).await?, expected)?;
    }
    same("when it ends", store.acquire_lease(&lease(91, 60), at(39)).await?, true)
}

async fn a_lease_that_was_given_back_is_free(store: Arc<dyn Store>) -> Outcome {
    store.release_lease("job", id(90)).await?;
    same("a free one", store.acquire_lease(&lease(90, 10), at(1)).await?, true)?;
    store.release_lease("job", id(91)).await?;
    same("one that another gave back", store.acquire_lease(&lease(91, 10), at(1)).await?, false)?;
    store.release_lease("job", id(90)).await?;
    same("one that was given back", store.acquire_lease(&lease(91, 10), at(1)).await?, true)
}

async fn a_lease_that_was_lost_is_not_renewed(store: Arc<dyn Store>) -> Outcome {
    let longest = i64::try_from(MAX_LEASE.as_secs()).unwrap_or(i64::MAX);
    let acquire = async |what: &str, holder, ends, now, expected| {
        same(what, store.acquire_lease(&lease(holder, ends), at(now)).await?, expected)
    };
    let renew = async |what: &str, holder, ends, now, expected| {
        same(what, store.renew_lease(&lease(holder, ends), at(now)).await?, expected)
    };
    renew("one that nobody has", 90, 10, 1, false).await?;
    acquire("which is free", 91, 10, 1, true).await?;
    renew("another's", 90, 30, 2, false).await?;
    renew("its own", 91, 20, 2, true).await?;
    renew("its own, by a renewal that comes late", 91, 15, 1, true).await?;
    acquire("which was renewed", 90, 29, 19, false).await?;
    renew("one that has expired and nobody took", 91, 40, 30, true).await?;
    acquire("which lasts again", 90, 49, 39, false).await?;
    acquire("which has expired", 90, 50, 40, true).await?;
    renew("one that was taken", 91, 90, 41, false).await?;
    acquire("which ends when its holder said", 92, 60, 50, true).await?;
    store.release_lease("job", id(92)).await?;
    renew("one that was given back", 92, 90, 51, false).await?;
    acquire("which is free", 93, 60 + 2 * longest, 60 + longest, true).await?;
    renew("one that ends too far ahead, by another clock", 93, 70, 60, true).await?;
    acquire("which ends when its holder said last", 94, 80, 70, true).await
}

async fn a_cursor_goes_on_by_compare_and_swap(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    same("a cursor that never moved", store.cursor("job", org.id).await?, 0)?;
    store.acquire_lease(&lease(90, 10), at(1)).await?;
    for (from, to, moved, position) in [
        (5, 7, false, 0),
        (0, 0, false, 0),
        (0, 3, true, 3),
        (0, 3, false, 3),
        (3, 2, false, 3),
        (3, 3, false, 3),
        (2, 9, false, 3),
        (3, 9, true, 9),
    ] {
        let answer = store.advance_cursor(&step(&org, 90, from, to), at(2)).await?;
        same(&format!("a move from {from} to {to}"), answer, moved)?;
        same(&format!("after {from} to {to}"), store.cursor("job", org.id).await?, position)?;
    }
    let nowhere = Advance { org: id(7), ..step(&org, 90, 0, 1) };
    same("no organization", store.advance_cursor(&nowhere, at(2)).await?, false)
}

async fn cursors_are_apart(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    store.acquire_lease(&lease(90, 10), at(1)).await?;
    store.acquire_lease(&Lease { name: "job 2".to_owned(), ..lease(90, 10) }, at(1)).await?;
    store.advance_cursor(&step(&org, 90, 0, 3), at(2)).await?;
    let second = Advance { consumer: "job 2".to_owned(), ..step(&org, 90, 0, 4) };
    store.advance_cursor(&second, at(2)).await?;
    for (consumer, org, position) in
        [("job", &org, 3), ("job", &other, 0), ("job 2", &org, 4), ("jo_", &org, 0)]
    {
        same(consumer, store.cursor(consumer, org.id).await?, position)?;
    }
    Ok(())
}

async fn who_lost_the_lease_moves_nothing(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let advance =
        async |holder, from, to, now| store.advance_cursor(&step(&org, holder, from, to), at(now)).await;
    same("without a lease", advance(90, 0, 1, 1).await?, false)?;
    store.acquire_lease(&lease(90, 10), at(1)).await?;
    same("by another", advance(91, 0, 1, 2).await?, false)?;
    same("by the holder", advance(90, 0, 1, 9).await?, true)?;
    same("when it has expired", advance(90, 1, 2, 10).await?, false)?;
    store.acquire_lease(&lease(91, 20), at(10)).await?;
    same("when it was lost", advance(90, 1, 2, 9).await?, false)?;
    same("by the new holder", advance(91, 1, 2, 11).await?, true)
}

async fn a_cursor_is_moved_once(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    store.acquire_lease(&lease(90, 10), at(1)).await?;
    for from in 0..4 {
        let racer = |_| {
            let (store, step) = (Arc::clone(&store), step(&org, 90, from, from + 1));
            async move { store.advance_cursor(&step, at(2)).await }
        };
        let mut moved = 0;
        for answer in on_tasks((0..16).map(racer)).await? {
            moved += u32::from(answer?);
        }
        same("how many moved it", moved, 1)?;
    }
    same("where it is", store.cursor("job", org.id).await?, 4)
}
