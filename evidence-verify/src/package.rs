//! The files of a package, and what is checked of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Read};

use evidence_ledger::cose::verify_receipt;
use evidence_ledger::note::{Signed, SignedNote, VerifierKey};
use evidence_ledger::{Checkpoint, Hash, Salt, TlogProof, payload_hash};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::Report;
use crate::policy::Policy;

/// The format of the manifest that this version knows.
const FORMAT: &str = "evidence-package/1";
/// Maximum size of all files that are held in memory.
const MAX_HELD: u64 = 1 << 30;
/// Maximum number of files.
const MAX_FILES: usize = 1 << 20;
/// The number of digits of an entry's index in a path.
const INDEX_DIGITS: usize = 12;
/// The files that are for reading, and are not proved.
const FOR_READING: [&str; 4] = ["README.txt", "trail-page.pdf", "trail.json", "artifact.json"];
/// The first bytes of gzip (RFC 1952 §2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The prefix of a hashed leaf (RFC 6962 §2.1).
const LEAF: [u8; 1] = [0];

/// The reason why a file is not a package.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// It cannot be read, or is no tar.
    #[error("this is not a tar that can be read: {0}")]
    Tar(#[from] io::Error),
    /// It has something that no package has, such as a link, or a file of another name.
    #[error("this is not an audit package: '{}' is no file of one", .0.escape_debug())]
    Foreign(String),
    /// It has too many files, or too large ones.
    #[error("the package is too large")]
    TooLarge,
    /// It has no manifest.
    #[error("this is not an audit package: it has no manifest.json")]
    NoManifest,
    /// The manifest cannot be read.
    #[error("the manifest of the package cannot be read: {0}")]
    Manifest(#[from] serde_json::Error),
    /// The package is of another version.
    #[error("the package has the format '{0}', which this program does not know")]
    Format(String),
}

#[derive(Debug, Deserialize)]
struct Manifest {
    format: String,
    origin: String,
    subject: String,
    size: u64,
    files: Vec<ManifestFile>,
    problems: Vec<Flaw>,
}

#[derive(Debug, Deserialize)]
struct ManifestFile {
    path: String,
    size: u64,
    sha256: String,
}

#[derive(Debug, Deserialize)]
struct Flaw {
    path: String,
    problem: String,
}

#[derive(Debug, Deserialize)]
struct Entry {
    index: u64,
    leaf: String,
    leaf_hash: Hash,
    payload: String,
    salt: String,
}

/// What the leaf of an entry says.
#[derive(Debug, Deserialize)]
struct Leaf {
    index: u64,
    payload_hash: Hash,
}

/// A file of a package.
struct File {
    size: u64,
    sha256: String,
    /// The content, except of attachments and of what is only for reading.
    content: Vec<u8>,
}

/// A package that was read.
pub(crate) struct Package {
    manifest: Manifest,
    files: BTreeMap<String, File>,
    /// Paths that are there more than once.
    repeated: BTreeSet<String>,
}

/// What a file of a package is, by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A file that is read: the manifest, the checkpoint, the keys, an entry or a proof.
    Read,
    /// A file of which the digest is enough.
    Hashed,
}

/// Returns what the file at this path is; `None` if no package has it. Each file has one path.
fn kind(path: &str) -> Option<Kind> {
    let digits = |text: &str| text.len() == INDEX_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    let digest = |text: &str| text.parse::<Hash>().is_ok();
    let (directory, name) = path.split_once('/').unwrap_or(("", path));
    let suffix =
        |suffixes: &[&str]| suffixes.iter().any(|suffix| name.strip_suffix(suffix).is_some_and(digits));
    match directory {
        "" if ["manifest.json", "checkpoint.txt", "keys.txt"].contains(&name) => Some(Kind::Read),
        "" if FOR_READING.contains(&name) => Some(Kind::Hashed),
        "entries" if suffix(&[".json"]) => Some(Kind::Read),
        "proofs" if suffix(&[".tlog-proof", ".cose", ".former.cose"]) => Some(Kind::Read),
        "attachments" | "texts" if digest(name) => Some(Kind::Hashed),
        _ => None,
    }
}

/// Reads a package.
pub(crate) fn read(package: impl Read) -> Result<Package, Unreadable> {
    let mut package = BufReader::new(package);
    let begin = io::BufRead::fill_buf(&mut package)?;
    if begin.starts_with(&GZIP) { read_tar(MultiGzDecoder::new(package)) } else { read_tar(package) }
}

fn read_tar(package: impl Read) -> Result<Package, Unreadable> {
    let (mut files, mut repeated, mut held) = (BTreeMap::new(), BTreeSet::new(), 0_u64);
    let mut archive = tar::Archive::new(package);
    // Raw, so that no extension renames a file or makes one up from a few bytes.
    for file in archive.entries()?.raw(true) {
        let mut file = file?;
        let path = String::from_utf8_lossy(&file.path_bytes()).into_owned();
        let kind = kind(&path).filter(|_| file.header().entry_type() == tar::EntryType::Regular);
        let Some(kind) = kind else { return Err(Unreadable::Foreign(path)) };
        let size = file.size();
        if kind == Kind::Read {
            held = held.saturating_add(size);
        }
        if held > MAX_HELD || files.len() >= MAX_FILES {
            return Err(Unreadable::TooLarge);
        }
        let (mut hasher, mut content, mut buffer) = (Sha256::new(), Vec::new(), vec![0; 64 << 10]);
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            hasher.update(&buffer[..length]);
            if kind == Kind::Read {
                content.extend_from_slice(&buffer[..length]);
            }
        }
        let sha256 = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if files.insert(path.clone(), File { size, sha256, content }).is_some() {
            repeated.insert(path);
        }
    }
    let manifest = files.remove("manifest.json").ok_or(Unreadable::NoManifest)?;
    let manifest: Manifest = serde_json::from_slice(&manifest.content)?;
    if manifest.format != FORMAT {
        return Err(Unreadable::Format(manifest.format));
    }
    Ok(Package { manifest, files, repeated })
}

/// The checks of a package.
struct Check<'a> {
    package: &'a Package,
    report: Report,
}

impl Package {
    pub(crate) fn check(&self, policy: &Policy) -> Report {
        let mut check = Check { package: self, report: Report::default() };
        check.manifest();
        let own;
        let policy = if policy.keys().next().is_none() {
            own = Policy::of_logs(check.own_keys());
            check.problem(
                "no key was given: the keys of the package show that it fits together, not who made it",
            );
            &own
        } else {
            policy
        };
        let payloads = check.entries(policy);
        check.contents(&payloads);
        let Check { mut report, .. } = check;
        report.remarks = vec![
            format!("the package says of itself that it is about {}", self.manifest.subject),
            format!("{} and manifest.json are for reading: no proof covers them", FOR_READING.join(", ")),
            "it proves what it contains, and not that nothing was left out".to_owned(),
        ];
        report
    }

    fn text(&self, path: &str) -> Option<&str> {
        std::str::from_utf8(&self.files.get(path)?.content).ok()
    }
}

impl Check<'_> {
    fn problem(&mut self, text: impl Into<String>) {
        self.report.problems.push(text.into());
    }

    fn holds(&mut self, text: impl Into<String>) {
        self.report.holding.push(text.into());
    }

    /// Checks that the package has the files of its manifest.
    fn manifest(&mut self) {
        let Package { manifest, files, repeated } = self.package;
        let before = self.report.problems.len();
        for Flaw { path, problem } in &manifest.problems {
            self.problem(format!("{path}: {problem}, says the server"));
        }
        for path in repeated {
            self.problem(format!("{path} is there more than once"));
        }
        let mut listed = BTreeSet::new();
        for ManifestFile { path, size, sha256 } in &manifest.files {
            if !listed.insert(path) {
                self.problem(format!("the manifest lists {path} more than once"));
            }
            match files.get(path) {
                Some(file) if file.size == *size && file.sha256 == *sha256 => {}
                Some(_) => self.problem(format!("{path} was changed: it is not what the manifest lists")),
                None => self.problem(format!("{path} is missing")),
            }
        }
        for path in files.keys().filter(|path| !listed.contains(path)) {
            self.problem(format!("{path} is not in the manifest"));
        }
        if self.report.problems.len() == before {
            self.holds(format!("all {} files are those of the manifest", files.len()));
        }
    }

    /// Returns the keys in the package.
    fn own_keys(&self) -> Vec<VerifierKey> {
        let keys = self.package.text("keys.txt").unwrap_or_default();
        keys.lines().filter_map(|key| key.parse().ok()).collect()
    }

    /// Returns the checkpoint, if the policy accepts it, and who signed it.
    fn checkpoint<'a>(&mut self, policy: &'a Policy) -> Option<(Checkpoint, Vec<Signed<'a>>)> {
        let Manifest { origin, size, .. } = &self.package.manifest;
        let Some(text) = self.package.text("checkpoint.txt") else {
            self.problem("checkpoint.txt is missing or not a text");
            return None;
        };
        let verified = text.parse::<SignedNote>().and_then(|note| {
            let signed = note.verify(policy.keys())?;
            Ok((note.text().parse::<Checkpoint>()?, signed))
        });
        let (checkpoint, signed) = match verified {
            Ok(verified) => verified,
            Err(error) => {
                self.problem(format!("the checkpoint: {error}"));
                return None;
            }
        };
        if let Some(problem) = policy.problem(&checkpoint.origin, &signed) {
            self.problem(format!("the checkpoint: {problem}"));
            return None;
        }
        if (&checkpoint.origin, checkpoint.size) != (origin, *size) {
            self.problem("the checkpoint is not the one that the manifest names");
            return None;
        }
        for Signed { by, at, .. } in &signed {
            let time = at.map(|at| format!(", at {at} seconds since 1970")).unwrap_or_default();
            self.holds(format!("'{}' signed the checkpoint of {} entries{time}", by.name(), checkpoint.size));
        }
        Some((checkpoint, signed))
    }

    /// Checks the entries. Returns the payloads that are proved.
    fn entries(&mut self, policy: &Policy) -> Vec<Value> {
        let verified = self.checkpoint(policy);
        let package = self.package;
        let paths =
            package.files.keys().filter_map(|path| path.strip_prefix("entries/")?.strip_suffix(".json"));
        let names: Vec<&str> = paths.collect();
        if names.is_empty() {
            self.problem("it has no ledger entry, so it proves nothing");
        }
        let Some((checkpoint, signed)) = verified else { return Vec::new() };
        let mut payloads = Vec::new();
        for name in &names {
            match self.entry(name, policy, (&checkpoint, &signed)) {
                Ok(payload) => payloads.push(payload),
                Err(problem) => self.problem(format!("entry {name}: {problem}")),
            }
        }
        let proofs = package.files.keys().filter_map(|path| path.strip_prefix("proofs/"));
        let of_an_entry = |name: &str| names.contains(&name.get(..INDEX_DIGITS).unwrap_or_default());
        let of_none = Vec::from_iter(proofs.filter(|name| !of_an_entry(name)));
        for name in of_none {
            self.problem(format!("proofs/{name} belongs to no entry"));
        }
        if payloads.len() == names.len() && !payloads.is_empty() {
            let text = "entries are in the ledger of that checkpoint, with these payloads";
            self.holds(format!("all {} {text}", names.len()));
        }
        if !payloads.is_empty() {
            self.holds(format!("they record {}", recorded(&payloads)));
        }
        payloads
    }

    /// Checks an entry. Returns its payload.
    fn entry(
        &self,
        name: &str,
        policy: &Policy,
        (checkpoint, signed): (&Checkpoint, &[Signed<'_>]),
    ) -> Result<Value, String> {
        let package = self.package;
        let text = |path: String| package.text(&path).ok_or(format!("{path} is missing or not a text"));
        let entry: Entry = serde_json::from_str(text(format!("entries/{name}.json"))?)
            .map_err(|error| format!("it cannot be read: {error}"))?;
        let leaf: Leaf =
            serde_json::from_str(&entry.leaf).map_err(|error| format!("its leaf cannot be read: {error}"))?;
        if name.parse() != Ok(leaf.index) || entry.index != leaf.index {
            return Err(format!("its leaf is that of entry {}", leaf.index));
        }
        let hash = Hash::of([&LEAF, entry.leaf.as_bytes()].concat());
        if hash != entry.leaf_hash {
            return Err("its leaf was changed: it does not have the hash that is given".to_owned());
        }
        let salt: Salt = entry.salt.parse().map_err(|_| "its salt cannot be read".to_owned())?;
        if payload_hash(&salt, &entry.payload) != leaf.payload_hash {
            return Err("its payload was changed: it does not have the hash that the leaf names".to_owned());
        }
        let proof: TlogProof = text(format!("proofs/{name}.tlog-proof"))?
            .parse()
            .map_err(|error| format!("its proof: {error}"))?;
        let (proved, _) = proof.verify(hash, policy.keys()).map_err(|error| format!("its proof: {error}"))?;
        if proof.index != leaf.index || proved != *checkpoint {
            return Err("its proof is of another entry, or leads to another checkpoint".to_owned());
        }
        let receipts =
            ["cose", "former.cose"].map(|kind| package.files.get(&format!("proofs/{name}.{kind}")));
        let logs = signed.iter().map(|signed| signed.by).filter(|key| key.name() == checkpoint.origin);
        let holds = |(receipt, key): (&File, &VerifierKey)| {
            verify_receipt(&receipt.content, hash, key) == Some((leaf.index, checkpoint.size))
        };
        // While a key is replaced, there is a receipt by each, and a verifier may know one of them.
        let mut pairs = logs.flat_map(|key| receipts.iter().flatten().map(move |receipt| (*receipt, key)));
        if !pairs.any(holds) {
            return Err("its receipt is missing or does not hold".to_owned());
        }
        serde_json::from_str(&entry.payload).map_err(|error| format!("its payload cannot be read: {error}"))
    }

    /// Checks the content that payloads name.
    fn contents(&mut self, payloads: &[Value]) {
        let Package { manifest, files, .. } = self.package;
        let (mut named, mut required) = (BTreeSet::new(), BTreeSet::new());
        payloads.iter().for_each(|payload| digests(payload, &mut named, &mut required));
        let mut sound = 0;
        for (path, file) in files {
            let Some(digest) = path.strip_prefix("attachments/").or_else(|| path.strip_prefix("texts/"))
            else {
                continue;
            };
            if file.sha256 != digest {
                self.problem(format!("{path} was changed: its SHA-256 is {}", file.sha256));
            } else if !named.contains(digest) {
                self.problem(format!("{path}: no entry names it"));
            } else {
                sound += 1;
            }
        }
        for path in required {
            // Otherwise it was named above.
            if !files.contains_key(&path) && !manifest.problems.iter().any(|flaw| flaw.path == path) {
                self.problem(format!("{path} is missing, and an entry names it"));
            }
        }
        if sound > 0 {
            self.holds(format!("{sound} attachments and texts have the digests that entries name"));
        }
    }
}

/// Collects the content that a payload names: digests, and the paths that a package has it at. What the reporter of a record
/// wrote freely counts for nothing.
fn digests(payload: &Value, named: &mut BTreeSet<String>, required: &mut BTreeSet<String>) {
    let digest = |reference: &Value| reference.get("sha256").and_then(Value::as_str).map(str::to_owned);
    for (_, record) in records(payload) {
        let files = record.get("attachments").and_then(Value::as_array).into_iter().flatten();
        let files =
            files.chain(record.get("evidence")).filter_map(digest).map(|digest| ("attachments", digest));
        let texts = ["data", "template"].iter().filter_map(|text| digest(record.get(text)?));
        for (directory, digest) in files.chain(texts.map(|digest| ("texts", digest))) {
            required.insert(format!("{directory}/{digest}"));
            named.insert(digest);
        }
    }
}

/// Returns the kind and the record of a payload.
fn records(payload: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let facts = payload.as_object().into_iter().flatten();
    facts.filter_map(|(kind, fact)| Some((kind.as_str(), fact.get("record")?)))
}

/// Describes what was recorded: flows and trails by name, and how many of the rest.
fn recorded(payloads: &[Value]) -> String {
    let (mut named, mut counts) = (BTreeSet::new(), BTreeMap::<_, usize>::new());
    for (kind, record) in payloads.iter().flat_map(records) {
        let (about, _) = kind.split_once('_').unwrap_or((kind, ""));
        match record.get("name").and_then(Value::as_str) {
            Some(name) if ["flow", "trail"].contains(&about) => {
                named.insert(format!("{about} '{name}'"));
            }
            _ => *counts.entry(about).or_default() += 1,
        }
    }
    let counts = counts.into_iter().map(|(about, count)| format!("{count} of the kind {about}"));
    named.into_iter().chain(counts).collect::<Vec<_>>().join(", ")
}
