//! Checks of `[fence]` and `[namespace."engine/database"]`.
//!
//! Purpose: one function reads both, the second over the first. Called by `check`. Values that this
//! version can't honour are refused: a fence that promises less than its file says is worse than
//! one that does not start.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::Spanned;

use super::super::checked::{EngineLock, Fence, InFlight, SolePath};
use super::super::defaults::{self, Bounded};
use super::super::raw::{Number, RawFence};
use super::peers::Declared;
use super::{Reader, shown, shown_bare};
use crate::base::ids::Namespace;

/// `[fence]` when nothing is written.
pub(super) fn defaults() -> Fence {
    let count = |bounds: &Bounded| usize::try_from(bounds.default).unwrap_or(usize::MAX);
    Fence {
        enabled: true,
        write_drain: Duration::from_millis(defaults::WRITE_DRAIN_MS.default),
        read_drain: Duration::from_millis(defaults::READ_DRAIN_MS.default),
        in_flight: InFlight::Finish,
        hold: Duration::ZERO,
        max_held: count(&defaults::MAX_HELD),
        sole_path: SolePath::Report,
        engine_lock: EngineLock::Hold,
        trusted_functions: Vec::new(),
        receipt_retention_days: u32::try_from(defaults::RECEIPT_RETENTION_DAYS.default)
            .unwrap_or(u32::MAX),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Reader<'_> {
    pub(super) fn fence(&mut self, prefix: &str, raw: &RawFence, base: &Fence) -> Fence {
        let key = |name: &str| format!("{prefix}.{name}");
        let mut number = |name: &str, value: &Number, bounds: &Bounded, fallback: u64| {
            self.number(&key(name), value, bounds, fallback)
        };
        let write = &defaults::WRITE_DRAIN_MS;
        let write = number("write_drain_ms", &raw.write_drain_ms, write, millis(base.write_drain));
        let read = &defaults::READ_DRAIN_MS;
        let read = number("read_drain_ms", &raw.read_drain_ms, read, millis(base.read_drain));
        let hold = number("hold_ms", &raw.hold_ms, &defaults::HOLD_MS, millis(base.hold));
        let held = number("max_held", &raw.max_held, &defaults::MAX_HELD, base.max_held as u64);
        let days = &defaults::RECEIPT_RETENTION_DAYS;
        let kept = u64::from(base.receipt_retention_days);
        let days = number("receipt_retention_days", &raw.receipt_retention_days, days, kept);
        self.authority(prefix, raw);
        let in_flight = [("finish", InFlight::Finish), ("refuse", InFlight::Refuse)];
        let in_flight = self.choice(&key("in_flight"), &raw.in_flight, &in_flight, base.in_flight);
        let sole = [("report", SolePath::Report), ("require", SolePath::Require)];
        let sole_path = self.choice(&key("sole_path"), &raw.sole_path, &sole, base.sole_path);
        let locks = [
            ("hold", EngineLock::Hold),
            ("confirm", EngineLock::Confirm),
            ("off", EngineLock::Off),
        ];
        let lock = self.choice(&key("engine_lock"), &raw.engine_lock, &locks, base.engine_lock);
        let trusted_functions = match &raw.trusted_functions {
            Some(list) => self.trusted(&key("trusted_functions"), list.get_ref()),
            None => base.trusted_functions.clone(),
        };
        Fence {
            enabled: raw.enabled.as_ref().map_or(base.enabled, |flag| *flag.get_ref()),
            write_drain: Duration::from_millis(write),
            read_drain: Duration::from_millis(read),
            in_flight,
            hold: Duration::from_millis(hold),
            max_held: usize::try_from(held).unwrap_or(usize::MAX),
            sole_path,
            engine_lock: lock,
            trusted_functions,
            receipt_retention_days: u32::try_from(days).unwrap_or(u32::MAX),
        }
    }

    fn authority(&mut self, prefix: &str, raw: &RawFence) {
        let key = format!("{prefix}.authority");
        let Some(value) = &raw.authority else { return };
        match value.get_ref().as_str() {
            "proxy" => {}
            "engine" => {
                let what = "the fence row in the engine itself, for several proxies over one \
                            namespace; use authority = \"proxy\" and one proxy";
                self.not_yet(value.span(), &key, what);
            }
            other => {
                let message = format!("expected \"proxy\" or \"engine\", got {}", shown(other));
                self.problem(Some(value.span()), &key, message);
            }
        }
    }

    /// What `[fence]` alone may say: the classifier and the command routes know no namespace.
    fn of_the_whole_proxy(&mut self, prefix: &str, raw: &RawFence) {
        let what = "one namespace's own; it is the whole proxy's, so set it in [fence]";
        if let Some(value) = &raw.enabled {
            self.not_yet(value.span(), &format!("{prefix}.enabled"), what);
        }
        if let Some(value) = &raw.trusted_functions {
            self.not_yet(value.span(), &format!("{prefix}.trusted_functions"), what);
        }
    }

    fn trusted(&mut self, key: &str, list: &[Spanned<String>]) -> Vec<String> {
        for name in list {
            let parts = name.get_ref().split_once('.');
            let full = parts.is_some_and(|(schema, name)| !schema.is_empty() && !name.is_empty());
            if !full || name.get_ref().contains(['(', ' ', '\0']) {
                let message = format!(
                    "expected full names such as \"public.note_visit\", without arguments, got {}",
                    shown(name.get_ref())
                );
                self.problem(Some(name.span()), key, message);
            }
        }
        if list.len() > defaults::TRUSTED_FUNCTIONS_MAX {
            let message = format!("expected at most {} names", defaults::TRUSTED_FUNCTIONS_MAX);
            self.problem(list.first().map(Spanned::span), key, message);
        }
        list.iter().map(|name| name.get_ref().clone()).collect()
    }

    pub(super) fn namespaces(
        &mut self,
        raw: &BTreeMap<Spanned<String>, RawFence>,
        base: &Fence,
        engines: &[Declared],
    ) -> BTreeMap<Namespace, Fence> {
        let mut namespaces = BTreeMap::new();
        for (name, table) in raw {
            let prefix = format!("namespace.\"{}\"", shown_bare(name.get_ref()));
            let fence = self.fence(&prefix, table, base);
            self.of_the_whole_proxy(&prefix, table);
            let parsed = Namespace::parse(name.get_ref());
            let Some(namespace) = self.parsed(&prefix, name.span(), parsed) else { continue };
            if !engines.iter().any(|declared| declared.name == *namespace.engine()) {
                let message = format!(
                    "expected engine/database with the name of an [[engine]], got \"{}\"",
                    namespace.engine()
                );
                self.problem(Some(name.span()), &prefix, message);
            }
            namespaces.insert(namespace, fence);
        }
        namespaces
    }
}
