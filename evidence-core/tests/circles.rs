//! The files of a crate import each other in no circle, except a file and its own submodules (`service.rs` and
//! `service/…`). A `mod.rs` or `lib.rs` does not count: an item that it exports belongs to the file that defines the item.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

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
    /// Reads the files below a directory.
    fn read(root: &Path) -> Self {
        let mut found = Vec::new();
        sources(root, &mut found);
        let texts = found.into_iter().map(|path| {
            let file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            (file, fs::read_to_string(path).unwrap())
        });
        Self::of(texts)
    }

    /// Reads these files, each by its path below `src`.
    fn of(texts: impl IntoIterator<Item = (String, String)>) -> Self {
        let pattern = |pattern| Regex::new(pattern).unwrap();
        let (import, inline) =
            (pattern(r"(pub(?:\([^)]*\))? )?\buse ([^;]+);"), pattern(r"\b(?:crate|super|self)(?:::\w+)+"));
        let (comment, tests) =
            (pattern(r"(?m)//.*$"), pattern(r"(?ms)^#\[cfg\((all\()?test[^\n]*\nmod tests \{.*"));
        let (mut files, mut paths_of) = (Self::default(), Vec::new());
        for (file, text) in texts {
            if file.contains("tests") || file.ends_with("samples.rs") || !file.ends_with(".rs") {
                continue;
            }
            let name = file.trim_end_matches(".rs");
            let module = name.trim_end_matches("/mod").trim_end_matches("lib").replace('/', "::");
            let module = format!("crate::{module}").trim_end_matches(':').to_owned();
            files.modules.insert(module.clone(), name != "lib" && !name.ends_with("/mod"));
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
    fn defining(&self, path: &str) -> Option<&str> {
        let mut path = path.to_owned();
        // An exported item may have been imported by the path of another export.
        for _ in 0..8 {
            let exported = beginnings(&path).rev().find_map(|item| self.exports.get(item));
            match exported.filter(|other| !path.starts_with(*other)) {
                Some(other) => path.clone_from(other),
                None => break,
            }
        }
        beginnings(&path)
            .rev()
            .find_map(|module| self.modules.get_key_value(module))
            .map(|(module, _)| module.as_str())
    }

    /// Returns the outermost file that the module of this file is in.
    fn outermost<'m>(&self, module: &'m str) -> &'m str {
        beginnings(module).find(|outer| self.modules.get(*outer) == Some(&true)).unwrap_or(module)
    }

    /// Returns the imports that are part of a circle: both files, without their submodules, and the path.
    fn in_circles(&self) -> BTreeSet<(&str, &str, &str)> {
        let counts = |module: &str| self.modules.get(module) == Some(&true);
        let mut imported = BTreeMap::<&str, BTreeMap<&str, &str>>::new();
        for (module, path) in self.imports.iter().filter(|(module, _)| counts(module)) {
            if let Some(other) = self.defining(path).filter(|other| counts(other) && other != module) {
                imported.entry(module).or_default().insert(other, path);
            }
        }
        let leads = |from: &str, to: &str| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(file) = next.pop() {
                if seen.insert(file) {
                    next.extend(imported.get(file).into_iter().flat_map(BTreeMap::keys));
                }
            }
            seen.contains(to)
        };
        let imports =
            imported.iter().flat_map(|(from, to)| to.iter().map(move |(to, path)| (*from, *to, *path)));
        let imports = imports.filter(|(from, to, _)| self.outermost(from) != self.outermost(to));
        let in_circle = imports.filter(|(from, to, _)| leads(to, from));
        in_circle.map(|(from, to, path)| (self.outermost(from), self.outermost(to), path)).collect()
    }
}

#[test]
fn files_import_each_other_in_no_circle() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates =
        fs::read_dir(&workspace).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // In the shared SQL store, the driver takes types of the modules that use it.
    let crates = crates.filter(|name| name.starts_with("evidence-") && name != "evidence-store-sql");
    for name in crates {
        let files = Files::read(&workspace.join(&name).join("src"));
        let circles = files.in_circles();
        let lines = circles.iter().map(|(from, to, path)| format!("{from} imports {path} of {to}\n"));
        assert!(circles.is_empty(), "{name}:\n{}", lines.collect::<String>());
    }
}

#[test]
fn a_circle_is_found() {
    let text = |file: &str, text: &str| (file.to_owned(), text.to_owned());
    let lib = text("lib.rs", "pub mod a;\npub mod b;\npub mod c;\n");
    let export = text("b/mod.rs", "mod deep;\npub use deep::{B, Other};\n");
    let deep = text("b/deep.rs", "use crate::c::{self, C};\npub struct B;\npub struct Other;\n");
    let c = text("c.rs", "use crate::a::A;\nmod inner;\n");
    let inner = text("c/inner.rs", "use super::C;\n");
    let a = |import: &str| text("a.rs", import);
    let files = |a| Files::of([lib.clone(), export.clone(), deep.clone(), c.clone(), inner.clone(), a]);
    assert_eq!(
        files(a("// use crate::b::B;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"))
            .in_circles()
            .len(),
        0
    );
    for import in ["use crate::b::B;\n", "fn f() { crate::b::Other; }\n"] {
        let found = files(a(import));
        let circle: BTreeSet<_> = found.in_circles().into_iter().map(|(from, to, _)| (from, to)).collect();
        let expected =
            [("crate::a", "crate::b::deep"), ("crate::b::deep", "crate::c"), ("crate::c", "crate::a")];
        assert_eq!(circle, BTreeSet::from(expected), "{import}");
    }
}
