//! LOAD DATA LOCAL: the engine asks, the client sends, in both directions' sequence.

use super::{Answer, Case, Talk};
use crate::support::my_wire::MyLogin;
use crate::support::my_wire::{flag, packets};

fn login(db: &str) -> MyLogin {
    MyLogin::of("wire", db).with(flag::LOCAL_FILES | flag::MULTI_STATEMENTS)
}

fn new_login(db: &str) -> MyLogin {
    login(db).with(flag::DEPRECATE_EOF | flag::SESSION_TRACK)
}

const LOAD: &str = "LOAD DATA LOCAL INFILE 'the file' INTO TABLE f";

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (profile, by) in [("old", login as fn(&str) -> MyLogin), ("new", new_login)] {
        let mut add = |name: &str, run: fn(&mut Talk)| {
            cases.push(Case::new(format!("files: {name}, {profile}"), run).by(by));
        };
        add("rows", |talk| {
            talk.files = vec![b"1\tone\n2\ttwo\n3\t\\N\n".to_vec()];
            talk.ask(&["DELETE FROM f", LOAD, "SELECT * FROM f ORDER BY n", "DELETE FROM f"]);
        });
        add("nothing", |talk| talk.ask(&["DELETE FROM f", LOAD, "SELECT count(*) FROM f"]));
        add("many packets", |talk| {
            talk.files = vec![b"5\tfive five five\n".repeat(20_000)];
            talk.ask(&["DELETE FROM f", LOAD, "SELECT count(*), sum(n) FROM f", "DELETE FROM f"]);
        });
        add("bad data", |talk| {
            talk.files = vec![b"x\ty\tz\n7\n".to_vec(), b"x\n".to_vec()];
            talk.ask(&["DELETE FROM f", LOAD, "SHOW WARNINGS", "DELETE FROM f"]);
            talk.ask(&["LOAD DATA LOCAL INFILE 'a' INTO TABLE nowhere", "SELECT 1"]);
        });
        add("among others", |talk| {
            talk.files = vec![b"1\ta\n".to_vec(), b"2\tb\n".to_vec()];
            let sql = format!("DELETE FROM f; {LOAD}; SELECT n FROM f; {LOAD}; SELECT 5");
            talk.ask(&[sql.as_str(), "SELECT count(*) FROM f", "DELETE FROM f"]);
        });
        add("in a transaction", |talk| {
            talk.files = vec![b"1\ta\n".to_vec()];
            talk.ask(&["BEGIN", LOAD, "ROLLBACK", "SELECT count(*) FROM f"]);
        });
        add("the next command behind it", |talk| {
            talk.query(LOAD.as_bytes());
            talk.packet();
            let mut bytes = Vec::new();
            let mut sequence = 2;
            bytes.extend(packets(b"1\ta\n", &mut sequence));
            bytes.extend(packets(&[], &mut sequence));
            bytes.extend(packets(&talk.query_payload(b"SELECT n FROM f"), &mut 0));
            talk.send_raw(&bytes);
            talk.read(Answer::Results);
            talk.read(Answer::Results);
            talk.ask(&["DELETE FROM f"]);
        });
        add("of the server's own", |talk| {
            talk.ask(&["LOAD DATA INFILE '/nowhere' INTO TABLE f", "SELECT LOAD_FILE('/nowhere')"]);
        });
    }
    cases.push(Case::new("files: not agreed on", |talk: &mut Talk| talk.ask(&[LOAD, "SELECT 1"])));
    cases
}
