//! The command line.
//!
//! Idea: options lie above the configuration file, and without either it does what it should in a guest
//! that has the port. Exit status 0 done, 1 failed, 2 wrong usage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::config::{self, Config};
use crate::linux::Sources;
use crate::shrink;
use crate::transport::Address;
use crate::{once, run};

/// Where the configuration is, if it is anywhere.
const CONFIG_FILE: &str = "/etc/ballast/agent.toml";
/// Where it is noted what was lowered, until it is raised again.
const STATE_FOLDER: &str = "/run/ballast-agent";

const EXAMPLES: &str = "\
Examples:
  ballast-agent
      report to the host, until told to stop
  ballast-agent --once --json
      print one sample of this guest's statistics
  ballast-agent --connect unix:/run/host.sock --redis 127.0.0.1:6379
      report to a Unix socket, and let a redis cache shrink when told to
  ballast-agent --release
      let everything grow again that was made to shrink";

/// Reports a guest's memory to the host, asks for memory, and makes programs give it back.
#[derive(Debug, Parser)]
#[command(name = "ballast-agent", version, after_help = EXAMPLES)]
struct Options {
    /// Where the host is: virtio:NAME, unix:PATH or vsock:CONTEXT:PORT
    #[arg(long, value_name = "ADDRESS")]
    connect: Option<Address>,
    /// Configuration [default: /etc/ballast/agent.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A redis used as a cache: address and port, or its socket
    #[arg(long, value_name = "ADDRESS")]
    redis: Option<String>,
    /// A memcached: address and port, or its socket
    #[arg(long, value_name = "ADDRESS")]
    memcached: Option<String>,
    /// Folder of executables, each a shrinker
    #[arg(long, value_name = "FOLDER")]
    hooks: Option<PathBuf>,
    /// Print one sample of statistics and end
    #[arg(long)]
    once: bool,
    /// With --once: as JSON, in the protocol's form
    #[arg(long, requires = "once")]
    json: bool,
    /// Let everything grow again that was made to shrink, and end
    #[arg(long, conflicts_with = "once")]
    release: bool,
}

/// The program.
pub fn main() -> ExitCode {
    match execute(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ballast-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(options: Options) -> Result<(), String> {
    let config = options.config()?;
    if options.once {
        let statistics = Sources::open(Path::new("/")).sample();
        return once::print(&statistics, options.json).map_err(|error| error.to_string());
    }
    let mut shrinkers = shrink::configured(&config.shrinkers, Path::new(STATE_FOLDER));
    // What a killed agent left lowered.
    shrink::release(&mut shrinkers);
    if options.release {
        return Ok(());
    }
    let address = match config.connect.as_deref().map(str::parse) {
        None => Address::default(),
        Some(address) => address.map_err(|error: crate::transport::NoAddress| error.to_string())?,
    };
    run::run(&address, &config, shrinkers)
}

impl Options {
    /// The file with the options above it.
    fn config(&self) -> Result<Config, String> {
        let file = self.config.as_deref().unwrap_or(Path::new(CONFIG_FILE));
        let mut config = match fs::read_to_string(file) {
            Ok(text) => config::parse(&text, file).map_err(|error| error.to_string())?,
            Err(error) if self.config.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Config::default()
            }
            Err(error) => return Err(format!("{}: {error}", file.display())),
        };
        if let Some(address) = &self.connect {
            config.connect = Some(address.to_string());
        }
        let shrinkers = &mut config.shrinkers;
        if let Some(address) = &self.redis {
            let (password_file, keep) = (None, None);
            shrinkers.redis = Some(config::Redis { address: address.clone(), password_file, keep });
        }
        if let Some(address) = &self.memcached {
            shrinkers.memcached = Some(config::Memcached { address: address.clone(), keep: None });
        }
        if let Some(folder) = &self.hooks {
            shrinkers.hooks = Some(folder.clone());
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_example_is_understood_and_every_option_explained() {
        let command = Options::command();
        command.clone().debug_assert();
        assert!(command.get_arguments().all(|it| it.get_help().is_some()));
        let lines: Vec<&str> =
            EXAMPLES.lines().filter(|line| line.starts_with("  ballast-agent")).collect();
        assert!(lines.len() > 3);
        for line in lines {
            Options::try_parse_from(line.split_whitespace()).unwrap();
        }
    }

    #[test]
    fn options_lie_above_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        fs::write(&file, "connect = \"vsock\"\n[shrinkers]\nhooks = \"/a\"\n").unwrap();
        let parse = |more: &[&str]| {
            let file = file.display().to_string();
            let words =
                ["ballast-agent", "--config", &file].into_iter().chain(more.iter().copied());
            Options::try_parse_from(words).unwrap().config().unwrap()
        };
        let config = parse(&[]);
        assert_eq!(config.connect.as_deref(), Some("vsock"));
        let config = parse(&["--connect", "unix:/s", "--hooks", "/b", "--redis", "/r"]);
        assert_eq!(config.connect.as_deref(), Some("unix:/s"));
        assert_eq!(config.shrinkers.hooks, Some("/b".into()));
        assert_eq!(config.shrinkers.redis.unwrap().address, "/r");
        let none = Options::try_parse_from(["ballast-agent", "--config", "/nonexistent"]).unwrap();
        assert!(none.config().unwrap_err().contains("/nonexistent"));
    }
}
