//! A capability's secret on its way in: found, taken out, and never passed on.
//!
//! Purpose: an import or validation session presents its secret at the login or by a SET of its
//! own. Either way the secret ends here: what goes to the engine has none in it, and
//! [`Offered`] prints as `***`. A text that holds a secret in any other place is refused as a whole
//! (it can't be told there what it is for), so that none reaches an engine's log. Whether a secret
//! is a live one is the gate's to say (`gate/capability.rs`).
//!
//! Pure. Used by both relays. It asks no gate.

use std::fmt;
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;

use crate::base::arm::{Removable, removed};
use crate::base::ids::{Generation, Namespace};
use crate::base::limits::CAPABILITY_RANDOM_BYTES;
use crate::fence::code::Denial;
use crate::fence::verdict::Policy;
use crate::gate::admission::Refusal;
use crate::gate::capability::{Capability, SECRET_PREFIX};
use crate::gate::registry::{Gate, Published};
use crate::gate::slot::Slot;

/// What every secret begins with.
const PREFIX: &[u8] = SECRET_PREFIX.as_bytes();

/// How many characters of base64url follow.
const LETTERS: usize = (CAPABILITY_RANDOM_BYTES * 8).div_ceil(6);

/// Finds [`PREFIX`]; made once, since it is asked for each text.
static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(PREFIX));

/// What a client has presented. It prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Offered(Vec<u8>);

impl Offered {
    /// Takes a value in.
    pub(crate) fn new(value: &[u8]) -> Self {
        Self(value.to_vec())
    }

    /// What stands in a place that isn't understood: no gate knows it.
    pub(crate) fn unclear() -> Self {
        Self(b"?".to_vec())
    }

    /// The bytes, for the gate to compare. Never put them anywhere else.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Whether nothing is presented: an empty value gives a capability up.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Whether what shows a capability goes on with it: the control arm of invariant 16, and nothing
/// else (`base/arm.rs`). False unless that guard is removed.
pub(crate) fn stays_as_it_is() -> bool {
    removed(Removable::CapabilitySecret)
}

/// Whether two capabilities give the same right, and both still do.
pub(crate) fn same(one: &Capability, other: &Capability) -> bool {
    let right = |of: &Capability| (of.purpose(), of.operation(), of.revision());
    right(one) == right(other)
        && one.namespace() == other.namespace()
        && one.is_live()
        && other.is_live()
}

/// The refusal of what shows no live capability of a namespace, by its gate if it has one.
pub(crate) fn refusal(gate: Option<&Arc<Gate>>, namespace: &Namespace) -> Refusal {
    let none = || Published { generation: Generation(0), policy: Policy::unfenced() };
    Refusal {
        denial: Denial::CapabilityRequired,
        namespace: namespace.clone(),
        published: gate.map_or_else(|| Arc::new(none()), |gate| gate.published()),
    }
}

/// Slots of seats that a session has left for others at the same gate. Whoever found the first one
/// keeps it (a cancel's registration), and whoever looks at a gate's table may have found the last
/// one, so orders are still taken there.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    first: Option<Arc<Slot>>,
    last: Option<Arc<Slot>>,
}

impl Orders {
    /// A seat was left for another one; orders that are there go with the session.
    pub(crate) fn left(&mut self, left: &Arc<Slot>, taken: &Slot) {
        let (order, before) = left.take_orders();
        if !order.is_none() {
            taken.order(order, before);
        }
        let place = if self.first.is_none() { &mut self.first } else { &mut self.last };
        *place = Some(Arc::clone(left));
    }

    /// Where orders may still come in.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.first.iter().chain(&self.last)
    }
}

/// By which name a family of engines sets it in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tongue {
    /// `SET fencewire.capability = '…'`, `RESET fencewire.capability`.
    Postgres,
    /// `SET @fencewire_capability = '…'`.
    MySql,
}

impl Tongue {
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Postgres => POSTGRES_NAME,
            Self::MySql => b"@fencewire_capability",
        }
    }

    /// What goes to the engine in place of a SET with a secret in it.
    pub(crate) const fn stand_in(self) -> &'static str {
        match self {
            Self::Postgres => "SET fencewire.capability = ''",
            Self::MySql => "SET @fencewire_capability = ''",
        }
    }
}

/// The setting's name on PostgreSQL, in startup packets too.
pub(crate) const POSTGRES_NAME: &[u8] = b"fencewire.capability";

/// The connection attribute's name on MySQL and MariaDB.
pub(crate) const MYSQL_ATTRIBUTE: &[u8] = b"fencewire_capability";

/// What a text is about a capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing: the usual case.
    Nothing,
    /// It is one SET that presents this.
    Presents(Offered),
    /// It is one SET or RESET that gives the session's capability up.
    GivesUp,
    /// It has a secret in it, or sets one, in a way that isn't understood: it must not go on.
    Unclear,
}

/// Reads a text. `sets` is the classifier's word that one of its statements names the setting.
/// `whole` says that the text is all there is of its program.
pub(crate) fn said(tongue: Tongue, text: &[u8], sets: bool, whole: bool) -> Said {
    if !sets && !holds_secret(text) {
        return Said::Nothing;
    }
    match statement(tongue, text) {
        None if stays_as_it_is() => Said::Nothing,
        Some(value) if whole && value.is_empty() => Said::GivesUp,
        Some(value) if whole => Said::Presents(Offered::new(value)),
        Some(_) | None => Said::Unclear,
    }
}

/// Whether something of a secret's form is in these bytes.
pub(crate) fn holds_secret(bytes: &[u8]) -> bool {
    if bytes.len() < PREFIX.len() + LETTERS {
        return false;
    }
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    FINDER.find_iter(bytes).any(|at| {
        let letters = bytes.get(at + PREFIX.len()..).and_then(|rest| rest.get(..LETTERS));
        letters.is_some_and(|letters| letters.iter().all(is_letter))
    })
}

/// The value of the one statement, or nothing for one that gives it up; `None` for any other text.
fn statement(tongue: Tongue, text: &[u8]) -> Option<&[u8]> {
    let rest = behind_blanks(text);
    if let Some(rest) = behind_word(rest, b"reset").filter(|_| tongue == Tongue::Postgres) {
        let rest = behind_name(tongue, behind_blanks(rest))?;
        return is_end(rest).then_some(&[]);
    }
    let mut rest = behind_blanks(behind_word(rest, b"set")?);
    if let Some(behind) = behind_word(rest, b"session") {
        rest = behind_blanks(behind);
    }
    let rest = behind_blanks(behind_name(tongue, rest)?);
    let rest = rest
        .strip_prefix(b":=")
        .filter(|_| tongue == Tongue::MySql)
        .or_else(|| rest.strip_prefix(b"="))
        .or_else(|| behind_word(rest, b"to").filter(|_| tongue == Tongue::Postgres))?;
    let (value, rest) = value(tongue, behind_blanks(rest))?;
    is_end(rest).then_some(value)
}

/// A value in quotes without anything that could mean something in it, or a word for none.
fn value(tongue: Tongue, text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (quote, rest) = text.split_first()?;
    if matches!(quote, b'\'' | b'"') {
        let end = rest.iter().position(|byte| byte == quote)?;
        let (value, rest) = rest.split_at_checked(end)?;
        let rest = rest.get(1..)?;
        let goes_on = matches!(rest.first(), Some(b'\'' | b'"'));
        return (!goes_on && !value.contains(&b'\\')).then_some((value, rest));
    }
    let none = match tongue {
        Tongue::Postgres => b"default".as_slice(),
        Tongue::MySql => b"null".as_slice(),
    };
    behind_word(text, none).map(|rest| (&[][..], rest))
}

/// The setting's name, without regard to case.
fn behind_name(tongue: Tongue, text: &[u8]) -> Option<&[u8]> {
    behind_word(text, tongue.name())
}

/// What follows a word that ends there.
fn behind_word<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_at_checked(word.len())?;
    let ends = |byte: &u8| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'$' | 0x80..);
    let ended = rest.first().is_none_or(ends);
    (ended && head.eq_ignore_ascii_case(word)).then_some(rest)
}

/// Nothing but blanks, comments and semicolons.
fn is_end(mut rest: &[u8]) -> bool {
    loop {
        rest = behind_blanks(rest);
        match rest.strip_prefix(b";") {
            Some(behind) => rest = behind,
            None => return rest.is_empty(),
        }
    }
}

/// Skips blanks and comments that every engine takes for one. Any other ends the reading: such a
/// text isn't understood, which is the safe side.
fn behind_blanks(text: &[u8]) -> &[u8] {
    let mut rest = text.trim_ascii_start();
    loop {
        let behind = if rest.starts_with(b"-- ") {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            rest.get(end..)
        } else if rest.starts_with(b"/*") && !matches!(rest.get(2), Some(b'!' | b'M' | b'+')) {
            // Nested ones end elsewhere on PostgreSQL: what is behind the first end is no SET then.
            let end = rest.windows(2).skip(2).position(|two| two == b"*/");
            end.and_then(|end| rest.get(end + 4..))
        } else {
            None
        };
        match behind {
            Some(behind) => rest = behind.trim_ascii_start(),
            None => return rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret() -> String {
        format!("fwc_{}", "aB3-_".repeat(9).get(..LETTERS).unwrap())
    }

    fn pg(text: &str) -> Said {
        said(Tongue::Postgres, text.as_bytes(), true, true)
    }

    fn my(text: &str) -> Said {
        said(Tongue::MySql, text.as_bytes(), true, true)
    }

    fn presents(text: &str) -> Said {
        Said::Presents(Offered::new(text.as_bytes()))
    }

    #[test]
    fn a_set_of_its_own_presents_and_an_empty_one_gives_up() {
        for text in [
            "SET fencewire.capability = 'x'",
            "set session FENCEWIRE.capability to 'x' ;; ",
            "/* a */ -- b\n SET fencewire.capability='x'; -- c",
            "SET fencewire.capability = \"x\"",
        ] {
            assert_eq!(pg(text), presents("x"), "{text}");
        }
        for text in [
            "SET @fencewire_capability = 'x'",
            "set @FENCEWIRE_capability:='x';",
            "/* a */ SET @fencewire_capability=\"x\"",
        ] {
            assert_eq!(my(text), presents("x"), "{text}");
        }
        for text in [
            "RESET fencewire.capability",
            "SET fencewire.capability = ''",
            "SET fencewire.capability TO DEFAULT;",
        ] {
            assert_eq!(pg(text), Said::GivesUp, "{text}");
        }
        for text in ["SET @fencewire_capability = NULL", "set @fencewire_capability:=''"] {
            assert_eq!(my(text), Said::GivesUp, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_does_not_go_on() {
        let secret = secret();
        for text in [
            "SET LOCAL fencewire.capability = 'x'",
            "SET fencewire.capability = E'x'",
            "SET fencewire.capability = 'x' 'y'",
            "SET fencewire.capability = 'x''y'",
            "SET fencewire.capability = 'x\\'",
            "SET fencewire.capability = 'x'; SELECT 1",
            "BEGIN; SET fencewire.capability = 'x'",
            "SET fencewire.capability = 'x",
            "RESET fencewire.capability_2",
            "SET fencewire.capability",
            "/* /* */ */ SET fencewire.capability = 'x'",
        ] {
            assert_eq!(pg(text), Said::Unclear, "{text}");
        }
        for text in ["SET @fencewire_capability = 'x', @a = 1", "/*!50000 SET @a = 1 */", "SET @a"]
        {
            assert_eq!(my(text), Said::Unclear, "{text}");
        }
        // Without the classifier's word, by its form alone.
        for text in [
            format!("SELECT set_config('fencewire.capability', '{secret}', false)"),
            format!("SELECT '{secret}xyz'"),
            format!("INSERT INTO t VALUES ('fwc_', 'fwc_fwc_{secret}')"),
        ] {
            for tongue in [Tongue::Postgres, Tongue::MySql] {
                assert_eq!(said(tongue, text.as_bytes(), false, true), Said::Unclear, "{text}");
            }
        }
        let set = format!("SET fencewire.capability = '{secret}'");
        assert_eq!(said(Tongue::Postgres, set.as_bytes(), false, true), presents(&secret));
        assert_eq!(said(Tongue::Postgres, set.as_bytes(), false, false), Said::Unclear);
        assert_eq!(said(Tongue::MySql, set.as_bytes(), false, true), Said::Unclear);
    }

    #[test]
    fn anything_else_is_none_of_its_business() {
        let short = secret().split_at(LETTERS + PREFIX.len() - 1).0.to_owned();
        for text in [
            "SELECT 1".to_owned(),
            "SELECT fwc_id FROM fwc_orders".to_owned(),
            format!("SELECT '{short}'"),
            "SET fencewire.other = 'x'".to_owned(),
        ] {
            for tongue in [Tongue::Postgres, Tongue::MySql] {
                assert_eq!(said(tongue, text.as_bytes(), false, true), Said::Nothing, "{text}");
            }
        }
    }

    #[test]
    fn no_way_of_printing_shows_what_was_offered() {
        let said = presents(&secret());
        assert_eq!(format!("{said:?} {:#?}", Some(&said)).matches("fwc").count(), 0);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_none_with_a_secret_is_nothing(
            before in "(?s).{0,40}", after in "(?s).{0,40}", bytes in any::<Vec<u8>>(),
        ) {
            let text = format!("{before}{}{after}", secret());
            for tongue in [Tongue::Postgres, Tongue::MySql] {
                for sets in [false, true] {
                    let _any = said(tongue, &bytes, sets, true);
                    let said = said(tongue, text.as_bytes(), sets, true);
                    prop_assert_ne!(said, Said::Nothing);
                }
            }
        }

        #[test]
        fn a_presented_value_is_all_there_is_between_the_quotes(value in "[^'\\\\]{1,60}") {
            let text = format!("SET fencewire.capability = '{value}'");
            prop_assert_eq!(pg(&text), presents(&value));
        }
    }
}
