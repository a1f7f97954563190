//! The commands of the MySQL protocol: what each is, and what its answer looks like.
//!
//! Purpose: W18, W22 and W24 of wire.md. One table from a command's first byte to its kind, so that
//! nothing about a command is decided in two places: whether its text must be classified, which
//! class it has by its opcode alone, how the engine answers it, and what the proxy doesn't relay.
//!
//! Invariant 4: a byte that isn't in the table is not forwarded. Pure; used by `client.rs`.

use crate::sql::StatementClass;

/// COM_QUERY, for the proxy's own statements.
pub(crate) const QUERY: u8 = 0x03;
/// COM_PING, for the proxy's own question where a session stands.
pub(crate) const PING: u8 = 0x0e;
/// COM_STMT_RESET, for cursors that a fence closes.
pub(crate) const RESET_STATEMENT: u8 = 0x1a;
/// COM_QUIT.
pub(crate) const QUIT: u8 = 0x01;

/// What a command is, as far as its first byte tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// The end of the session.
    Quit,
    /// A statement's text.
    Query,
    /// A statement's text, to be run later by its number.
    Prepare,
    /// A prepared statement is run.
    Execute,
    /// A prepared statement is run with many rows of parameters (MariaDB).
    BulkExecute,
    /// Rows of an open cursor.
    Fetch,
    /// A piece of a parameter. The engine doesn't answer.
    LongData,
    /// A prepared statement is forgotten. The engine doesn't answer.
    Close,
    /// A prepared statement's cursor and parameter pieces are forgotten.
    ResetStatement,
    /// The default schema changes.
    InitDb,
    /// A schema is created: lifecycle by opcode.
    CreateDb,
    /// A schema is dropped: lifecycle by opcode.
    DropDb,
    /// Columns of a table.
    FieldList,
    /// FLUSH by opcode: written to the binary log.
    Refresh,
    /// The engine stops.
    Shutdown,
    /// One line of text about the engine.
    Statistics,
    /// The process list.
    ProcessInfo,
    /// KILL of a thread, by the engine's own number: clients see that one.
    ProcessKill,
    /// The engine writes about itself into its log.
    Debug,
    /// Nothing.
    Ping,
    /// Another user; everything of the session is given up. The login takes several packets.
    ChangeUser,
    /// Everything of the session is given up, the user and the default schema stay.
    ResetConnection,
    /// Several statements in one text are allowed, or no longer.
    SetOption,
    /// A replica names itself.
    RegisterReplica,
    /// The binary log from a file and position on.
    BinlogDump,
    /// The binary log from a GTID set on.
    BinlogDumpGtid,
    /// The engine knows it as an error, or the proxy can't relay its answer: 1047.
    Refused(u8),
}

/// How the engine answers a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Not at all.
    None,
    /// One OK, EOF or ERR.
    Ok,
    /// One packet of text.
    Text,
    /// Results: each an OK, a result set or a request for a file; or an ERR.
    Results,
    /// Definitions up to an EOF.
    Definitions,
    /// The number of a prepared statement, with its blocks of definitions.
    Prepared,
    /// Rows up to an EOF.
    Rows,
    /// A login.
    Login,
    /// Packets until an EOF, an ERR or the end of the connection.
    Stream,
}

/// Where a command's class comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judge {
    /// From its text.
    Text,
    /// From the prepared statement it names.
    Statement,
    /// From its opcode.
    Opcode(StatementClass),
    /// It starts no work: it passes under whatever lease there is.
    Nothing,
}

impl Command {
    /// Reads a command's first byte.
    pub(crate) const fn of(opcode: u8) -> Self {
        match opcode {
            QUIT => Self::Quit,
            0x02 => Self::InitDb,
            QUERY => Self::Query,
            0x04 => Self::FieldList,
            0x05 => Self::CreateDb,
            0x06 => Self::DropDb,
            0x07 => Self::Refresh,
            0x08 => Self::Shutdown,
            0x09 => Self::Statistics,
            0x0a => Self::ProcessInfo,
            0x0c => Self::ProcessKill,
            0x0d => Self::Debug,
            PING => Self::Ping,
            0x11 => Self::ChangeUser,
            0x12 => Self::BinlogDump,
            0x15 => Self::RegisterReplica,
            0x16 => Self::Prepare,
            0x17 => Self::Execute,
            0x18 => Self::LongData,
            0x19 => Self::Close,
            RESET_STATEMENT => Self::ResetStatement,
            0x1b => Self::SetOption,
            0x1c => Self::Fetch,
            0x1e => Self::BinlogDumpGtid,
            0x1f => Self::ResetConnection,
            0xfa => Self::BulkExecute,
            // 0x00, 0x0b, 0x0f, 0x10, 0x14 and 0x1d are the server's own and an error from a
            // client; 0x13 (TABLE_DUMP) is gone from both engines; 0x20 (CLONE) and 0x21 (group
            // replication) turn the connection into another protocol; 0xfe (MULTI) was withdrawn.
            other => Self::Refused(other),
        }
    }

    /// How the engine answers it.
    pub(crate) const fn reply(self) -> Reply {
        match self {
            Self::Quit | Self::LongData | Self::Close => Reply::None,
            Self::Query | Self::Execute | Self::BulkExecute | Self::ProcessInfo => Reply::Results,
            Self::Prepare => Reply::Prepared,
            Self::Fetch => Reply::Rows,
            Self::FieldList => Reply::Definitions,
            Self::Statistics => Reply::Text,
            Self::ChangeUser => Reply::Login,
            Self::BinlogDump | Self::BinlogDumpGtid => Reply::Stream,
            Self::ResetStatement
            | Self::InitDb
            | Self::CreateDb
            | Self::DropDb
            | Self::Refresh
            | Self::Shutdown
            | Self::ProcessKill
            | Self::Debug
            | Self::Ping
            | Self::ResetConnection
            | Self::SetOption
            | Self::RegisterReplica
            | Self::Refused(_) => Reply::Ok,
        }
    }

    /// Where its class comes from.
    pub(crate) const fn judge(self) -> Judge {
        match self {
            Self::Query | Self::Prepare => Judge::Text,
            Self::Execute | Self::BulkExecute => Judge::Statement,
            // A cursor's rows were computed when it was opened, but reading them is a read.
            Self::Fetch | Self::FieldList => Judge::Opcode(StatementClass::Read),
            Self::CreateDb | Self::DropDb => Judge::Opcode(StatementClass::Lifecycle),
            Self::Refresh | Self::Shutdown => Judge::Opcode(StatementClass::Write),
            Self::BinlogDump | Self::BinlogDumpGtid | Self::RegisterReplica => {
                Judge::Opcode(StatementClass::Stream)
            }
            Self::InitDb
            | Self::Statistics
            | Self::ProcessInfo
            | Self::ProcessKill
            | Self::Debug
            | Self::Ping
            | Self::ResetStatement
            | Self::ResetConnection
            | Self::ChangeUser
            | Self::SetOption => Judge::Opcode(StatementClass::Session),
            Self::Quit | Self::LongData | Self::Close | Self::Refused(_) => Judge::Nothing,
        }
    }

    /// Whether it is counted as a program once it is admitted: it does work of its own. Preparing
    /// a statement runs nothing, and what is fetched was counted when its cursor was opened.
    pub(crate) const fn is_counted(self) -> bool {
        match self {
            Self::Prepare | Self::Fetch | Self::Ping | Self::ResetStatement | Self::SetOption => {
                false
            }
            Self::Query
            | Self::Execute
            | Self::BulkExecute
            | Self::FieldList
            | Self::CreateDb
            | Self::DropDb
            | Self::Refresh
            | Self::Shutdown
            | Self::BinlogDump
            | Self::BinlogDumpGtid
            | Self::RegisterReplica
            | Self::InitDb
            | Self::Statistics
            | Self::ProcessInfo
            | Self::ProcessKill
            | Self::Debug
            | Self::ResetConnection
            | Self::ChangeUser => true,
            Self::Quit | Self::LongData | Self::Close | Self::Refused(_) => false,
        }
    }

    /// How many bytes it has at least, its opcode among them. MySQL answers shorter ones with an
    /// error where nobody reads an answer, and each later answer would be taken for another's.
    pub(crate) const fn bytes_min(self) -> usize {
        if matches!(self, Self::LongData) {
            7
        } else if matches!(self, Self::Close | Self::ResetStatement) {
            5
        } else {
            0
        }
    }

    /// The errors by which an engine may answer a command that has no answer: the session's
    /// password has expired; a packet is longer than the engine takes, or not whole.
    pub(crate) const fn unasked_errors(self) -> &'static [u16] {
        if matches!(self, Self::LongData) {
            &[1820, 1153, 1835]
        } else if matches!(self, Self::Close) {
            &[1820]
        } else {
            &[]
        }
    }

    /// Whether a prepared statement's number stands behind its opcode.
    pub(crate) const fn is_about_statement(self) -> bool {
        matches!(
            self,
            Self::Execute | Self::BulkExecute | Self::Fetch | Self::ResetStatement | Self::Close
        )
    }

    /// Whether it gives up everything of the session: transaction, settings, statements. No such
    /// command can keep anything that was written and not committed.
    pub(crate) const fn resets(self) -> bool {
        match self {
            Self::ResetConnection | Self::ChangeUser => true,
            Self::Quit
            | Self::Query
            | Self::Prepare
            | Self::Execute
            | Self::BulkExecute
            | Self::Fetch
            | Self::LongData
            | Self::Close
            | Self::ResetStatement
            | Self::InitDb
            | Self::CreateDb
            | Self::DropDb
            | Self::FieldList
            | Self::Refresh
            | Self::Shutdown
            | Self::Statistics
            | Self::ProcessInfo
            | Self::ProcessKill
            | Self::Debug
            | Self::Ping
            | Self::SetOption
            | Self::RegisterReplica
            | Self::BinlogDump
            | Self::BinlogDumpGtid
            | Self::Refused(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte: what may go to an engine has a class or is known to start no work.
    #[test]
    fn every_byte_is_judged_or_refused() {
        let mut forwarded = Vec::new();
        for opcode in 0..=u8::MAX {
            let command = Command::of(opcode);
            match command.judge() {
                Judge::Text | Judge::Statement | Judge::Opcode(_) => forwarded.push(opcode),
                Judge::Nothing => assert!(matches!(
                    command,
                    Command::Quit | Command::LongData | Command::Close | Command::Refused(_)
                )),
            }
            let silent = command.reply() == Reply::None;
            assert!(!silent || command.judge() == Judge::Nothing, "{command:?} would keep a lease");
        }
        let expected =
            [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 17, 18, 21, 22, 23, 26, 27, 28, 30, 31, 250];
        assert_eq!(forwarded, expected);
    }

    #[test]
    fn what_writes_by_opcode_is_a_writer() {
        for opcode in [0x05, 0x06, 0x07, 0x08] {
            let Judge::Opcode(class) = Command::of(opcode).judge() else { panic!("{opcode}") };
            assert!(class.is_writer(), "{opcode:#x}");
        }
    }

    #[test]
    fn what_the_proxy_cannot_relay_is_refused() {
        for opcode in [0x00, 0x0b, 0x0f, 0x10, 0x13, 0x14, 0x1d, 0x20, 0x21, 0x80, 0xfe, 0xff] {
            assert_eq!(Command::of(opcode), Command::Refused(opcode));
        }
    }
}
