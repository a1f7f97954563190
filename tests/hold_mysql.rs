//! Hold (wire.md W20, the end of W21) before MariaDB and MySQL 9: the twin of `hold_pg.rs`.
//!
//! Every wait here is for a level: how many programs the proxy says are held, what a client was
//! answered, what the engine's tables hold. Deadlines of a hold are either short and waited out by
//! the client's own reading, or longer than any test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use acceptance::sweep::Park;
use acceptance::{PATIENCE, applied, metric};
use acceptance_mysql::{MySite, code, on_both, thread};
use serde_json::{Value, json};
use support::my_wire::packets;
use support::proxy::uuid;
use support::{Engine, MyCluster, MyFlavour, MyWire, Proxy, ProxyOptions, poll};

on_both!(
    w20_a_release_admits_what_was_held,
    w20_what_waited_too_long_or_has_no_room_gets_zf010,
    w20_a_client_that_goes_takes_its_program_with_it,
    w20_a_kill_of_the_query_is_answered_here_and_one_of_the_connection_ends_it,
    w20_inside_a_transaction_nothing_is_held,
    w20_a_second_fence_judges_again,
    w20_a_stop_tells_the_held,
    w21_a_held_session_whose_route_moved_is_closed,
    many_small_commands_refused_at_once_are_answered_as_their_client_reads,
);

/// Longer than any test.
const LONG_MS: u64 = 600_000;

fn holding(hold_ms: u64) -> Value {
    json!({ "deadline_ms": 60_000, "on_deadline": "fail", "hold_ms": hold_ms })
}

/// A proven fence whose command holds programs this long; its operation.
#[track_caller]
fn fence(site: &MySite<'_>, hold_ms: u64) -> String {
    let operation = uuid();
    applied(&site.acquire(&site.acquire_body(&operation, &holding(hold_ms))));
    operation
}

fn held(seen: &Value) -> u64 {
    seen["fence"]["held"]["programs"].as_u64().unwrap()
}

#[track_caller]
fn wait_held(site: &MySite<'_>, count: u64) {
    site.wait(&format!("{count} programs are held"), |seen| held(seen) == count);
}

/// Sends an insert that is held, and waits until it is.
#[track_caller]
fn held_insert(site: &MySite<'_>, n: i64) -> MyWire {
    let before = held(&site.inspect());
    let mut client = site.client();
    client.begin_query(&format!("INSERT INTO t VALUES ({n})")).unwrap();
    wait_held(site, before + 1);
    client
}

fn proxy_with(cluster: &MyCluster, extra: &str, env: &[(&str, &str)]) -> Proxy {
    Proxy::start_with(ProxyOptions {
        engines: vec![Engine::my_plain("old", cluster)],
        extra: extra.to_owned(),
        env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        ..ProxyOptions::default()
    })
}

#[test]
fn the_default_holds_nothing() {
    let site = MySite::shared(MyFlavour::MariaDb);
    let operation = site.fence();
    assert_eq!(code(&site.client().query("INSERT INTO t VALUES (1)")), "ZF001");
    site.unfence(&operation);
}

fn w20_a_release_admits_what_was_held(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut prepared = site.client();
    let insert = prepared.prepare("INSERT INTO t VALUES (?)").unwrap().unwrap();
    let operation = fence(&site, LONG_MS);
    let mut others = vec![held_insert(&site, 1)];
    for (number, sql) in
        [(2, "/*!50000 INSERT INTO t VALUES (2) */"), (3, "CREATE TABLE t2 (n int)")]
    {
        let mut client = site.client();
        client.begin_query(sql).unwrap();
        others.push(client);
        wait_held(&site, number);
    }
    prepared.command(&insert.execute(&[Some("3")]));
    others.push(prepared);
    // Behind a guarded read: what the guard left is undone before the program goes on.
    let mut reader = site.client();
    assert_eq!(reader.query("SELECT count(*) FROM t").ok().cell(), "0");
    wait_held(&site, 4);
    reader.begin_query("INSERT INTO t VALUES (4)").unwrap();
    others.push(reader);
    wait_held(&site, 5);
    assert_eq!(site.rows(), "", "nothing of it is on the engine");
    assert!(metric(site.proxy, "fencewire_held_programs ") >= 5);
    site.unfence(&operation);
    for client in &mut others {
        client.answer(&[]).unwrap().ok();
        client.query("INSERT INTO t VALUES (9)").ok();
    }
    assert_eq!(site.rows(), "1,2,3,4,9,9,9,9,9");
    wait_held(&site, 0);
}

fn w20_what_waited_too_long_or_has_no_room_gets_zf010(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let proxy = proxy_with(cluster, "[fence]\nmax_held = 1\n", &[]);
    let site = MySite::new(cluster, &proxy);
    let operation = fence(&site, 200);
    let mut client = site.client();
    let answer = client.query("INSERT INTO t VALUES (1)");
    assert_eq!((code(&answer).as_str(), answer.code()), ("ZF010", 9710));
    let message = &answer.error.as_ref().unwrap().message;
    assert!(message.starts_with("FENCE_HOLD_EXPIRED: "), "{message}");
    // What is sent behind a held program waits for its own turn, with its own time.
    client.begin_query("INSERT INTO t VALUES (1)").unwrap();
    client.begin_query("SELECT 7").unwrap();
    assert_eq!(code(&client.answer(&[]).unwrap()), "ZF010");
    assert_eq!(client.answer(&[]).unwrap().ok().cell(), "7");
    site.unfence(&operation);

    let operation = fence(&site, LONG_MS);
    let mut first = held_insert(&site, 1);
    assert_eq!(code(&client.query("INSERT INTO t VALUES (2)")), "ZF010", "one is held");
    site.unfence(&operation);
    first.answer(&[]).unwrap().ok();
    client.query("INSERT INTO t VALUES (3)").ok();
    assert_eq!(site.rows(), "1,3");
}

fn w20_a_client_that_goes_takes_its_program_with_it(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let operation = fence(&site, LONG_MS);
    let gone = held_insert(&site, 1);
    let mut half_gone = held_insert(&site, 2);
    let mut stays = held_insert(&site, 3);
    let ids = [thread(&gone), thread(&half_gone)];
    drop(gone);
    wait_held(&site, 2);
    half_gone.shut();
    wait_held(&site, 1);
    let threads = format!(
        "SELECT count(*) FROM information_schema.PROCESSLIST WHERE ID IN ({}, {})",
        ids[0], ids[1]
    );
    site.wait_sql(&threads, "0");
    site.unfence(&operation);
    stays.answer(&[]).unwrap().ok();
    assert_eq!(site.rows(), "3");
}

fn w20_a_kill_of_the_query_is_answered_here_and_one_of_the_connection_ends_it(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let operation = fence(&site, LONG_MS);
    let mut other = site.client();
    let mut client = held_insert(&site, 4711);
    let id = thread(&client);
    other.query(&format!("KILL QUERY {id}")).ok();
    let answer = client.answer(&[]).unwrap();
    assert_eq!((code(&answer).as_str(), answer.code()), ("70100", 1317));
    wait_held(&site, 0);
    assert_eq!(client.query("SELECT 1").ok().cell(), "1", "and the session goes on");
    // Nobody else's.
    client.begin_query("INSERT INTO t VALUES (1)").unwrap();
    wait_held(&site, 1);
    other.query(&format!("KILL QUERY {}", thread(&other)));
    assert_eq!(held(&site.inspect()), 1);
    // The engine ends a whole connection, and the proxy what it held.
    let mut last = held_insert(&site, 2);
    other.query(&format!("KILL {id}")).ok();
    wait_held(&site, 1);
    assert!(client.answer(&[]).is_err() || client.is_over(), "it isn't over");
    match flavour {
        MyFlavour::MariaDb => {
            other.command(&[&[0x0c][..], &thread(&last).to_le_bytes()].concat());
            drop(other.packet());
        }
        // It has the opcode no longer.
        MyFlavour::MySql => drop(other.query(&format!("KILL {}", thread(&last))).ok()),
    }
    wait_held(&site, 0);
    assert!(last.answer(&[]).is_err() || last.is_over(), "it isn't over");
    site.unfence(&operation);
    assert_eq!(site.rows(), "");
}

fn w20_inside_a_transaction_nothing_is_held(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let mut open = site.client();
    open.query("BEGIN").ok();
    open.query("SELECT n FROM t").ok();
    let operation = fence(&site, LONG_MS);
    assert_eq!(code(&open.query("INSERT INTO t VALUES (1)")), "ZF001");
    open.query("ROLLBACK").ok();
    open.query("BEGIN").ok();
    assert_eq!(code(&open.query("INSERT INTO t VALUES (1)")), "ZF001");
    open.query("ROLLBACK").ok();
    open.begin_query("INSERT INTO t VALUES (2)").unwrap();
    wait_held(&site, 1);
    site.unfence(&operation);
    open.answer(&[]).unwrap().ok();
    assert_eq!(site.rows(), "2");
}

/// A program is held and called because its fence is lifted; before it moves, a second fence is
/// proven. Answers what its client got, and what the table held behind the second fence.
fn second_fence(flavour: MyFlavour, removed: bool) -> (String, String) {
    let cluster = MyCluster::shared(flavour);
    // Without the engine's lock the judgement is the only thing in the way.
    let mut proxy = proxy_with(cluster, "[fence]\nengine_lock = \"off\"\n", &[]);
    let more: &[(&str, &str)] =
        if removed { &[("FENCEWIRE_REMOVE", "held-judgement")] } else { &[] };
    let park = Park::arm_with(&mut proxy, "wire.before_second_judgement", more);
    let site = MySite::new(cluster, &proxy);
    let first = fence(&site, LONG_MS);
    let mut client = held_insert(&site, 1);
    site.unfence(&first);
    park.reached();
    let second = fence(&site, 0);
    park.open();
    let answer = client.answer(&[]).unwrap();
    let rows = site.rows();
    assert_eq!(site.state(), "SOURCE_WRITE_FENCED");
    site.unfence(&second);
    (code(&answer), rows)
}

fn w20_a_second_fence_judges_again(flavour: MyFlavour) {
    assert_eq!(second_fence(flavour, false), ("ZF001".to_owned(), String::new()));
    // Control arm: without the second judgement the write slips through behind the proof.
    assert_eq!(second_fence(flavour, true), (String::new(), "1".to_owned()));
}

fn w20_a_stop_tells_the_held(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let mut proxy = proxy_with(cluster, "", &[]);
    let site = MySite::new(cluster, &proxy);
    let db = site.db.clone();
    let operation = fence(&site, LONG_MS);
    let mut clients: Vec<MyWire> = (0..3).map(|n| held_insert(&site, n)).collect();
    assert_eq!(proxy.stop(), 0);
    for client in &mut clients {
        let answer = client.answer(&[]).unwrap();
        assert_eq!((code(&answer).as_str(), answer.code()), ("08S01", 1053));
        assert!(client.is_over());
    }
    proxy.restart();
    let site = MySite::at(cluster, &proxy, &db);
    assert_eq!((site.rows().as_str(), site.state().as_str()), ("", "SOURCE_WRITE_FENCED"));
    site.unfence(&operation);
}

fn w21_a_held_session_whose_route_moved_is_closed(flavour: MyFlavour) {
    let cluster = MyCluster::shared(flavour);
    let (from, to) = (cluster.fresh_db(), cluster.fresh_db());
    let route =
        |db: &str| format!("[[route]]\nname = \"shop\"\nengine = \"old\"\ndatabase = \"{db}\"\n");
    let proxy = proxy_with(cluster, &route(&from), &[]);
    let site = MySite::at(cluster, &proxy, &from);
    site.sql("CREATE TABLE t (n int)");
    let operation = fence(&site, LONG_MS);
    let mut moved = MyWire::connect(proxy.port(), "wire", "shop");
    moved.begin_query("INSERT INTO t VALUES (1)").unwrap();
    wait_held(&site, 1);
    let mut by_name = held_insert(&site, 2);
    let file = proxy.state_dir().parent().unwrap().join("fencewire.toml");
    let written = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, written.replace(&route(&from), &route(&to))).unwrap();
    let (status, body) = proxy.admin("POST", "/v1/reload", &Value::Null);
    assert_eq!(status, 200, "{body}");
    let answer = moved.answer(&[]).unwrap();
    assert_eq!((code(&answer).as_str(), answer.code()), ("08S01", 1053));
    assert!(poll(PATIENCE, || moved.is_over().then_some(())).is_some());
    wait_held(&site, 1);
    // Who came by the schema's own name has nothing to do with the route.
    site.unfence(&operation);
    by_name.answer(&[]).unwrap().ok();
    assert_eq!(site.rows(), "2");
}

/// More answers than a client takes at once are made as it takes them, in order, and then the
/// session goes on.
fn many_small_commands_refused_at_once_are_answered_as_their_client_reads(flavour: MyFlavour) {
    let site = MySite::shared(flavour);
    let operation = fence(&site, 0);
    let mut client = site.client();
    let (count, text) = (6_000, b"\x03INSERT INTO t VALUES (1)");
    let write = packets(text, &mut 0);
    client.send_raw(&[write.repeat(count), packets(b"\x03SELECT 'then'", &mut 0)].concat());
    for number in 0..count {
        let packet = client.packet();
        assert_eq!((packet.sequence, packet.payload[0]), (1, 0xff), "{number}");
    }
    assert_eq!(client.answer(&[]).unwrap().ok().cell(), "then");
    site.unfence(&operation);
    client.query("INSERT INTO t VALUES (2)").ok();
    assert_eq!(site.rows(), "2");
}
