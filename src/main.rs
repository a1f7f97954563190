//! The `fencewire` program: arguments in, exit code out; everything else is in the library.

fn main() -> std::process::ExitCode {
    fencewire::cli::main(std::env::args_os())
}
