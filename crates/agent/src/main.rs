//! The program `ballast-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ballast_agent::cli::main()
}
