//! Answers as engines send them, packet by packet, and where each of them ends.

use bytes::BytesMut;

use super::answers::{Change, Rules, Seen, Status, Tracker, changes};
use super::commands::Reply;
use super::frame::{HEADER, PAYLOAD_MAX, put};

const PLAIN: Rules =
    Rules { deprecate_eof: false, session_track: false, progress: false, metadata_byte: false };
const MODERN: Rules =
    Rules { deprecate_eof: true, session_track: true, progress: false, metadata_byte: false };

fn ok(status: u16) -> Vec<u8> {
    let [low, high] = status.to_le_bytes();
    vec![0, 0, 0, low, high, 0, 0]
}

fn eof(status: u16) -> Vec<u8> {
    let [low, high] = status.to_le_bytes();
    vec![0xfe, 0, 0, low, high]
}

fn ok_for_eof(status: u16) -> Vec<u8> {
    let mut packet = ok(status);
    packet[0] = 0xfe;
    packet
}

fn err(code: u16) -> Vec<u8> {
    let [low, high] = code.to_le_bytes();
    let mut packet = vec![0xff, low, high];
    packet.extend_from_slice(b"#HY000no");
    packet
}

fn column() -> Vec<u8> {
    b"\x03def\0\0\0\x01c\0\x0c".to_vec()
}

fn row() -> Vec<u8> {
    b"\x011".to_vec()
}

fn prepare_ok(id: u8, columns: u8, parameters: u8) -> Vec<u8> {
    vec![0, id, 0, 0, 0, columns, 0, parameters, 0, 0, 0, 0]
}

/// Runs packets through a tracker that skims what it can: behind each go it is where one is that
/// took packet by packet, whose states these are.
fn skimmed(mut tracker: Tracker, packets: &[Vec<u8>], states: &[String]) {
    let (mut bytes, mut begins) = (BytesMut::new(), Vec::new());
    for packet in packets {
        begins.push(bytes.len());
        let number = u8::try_from(begins.len()).unwrap();
        put(&mut bytes, number, packet);
    }
    let mut at = 0;
    while at < packets.len() {
        let rest = &bytes[begins[at]..];
        let inside = packets[at].len() + HEADER - 1;
        assert_eq!(tracker.skim(&rest[..inside]), None, "of {packets:02x?}, packet {at} cut");
        match tracker.skim(rest) {
            Some((length, number)) => {
                let ends = begins[at] + length;
                at = begins.iter().position(|begin| *begin == ends).unwrap_or(packets.len());
                assert_eq!(usize::from(number), at, "{packets:02x?}");
            }
            None => {
                let head = &packets[at][..packets[at].len().min(600)];
                tracker.packet(packets[at].len(), head).unwrap();
                at += 1;
            }
        }
        assert_eq!(format!("{tracker:?}"), states[at], "behind {at} of {packets:02x?}");
    }
}

/// Runs packets through a tracker: what the last one meant; none but the last may end it.
fn run(rules: Rules, reply: Reply, packets: &[Vec<u8>]) -> Seen {
    let mut tracker = Tracker::new(rules);
    tracker.expect(reply);
    let mut last = Seen::Within;
    let mut states = vec![format!("{tracker:?}")];
    for (at, packet) in packets.iter().enumerate() {
        assert!(tracker.is_owing(), "over before packet {at} of {packets:02x?}");
        let first = packet.first().copied().unwrap_or_default();
        let wants = tracker.wants(packet.len(), first);
        assert!(wants <= packet.len());
        last = tracker.packet(packet.len(), &packet[..wants]).unwrap();
        states.push(format!("{tracker:?}"));
    }
    let mut skims = Tracker::new(rules);
    skims.expect(reply);
    skimmed(skims, packets, &states);
    let over = match last {
        Seen::Done(_) | Seen::Failed(_) => true,
        Seen::Prepared { done, .. } => done,
        Seen::Within | Seen::Told(_) | Seen::FileWanted | Seen::LoginWanted | Seen::Farewell => {
            false
        }
    };
    assert_eq!(over, !tracker.is_owing(), "{packets:02x?}");
    last
}

fn done(status: u16) -> Seen {
    Seen::Done(Some(Status(status)))
}

/// Observed on MySQL 9.7: `CALL` prepared, with OUT parameters, without DEPRECATE_EOF.
#[test]
fn behind_a_procedures_parameters_comes_an_ok_that_is_not_announced() {
    let mut tracker = Tracker::new(Rules::default());
    tracker.expect(Reply::Results);
    for packet in
        [&b"\x01"[..], b"\x03def", b"\xfe\0\0\x0a\x10", b"\0\0\x02\0\0\0", b"\xfe\0\0\x02\0"]
    {
        let seen = tracker.packet(packet.len(), packet).unwrap();
        assert!(matches!(seen, Seen::Within | Seen::Told(_)), "{packet:?}: {seen:?}");
    }
    assert!(tracker.is_owing());
    let ok = b"\0\0\0\x02\0\0\0";
    assert_eq!(tracker.packet(ok.len(), ok), Ok(Seen::Done(Some(Status(2)))));
}

#[test]
fn one_packet_answers() {
    for rules in [PLAIN, MODERN] {
        assert_eq!(run(rules, Reply::Ok, &[ok(2)]), done(2));
        assert_eq!(run(rules, Reply::Ok, &[err(1045)]), Seen::Failed(1045));
        assert_eq!(run(rules, Reply::Results, &[ok(3)]), done(3));
        assert_eq!(run(rules, Reply::Results, &[err(1064)]), Seen::Failed(1064));
        assert_eq!(run(rules, Reply::Text, &[b"Uptime: 1".to_vec()]), Seen::Done(None));
        assert_eq!(run(rules, Reply::Text, &[b"\xfeptime".to_vec()]), Seen::Done(None));
    }
    // COM_SET_OPTION and COM_DEBUG: an EOF, or an OK in its place.
    assert_eq!(run(PLAIN, Reply::Ok, &[eof(2)]), done(2));
    assert_eq!(run(MODERN, Reply::Ok, &[ok_for_eof(2)]), done(2));
    assert_eq!(run(MODERN, Reply::Ok, &[eof(2)]), done(2));
}

/// MySQL bug 83346, reported as proxysql 3251 and 3296: rows from the query cache.
#[test]
fn an_eof_where_an_ok_was_agreed_on_is_told_by_its_length() {
    let packets = |end: Vec<u8>| [vec![1], column(), row(), end];
    assert_eq!(run(MODERN, Reply::Results, &packets(eof(2))), done(2));
    assert_eq!(run(MODERN, Reply::Results, &packets(ok_for_eof(2))), done(2));
    assert_eq!(run(MODERN, Reply::Results, &packets(eof(0x0a))), Seen::Told(Status(0x0a)));
}

#[test]
fn numbers_before_the_status_may_be_long() {
    let packet = [&b"\0\xfe\x01\x02\x03\x04\x05\x06\x07\x08\xfc\x01\x02"[..], &[3, 0, 0, 0]];
    assert_eq!(run(PLAIN, Reply::Ok, &[packet.concat()]), done(3));
}

#[test]
fn result_sets_end_at_the_second_eof_or_the_only_one() {
    let plain = [vec![2], column(), column(), eof(0x22), row(), row(), eof(2)];
    assert_eq!(run(PLAIN, Reply::Results, &plain), done(2));
    assert_eq!(run(PLAIN, Reply::Results, &plain[..4]), Seen::Told(Status(0x22)));
    let modern = [vec![2], column(), column(), row(), ok_for_eof(1)];
    assert_eq!(run(MODERN, Reply::Results, &modern), done(1));
    let none = [vec![1], column(), eof(2), eof(2)];
    assert_eq!(run(PLAIN, Reply::Results, &none), done(2));
    // MySQL bug 83346: an EOF out of the query cache where an OK was agreed on.
    let cached = [vec![1], column(), row(), eof(2)];
    assert_eq!(run(MODERN, Reply::Results, &cached), done(2));
}

/// And nothing else: what could be an end, or goes on in the next packet, is looked at by itself.
#[test]
fn rows_and_columns_are_skimmed_as_far_as_they_are_whole() {
    let bytes = |packets: &[Vec<u8>]| {
        let mut bytes = BytesMut::new();
        for (packet, number) in packets.iter().zip(1..) {
            put(&mut bytes, number, packet);
        }
        bytes
    };
    let begun = |rules, columns: u8| {
        let mut tracker = Tracker::new(rules);
        tracker.expect(Reply::Results);
        assert_eq!(tracker.skim(&bytes(&[vec![columns]])), None, "a number of columns");
        tracker.packet(1, &[columns]).unwrap();
        tracker
    };
    let three = [column(), column(), column()];
    // Where an EOF comes between, nothing behind the columns can be a row yet.
    assert_eq!(begun(PLAIN, 2).skim(&bytes(&three)), Some((bytes(&three[..2]).len(), 2)));
    assert_eq!(begun(MODERN, 2).skim(&bytes(&three)), Some((bytes(&three).len(), 3)));
    let long = vec![0xfe; 300];
    for other in [eof(2), ok_for_eof(2), err(1), long, vec![], vec![1; PAYLOAD_MAX]] {
        let mut tracker = begun(MODERN, 1);
        tracker.skim(&bytes(&[column()])).unwrap();
        assert_eq!(tracker.skim(&bytes(std::slice::from_ref(&other))), None);
        let rows = bytes(&[row(), vec![0xfb], row()]);
        let all = bytes(&[row(), vec![0xfb], row(), other, row()]);
        assert_eq!(tracker.skim(&all), Some((rows.len(), 3)));
    }
    // What else an answer consists of is none of its business.
    for reply in [Reply::Ok, Reply::Text, Reply::Definitions, Reply::Prepared, Reply::Login] {
        let mut tracker = Tracker::new(PLAIN);
        tracker.expect(reply);
        assert_eq!(tracker.skim(&bytes(&three)), None, "{reply:?}");
    }
    assert_eq!(Tracker::new(PLAIN).skim(&bytes(&three)), None, "nothing was asked");
}

#[test]
fn an_error_may_come_in_the_middle() {
    for end in [2, 3, 4] {
        let packets = [vec![1], column(), eof(2), row()];
        let mut packets = packets[..end].to_vec();
        packets.push(err(1317));
        assert_eq!(run(PLAIN, Reply::Results, &packets), Seen::Failed(1317));
    }
}

#[test]
fn several_results_are_one_answer() {
    let packets = [ok(0x0b), vec![1], column(), eof(9), row(), eof(0x0a), ok(2)];
    assert_eq!(run(PLAIN, Reply::Results, &packets), done(2));
    assert_eq!(run(PLAIN, Reply::Results, &packets[..1]), Seen::Told(Status(0x0b)));
    assert_eq!(run(PLAIN, Reply::Results, &packets[..6]), Seen::Told(Status(0x0a)));
    let failing = [ok(0x0b), err(1064)];
    assert_eq!(run(PLAIN, Reply::Results, &failing), Seen::Failed(1064));
}

/// A row may begin as an end of rows does: its length tells them apart.
#[test]
fn a_long_value_is_no_end() {
    let mut tracker = Tracker::new(MODERN);
    tracker.expect(Reply::Results);
    for packet in [vec![1], column()] {
        tracker.packet(packet.len(), &packet).unwrap();
    }
    let head = [&[0xfe][..], &(1_u64 << 24).to_le_bytes(), &[0; 23]].concat();
    assert_eq!(tracker.wants(PAYLOAD_MAX, 0xfe), 32);
    assert_eq!(tracker.packet(PAYLOAD_MAX, &head), Ok(Seen::Within));
    let end = ok_for_eof(2);
    assert_eq!(tracker.packet(end.len(), &end), Ok(done(2)));
    // Without CLIENT_DEPRECATE_EOF every packet of nine bytes or more is a row.
    let mut tracker = Tracker::new(PLAIN);
    tracker.expect(Reply::Rows);
    assert_eq!(tracker.packet(12, &[0xfe; 12]), Ok(Seen::Within));
    assert!(tracker.is_owing());
}

#[test]
fn prepared_statements_with_all_their_blocks() {
    let first = Seen::Prepared { id: 7, done: false };
    assert_eq!(
        run(PLAIN, Reply::Prepared, &[prepare_ok(7, 0, 0)]),
        Seen::Prepared { id: 7, done: true }
    );
    let parameters = [prepare_ok(7, 0, 2), column(), column(), eof(2)];
    assert_eq!(run(PLAIN, Reply::Prepared, &parameters), done(2));
    assert_eq!(run(PLAIN, Reply::Prepared, &parameters[..1]), first);
    let columns = [prepare_ok(7, 1, 0), column(), eof(2)];
    assert_eq!(run(PLAIN, Reply::Prepared, &columns), done(2));
    let both = [prepare_ok(7, 2, 1), column(), eof(2), column(), column(), eof(2)];
    assert_eq!(run(PLAIN, Reply::Prepared, &both), done(2));
    let modern = [prepare_ok(7, 2, 1), column(), column(), column()];
    assert_eq!(run(MODERN, Reply::Prepared, &modern), Seen::Done(None));
    assert_eq!(run(MODERN, Reply::Prepared, &[prepare_ok(7, 0, 1), column()]), Seen::Done(None));
    assert_eq!(run(PLAIN, Reply::Prepared, &[err(1064)]), Seen::Failed(1064));
}

#[test]
fn cursors_answer_without_rows_and_fetches_without_columns() {
    let opened = [vec![1], column(), eof(0x42)];
    assert_eq!(run(PLAIN, Reply::Results, &opened), done(0x42));
    let modern = [vec![1], column(), ok_for_eof(0x42)];
    assert_eq!(run(MODERN, Reply::Results, &modern), done(0x42));
    assert_eq!(run(PLAIN, Reply::Rows, &[row(), row(), eof(0x82)]), done(0x82));
    assert_eq!(run(MODERN, Reply::Rows, &[ok_for_eof(0x82)]), done(0x82));
    assert_eq!(run(MODERN, Reply::Rows, &[err(1421)]), Seen::Failed(1421));
}

#[test]
fn files_are_asked_for_and_answered_afterwards() {
    let asked = [b"\xfb/tmp/x".to_vec()];
    assert_eq!(run(PLAIN, Reply::Results, &asked), Seen::FileWanted);
    assert_eq!(run(PLAIN, Reply::Results, &[asked[0].clone(), ok(2)]), done(2));
    assert_eq!(run(PLAIN, Reply::Results, &[asked[0].clone(), err(1062)]), Seen::Failed(1062));
    let second = [ok(0x0a), asked[0].clone(), ok(2)];
    assert_eq!(run(PLAIN, Reply::Results, &second), done(2));
}

#[test]
fn progress_is_an_error_only_for_those_who_did_not_ask_for_it() {
    let rules = Rules { progress: true, ..PLAIN };
    let report = b"\xff\xff\xff\x01\x01\x01\0\0\0\x03abc".to_vec();
    let packets = [report.clone(), report.clone(), ok(2)];
    assert_eq!(run(rules, Reply::Results, &packets), done(2));
    assert_eq!(run(PLAIN, Reply::Results, &packets[..1]), Seen::Failed(0xffff));
}

#[test]
fn definitions_may_be_left_out() {
    let rules = Rules { metadata_byte: true, ..PLAIN };
    let with = [vec![1, 1], column(), eof(2), row(), eof(2)];
    assert_eq!(run(rules, Reply::Results, &with), done(2));
    let without = [vec![1, 0], eof(2), row(), eof(2)];
    assert_eq!(run(rules, Reply::Results, &without), done(2));
    let rules = Rules { metadata_byte: true, ..MODERN };
    assert_eq!(run(rules, Reply::Results, &[vec![1, 0], row(), ok_for_eof(2)]), done(2));
    let prepared = [&prepare_ok(1, 2, 2)[..], &[0]].concat();
    assert_eq!(run(rules, Reply::Prepared, &[prepared]), Seen::Prepared { id: 1, done: true });
}

#[test]
fn logins_streams_and_definitions() {
    assert_eq!(run(PLAIN, Reply::Login, &[ok(2)]), done(2));
    assert_eq!(run(PLAIN, Reply::Login, &[err(1045)]), Seen::Failed(1045));
    let switch = b"\xfemysql_native_password\0abc".to_vec();
    assert_eq!(run(PLAIN, Reply::Login, std::slice::from_ref(&switch)), Seen::LoginWanted);
    // caching_sha2_password: fast, and in full.
    assert_eq!(run(PLAIN, Reply::Login, &[switch.clone(), vec![1, 3]]), Seen::Within);
    assert_eq!(run(PLAIN, Reply::Login, &[switch.clone(), vec![1, 3], ok(2)]), done(2));
    assert_eq!(run(PLAIN, Reply::Login, &[switch, vec![1, 4]]), Seen::LoginWanted);
    let event = vec![0; 40];
    assert_eq!(run(PLAIN, Reply::Stream, &[event.clone(), event.clone()]), Seen::Within);
    assert_eq!(run(PLAIN, Reply::Stream, &[event.clone(), eof(2)]), done(2));
    assert_eq!(run(PLAIN, Reply::Stream, &[event, err(1236)]), Seen::Failed(1236));
    assert_eq!(run(PLAIN, Reply::Definitions, &[column(), column(), eof(2)]), done(2));
    assert_eq!(run(MODERN, Reply::Definitions, &[column(), ok_for_eof(2)]), done(2));
}

#[test]
fn what_nobody_asked_for_is_a_farewell_or_a_fault() {
    let mut tracker = Tracker::new(PLAIN);
    let packet = err(4031);
    assert_eq!(tracker.packet(packet.len(), &packet), Ok(Seen::Farewell));
    assert!(tracker.packet(7, &ok(2)).is_err());
    tracker.expect(Reply::None);
    assert!(!tracker.is_owing());
    for (reply, packet) in [
        (Reply::Ok, b"\x05hello".to_vec()),
        (Reply::Prepared, eof(2)),
        (Reply::Results, vec![0, 0, 0]),
        (Reply::Ok, Vec::new()),
    ] {
        let mut tracker = Tracker::new(PLAIN);
        tracker.expect(reply);
        assert!(tracker.packet(packet.len(), &packet).is_err(), "{reply:?} {packet:02x?}");
    }
}

#[test]
fn what_changed_is_read_to_its_end_and_no_further() {
    let mut packet = ok(0x4002);
    packet.push(0);
    let variables = b"\x0aautocommit\x03OFF\x01a\x01b";
    let mut all = vec![0, u8::try_from(variables.len()).unwrap()];
    all.extend_from_slice(variables);
    all.extend_from_slice(b"\x01\x04\x03app\x05\x09\x08T_______");
    packet.push(u8::try_from(all.len()).unwrap());
    packet.extend_from_slice(&all);
    let found: Vec<_> = changes(&packet).collect();
    assert_eq!(
        found,
        [
            Change::Variable(b"autocommit", b"OFF"),
            Change::Variable(b"a", b"b"),
            Change::Schema(b"app"),
            Change::Other,
        ]
    );
    for cut in 0..packet.len() {
        assert!(changes(&packet[..cut]).count() <= 4);
    }
    assert_eq!(changes(&ok(2)).count(), 0);
}
