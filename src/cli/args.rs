//! The shape of the command line.
//!
//! Purpose: names, options and help texts, and the small readers of their values. Called by `cli`
//! only. It reads no environment and runs nothing. Commands that this version does not have are
//! here, so that their names are known and answered honestly.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::base::ids::{CommandId, Namespace, OperationId};

/// Fences live databases for migrations, and proves that the old side is finished
#[derive(Parser)]
#[command(name = "fencewire", version, max_term_width = 80)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Run the proxy
    Serve(ServeArgs),
    /// See it work on a throw-away engine
    Demo(DemoArgs),
    /// Command and inspect fences of a running proxy
    Ctl(CtlArgs),
    /// Check pending migrations (not available yet)
    Check(Later),
    /// Check a configuration file without starting
    CheckConfig {
        /// The file
        file: PathBuf,
    },
    /// Run a whole database move (not available yet)
    Move(Later),
    /// Print the admin API's description (OpenAPI)
    Openapi,
}

/// Anything; for commands that come later.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(super) struct Later {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<String>,
}

#[derive(Args)]
pub(super) struct ServeArgs {
    /// Settings from a file; excludes the other options
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["listen", "engine", "state_dir", "admin"])]
    pub(super) config: Option<PathBuf>,
    /// Where clients connect: postgres://127.0.0.1:6432
    #[arg(long, value_name = "URL")]
    pub(super) listen: Vec<String>,
    /// [NAME=]postgres://user:pw@host/db [NAME: postgres]
    #[arg(long, value_name = "URL")]
    pub(super) engine: Vec<String>,
    /// Store and generated key [default: ./fencewire-state]
    #[arg(long, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
    /// Admin HTTP address [default: 127.0.0.1:6480]
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) admin: Option<String>,
}

#[derive(Args)]
pub(super) struct DemoArgs {
    /// Which engine to start: postgres, mariadb or mysql
    #[arg(long, value_name = "ENGINE", default_value = "postgres")]
    #[arg(value_parser = ["postgres", "mysql", "mariadb"])]
    #[arg(hide_possible_values = true, hide_default_value = true)]
    pub(super) engine: String,
}

/// What `ctl --help` says below its options.
const CTL_NOTES: &str = "\
Exit codes: 0 done, 2 usage, 3 still draining (replay), 4 refused,
            5 not known or not now (replay), 6 proxy not reached
Route commands come in later versions.";

/// What `ctl acquire-write-fence --help` says below its options.
const ACQUIRE_NOTES: &str = "At the deadline writes stay closed; the answer names the ways on.";

#[derive(Args)]
#[command(disable_help_subcommand = true, after_help = CTL_NOTES)]
pub(super) struct CtlArgs {
    /// Admin address [env FENCEWIRE_ADMIN_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub(super) admin_url: Option<String>,
    /// File of the admin key [or env FENCEWIRE_ADMIN_KEY]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Print one JSON object on stdout, nothing else there
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: CtlCommand,
}

#[derive(Subcommand)]
pub(super) enum CtlCommand {
    /// Show namespaces, fence states, sessions, blockers
    Status,
    /// Show one namespace's fence, drain and receipts
    Inspect(InspectArgs),
    /// Close a source to writes and prove that none is left
    AcquireWriteFence(AcquireArgs),
    /// Open a source to writes again
    ReleaseWriteFence(ReleaseArgs),
    /// Close a write-fenced source to reads too
    SetReadFence(SetReadArgs),
    /// Open a source to reads again
    ClearReadFence(CommandArgs),
    /// Create a target that nobody can reach
    CreateQuarantined(CreateArgs),
    /// Give out the capability that imports into a target
    ImportCapability(CapabilityArgs),
    /// End the import into a target and prove that none is left
    SealImport(SealArgs),
    /// Ask a target that is being validated
    ValidationQuery(QueryArgs),
    /// Record the validation of a target
    Validate(ValidateArgs),
    /// Open a validated target to reads
    Publish(CommandArgs),
    /// Open a target to writes; can't be undone
    EnableWrites(CommandArgs),
    /// Give a target up; it stays closed
    Abort(CommandArgs),
    /// Give a fence whose operation is gone a new owner
    Adopt(AdoptArgs),
    /// Lead a route to another namespace
    #[command(hide = true)]
    Route(Later),
}

#[derive(Args)]
pub(super) struct InspectArgs {
    /// Namespace, as engine/database
    #[arg(value_name = "NS", value_parser = namespace)]
    pub(super) namespace: Namespace,
    /// Show all receipts, not only the owner's
    #[arg(long, value_name = "all", value_parser = ["all"], hide_possible_values = true)]
    pub(super) receipts: Option<String>,
    /// Show it again whenever it changes, until interrupted
    #[arg(long, conflicts_with = "json")]
    pub(super) watch: bool,
}

#[derive(Args)]
pub(super) struct CommandArgs {
    /// Namespace, as engine/database
    #[arg(value_name = "NS", value_parser = namespace)]
    pub(super) namespace: Namespace,
    /// The move that owns the fence: one id per move, kept
    #[arg(long, value_name = "UUID", value_parser = operation)]
    pub(super) operation: OperationId,
    /// Replay this command instead of a fresh one
    #[arg(long, value_name = "UUID", value_parser = command)]
    pub(super) command: Option<CommandId>,
    /// What the fence must be now [default: what inspect says]
    #[arg(long, value_name = "STATE@REVISION", value_parser = expectation)]
    pub(super) expect: Option<Expectation>,
}

#[derive(Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    pub(super) common: CommandArgs,
    /// Although a target of this operation takes writes: then both do
    #[arg(long)]
    pub(super) beside_target: bool,
}

#[derive(Args)]
#[command(after_help = ACQUIRE_NOTES)]
pub(super) struct AcquireArgs {
    #[command(flatten)]
    pub(super) common: CommandArgs,
    /// How long the drain may take, such as 30s [default: the proxy's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) deadline: Option<Duration>,
    /// At the deadline, roll back what still writes
    #[arg(long)]
    pub(super) force_rollback: bool,
    /// Hold what the fence would refuse this long first, such as 2s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) hold: Option<Duration>,
}

#[derive(Args)]
#[command(after_help = READ_NOTES)]
pub(super) struct SetReadArgs {
    #[command(flatten)]
    pub(super) common: CommandArgs,
    /// How long reads may run on, such as 30s [default: the proxy's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) deadline: Option<Duration>,
}

#[derive(Args)]
#[command(after_help = CREATE_NOTES)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    pub(super) common: CommandArgs,
    /// The role that shall own the database (PostgreSQL)
    #[arg(long, value_name = "ROLE")]
    pub(super) owner: Option<String>,
    /// Character encoding or set
    #[arg(long, value_name = "NAME")]
    pub(super) encoding: Option<String>,
    /// Locale or collation
    #[arg(long, value_name = "NAME")]
    pub(super) locale: Option<String>,
    /// An empty template (PostgreSQL) [default: template0]
    #[arg(long, value_name = "NAME")]
    pub(super) template: Option<String>,
}

/// What `ctl create-quarantined --help` says below its options.
const CREATE_NOTES: &str = "\
The proxy makes the database, empty, under a name that nothing has. Sessions
around the proxy aren't kept out of it.";

#[derive(Args)]
pub(super) struct SealArgs {
    #[command(flatten)]
    pub(super) common: CommandArgs,
    /// How long the drain may take, such as 30s [default: the proxy's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) deadline: Option<Duration>,
    /// At the deadline, roll back what still imports
    #[arg(long)]
    pub(super) force_rollback: bool,
}

#[derive(Args)]
pub(super) struct ValidateArgs {
    #[command(flatten)]
    pub(super) common: CommandArgs,
    /// What came out: ok or failed
    #[arg(long, value_name = "RESULT", value_parser = ["ok", "failed"])]
    #[arg(hide_possible_values = true)]
    pub(super) result: String,
    /// What was compared, in a sentence or two
    #[arg(long, value_name = "TEXT")]
    pub(super) summary: Option<String>,
}

/// Which target, whose, at which revision.
#[derive(Args)]
pub(super) struct TargetArgs {
    /// Namespace, as engine/database
    #[arg(value_name = "NS", value_parser = namespace)]
    pub(super) namespace: Namespace,
    /// The move that owns the target
    #[arg(long, value_name = "UUID", value_parser = operation)]
    pub(super) operation: OperationId,
    /// The revision it must be at [default: what inspect says]
    #[arg(long, value_name = "NUMBER")]
    pub(super) revision: Option<u64>,
}

#[derive(Args)]
#[command(after_help = CAPABILITY_NOTES)]
pub(super) struct CapabilityArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// What for: import or validation [default: import]
    #[arg(long, value_name = "PURPOSE", value_parser = ["import", "validation"])]
    #[arg(hide_possible_values = true)]
    pub(super) purpose: Option<String>,
}

/// What `ctl import-capability --help` says below its options.
const CAPABILITY_NOTES: &str = "\
Prints the secret on stdout and nothing else there. It is shown this once, and
dies when the target moves on or the proxy restarts.";

#[derive(Args)]
#[command(after_help = QUERY_NOTES)]
pub(super) struct QueryArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Single statements that read
    #[arg(value_name = "SQL", required = true)]
    pub(super) statements: Vec<String>,
}

/// What `ctl validation-query --help` says below its options.
const QUERY_NOTES: &str = "\
All of them see one snapshot. At most 10,000 rows come back, over all of them;
what would be more is refused, not cut off.";

/// What `ctl set-read-fence --help` says below its options.
const READ_NOTES: &str = "\
At the deadline what still reads is cancelled, then its backend ended.
Replication streams are ended at once. Writes stay closed throughout.";

#[derive(Args)]
#[command(after_help = ADOPT_NOTES, next_line_help = false)]
#[command(override_usage = "fencewire ctl adopt <NS> --operation <UUID> --from <UUID> \
    --approver <A>\n       --approver <B> --incident <REF> --reason <TEXT> [OPTIONS]")]
pub(super) struct AdoptArgs {
    /// Namespace, as engine/database
    #[arg(value_name = "NS", value_parser = namespace)]
    pub(super) namespace: Namespace,
    /// The operation that takes the fence over
    #[arg(long, value_name = "UUID", value_parser = operation)]
    pub(super) operation: OperationId,
    /// The operation that owns it, as inspect shows
    #[arg(long, value_name = "UUID", value_parser = operation)]
    pub(super) from: OperationId,
    /// Who approves; give it twice
    #[arg(long, value_name = "NAME", required = true)]
    pub(super) approver: Vec<String>,
    /// The incident this belongs to
    #[arg(long, value_name = "REF")]
    pub(super) incident: String,
    /// Why; it stays with the fence
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: String,
    /// File of the second key
    #[arg(long, value_name = "FILE")]
    pub(super) second_key: Option<PathBuf>,
    /// Replay this command instead of a fresh one
    #[arg(long, value_name = "UUID", value_parser = command)]
    pub(super) command: Option<CommandId>,
    /// What the fence must be now [default: what inspect says]
    #[arg(long, value_name = "STATE@REVISION", value_parser = expectation)]
    pub(super) expect: Option<Expectation>,
}

/// What `ctl adopt --help` says below its options.
const ADOPT_NOTES: &str = "\
For an incident: the operation that owns a fence is gone and can't finish it.
Adoption changes the owner and nothing else: no gate opens or closes.
Without its file the second key is FENCEWIRE_ADOPTION_KEY, or asked for.";

/// The state and revision that a command expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expectation {
    pub(super) state: String,
    pub(super) revision: u64,
}

fn namespace(text: &str) -> Result<Namespace, String> {
    Namespace::parse(text).map_err(|error| error.to_string())
}

fn operation(text: &str) -> Result<OperationId, String> {
    OperationId::parse(text).map_err(|error| error.to_string())
}

fn command(text: &str) -> Result<CommandId, String> {
    CommandId::parse(text).map_err(|error| error.to_string())
}

fn expectation(text: &str) -> Result<Expectation, String> {
    let read = || {
        let (state, revision) = text.split_once('@')?;
        let known = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
        let good = !state.is_empty() && state.bytes().all(known);
        let revision = revision.parse().ok()?;
        good.then(|| Expectation { state: state.to_owned(), revision })
    };
    read().ok_or_else(|| "expected STATE@REVISION, such as UNFENCED@0".to_owned())
}

/// Longest time that an option may name.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// Reads `500ms`, `30s`, `2m`, `1h` or `0`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: Option<u64> = number.parse().ok();
    let scale = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "" if number == Some(0) => Some(1),
        _ => None,
    };
    let millis = number.zip(scale).and_then(|(number, scale)| number.checked_mul(scale));
    millis
        .map(Duration::from_millis)
        .filter(|duration| *duration <= DURATION_MAX)
        .ok_or_else(|| "expected a time such as 500ms, 30s, 2m or 1h, at most 24h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, millis) in
            [("0", 0), ("0s", 0), ("500ms", 500), ("30s", 30_000), ("2m", 120_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "30", "s", "-1s", "1.5s", "25h", "99999999999999999999s", "1d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn expectations_are_read() {
        let good = Expectation { state: "SOURCE_DRAINING".into(), revision: 3 };
        assert_eq!(expectation("SOURCE_DRAINING@3"), Ok(good));
        for text in ["", "@1", "UNFENCED", "unfenced@0", "UNFENCED@", "UNFENCED@-1"] {
            assert!(expectation(text).is_err(), "{text}");
        }
    }
}
