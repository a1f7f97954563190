//! How the demo talks.
//!
//! Purpose: headlines, aligned lines under them, one live line on a terminal, and the summary.
//! Colour is decoration: every line says the same without it. Called by the rest of `demo`.

use super::checks::Check;
use crate::cli::table::Table;
use crate::cli::terminal::{Terminal, plain};

/// Width of the column of labels.
const LABEL_CHARS: usize = 14;
/// Longest text behind a label; a longer one ends in `…`.
const TEXT_CHARS_MAX: usize = 84;
/// Longest live line: it must not wrap.
const LIVE_CHARS_MAX: usize = 78;

/// Writes the demo's text.
pub(super) struct Narrator<'a, 't> {
    terminal: &'a mut Terminal<'t>,
    colour: bool,
}

impl<'a, 't> Narrator<'a, 't> {
    pub(super) fn new(terminal: &'a mut Terminal<'t>, colour: bool) -> Self {
        Self { terminal, colour }
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// The environment, as the command line sees it.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.terminal.variable)(name)
    }

    /// A step's headline, and why one can believe it.
    pub(super) fn step(&mut self, headline: &str, why: &str) {
        let headline = self.painted("1", headline);
        self.say(&format!("\n{headline}"));
        self.say(&format!("  {}", self.painted("2", why)));
    }

    /// A line of figures under a label.
    pub(super) fn line(&mut self, label: &str, text: &str) {
        let mut shown: String = plain(text).chars().take(TEXT_CHARS_MAX).collect();
        if text.chars().count() > TEXT_CHARS_MAX {
            shown.pop();
            shown.push('…');
        }
        self.say(&format!("  {label:<LABEL_CHARS$}{shown}"));
    }

    /// Text as it is.
    pub(super) fn say(&mut self, text: &str) {
        self.terminal.live_line("");
        self.terminal.say(text);
    }

    /// Replaces the live line, where there is a terminal.
    pub(super) fn live(&mut self, text: &str) {
        let text: String = plain(text).chars().take(LIVE_CHARS_MAX).collect();
        self.terminal.live_line(&format!("  {text}"));
    }

    /// What went wrong, on stderr.
    pub(super) fn complain(&mut self, text: &str) {
        self.terminal.live_line("");
        self.terminal.complain(text);
    }

    /// The table of all promises, and what broke them. Answers whether all were kept.
    pub(super) fn summary(&mut self, checks: &[Check]) -> bool {
        let mut table = Table::new(&["PROMISE", "RESULT", "SEEN"]);
        for check in checks {
            let result = if check.kept() { "kept" } else { "BROKEN" };
            table.row(vec![check.promise.to_owned(), result.to_owned(), check.figure.clone()]);
        }
        for (index, line) in table.render().lines().enumerate() {
            let kept = index.checked_sub(1).and_then(|row| checks.get(row)).map(Check::kept);
            let line = match kept {
                Some(true) => line.replacen(" kept ", &self.painted("32", " kept "), 1),
                Some(false) => line.replacen(" BROKEN ", &self.painted("1;31", " BROKEN "), 1),
                None => self.painted("2", line),
            };
            self.say(&format!("  {line}"));
        }
        let broken: Vec<&Check> = checks.iter().filter(|check| !check.kept()).collect();
        for check in &broken {
            for violation in &check.violations {
                self.complain(&plain(&format!("violated: {}: {violation}", check.promise)));
            }
        }
        broken.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(colour: bool, live: bool, tell: impl Fn(&mut Narrator<'_, '_>)) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let variable = |_: &str| None;
        let mut terminal = Terminal { out: &mut out, err: &mut err, live, variable: &variable };
        tell(&mut Narrator::new(&mut terminal, colour));
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    fn check(promise: &'static str, violations: &[&str]) -> Check {
        let violations = violations.iter().map(|text| (*text).to_owned()).collect();
        Check { promise, figure: "7 of 7".to_owned(), violations }
    }

    #[test]
    fn colour_changes_no_word() {
        let tell = |narrator: &mut Narrator<'_, '_>| {
            narrator.step("1  Start", "why");
            narrator.line("label", "text");
            narrator.summary(&[check("a", &[]), check("b", &["x happened"])]);
        };
        let (bare, _) = told(false, false, tell);
        let (painted, _) = told(true, false, tell);
        assert!(!bare.contains('\x1b') && painted.contains("\x1b[1m1  Start\x1b[0m"));
        let mut stripped = painted;
        for code in ["\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[1;31m", "\x1b[0m"] {
            stripped = stripped.replace(code, "");
        }
        assert_eq!(stripped, bare);
    }

    #[test]
    fn a_broken_promise_is_in_the_table_and_on_stderr() {
        let tell = |narrator: &mut Narrator<'_, '_>| {
            assert!(!narrator.summary(&[check("a", &[]), check("b", &["x happened"])]));
            assert!(narrator.summary(&[check("a", &[])]));
        };
        let (out, err) = told(false, false, tell);
        assert!(out.contains("a        kept    7 of 7"), "{out}");
        assert!(out.contains("b        BROKEN  7 of 7"), "{out}");
        assert_eq!(err, "violated: b: x happened\n");
    }

    #[test]
    fn long_text_is_cut_and_harmless() {
        let (out, _) = told(false, false, |narrator| {
            narrator.line("a", &"x".repeat(84));
            narrator.line("b", &"x\x1b".repeat(50));
        });
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], format!("  a             {}", "x".repeat(84)));
        assert!(lines[1].ends_with("x?x…") && lines[1].chars().count() == 100, "{}", lines[1]);
    }

    #[test]
    fn the_live_line_is_for_terminals_and_never_stays() {
        let tell = |narrator: &mut Narrator<'_, '_>| {
            narrator.live(&"x".repeat(200));
            narrator.line("a", "b");
        };
        assert_eq!(told(false, false, tell).1, "");
        let (_, err) = told(false, true, tell);
        assert_eq!(err, format!("\r\x1b[K  {}\r\x1b[K", "x".repeat(LIVE_CHARS_MAX)));
    }
}
