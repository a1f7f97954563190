//! Long commands, files and streams (W22), byte for byte.

use super::*;

/// Facts B32: the contents of a file are no commands, up to the empty packet.
#[test]
fn a_file_passes_until_its_empty_packet() {
    each(|stage| {
        let load = query("load data local infile 'x' into table t");
        stage.client(&load);
        assert_eq!(stage.sent(), load);
        stage.engine(&packet(1, b"\xfbx"));
        assert_eq!(stage.said(), packet(1, b"\xfbx"));
        let contents = [packet(2, b"\x03drop table t"), packet(3, b"")].concat();
        stage.client(&[contents.clone(), query("select 1")].concat());
        assert_eq!(stage.sent(), contents);
        stage.engine(&packet(4, &ok_payload(IDLE)));
        assert_eq!(stage.sent(), query("select 1"));
    });
}

/// What the proxy says in the middle of a result has the number that its client expects.
#[test]
fn w22_rows_that_were_stepped_over_count() {
    let answer = rows(b"1", IDLE);
    let (rows, _) = answer.split_at(answer.len() - packet(5, &[0; 5]).len());
    each(|stage| {
        stage.client(&query("select 1"));
        stage.engine(rows);
        assert_eq!(stage.said(), rows);
        assert_eq!(stage.conversation.next_sequence(), 5);
    });
}

/// Behind a value that the engine may have refused unasked an error isn't taken for a FETCH's, be
/// it behind no row or behind some: these show that the FETCH is what is answered.
#[test]
fn w22_an_unasked_error_is_looked_for_in_front_of_rows_only() {
    let long = command(0x18, &[1, 0, 0, 0, 0, 0, b'x']);
    let fetch = command(0x1c, &[1, 0, 0, 0, 1, 0, 0, 0]);
    let begun = || {
        let mut stage = Stage::new(1 << 20);
        stage.run(&prepare("select ?"), &prepared(1));
        stage.client(&[long.clone(), fetch.clone()].concat());
        stage
    };
    let refused = err(1, 1835, "Malformed communication packet");
    begun().faults(&refused);
    let mut stage = begun();
    let row = packet(1, b"\0\0\x011");
    stage.engine(&row);
    assert_eq!(stage.said(), row);
    stage.engine(&err(2, 1835, "Malformed communication packet"));
    assert_eq!(stage.told(), (1835, 2));
}

#[test]
fn a_long_refused_command_is_answered_behind_its_last_packet() {
    let mut stage = Stage::new(1 << 20);
    stage.close();
    let mut sql = b"\x03insert into t values ('".to_vec();
    sql.resize(PAYLOAD_MAX + 10, b'x');
    let bytes = packet(0, &sql);
    let (first, last) = bytes.split_at(frame::HEADER + PAYLOAD_MAX);
    stage.client(first);
    assert!(stage.said().is_empty());
    stage.client(last);
    assert!(stage.sent().is_empty());
    let said = stage.said();
    assert_eq!((u16::from_le_bytes([said[5], said[6]]), said[3]), (9708, 2));
    let text = String::from_utf8_lossy(&said[13..]).into_owned();
    assert!(text.contains("longer than the 1048575 bytes that are read here"), "{text}");
    for short in ["insert into t values (1)", "nonsense"] {
        stage.client(&query(short));
        let said = stage.said();
        assert_eq!(said[3], 1);
        assert!(!String::from_utf8_lossy(&said).contains("longer than"));
    }
}

#[test]
fn a_stream_passes_acknowledgements_and_nothing_else() {
    each(|stage| {
        let dump = command(0x12, b"\x04\0\0\0\0\0\x01\0\0\0bin.1");
        stage.client(&dump);
        assert_eq!(stage.sent(), dump);
        stage.engine(&packet(1, &[0; 30]));
        let acknowledged = packet(0, b"\xef\x04\0\0\0\0\0\0\0bin.1");
        stage.client(&acknowledged);
        assert_eq!(stage.sent(), acknowledged);
        stage.client(&query("insert into t values (1)"));
        assert!(stage.sent().is_empty());
        stage.engine(&packet(2, &[0xfe, 0, 0, 2, 0]));
        assert_eq!(stage.sent(), query("insert into t values (1)"));
    });
}

/// An engine that refuses the stream takes what follows for commands, and answers each.
#[test]
fn a_stream_that_has_not_begun_passes_nothing() {
    each(|stage| {
        stage.client(&command(0x12, b"\x04\0\0\0\0\0\x01\0\0\0bin.1"));
        stage.sent();
        stage.client(&packet(0, b"\xef\x04\0\0\0\0\0\0\0bin.1"));
        assert!(stage.sent().is_empty());
        stage.engine(&err(1, 1227, "Access denied"));
        assert!(!stage.sent().contains(&0xef), "as a command it is an unknown one");
    });
}
