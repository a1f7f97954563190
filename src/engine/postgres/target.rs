//! A target's database: made, looked into, and read for its validation.
//!
//! Purpose: the twin of `mysql::target`. Each of these uses a connection of its own, which is
//! closed afterwards: the kept ones are read-only, and serve nobody's text (invariant 12).
//!
//! Called by `control/pg.rs`. What may be made or asked at all is `control`'s to say.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use super::PgEngine;
use super::connect::{Session, quoted as name, translate, words};
use crate::base::arm::{Removable, removed};
use crate::base::ids::Namespace;
use crate::base::limits;
use crate::engine::creation::{CreateError, NewDatabase};
use crate::engine::error::EngineError;
use crate::engine::validation::{Collected, ReadError, ReadTable, must_read};
use crate::sql::{Classifier, Lexing, Trusted};

/// Whatever somebody may have made in a database: relations, functions, types, schemas and large
/// objects. The types of relations and arrays come with what they are of.
const ANYTHING: &str = "SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n \
    ON n.oid = c.relnamespace \
    WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') \
    AND n.nspname NOT LIKE 'pg\\_temp\\_%' AND n.nspname NOT LIKE 'pg\\_toast\\_temp\\_%') \
    OR EXISTS (SELECT 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
    WHERE n.nspname NOT IN ('pg_catalog', 'information_schema')) \
    OR EXISTS (SELECT 1 FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace \
    WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') \
    AND n.nspname NOT LIKE 'pg\\_temp\\_%' AND n.nspname NOT LIKE 'pg\\_toast\\_temp\\_%') \
    OR EXISTS (SELECT 1 FROM pg_namespace n WHERE n.nspname NOT IN ('public', \
    'information_schema') AND n.nspname NOT LIKE 'pg\\_%') \
    OR EXISTS (SELECT 1 FROM pg_largeobject_metadata)";

/// Whether code that runs as this role gets beyond the database. Comparisons are of one type on
/// both sides here and below: an imported operator can't take their place.
const POWERFUL: &str = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_roles r \
    WHERE (r.rolsuper OR r.rolname IN ('pg_execute_server_program', 'pg_write_server_files', \
    'pg_read_server_files')) AND pg_catalog.pg_has_role(r.oid, 'MEMBER'))";

/// The rules that texts were classified by, and what names mean to clients; said in front of each
/// text, since the one before it may have changed them. In front of the first nothing of the
/// import's is on the search path.
const RULES: &str = "SET LOCAL standard_conforming_strings = on; SET LOCAL client_encoding = utf8; \
    SET LOCAL search_path = \"$user\", public";

/// Keeps sessions around the proxy from making any of [`CODE`] until the transaction ends. It is
/// the transaction's first statement, so that the snapshot is younger than the locks.
const NO_NEW_CODE: &str = "LOCK TABLE pg_catalog.pg_proc, pg_catalog.pg_rewrite, \
    pg_catalog.pg_policy, pg_catalog.pg_operator, pg_catalog.pg_cast, pg_catalog.pg_constraint \
    IN SHARE MODE";

/// Whether a read can run anything that somebody has made: functions, views and rules, policies,
/// operators and casts (they may be of built-in functions), checks of domains. What `initdb` made
/// has smaller numbers; membership of an extension says nothing, since its owner can add to it.
const CODE: &str = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_proc WHERE oid >= 16384::oid) \
    OR EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite WHERE oid >= 16384::oid) \
    OR EXISTS (SELECT 1 FROM pg_catalog.pg_policy) \
    OR EXISTS (SELECT 1 FROM pg_catalog.pg_operator WHERE oid >= 16384::oid) \
    OR EXISTS (SELECT 1 FROM pg_catalog.pg_cast WHERE oid >= 16384::oid) \
    OR EXISTS (SELECT 1 FROM pg_catalog.pg_constraint \
    WHERE oid >= 16384::oid AND contypid <> 0::oid)";

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The statement that makes a database. From `template0` unless another empty one is named: what
/// somebody has put into `template1` would be in the target, and an encoding of its own needs it.
fn create(database: &str, wanted: &NewDatabase) -> String {
    let template = wanted.template.as_deref().unwrap_or("template0");
    let mut sql = format!("CREATE DATABASE {} TEMPLATE {}", name(database), name(template));
    if let Some(owner) = &wanted.owner {
        sql.push_str(&format!(" OWNER {}", name(owner)));
    }
    if let Some(encoding) = &wanted.encoding {
        sql.push_str(&format!(" ENCODING {}", literal(encoding)));
    }
    if let Some(locale) = &wanted.locale {
        sql.push_str(&format!(" LC_COLLATE {0} LC_CTYPE {0}", literal(locale)));
    }
    sql
}

/// Errors that speak of the connection or the server, not of the statement.
fn is_of_the_connection(code: &SqlState) -> bool {
    matches!(code.code().get(..2), Some("08" | "53" | "57"))
}

impl PgEngine {
    /// Makes an empty database.
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
        let database = self.database_of(namespace).map_err(CreateError::NotAsked)?;
        let bound = Duration::from_millis(limits::TARGET_CREATE_MS);
        let home = self.connections.settings().database.clone();
        let session = self.connections.writing(&home, bound).await;
        let session = session.map_err(CreateError::NotAsked)?;
        let (engine, what) = (self.name(), "creating a database");
        let sql = create(database, wanted);
        match tokio::time::timeout(bound, session.client.simple_query(&sql)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(match error.code() {
                Some(code) if *code == SqlState::DUPLICATE_DATABASE => {
                    CreateError::Exists { engine: engine.clone(), words: words(&error) }
                }
                // Shutting down or ended from outside: whether it had come to its end isn't told.
                Some(code) if !is_of_the_connection(code) => {
                    CreateError::Refused { engine: engine.clone(), words: words(&error) }
                }
                Some(_) | None => CreateError::Unknown(translate(engine, what, bound, &error)),
            }),
            Err(_) => Err(CreateError::Unknown(EngineError::Timeout {
                engine: engine.clone(),
                what,
                after: bound,
            })),
        }
    }

    /// Whether anybody has put anything into a database.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`.
    pub async fn holds_anything(&self, namespace: &Namespace) -> Result<bool, EngineError> {
        let what = "looking into a target";
        let mut control = self.connections.control(self.database_of(namespace)?).await?;
        let row = control.row(what, ANYTHING, &[]).await?;
        row.try_get(0).map_err(|error| control.odd(what, &error))
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
        let database = self.database_of(namespace)?;
        let bound = Duration::from_millis(limits::VALIDATION_QUERY_MS);
        let seen = self.identity(database).await?;
        let major = u16::try_from(seen.server_version_num / 10_000).unwrap_or(0);
        let trusted = Arc::new(Trusted::default().with_engine_major(major));
        // Conforming strings and UTF-8 are what each text finds.
        must_read(&mut Classifier::new(trusted, 0), Lexing::STANDARD, statements)?;
        let session = self.connections.reading(database, bound).await?;
        match tokio::time::timeout(bound, self.read_on(&session, statements)).await {
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
        session: &Session,
        statements: &[String],
    ) -> Result<Vec<ReadTable>, ReadError> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let failed = |statement, error: &tokio_postgres::Error| self.failed(statement, error);
        let powerful = self.is(session, POWERFUL).await? && !removed(Removable::ImportedCode);
        session.client.batch_execute(begin).await.map_err(|error| failed(0, &error))?;
        if powerful {
            self.must_have_no_code(session).await?;
        }
        let mut all = Collected::default();
        for (index, text) in statements.iter().enumerate() {
            all.begin();
            let statement = index + 1;
            session.client.batch_execute(RULES).await.map_err(|error| failed(0, &error))?;
            // The engine takes one statement here, however it reads the text.
            let one = session.client.prepare(text).await;
            if one.map_err(|error| failed(statement, &error))?.columns().is_empty() {
                let words = "it answers with no rows; ask with a SELECT".to_owned();
                return Err(ReadError::Sql { statement, words });
            }
            let answer = session.client.simple_query_raw(text).await;
            let mut answer = Box::pin(answer.map_err(|error| failed(statement, &error))?);
            while let Some(message) = answer.next().await {
                match message.map_err(|error| failed(statement, &error))? {
                    SimpleQueryMessage::RowDescription(columns) => {
                        all.columns(columns.iter().map(|one| one.name().to_owned()).collect())?;
                    }
                    SimpleQueryMessage::Row(row) => {
                        let values = (0..row.len()).map(|at| row.get(at).map(str::to_owned));
                        all.row(values.collect())?;
                    }
                    SimpleQueryMessage::CommandComplete(_) | _ => {}
                }
            }
        }
        // What a function did that had lifted the transaction's own setting is undone.
        session.client.batch_execute("ROLLBACK").await.map_err(|error| failed(0, &error))?;
        Ok(all.done())
    }

    /// A powerful role reads only where nothing imported can run with its rights.
    async fn must_have_no_code(&self, session: &Session) -> Result<(), ReadError> {
        let refused = ReadError::ImportedCode {
            what: "functions, views, rules, policies, operators, casts or domains with checks",
            rights: "is a superuser or may use the server's files or programs".to_owned(),
        };
        match session.client.batch_execute(NO_NEW_CODE).await {
            Ok(()) => {}
            Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                return Err(refused);
            }
            Err(error) => return Err(self.not_looked(&error)),
        }
        if self.is(session, CODE).await? { Err(refused) } else { Ok(()) }
    }

    async fn is(&self, session: &Session, sql: &str) -> Result<bool, ReadError> {
        let answered = session.client.query_one(sql, &[]).await;
        answered.and_then(|row| row.try_get(0)).map_err(|error| self.not_looked(&error))
    }

    fn not_looked(&self, error: &tokio_postgres::Error) -> ReadError {
        let bound = Duration::from_millis(limits::VALIDATION_QUERY_MS);
        let what = "looking for imported code";
        ReadError::Engine(translate(self.name(), what, bound, error))
    }

    fn failed(&self, statement: usize, error: &tokio_postgres::Error) -> ReadError {
        let bound = Duration::from_millis(limits::VALIDATION_QUERY_MS);
        match error.code() {
            Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
                ReadError::Writes { statement, words: words(error) }
            }
            Some(code) if !is_of_the_connection(code) => {
                ReadError::Sql { statement, words: words(error) }
            }
            Some(_) | None => {
                let what = "a validation's question";
                ReadError::Engine(translate(self.name(), what, bound, error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_options_stay_what_they_are() {
        let plain = create("app", &NewDatabase::default());
        assert_eq!(plain, r#"CREATE DATABASE "app" TEMPLATE "template0""#);
        let wanted = NewDatabase {
            owner: Some("o\"x".to_owned()),
            encoding: Some("UTF8' --".to_owned()),
            locale: Some("C".to_owned()),
            template: Some("template1".to_owned()),
        };
        assert_eq!(
            create("a\"; drop", &wanted),
            "CREATE DATABASE \"a\"\"; drop\" TEMPLATE \"template1\" OWNER \"o\"\"x\" \
             ENCODING 'UTF8'' --' LC_COLLATE 'C' LC_CTYPE 'C'"
        );
    }
}
