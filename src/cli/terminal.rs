//! Where the command line writes and what it reads from its surroundings.
//!
//! Purpose: everything that a command prints goes through here, so that tests see it and so that
//! nothing a client sent can move the operator's cursor. Called by the rest of `cli`. A broken pipe
//! is ignored: who stopped reading does not want to hear about it.

use std::io::Write;

/// The two streams, whether a live line can be shown, and the environment.
pub(super) struct Terminal<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) err: &'a mut dyn Write,
    /// Whether stderr is a terminal.
    pub(super) live: bool,
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Terminal<'_> {
    /// A line (or several) of result, on stdout.
    pub(super) fn say(&mut self, text: &str) {
        writeln!(self.out, "{text}").and_then(|()| self.out.flush()).ok();
    }

    /// A line (or several) about what went wrong or what to know, on stderr.
    pub(super) fn complain(&mut self, text: &str) {
        writeln!(self.err, "{text}").and_then(|()| self.err.flush()).ok();
    }

    /// Replaces the live line; nothing where no terminal shows it.
    pub(super) fn live_line(&mut self, text: &str) {
        if self.live {
            write!(self.err, "\r\x1b[K{text}").and_then(|()| self.err.flush()).ok();
        }
    }
}

/// `text` with everything that could steer a terminal replaced by `?`.
pub(super) fn plain(text: &str) -> String {
    let steers = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
    text.chars().map(|c| if steers(c) { '?' } else { c }).collect()
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use std::ffi::OsString;

    use super::*;

    /// Runs the program with these arguments and variables: exit code, stdout, stderr.
    pub(in crate::cli) fn capture(args: &[&str], vars: &[(&str, &str)]) -> (u8, String, String) {
        capture_live(args, vars, false)
    }

    pub(in crate::cli) fn capture_live(
        args: &[&str],
        vars: &[(&str, &str)],
        live: bool,
    ) -> (u8, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let variable = |name: &str| {
            vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let mut terminal = Terminal { out: &mut out, err: &mut err, live, variable: &variable };
        let all = std::iter::once("fencewire").chain(args.iter().copied()).map(OsString::from);
        // What would go on running is only named: tests start no proxy.
        let code = match crate::cli::run(all, &mut terminal) {
            crate::cli::Next::Exit(code) => code,
            crate::cli::Next::Serve(config) => {
                terminal.say(&format!("(serve with {} engine)", config.engines.len()));
                crate::cli::exit::DONE
            }
            crate::cli::Next::Demo(_) => crate::cli::exit::DONE,
        };
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\r\n\tc\u{202e}d"), "a?[2Jb???c?d");
    }
}
