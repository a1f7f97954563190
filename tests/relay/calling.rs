//! FunctionCall.

use super::{Case, Talk};
use crate::support::wire::{bind, execute, frame, parse, query, sync};

/// A call with these arguments (`None` is NULL), all and the result in one format.
pub(super) fn call(oid: u32, binary: bool, arguments: &[Option<&[u8]>]) -> Vec<u8> {
    let format = [0, u8::from(binary)];
    let mut body = oid.to_be_bytes().to_vec();
    body.extend_from_slice(&[0, 1]);
    body.extend_from_slice(&format);
    body.extend_from_slice(&u16::try_from(arguments.len()).unwrap().to_be_bytes());
    for argument in arguments {
        let length = argument.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap());
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(argument.unwrap_or_default());
    }
    body.extend_from_slice(&format);
    frame(b'F', &body)
}

const ABS: u32 = 1397;
const UPPER: u32 = 871;
const REPEAT: u32 = 1622;
const DIVIDE: u32 = 154;

fn calls(talk: &mut Talk, messages: &[Vec<u8>]) {
    for message in messages {
        talk.send(message);
        talk.ready(1);
    }
}

pub(super) fn values(talk: &mut Talk) {
    talk.start();
    let seven: &[u8] = &7_i32.to_be_bytes();
    let binary = [call(ABS, true, &[Some(seven)]), call(UPPER, true, &[Some(b"abc")])];
    calls(talk, &binary);
    calls(talk, &[call(UPPER, false, &[Some(b"abc")]), call(UPPER, false, &[None])]);
    calls(talk, &[call(REPEAT, false, &[Some(b"0123456789"), Some(b"300000")])]);
}

fn wrong(talk: &mut Talk) {
    talk.start();
    let by_zero: [Option<&[u8]>; 2] = [Some(b"1"), Some(b"0")];
    calls(talk, &[call(1, false, &[]), call(ABS, false, &[]), call(DIVIDE, false, &by_zero)]);
    calls(talk, &[call(ABS, true, &[Some(b"x")]), frame(b'F', b"\0\0")]);
    talk.ask(&["SELECT 1"]);
}

fn in_a_transaction(talk: &mut Talk) {
    talk.start();
    talk.ask(&["BEGIN"]);
    calls(talk, &[call(ABS, false, &[Some(b"-1")]), call(ABS, false, &[Some(b"x")])]);
    calls(talk, &[call(ABS, false, &[Some(b"-1")])]);
    talk.ask(&["ROLLBACK", "SELECT 1"]);
}

fn in_flight(talk: &mut Talk) {
    talk.start();
    let (good, bad) = (call(ABS, false, &[Some(b"-1")]), call(ABS, false, &[Some(b"x")]));
    let program = [parse("", "SELECT 2"), bind("", "", &[]), execute("", 0), sync()].concat();
    talk.send(&[good.clone(), bad, query("SELECT 1"), program, good].concat());
    talk.ready(5);
}

/// A large object made, written and read by calls, as one driver does it.
fn large_object(talk: &mut Talk) {
    talk.start();
    talk.ask(&["BEGIN", "SELECT lo_create(424242)"]);
    let oid: &[u8] = &424_242_u32.to_be_bytes();
    let mode: &[u8] = &0x6_0000_i32.to_be_bytes();
    let zero: &[u8] = &0_i32.to_be_bytes();
    let data = [b'l'; 5_000];
    let all: &[u8] = &6_000_i32.to_be_bytes();
    // lo_open, lowrite, lo_lseek, loread, lo_close, lo_unlink.
    calls(talk, &[call(952, true, &[Some(oid), Some(mode)])]);
    calls(talk, &[call(955, true, &[Some(zero), Some(&data)])]);
    calls(talk, &[call(956, true, &[Some(zero), Some(zero), Some(zero)])]);
    calls(talk, &[call(954, true, &[Some(zero), Some(all)]), call(953, true, &[Some(zero)])]);
    calls(talk, &[call(964, true, &[Some(oid)]), call(964, true, &[Some(oid)])]);
    talk.ask(&["ROLLBACK"]);
}

/// A call while messages of a pipeline wait for their Sync.
fn skipped(talk: &mut Talk) {
    talk.start();
    let failing = [parse("", "SELEC"), call(ABS, false, &[Some(b"-1")])].concat();
    talk.send(&[failing, sync(), query("SELECT 1")].concat());
    talk.ready(2);
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("call: values", values),
        Case::new("call: errors", wrong),
        Case::new("call: in a transaction", in_a_transaction),
        Case::new("call: several in flight", in_flight),
        Case::new("call: a large object", large_object),
        Case::new("call: skipped behind an error", skipped),
    ]
}
