//! A target's schema: made, looked into, and read for its validation.
//!
//! Purpose: the twin of `postgres::target`. Each of these uses a connection of its own, which is
//! closed afterwards: the kept ones are read-only, and serve nobody's text (invariant 12).
//!
//! Called by `control/my.rs`. What may be made or asked at all is `control`'s to say.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Row, Value};

use super::MyEngine;
use super::connect::{Flavour, Session, code, translate, words};
use super::rights::{in_words, is_more_than_reading};
use super::value::{literal, quoted, text, words as shown_words};
use crate::base::arm::{Removable, removed};
use crate::base::ids::Namespace;
use crate::base::limits;
use crate::engine::creation::{CreateError, NewDatabase};
use crate::engine::error::EngineError;
use crate::engine::validation::{Collected, ReadError, ReadTable, must_read, shown};
use crate::sql::{Classifier, Lexing, MyFlavour, MyLexing, MyServer, Trusted};

/// The statement that makes a schema; what MySQL has no word for is an error in words.
fn create(schema: &str, wanted: &NewDatabase) -> Result<String, String> {
    let NewDatabase { owner, encoding, locale, template } = wanted;
    if owner.is_some() || template.is_some() {
        return Err("schemas have neither owner nor template here; leave both out".to_owned());
    }
    let mut sql = format!("CREATE DATABASE {}", quoted(schema));
    if let Some(set) = encoding {
        sql.push_str(&format!(" CHARACTER SET {}", literal(set)));
    }
    if let Some(collation) = locale {
        sql.push_str(&format!(" COLLATE {}", literal(collation)));
    }
    Ok(sql)
}

/// How a session may write, or how long its statements may take.
fn settings(flavour: Flavour, read_only: bool, bound: Duration) -> String {
    let (variable, limit) = match flavour {
        Flavour::MySql => {
            ("transaction_read_only", format!("max_execution_time = {}", bound.as_millis()))
        }
        Flavour::MariaDb => ("tx_read_only", format!("max_statement_time = {}", bound.as_secs())),
    };
    format!("SET SESSION {variable} = {}, SESSION {limit}", u8::from(read_only))
}

impl MyEngine {
    /// Makes an empty schema.
    ///
    /// # Errors
    /// [`CreateError`]; only `Unknown` leaves open whether there is one now.
    ///
    /// # Cancel safety
    /// Dropped, it leaves the engine to finish or not: as `Unknown`.
    pub async fn create_database(
        &self,
        namespace: &Namespace,
        wanted: &NewDatabase,
    ) -> Result<(), CreateError> {
        let schema = self.schema_of(namespace).map_err(CreateError::NotAsked)?;
        let engine = self.name().clone();
        let refused = |words| CreateError::Refused { engine: engine.clone(), words };
        let sql = create(schema, wanted).map_err(refused)?;
        let (bound, what) = (Duration::from_millis(limits::TARGET_CREATE_MS), "creating a schema");
        let mut session = self.connections.connect().await.map_err(CreateError::NotAsked)?;
        let of_settings = self.connections.settings();
        let writable = settings(session.flavour, false, bound);
        let set = session.conn.query_drop(writable).await;
        set.map_err(|error| CreateError::NotAsked(translate(of_settings, what, &error)))?;
        match tokio::time::timeout(bound, session.conn.query_drop(sql)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(match code(&error) {
                Some(1007) => CreateError::Exists { engine: engine.clone(), words: words(&error) },
                // Killed, shutting down, out of time: whether it had come to its end isn't told.
                Some(1053 | 1317 | 1969 | 1927 | 3024) | None => {
                    CreateError::Unknown(translate(of_settings, what, &error))
                }
                Some(_) => refused(words(&error)),
            }),
            Err(_) => {
                Err(CreateError::Unknown(EngineError::Timeout { engine, what, after: bound }))
            }
        }
    }

    /// Whether anybody has put anything into a schema.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`.
    pub async fn holds_anything(&self, namespace: &Namespace) -> Result<bool, EngineError> {
        let what = "looking into a target";
        let schema = literal(self.schema_of(namespace)?);
        let mut control = self.connections.control().await?;
        let sql = format!(
            "SELECT (SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = {schema}) \
             + (SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = {schema}) \
             + (SELECT COUNT(*) FROM information_schema.EVENTS WHERE EVENT_SCHEMA = {schema})"
        );
        Ok(control.figure(what, &sql, 0).await? != 0)
    }

    /// Answers texts that only read, in one read-only snapshot.
    ///
    /// # Errors
    /// [`ReadError`]; nothing is answered in part.
    ///
    /// # Cancel safety
    /// Dropped, it closes the connection; the engine ends a running statement at its timeout.
    pub async fn read(
        &self,
        namespace: &Namespace,
        statements: &[String],
    ) -> Result<Vec<ReadTable>, ReadError> {
        let schema = self.schema_of(namespace)?;
        let bound = Duration::from_millis(limits::VALIDATION_QUERY_MS);
        let mut session = self.connections.reading().await?;
        let flavour = match session.flavour {
            Flavour::MySql => MyFlavour::MySql,
            Flavour::MariaDb => MyFlavour::MariaDb,
        };
        let version = u32::try_from(session.version).unwrap_or(0);
        // No special modes and utf8mb4 are what a control connection is set to.
        let lexing = MyLexing::standard(MyServer { flavour, version });
        let mut classifier = Classifier::new(Arc::new(Trusted::default()), 0);
        must_read(&mut classifier, Lexing::MySql(lexing), statements)?;
        match tokio::time::timeout(bound, self.read_on(&mut session, schema, statements)).await {
            Ok(answered) => answered,
            Err(_) => Err(ReadError::Engine(EngineError::Timeout {
                engine: self.name().clone(),
                what: "a validation's question",
                after: bound,
            })),
        }
    }

    async fn read_on(
        &self,
        session: &mut Session,
        schema: &str,
        statements: &[String],
    ) -> Result<Vec<ReadTable>, ReadError> {
        let bound = Duration::from_millis(limits::VALIDATION_QUERY_MS);
        let settings = settings(session.flavour, true, bound);
        for setting in [
            settings.as_str(),
            &format!("USE {}", quoted(schema)),
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
        ] {
            let set = session.conn.query_drop(setting).await;
            set.map_err(|error| self.failed(0, &error))?;
        }
        self.must_have_no_code(session, schema).await?;
        let mut all = Collected::default();
        for (index, text) in statements.iter().enumerate() {
            all.begin();
            let failed = |error: mysql_async::Error| self.failed(index + 1, &error);
            let mut answer = session.conn.query_iter(text.as_str()).await.map_err(failed)?;
            let columns = answer.columns();
            let names = columns.iter().flat_map(|columns| columns.iter());
            all.columns(names.map(|column| column.name_str().into_owned()).collect())?;
            while let Some(row) = answer.next().await.map_err(failed)? {
                all.row(values(&row))?;
            }
        }
        // What a function did that had lifted the transaction's own setting is undone.
        session.conn.query_drop("ROLLBACK").await.map_err(|error| self.failed(0, &error))?;
        Ok(all.done())
    }

    /// An account that may do more than read asks only where nothing imported can run as it.
    async fn must_have_no_code(
        &self,
        session: &mut Session,
        schema: &str,
    ) -> Result<(), ReadError> {
        let failed = |error: mysql_async::Error| {
            let what = "looking for imported code";
            ReadError::Engine(translate(self.connections.settings(), what, &error))
        };
        let grants: Vec<Row> = session.conn.query("SHOW GRANTS").await.map_err(failed)?;
        let mut grants = grants.iter().map(|row| shown_words(row, 0));
        let Some(grant) = grants.find(|grant| is_more_than_reading(grant)) else {
            return Ok(());
        };
        if removed(Removable::ImportedCode) {
            return Ok(());
        }
        let schema = literal(schema);
        let sql = format!(
            "SELECT (SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = {schema} \
             AND TABLE_TYPE NOT IN ('BASE TABLE', 'SEQUENCE', 'SYSTEM VERSIONED')) \
             + (SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = {schema})"
        );
        let code: Option<i64> = session.conn.query_first(sql).await.map_err(failed)?;
        if code == Some(0) {
            return Ok(());
        }
        Err(ReadError::ImportedCode {
            what: "views, functions or procedures",
            rights: format!(
                "may do more than the grants in README name, by this one: {}",
                in_words(&grant)
            ),
        })
    }

    fn failed(&self, statement: usize, error: &mysql_async::Error) -> ReadError {
        if is_too_large(error) {
            return ReadError::TooManyBytes;
        }
        let words = words(error);
        match (
            code(error),
            translate(self.connections.settings(), "a validation's question", error),
        ) {
            (Some(1792 | 1290), _) => ReadError::Writes { statement, words },
            (Some(_), EngineError::Unexpected { .. } | EngineError::Denied { .. }) => {
                ReadError::Sql { statement, words }
            }
            (_, error) => ReadError::Engine(error),
        }
    }
}

/// What the driver says of a packet over the connection's bound; it has read the header only. Its
/// error has no kind of its own, and a change of these words would make it "unreachable" here.
const TOO_LARGE: &str = "Packet is larger than max_allowed_packet";

fn is_too_large(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Io(_)) && words(error).contains(TOO_LARGE)
}

fn values(row: &Row) -> Vec<Option<String>> {
    let value = |at| match row.as_ref(at) {
        None | Some(Value::NULL) => None,
        Some(Value::Bytes(bytes)) => Some(shown(bytes)),
        Some(
            Value::Int(_)
            | Value::UInt(_)
            | Value::Float(_)
            | Value::Double(_)
            | Value::Date(..)
            | Value::Time(..),
        ) => text(row, at),
    };
    (0..row.len()).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_beyond_the_bound_is_told_by_the_drivers_words() {
        use mysql_common::proto::codec::error::PacketCodecError;
        let told = |error| is_too_large(&mysql_async::Error::from(error));
        assert!(told(PacketCodecError::PacketTooLarge));
        assert!(!told(PacketCodecError::PacketsOutOfSync));
    }

    #[test]
    fn names_and_options_stay_what_they_are() {
        let wanted = NewDatabase {
            encoding: Some("utf8mb4".to_owned()),
            locale: Some("x' or '".to_owned()),
            ..NewDatabase::default()
        };
        assert_eq!(
            create("a`b", &wanted).unwrap(),
            "CREATE DATABASE `a``b` CHARACTER SET 'utf8mb4' COLLATE 'x'' or '''"
        );
        let owned = NewDatabase { owner: Some("app".to_owned()), ..NewDatabase::default() };
        assert!(create("a", &owned).unwrap_err().contains("owner"));
    }
}
