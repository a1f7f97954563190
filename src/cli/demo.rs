//! `fencewire demo`: what the product does, shown on a real engine in less than a minute.
//!
//! Purpose: starts a throw-away engine and the proxy in this process, puts a live load on them,
//! raises a write fence under it, shows the drain and its proof, releases, and says for each
//! promise whether it was kept. The stage is set and cleared here; the play is `demo/play.rs`.
//!
//! Invariant: nothing is left behind, however it ends (`demo/server.rs`). Exit code 0 means that
//! every promise was kept, 1 that one was broken or that the demo couldn't be played, 130 that it
//! was interrupted.
//!
//! Called by `cli`. It uses the same `App` that `serve` runs; nothing in it is staged.

mod bank;
mod binlog;
mod checks;
mod client;
mod error;
mod fence;
mod history;
pub(super) mod kind;
mod link;
mod load;
mod narrator;
mod play;
mod sabotage;
mod server;

use std::fs::File;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::terminal::Terminal;
use crate::app::{App, control_runtime};
use crate::config::{Config, EngineHost, Flags, KeySource, ListenAddress, Machine};
use crate::control::Settings;
use crate::wire::shared::listener::ListenAddress as BoundAddress;
use bank::{ACCOUNTS, Auditor, TOTAL};
use checks::Check;
use error::DemoError;
use kind::Kind;
use narrator::Narrator;
use play::{ENGINE, Stage};
use sabotage::Sabotage;
use server::{PORT, Place, SUPERUSER, Server};

/// Exit code of an interrupted program.
const INTERRUPTED: u8 = 130;
/// How long the proxy lets sessions end when it stops.
const GRACE: Duration = Duration::from_secs(2);
/// Lines of each log that are shown when something failed.
const LOG_LINES: usize = 12;

/// Plays the demo; answers the exit code.
pub(super) fn run(kind: Kind, terminal: &mut Terminal<'_>) -> u8 {
    let no_colour = (terminal.variable)("NO_COLOR").is_some()
        || (terminal.variable)("TERM").is_some_and(|kind| kind == "dumb");
    let colour = std::io::stdout().is_terminal() && !no_colour;
    let mut narrator = Narrator::new(terminal, colour);
    let started = Instant::now();
    let outcome = threads().and_then(|(control, clients)| {
        let outcome = control.block_on(until_interrupted(kind, clients.handle(), &mut narrator));
        // Nothing that still runs there is waited for: the engine is gone.
        clients.shutdown_background();
        control.shutdown_background();
        outcome
    });
    match outcome {
        Ok(checks) => conclude(&checks, started, &mut narrator),
        Err(DemoError::Interrupted) => {
            narrator.complain("interrupted; the engine is stopped, its folder is removed");
            INTERRUPTED
        }
        Err(error) => {
            narrator.complain(&format!("fencewire demo: {error}"));
            1
        }
    }
}

fn threads() -> Result<(Runtime, Runtime), DemoError> {
    let control = control_runtime().map_err(DemoError::Threads)?;
    let mut clients = Builder::new_multi_thread();
    clients.worker_threads(2).thread_name("demo-clients").enable_all();
    Ok((control, clients.build().map_err(DemoError::Threads)?))
}

fn conclude(checks: &[Check], started: Instant, narrator: &mut Narrator<'_, '_>) -> u8 {
    narrator.step("7  Summary", "The engine is stopped and its folder removed.");
    let all_kept = narrator.summary(checks);
    let took = started.elapsed().as_secs_f64();
    if all_kept {
        narrator.say(&format!("\nAll {} promises were kept, in {took:.0} s.", checks.len()));
        0
    } else {
        let broken = checks.iter().filter(|check| !check.kept()).count();
        narrator.say(&format!("\n{broken} of {} promises were BROKEN; see above.", checks.len()));
        1
    }
}

/// Plays until the end or until a signal; everything is cleared away in either case.
async fn until_interrupted(
    kind: Kind,
    clients: &Handle,
    narrator: &mut Narrator<'_, '_>,
) -> Result<Vec<Check>, DemoError> {
    let threads = DemoError::Threads;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(threads)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(threads)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(threads)?;
    tokio::select! {
        biased;
        _ = interrupt.recv() => Err(DemoError::Interrupted),
        _ = terminate.recv() => Err(DemoError::Interrupted),
        _ = hang_up.recv() => Err(DemoError::Interrupted),
        outcome = Box::pin(on_stage(kind, clients, narrator)) => outcome,
    }
}

/// Sets the stage, plays, and clears it. Where the play fails, the ends of both logs are shown
/// before they are removed.
async fn on_stage(
    kind: Kind,
    clients: &Handle,
    narrator: &mut Narrator<'_, '_>,
) -> Result<Vec<Check>, DemoError> {
    let name = kind.shown();
    let title =
        format!("Fencewire demo: a write fence on a live {name}, and the proof that it holds");
    narrator.say(&title);
    narrator.step(
        "1  Start",
        "A throw-away server and the proxy in front of it; nothing of this machine's is touched.",
    );
    narrator.live("making a data directory");
    let mut server = Server::start(kind, std::env::var_os("PATH").as_deref())?;
    let outcome = with_server(&mut server, clients, narrator).await;
    if outcome.is_err() {
        for name in ["server.log", "proxy.log"] {
            let lines = tail(&server.folder().join(name));
            if !lines.is_empty() {
                narrator.complain(&format!("the end of {name}:\n{lines}"));
            }
        }
    }
    narrator.live("stopping the engine");
    drop(server);
    outcome
}

async fn with_server(
    server: &mut Server,
    clients: &Handle,
    narrator: &mut Narrator<'_, '_>,
) -> Result<Vec<Check>, DemoError> {
    log_into(&server.folder().join("proxy.log"))?;
    server.ready().await?;
    narrator.line("engine", &server.described());
    let auditor = Auditor::open(server).await?;
    narrator.line("bank", &format!("{ACCOUNTS} accounts, {TOTAL} in all; a transfers table"));
    let sabotage = Sabotage::wanted(&|name| narrator.variable(name));
    let config = settings(server, sabotage)?;
    let control = Settings::new(&config.proxy.instance);
    let app = App::start(config, control).await?;
    let address = app.addresses().into_iter().find_map(|address| match address {
        BoundAddress::Tcp(text) => text.parse::<std::net::SocketAddr>().ok(),
        BoundAddress::Unix(_) => None,
    });
    let outcome = match address {
        Some(address) => {
            narrator.line("proxy", &format!("in this process, for clients on {address}"));
            let stage = Stage {
                server,
                control: app.control(),
                proxy_port: address.port(),
                auditor: &auditor,
                threads: clients,
                sabotage,
            };
            stage.play(narrator).await
        }
        None => Err(DemoError::Program {
            program: "the proxy".to_owned(),
            how: "does not say where it listens".to_owned(),
        }),
    };
    app.stop().await;
    outcome
}

/// What `serve` would run with, with ports that the system chooses.
fn settings(server: &Server, sabotage: Sabotage) -> Result<Config, DemoError> {
    let password = server.password().expose();
    let scheme = server.kind().scheme();
    let (address, database) = match server.place() {
        Place::Socket(_) => ("localhost".to_owned(), "postgres"),
        Place::Both { port, .. } => (format!("127.0.0.1:{port}"), ""),
    };
    let flags = Flags {
        listen: vec![format!("{scheme}://127.0.0.1:6432")],
        engine: vec![format!(
            "{ENGINE}={scheme}://{SUPERUSER}:{password}@{address}/{database}?sslmode=disable"
        )],
        state_dir: Some(server.folder().join("state")),
        admin: Some("127.0.0.1:6480".to_owned()),
    };
    let mut config = Config::from_flags(&flags, &Machine)?;
    let any_port = || ListenAddress::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
    for listen in &mut config.listens {
        listen.address = any_port();
    }
    if let Place::Socket(folder) = server.place() {
        for engine in &mut config.engines {
            engine.host = EngineHost::Unix { path: folder.clone(), port: PORT };
        }
    }
    config.admin.http = any_port();
    config.admin.key = KeySource::Generated;
    config.proxy.shutdown_grace = GRACE;
    if sabotage == Sabotage::NoEngineLock {
        config.fence.engine_lock = crate::config::EngineLock::Off;
    }
    Ok(config)
}

/// Sends log lines into a file of the folder, not across the play.
fn log_into(path: &Path) -> Result<(), DemoError> {
    let failed = |source| DemoError::File { what: "can't create", path: path.to_owned(), source };
    let file = File::create(path).map_err(failed)?;
    let builder = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::WARN);
    // A second one in a process is refused; the first one's file is as good.
    builder.with_writer(Mutex::new(file)).try_init().ok();
    Ok(())
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES);
    lines.get(from..).unwrap_or_default().join("\n")
}
