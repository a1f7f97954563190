//! Who may import whom: the layer table, and the walls around third-party crates, as data.

use super::rules::{Finding, word_ends, word_starts};
use super::source::{Source, line_of};

/// One top-level module: its layer, and which modules of its own layer it may name.
/// A module may name every module of a lower layer, and no other.
struct Module {
    name: &'static str,
    layer: u8,
    sideways: &'static [&'static str],
}

const fn module(name: &'static str, layer: u8, sideways: &'static [&'static str]) -> Module {
    Module { name, layer, sideways }
}

const MODULES: &[Module] = &[
    module("base", 0, &[]),
    module("sql", 1, &[]),
    module("fence", 1, &["sql"]),
    module("ledger", 1, &[]),
    module("moves", 1, &["fence"]),
    module("checker", 1, &["sql"]),
    // `Persisted` is the key to a gate change; `LoadedFence` and `Row` are the same fact as read.
    module("gate", 2, &["telemetry", "store::Persisted", "store::LoadedFence", "store::Row"]),
    module("store", 2, &["telemetry", "tls"]),
    module("engine", 2, &["telemetry", "tls"]),
    module("tls", 2, &["telemetry"]),
    module("telemetry", 2, &[]),
    module("control", 3, &[]),
    module("wire", 4, &[]),
    module("admin", 4, &[]),
    module("config", 5, &[]),
    module("app", 6, &["config"]),
    module("cli", 7, &["app", "config"]),
];

/// Nobody but these imports `config`.
const MAY_IMPORT_CONFIG: &[&str] = &["app", "cli"];

/// Sub-modules that never name each other.
const STRANGERS: &[(&str, &str)] =
    &[("src/wire/pg/", "wire::mysql"), ("src/wire/mysql/", "wire::pg")];

/// Third-party crates and the only places that may name them.
const WALLS: &[(&str, &[&str])] = &[
    ("sqlparser", &["src/sql/"]),
    ("pgwire", &["src/wire/pg/", "src/admin/console/pg.rs"]),
    ("opensrv_mysql", &["src/admin/console/mysql.rs"]),
    ("rustls", &["src/tls/"]),
    ("tokio_rustls", &["src/tls/"]),
    ("webpki_roots", &["src/tls/"]),
    ("tokio_postgres", &["src/engine/", "src/store/", "src/cli/demo/", "src/cli/demo.rs"]),
    ("deadpool_postgres", &["src/engine/", "src/store/"]),
    ("mysql_async", &["src/engine/", "src/store/", "src/cli/demo/"]),
    ("rusqlite", &["src/store/"]),
    ("axum", &["src/admin/"]),
    ("clap", &["src/cli/", "src/main.rs"]),
    ("toml", &["src/config/"]),
];

/// The top-level module a file belongs to; `None` for lib.rs, main.rs and files outside `src`.
fn module_of(path: &str) -> Option<&'static Module> {
    let rest = path.strip_prefix("src/")?;
    let top = rest.split('/').next()?.trim_end_matches(".rs");
    MODULES.iter().find(|m| m.name == top)
}

/// A lower layer never names a higher one, sideways only as the table says.
pub fn direction(source: &Source, out: &mut Vec<Finding>) {
    if source.path == "src/main.rs" {
        for (line, name) in named(source, &["fencewire"]) {
            if !name.starts_with("cli") {
                let why = format!("main.rs names `{name}`; it may name only `cli`");
                out.push(Finding::new(source, line, "import direction", why));
            }
        }
        return;
    }
    let Some(here) = module_of(&source.path) else { return };
    for (line, name) in named(source, &["crate"]).into_iter().chain(climbing(source)) {
        let top = name.split("::").next().unwrap_or_default();
        let Some(there) = MODULES.iter().find(|m| m.name == top) else { continue };
        let sideways = here
            .sideways
            .iter()
            .any(|s| *s == top || name == *s || name.starts_with(&format!("{s}::")));
        let layer_allows = there.name == here.name || there.layer < here.layer;
        let config_allows =
            top != "config" || here.name == "config" || MAY_IMPORT_CONFIG.contains(&here.name);
        if !((layer_allows || sideways) && config_allows) {
            let why = format!("`{}` may not name `{name}`", here.name);
            out.push(Finding::new(source, line, "import direction", why));
        }
        for (place, stranger) in STRANGERS {
            if source.is_in(place) && name.starts_with(stranger) {
                let why = format!("{place} may not name `{stranger}`");
                out.push(Finding::new(source, line, "import direction", why));
            }
        }
    }
}

/// Paths `ROOT::a::b` named in a file, groups in braces taken apart, with their line numbers.
fn named(source: &Source, roots: &[&str]) -> Vec<(usize, String)> {
    let text = source.text();
    let mut found = Vec::new();
    for root in roots {
        for start in word_starts(&text, root) {
            let end = start + root.len();
            if let Some(rest) = text[end..].strip_prefix("::") {
                for path in paths(rest) {
                    found.push((line_of(&text, start), path));
                }
            }
        }
    }
    found
}

/// `super::super::x` that climbs to the crate's root.
fn climbing(source: &Source) -> Vec<(usize, String)> {
    let text = source.text();
    let inner = source.path.trim_start_matches("src/").trim_end_matches("/mod.rs");
    let depth = inner.trim_end_matches(".rs").split('/').count();
    let chain = vec!["super"; depth].join("::");
    let mut found = Vec::new();
    for start in word_starts(&text, &chain) {
        if let Some(rest) = text[start + chain.len()..].strip_prefix("::") {
            found.extend(paths(rest).into_iter().map(|p| (line_of(&text, start), p)));
        }
    }
    found
}

/// The paths that follow `crate::`: one, or those of a `{…}` group, each as far as it has no group.
fn paths(rest: &str) -> Vec<String> {
    let rest = rest.trim_start();
    let Some(group) = rest.strip_prefix('{') else {
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches(':').to_owned();
        let inner = rest[end..].trim_start();
        if rest[..end].ends_with("::") && inner.starts_with('{') {
            return paths(inner).into_iter().map(|p| format!("{path}::{p}")).collect();
        }
        return vec![path];
    };
    let (mut depth, mut start, mut found) = (0_i32, 0, Vec::new());
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                let part = group[start..i].trim();
                if !part.is_empty() {
                    found.extend(paths(part));
                }
                start = i + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Each third-party crate stays where the table puts it.
pub fn walls(source: &Source, out: &mut Vec<Finding>) {
    if !source.path.starts_with("src/") {
        return;
    }
    for (krate, places) in WALLS {
        if source.is_in_any(places) {
            continue;
        }
        for (line, code) in source.numbered() {
            let names_it = word_starts(code, krate).into_iter().any(|at| {
                let own_path = code[..at].trim_end().ends_with("::");
                let imported = code[..at].trim_end().ends_with("use") && word_ends(code, at, krate);
                !own_path && (code[at + krate.len()..].starts_with("::") || imported)
            });
            if names_it {
                let why = format!("`{krate}` may be named only in {}", places.join(", "));
                out.push(Finding::new(source, line, "third-party wall", why));
            }
        }
    }
}
