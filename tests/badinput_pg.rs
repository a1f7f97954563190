//! Bad input: whatever a client sends or doesn't, it gets a clean error or a close, memory stays
//! bounded, other sessions aren't disturbed, and nothing panics.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acceptance;
mod history;
mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use acceptance::{PATIENCE, Site};
use history::Dice;
use support::wire::{Failed, bind, execute, fields, frame, parse, query, sync};
use support::{Engine, PgCluster, Proxy, ProxyOptions, Wire, poll};

/// How long the proxy may take to end a connection that can't go on.
const CLOSE: Duration = Duration::from_secs(10);
/// The longest answer of a session that has nothing to do with it.
const UNDISTURBED: Duration = Duration::from_secs(5);
const MIB: u64 = 1024;

fn proxy(max_sessions: u32) -> Proxy {
    Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        proxy: format!("max_sessions = {max_sessions}\n"),
        ..ProxyOptions::default()
    })
}

/// Plays `bad` beside a session that goes on asking; then looks at memory and log.
fn beside(proxy: &Proxy, more_mib: u64, bad: impl FnOnce(&Site<'_>)) {
    let site = Site::new(PgCluster::shared(), proxy);
    let mut bystander = site.client();
    bystander.query("SELECT 1").ok();
    let before = proxy.resident_kib();
    let (stop, mut worst, mut most) = (AtomicBool::new(false), Duration::ZERO, 0);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut worst, mut most) = (Duration::ZERO, 0);
            while !stop.load(Ordering::SeqCst) {
                let asked = Instant::now();
                assert_eq!(bystander.query("SELECT 7").ok().cell(), "7");
                worst = worst.max(asked.elapsed());
                most = most.max(proxy.resident_kib());
            }
            (worst, most)
        });
        let played = std::panic::catch_unwind(AssertUnwindSafe(|| bad(&site)));
        stop.store(true, Ordering::SeqCst);
        if let Err(panic) = played {
            std::panic::resume_unwind(panic);
        }
        (worst, most) = watch.join().unwrap();
    });
    println!("worst answer beside it {worst:?}; memory {before} KiB, at most {most} KiB");
    assert!(worst < UNDISTURBED, "a session beside it waited {worst:?}");
    assert!(most < before + more_mib * MIB, "memory went from {before} to {most} KiB");
    no_panic(proxy);
}

fn no_panic(proxy: &Proxy) {
    assert!(proxy.exit_code().is_none(), "the proxy ended: {}", proxy.log_tail());
    let log = std::fs::read_to_string(proxy.log_file()).unwrap();
    assert!(!log.contains("panicked"), "{}", proxy.log_tail());
}

fn socket(proxy: &Proxy) -> TcpStream {
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(CLOSE)).unwrap();
    stream.set_write_timeout(Some(CLOSE)).unwrap();
    stream
}

/// Reads to the end; panics when there is none in time. A reset is an end.
#[track_caller]
fn read_to_end(mut stream: &TcpStream, what: &str) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            let limit = stream.read_timeout().unwrap();
            panic!("not closed within {limit:?}: {what}; it said {all:?}")
        }
        Err(_) => {}
    }
    all
}

fn untagged(body: &[u8]) -> Vec<u8> {
    frame(b'?', body)[1..].to_vec()
}

fn startup(parameters: &[u8]) -> Vec<u8> {
    untagged(&[&[0, 3, 0, 0], parameters].concat())
}

#[test]
fn garbage_before_the_startup_packet_ends_in_a_close() {
    let proxy = proxy(100);
    let code = |code: u32| untagged(&code.to_be_bytes());
    let (ssl, gss) = (code(80_877_103), code(80_877_104));
    let mut cases: Vec<(&str, Vec<u8>)> = vec![
        ("http", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("length 0", vec![0; 8]),
        ("length 7", vec![0, 0, 0, 7, 0, 3, 0, 0]),
        ("length 10005", vec![0, 0, 0x27, 0x15, 0, 3, 0, 0]),
        ("length -1", vec![0xFF; 8]),
        ("length i32::MAX", vec![0x7F, 0xFF, 0xFF, 0xFF, 0, 3, 0, 0]),
        ("a TLS hello that is none", vec![0x16, 3, 1, 0xFF, 0xFF, 1, 0, 0, 0]),
        ("no terminator", startup(b"user\0wire")),
        ("no user", startup(b"\0")),
        ("a name without a value", startup(b"user\0\0")),
        ("not UTF-8", startup(b"user\0\xFF\xFE\0database\0\xC3\x28\0\0")),
        ("no such database", startup(b"user\0wire\0database\0not here\0\0")),
        ("protocol 9.7", untagged(b"\x00\x09\x00\x07user\0wire\0\0")),
        ("protocol 2.0", untagged(b"\x00\x02\x00\x00user\0wire\0\0")),
        ("SSL twice", [ssl.clone(), ssl.clone()].concat()),
        ("GSS twice", [gss.clone(), gss.clone()].concat()),
        ("SSL, then garbage", [ssl, vec![0xAA; 64]].concat()),
        ("a cancel request without a key", code(80_877_102)),
        ("a cancel request with a wrong key", untagged(b"\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02")),
        (
            "a cancel request with a long key",
            untagged(&[&[4, 0xd2, 0x16, 0x2e][..], &[9; 900]].concat()),
        ),
    ];
    let mut dice = Dice::new(7);
    for _ in 0..200 {
        let length = usize::try_from(dice.below(300)).unwrap();
        cases.push(("dice", (0..length).map(|_| dice.next().to_le_bytes()[0]).collect()));
    }
    beside(&proxy, 32, |_| {
        for (what, bytes) in &cases {
            // The end of the client's side makes what is cut off final.
            let mut stream = socket(&proxy);
            drop(stream.write_all(bytes));
            drop(stream.shutdown(Shutdown::Write));
            let said = read_to_end(&stream, what);
            let clean = matches!(said.first(), None | Some(b'E' | b'N' | b'R' | b'v'));
            assert!(clean, "{what}: {:?}", String::from_utf8_lossy(&said));
        }
        // What can't be right is ended without waiting for more.
        for (what, bytes) in &cases[1..6] {
            let mut stream = socket(&proxy);
            stream.write_all(bytes).unwrap();
            read_to_end(&stream, what);
        }
    });
}

/// Sends bytes in a session and reads to an end: an error and a close, or errors and readiness.
fn in_session(site: &Site<'_>, what: &str, bytes: &[u8]) {
    let mut wire = site.client();
    // A Sync and a Terminate behind it: whoever takes it for a message ends with these.
    let all = [bytes, &sync()].concat();
    match wire.try_exchange(&all) {
        Ok(answer) => {
            assert!(answer.code().is_some(), "{what}: accepted: {answer:?}");
            wire.terminate();
        }
        Err(Failed::Closed(_)) => {}
        Err(Failed::Silent) => panic!("{what}: neither an answer nor a close"),
    }
}

#[test]
fn broken_messages_in_a_session_end_in_an_error_or_a_close() {
    let proxy = proxy(100);
    let raw =
        |tag: u8, length: u32, body: &[u8]| [&[tag][..], &length.to_be_bytes(), body].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("unknown type", frame(b'!', b"x")),
        ("type 0", frame(0, b"x")),
        ("type 255", frame(255, b"x")),
        ("an engine's message", frame(b'Z', b"I")),
        ("length 0", raw(b'Q', 0, b"")),
        ("length 3", raw(b'Q', 3, b"")),
        ("length -1", raw(b'Q', u32::MAX, b"")),
        ("length i32::MIN", raw(b'S', 1 << 31, b"")),
        ("over every bound", raw(b'Q', (1 << 30) + 70, b"")),
        ("a query without its end", frame(b'Q', b"SELECT 1")),
        ("an empty body", frame(b'Q', b"")),
        ("a query with bytes behind its end", frame(b'Q', b"SELECT 1\0SELECT 2\0")),
        ("a Parse of one name", frame(b'P', b"a\0")),
        ("a Parse without an end", frame(b'P', b"a")),
        ("an empty Bind", frame(b'B', b"")),
        ("a Bind cut short", frame(b'B', b"\0\0\0\x05")),
        ("a Bind of a missing statement", bind("", "none", &[])),
        ("an Execute without rows", frame(b'E', b"\0")),
        ("an Execute of a missing portal", execute("none", 0)),
        ("a Describe of nothing", frame(b'D', b"")),
        ("a Close of what isn't", frame(b'C', b"?x\0")),
        ("a function call of nothing", frame(b'F', b"")),
        ("a Sync with a body", frame(b'S', b"x")),
        ("a startup packet", startup(b"user\0wire\0\0")),
    ];
    beside(&proxy, 32, |site| {
        for (what, bytes) in &cases {
            in_session(site, what, bytes);
        }
        let mut dice = Dice::new(11);
        for _ in 0..60 {
            let length = usize::try_from(1 + dice.below(200)).unwrap();
            let bytes: Vec<u8> = (0..length).map(|_| dice.next().to_le_bytes()[0]).collect();
            let mut wire = site.client();
            wire.send_raw(&bytes);
            wire.half_close();
            assert!(wire.closed_within(CLOSE), "dice: not closed: {bytes:?}");
        }
        for cut in 1..=7 {
            let mut wire = site.client();
            wire.send_raw(&query("SELECT 1")[..cut]);
            wire.half_close();
            assert!(wire.closed_within(CLOSE), "not closed behind {cut} bytes of a query");
        }
        all_gone(site);
    });
}

/// Waits until only the bystander is left, at the proxy and at the engine.
fn all_gone(site: &Site<'_>) {
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE usename IN ('wire', 'app') AND datname = current_database()";
    site.wait_sql(sql, "1");
}

#[test]
fn a_long_message_is_not_kept_and_its_loss_ends_the_session() {
    let proxy = proxy(100);
    beside(&proxy, 48, |site| {
        for (tag, begin) in [(b'Q', &b"SELECT '"[..]), (b'P', b"\0SELECT '"), (b'B', b"\0none\0")] {
            let mut wire = site.client();
            let length = 900_u32 << 20;
            wire.send_raw(&[&[tag][..], &length.to_be_bytes(), begin].concat());
            let chunk = vec![b'x'; 1 << 20];
            for _ in 0..48 {
                wire.send_raw(&chunk);
            }
            wire.half_close();
            assert!(wire.closed_within(PATIENCE), "not closed: {}", char::from(tag));
        }
        all_gone(site);
    });
}

#[test]
fn a_half_closed_client_gets_its_answer_and_then_the_end() {
    let proxy = proxy(100);
    beside(&proxy, 32, |site| {
        let mut wire = site.client();
        wire.send_raw(&query("SELECT 5"));
        wire.half_close();
        assert_eq!(wire.until_ready().ok().cell(), "5");
        assert!(wire.closed_within(CLOSE), "not closed behind the answer");
        let mut idle = site.client();
        idle.half_close();
        assert!(idle.closed_within(CLOSE), "an idle one isn't closed");
        let mut open = site.client();
        open.query("BEGIN; INSERT INTO t VALUES (1)").ok();
        open.half_close();
        assert!(open.closed_within(CLOSE), "one in a transaction isn't closed");
        all_gone(site);
        assert_eq!(site.rows(), "", "the engine rolled the open transaction back");
    });
}

#[test]
fn a_client_that_never_reads_keeps_nothing_in_the_proxy() {
    let proxy = proxy(100);
    beside(&proxy, 32, |site| {
        // Long rows: what it counts is bytes, and each is read to its end once its client is gone.
        // Half a GB each, fifteen times what the proxy may keep, and no more: reading five times as
        // much to its end starves everybody on two busy cores.
        let huge = "SELECT repeat('x', 100000) FROM generate_series(1, 5000)";
        let mut greedy: Vec<Wire> = (0..5).map(|_| site.client()).collect();
        for one in &mut greedy {
            one.send_raw(&query(huge));
        }
        for one in &greedy {
            let writing = format!(
                "SELECT wait_event FROM pg_stat_activity WHERE pid = {}",
                one.backend_pid()
            );
            site.wait_sql(&writing, "ClientWrite");
        }
        // The engine stands, and so does the proxy: a session beside them gets through at once.
        for _ in 0..50 {
            site.client().query("SELECT 1").ok();
        }
        drop(greedy);
        all_gone(site);
    });
}

#[test]
fn ten_thousand_connections_over_the_limit_are_told_and_closed() {
    let proxy = proxy(50);
    beside(&proxy, 48, |site| {
        let mut held: Vec<Wire> = (0..49).map(|_| site.client()).collect();
        let body = [b"user\0wire\0database\0", site.db.as_bytes(), b"\0\0"].concat();
        let packet = startup(&body);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| refused_wave(&proxy, &packet, 50)));
            }
        });
        for one in &mut held {
            assert_eq!(one.query("SELECT 3").ok().cell(), "3");
        }
        drop(held);
        all_gone(site);
        site.client().query("SELECT 1").ok();
    });
}

/// Opens `count` connections at once; each must be refused as one too many.
fn refused_wave(proxy: &Proxy, packet: &[u8], count: usize) {
    let wave: Vec<TcpStream> = (0..count).map(|_| socket(proxy)).collect();
    for mut one in &wave {
        one.write_all(packet).unwrap();
    }
    for one in &wave {
        assert_eq!(sqlstate(&read_to_end(one, "one too many")), "53300");
    }
}

/// The SQLSTATE of what begins with an error.
fn sqlstate(said: &[u8]) -> String {
    assert_eq!(said.first(), Some(&b'E'), "{said:?}");
    fields(&said[5..]).remove(&'C').unwrap()
}

#[test]
fn clients_that_never_finish_their_login_count_and_hold_no_more_than_the_limit() {
    let proxy = proxy(20);
    let site = Site::new(PgCluster::shared(), &proxy);
    let body = [b"user\0app\0database\0", site.db.as_bytes(), b"\0\0"].concat();
    let packet = startup(&body);
    let mut waiting = Vec::new();
    let mut refused = 0;
    for _ in 0..60 {
        let mut stream = socket(&proxy);
        stream.write_all(&packet).unwrap();
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        match first[0] {
            b'R' => waiting.push(stream),
            b'E' => refused += 1,
            other => panic!("neither asked for a password nor refused: {other}"),
        }
    }
    assert_eq!((waiting.len(), refused), (20, 40), "logins that hold an engine connection");
    drop(waiting);
    // Their places are free again.
    let again = poll(PATIENCE, || {
        Wire::try_connect(proxy.port(), "wire", &site.db, &[]).ok().map(|mut wire| {
            wire.query("SELECT 1").ok();
        })
    });
    assert!(again.is_some(), "places of lost logins aren't given back");
    no_panic(&proxy);
}

#[test]
fn slow_startups_hold_no_place_and_end_at_the_bound() {
    let proxy = proxy(50);
    let packet = startup(b"user\0wire\0\0");
    beside(&proxy, 32, |site| {
        let slow: Vec<TcpStream> = (0..300).map(|_| socket(&proxy)).collect();
        for byte in &packet[..8] {
            for mut one in &slow {
                one.write_all(&[*byte]).unwrap();
            }
        }
        for _ in 0..20 {
            site.client().query("SELECT 1").ok();
        }
        // A login has a minute; then it is over, without a word.
        for one in &slow {
            one.set_read_timeout(Some(Duration::from_secs(150))).unwrap();
            assert_eq!(read_to_end(one, "a login without end"), b"");
        }
        all_gone(site);
    });
}

/// Preparing what is never run costs the proxy a bounded memory of names, too.
#[test]
fn names_without_end_are_bounded() {
    let proxy = proxy(50);
    beside(&proxy, 96, |site| {
        let mut wire = site.client();
        for round in 0..30 {
            let many: Vec<u8> = (0..500)
                .flat_map(|n| parse(&format!("{:0>60}", round * 500 + n), "BEGIN"))
                .collect();
            wire.send_raw(&[many, sync()].concat());
            wire.until_ready().ok();
        }
        wire.terminate();
        all_gone(site);
    });
}
