//! L5: the command line.
//!
//! Purpose: arguments become calls, results become text and an exit code. Results go to stdout,
//! everything else to stderr. Called by `main` only. It holds no policy: `serve` is `app`'s, fence
//! commands are the admin surface's.

mod args;
mod ctl;
mod demo;
mod http;
mod table;
mod terminal;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

use crate::config::{Config, Flags, KeySource, Machine};
use args::{Cli, Command, ServeArgs};
use terminal::Terminal;

/// Exit codes, as documented.
mod exit {
    /// Applied, already applied, or shown.
    pub(super) const DONE: u8 = 0;
    /// Wrong arguments, wrong configuration, or not available in this version.
    pub(super) const USAGE: u8 = 2;
    /// The drain is not proven yet.
    pub(super) const DRAINING: u8 = 3;
    /// The proxy said no.
    pub(super) const REFUSED: u8 = 4;
    /// The proxy can't say, or its answer was lost: replay the same command.
    pub(super) const UNKNOWN: u8 = 5;
    /// Nothing was sent: the proxy could not be reached.
    pub(super) const UNREACHABLE: u8 = 6;
}

/// What is left to do once the arguments are read and everything short is done.
enum Next {
    /// Nothing: end with this code.
    Exit(u8),
    /// Run the proxy.
    Serve(Box<Config>),
    /// Run the demonstration, on this engine.
    Demo(demo::kind::Kind),
}

/// Runs the program.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let live = err.is_terminal();
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let mut terminal = Terminal { out: &mut out, err: &mut err, live, variable: &variable };
    match run(args, &mut terminal) {
        Next::Exit(code) => ExitCode::from(code),
        Next::Serve(config) => crate::app::serve(*config),
        Next::Demo(kind) => ExitCode::from(demo::run(kind, &mut terminal)),
    }
}

fn run(args: impl IntoIterator<Item = OsString>, terminal: &mut Terminal<'_>) -> Next {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let text = error.render().to_string();
            if error.use_stderr() {
                terminal.complain(text.trim_end());
                return Next::Exit(exit::USAGE);
            }
            terminal.say(text.trim_end());
            return Next::Exit(exit::DONE);
        }
    };
    match cli.command {
        Command::Serve(args) => serve(&args, terminal),
        Command::Demo(args) => match demo::kind::Kind::named(&args.engine) {
            Some(kind) => Next::Demo(kind),
            // The arguments allow no other word.
            None => Next::Exit(not_yet(&format!("demo --engine {}", args.engine), terminal)),
        },
        Command::Ctl(args) => Next::Exit(ctl::run(&args, terminal)),
        Command::CheckConfig { file } => Next::Exit(check_config(&file, terminal)),
        Command::Check(_) => Next::Exit(not_yet("check", terminal)),
        Command::Move(_) => Next::Exit(not_yet("move", terminal)),
        Command::Openapi => {
            // Alternate form: indented.
            terminal.say(&format!("{:#}", crate::admin::http::document()));
            Next::Exit(exit::DONE)
        }
    }
}

fn not_yet(what: &str, terminal: &mut Terminal<'_>) -> u8 {
    terminal.complain(&format!("fencewire {what}: not available yet in this version"));
    exit::USAGE
}

fn check_config(file: &Path, terminal: &mut Terminal<'_>) -> u8 {
    let read = Config::from_file(file);
    let good = read.map_err(|error| error.to_string()).and_then(|config| {
        let checked = crate::app::check(&config);
        checked.map_err(|error| format!("{}: {error}", file.display())).map(|()| config)
    });
    match good {
        Ok(config) => {
            let (engines, listens) = (config.engines.len(), config.listens.len());
            terminal.say(&format!(
                "{}: good: {engines} engine(s), {listens} listener(s), {} route(s)",
                file.display(),
                config.routes.len()
            ));
            for notice in config.notices() {
                terminal.say(&format!("note: {notice}"));
            }
            if config.admin.key == KeySource::Off {
                let note = "no admin key is configured: the command routes, and with them ctl, \
                            will be off; set key_file or key_env in [admin]";
                terminal.say(&format!("note: {note}"));
            }
            exit::DONE
        }
        Err(error) => {
            terminal.complain(&error);
            exit::USAGE
        }
    }
}

/// Reads what `serve` is to run with; a bad configuration ends here, before anything starts.
fn serve(args: &ServeArgs, terminal: &mut Terminal<'_>) -> Next {
    let read = match &args.config {
        Some(path) => Config::from_file(path),
        None => {
            let flags = Flags {
                listen: args.listen.clone(),
                engine: args.engine.clone(),
                state_dir: args.state_dir.clone(),
                admin: args.admin.clone(),
            };
            Config::from_flags(&flags, &Machine)
        }
    };
    match read {
        Ok(config) => Next::Serve(Box::new(config)),
        Err(error) => {
            terminal.complain(&error.to_string());
            Next::Exit(exit::USAGE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::tests::capture;

    #[test]
    fn help_fits_one_screen() {
        let commands = ["serve", "demo", "check-config", "ctl"].map(|name| (vec![name], 30));
        let ctl = ["status", "inspect", "acquire-write-fence", "release-write-fence"];
        let ctl = ctl.map(|name| (vec!["ctl", name], 30));
        let adopt = (vec!["ctl", "adopt"], 40);
        let all = [(vec![], 24), adopt].into_iter().chain(commands).chain(ctl);
        for (mut args, lines) in all {
            args.push("--help");
            let (code, out, err) = capture(&args, &[]);
            assert_eq!((code, err.as_str()), (exit::DONE, ""));
            assert!(out.lines().count() <= lines, "{} lines:\n{out}", out.lines().count());
            assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
        }
        let (_, out, _) = capture(&["--help"], &[]);
        for name in ["serve", "demo", "ctl", "check", "check-config", "move", "openapi"] {
            assert!(out.contains(&format!("  {name} ")), "{name} is missing:\n{out}");
        }
    }

    #[test]
    fn wrong_usage_is_exit_2_and_on_stderr() {
        for args in [&["frobnicate"][..], &[], &["ctl"], &["ctl", "acquire-write-fence", "old/app"]]
        {
            let (code, out, err) = capture(args, &[]);
            assert_eq!((code, out.as_str()), (exit::USAGE, ""), "{args:?}: {err}");
            assert!(!err.is_empty());
        }
    }

    #[test]
    fn what_is_not_there_yet_says_so() {
        for args in [
            &["check"][..],
            &["check", "migrations/", "--against", "x"],
            &["move", "plan", "--from", "old/app"],
            &["ctl", "route", "app", "new/app", "--expect", "old/app", "--operation", "x"],
        ] {
            let (code, out, err) = capture(args, &[]);
            assert_eq!((code, out.as_str()), (exit::USAGE, ""), "{args:?}");
            assert!(err.contains("not available yet in this version"), "{args:?}: {err}");
        }
    }

    #[test]
    fn openapi_prints_what_is_served() {
        let (code, out, err) = capture(&["openapi"], &[]);
        assert_eq!((code, err.as_str()), (exit::DONE, ""));
        let printed: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(printed, crate::admin::http::document());
    }

    #[test]
    fn check_config_says_good_or_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.toml");
        let path = path.to_str().unwrap();
        let good = "[[engine]]\nname = \"old\"\nurl = \"postgres://u:sesame@h/d\"\n[[listen]]\n\
                    protocol = \"postgres\"\naddress = \"h:1\"\n";
        std::fs::write(path, good).unwrap();
        let (code, out, _) = capture(&["check-config", path], &[]);
        assert_eq!(code, exit::DONE);
        assert!(out.contains("good: 1 engine(s), 1 listener(s)"), "{out}");
        assert!(out.contains("note: no admin key is configured"), "{out}");
        std::fs::write(path, format!("{good}tls = \"on\"\n")).unwrap();
        let (code, out, err) = capture(&["check-config", path], &[]);
        assert_eq!((code, out.as_str()), (exit::USAGE, ""));
        assert!(err.contains("f.toml:7: listen.tls: expected"), "{err}");
        let (code, _, err) = capture(&["serve", "--config", path], &[]);
        assert_eq!(code, exit::USAGE);
        assert!(err.contains("f.toml:7: listen.tls: expected"), "{err}");
    }

    /// What a start would stop at in the files that are named.
    #[test]
    fn check_config_reads_key_and_certificate_files_as_a_start_does() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (long, other) = ("k".repeat(64), "o".repeat(64));
        let (good, short, second) =
            (file("good", &long), file("short", "abc"), file("second", &other));
        let head = "[[engine]]\nname = \"old\"\nurl = \"postgres://u:sesame@h/d\"\n[[listen]]\n\
                    protocol = \"postgres\"\naddress = \"h:1\"\n";
        let tls = format!("cert_file = \"{short}\"\nkey_file = \"{short}\"\n");
        let keys = |key: &str, more: &str| format!("[admin]\nkey_file = \"{key}\"\n{more}");
        let adoption = |path: &str| format!("adoption_key_file = \"{path}\"\n");
        for (text, wrong) in [
            (keys(&good, &adoption(&second)), None),
            (keys(&short, ""), Some("short")),
            (keys(&good, &adoption(&short)), Some("short")),
            (keys(&good, &adoption(&good)), Some("good")),
            (tls, Some("short")),
        ] {
            let path = file("f.toml", &format!("{head}{text}"));
            let (code, _, err) = capture(&["check-config", &path], &[]);
            let expected = if wrong.is_some() { exit::USAGE } else { exit::DONE };
            assert_eq!(code, expected, "{text}: {err}");
            assert!(err.contains(wrong.unwrap_or_default()), "{text}: {err}");
        }
    }

    #[test]
    fn serve_takes_a_file_or_flags_not_both() {
        let (code, _, err) = capture(&["serve", "--config", "x", "--listen", "y"], &[]);
        assert_eq!(code, exit::USAGE);
        assert!(err.contains("cannot be used with"), "{err}");
        let (code, _, err) = capture(&["serve"], &[]);
        assert_eq!(code, exit::USAGE);
        assert!(err.contains("--engine: expected at least one"), "{err}");
        let (listen, engine) = ("postgres://127.0.0.1:6432", "postgres://u@127.0.0.1/postgres");
        let (code, out, _) = capture(&["serve", "--listen", listen, "--engine", engine], &[]);
        assert_eq!((code, out.as_str()), (exit::DONE, "(serve with 1 engine)\n"));
    }
}
