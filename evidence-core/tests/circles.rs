//! The files of a crate import each other in no circle. A file and its submodules (`service.rs` and `service/…`) count as
//! one. A `mod.rs` or `lib.rs` does not count: an item that it exports belongs to the file that defines the item.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// The files of `evidence-core` whose circle is still to be cut.
const EXPECTED: [&str; 7] = [
    "crate::attestation_types::compiled",
    "crate::environments::remembered",
    "crate::flows::templates",
    "crate::operation",
    "crate::policies::parsed",
    "crate::service",
    "crate::trails::contents",
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

/// Adds the paths of a `use` declaration's tree.
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

/// Returns the beginnings of a path, from the shortest to the whole.
fn beginnings(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    let ends: Vec<_> = path.match_indices("::").map(|(at, _)| at).chain([path.len()]).collect();
    ends.into_iter().map(|end| &path[..end])
}

/// The files of a crate, and what they import.
#[derive(Default)]
struct Files {
    /// The modules, such as `crate::flows::record`, and whether each counts.
    modules: BTreeMap<String, bool>,
    /// The paths of the exported items, and the paths that they were imported by.
    exports: BTreeMap<String, String>,
    /// The modules with the paths that each imports.
    imports: Vec<(String, String)>,
}

impl Files {
    fn read(root: &Path) -> Self {
        let pattern = |pattern| Regex::new(pattern).unwrap();
        let (import, inline) =
            (pattern(r"(pub(?:\([^)]*\))? )?\buse ([^;]+);"), pattern(r"\b(?:crate|super|self)(?:::\w+)+"));
        let (comment, tests) =
            (pattern(r"(?m)//.*$"), pattern(r"(?ms)^#\[cfg\((all\()?test[^\n]*\nmod tests \{.*"));
        let (mut found, mut files, mut paths_of) = (Vec::new(), Self::default(), Vec::new());
        sources(root, &mut found);
        for path in found {
            let file = path.strip_prefix(root).unwrap().to_str().unwrap();
            if file.contains("tests") || file.ends_with("samples.rs") || !file.ends_with(".rs") {
                continue;
            }
            let name = file.trim_end_matches(".rs");
            let module = name.trim_end_matches("/mod").trim_end_matches("lib").replace('/', "::");
            let module = format!("crate::{module}").trim_end_matches(':').to_owned();
            files.modules.insert(module.clone(), name != "lib" && !name.ends_with("/mod"));
            let text = fs::read_to_string(&path).unwrap();
            let code = comment.replace_all(&text, "");
            let code = tests.replace(&code, "");
            for one in import.captures_iter(&code) {
                let mut tree = Vec::new();
                paths("", &one[2], &mut tree);
                let is_exported = one.get(1).is_some();
                paths_of.extend(tree.into_iter().map(|path| (module.clone(), path, is_exported)));
            }
            let rest = import.replace_all(&code, "");
            let inline = inline.find_iter(&rest).map(|path| path.as_str().to_owned());
            paths_of.extend(inline.map(|path| (module.clone(), path, false)));
        }
        for (module, path, is_exported) in paths_of {
            let Some(path) = files.absolute(&module, &path) else { continue };
            if let (true, Some((_, item))) = (is_exported, path.rsplit_once("::")) {
                files.exports.insert(format!("{module}::{item}"), path.clone());
            }
            files.imports.push((module, path));
        }
        files
    }

    /// Returns the path from the crate's root; `None` for one of another crate.
    fn absolute(&self, module: &str, path: &str) -> Option<String> {
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        let parent = module.rsplit_once("::").map_or("crate", |(parent, _)| parent);
        match first {
            "crate" => Some(path.to_owned()),
            "self" => Some(format!("{module}::{rest}")),
            "super" if rest.starts_with("super::") => self.absolute(parent, rest),
            "super" => Some(format!("{parent}::{rest}")),
            _ => {
                let is_own = self.modules.contains_key(&format!("{module}::{first}"));
                is_own.then(|| format!("{module}::{path}"))
            }
        }
    }

    /// Returns the module that defines the item with this path.
    fn defining(&self, path: &str) -> Option<String> {
        let mut path = path.to_owned();
        // An exported item may have been imported by the path of another export.
        for _ in 0..8 {
            let exported = beginnings(&path).rev().find_map(|item| self.exports.get(item));
            match exported.filter(|other| !path.starts_with(*other)) {
                Some(other) => path.clone_from(other),
                None => break,
            }
        }
        beginnings(&path).rev().find(|module| self.modules.contains_key(*module)).map(str::to_owned)
    }

    /// Returns the file that stands for a module and for those around it; `None` for one that does not count.
    fn file(&self, module: &str) -> Option<String> {
        self.modules.get(module).filter(|counts| **counts)?;
        beginnings(module).find(|outer| self.modules.get(*outer) == Some(&true)).map(str::to_owned)
    }

    /// Returns the imports that are part of a circle, or lead from one to another: two files and a path.
    fn in_circles(&self) -> Vec<(String, String, &str)> {
        let import = |(module, path): &'_ (String, String)| {
            let (from, to) = (self.file(module)?, self.file(&self.defining(path)?)?);
            (from != to).then_some((from, to))
        };
        let imports = self.imports.iter();
        let mut left: Vec<_> =
            imports.filter_map(|one| import(one).map(|(from, to)| (from, to, one.1.as_str()))).collect();
        loop {
            let importing: BTreeSet<_> = left.iter().map(|(from, ..)| from.clone()).collect();
            let imported: BTreeSet<_> = left.iter().map(|(_, to, _)| to.clone()).collect();
            let before = left.len();
            left.retain(|(from, to, _)| imported.contains(from) && importing.contains(to));
            if left.len() == before {
                return left;
            }
        }
    }
}

#[test]
fn files_import_each_other_in_no_circle() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates =
        fs::read_dir(&workspace).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // The circle of the shared SQL store is still to be cut.
    let crates = crates.filter(|name| name.starts_with("evidence-") && name != "evidence-store-sql");
    for name in crates {
        let files = Files::read(&workspace.join(&name).join("src"));
        let circles = files.in_circles();
        let left: BTreeSet<&str> = circles.iter().map(|(from, ..)| from.as_str()).collect();
        let expected: &[&str] = if name == "evidence-core" { &EXPECTED } else { &[] };
        let lines = circles.iter().map(|(from, to, path)| format!("{from} imports {path} of {to}\n"));
        assert_eq!(left, expected.iter().copied().collect(), "{name}:\n{}", lines.collect::<String>());
    }
}
