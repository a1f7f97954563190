//! Hold-ups: what one namespace or one kind of work waits for never delays another.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acceptance;
mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use acceptance::{PATIENCE, Site, applied, code, draining, patient};
use serde_json::Value;
use support::proxy::uuid;
use support::wire::query;
use support::{Options, PgCluster, Proxy, Wire, poll};

/// The longest that anything here may take which has nothing to wait for. A loaded machine and a
/// debug build are far below it; whoever waits for a drain is far above.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Takes the longest of what `work` takes, so often.
fn longest(times: u32, mut work: impl FnMut()) -> Duration {
    let timed = (0..times).map(|_| {
        let asked = Instant::now();
        work();
        asked.elapsed()
    });
    timed.max().unwrap()
}

#[test]
fn a_running_drain_delays_no_other_namespace() {
    let cluster = PgCluster::start(Options::default());
    let proxy = Proxy::start(&cluster);
    let sites: Vec<Site<'_>> = (0..6).map(|_| Site::new(&cluster, &proxy)).collect();
    let (stuck, free) = sites.split_at(4);
    let mut writers: Vec<Wire> = stuck.iter().map(Site::client).collect();
    for writer in &mut writers {
        writer.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    }
    std::thread::scope(|scope| {
        let drains: Vec<_> = stuck
            .iter()
            .map(|site| {
                let body = site.acquire_body(&uuid(), &patient());
                scope.spawn(move || site.acquire(&body))
            })
            .collect();
        for site in stuck {
            site.wait("its drain runs", draining);
        }
        // Sessions, fences and views of the others, while four drains wait.
        let mut client = free[0].client();
        let writing = longest(50, || drop(client.query("INSERT INTO t VALUES (1)").ok()));
        let connecting = longest(10, || drop(free[1].client().query("SELECT 1").ok()));
        let fencing = longest(3, || {
            let operation = free[1].fence();
            free[1].unfence(&operation);
        });
        let inspecting = longest(10, || drop(free[0].inspect()));
        println!("writes {writing:?}, logins {connecting:?}, fences {fencing:?}, {inspecting:?}");
        for took in [writing, connecting, fencing, inspecting] {
            assert!(took < AT_ONCE, "{took:?} beside a drain");
        }
        // What is closed is refused at once, and the drains still wait.
        for site in stuck {
            let mut other = site.client();
            let refusing = longest(5, || {
                assert_eq!(code(&other.query("INSERT INTO t VALUES (2)")), "ZF001");
            });
            assert!(refusing < AT_ONCE, "{refusing:?} for a refusal");
            assert!(draining(&site.inspect()));
        }
        assert!(drains.iter().all(|drain| !drain.is_finished()), "a drain ended by itself");
        for writer in &mut writers {
            writer.query("COMMIT").ok();
        }
        for drain in drains {
            applied(&drain.join().unwrap());
        }
    });
}

/// Lets the busy clients end, however the test does.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn the_admin_side_answers_while_the_data_side_is_saturated() {
    let cluster = PgCluster::start(Options::default());
    let proxy = Proxy::start(&cluster);
    let (busy, other) = (Site::new(&cluster, &proxy), Site::new(&cluster, &proxy));
    let (stop, programs) = (AtomicBool::new(false), AtomicU64::new(0));
    // Pipelines of small statements: the workers have more to do than they get done.
    let many: Vec<u8> = (0..200).flat_map(|_| query("SELECT 1")).collect();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let mut client = busy.client();
            let (many, stop, programs) = (&many, &stop, &programs);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    client.send_raw(many);
                    (0..200).for_each(|_| drop(client.until_ready().ok()));
                    programs.fetch_add(200, Ordering::SeqCst);
                }
            });
        }
        let _stop = StopAtEnd(&stop);
        let goal = programs.load(Ordering::SeqCst) + 4000;
        let busy_now = || (programs.load(Ordering::SeqCst) >= goal).then_some(());
        let saturated = poll(PATIENCE, busy_now).is_some();
        let before = programs.load(Ordering::SeqCst);
        let asking = longest(20, || {
            for path in ["/v1/sessions", "/v1/namespaces"] {
                assert_eq!(proxy.admin("GET", path, &Value::Null).0, 200, "{path}");
            }
        });
        let inspecting = longest(10, || drop(busy.inspect()));
        let fencing = longest(3, || {
            for site in [&busy, &other] {
                let operation = site.fence();
                site.unfence(&operation);
            }
        });
        let done = programs.load(Ordering::SeqCst) - before;
        println!("two views {asking:?}, inspect {inspecting:?}, two fences {fencing:?}, {done}");
        assert!(saturated && done > 400, "the data side was not busy: {done} programs");
        for took in [asking, inspecting] {
            assert!(took < AT_ONCE, "{took:?} beside a busy data side");
        }
        // A fence also needs the engine, which has as much to do, and may have to look twice.
        assert!(fencing < PATIENCE, "{fencing:?} for two fences beside a busy data side");
    });
}
