//! What a server runs at a login by itself: the text of `init_connect`.
//!
//! Purpose: reads such a text. It runs in a session that is new, by the server's own modes, which
//! nobody here knows, and by the character set that the client has asked for.
//!
//! Called by the wire in front of a login, and by the engine layer for the evidence. It doesn't
//! know what is fenced.

use std::sync::Arc;

use super::super::classify::Classifier;
use super::super::statement::Classified;
use super::super::trusted::Trusted;
use super::{MyEncoding, MyLexing, MyServer};

/// What the text is, in a session that begins with this character set. No function is trusted.
#[must_use]
pub fn read_login_text(text: &[u8], server: MyServer, encoding: MyEncoding) -> Classified {
    let lexing = MyLexing { encoding, ..MyLexing::standard(server).uncertain() };
    Classifier::new(Arc::new(Trusted::default()), 0).classify(text, lexing)
}

#[cfg(test)]
mod tests {
    use super::super::super::statement::StatementClass;
    use super::super::MyFlavour;
    use super::*;

    #[test]
    fn what_only_sets_the_session_up_is_no_read() {
        for (flavour, version) in [(MyFlavour::MySql, 90_704), (MyFlavour::MariaDb, 101_119)] {
            let server = MyServer { flavour, version };
            let is_harmless = |text: &str| {
                let class = read_login_text(text.as_bytes(), server, MyEncoding::Unsafe).class();
                class < StatementClass::Read
            };
            for text in [
                "",
                " -- nothing",
                "SET NAMES utf8mb4",
                "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_ci'; SET autocommit=0;",
                "SET collation_connection = utf8mb4_unicode_ci, sql_mode='ANSI_QUOTES'",
                "SET SESSION wait_timeout = 600; SET time_zone = '+00:00'",
                "SET @login = CURRENT_USER()",
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            ] {
                assert!(is_harmless(text), "{text}");
            }
            for text in [
                "INSERT INTO audit.logins VALUES (CURRENT_USER(), NOW())",
                "SET NAMES utf8mb4; CALL audit.login()",
                "SET @n = (SELECT count(*) FROM app.t)",
                "SELECT nothing()",
                "SET GLOBAL read_only = 0",
                "it isn't SQL",
            ] {
                assert!(!is_harmless(text), "{text}");
            }
        }
    }
}
