//! MariaDB's and MySQL's log, as SHOW BINLOG EVENTS shows it: row changes on either side of a
//! boundary.
//!
//! Purpose: pure. A transaction is named by its GTID event; it lies before the boundary when the
//! boundary's set holds that name. Called by `bank/mysql.rs`.

use std::collections::BTreeMap;

use super::checks::Changes;

/// One event of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Such as `Gtid`, `Update_rows_v1`.
    pub(super) kind: String,
    /// What the server says about it.
    pub(super) info: String,
}

/// A set of transactions: MySQL's `uuid:1-5:7,…`, or MariaDB's `domain-server-number,…`, which
/// stands for everything of that domain up to the number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Executed(BTreeMap<String, Vec<(u64, u64)>>);

/// A transaction's name: whose it is, and its number there.
fn name(text: &str) -> Option<(String, u64)> {
    if let Some((source, number)) = text.rsplit_once(':') {
        return Some((source.to_ascii_lowercase(), number.parse().ok()?));
    }
    let mut parts = text.split('-');
    let (domain, _server, number) = (parts.next()?, parts.next()?, parts.next()?);
    let whole = parts.next().is_none() && domain.parse::<u32>().is_ok();
    whole.then_some(())?;
    Some((domain.to_owned(), number.parse().ok()?))
}

impl Executed {
    /// Reads a set; `None` for what is none, an empty one included.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut sets: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for part in text.split(',').map(str::trim) {
            match part.split_once(':') {
                Some((source, ranges)) => {
                    for range in ranges.split(':') {
                        let (first, last) = range.split_once('-').unwrap_or((range, range));
                        let range = (first.parse().ok()?, last.parse().ok()?);
                        sets.entry(source.to_ascii_lowercase()).or_default().push(range);
                    }
                }
                None => {
                    let (domain, number) = name(part)?;
                    sets.entry(domain).or_default().push((0, number));
                }
            }
        }
        Some(Self(sets))
    }

    fn holds(&self, (source, number): &(String, u64)) -> bool {
        let ranges = self.0.get(source).map_or(&[][..], Vec::as_slice);
        ranges.iter().any(|(first, last)| (first..=last).contains(&number))
    }

    /// Whether the transaction is the last one of its source in the set.
    fn ends_with(&self, (source, number): &(String, u64)) -> bool {
        let ranges = self.0.get(source).map_or(&[][..], Vec::as_slice);
        ranges.iter().map(|(_, last)| last).max() == Some(number)
    }
}

/// The name in a GTID event: `SET @@SESSION.GTID_NEXT= 'uuid:5'`, or `BEGIN GTID 0-1-5`.
fn named(info: &str) -> Option<(String, u64)> {
    match info.split_once('\'') {
        Some((_, quoted)) => name(quoted.split_once('\'')?.0),
        None => name(info.split_whitespace().last()?),
    }
}

/// Counts events of row changes by their transaction. The boundary's marker counts as seen when
/// the last transaction of the set was: no other mark of it is in this log.
pub(super) fn changes_in(events: &[Event], boundary: &Executed) -> Changes {
    let mut changes = Changes::default();
    let mut before = true;
    for event in events {
        let rows = ["Write_rows", "Update_rows", "Delete_rows"];
        if event.kind.to_ascii_lowercase().starts_with("gtid") {
            if let Some(gtid) = named(&event.info) {
                before = boundary.holds(&gtid);
                changes.marker |= boundary.ends_with(&gtid);
            }
        } else if rows.iter().any(|kind| event.kind.starts_with(kind)) {
            if before {
                changes.before += 1;
            } else {
                changes.after += 1;
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn event(kind: &str, info: &str) -> Event {
        Event { kind: kind.to_owned(), info: info.to_owned() }
    }

    #[test]
    fn sets_hold_what_they_say() {
        let set = Executed::parse(&format!("{UUID}:1-5:7,0a11fa47-71ca-11e1-9e33-c80aa9429562:3"));
        let set = set.unwrap();
        let ours = |number| (UUID.to_owned(), number);
        assert!(set.holds(&ours(1)) && set.holds(&ours(5)) && set.holds(&ours(7)));
        assert!(!set.holds(&ours(6)) && !set.holds(&ours(8)) && !set.holds(&ours(0)));
        assert!(!set.holds(&("somebody".to_owned(), 1)));
        assert!(set.ends_with(&ours(7)) && !set.ends_with(&ours(5)));
        let set = Executed::parse("0-1-12,7-3-4").unwrap();
        assert!(set.holds(&("0".to_owned(), 12)) && !set.holds(&("0".to_owned(), 13)));
        assert!(set.holds(&("7".to_owned(), 4)) && !set.holds(&("1".to_owned(), 1)));
        for none in ["", "0/1A2B", "0-1", "a-b-c", "uuid:x", "1-2-3-4"] {
            assert_eq!(Executed::parse(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_change_counts_where_its_transaction_is() {
        let mysql = |number| {
            event("Gtid", &format!("SET @@SESSION.GTID_NEXT= '{}:{number}'", UUID.to_uppercase()))
        };
        let mariadb = |number| event("Gtid", &format!("BEGIN GTID 0-1-{number}"));
        let rows = |version: &str| {
            [
                event("Table_map", "table_id: 9 (bank.accounts)"),
                event(&format!("Update_rows{version}"), "table_id: 9 flags: STMT_END_F"),
                event(&format!("Write_rows{version}"), "table_id: 9 flags: STMT_END_F"),
                event("Xid", "COMMIT /* xid=9 */"),
            ]
        };
        let log = |name: &dyn Fn(u64) -> Event, version: &str| {
            let mut log = vec![event("Format_desc", "Server ver: 1"), name(4)];
            log.extend(rows(version));
            log.push(name(5));
            log.extend(rows(version));
            log
        };
        let of_mysql = Executed::parse(&format!("{UUID}:1-5")).unwrap();
        let of_mariadb = Executed::parse("0-1-5").unwrap();
        let expected = Changes { before: 4, after: 0, marker: true };
        assert_eq!(changes_in(&log(&mysql, ""), &of_mysql), expected);
        assert_eq!(changes_in(&log(&mariadb, "_v1"), &of_mariadb), expected);
        // Behind the boundary.
        let expected = Changes { before: 2, after: 2, marker: true };
        let of_mysql = Executed::parse(&format!("{UUID}:1-4")).unwrap();
        assert_eq!(changes_in(&log(&mysql, ""), &of_mysql), expected);
        // A log that doesn't reach it.
        assert!(!changes_in(&log(&mariadb, "_v1"), &Executed::parse("0-1-9").unwrap()).marker);
    }
}
