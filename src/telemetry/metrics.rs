//! Metrics: one registry, one struct of metrics per part, one text out.
//!
//! Purpose: every number has one owner and bounded labels. Parts hold an `Arc<Metrics>` and call
//! the methods of their own struct; the admin surface sets the gauges that are computed at scrape
//! time and then calls [`Metrics::encode`]. Label values pass through [`super::labels`], so no
//! namespace, operation, command id, revision or caller can become one. The statement path does not
//! come here: it counts in [`super::worker`], which is summed in a collector.
//!
//! The text is the OpenMetrics format; serve it as [`CONTENT_TYPE`]. Counters get their `_total`
//! suffix from the format.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::changes::Changes;
use super::labels::{self, bounded};
use super::worker::{AutoPrepared, ProgramClass, Totals, WorkerCounters, WorkerRegistry};

/// What `/metrics` answers as its content type.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the drain histogram, in seconds: from a drain with nothing to wait for to one
/// that waited out a long deadline.
const DRAIN_BUCKETS: [f64; 13] =
    [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

type Label = (&'static str, &'static str);
type Values = (&'static str, &'static [&'static str]);
type One = Family<[Label; 1], Counter>;
type Two = Family<[Label; 2], Counter>;

/// What the fences count.
#[derive(Debug)]
pub struct FenceMetrics {
    transitions: Two,
    drains: Family<[Label; 1], Histogram, fn() -> Histogram>,
    forced: One,
    replays: One,
    denials: Two,
    adoptions: Counter,
    namespaces: Family<[Label; 2], Gauge>,
    oldest_active: Gauge<f64, AtomicU64>,
    active: Gauge,
    locks: Family<[Label; 1], Gauge>,
    lock_losses: Counter,
    held_ended: One,
    held_programs: Gauge,
    held_bytes: Gauge,
    held_oldest: Gauge<f64, AtomicU64>,
    changes: Arc<Changes>,
}

impl FenceMetrics {
    fn register(registry: &mut Registry, changes: Arc<Changes>) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(DRAIN_BUCKETS);
        let made = Self {
            transitions: Family::default(),
            drains: Family::new_with_constructor(histogram),
            forced: Family::default(),
            replays: Family::default(),
            denials: Family::default(),
            adoptions: Counter::default(),
            namespaces: Family::default(),
            oldest_active: Gauge::default(),
            active: Gauge::default(),
            locks: Family::default(),
            lock_losses: Counter::default(),
            held_ended: Family::default(),
            held_programs: Gauge::default(),
            held_bytes: Gauge::default(),
            held_oldest: Gauge::default(),
            changes,
        };
        made.register_commands(registry);
        let namespaces = "Namespaces by role and fence state";
        registry.register("fence_namespaces", namespaces, made.namespaces.clone());
        let oldest = "Age of the oldest active fence but for aborted targets, 0 when there is none";
        registry.register("fence_oldest_active_age_seconds", oldest, made.oldest_active.clone());
        let active = "Fences that still take something away, as capabilities counts them";
        registry.register("fence_active", active, made.active.clone());
        let locks = "Engine locks that fences are to have, by whether they are held now";
        registry.register("fence_engine_locks", locks, made.locks.clone());
        let losses = "Engine locks that were lost behind a standing fence: each is a gap in one";
        registry.register("fence_engine_lock_losses", losses, made.lock_losses.clone());
        // No store of this version can be restored by the proxy, so nothing ever sets it.
        let restored = "1 when the store was restored from a backup; this version never does that";
        registry.register("metastore_restored_from_backup", restored, <Gauge>::default());
        made.register_held(registry);
        made.namespaces([]);
        made.locks(0, 0);
        made.begin_at_zero();
        made
    }

    fn register_commands(&self, registry: &mut Registry) {
        let all = "Fence commands answered, by outcome; replays and refusals included";
        registry.register("fence_transitions", all, self.transitions.clone());
        let drains =
            "Time from the start of a drain's wait to its proof; unproven ones don't count";
        registry.register("fence_drain_duration_seconds", drains, self.drains.clone());
        registry.register("fence_forced", "Work ended by force in a drain", self.forced.clone());
        let replays = "Commands sent again under their id";
        registry.register("fence_replays", replays, self.replays.clone());
        let denials = "Client work refused by a fence, once per surface crossed";
        registry.register("fence_denials", denials, self.denials.clone());
        let adoptions = "Committed adoptions of a fence";
        registry.register("fence_adoptions", adoptions, self.adoptions.clone());
    }

    /// Makes every counter's series, so that the first event is an increase from 0 for whoever
    /// watches: a series that begins at 1 shows none.
    fn begin_at_zero(&self) {
        let pairs = |counters: &Two, (one, ones): Values, (two, twos): Values| {
            for value in ones {
                for other in twos {
                    drop(counters.get_or_create(&[(one, *value), (two, *other)]));
                }
            }
        };
        let singles = |counters: &One, (label, values): Values| {
            for value in values {
                drop(counters.get_or_create(&[(label, *value)]));
            }
        };
        pairs(&self.transitions, ("command", labels::COMMANDS), ("outcome", labels::OUTCOMES));
        pairs(&self.denials, ("code", labels::DENIALS), ("surface", labels::SURFACES));
        singles(&self.forced, ("kind", labels::FORCED));
        singles(&self.replays, ("result", labels::REPLAYS));
        singles(&self.held_ended, ("outcome", labels::PARTINGS));
        for kind in labels::DRAINS {
            drop(self.drains.get_or_create(&[("kind", *kind)]));
        }
    }

    fn register_held(&self, registry: &mut Registry) {
        let ended = "Programs that were held at a closed gate, or found no room, by how that ended";
        registry.register("held_ended", ended, self.held_ended.clone());
        let programs = "Programs that are held at closed gates now";
        registry.register("held_programs", programs, self.held_programs.clone());
        let bytes = "Bytes of the programs that are held, with what came behind them";
        registry.register("held_bytes", bytes, self.held_bytes.clone());
        let oldest = "How long the longest held program has waited, 0 when there is none";
        registry.register("held_oldest_age_seconds", oldest, self.held_oldest.clone());
    }

    /// A command was answered; `outcome` is a stable code, or `ERROR`.
    pub fn transition(&self, command: &str, outcome: &str) {
        let command = ("command", bounded(command, labels::COMMANDS));
        let outcome = ("outcome", bounded(outcome, labels::OUTCOMES));
        self.transitions.get_or_create(&[command, outcome]).inc();
        self.changes.stir();
    }

    /// A drain (`write`, `read`, `import`) was proven after this time.
    pub fn drained(&self, kind: &str, took: Duration) {
        let label = ("kind", bounded(kind, labels::DRAINS));
        self.drains.get_or_create(&[label]).observe(took.as_secs_f64());
    }

    /// A drain ended work by force: `rollback`, `sql_cancel`, `dump_cancel`, `stream_termination`.
    pub fn forced(&self, kind: &str) {
        self.forced.get_or_create(&[("kind", bounded(kind, labels::FORCED))]).inc();
    }

    /// A command id was seen again: `replay` (a resumed drain too) or `conflict`.
    pub fn replay(&self, result: &str) {
        self.replays.get_or_create(&[("result", bounded(result, labels::REPLAYS))]).inc();
    }

    /// Client work was refused with `code` on `surface`.
    pub fn denial(&self, code: &str, surface: &str) {
        let code = ("code", bounded(code, labels::DENIALS));
        let surface = ("surface", bounded(surface, labels::SURFACES));
        self.denials.get_or_create(&[code, surface]).inc();
        self.changes.stir();
    }

    /// Refusals since the start, as (code, surface, count); pairs that never were are left out.
    #[must_use]
    pub fn denied(&self) -> Vec<(&'static str, &'static str, u64)> {
        let codes = labels::DENIALS.iter().chain([&labels::OTHER]);
        let pairs = codes.flat_map(|code| labels::SURFACES.iter().map(move |on| (*code, *on)));
        let count = |(code, on): (&'static str, &'static str)| {
            let counter = self.denials.get(&[("code", code), ("surface", on)])?;
            Some((code, on, counter.get()))
        };
        pairs.filter_map(count).filter(|(.., count)| *count > 0).collect()
    }

    /// A program's being held ended: `admitted`, `refused`, `expired`, `no_room`, `cancelled`,
    /// `gone` or `ended`.
    pub fn held_ended(&self, outcome: &str) {
        let label = ("outcome", bounded(outcome, labels::PARTINGS));
        self.held_ended.get_or_create(&[label]).inc();
        self.changes.stir();
    }

    /// Sets what is held now, over all namespaces. Call before a scrape.
    pub fn held(&self, programs: usize, bytes: usize, oldest: Option<Duration>) {
        self.held_programs.set(i64::try_from(programs).unwrap_or(i64::MAX));
        self.held_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.held_oldest.set(oldest.unwrap_or_default().as_secs_f64());
    }

    /// Sets how many engine locks fences are to have, and how many of those are held. Call before
    /// a scrape.
    pub fn locks(&self, wanted: usize, held: usize) {
        for (state, count) in [("held", held), ("missing", wanted.saturating_sub(held))] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.locks.get_or_create(&[("state", state)]).set(count);
        }
    }

    /// An engine lock was lost while its fence stood.
    pub fn lock_lost(&self) {
        self.lock_losses.inc();
    }

    /// An adoption was committed.
    pub fn adopted(&self) {
        self.adoptions.inc();
    }

    /// Sets the namespaces gauge from one (role, state) per namespace; call it before a scrape.
    ///
    /// Every pair is written, so a state that emptied reads 0.
    pub fn namespaces<'a>(&self, now: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut counts = std::collections::BTreeMap::<[&'static str; 2], i64>::new();
        for (role, state) in now {
            let pair = [bounded(role, labels::ROLES), bounded(state, labels::STATES)];
            *counts.entry(pair).or_default() += 1;
        }
        for role in labels::ROLES {
            for state in labels::STATES {
                counts.entry([role, state]).or_default();
            }
        }
        for ([role, state], count) in counts {
            self.namespaces.get_or_create(&[("role", role), ("state", state)]).set(count);
        }
    }

    /// Sets how many fences are active, and the age of the oldest that can end (an aborted target
    /// can't); `None` where its beginning isn't known or there is none. Call before a scrape.
    pub fn active(&self, count: u64, age: Option<Duration>) {
        self.active.set(i64::try_from(count).unwrap_or(i64::MAX));
        self.oldest_active.set(age.unwrap_or_default().as_secs_f64());
    }
}

/// What the engines' control side counts. No label names an engine.
#[derive(Debug)]
pub struct EngineMetrics {
    configured: Gauge,
    orphans: Gauge,
}

impl EngineMetrics {
    fn register(registry: &mut Registry) -> Self {
        let made = Self { configured: Gauge::default(), orphans: Gauge::default() };
        registry.register("engines", "Engines in the configuration", made.configured.clone());
        let orphans = "Backends whose client is gone and whose end the engine has not confirmed";
        registry.register("orphans", orphans, made.orphans.clone());
        made
    }

    /// How many engines are configured. Call before a scrape.
    pub fn engines(&self, configured: usize) {
        self.configured.set(i64::try_from(configured).unwrap_or(i64::MAX));
    }

    /// How many backends are waited for without a client. Call before a scrape.
    pub fn orphans(&self, count: usize) {
        self.orphans.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// What the admin surface counts.
#[derive(Debug)]
pub struct AdminMetrics {
    requests: Two,
}

impl AdminMetrics {
    fn register(registry: &mut Registry) -> Self {
        let made = Self { requests: Family::default() };
        let text = "Admin requests answered, by route template and status";
        registry.register("admin_requests", text, made.requests.clone());
        made
    }

    /// A request was answered. `route` is the template that matched, not the path asked for; for a
    /// console's statement or login it is the console, and `status` what HTTP has for the answer.
    pub fn request(&self, route: &str, status: u16) {
        let route = ("route", bounded(route, labels::ROUTES));
        let status = ("status", bounded(&status.to_string(), labels::STATUSES));
        self.requests.get_or_create(&[route, status]).inc();
    }
}

/// Sums the workers' counters at scrape time.
struct WorkerCollector(Arc<WorkerRegistry>);

impl fmt::Debug for WorkerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerCollector")
    }
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: &[(Option<Label>, u64)],
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (label, value) in values {
        let value = ConstCounter::new(*value);
        match label {
            Some(label) => value.encode(metric.encode_family(&[*label])?)?,
            None => value.encode(metric.encode_family::<[Label; 0]>(&[])?)?,
        }
    }
    Ok(())
}

impl Collector for WorkerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.0.totals();
        let sessions = ConstGauge::new(i64::try_from(totals.sessions).unwrap_or(i64::MAX));
        let help = "Client sessions paired with an engine connection";
        let metric = encoder.encode_descriptor("sessions", help, None, MetricType::Gauge)?;
        sessions.encode(metric)?;
        let (yes, no) = (("result", "accepted"), ("result", "refused"));
        let help = "Client connections, by whether they were taken";
        let values = [(Some(yes), totals.accepted), (Some(no), totals.refused)];
        counter(&mut encoder, "connections", help, &values)?;
        let (to, from) = (("direction", "to_engine"), ("direction", "to_client"));
        let help = "Bytes relayed, by direction";
        let values = [(Some(to), totals.to_engine), (Some(from), totals.to_client)];
        counter(&mut encoder, "relayed_bytes", help, &values)?;
        let programs: Vec<_> = ProgramClass::ALL
            .iter()
            .zip(totals.programs)
            .map(|(class, count)| (Some(("class", class.label())), count))
            .collect();
        counter(&mut encoder, "programs", "Programs admitted for forwarding, by class", &programs)?;
        let (hit, miss) = (("result", "hit"), ("result", "miss"));
        let help = "Readings of a statement's text, by whether its class was remembered";
        let values = [(Some(hit), totals.cache_hits), (Some(miss), totals.cache_misses)];
        counter(&mut encoder, "classifier_lookups", help, &values)?;
        let kept: Vec<_> = AutoPrepared::ALL
            .iter()
            .zip(totals.auto_prepared)
            .map(|(event, count)| (Some(("event", event.label())), count))
            .collect();
        let help = "Unnamed statements kept at engines (auto_prepare), by what became of them";
        counter(&mut encoder, "auto_prepared", help, &kept)
    }
}

/// All metrics of the process. One per process; shared by `Arc`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    workers: Arc<WorkerRegistry>,
    /// The fences' own.
    pub fence: FenceMetrics,
    /// The engines' own.
    pub engine: EngineMetrics,
    /// The admin surface's own.
    pub admin: AdminMetrics,
    /// Whether something that people watch has changed.
    pub changes: Arc<Changes>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with everything registered at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("fencewire");
        let workers = Arc::new(WorkerRegistry::default());
        let changes = Arc::new(Changes::default());
        let fence = FenceMetrics::register(&mut registry, Arc::clone(&changes));
        let engine = EngineMetrics::register(&mut registry);
        let admin = AdminMetrics::register(&mut registry);
        registry.register_collector(Box::new(WorkerCollector(Arc::clone(&workers))));
        Self { registry, workers, fence, engine, admin, changes }
    }

    /// Counters for one worker thread; see [`WorkerRegistry::worker`].
    #[must_use]
    pub fn worker(&self) -> Arc<WorkerCounters> {
        self.workers.worker()
    }

    /// The workers' sums now, for the status page and tests.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.workers.totals()
    }

    /// Everything as text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Writing to a String does not fail; an encoder's own complaint is a bug, and half a
            // scrape would read as counters that went back.
            Err(fmt::Error) => {
                tracing::error!("metrics could not be encoded; the scrape is empty: report a bug");
                "# EOF\n".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::sql::CacheStats;
    use crate::telemetry::table::family_of;

    #[test]
    fn names_and_labels_are_the_documented_ones() {
        let metrics = Metrics::new();
        metrics.fence.transition("AdoptFence", "APPLIED");
        metrics.fence.drained("write", Duration::from_millis(20));
        metrics.fence.forced("rollback");
        metrics.fence.replay("replay");
        metrics.fence.denial("MIGRATION_WRITE_FENCED", "pg");
        metrics.fence.adopted();
        metrics.fence.held_ended("no_room");
        metrics.fence.held(4, 99, Some(Duration::from_millis(2500)));
        metrics.fence.namespaces([("source", "SOURCE_DRAINING"), ("source", "SOURCE_DRAINING")]);
        metrics.fence.active(2, Some(Duration::from_millis(1500)));
        metrics.fence.locks(5, 3);
        metrics.fence.lock_lost();
        metrics.engine.engines(2);
        metrics.engine.orphans(3);
        metrics.admin.request("/v1/namespaces", 200);
        let worker = metrics.worker();
        worker.session_opened();
        worker.connection_accepted();
        worker.relayed_to_engine(7);
        worker.program(ProgramClass::Ddl);
        worker.classifier(CacheStats { hits: 0, misses: 1, entries: 1 });
        let text = metrics.encode();
        for line in [
            r#"fencewire_fence_transitions_total{command="adopt_fence",outcome="APPLIED"} 1"#,
            r#"fencewire_fence_drain_duration_seconds_bucket{le="0.025",kind="write"} 1"#,
            r#"fencewire_fence_forced_total{kind="rollback"} 1"#,
            r#"fencewire_fence_replays_total{result="replay"} 1"#,
            r#"fencewire_fence_denials_total{code="MIGRATION_WRITE_FENCED",surface="pg"} 1"#,
            "fencewire_fence_adoptions_total 1",
            r#"fencewire_fence_namespaces{role="source",state="SOURCE_DRAINING"} 2"#,
            "fencewire_fence_oldest_active_age_seconds 1.5",
            r#"fencewire_held_ended_total{outcome="no_room"} 1"#,
            "fencewire_held_programs 4",
            "fencewire_held_bytes 99",
            "fencewire_held_oldest_age_seconds 2.5",
            "fencewire_engines 2",
            "fencewire_fence_active 2",
            r#"fencewire_fence_engine_locks{state="held"} 3"#,
            r#"fencewire_fence_engine_locks{state="missing"} 2"#,
            "fencewire_fence_engine_lock_losses_total 1",
            "fencewire_metastore_restored_from_backup 0",
            "fencewire_orphans 3",
            r#"fencewire_admin_requests_total{route="/v1/namespaces",status="200"} 1"#,
            "fencewire_sessions 1",
            r#"fencewire_connections_total{result="accepted"} 1"#,
            r#"fencewire_relayed_bytes_total{direction="to_engine"} 7"#,
            r#"fencewire_programs_total{class="ddl"} 1"#,
            r#"fencewire_classifier_lookups_total{result="miss"} 1"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line}\nis missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert_eq!(metrics.fence.denied(), [("MIGRATION_WRITE_FENCED", "pg", 1)]);
    }

    #[test]
    fn an_emptied_state_reads_zero_and_every_pair_is_written() {
        let metrics = Metrics::new();
        metrics.fence.namespaces([("source", "SOURCE_DRAINING")]);
        metrics.fence.namespaces([("source", "RELEASED")]);
        let text = metrics.encode();
        let zero = r#"fencewire_fence_namespaces{role="source",state="SOURCE_DRAINING"} 0"#;
        assert!(text.contains(zero), "{text}");
        let pairs =
            text.lines().filter(|line| line.starts_with("fencewire_fence_namespaces{")).count();
        assert_eq!(pairs, labels::ROLES.len() * labels::STATES.len());
    }

    /// Feeds every label something private and a thousand different values of it: none may show,
    /// and the number of lines must not depend on how many there were.
    #[test]
    fn labels_are_bounded_whatever_callers_pass() {
        let metrics = Metrics::new();
        let mut sizes = BTreeSet::new();
        for round in 0..1000_u16 {
            let stranger = format!("old/app-{round}");
            metrics.fence.transition(&stranger, &stranger);
            metrics.fence.drained(&stranger, Duration::ZERO);
            metrics.fence.forced(&stranger);
            metrics.fence.replay(&stranger);
            metrics.fence.held_ended(&stranger);
            metrics.fence.denial(&stranger, &stranger);
            metrics.fence.namespaces([(stranger.as_str(), stranger.as_str())]);
            metrics.admin.request(&stranger, round);
            if round >= 600 {
                sizes.insert(metrics.encode().lines().count());
            }
        }
        assert_eq!(sizes.len(), 1, "the scrape grows with what callers pass: {sizes:?}");
        assert!(!metrics.encode().contains("old/app"));
        for line in metrics.encode().lines().filter(|line| !line.starts_with('#')) {
            let Some((sample, rest)) = line.split_once('{') else { continue };
            let family = family_of(sample).unwrap();
            let (pairs, _) = rest.rsplit_once('}').unwrap();
            for label in pairs.split("\",") {
                let (name, value) = label.split_once("=\"").unwrap();
                if name == "le" {
                    continue;
                }
                let (_, values) = family.labels.iter().find(|(known, _)| *known == name).unwrap();
                let value = value.trim_end_matches('"');
                assert!(values.contains(&value) || value == labels::OTHER, "{line}");
            }
        }
    }
}
