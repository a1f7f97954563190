//! Who an engine is, and values measured by its own clock and log.
//!
//! Purpose: positions and times of one engine are types of their own, so that they are never mixed
//! with this process's clock. No I/O here; `engine::postgres` reads them.

use std::fmt;

/// An instant of the engine's clock: microseconds since 1970-01-01 UTC, as the engine counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineTime(pub i64);

impl EngineTime {
    /// Milliseconds from `earlier` to this instant; 0 when `earlier` is later.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0) / 1000).unwrap_or(0)
    }
}

/// A position in one engine's write-ahead log; comparable within one engine and timeline only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Reads the `16/B374D848` form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (high, low) = text.split_once('/')?;
        let high = u32::from_str_radix(high, 16).ok()?;
        let low = u32::from_str_radix(low, 16).ok()?;
        Some(Self((u64::from(high) << 32) | u64::from(low)))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

/// One backend process. The pid alone is reused by the system; with its start time it is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BackendKey {
    /// The process id.
    pub pid: i32,
    /// When it started.
    pub backend_start: EngineTime,
}

/// What identifies a running engine, and one of its databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveIdentity {
    /// The cluster's system identifier, as text.
    pub engine_id: String,
    /// The timeline it writes (or, in recovery, follows).
    pub timeline: i32,
    /// The database's object id: a database dropped and made anew has another.
    pub database_id: String,
    /// When the server was started.
    pub server_start: EngineTime,
    /// Whether it is a standby.
    pub in_recovery: bool,
    /// Such as 150018.
    pub server_version_num: i32,
}

impl LiveIdentity {
    /// The first difference that voids a drain, in words; `None` when it is the same engine.
    #[must_use]
    pub fn difference(&self, now: &Self) -> Option<String> {
        if self.engine_id != now.engine_id {
            Some(format!("system identifier {} became {}", self.engine_id, now.engine_id))
        } else if self.timeline != now.timeline {
            Some(format!("timeline {} became {}", self.timeline, now.timeline))
        } else if self.server_start != now.server_start {
            Some("the server was restarted".to_owned())
        } else if self.database_id != now.database_id {
            Some("the database was dropped and made anew".to_owned())
        } else if now.in_recovery {
            Some("it is a standby now".to_owned())
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_reads_and_prints_the_engine_form() {
        let lsn = Lsn::parse("16/B374D848").unwrap();
        assert_eq!(lsn, Lsn(0x16_B374_D848));
        assert_eq!(lsn.to_string(), "16/B374D848");
        assert!(Lsn::parse("16/100000000").is_none() && Lsn::parse("16").is_none());
        assert!(Lsn::parse("1/0").unwrap() > Lsn::parse("0/FFFFFFFF").unwrap());
    }

    #[test]
    fn every_part_of_the_identity_matters() {
        let was = LiveIdentity {
            engine_id: "7".to_owned(),
            timeline: 1,
            database_id: "5".to_owned(),
            server_start: EngineTime(10),
            in_recovery: false,
            server_version_num: 150_000,
        };
        assert_eq!(was.difference(&was), None);
        let others = [
            LiveIdentity { engine_id: "8".to_owned(), ..was.clone() },
            LiveIdentity { timeline: 2, ..was.clone() },
            LiveIdentity { database_id: "6".to_owned(), ..was.clone() },
            LiveIdentity { server_start: EngineTime(11), ..was.clone() },
            LiveIdentity { in_recovery: true, ..was.clone() },
        ];
        for now in others {
            assert!(was.difference(&now).is_some(), "{now:?}");
        }
    }
}
