use std::pin::pin;

use futures_util::FutureExt;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);
const ROOM: usize = 64 * OVERHEAD;

/// A job of an organization that holds so many bytes, or one of nobody.
#[derive(Debug)]
struct Work(Option<(Id, usize)>, Reply<()>);

impl Task for Work {
    fn reserved_bytes(&self) -> Option<(Id, usize)> {
        self.0
    }

    fn is_upload(&self) -> bool {
        false
    }
}

fn org(number: u64) -> Id {
    format!("00000000-0000-0000-0000-{number:08}").parse().unwrap()
}

fn queue() -> (Queue<Work>, Jobs<Work>) {
    Queue::new(QueueLimits { bytes: ROOM, wait: TIMEOUT, grace: Some(TIMEOUT) })
}

async fn submit(queue: &Queue<Work>, room: Option<(Id, usize)>) -> StoreResult<()> {
    let (reply, outcome) = queue.outcome();
    queue.submit(Work(room, reply), outcome).await
}

async fn next(jobs: &mut Jobs<Work>) -> Queued<Work> {
    let mut next = Vec::new();
    assert_eq!(jobs.next(&mut next, 1).await, 1);
    next.remove(0)
}

#[track_caller]
fn refused(outcome: StoreResult<()>) -> Refused {
    let (is_unknown, source) = match outcome {
        Err(StoreError::Unavailable(source)) => (false, source),
        Err(StoreError::OutcomeUnknown(source)) => (true, source),
        outcome => panic!("{outcome:?}"),
    };
    let refused = *source.downcast().expect("why it was refused");
    assert_eq!(is_unknown, matches!(refused, Refused::Silent | Refused::Lost), "{refused:?}");
    refused
}

/// Returns whether a job finds room. If it does, it waits and its room is never released.
fn finds_room(queue: &Queue<Work>, org: Id, bytes: usize) -> bool {
    let (reply, outcome) = queue.outcome();
    match queue.submit(Work(Some((org, bytes)), reply), outcome).now_or_never() {
        None => true,
        Some(outcome) => {
            assert_eq!(refused(outcome), Refused::Full);
            false
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_its_caller_gave_up_is_never_begun() {
    let (queue, mut jobs) = queue();
    let started = Instant::now();
    assert_eq!(refused(submit(&queue, None).await), Refused::Late);
    assert_eq!(started.elapsed(), TIMEOUT);
    assert!(!next(&mut jobs).await.job.1.begin());
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_job_that_was_begun_is_waited_for_as_long_as_is_said() {
    for grace in [Some(TIMEOUT), None] {
        let (queue, mut jobs) = Queue::new(QueueLimits { bytes: ROOM, wait: TIMEOUT, grace });
        let mut caller = pin!(submit(&queue, None));
        assert!(caller.as_mut().now_or_never().is_none());
        let Work(_, reply) = next(&mut jobs).await.job;
        assert!(reply.begin() && reply.begin());
        assert!(tokio::time::timeout(TIMEOUT * 3 / 2, caller.as_mut()).await.is_err());
        // Its time is over, so it is not begun again.
        assert!(!reply.begin());
        reply.send(Ok(()));
        caller.await.unwrap();

        let mut caller = pin!(submit(&queue, None));
        assert!(caller.as_mut().now_or_never().is_none());
        let Work(_, reply) = next(&mut jobs).await.job;
        assert!(reply.begin());
        let outcome = tokio::time::timeout(TIMEOUT * 3, caller).await;
        assert_eq!(outcome.map(refused).ok(), grace.map(|_| Refused::Silent));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_without_end_is_waited_for_whatever_the_grace() {
    let (queue, mut jobs) = queue();
    let (reply, outcome) = queue.outcome();
    let mut caller = pin!(queue.submit(Work(None, reply), outcome.without_end()));
    assert!(caller.as_mut().now_or_never().is_none());
    let Work(_, reply) = next(&mut jobs).await.job;
    assert!(reply.begin());
    assert!(tokio::time::timeout(TIMEOUT * 9, caller.as_mut()).await.is_err());
    reply.send(Ok(()));
    caller.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_that_the_writer_lets_go_is_late_or_the_writer_has_ended() {
    for (after, expected) in [(TIMEOUT, Refused::Late), (TIMEOUT / 2, Refused::Closed)] {
        let (queue, mut jobs) = queue();
        let mut caller = pin!(submit(&queue, None));
        assert!(caller.as_mut().now_or_never().is_none());
        let job = next(&mut jobs).await;
        tokio::time::advance(after).await;
        drop(job);
        assert_eq!(refused(caller.await), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_job_that_the_writer_drops_after_it_began_is_unknown() {
    for after in [Duration::ZERO, TIMEOUT * 3 / 2] {
        let (queue, mut jobs) = queue();
        let mut caller = pin!(submit(&queue, None));
        assert!(caller.as_mut().now_or_never().is_none());
        let job = next(&mut jobs).await;
        assert!(job.job.1.begin());
        tokio::time::advance(after).await;
        assert!(caller.as_mut().now_or_never().is_none());
        drop(job);
        assert_eq!(refused(caller.await), Refused::Lost);
    }
}

#[tokio::test]
async fn what_comes_after_the_end_is_refused() {
    let (queue, jobs) = queue();
    drop(jobs);
    assert!(queue.is_closed());
    assert_eq!(refused(submit(&queue, None).await), Refused::Closed);
    queue.stop(|reply| Work(None, reply)).await;
}

#[tokio::test]
async fn an_organization_that_takes_all_it_may_leaves_room_for_others() {
    let (queue, _jobs) = queue();
    let fill = |number| (0..).take_while(|_| finds_room(&queue, org(number), 0)).count();
    assert_eq!([1, 2, 3, 4].map(fill), [32, 16, 8, 4]);
    // Further attempts find no room.
    assert_eq!([1, 2, 3, 4].map(fill), [0; 4]);
    let (reply, outcome) = queue.outcome();
    assert!(queue.submit(Work(None, reply), outcome).now_or_never().is_none(), "jobs of nobody take no room");
}

#[tokio::test]
async fn room_is_free_again_once_a_job_is_done() {
    let (queue, mut jobs) = queue();
    assert!(finds_room(&queue, org(1), ROOM / 2 - OVERHEAD));
    assert!(!finds_room(&queue, org(1), 0));
    let Queued { job, reservation } = next(&mut jobs).await;
    drop(job);
    assert!(!finds_room(&queue, org(1), 0));
    drop(reservation);
    assert!(finds_room(&queue, org(1), ROOM / 2 - OVERHEAD));
}

#[tokio::test]
async fn no_job_is_refused_for_its_size_while_a_larger_one_is_taken() {
    let (queue, mut jobs) = queue();
    while finds_room(&queue, org(1), 0) {}
    // More than the half that is left to it, less than half of all.
    let size = ROOM / 3;
    assert!(finds_room(&queue, org(2), size));
    assert!(!finds_room(&queue, org(2), size));
    assert!(finds_room(&queue, org(2), 0));
    while next(&mut jobs).await.job.0 != Some((org(2), size)) {}
    assert!(finds_room(&queue, org(2), size));
}

#[tokio::test]
async fn a_job_that_is_larger_than_all_the_room_waits_beside_it_one_at_a_time() {
    let (queue, mut jobs) = queue();
    while finds_room(&queue, org(1), OVERHEAD) {}
    assert!(finds_room(&queue, org(1), 2 * ROOM));
    assert!(!finds_room(&queue, org(2), 2 * ROOM));
    assert!(finds_room(&queue, org(2), OVERHEAD));
    while next(&mut jobs).await.job.0 != Some((org(1), 2 * ROOM)) {}
    assert!(finds_room(&queue, org(2), 2 * ROOM));
}

/// A chunk of a stored attachment, or a record.
#[derive(Debug)]
struct Piece {
    org: u64,
    is_upload: bool,
    bytes: usize,
    _reply: Reply<()>,
}

impl Task for Piece {
    fn reserved_bytes(&self) -> Option<(Id, usize)> {
        Some((org(self.org), self.bytes))
    }

    fn is_upload(&self) -> bool {
        self.is_upload
    }
}

#[tokio::test]
async fn uploads_yield_to_records_and_organizations_take_turns() {
    let (queue, mut jobs) = Queue::new(QueueLimits { bytes: 64 << 20, wait: TIMEOUT, grace: None });
    let mut callers = Vec::new();
    let mut hand_in = |org, is_upload| {
        let (reply, outcome) = queue.outcome();
        let bytes = if is_upload { 256 << 10 } else { 1000 };
        let mut caller = Box::pin(queue.submit(Piece { org, is_upload, bytes, _reply: reply }, outcome));
        assert!(caller.as_mut().now_or_never().is_none());
        callers.push(caller);
    };
    let taken = async |jobs: &mut Jobs<Piece>| {
        let mut next = Vec::new();
        assert_eq!(jobs.next(&mut next, 256).await, next.len());
        Vec::from_iter(next.iter().map(|queued| (queued.job.org, queued.job.is_upload)))
    };
    (0..10).for_each(|_| hand_in(1, true));
    (2..4).for_each(|org| (0..2).for_each(|_| hand_in(org, true)));
    hand_in(4, false);
    let upload = |org| (org, true);
    assert_eq!(taken(&mut jobs).await, [(4, false), upload(1), upload(2), upload(3), upload(1)]);
    // A record that arrives meanwhile waits for these few chunks, and not for all that are waiting.
    hand_in(2, false);
    assert_eq!(taken(&mut jobs).await, [(2, false), upload(2), upload(3), upload(1), upload(1)]);
    assert!(jobs.has_uploads());
    assert_eq!(taken(&mut jobs).await, [upload(1); 4]);
    assert_eq!(taken(&mut jobs).await, [upload(1); 2]);
    assert!(!jobs.has_uploads());
}

#[tokio::test]
async fn a_record_waits_for_a_few_uploads_however_small_they_are() {
    let (queue, mut jobs) = Queue::new(QueueLimits { bytes: 64 << 20, wait: TIMEOUT, grace: None });
    let mut callers = Vec::new();
    let mut hand_in = |org, is_upload| {
        let (reply, outcome) = queue.outcome();
        let mut caller = Box::pin(queue.submit(Piece { org, is_upload, bytes: 0, _reply: reply }, outcome));
        assert!(caller.as_mut().now_or_never().is_none());
        callers.push(caller);
    };
    (0..900).for_each(|_| hand_in(1, true));
    hand_in(2, false);
    let mut next = Vec::new();
    for turn in 0..3 {
        jobs.next(&mut next, 256).await;
        let uploads = next.drain(..).filter(|queued| queued.job.is_upload).count();
        assert!(uploads <= MAX_UPLOADS, "{uploads} uploads in turn {turn}");
    }
}
