//! Transparency: what a client receives through the proxy is what the engine sends.
//!
//! A corpus of raw conversations runs directly and through the proxy, frame by frame, on PostgreSQL
//! 15 and 18 (W22, W23; the numbers in the comments are those of the protocol's edge cases). Only
//! what must differ is masked: cancel keys, process ids, tables' OIDs, places in the log and times.
//! Clients that break the protocol, and half-closed sockets, have tests of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod acceptance;
mod relay;
mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use acceptance::{
    Latch, PATIENCE, Site, applied, code, fail_after, patient, shared_proxy, still_draining,
};
use relay::Talk;
use support::proxy::uuid;
use support::wire::{self, parse, query};
use support::{Engine, Options, PgCluster, Proxy, ProxyOptions, Wire};

/// Compares the corpus on a server of this version with what comes through the proxy.
///
/// `FENCEWIRE_TALK` narrows it to the conversations whose name has that in it.
fn the_corpus_is_the_same_on(version: u32) {
    let options = Options { tls: true, version: Some(version), ..Options::default() };
    let cluster = &PgCluster::start(options);
    // Without TLS towards the engine, as the direct connection: some errors name it.
    let engines = vec![Engine::plain("old", cluster)];
    let options = ProxyOptions { engines, client_tls: "allow".into(), ..ProxyOptions::default() };
    let proxy = &Proxy::start_with(options);
    cluster.sql("postgres", "ALTER ROLE wire REPLICATION");
    let (directly, through) = (Site::new(cluster, proxy), Site::new(cluster, proxy));
    let only = std::env::var("FENCEWIRE_TALK").unwrap_or_default();
    let mut differing = Vec::new();
    for case in relay::corpus() {
        let began = Instant::now();
        if case.since > version || !case.name.contains(&only) {
            continue;
        }
        // At the same time: most of a conversation is waiting.
        let (expected, seen) = std::thread::scope(|scope| {
            let other = scope.spawn(|| Talk::record(cluster.port(), &directly.db, &case));
            let seen = Talk::record(proxy.port(), &through.db, &case);
            (other.join().unwrap(), seen)
        });
        let name = &case.name;
        assert!(!expected.is_empty(), "{name} says nothing: {expected:?}");
        if let Some(unheard) = expected.iter().find(|heard| heard.0 == '?') {
            differing.push(format!("{name}: the engine itself doesn't do that: {unheard:?}"));
        }
        if !only.is_empty() {
            eprintln!("{name}: {:?}, {} frames", began.elapsed(), expected.len());
        }
        if expected != seen {
            let at = expected.iter().zip(&seen).position(|(a, b)| a != b);
            let at = at.unwrap_or(expected.len().min(seen.len()));
            differing.push(format!(
                "{name}, frame {at}:\n  directly {:?}\n  through  {:?}",
                expected.get(at),
                seen.get(at)
            ));
        }
    }
    let count = differing.len();
    assert!(count == 0, "on {version}, {count} differ:\n{}", differing.join("\n"));
}

#[test]
fn two_hundred_conversations_are_the_same_through_the_proxy() {
    the_corpus_is_the_same_on(15);
}

#[test]
fn two_hundred_conversations_are_the_same_on_18() {
    the_corpus_is_the_same_on(18);
}

#[test]
fn the_corpus_has_two_hundred_conversations() {
    let cases = relay::corpus();
    let names: std::collections::BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len(), "two conversations of one name");
    let everywhere = cases.iter().filter(|case| case.since == 0).count();
    assert!(everywhere >= 200, "{everywhere} conversations");
}

#[test]
fn everything_on_the_list_of_edges_has_a_conversation_or_a_test() {
    let names: Vec<String> = relay::corpus().into_iter().map(|case| case.name).collect();
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let numbers: Vec<u32> = relay::listed::LISTED.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=36).collect::<Vec<_>>());
    for (number, what, shown) in relay::listed::LISTED {
        assert!(!shown.is_empty(), "{number}, {what}: nothing shows it");
        for name in *shown {
            let there = match name.split_once("::") {
                Some((file, test)) => std::fs::read_to_string(tests.join(format!("{file}.rs")))
                    .unwrap()
                    .contains(&format!("#[test]\nfn {test}()")),
                None => names.iter().any(|known| known == name),
            };
            assert!(there, "{number}, {what}: no {name}");
        }
    }
}

/// A raw socket, sent some bytes; everything that comes back until the close, which must come.
fn last_words(port: u16, bytes: &[u8], shut: bool) -> Vec<u8> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    if shut {
        stream.shutdown(Shutdown::Write).unwrap();
    }
    let mut words = Vec::new();
    match stream.read_to_end(&mut words) {
        Ok(_) => words,
        // The peer closed with our bytes unread: an end all the same.
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => words,
        Err(e) => panic!("no close: {e}"),
    }
}

#[test]
fn garbage_before_the_startup_ends_that_connection_and_no_other() {
    let site = Site::shared();
    let mut other = site.client();
    other.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let port = site.proxy.port();
    let huge = [&[0x7f, 0xff, 0xff, 0xff][..], &[0, 3, 0, 0]].concat();
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0; 64],
        &[0, 0, 0, 7, 0, 3, 0, 0],
        &[0xff; 64],
        &huge,
        &[0, 0, 0, 8, 0, 2, 0, 0],
        &[0, 0, 0, 12, 0, 3, 0, 0, b'u', b's', b'e', b'r'],
        &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0],
    ] {
        let words = last_words(port, garbage, false);
        let clean = words.is_empty() || words[0] == b'E';
        assert!(clean, "{garbage:?} got {words:?}");
    }
    // Nothing at all, and an end in the middle.
    assert!(last_words(port, b"", true).is_empty());
    assert!(last_words(port, &[0, 0, 0, 80, 0, 3, 0, 0], true).is_empty());
    other.query("COMMIT").ok();
    assert_eq!(site.rows(), "1");
}

#[test]
fn encryption_requests_are_answered_and_the_startup_behind_them_is_read() {
    // TLS is off at this listener: `N`, and then the startup in plaintext is in order.
    let port = shared_proxy().port();
    let mut both = vec![0, 0, 0, 8, 4, 210, 22, 47];
    both.extend_from_slice(&[0, 0, 0, 8, 4, 210, 22, 48]);
    let mut body = vec![0, 3, 0, 0];
    body.extend_from_slice(b"user\0wire\0database\0postgres\0\0");
    both.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    both.extend_from_slice(&body);
    let words = last_words(port, &both, true);
    assert_eq!(&words[..3], b"NNR", "{words:?}");
}

#[test]
fn plaintext_behind_an_encryption_request_ends_the_connection() {
    let cluster = PgCluster::shared();
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", cluster)],
        client_tls: "allow".into(),
        ..ProxyOptions::default()
    });
    // What somebody in between put in front of the client's encrypted part is never taken for it.
    let mut both = vec![0, 0, 0, 8, 4, 210, 22, 47];
    let mut body = vec![0, 3, 0, 0];
    body.extend_from_slice(b"user\0wire\0database\0postgres\0application_name\0smuggled\0\0");
    both.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    both.extend_from_slice(&body);
    both.extend_from_slice(&query("SELECT 'smuggled'"));
    let words = last_words(proxy.port(), &both, true);
    let alert = words.get(1).is_none_or(|byte| *byte == 0x15);
    assert!(words[0] == b'S' && alert, "{}", words.escape_ascii());
    assert!(!String::from_utf8_lossy(&words).contains("smuggled"));
    // The same without the request is in order.
    let words = last_words(proxy.port(), &both[8..], true);
    assert!(String::from_utf8_lossy(&words).contains("smuggled"));
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_and_others_go_on() {
    let site = Site::shared();
    let mut other = site.client();
    other.query("BEGIN; INSERT INTO t VALUES (1)").ok();
    let unknown: &[u8] = &[109, 0, 0, 0, 4];
    let negative: &[u8] = &[b'Q', 0xff, 0xff, 0xff, 0xff];
    let short: &[u8] = &[b'Q', 0, 0, 0, 3];
    let over: &[u8] = &[b'P', 0x7f, 0xff, 0xff, 0xff];
    let unnamed = [&[b'B'][..], &[0, 0, 0, 6], b"xx"].concat();
    for (what, bytes) in [
        ("an unknown type", unknown),
        ("a negative length", negative),
        ("a length below its own four bytes", short),
        ("two gigabytes", over),
        ("a Bind without its names", &unnamed),
    ] {
        let mut client = site.client();
        let pid = client.backend_pid();
        client.query("BEGIN; INSERT INTO t VALUES (2)").ok();
        client.send_raw(bytes);
        loop {
            match client.try_read_frame(PATIENCE) {
                Ok(Some((b'E', body))) => {
                    let fields = wire::fields(&body);
                    assert_eq!(fields[&'C'], "08P01", "{what}: {fields:?}");
                }
                Ok(Some((b'Z', _))) if what == "a Bind without its names" => {}
                Ok(Some((tag, _))) => panic!("{what}: a frame {:?}", tag as char),
                Ok(None) => panic!("{what}: neither told nor closed"),
                Err(_) => break,
            }
        }
        let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
        site.wait_sql(&gone, "0");
    }
    other.query("COMMIT").ok();
    assert_eq!(site.rows(), "1");
}

#[test]
fn a_half_closed_client_gets_its_answers_and_its_work_is_done() {
    let site = Site::shared();
    for port in [site.cluster.port(), site.proxy.port()] {
        let mut body = vec![0, 3, 0, 0];
        body.extend_from_slice(format!("user\0wire\0database\0{}\0\0", site.db).as_bytes());
        let mut bytes = u32::try_from(body.len() + 4).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&query("INSERT INTO t VALUES (1)"));
        bytes.extend_from_slice(&query("SELECT 'the last words'"));
        let words = last_words(port, &bytes, true);
        let said = String::from_utf8_lossy(&words);
        assert!(said.contains("the last words"), "port {port}: {said}");
        assert_eq!(words[words.len() - 6..], [b'Z', 0, 0, 0, 5, b'I']);
    }
    assert_eq!(site.rows(), "1,1");
}

#[test]
fn a_client_that_vanishes_in_its_copy_leaves_nothing_and_frees_its_backend() {
    let site = Site::shared();
    let mut client = site.client();
    let pid = client.backend_pid();
    client.send_raw(&query("COPY t FROM STDIN"));
    assert_eq!(client.read_frame().0, b'G');
    client.send_raw(&wire::copy_data(b"1\n2\n"));
    drop(client);
    site.wait_sql(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"), "0");
    assert_eq!(site.rows(), "");
}

#[test]
fn a_cancel_hits_the_statement_it_was_sent_for_and_nothing_else() {
    let site = Site::shared();
    let (mut one, mut two) = (site.client(), site.client());
    let sleeps = |pid| format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}");
    one.send_raw(&query("SELECT pg_sleep(600)"));
    two.send_raw(&query("SELECT pg_sleep(600)"));
    site.wait_sql(&sleeps(one.backend_pid()), "PgSleep");
    site.wait_sql(&sleeps(two.backend_pid()), "PgSleep");
    one.cancel();
    one.expect_error("57014");
    assert_eq!(one.until_ready().status, 'I');
    assert!(two.try_read_frame(Duration::from_millis(1)).unwrap().is_none());
    // Nothing runs any more: a late one is dropped, a wrong key does nothing.
    one.cancel();
    one.query("SELECT 1").ok();
    let right = two.key.clone();
    let last = two.key.len() - 1;
    two.key[last] ^= 1;
    two.cancel();
    assert_eq!(site.sql(&sleeps(two.backend_pid())), "PgSleep");
    two.key = right;
    two.cancel();
    two.expect_error("57014");
    two.until_ready();
}

#[test]
fn more_than_the_proxy_holds_passes_in_both_directions_at_once() {
    // A pipeline whose answers are not read until all of it is sent would stand still if the
    // proxy waited for either side; PostgreSQL itself stands still too, so answers are read here.
    let site = Site::shared();
    let mut client = site.client();
    let statement = "x".repeat(900_000);
    for n in 0..10 {
        client.send_raw(&parse("", &format!("SELECT '{statement}' || {n}")));
        let rest = [wire::bind("", "", &[]), wire::execute("", 0), wire::sync()];
        client.send_raw(&rest.concat());
        let answer = client.until_ready().ok();
        assert_eq!(answer.cell().len(), 900_001);
    }
    assert_eq!(code(&client.query("SELECT 1")), "");
}

/// How large a value passes: a GB is about what the engine holds.
const LARGE: [usize; 2] = [20_000_000, 1_000_000_000];

#[test]
fn a_value_of_any_size_passes_both_ways_in_little_memory() {
    let cluster = PgCluster::shared();
    let proxy = Proxy::start(cluster);
    for size in LARGE {
        passes_both_ways(&proxy, size);
    }
}

/// A row and a parameter of `size` bytes, straight to the engine and through the proxy.
fn passes_both_ways(proxy: &Proxy, size: usize) {
    let cluster = PgCluster::shared();
    let mut seen = Vec::new();
    for port in [cluster.port(), proxy.port()] {
        let mut client = Wire::connect(port, "wire", "postgres");
        // Out: a row of this size.
        client.send_raw(&query(&format!("SELECT repeat('x', {size})")));
        let out: Vec<_> = (0..4).map(|_| client.skim().unwrap()).collect();
        assert_eq!((out[1].0, out[1].1, out[3].0), (b'D', size + 6, b'Z'));
        // In: a parameter, in pieces.
        let length = u32::try_from(size).unwrap();
        let head = [b"\0\0\0\0\0\x01".as_slice(), &length.to_be_bytes()].concat();
        let whole = u32::try_from(4 + head.len() + size + 2).unwrap();
        client.send_raw(&parse("", "SELECT length($1)"));
        client.send_raw(&[&b"B"[..], &whole.to_be_bytes(), &head].concat());
        let piece = vec![b'y'; 1_000_000];
        for _ in 0..size / piece.len() {
            client.send_raw(&piece);
        }
        client.send_raw(&[&b"\0\0"[..], &wire::execute("", 0), &wire::sync()].concat());
        assert_eq!(client.until_ready().ok().cell(), size.to_string());
        seen.push(out);
    }
    assert_eq!(seen[0], seen[1]);
    let kib = proxy.resident_kib();
    assert!(kib < 150_000, "{kib} KiB after {size} bytes");
}

#[test]
fn a_commit_that_waits_for_a_standby_is_told_as_the_engine_tells_it() {
    a_commit_that_waits_is_told_the_same_on(15);
}

#[test]
fn a_commit_that_waits_for_a_standby_is_told_as_the_engine_tells_it_on_18() {
    a_commit_that_waits_is_told_the_same_on(18);
}

/// Another process of the engine has the reload count for commits, when it comes to it.
fn wait_for_commits_to_wait(cluster: &PgCluster, mut probe: Wire) {
    let pid = probe.backend_pid();
    probe.query("SET synchronous_commit = on").ok();
    for number in 100.. {
        let text = format!("INSERT INTO t VALUES ({number})");
        probe.send_raw(&query(&text));
        let look = format!(
            "SET synchronous_commit = off; SELECT coalesce(wait_event, '') = 'SyncRep', state = \
             'idle' AND query = '{text}' FROM pg_stat_activity WHERE pid = {pid}"
        );
        let waits = support::poll(PATIENCE, || match cluster.sql("postgres", &look).as_str() {
            "t|f" => Some(true),
            "f|t" => Some(false),
            _ => None,
        });
        if waits.expect("a commit neither ends nor waits") {
            break;
        }
        probe.until_ready().ok();
    }
    probe.cancel();
    probe.until_ready().ok();
    probe.query("SET synchronous_commit = off").ok();
    probe.query("DELETE FROM t WHERE n >= 100").ok();
}

/// Cancelled, it is committed with a warning; terminated, it is committed without a word of
/// success. A setting of the whole server: a cluster of its own.
fn a_commit_that_waits_is_told_the_same_on(version: u32) {
    let options = Options { version: Some(version), ..Options::default() };
    let cluster = PgCluster::start(options);
    let proxy = Proxy::start(&cluster);
    let site = Site::new(&cluster, &proxy);
    cluster.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    cluster.sql("postgres", "ALTER SYSTEM SET synchronous_commit = 'off'");
    cluster.sql("postgres", "SELECT pg_reload_conf()");
    wait_for_commits_to_wait(&cluster, site.direct());
    let mut said = Vec::new();
    for mut client in [site.direct(), site.client()] {
        let pid = client.backend_pid();
        let asleep = format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}");
        let wait = || {
            let sql = "SET synchronous_commit = off; ".to_owned() + &asleep;
            let seen = support::poll(PATIENCE, || {
                (cluster.sql("postgres", &sql) == "SyncRep").then_some(())
            });
            assert!(seen.is_some(), "it doesn't wait for a standby");
        };
        let mut heard = Vec::new();
        client.query("SET synchronous_commit = on").ok();
        client.send_raw(&query("INSERT INTO t VALUES (1)"));
        wait();
        client.cancel();
        heard.extend(client.until_ready().frames);
        client.send_raw(&query("INSERT INTO t VALUES (2)"));
        wait();
        cluster.sql("postgres", &format!("SELECT pg_terminate_backend({pid})"));
        while let Ok(Some(frame)) = client.try_read_frame(PATIENCE) {
            heard.push(frame);
        }
        said.push(heard);
    }
    // Where the engine says nothing more, the proxy says what that means: the outcome is unknown.
    let last = said[1].pop().unwrap();
    assert_eq!((last.0, wire::fields(&last.1)[&'C'].as_str()), (b'E', "08007"));
    assert_eq!(said[0], said[1]);
    let tags: String = said[0].iter().map(|frame| frame.0 as char).collect();
    assert_eq!(tags, "NCZN");
    assert_eq!(site.rows(), "1,1,2,2");
}

#[test]
fn killed_before_its_first_ready_a_session_is_told_as_the_engine_tells_it() {
    killed_before_the_first_ready_is_told_the_same_on(15);
}

#[test]
fn killed_before_its_first_ready_a_session_is_told_as_the_engine_tells_it_on_18() {
    killed_before_the_first_ready_is_told_the_same_on(18);
}

/// A backend that has let its client in and reads its settings waits for a lock on their catalog.
/// So does every other that starts then: a cluster of its own.
fn killed_before_the_first_ready_is_told_the_same_on(version: u32) {
    let options = Options { version: Some(version), ..Options::default() };
    let cluster = PgCluster::start(options);
    let proxy = Proxy::start(&cluster);
    let site = Site::new(&cluster, &proxy);
    cluster.sql("postgres", "ALTER ROLE wire SUPERUSER");
    let mut keeper = site.direct();
    let mut said = Vec::new();
    for port in [cluster.port(), proxy.port()] {
        keeper.query("BEGIN; LOCK TABLE pg_db_role_setting IN ACCESS EXCLUSIVE MODE").ok();
        let mut client = Wire::open(port);
        let mut body = vec![0, 3, 0, 0];
        body.extend_from_slice(format!("user\0wire\0database\0{}\0\0", site.db).as_bytes());
        client.send_untagged(&body);
        // The proxy's own connections wait there as well: everybody is ended until it was this one.
        let first = support::poll(PATIENCE, || {
            let killed = keeper.query(
                "SELECT pg_terminate_backend(pid) FROM pg_locks
                 WHERE relation = 'pg_db_role_setting'::regclass AND NOT granted",
            );
            killed.ok();
            client.try_read_frame(Duration::from_millis(50)).expect("closed without a word")
        });
        let mut heard = vec![first.expect("it was never ended")];
        while let Ok(Some(frame)) = client.try_read_frame(PATIENCE) {
            heard.push(frame);
        }
        keeper.query("ROLLBACK").ok();
        said.push(heard);
    }
    let tags: String = said[0].iter().map(|frame| frame.0 as char).collect();
    // Let in, and then told; nothing of a session in between.
    assert_eq!((tags.as_str(), &said[0][0].1[..]), ("RE", &[0; 4][..]));
    assert_eq!(wire::fields(&said[0][1].1)[&'C'], "57P01");
    assert_eq!(said[0], said[1]);
    site.client().query("SELECT 1").ok();
}

/// Leases at the namespace's gate, as people are shown them.
fn leases(site: &Site<'_>) -> (u64, u64) {
    let lines = site.proxy.admin("GET", "/v1/namespaces", &serde_json::Value::Null).1;
    let lines = lines["namespaces"].as_array().unwrap();
    let line = lines.iter().find(|line| line["namespace"] == site.namespace()).unwrap();
    let of = |kind: &str| line["leases"][kind].as_u64().unwrap();
    (of("read"), of("write"))
}

/// Whatever was sent, a session has a lease while something of it runs, and none behind its last
/// answer: too few ReadyForQuery counted as owed would end it early, one too many never.
fn what_is_owed_is_counted_right_on(version: u32) {
    let options = Options { version: Some(version), ..Options::default() };
    let cluster = PgCluster::start(options);
    let proxy = Proxy::start(&cluster);
    let site = Site::new(&cluster, &proxy);
    let mut client = site.client();
    client.query("CREATE SCHEMA talk; CREATE TABLE talk.r AS SELECT 1 n, 'one' s").ok();
    client.query(relay::mixed::TABLE).ok();
    let mut scripts: Vec<_> = relay::mixed::SCRIPTS.iter().map(|s| (*s).to_owned()).collect();
    scripts.extend(relay::mixed::random(0x0051_7cc1, 60));
    for script in scripts {
        let latch = Latch::shut(&site);
        let more = [
            wire::sync(),
            query("ROLLBACK"),
            query("SELECT 'so far'"),
            // Nothing behind it, whose answer too many could be counted in the place of.
            query(&format!("SELECT {}", Latch::WAIT)),
        ];
        client.send_raw(&[relay::mixed::bytes(&script), more.concat()].concat());
        site.wait_at_latch(client.backend_pid());
        // All that the engine said before has passed through the proxy when it is read here.
        while !said(&client.read_frame(), "so far") {}
        client.until_ready();
        assert_ne!(leases(&site), (0, 0), "{script}: something runs without a lease");
        latch.open();
        client.until_ready().ok();
        let none = support::poll(PATIENCE, || (leases(&site) == (0, 0)).then_some(()));
        assert!(none.is_some(), "{script}: a lease is left behind the last answer");
    }
}

fn said(frame: &wire::Frame, text: &str) -> bool {
    matches!(frame.0, b'C' | b'D') && String::from_utf8_lossy(&frame.1).contains(text)
}

#[test]
fn what_is_owed_is_counted_right_whatever_is_sent() {
    what_is_owed_is_counted_right_on(15);
}

#[test]
fn what_is_owed_is_counted_right_whatever_is_sent_on_18() {
    what_is_owed_is_counted_right_on(18);
}

/// What the sequence that the attempts draw from has come to, by the engine's own word.
fn drawn(direct: &mut Wire) -> String {
    let answer = direct.query("SELECT format('%s %s', last_value, is_called) FROM talk.drawn");
    answer.ok().cell()
}

/// Has each client make its attempt to write and end what is open then; `unmoved` says what the
/// sequence must stay at.
fn attempt_all(clients: &mut [Wire], direct: &mut Wire, opening: &str, unmoved: Option<&str>) {
    for (client, attempt) in clients.iter_mut().zip(relay::mixed::ATTEMPTS) {
        let end = [wire::sync(), query("ROLLBACK"), query("SELECT 'the end'")].concat();
        client.send_raw(&[relay::mixed::bytes(attempt), end].concat());
        while !said(&client.read_frame(), "the end") {}
        client.until_ready();
        let now = unmoved.map(|_| drawn(direct));
        assert_eq!(now.as_deref(), unmoved, "VIOLATION: {opening}, then {attempt}");
    }
}

/// Whatever a client has left open when a gate closes, nothing that it sends then draws from the
/// sequence, once the fence is acknowledged.
fn nothing_is_written_behind_what_is_left_open_on(version: u32) {
    let options = Options { version: Some(version), ..Options::default() };
    let cluster = PgCluster::start(options);
    let proxy = Proxy::start(&cluster);
    let site = Site::new(&cluster, &proxy);
    let made = "CREATE SCHEMA talk; CREATE TABLE talk.r AS SELECT 1 n, 'one' s";
    site.setup(&format!("{made}; {}; {}", relay::mixed::TABLE, relay::mixed::HIDING));
    let mut direct = site.direct();
    for (opening, answers) in relay::mixed::OPENINGS {
        let mut clients: Vec<Wire> = relay::mixed::ATTEMPTS.iter().map(|_| site.client()).collect();
        for client in &mut clients {
            client.send_raw(&relay::mixed::bytes(opening));
            for _ in 0..*answers {
                client.until_ready();
            }
            if *answers == 0 {
                assert_eq!(client.read_frame().0, b'1', "{opening}");
            }
        }
        let operation = uuid();
        if *answers == 0 {
            // What is under way is waited for, and may write until it has ended.
            let body = site.acquire_body(&operation, &fail_after(100));
            still_draining(&site.acquire(&body));
            attempt_all(&mut clients, &mut direct, opening, None);
            site.acquire_at_last(&body);
        } else {
            applied(&site.acquire(&site.acquire_body(&operation, &patient())));
        }
        let acknowledged = drawn(&mut direct);
        for _ in 0..2 {
            attempt_all(&mut clients, &mut direct, opening, Some(&acknowledged));
        }
        site.unfence(&operation);
    }
    // Control arm: with the gate open each of these does draw.
    for attempt in relay::mixed::ATTEMPTS {
        let (mut client, before) = (site.client(), drawn(&mut direct));
        let end = [wire::sync(), query("ROLLBACK"), query("SELECT 'the end'")].concat();
        client.send_raw(&[relay::mixed::bytes(attempt), end].concat());
        let mut broken = false;
        loop {
            let frame = client.try_read_frame(PATIENCE).ok().flatten();
            let frame = frame.unwrap_or_else(|| panic!("{attempt} has no end"));
            broken |= frame.0 == b'E' && wire::fields(&frame.1)[&'C'] == "XX000";
            if said(&frame, "the end") {
                break;
            }
        }
        // 18 doesn't get over a Sync that stands alone behind a pipeline's open block.
        let nothing = broken && version == 18;
        assert!(nothing || drawn(&mut direct) != before, "{attempt} does nothing at all");
    }
}

#[test]
fn nothing_is_written_behind_what_is_left_open_when_a_gate_closes() {
    nothing_is_written_behind_what_is_left_open_on(15);
}

#[test]
fn nothing_is_written_behind_what_is_left_open_when_a_gate_closes_on_18() {
    nothing_is_written_behind_what_is_left_open_on(18);
}

/// A server that says what no PostgreSQL says, to whoever logs in.
fn odd_engine() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for accepted in listener.incoming() {
            let Ok(mut client) = accepted else { return };
            std::thread::spawn(move || -> std::io::Result<()> {
                let mut buffer = [0; 4096];
                let _startup = client.read(&mut buffer)?;
                let frames = [
                    wire::frame(b'R', &[0; 4]),
                    wire::frame(b'S', b"server_version\0odd\0"),
                    wire::frame(b'K', &[0, 0, 0, 7, 1, 2, 3, 4]),
                    wire::frame(b'Z', b"I"),
                ];
                client.write_all(&frames.concat())?;
                let _query = client.read(&mut buffer)?;
                client.write_all(&ODD_ANSWER.concat())?;
                let _query = client.read(&mut buffer)?;
                client.write_all(&ODD_END.concat())?;
                client.shutdown(Shutdown::Both)
            });
        }
    });
    port
}

static ODD_ANSWER: std::sync::LazyLock<[Vec<u8>; 3]> = std::sync::LazyLock::new(|| {
    [
        wire::frame(b'E', b"SERROR\0Mno code at all\0\0"),
        wire::frame(b'N', b"\0"),
        wire::frame(b'Z', b"I"),
    ]
});

static ODD_END: std::sync::LazyLock<[Vec<u8>; 3]> = std::sync::LazyLock::new(|| {
    [
        wire::frame(b'E', b"SFATAL\0C57P01\0Mthe first\0\0"),
        wire::frame(b'E', b"SFATAL\0Mthe second, without a code\0\0"),
        wire::frame(b'E', b"\0"),
    ]
});

#[test]
fn errors_without_a_code_and_several_at_the_end_are_passed_on() {
    let engine = Engine {
        name: "old".into(),
        url: format!("postgres://fencewire:fencewire@127.0.0.1:{}/postgres", odd_engine()),
        tls: "disable".into(),
        ca: None,
    };
    let proxy =
        Proxy::start_with(ProxyOptions { engines: vec![engine], ..ProxyOptions::default() });
    let mut client = Wire::connect(proxy.port(), "wire", "postgres");
    client.send_raw(&query("SELECT 1"));
    let bytes = |frames: &[wire::Frame]| -> Vec<u8> {
        frames.iter().flat_map(|(tag, body)| wire::frame(*tag, body)).collect()
    };
    assert_eq!(bytes(&client.until_ready().frames), ODD_ANSWER.concat());
    client.send_raw(&query("SELECT 2"));
    let mut heard = Vec::new();
    while let Ok(Some(frame)) = client.try_read_frame(PATIENCE) {
        heard.push(frame);
    }
    assert_eq!(bytes(&heard), ODD_END.concat());
}

/// An engine that is lost in the middle of a row: an error behind it would be read as the rest of
/// the row, and the row as a whole one.
#[test]
fn a_row_that_was_cut_has_no_error_in_it() {
    let site = Site::shared();
    site.setup("CREATE TABLE cut (n int)");
    let mut client = site.client();
    client.query("BEGIN").ok();
    client.query("INSERT INTO cut VALUES (1)").ok();
    let backend = client.query("SELECT pg_backend_pid()").ok().cell();
    // Longer than what sockets take while nobody reads: the engine stands in the middle of it.
    client.send_raw(&query("SELECT repeat('v', 100000000)"));
    assert_eq!(client.read_frame().0, b'T');
    site.sql(&format!("SELECT pg_terminate_backend({backend})"));
    while let Ok(frame) = client.try_read_frame(PATIENCE) {
        assert!(frame.is_none(), "the row came whole: {frame:?}");
    }
    // Behind the frame's header, the count of columns and the value's length.
    let row = client.unfinished().get(11..).unwrap_or_default();
    assert!(!row.is_empty() && row.iter().all(|byte| *byte == b'v'), "something else in the row");
}
