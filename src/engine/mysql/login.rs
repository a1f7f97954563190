//! What the server runs at each login by itself: `init_connect`.
//!
//! Purpose: such a text runs behind the login's OK and in front of the session's first command,
//! where no guard can be: whoever is about to log in under a fence has it judged first
//! (`wire/mysql/login_text.rs`), and the evidence says that it is set. Accounts with SUPER or
//! CONNECTION ADMIN are spared it by the server, and so is a change of user.
//!
//! Callers: `control::my`, `census` and `lock`. Nothing is changed here.

use super::MyEngine;
use super::connect::{Control, Flavour};
use super::value::bytes;
use crate::engine::error::EngineError;
use crate::sql::{MyEncoding, MyFlavour, MyServer, StatementClass, read_login_text};

/// One column: the text, as the server keeps it.
pub(super) const LOGIN_TEXT: &str = "SELECT @@GLOBAL.init_connect";

impl MyEngine {
    /// The text, empty where there is none. Every account may read it.
    ///
    /// # Errors
    /// Any [`EngineError`] but `Changed`.
    pub async fn login_text(&self) -> Result<Vec<u8>, EngineError> {
        let mut control = self.connections.control().await?;
        self.note_login_text(&mut control).await
    }

    /// What it was when it was last asked for; `None` before that.
    #[must_use]
    pub fn known_login_text(&self) -> Option<Vec<u8>> {
        self.connections.login_text().clone()
    }

    /// Asks, and remembers the answer.
    pub(super) async fn note_login_text(
        &self,
        control: &mut Control,
    ) -> Result<Vec<u8>, EngineError> {
        let row = control.row("init_connect", LOGIN_TEXT).await?;
        let text = bytes(&row, 0);
        *self.connections.login_text() = Some(text.clone());
        Ok(text)
    }

    /// A sentence for the evidence, where the text isn't shown to change its own session alone.
    pub(super) async fn login_gap(&self) -> Option<String> {
        let mut control = match self.connections.control().await {
            Ok(control) => control,
            Err(error) => return Some(format!("whether init_connect writes is unknown: {error}")),
        };
        let text = match self.note_login_text(&mut control).await {
            Ok(text) => text,
            Err(error) => return Some(format!("whether init_connect writes is unknown: {error}")),
        };
        let flavour = match control.flavour() {
            Flavour::MySql => MyFlavour::MySql,
            Flavour::MariaDb => MyFlavour::MariaDb,
        };
        let server = MyServer { flavour, version: u32::try_from(control.version()).unwrap_or(0) };
        let class = read_login_text(&text, server, MyEncoding::Unsafe).class();
        (class >= StatementClass::Read).then(|| {
            "init_connect is set to more than SETs of the session: the server runs it at each \
             login of an account without SUPER or CONNECTION ADMIN, in front of any guard; logins \
             through the proxy are refused where it may write to what is fenced, those that were \
             under way when the gate closed and those around the proxy aren't"
                .to_owned()
        })
    }
}
