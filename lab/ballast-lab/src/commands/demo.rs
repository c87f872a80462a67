//! `ballast demo`: the built-in scenario, without balancing and with it.

use std::path::{Path, PathBuf};

use ballast_lab_host::Scenario;

use ballast_report::Output;

use super::lab_run;

/// The scenario of the demo, and one that takes less than half the time.
const SCENARIO: (&str, &str) =
    ("scenarios/lab/demo.toml", include_str!("../../../../scenarios/lab/demo.toml"));
const QUICK: (&str, &str) =
    ("scenarios/lab/demo-quick.toml", include_str!("../../../../scenarios/lab/demo-quick.toml"));

/// Two real guests share 1 GiB, without balancing and with it, side by side.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast demo
  ballast demo --quick --report /tmp/demo.html

The demo plays scenarios/lab/demo.toml. `ballast lab run` plays it repeatedly, and other scenarios.")]
pub struct Args {
    /// Where to write the page with plots; the raw data is written beside it
    #[arg(long, value_name = "PATH", default_value = "demo-report.html")]
    report: PathBuf,
    /// Play a shorter scenario that shows less
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// Plays the built-in scenario and prints the comparison.
///
/// # Errors
/// Anything needed is missing, or a run fails.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let (file, text) = if args.quick { QUICK } else { SCENARIO };
    let scenario = Scenario::parse(text, Path::new(file))?;
    lab_run::play_and_report(&scenario, text, None, Some(&args.report), None, args.output).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_built_in_is_good_and_not_long() {
        for ((file, text), longest_s) in [(SCENARIO, 100), (QUICK, 50)] {
            let scenario = Scenario::parse(text, Path::new(file)).unwrap();
            assert!(scenario.duration <= Duration::from_secs(longest_s), "{file}");
            assert_eq!((scenario.policies.len(), scenario.repetitions), (2, 1), "{file}");
        }
    }
}
