//! The keys of ledgers, and the place with what was signed last.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tempfile::NamedTempFile;

use crate::id::{Id, Random, SystemRandom};
use crate::ledger::Checkpoint;
use crate::ledger::note::{NoteError, NoteSigner, SignedNote};

/// The file with the name of the ledgers, and below it those that were used before.
const NAME: &str = "name";
/// The file with the key, if it has no other place: PKCS#8 in PEM (RFC 5958, RFC 7468).
const KEY: &str = "key.pem";
/// The file with the key that was used before. While it is there, checkpoints are signed with both.
const FORMER_KEY: &str = "former-key.pem";
/// The directory with the last signed checkpoint of each ledger, by the id of its organization.
const SIGNED: &str = "signed";

/// The keys of a service's ledgers, and the place outside of the store that has the last checkpoint that was signed for
/// each.
///
/// The ledger of an organization is named `<name>/<organization's id>`, and has a key of its own, which is derived from the
/// service's key and from that name. A policy may list no key twice
/// ([C2SP tlog-policy](https://c2sp.org/tlog-policy)), so two organizations have two keys.
pub struct LedgerKeys {
    name: String,
    /// The key, and the former one.
    seeds: Vec<[u8; 32]>,
    signed: Box<dyn LastSigned>,
}

/// The place outside of the store with the last checkpoint that was signed for each ledger. If the store and this place
/// were lost together, a service could sign what contradicts an earlier checkpoint.
pub trait LastSigned: Send + Sync + 'static {
    /// Returns the note that was signed last for this organization. Called on a thread that may block.
    ///
    /// # Errors
    /// It cannot be read.
    fn last_signed(&self, org: Id) -> io::Result<Option<String>>;

    /// Keeps a note durably in place of an older one of the same log. Other requests may have kept a later one meanwhile,
    /// which stays ([`is_later`]). Called on a thread that may block.
    ///
    /// # Errors
    /// It cannot be written.
    fn keep(&self, org: Id, note: &str) -> io::Result<()>;
}

/// Returns whether both signed notes are checkpoints of one log, and `last` has more entries than `new`.
pub fn is_later(last: &str, new: &str) -> bool {
    checkpoint(last)
        .zip(checkpoint(new))
        .is_some_and(|(last, new)| last.origin == new.origin && last.size > new.size)
}

impl std::fmt::Debug for LedgerKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerKeys").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The reason why the keys cannot be used, as a sentence with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerKeysError {
    /// A file or directory cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file should have a key, and does not.
    #[error("{} has no Ed25519 key in PKCS#8 (PEM): {reason}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// The key is gone, but checkpoints were signed with it.
    #[error(
        "{} is gone, and checkpoints were signed with it: restore it. If it is lost, rename the ledgers with \
         'evidence-server ledger new-origin'", path.display()
    )]
    LostKey {
        /// The file.
        path: PathBuf,
    },
    /// The name cannot be the name of a ledger.
    #[error("the name of the ledgers: {0}")]
    Name(#[from] NoteError),
    /// The name was used before.
    #[error("the ledgers were named '{0}' before: choose another name")]
    UsedName(String),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LedgerKeysError {
    |source| LedgerKeysError::File { path: path.to_owned(), source }
}

/// Creates a directory and those above it, for their owner only.
fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn read_if_exists(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the names in a directory durable. Not every system can open a directory.
fn sync_names(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// Returns a new file with this content, which only its owner can read, under a name that no other process uses.
fn written(directory: &Path, content: &str) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(content.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Replaces a file durably: it has the old or the new content, whatever happens.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    written(directory, content)?.persist(path)?;
    sync_names(directory)
}

fn read_key(path: &Path) -> Result<Option<[u8; 32]>, LedgerKeysError> {
    let Some(pem) = read_if_exists(path).map_err(at(path))? else { return Ok(None) };
    let no_key = |error: ed25519_dalek::pkcs8::Error| LedgerKeysError::NoKey {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    SigningKey::from_pkcs8_pem(&pem).map(|key| Some(key.to_bytes())).map_err(no_key)
}

/// Writes a new key, which only its owner may read. If another process has just written one, returns that.
fn create_key(path: &Path, random: &dyn Random) -> Result<[u8; 32], LedgerKeysError> {
    let mut seed = [0; 32];
    random.fill(&mut seed);
    let pem = SigningKey::from_bytes(&seed).to_pkcs8_pem(LineEnding::LF);
    let no_key = |error: ed25519_dalek::pkcs8::Error| LedgerKeysError::NoKey {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let pem = pem.map_err(no_key)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let write = || match written(directory, &pem)?.persist_noclobber(path) {
        Ok(_) => sync_names(directory),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.error),
    };
    write().map_err(at(path))?;
    Ok(read_key(path)?.unwrap_or(seed))
}

impl LedgerKeys {
    /// Creates the keys from the seed of an Ed25519 key (RFC 8032 §5.1.5), for a host that keeps it itself.
    ///
    /// # Errors
    /// [`LedgerKeysError::Name`] if no log can have this name.
    pub fn new(name: &str, seed: [u8; 32], signed: impl LastSigned) -> Result<Self, LedgerKeysError> {
        NoteSigner::new(name, &seed)?;
        Ok(Self { name: name.to_owned(), seeds: vec![seed], signed: Box::new(signed) })
    }

    /// Opens a directory with the key and with what was signed last. In a new one, names the ledgers `name` and creates a
    /// key, unless `key` is the path of one elsewhere. Later the name in the directory holds.
    ///
    /// | file | content |
    /// |---|---|
    /// | `name` | the name of the ledgers; below it their former names |
    /// | `key.pem` | an Ed25519 key in PKCS#8, readable by its owner only |
    /// | `former-key.pem` | the key that was used before: checkpoints are signed with both |
    /// | `signed/<organization's id>` | the last signed checkpoint of a ledger |
    ///
    /// To replace the key, rename `key.pem` to `former-key.pem` and start the service. Remove `former-key.pem` when everybody
    /// who verifies has the new key.
    ///
    /// # Errors
    /// [`LedgerKeysError`] if a file cannot be read or written, or if the key is lost.
    pub fn open(directory: &Path, name: &str, key: Option<&Path>) -> Result<Self, LedgerKeysError> {
        let signed = directory.join(SIGNED);
        create_directory(&signed).map_err(at(&signed))?;
        let name_file = directory.join(NAME);
        let names = read_if_exists(&name_file).map_err(at(&name_file))?;
        let is_new = names.is_none();
        if is_new {
            NoteSigner::new(name, &[0; 32])?;
        }
        let names = names.unwrap_or_else(|| name.to_owned());
        let name = names.lines().next().unwrap_or_default().to_owned();
        NoteSigner::new(&name, &[0; 32])?;
        let former = read_key(&directory.join(FORMER_KEY))?;
        let own = directory.join(KEY);
        let path = key.unwrap_or(&own);
        let seed = match read_key(path)? {
            Some(seed) => seed,
            None if key.is_none() && (is_new || former.is_some()) => create_key(path, &SystemRandom)?,
            None if is_new => {
                let source = io::ErrorKind::NotFound.into();
                return Err(LedgerKeysError::File { path: path.to_owned(), source });
            }
            None => return Err(LedgerKeysError::LostKey { path: path.to_owned() }),
        };
        if is_new {
            replace(&name_file, &format!("{name}\n")).map_err(at(&name_file))?;
        }
        let seeds = [Some(seed), former].into_iter().flatten().collect();
        Ok(Self { name, seeds, signed: Box::new(SignedFiles { directory: signed }) })
    }

    /// Returns whether the directory was in use: [`Self::open`] would create no key in it.
    pub fn exist_in(directory: &Path) -> bool {
        directory.join(NAME).exists()
    }

    /// Returns what a directory has as signed last.
    pub fn signed_in(directory: &Path) -> impl LastSigned {
        SignedFiles { directory: directory.join(SIGNED) }
    }

    /// Names the ledgers anew: from now on, each begins again as a log of the new name, which need not extend what was
    /// signed before. That is put aside. Creates a key if it was lost, unless `key` is the path of one elsewhere. First call
    /// [`Administration::end_logs`](crate::administration::Administration::end_logs). May be repeated.
    ///
    /// # Errors
    /// [`LedgerKeysError`] if the name was used before, or if a file cannot be read or written.
    pub fn rename(directory: &Path, name: &str, key: Option<&Path>) -> Result<(), LedgerKeysError> {
        NoteSigner::new(name, &[0; 32])?;
        let signed = directory.join(SIGNED);
        create_directory(&signed).map_err(at(&signed))?;
        let path = directory.join(NAME);
        let names = read_if_exists(&path).map_err(at(&path))?.unwrap_or_default();
        match names.lines().position(|used| used == name) {
            Some(0) => {}
            Some(_) => return Err(LedgerKeysError::UsedName(name.to_owned())),
            None => {
                let own = directory.join(KEY);
                let path = key.unwrap_or(&own);
                if read_key(path)?.is_none() {
                    match key {
                        Some(_) => return Err(LedgerKeysError::LostKey { path: path.to_owned() }),
                        None => drop(create_key(path, &SystemRandom)?),
                    }
                }
            }
        }
        if names.lines().next() != Some(name) {
            replace(&path, &format!("{name}\n{names}")).map_err(at(&path))?;
        }
        // From here on, what is still in the directory is of another name, and nothing is signed until it is gone.
        put_aside(directory, &signed, name).map_err(at(&signed))
    }

    /// Returns the name of the ledgers.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of an organization's ledger: the origin of its checkpoints.
    pub fn origin(&self, org: Id) -> String {
        format!("{}/{org}", self.name)
    }

    /// Returns the signers of an organization's ledger: with the key, and with the former one.
    ///
    /// # Errors
    /// [`NoteError::KeyName`] if the name of the ledger cannot be the name of a key.
    pub fn signers(&self, org: Id) -> Result<Vec<NoteSigner>, NoteError> {
        let origin = self.origin(org);
        self.seeds.iter().map(|seed| NoteSigner::new(&origin, &derived(seed, &origin))).collect()
    }

    /// Returns the place of what was signed last.
    pub(crate) fn signed(&self) -> &dyn LastSigned {
        &*self.signed
    }
}

/// Moves what was signed for logs of other names to a directory of its own.
fn put_aside(directory: &Path, signed: &Path, name: &str) -> io::Result<()> {
    let mut others = Vec::new();
    for file in fs::read_dir(signed)? {
        let file = file?;
        if file.file_name() == LOCK {
            continue;
        }
        let note = fs::read_to_string(file.path()).unwrap_or_default();
        let is_own = checkpoint(&note)
            .is_some_and(|last| last.origin.strip_prefix(name).is_some_and(|id| id.starts_with('/')));
        if !is_own {
            others.push(file);
        }
    }
    if others.is_empty() {
        return Ok(());
    }
    let number = (1_u32..).find(|number| !directory.join(format!("{SIGNED}-{number}")).exists());
    let former = directory.join(format!("{SIGNED}-{}", number.unwrap_or_default()));
    create_directory(&former)?;
    others.iter().try_for_each(|file| fs::rename(file.path(), former.join(file.file_name())))?;
    sync_names(&former)?;
    sync_names(signed)
}

/// A directory with a file for each organization, which several servers may share.
struct SignedFiles {
    directory: PathBuf,
}

/// The file that is locked while a note is compared with the last one and replaces it.
const LOCK: &str = ".lock";

impl LastSigned for SignedFiles {
    fn last_signed(&self, org: Id) -> io::Result<Option<String>> {
        read_if_exists(&self.directory.join(org.to_string()))
    }

    fn keep(&self, org: Id, note: &str) -> io::Result<()> {
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).open(self.directory.join(LOCK))?;
        lock.lock()?;
        match self.last_signed(org)? {
            Some(last) if last == note || is_later(&last, note) => Ok(()),
            _ => replace(&self.directory.join(org.to_string()), note),
        }
    }
}

/// Returns the checkpoint of a signed note, whose signatures are not verified.
pub(crate) fn checkpoint(note: &str) -> Option<Checkpoint> {
    note.parse::<SignedNote>().ok()?.text().parse().ok()
}

/// Derives the seed of a ledger's key: HMAC-SHA256 (RFC 2104) of its name.
fn derived(seed: &[u8; 32], origin: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(seed).expect("HMAC accepts keys of any length");
    mac.update(b"the ledger ");
    mac.update(origin.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::id;
    use crate::ledger::Hash;

    const NAME: &str = "evidence.example.com";

    fn open(directory: &Path) -> Result<LedgerKeys, LedgerKeysError> {
        LedgerKeys::open(directory, NAME, None)
    }

    fn verifiers(keys: &LedgerKeys, org: u64) -> Vec<String> {
        keys.signers(id(org)).unwrap().iter().map(|signer| signer.verifier().to_string()).collect()
    }

    /// Returns a signed checkpoint of this many entries.
    fn note(keys: &LedgerKeys, org: u64, size: u64) -> String {
        let checkpoint = Checkpoint { origin: keys.origin(id(org)), size, root: Hash::of("root") };
        checkpoint.sign(&keys.signers(id(org)).unwrap())
    }

    #[test]
    fn a_directory_keeps_its_name_and_key() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("a/ledger");
        let first = open(&directory).unwrap();
        let again = LedgerKeys::open(&directory, "another.example.com", None).unwrap();
        assert_eq!((again.name(), verifiers(&again, 1)), (NAME, verifiers(&first, 1)));
        assert_ne!(verifiers(&first, 1), verifiers(&first, 2), "organizations have keys of their own");
        assert!(verifiers(&first, 1)[0].starts_with(&format!("{NAME}/{}+", id(1))));
        #[cfg(unix)]
        for (path, mode) in [("key.pem", 0o100_600), ("", 0o040_700)] {
            let metadata = fs::metadata(directory.join(path)).unwrap();
            assert_eq!(std::os::unix::fs::MetadataExt::mode(&metadata), mode, "{path}");
        }
        let other = tempfile::tempdir().unwrap();
        assert_ne!(verifiers(&open(other.path()).unwrap(), 1), verifiers(&first, 1));
        let elsewhere = LedgerKeys::open(other.path(), NAME, Some(&directory.join("key.pem"))).unwrap();
        assert_eq!(verifiers(&elsewhere, 1), verifiers(&first, 1));
    }

    #[test]
    fn a_lost_or_unreadable_key_is_told_and_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path()).unwrap();
        let key = directory.path().join("key.pem");
        let pem = fs::read_to_string(&key).unwrap();
        for damaged in [String::new(), pem[..40].to_owned(), pem.replace("PRIVATE", "PUBLIC")] {
            fs::write(&key, &damaged).unwrap();
            assert!(matches!(open(directory.path()), Err(LedgerKeysError::NoKey { .. })), "{damaged}");
            assert_eq!(fs::read_to_string(&key).unwrap(), damaged);
        }
        fs::remove_file(&key).unwrap();
        assert!(matches!(open(directory.path()), Err(LedgerKeysError::LostKey { .. })));
        assert!(!key.exists());
        let missing = directory.path().join("none.pem");
        let given = LedgerKeys::open(directory.path(), NAME, Some(&missing));
        assert!(matches!(given, Err(LedgerKeysError::LostKey { .. })) && !missing.exists());
        let new = directory.path().join("new");
        let given = LedgerKeys::open(&new, NAME, Some(&missing));
        assert!(matches!(given, Err(LedgerKeysError::File { .. })) && !LedgerKeys::exist_in(&new));
        // The ledgers begin again under another name.
        LedgerKeys::rename(directory.path(), "evidence.example.com/2", None).unwrap();
        assert_eq!(open(directory.path()).unwrap().name(), "evidence.example.com/2");
    }

    #[test]
    fn while_a_key_is_replaced_both_sign() {
        let directory = tempfile::tempdir().unwrap();
        let former = verifiers(&open(directory.path()).unwrap(), 1);
        fs::rename(directory.path().join(KEY), directory.path().join(FORMER_KEY)).unwrap();
        let both = verifiers(&open(directory.path()).unwrap(), 1);
        assert_eq!((both.len(), &both[1]), (2, &former[0]));
        fs::remove_file(directory.path().join(FORMER_KEY)).unwrap();
        assert_eq!(verifiers(&open(directory.path()).unwrap(), 1), both[..1]);
    }

    #[test]
    fn a_later_checkpoint_stays() {
        let directory = tempfile::tempdir().unwrap();
        let keys = open(directory.path()).unwrap();
        let signed = keys.signed();
        assert_eq!(signed.last_signed(id(1)).unwrap(), None);
        for (size, kept) in [(5, 5), (7, 7), (6, 7), (7, 7), (8, 8)] {
            signed.keep(id(1), &note(&keys, 1, size)).unwrap();
            assert_eq!(signed.last_signed(id(1)).unwrap(), Some(note(&keys, 1, kept)), "{size}");
        }
        assert_eq!(signed.last_signed(id(2)).unwrap(), None);
        // A log of another name begins with nothing.
        for _ in 0..2 {
            LedgerKeys::rename(directory.path(), "evidence.example.com/2", None).unwrap();
            let renamed = open(directory.path()).unwrap();
            assert_eq!(renamed.signed().last_signed(id(1)).unwrap(), None);
        }
        let former = directory.path().join("signed-1").join(id(1).to_string());
        assert_eq!(fs::read_to_string(former).unwrap(), note(&keys, 1, 8));
        let renamed = open(directory.path()).unwrap();
        renamed.signed().keep(id(1), &note(&renamed, 1, 2)).unwrap();
        LedgerKeys::rename(directory.path(), "evidence.example.com/2", None).unwrap();
        assert_eq!(renamed.signed().last_signed(id(1)).unwrap(), Some(note(&renamed, 1, 2)), "it is its own");
    }

    #[test]
    fn servers_that_share_a_directory_never_go_back() {
        let directory = tempfile::tempdir().unwrap();
        let keys = open(directory.path()).unwrap();
        std::thread::scope(|threads| {
            for server in 0..4 {
                let (directory, keys) = (directory.path(), &keys);
                threads.spawn(move || {
                    let signed = LedgerKeys::signed_in(directory);
                    for size in (1..40).filter(|size| size % 4 == server) {
                        signed.keep(id(1), &note(keys, 1, size)).unwrap();
                        let last = checkpoint(&signed.last_signed(id(1)).unwrap().unwrap()).unwrap();
                        assert!(last.size >= size);
                    }
                });
            }
        });
        assert_eq!(keys.signed().last_signed(id(1)).unwrap(), Some(note(&keys, 1, 39)));
    }

    #[test]
    fn names_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["", "a b", "a+b", "a\nb"] {
            let opened = LedgerKeys::open(directory.path(), name, None);
            assert!(matches!(opened, Err(LedgerKeysError::Name(_))), "{name:?}: {opened:?}");
        }
        open(directory.path()).unwrap();
        LedgerKeys::rename(directory.path(), "b", None).unwrap();
        LedgerKeys::rename(directory.path(), "b", None).unwrap();
        assert!(matches!(
            LedgerKeys::rename(directory.path(), NAME, None),
            Err(LedgerKeysError::UsedName(_))
        ));
        assert!(matches!(LedgerKeys::rename(directory.path(), "c d", None), Err(LedgerKeysError::Name(_))));
        assert!(LedgerKeys::new("a b", [1; 32], SignedFiles { directory: PathBuf::new() }).is_err());
    }
}
