//! From the configuration as written to the checked one.
//!
//! Purpose: every value is judged, every problem is collected, and what this version can't do is
//! refused by name instead of being ignored. Called by `config` only. The work is split by what is
//! described: the process (here), its peers, its fences.

mod fence;
mod peers;
mod process;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::checked::Config;
use super::defaults::Bounded;
use super::error::Problem;
use super::raw::{self, Number, Raw, Text};
use super::surroundings::Surroundings;

/// Where the values came from.
#[derive(Clone, Copy)]
pub(super) enum Origin<'a> {
    /// A file with this text.
    File(&'a str),
    /// Options of the command line; they have no lines, and other names.
    Flags,
}

/// Collects problems while values are read.
pub(super) struct Reader<'a> {
    origin: Origin<'a>,
    around: &'a dyn Surroundings,
    problems: Vec<Problem>,
    notes: Vec<String>,
}

impl<'a> Reader<'a> {
    /// A reader without problems yet.
    pub(super) fn new(origin: Origin<'a>, around: &'a dyn Surroundings) -> Self {
        Self { origin, around, problems: Vec::new(), notes: Vec::new() }
    }

    fn problem(&mut self, span: Option<Range<usize>>, key: &str, message: impl Into<String>) {
        let (line, key) = match self.origin {
            Origin::File(text) => (span.map(|span| raw::line_at(text, span.start)), key),
            Origin::Flags => (None, option_of(key)),
        };
        self.problems.push(Problem { line, key: key.to_owned(), message: message.into() });
    }

    fn not_yet(&mut self, span: Range<usize>, key: &str, what: &str) {
        self.problem(Some(span), key, format!("not available yet in this version: {what}"));
    }

    /// One of the named values, or the default.
    fn choice<T: Copy>(&mut self, key: &str, value: &Text, options: &[(&str, T)], default: T) -> T {
        let Some(value) = value else { return default };
        if let Some((_, found)) = options.iter().find(|(name, _)| name == value.get_ref()) {
            return *found;
        }
        let names: Vec<_> = options.iter().map(|(name, _)| format!("{name:?}")).collect();
        let message = format!("expected {}, got {}", or_list(&names), shown(value.get_ref()));
        self.problem(Some(value.span()), key, message);
        default
    }

    /// A whole number within its range, or `fallback`.
    fn number(&mut self, key: &str, value: &Number, bounds: &Bounded, fallback: u64) -> u64 {
        let Some(value) = value else { return fallback };
        let number = u64::try_from(*value.get_ref()).ok();
        if let Some(number) = number.filter(|number| bounds.range.contains(number)) {
            return number;
        }
        let (low, high) = (bounds.range.start(), bounds.range.end());
        let message = format!("expected {low} to {high} {}, got {}", bounds.unit, value.get_ref());
        self.problem(Some(value.span()), key, message);
        fallback
    }

    /// A path to a file that can be read now; empty counts as absent.
    fn readable(&mut self, key: &str, value: &Text) -> Option<PathBuf> {
        let value = value.as_ref().filter(|value| !value.get_ref().is_empty())?;
        let path = PathBuf::from(value.get_ref());
        self.content(key, value, &path)?;
        Some(path)
    }

    /// As [`Self::readable`], for a file that holds a secret: one that others can read is told.
    /// It isn't refused, as some systems hand secrets out that way to a user of their own.
    fn secret_file(&mut self, key: &str, value: &Text) -> Option<PathBuf> {
        let path = self.readable(key, value)?;
        self.note_readable(key, &path);
        Some(path)
    }

    fn note_readable(&mut self, key: &str, path: &Path) {
        if let Some(mode) = self.around.mode(path).filter(|mode| mode & 0o077 != 0) {
            self.notes.push(format!(
                "{key}: {} is open to other users of this machine (mode {mode:04o}); chmod 600 it",
                path.display()
            ));
        }
    }

    /// What is in the file, as bytes; a problem when it can't be read.
    fn content(&mut self, key: &str, value: &Spanned<String>, path: &Path) -> Option<Vec<u8>> {
        match self.around.read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                let message =
                    format!("expected a readable file; {} can't be read: {error}", path.display());
                self.problem(Some(value.span()), key, message);
                None
            }
        }
    }

    /// The result of a parser of names or addresses, or a problem made of its error.
    fn parsed<T, E: Display>(
        &mut self,
        key: &str,
        span: Range<usize>,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|error| self.problem(Some(span), key, error.to_string())).ok()
    }

    /// Checks everything.
    pub(super) fn check(mut self, source: Option<&Path>, raw: Raw) -> Result<Config, Vec<Problem>> {
        let proxy = self.proxy(&raw.proxy);
        let log = self.log(&raw.log);
        let store = self.store(&raw.store, &proxy.state_dir);
        let admin = self.admin(&raw.admin);
        let engines = self.engines(&raw.engine);
        let listens = self.listens(&raw.listen, &engines, &admin);
        let routes = self.routes(&raw.route, &engines);
        let fence = self.fence("fence", &raw.fence, &fence::defaults());
        let namespaces = self.namespaces(&raw.namespace, &fence, &engines);
        let compat_sqlstate = self.compat(&raw.compat);
        if !self.problems.is_empty() {
            self.problems.sort();
            self.problems.dedup();
            return Err(self.problems);
        }
        Ok(Config {
            source: source.map(Path::to_owned),
            proxy,
            log,
            store,
            admin,
            engines: engines.into_iter().filter_map(|declared| declared.engine).collect(),
            listens,
            routes,
            fence,
            namespaces,
            compat_sqlstate,
            notes: self.notes,
        })
    }

    fn compat(&mut self, raw: &raw::RawCompat) -> BTreeMap<String, String> {
        let mut table = BTreeMap::new();
        let upper = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
        for (ours, theirs) in &raw.sqlstate {
            let (name, value) = (ours.get_ref(), theirs.get_ref());
            let key = format!("compat.sqlstate.{}", shown_bare(name));
            let digits = name.strip_prefix("ZF").unwrap_or_default();
            if digits.len() != 3 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                let message = "expected one of our codes, ZF001 to ZF999";
                self.problem(Some(ours.span()), &key, message);
            }
            let state = value.len() == 5 && value.bytes().all(upper);
            let success = ["00", "01", "02"].iter().any(|class| value.starts_with(class));
            if !state || success {
                let message = "expected a SQLSTATE of five digits or capitals, of an error class \
                               (not 00, 01 or 02)";
                self.problem(Some(theirs.span()), &key, message);
            }
            table.insert(name.clone(), value.clone());
        }
        table
    }
}

/// The command line's word for a key.
fn option_of(key: &str) -> &str {
    match key.split('.').next() {
        Some("engine") => "--engine",
        Some("listen") => "--listen",
        Some("admin") => "--admin",
        Some("proxy") => "--state-dir",
        Some(_) | None => key,
    }
}

/// A value for a message: quoted, and short.
fn shown(value: &str) -> String {
    let short: String = value.chars().take(40).collect();
    format!("{short:?}")
}

/// A name for a key in a message: printable, and short.
fn shown_bare(value: &str) -> String {
    value.chars().take(40).flat_map(char::escape_debug).collect()
}

fn or_list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [firsts @ .., last] => format!("{} or {last}", firsts.join(", ")),
    }
}
