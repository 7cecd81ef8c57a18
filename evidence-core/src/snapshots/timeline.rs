//! The numbered snapshots of a physical or logical environment. Resolves expressions, pages and windows to
//! numbers.

use std::ops::RangeInclusive;
use std::sync::Arc;

use futures_util::future::try_join;
use futures_util::{Stream, StreamExt, stream};

use crate::context::{Context, OwnedContext};
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Result, at_most};
use crate::id::Id;
use crate::page::in_batches;
use crate::snapshots::expression::{Expression, Interval, Position};
use crate::snapshots::logical::{LogicalSnapshots, Part, Shown};
use crate::snapshots::numbered_event::NumberedEvent;
use crate::snapshots::store::{Event, SnapshotRow};
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// The most events that are read at once.
const MAX_READ: usize = 256;

/// The snapshots of an environment. They are numbered from 1 without gaps, and so are their events.
pub(crate) struct Timeline {
    /// The environment. For a logical one, its status has the numbers of its combined snapshots.
    pub(crate) environment: KnownEnvironment,
    logical: Option<LogicalSnapshots>,
}

impl Timeline {
    pub(crate) async fn of(mut environment: KnownEnvironment, cx: &Context<'_>) -> Result<Self> {
        if environment.record.kind.is_physical() {
            return Ok(Self { environment, logical: None });
        }
        let logical = LogicalSnapshots::read(&environment, cx).await?;
        environment.status = logical.status();
        Ok(Self { environment, logical: Some(logical) })
    }

    /// Returns whether the environment is logical.
    pub(crate) const fn is_logical(&self) -> bool {
        self.logical.is_some()
    }

    /// Refuses a snapshot of a logical environment with more artifacts than can be read at once
    /// ([`Limits::combined_artifacts`](crate::Limits::combined_artifacts)).
    pub(crate) fn at_most(&self, artifacts: usize, field: &'static str, cx: &Context<'_>) -> Result<()> {
        match &self.logical {
            Some(_) => at_most(cx.limits().combined_artifacts, artifacts, field),
            None => Ok(()),
        }
    }

    /// Returns the number of snapshots.
    pub(crate) const fn count(&self) -> u64 {
        self.environment.status.snapshots
    }

    /// Returns the number of the snapshot that was current at a time; 0 before the first.
    pub(crate) async fn at(&self, at: Timestamp, cx: &Context<'_>) -> Result<u64> {
        match &self.logical {
            Some(logical) => logical.at(at, cx).await,
            None => Ok(cx.store().snapshot_at(cx.org()?, self.environment.record.id, at).await?),
        }
    }

    /// Returns the number that an expression resolves to. There may be no snapshot with this number.
    pub(crate) async fn resolve(&self, expression: &Expression, cx: &Context<'_>) -> Result<i64> {
        match expression.position(self.count(), cx.now()) {
            Position::Index(index) => Ok(index),
            Position::At(at) => Ok(i64::try_from(self.at(at, cx).await?).unwrap_or(i64::MAX)),
        }
    }

    /// Returns the first and the last existing snapshot of an interval.
    pub(crate) async fn range(&self, interval: &Interval, cx: &Context<'_>) -> Result<Option<(u64, u64)>> {
        let resolved = match interval {
            Interval::Everything => Interval::Everything,
            Interval::Only(one) => Interval::Only(self.numbered(one, cx).await?),
            Interval::Between(first, last) => {
                Interval::Between(self.numbered(first, cx).await?, self.numbered(last, cx).await?)
            }
        };
        Ok(resolved.range(self.count(), cx.now(), |_| 0))
    }

    /// Resolves the expression to a number, so that a time is looked up only once. A result before the first
    /// snapshot becomes 0, which no snapshot has.
    async fn numbered(&self, expression: &Expression, cx: &Context<'_>) -> Result<Expression> {
        Ok(Expression::Index(self.resolve(expression, cx).await?.max(0)))
    }

    /// Returns the existing snapshots with these numbers, sorted by number.
    pub(crate) async fn rows(
        &self,
        range: RangeInclusive<u64>,
        cx: &Context<'_>,
    ) -> Result<Vec<SnapshotRow>> {
        match &self.logical {
            Some(logical) => logical.rows(range, cx).await,
            None => Ok(cx.store().snapshots(cx.org()?, &[(self.environment.record.id, range)]).await?),
        }
    }

    /// Returns the parts of the snapshot with this number, which must exist.
    pub(crate) async fn parts_of(&self, index: u64, cx: &Context<'_>) -> Result<Vec<Part>> {
        let Some(logical) = &self.logical else {
            return Ok(vec![Part { environment: self.environment.record.id, index, shown: Shown::Own }]);
        };
        match logical.rows(index..=index, cx).await?.pop() {
            Some(row) => logical.parts(row.revision, cx).await,
            None => Ok(Vec::new()),
        }
    }

    /// Returns the parts of a snapshot. For a logical environment, there is one for each member.
    pub(crate) async fn parts(&self, row: &SnapshotRow, cx: &Context<'_>) -> Result<Vec<Part>> {
        match &self.logical {
            Some(logical) => logical.parts(row.revision, cx).await,
            None => {
                let (environment, index) = (row.environment, row.index);
                Ok(vec![Part { environment, index, shown: Shown::Own }])
            }
        }
    }

    /// Returns the first and the last number of the events in these snapshots, if there are any.
    pub(crate) async fn events_with(
        &self,
        (first, last): (u64, u64),
        cx: &Context<'_>,
    ) -> Result<Option<(u64, u64)>> {
        let (before, with) =
            try_join(self.events_up_to(first.saturating_sub(1), cx), self.events_up_to(last, cx)).await?;
        Ok((before < with).then_some((before + 1, with)))
    }

    /// Returns the number of events in this many snapshots.
    async fn events_up_to(&self, index: u64, cx: &Context<'_>) -> Result<u64> {
        if index == 0 {
            return Ok(0);
        }
        if index == self.count() {
            return Ok(self.environment.status.events);
        }
        if let Some(logical) = &self.logical {
            return logical.events_with(index, cx).await;
        }
        let row = self.rows(index..=index, cx).await?;
        let lost = || StoreError::corrupt(format_args!("snapshot {index} of an environment is missing"));
        row.first().map(|row| row.events).ok_or_else(|| Error::from(lost()))
    }

    /// Streams the events with these numbers in parts that fit in memory, one part after another. The numbers
    /// must be ascending or descending; the stream has the same order. For a logical environment, they must
    /// have no gaps.
    pub(crate) async fn events(
        self: &Arc<Self>,
        numbers: &[u64],
        owned: OwnedContext,
    ) -> Result<impl Stream<Item = Result<Vec<NumberedEvent>>> + Send + use<>> {
        let cx = owned.context();
        let asked = match (&self.logical, numbers.iter().min(), numbers.iter().max()) {
            (Some(logical), Some(first), Some(last)) => logical.events(*first..=*last, &cx).await?,
            _ => numbers.iter().map(|number| (self.environment.record.id, *number)).collect(),
        };
        let mut sizes =
            if asked.is_empty() { Vec::new() } else { cx.store().event_sizes(cx.org()?, &asked).await? };
        let newest_first = numbers.first() > numbers.last();
        sizes.sort_unstable_by_key(|event| (event.revision, event.number));
        if newest_first {
            sizes.reverse();
        }
        let weighed = sizes.into_iter().map(|event| ((event.environment, event.number), event.bytes));
        let (parts, timeline) = (in_batches(weighed, MAX_READ), Arc::clone(self));
        let read = move |asked: Vec<(Id, u64)>| {
            let (timeline, owned) = (Arc::clone(&timeline), owned.clone());
            async move {
                let mut events = timeline.numbered_events(&asked, &owned.context()).await?;
                if newest_first {
                    events.reverse();
                }
                Ok(events)
            }
        };
        Ok(stream::iter(parts).then(read))
    }

    /// Returns these events of the environment, or of the members of a logical one, in order.
    async fn numbered_events(&self, asked: &[(Id, u64)], cx: &Context<'_>) -> Result<Vec<NumberedEvent>> {
        let mut events = cx.store().events(cx.org()?, asked).await?;
        events.sort_by_key(|event| (event.revision, event.number));
        match &self.logical {
            Some(logical) => logical.numbered(events, cx).await,
            None => {
                let numbered = |event: Event| {
                    let Event { snapshot: (index, at), compliant, .. } = event;
                    NumberedEvent { index, at, compliant, member: None, event }
                };
                Ok(events.into_iter().map(numbered).collect())
            }
        }
    }
}
