//! The layers of `ARCHITECTURE.md`: a file imports from its own layer and from those below. Paths name the file that
//! defines a thing and not the `mod.rs` that exports it, which stands in the highest layer.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// The files of each layer, from the lowest: a path, all of a directory (`json/`), or all of a name (`*/record.rs`) but
/// for those that have a line of their own.
const LAYERS: [&str; 7] = [
    // Values
    "auth/actor.rs auth/credentials.rs bounded.rs bounded/ cache.rs decode.rs decode/recorded.rs digest.rs fact/names.rs fact/payload.rs git.rs id.rs \
     json.rs json/ ledger/ limits.rs links.rs lock.rs name.rs store/batch.rs store/entry.rs store/error.rs time.rs",
    // Records and rules
    "*/record.rs attestations/custom.rs attestations/details.rs attestations/jira.rs attestations/pull_requests.rs attestations/sarif.rs attestations/sbom.rs attestations/snyk.rs \
     attestations/sonar.rs environments/observed.rs pdf/ rules/ snapshots/bound.rs snapshots/expression.rs snapshots/key.rs",
    // Facts and errors
    "compute.rs compute/ directory.rs error.rs fact.rs index.rs page.rs",
    // What stores and senders promise
    "*/store.rs blobs.rs feed.rs notifications/sender.rs store/mod.rs",
    // The service
    "attestation_types/compiled.rs admission.rs auth/access.rs budget.rs coalesced.rs environments/evaluation_cache.rs environments/evaluation_cache/ environments/last_evaluation.rs flows/parsed.rs flows/templates.rs operation.rs operation/ policies/parsed.rs queue.rs \
     service.rs service/ shares.rs spool.rs sweep/pending.rs sweep/place.rs texts/draft.rs trails/contents.rs trails/reported.rs turns.rs",
    // Operations and their answers
    "*/operations.rs */view.rs actions/targets.rs allowlists/ended.rs notifications/delivering.rs notifications/events.rs notifications/job.rs notifications/lookup.rs notifications/payload.rs \
     notifications/planning.rs notifications/replay.rs notifications/watched.rs artifacts/search.rs artifacts/shown.rs attestations/archive.rs attestations/claims.rs attestations/claims/ \
     attestations/by_commit.rs attestations/evidence.rs attestations/listed.rs attestations/lists.rs attestations/system_types.rs background/runner.rs controls/coverage.rs \
     controls/decisions.rs environments/asserts.rs environments/attached.rs environments/audit_log.rs environments/evaluation.rs environments/evaluation/ environments/events.rs environments/lifecycle.rs environments/reevaluation.rs environments/reports.rs environments/reports/ orgs/audit_log.rs policies/reevaluate.rs repos/live.rs schemas.rs snapshots/applied.rs snapshots/combined.rs snapshots/diff.rs snapshots/sources.rs snapshots/timeline.rs sweep/job.rs \
     trails/draft.rs trails/evaluation.rs trails/events.rs trails/pdf.rs trails/pdf/",
    // What is made of all that
    "*/mod.rs administration.rs api.rs conformance/ environments/replay.rs lib.rs memory.rs memory/ seed.rs strategies/ transfer/",
];

/// The layer of a file, from 1.
fn layer(file: &str) -> Option<usize> {
    let of = |fits: &dyn Fn(&str) -> bool| LAYERS.iter().position(|layer| layer.split(' ').any(fits));
    let own = of(&|path| file == path || path.ends_with('/') && file.starts_with(path));
    own.or_else(|| of(&|path| path.strip_prefix('*').is_some_and(|name| file.ends_with(name))))
        .map(|at| at + 1)
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

/// The paths of a `use` declaration's tree, or of one path.
fn paths(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        found.push(format!("{prefix}{}", tree.split(" as ").next().unwrap_or(tree).trim()));
        return;
    };
    let (mut depth, mut begin) = (0, 0);
    for (at, letter) in rest.char_indices() {
        match letter {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                let item = rest[begin..at].trim();
                if !item.is_empty() {
                    paths(&format!("{prefix}{}", head.trim()), item, found);
                }
                begin = at + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// The file that a path of the crate leads to: the longest part of it that names one.
fn target(root: &Path, path: &str) -> String {
    let mut parts: Vec<&str> = path.split("::").skip(1).collect();
    while !parts.is_empty() {
        let module = parts.join("/");
        let file = [format!("{module}.rs"), format!("{module}/mod.rs")]
            .into_iter()
            .find(|file| root.join(file).is_file());
        if let Some(file) = file {
            return file;
        }
        parts.pop();
    }
    "lib.rs".to_owned()
}

#[test]
fn a_file_imports_from_its_own_layer_and_those_below() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut wrong) = (Vec::new(), Vec::new());
    sources(&root, &mut files);
    let (import, inline) =
        (Regex::new(r"\buse ([^;]+);").unwrap(), Regex::new(r"\b(?:crate|super)(?:::\w+)+").unwrap());
    let (tests, comment) = (
        Regex::new(r"(?ms)^#\[cfg\((all\()?test[^\n]*\nmod tests \{.*").unwrap(),
        Regex::new(r"(?m)//.*$").unwrap(),
    );
    for path in files {
        let file = path.strip_prefix(&root).unwrap().to_str().unwrap();
        if file.contains("tests") || file.ends_with("samples.rs") {
            continue;
        }
        let Some(own) = layer(file) else {
            wrong.push(format!("{file} is in no layer"));
            continue;
        };
        let text = fs::read_to_string(&path).unwrap();
        let code = comment.replace_all(&text, "");
        let code = tests.replace(&code, "");
        let mut imports = Vec::new();
        import.captures_iter(&code).for_each(|found| paths("", &found[1], &mut imports));
        imports
            .extend(inline.find_iter(&import.replace_all(&code, "")).map(|found| found.as_str().to_owned()));
        let parent =
            file.trim_end_matches(".rs").trim_end_matches("/mod").rsplit_once('/').map_or("", |(at, _)| at);
        for name in imports {
            let path = name.replacen("super", &format!("crate::{}", parent.replace('/', "::")), 1);
            let file_of = target(&root, &path);
            let other = layer(&file_of).unwrap_or(usize::MAX);
            if path.starts_with("crate::") && other > own {
                wrong.push(format!("{file} (layer {own}) imports {name} of {file_of} (layer {other})"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
