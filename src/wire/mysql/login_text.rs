//! What the engine runs at a login by itself, judged in front of the login.
//!
//! Purpose: `init_connect` runs behind the engine's OK and in front of the session's first command:
//! nothing can guard it there (W17), and its text may name any schema. So while writes are closed
//! at a gate of the engine, its text is asked for before a login goes to it, and judged as a
//! program would be, at the login's default schema and at those it names. One that sets the session
//! up (`SET NAMES`) passes. Another may only where every gate that it reaches is open; a read isn't
//! shown to be one without the guard. Where nobody knows the text it may be anything (4, M9).
//!
//! Called by `session.rs`. A login that was under way when a gate closed isn't judged again: that
//! is the engine lock's, and the census's (docs/CONTRACT.md).

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::base::arm::{Removable, removed};
use crate::base::ids::{EngineName, Namespace};
use crate::fence::code::Denial;
use crate::gate::admission::Refusal;
use crate::gate::registry::{Gate, Gates};
use crate::sql::{MyEncoding, MyServer, StatementClass, read_login_text};
use crate::wire::mysql::commands::Command;
use crate::wire::mysql::prepared::Prepared;
use crate::wire::mysql::program::Program;
use crate::wire::mysql::refusal::typed_text;
use crate::wire::mysql::seats::is_reached;

/// Tells what engines run at a login, by connections that aren't the sessions' own.
pub trait LoginTexts: Send + Sync + std::fmt::Debug {
    /// The engine's text, empty where it has none; `None`, or nobody to tell it, where it isn't
    /// known. Bounded in time by the implementation.
    fn ask(&self, engine: &EngineName) -> oneshot::Receiver<Option<Vec<u8>>>;
}

/// Where a login is going.
#[derive(Debug, Clone, Copy)]
pub(super) struct Going<'a> {
    /// The default schema.
    pub(super) home: &'a Namespace,
    pub(super) server: MyServer,
    /// The character set that the session begins with.
    pub(super) encoding: MyEncoding,
}

/// Refuses a login at which the engine may write to what is fenced; with what the client is told.
///
/// # Cancel safety
/// Cancel safe: nothing was sent to the engine that the client logs in to.
pub(super) async fn refusal(
    going: Going<'_>,
    gates: &Gates,
    texts: &dyn LoginTexts,
) -> Option<(Refusal, String)> {
    let engine = going.home.engine();
    let mut closed = gates.all();
    closed.retain(|gate| {
        let here = gate.namespace().engine() == engine && !gate.word().writes_open();
        here && gate.may_be_meant()
    });
    if closed.is_empty() || removed(Removable::LoginText) {
        return None;
    }
    let text = texts.ask(engine).await.ok().flatten();
    let (gate, why) = match text {
        Some(text) => (
            reached(&text, going, &closed)?,
            "the engine's init_connect, which it runs at each login, isn't shown not to write here",
        ),
        None => {
            (closed.first()?, "what the engine's init_connect does at a login could not be asked")
        }
    };
    let published = gate.published();
    let denial = published.policy.admits(StatementClass::Write).err();
    let denial = denial.unwrap_or(Denial::WriteFenced);
    let refusal = Refusal { denial, namespace: gate.namespace().clone(), published };
    let text = format!("{} [{why}]", typed_text(&refusal));
    Some((refusal, text))
}

/// The first of these gates that the text may reach and write at.
fn reached<'g>(text: &[u8], going: Going<'_>, closed: &'g [Arc<Gate>]) -> Option<&'g Arc<Gate>> {
    let classified = read_login_text(text, going.server, going.encoding);
    let moves = classified.shape().changes_schema();
    if classified.class() < StatementClass::Read && !moves {
        return None;
    }
    let mut program = Program::of_text(Command::Query, classified, &Prepared::default());
    // The session would be somewhere else than it is judged at.
    program.anywhere |= moves;
    let reach = program.reach();
    closed.iter().find(|gate| is_reached(gate, going.home, reach))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::Generation;
    use crate::fence::record::InFlight;
    use crate::fence::verdict::Overlay;
    use crate::sql::MyFlavour;

    /// Says this.
    #[derive(Debug)]
    struct Says(Option<&'static str>);

    impl LoginTexts for Says {
        fn ask(&self, _engine: &EngineName) -> oneshot::Receiver<Option<Vec<u8>>> {
            let (told, answer) = oneshot::channel();
            let _unheard = told.send(self.0.map(|text| text.as_bytes().to_vec()));
            answer
        }
    }

    fn judged(home: &str, says: Option<&'static str>, fenced: bool) -> Option<(Denial, String)> {
        let gates = Gates::new(Generation(1));
        gates.recovered();
        let name = |text: &str| Namespace::parse(text).unwrap();
        let [_open, shut, _stranger] =
            ["old/open", "old/shut", "new/shut"].map(|n| gates.gate(&name(n)));
        if fenced {
            shut.overlay(Overlay::Installing, InFlight::Finish);
        }
        let home = name(home);
        let server = MyServer { flavour: MyFlavour::MariaDb, version: 101_119 };
        let going = Going { home: &home, server, encoding: MyEncoding::Utf8 };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let refused = runtime.block_on(refusal(going, &gates, &Says(says)));
        refused.map(|(refusal, text)| {
            assert_eq!(refusal.namespace.to_string(), "old/shut");
            (refusal.denial, text)
        })
    }

    #[test]
    fn a_login_is_refused_where_the_engine_may_write_at_it() {
        let ordinary = "SET NAMES utf8mb4; SET autocommit = 0";
        for (home, text, refused) in [
            ("old/shut", "", false),
            ("old/shut", ordinary, false),
            ("old/open", "INSERT INTO open.log VALUES (1)", false),
            ("old/shut", "INSERT INTO log VALUES (1)", true),
            ("old/open", "INSERT INTO shut.log VALUES (1)", true),
            ("old/open", "INSERT INTO `SHUT`.log VALUES (1)", true),
            ("old/open", "SET @a = (SELECT 1 FROM shut.v)", true),
            ("old/open", "SELECT 1 FROM information_schema.columns", true),
            ("old/open", "CALL p()", true),
            ("old/open", "EXECUTE nobody", true),
            ("old/open", "USE shut", true),
            ("old/open", "BEGIN NOT ATOMIC INSERT INTO x VALUES (1); END", true),
        ] {
            let judged = judged(home, Some(text), true);
            assert_eq!(judged.is_some(), refused, "{home}: {text}");
            let Some((denial, words)) = judged else { continue };
            assert_eq!(denial, Denial::WriteFenced);
            assert!(words.contains("init_connect") && words.len() < 511, "{words}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_and_nothing_is_asked_without_a_fence() {
        assert!(judged("old/open", None, true).unwrap().1.contains("could not be asked"));
        assert!(judged("old/shut", None, false).is_none());
        assert!(judged("old/shut", Some("INSERT INTO log VALUES (1)"), false).is_none());
        // Another engine's schema of that name.
        assert!(judged("new/shut", Some("INSERT INTO log VALUES (1)"), true).is_none());
    }
}
