//! Checks of [`evidence_core::blobs::Blobs`].

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use evidence_core::blobs::{Blobs, CHUNK, Chunks, Whole};
use evidence_core::digest::sha256_hex;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::Store;

use super::fixtures::{Org, fingerprint, named};
use super::{Check, Failure, Outcome, Running, ensure, same};

/// A promise of attachments, and how a store and the place of its attachments are put to the test.
struct BlobCheck {
    check: Check,
    run: fn(Arc<dyn Store>, Arc<dyn Blobs>) -> Running,
}

/// Puts each promise to the test of a store that keeps attachments itself, and of any place beside a store.
macro_rules! promises {
    ($($check:ident: $promise:literal,)*) => {
        fn blob_checks() -> Vec<BlobCheck> {
            vec![$(BlobCheck {
                check: Check {
                    name: concat!(module_path!(), "::", stringify!($check)),
                    promise: $promise,
                    run: |store| {
                        let blobs = Arc::clone(&store) as Arc<dyn Blobs>;
                        Box::pin($check(store, blobs))
                    },
                },
                run: |store, blobs| Box::pin($check(store, blobs)),
            }),*]
        }
    };
}

pub(super) fn checks() -> Vec<Check> {
    blob_checks().into_iter().map(|check| check.check).collect()
}

/// Runs the checks of attachments on what `fresh` makes: a store that has organizations, and a place where their
/// attachments are kept instead. Answers the first failure, which names its check.
pub async fn run_blobs<F, Fut>(fresh: F) -> Outcome
where
    F: Fn() -> Fut,
    Fut: Future<Output = (Arc<dyn Store>, Arc<dyn Blobs>)>,
{
    for BlobCheck { check: Check { name, promise, .. }, run } in blob_checks() {
        let (store, blobs) = fresh().await;
        let told = |found: Failure| Failure(format!("{name}\n  promise: {promise}\n  found: {found}"));
        run(store, blobs).await.map_err(told)?;
    }
    Ok(())
}

promises! {
    blobs_come_back_in_chunks: "A blob is read back in chunks of CHUNK bytes but the last, whatever pieces it came in.",
    an_empty_blob_has_no_chunks: "Past the end of a blob there is no chunk; an empty blob ends where it begins.",
    the_same_content_twice: "Keeping the same content again is no change.",
    unknown_blobs_are_absent: "What does not exist is `None`, and so is another organization's.",
    a_broken_upload_keeps_nothing: "A blob whose content cannot be read to its end is not kept.",
}

/// Bytes in which no chunk is like another.
fn content(length: usize) -> Bytes {
    (0..length).map(|n| (n % 251) as u8 ^ (n / CHUNK) as u8).collect()
}

fn digest(content: &[u8]) -> Fingerprint {
    named(&sha256_hex(content))
}

/// Pieces, and then perhaps a failure.
struct Pieces {
    pieces: VecDeque<Bytes>,
    breaks: bool,
}

impl Pieces {
    fn of(content: &Bytes, size: usize, breaks: bool) -> Self {
        Self { pieces: content.chunks(size).map(Bytes::copy_from_slice).collect(), breaks }
    }
}

#[async_trait]
impl Chunks for Pieces {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        match self.pieces.pop_front() {
            None if self.breaks => Err(std::io::Error::other("the connection broke")),
            piece => Ok(piece),
        }
    }
}

async fn chunks(blobs: &Arc<dyn Blobs>, org: Id, sha256: &Fingerprint) -> Result<Vec<Bytes>, Failure> {
    let mut chunks = Vec::new();
    while let Some(chunk) = blobs.get_chunk(org, sha256, chunks.len() as u64).await? {
        ensure(!chunk.is_empty(), "a chunk is empty")?;
        chunks.push(chunk);
    }
    Ok(chunks)
}

async fn blobs_come_back_in_chunks(store: Arc<dyn Store>, blobs: Arc<dyn Blobs>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    for length in [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK - 7] {
        for size in [CHUNK / 3, CHUNK, 2 * CHUNK + 5] {
            // Another content for every way to cut it, so that each is stored anew.
            let content: Bytes = [content(length).as_ref(), &size.to_be_bytes()].concat().into();
            let sha256 = digest(&content);
            blobs.put(org.id, &sha256, &mut Pieces::of(&content, size, false)).await?;
            let expected: Vec<_> = content.chunks(CHUNK).map(Bytes::copy_from_slice).collect();
            let found = chunks(&blobs, org.id, &sha256).await?;
            let what = format!("{} bytes in pieces of {size} are not what was kept", content.len());
            ensure(found == expected, &what)?;
        }
    }
    Ok(())
}

async fn an_empty_blob_has_no_chunks(store: Arc<dyn Store>, blobs: Arc<dyn Blobs>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let empty = digest(b"");
    blobs.put(org.id, &empty, &mut Whole::new(Bytes::new())).await?;
    same("the empty blob", blobs.get_chunk(org.id, &empty, 0).await?, None)?;
    let exact = content(CHUNK);
    let sha256 = digest(&exact);
    blobs.put(org.id, &sha256, &mut Whole::new(exact.clone())).await?;
    ensure(blobs.get_chunk(org.id, &sha256, 0).await? == Some(exact), "the only chunk is not what was kept")?;
    for number in [1, 2, i64::MAX.unsigned_abs()] {
        same("a chunk past the end", blobs.get_chunk(org.id, &sha256, number).await?, None)?;
    }
    Ok(())
}

async fn the_same_content_twice(store: Arc<dyn Store>, blobs: Arc<dyn Blobs>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let content = content(CHUNK + 1);
    let sha256 = digest(&content);
    for size in [CHUNK, 1000] {
        blobs.put(org.id, &sha256, &mut Pieces::of(&content, size, false)).await?;
        let found = chunks(&blobs, org.id, &sha256).await?.concat();
        ensure(found == content, "the content is not what was kept")?;
    }
    Ok(())
}

async fn unknown_blobs_are_absent(store: Arc<dyn Store>, blobs: Arc<dyn Blobs>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let content = Bytes::from_static(b"content");
    let sha256 = digest(&content);
    blobs.put(org.id, &sha256, &mut Whole::new(content.clone())).await?;
    same("the other's blob", blobs.get_chunk(other.id, &sha256, 0).await?, None)?;
    same("no blob", blobs.get_chunk(org.id, &fingerprint("ab"), 0).await?, None)?;
    blobs.put(other.id, &sha256, &mut Whole::new(content.clone())).await?;
    same("the blob of both", blobs.get_chunk(other.id, &sha256, 0).await?, Some(content))
}

async fn a_broken_upload_keeps_nothing(store: Arc<dyn Store>, blobs: Arc<dyn Blobs>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let content = content(2 * CHUNK + 1);
    let sha256 = digest(&content);
    let broken = blobs.put(org.id, &sha256, &mut Pieces::of(&content, CHUNK, true)).await;
    ensure(broken.is_err(), "a broken upload was accepted")?;
    same("the first chunk", blobs.get_chunk(org.id, &sha256, 0).await?, None)?;
    blobs.put(org.id, &sha256, &mut Pieces::of(&content, CHUNK, false)).await?;
    ensure(chunks(&blobs, org.id, &sha256).await?.concat() == content, "the content is not what was kept")
}
