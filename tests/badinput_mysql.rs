//! Bad input on the MySQL protocol: the twin of `badinput_pg`, before MariaDB and MySQL 9.
//!
//! Whatever a client sends or doesn't, it gets what the engine itself would say, a clean error or a
//! close; memory stays bounded, other sessions aren't disturbed, and nothing panics.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acceptance;
mod acceptance_mysql;
mod history;
mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use acceptance::PATIENCE;
use acceptance_mysql::{MySite, code, on_both};
use history::Dice;
use support::my_wire::{MyError, MyFailed, PACKET_MAX, USUAL, flag, packets};
use support::{Engine, MyCluster, MyFlavour, MyWire, Proxy, ProxyOptions, poll};

on_both!(
    garbage_before_the_login_ends_in_an_error_or_a_close,
    broken_commands_end_as_they_do_at_the_engine,
    commands_that_nobody_knows_are_refused_and_the_session_goes_on,
    noise_and_cut_off_commands_end_in_a_close,
    a_long_command_is_not_kept_and_its_loss_ends_the_session,
    a_half_closed_client_gets_its_answer_and_then_the_end,
    a_client_that_never_reads_keeps_nothing_in_the_proxy,
    connections_over_the_limit_are_told_1040_and_closed,
    clients_that_never_finish_their_login_hold_no_more_than_the_limit,
    statements_without_end_are_bounded,
);

/// How long the proxy may take to end a connection that can't go on.
const CLOSE: Duration = Duration::from_secs(30);
/// The longest answer of a session that has nothing to do with it.
const UNDISTURBED: Duration = Duration::from_secs(20);
const MIB: u64 = 1024;

fn proxy(flavour: MyFlavour, max_sessions: u32) -> Proxy {
    Proxy::start_with(ProxyOptions {
        engines: vec![Engine::my_plain("old", MyCluster::shared(flavour))],
        proxy: format!("max_sessions = {max_sessions}\n"),
        ..ProxyOptions::default()
    })
}

/// Plays `bad` beside a session that goes on asking; then looks at memory and log.
fn beside(proxy: &Proxy, flavour: MyFlavour, more_mib: u64, bad: impl FnOnce(&MySite<'_>)) {
    let site = MySite::new(MyCluster::shared(flavour), proxy);
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

fn socket(port: u16) -> TcpStream {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
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
            panic!("not closed within {CLOSE:?}: {what}; it said {all:?}")
        }
        Err(_) => {}
    }
    all
}

/// Waits for the end of a session; what comes before it is thrown away.
#[track_caller]
fn over(wire: &mut MyWire, what: &str) {
    wire.socket().set_read_timeout(Some(CLOSE)).unwrap();
    loop {
        match wire.read() {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("not closed within {CLOSE:?}: {what}")
            }
            Err(_) => return,
        }
    }
}

/// The payloads of what was said, as far as they are whole.
fn payloads(mut said: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let [a, b, c, _, rest @ ..] = said {
        let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        let Some((payload, behind)) = rest.split_at_checked(length) else { break };
        all.push(payload);
        said = behind;
    }
    all
}

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    packets(payload, &mut { sequence })
}

fn login(bits: u32, tail: &[u8]) -> Vec<u8> {
    let head = [0, 0, 0, 1, 45].into_iter().chain([0; 23]);
    let payload: Vec<u8> =
        bits.to_le_bytes().into_iter().chain(head).chain(tail.iter().copied()).collect();
    packet(1, &payload)
}

/// A dice's worth of bytes, shorter than `below`.
fn noise(dice: &mut Dice, below: u64) -> Vec<u8> {
    let length = usize::try_from(1 + dice.below(below)).unwrap();
    (0..length).map(|_| dice.next().to_le_bytes()[0]).collect()
}

/// What can't become a login however it goes on, and is ended without waiting for more.
fn hopeless() -> Vec<(&'static str, Vec<u8>)> {
    let lenenc = USUAL | flag::PLUGIN_AUTH_LENENC;
    vec![
        ("http", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("the longest length", vec![0xFF; 8]),
        ("longer than a login may be", vec![1, 0, 2, 1, 0, 0]),
        ("nothing", packet(1, b"")),
        ("three bytes", packet(1, b"abc")),
        ("a command", packet(0, b"\x03SELECT 1")),
        ("an old protocol", login(USUAL & !flag::PROTOCOL_41, b"wire\0\0")),
        ("no user", login(USUAL, b"")),
        ("a user without an end", login(USUAL, b"wire")),
        ("a proof longer than the packet", login(USUAL, b"wire\0\x40xyz")),
        ("a proof of terabytes", login(lenenc, b"wire\0\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7Fx")),
        ("a proof whose length is NULL", login(lenenc, b"wire\0\xFBx")),
        ("TLS where there is none", login(USUAL | flag::SSL, b"")),
        (
            "a database that isn't UTF-8",
            login(USUAL | flag::CONNECT_WITH_DB, b"wire\0\0\xC3\x28\0mysql_native_password\0"),
        ),
        (
            "a database that isn't there",
            login(USUAL | flag::CONNECT_WITH_DB, b"wire\0\0nowhere\0mysql_native_password\0"),
        ),
    ]
}

fn garbage_before_the_login_ends_in_an_error_or_a_close(flavour: MyFlavour) {
    let proxy = proxy(flavour, 100);
    let mut cases = hopeless();
    cases.extend([
        ("half a header", vec![10, 0]),
        ("a login cut off", login(USUAL, b"wire\0\0")[..20].to_vec()),
        ("attributes longer than the packet", {
            login(USUAL | flag::CONNECT_ATTRS, b"wire\0\0mysql_native_password\0\xFC\xFF\xFFx")
        }),
        ("a method nobody knows", login(USUAL, b"nobody\0\0no_such_method\0")),
        ("a wrong number", packet(77, &login(USUAL, b"nobody\0\x01x\0")[4..])),
        ("two logins", login(USUAL, b"nobody\0\x01x\0").repeat(2)),
    ]);
    let mut dice = Dice::new(7);
    for _ in 0..100 {
        cases.push(("noise", noise(&mut dice, 300)));
        let body = noise(&mut dice, 120);
        cases.push(("noise in a packet", packet(1, &body)));
        cases.push(("noise in a login", login(USUAL, &body)));
    }
    beside(&proxy, flavour, 32, |site| {
        for (what, bytes) in &cases {
            // The end of the client's side makes what is cut off final.
            let mut stream = socket(proxy.port());
            drop(stream.write_all(bytes));
            drop(stream.shutdown(Shutdown::Write));
            let said = read_to_end(&stream, what);
            // A greeting; a request to go on with the login; an error at the end.
            let said = payloads(&said);
            let first = |payload: &&[u8]| payload.first().copied();
            let greeted = said.first().is_none_or(|p| matches!(first(p), Some(10)));
            let clean = said.iter().skip(1).all(|p| matches!(first(p), Some(1 | 0xFE | 0xFF)));
            assert!(greeted && clean, "{what}: {said:?}");
        }
        for (what, bytes) in &hopeless() {
            let mut stream = socket(proxy.port());
            stream.write_all(bytes).unwrap();
            read_to_end(&stream, what);
        }
        site.client().query("SELECT 1").ok();
    });
}

/// What comes of bytes sent in a session: the first answer, and whether a ping is answered then.
///
/// Where the engine waits for more, nothing comes until the client's side has ended.
fn outcome(wire: &mut MyWire, bytes: &[u8]) -> String {
    wire.socket().set_read_timeout(Some(CLOSE)).unwrap();
    if wire.try_send_raw(bytes).is_err() {
        return "closed".to_owned();
    }
    let said = match wire.read() {
        Ok(packet) => match packet.payload.first() {
            Some(0xFF) => format!("error {}", MyError::parse(&packet.payload).code),
            other => format!("answer {other:?}"),
        },
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("neither an answer nor a close: {bytes:?}")
        }
        Err(_) => return "closed".to_owned(),
    };
    let open = wire.try_send_raw(&packet(0, &[14])).is_ok() && wire.read().is_ok();
    format!("{said}, {}", if open { "goes on" } else { "closed" })
}

/// Commands that are no good, by themselves or by their packets, and are all answered.
fn broken_commands() -> Vec<(&'static str, Vec<u8>)> {
    let command = |opcode: u8, argument: &[u8]| packet(0, &[&[opcode], argument].concat());
    vec![
        ("a query of nothing", command(3, b"")),
        ("a query that isn't UTF-8", command(3, b"SELECT '\xC3\x28', \xFF\xFE")),
        ("a query of NULs", command(3, &[0; 30])),
        ("a query numbered 1", packet(1, b"\x03SELECT 1")),
        ("a query numbered 255", packet(255, b"\x03SELECT 1")),
        ("a ping numbered 9", packet(9, b"\x0e")),
        ("a ping with a body", command(14, b"body")),
        ("a prepare of nothing", command(0x16, b"")),
        ("an execute of nothing", command(0x17, b"")),
        ("an execute with half a number", command(0x17, b"\x01\0")),
        ("an execute without flags", command(0x17, b"\x01\0\0\0")),
        ("an execute of what isn't", command(0x17, b"\xFF\xFF\xFF\x7F\0\x01\0\0\0")),
        ("a reset of what isn't", command(0x1a, b"\x63\0\0\0")),
        ("a fetch of what isn't", command(0x1c, b"\x63\0\0\0\x01\0\0\0")),
        ("a schema without a name", command(2, b"")),
        ("a schema that isn't there", command(2, b"nowhere")),
        ("a schema that isn't UTF-8", command(2, b"\xC3\x28\xFF")),
        ("an option nobody knows", command(0x1b, b"\x63\0")),
        ("columns of a table without an end", command(4, b"nowhere")),
        ("a kill of what isn't", command(0x0c, b"\xFF\xFF\xFF\x7F")),
    ]
}

fn broken_commands_end_as_they_do_at_the_engine(flavour: MyFlavour) {
    let proxy = proxy(flavour, 100);
    beside(&proxy, flavour, 32, |site| {
        for (what, bytes) in &broken_commands() {
            let directly = outcome(&mut site.direct(), bytes);
            assert_eq!(outcome(&mut site.client(), bytes), directly, "{what}");
        }
        all_gone(site);
    });
}

fn commands_that_nobody_knows_are_refused_and_the_session_goes_on(flavour: MyFlavour) {
    let proxy = proxy(flavour, 100);
    beside(&proxy, flavour, 32, |site| {
        let mut wire = site.client();
        let known = [0x01..=0x0a, 0x0c..=0x0e, 0x11..=0x12, 0x15..=0x1c, 0x1e..=0x1f, 0xfa..=0xfa];
        for opcode in 0..=u8::MAX {
            if known.iter().any(|some| some.contains(&opcode)) {
                continue;
            }
            for argument in [&b""[..], b"SELECT 1"] {
                wire.command(&[&[opcode], argument].concat());
                let packet = wire.packet();
                assert_eq!(packet.payload.first(), Some(&0xFF), "{opcode:#04x}: {packet:?}");
                let error = MyError::parse(&packet.payload);
                let found = (error.code, error.state.as_str(), packet.sequence);
                assert_eq!(found, (1047, "08S01", 1), "{opcode:#04x}: {error:?}");
            }
        }
        // A command without a byte is one of these.
        wire.send_raw(&[0, 0, 0, 0]);
        assert_eq!(MyError::parse(&wire.packet().payload).code, 1047);
        assert_eq!(wire.query("SELECT 5").ok().cell(), "5");
    });
}

fn noise_and_cut_off_commands_end_in_a_close(flavour: MyFlavour) {
    let proxy = proxy(flavour, 100);
    beside(&proxy, flavour, 32, |site| {
        let mut dice = Dice::new(11);
        for round in 0..60 {
            let bytes = noise(&mut dice, 200);
            let bytes = if round % 2 == 0 { bytes } else { packet(0, &bytes) };
            let mut wire = site.client();
            drop(wire.try_send_raw(&bytes));
            drop(wire.socket().shutdown(Shutdown::Write));
            over(&mut wire, &format!("noise {bytes:?}"));
        }
        let whole = packet(0, b"\x03SELECT 1");
        for cut in 1..whole.len() {
            let mut wire = site.client();
            wire.send_raw(&whole[..cut]);
            wire.shut();
            over(&mut wire, &format!("{cut} bytes of a query"));
        }
        all_gone(site);
    });
}

/// Waits until only the bystander is left at the engine.
fn all_gone(site: &MySite<'_>) {
    let sql = format!(
        "SELECT count(*) FROM information_schema.PROCESSLIST WHERE USER = 'wire' AND DB = '{}'",
        site.db
    );
    site.wait_sql(&sql, "1");
}

/// The start of a payload of `count` packets that are all full, so that it must go on.
fn endless(first: &[u8], count: u8, mut send: impl FnMut(&[u8]) -> std::io::Result<()>) {
    for sequence in 0..count {
        let mut full = vec![b'x'; 4 + PACKET_MAX];
        full[..4].copy_from_slice(&[0xFF, 0xFF, 0xFF, sequence]);
        if sequence == 0 {
            full[4..4 + first.len()].copy_from_slice(first);
        }
        if send(&full).is_err() {
            // The engine takes no more than it is set to: that is an end, too.
            return;
        }
    }
}

fn a_long_command_is_not_kept_and_its_loss_ends_the_session(flavour: MyFlavour) {
    let proxy = proxy(flavour, 100);
    beside(&proxy, flavour, 48, |site| {
        for begin in [&b"\x03SELECT '"[..], b"\x16SELECT '", b"\x17\x63\0\0\0", b"\x99nobody's"] {
            let mut wire = site.client();
            endless(begin, 4, |bytes| wire.try_send_raw(bytes));
            drop(wire.socket().shutdown(Shutdown::Write));
            over(&mut wire, &begin.escape_ascii().to_string());
        }
        // What is refused is thrown away as it comes, and the session goes on behind it.
        let operation = site.fence();
        let mut wire = site.client();
        endless(b"\x03INSERT INTO t VALUES ('", 3, |bytes| wire.try_send_raw(bytes));
        wire.send_raw(&[0, 0, 0, 3]);
        let packet = wire.packet();
        let error = MyError::parse(&packet.payload);
        // Only the head of a statement this long is read, so nothing can be shown of it.
        assert_eq!((error.state.as_str(), packet.sequence), ("ZF008", 4), "{error:?}");
        assert_eq!(wire.query("SELECT 1").ok().cell(), "1");
        drop(wire);
        site.unfence(&operation);
        all_gone(site);
        assert_eq!(site.rows(), "");
    });
}

fn a_half_closed_client_gets_its_answer_and_then_the_end(flavour: MyFlavour) {
    let proxy = proxy(flavour, 100);
    beside(&proxy, flavour, 32, |site| {
        let mut wire = site.client();
        wire.begin_query("SELECT 5").unwrap();
        wire.shut();
        assert_eq!(wire.answer(&[]).unwrap().ok().cell(), "5");
        over(&mut wire, "behind the answer");
        let mut idle = site.client();
        idle.shut();
        over(&mut idle, "an idle one");
        let mut open = site.client();
        open.query("BEGIN").ok();
        open.query("INSERT INTO t VALUES (1)").ok();
        open.shut();
        over(&mut open, "one in a transaction");
        all_gone(site);
        assert_eq!(site.rows(), "", "the engine rolled the open transaction back");
    });
}

fn a_client_that_never_reads_keeps_nothing_in_the_proxy(flavour: MyFlavour) {
    let proxy = proxy(flavour, 100);
    beside(&proxy, flavour, 32, |site| {
        site.sql("CREATE TABLE d (n int); INSERT INTO d VALUES (0),(1),(2),(3),(4),(5),(6),(7)");
        // A hundred megabytes: more than sockets take, and the engine's to send to the end.
        let huge = "SELECT REPEAT('x', 3000) FROM d a, d b, d c, d e, d f";
        let mut greedy: Vec<MyWire> = (0..5).map(|_| site.client()).collect();
        for one in &mut greedy {
            one.begin_query(huge).unwrap();
        }
        // A client whose pings are all answered, and that never looks: nothing is read of it any
        // more once the answers don't go out, and so its own writing comes to a stand.
        let mut pinger = site.client().socket().try_clone().unwrap();
        pinger.set_nonblocking(true).unwrap();
        let pings = packet(0, &[14]).repeat(10_000);
        let mut sent = 0;
        while let Ok(more) = pinger.write(&pings) {
            sent += more;
            assert!(sent < 256 << 20, "the proxy takes pings without end");
        }
        // Much more was made by the engine than any socket takes: all stand, the proxy too.
        let standing = poll(PATIENCE, || {
            let before: Vec<u64> = greedy.iter().map(waiting).collect();
            site.client().query("SELECT 1").ok();
            let after: Vec<u64> = greedy.iter().map(waiting).collect();
            (before == after && before.iter().all(|bytes| *bytes > 0)).then_some(())
        });
        assert!(standing.is_some(), "the sockets don't come to a stand");
        for _ in 0..50 {
            site.client().query("SELECT 1").ok();
        }
        drop((greedy, pinger));
        all_gone(site);
    });
}

/// Bytes that wait in a client's socket, as far as a look into it without taking them tells.
fn waiting(wire: &MyWire) -> u64 {
    let mut room = vec![0; 8 << 20];
    wire.socket().peek(&mut room).map_or(0, |bytes| bytes as u64)
}

fn connections_over_the_limit_are_told_1040_and_closed(flavour: MyFlavour) {
    let proxy = proxy(flavour, 30);
    beside(&proxy, flavour, 48, |site| {
        let mut held: Vec<MyWire> = (0..29).map(|_| site.client()).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| refused_wave(&proxy, 25)));
            }
        });
        for one in &mut held {
            assert_eq!(one.query("SELECT 3").ok().cell(), "3");
        }
        drop(held);
        all_gone(site);
        let again = poll(PATIENCE, || MyWire::open(proxy.port()).ok());
        assert!(again.is_some(), "places of ended sessions aren't given back");
    });
}

/// Opens `count` connections at once; each must be refused as one too many.
fn refused_wave(proxy: &Proxy, count: usize) {
    let wave: Vec<TcpStream> = (0..count).map(|_| socket(proxy.port())).collect();
    for one in &wave {
        let said = read_to_end(one, "one too many");
        let said = payloads(&said);
        let [error] = said[..] else { panic!("not one packet: {said:?}") };
        assert_eq!(error.first(), Some(&0xFF), "{error:?}");
        let error = MyError::parse(error);
        // Before the greeting there is no SQLSTATE in an error.
        assert_eq!((error.code, error.state.as_str()), (1040, ""), "{error:?}");
    }
}

fn clients_that_never_finish_their_login_hold_no_more_than_the_limit(flavour: MyFlavour) {
    let proxy = proxy(flavour, 20);
    beside(&proxy, flavour, 32, |site| {
        let mut waiting = Vec::new();
        let mut refused = 0;
        for _ in 0..60 {
            match MyWire::open(proxy.port()) {
                Ok(greeted) => waiting.push(greeted),
                Err(MyFailed::Refused(error)) => {
                    assert_eq!(error.code, 1040, "{error:?}");
                    refused += 1;
                }
                Err(MyFailed::Closed(error)) => panic!("closed without a word: {error}"),
            }
        }
        assert_eq!((waiting.len(), refused), (19, 41), "logins that hold an engine connection");
        // Byte by byte, and never to the end.
        for byte in &login(USUAL, b"wire\0\0")[..8] {
            for one in &mut waiting {
                one.send_raw(&[*byte]);
            }
        }
        // A login has a minute; then it is over.
        for one in &mut waiting {
            one.socket().set_read_timeout(Some(Duration::from_secs(150))).unwrap();
            assert!(one.is_over(), "a login without end isn't ended");
        }
        drop(waiting);
        // Their places are free again.
        let again = poll(PATIENCE, || {
            let wire =
                MyWire::login(proxy.port(), &support::my_wire::MyLogin::of("wire", &site.db));
            wire.ok().map(|mut wire| wire.query("SELECT 1").ok())
        });
        assert!(again.is_some(), "places of lost logins aren't given back");
        all_gone(site);
    });
}

/// Preparing what is never run nor closed costs the proxy a bounded memory of numbers, too.
fn statements_without_end_are_bounded(flavour: MyFlavour) {
    let proxy = proxy(flavour, 50);
    beside(&proxy, flavour, 64, |site| {
        let mut wire = site.client();
        let mut last = None;
        for n in 0..3000 {
            last = Some(wire.prepare(&format!("INSERT INTO t VALUES ({n})")).unwrap().unwrap());
        }
        // What was forgotten is unknown, and what is unknown is no read.
        let operation = site.fence();
        wire.command(&last.unwrap().execute(&[]));
        assert_eq!(code(&wire.answer(&[]).unwrap()), "ZF001");
        site.unfence(&operation);
        drop(wire);
        all_gone(site);
        assert_eq!(site.rows(), "");
    });
}
