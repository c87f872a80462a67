//! The command line.
//!
//! Options override the configuration file. A guest with the virtio-serial port needs neither.
//! Exit status: 0 success, 1 failure, 2 usage error.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::config::{self, AgentConfig};
use crate::linux::KernelSources;
use crate::shrink;
use crate::transport::HostAddress;
use crate::{once, run};

/// The default configuration file.
const CONFIG_FILE: &str = "/etc/ballast/agent.toml";
/// Where shrinkers record original limits while limits are lowered.
const STATE_FOLDER: &str = "/run/ballast-agent";

const EXAMPLES: &str = "\
Examples:
  ballast-agent
      report to the host until stopped
  ballast-agent --once --json
      print one sample of this guest's statistics
  ballast-agent --connect unix:/run/host.sock --redis 127.0.0.1:6379
      report to a Unix socket, and shrink a redis cache when the host orders it
  ballast-agent --release
      let all shrunk programs grow again";

/// Reports a guest's memory to the host, asks for memory, and makes programs give memory back
#[derive(Debug, Parser)]
#[command(name = "ballast-agent", version, after_help = EXAMPLES)]
struct AgentOptions {
    /// Address of the host: virtio:NAME, unix:PATH, vsock:CONTEXT:PORT or xenstore
    #[arg(long, value_name = "ADDRESS")]
    connect: Option<HostAddress>,
    /// Configuration file [default: /etc/ballast/agent.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A redis used as a cache: address and port, or socket
    #[arg(long, value_name = "ADDRESS")]
    redis: Option<String>,
    /// A memcached server: address and port, or socket
    #[arg(long, value_name = "ADDRESS")]
    memcached: Option<String>,
    /// Folder of executables; each is a shrinker
    #[arg(long, value_name = "FOLDER")]
    hooks: Option<PathBuf>,
    /// Print one sample of statistics and exit
    #[arg(long)]
    once: bool,
    /// With --once: print the protocol's JSON
    #[arg(long, requires = "once")]
    json: bool,
    /// Let all shrunk programs grow again, and exit
    #[arg(long, conflicts_with = "once")]
    release: bool,
}

/// Runs the program.
pub fn main() -> ExitCode {
    match execute(AgentOptions::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ballast-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(options: AgentOptions) -> Result<(), String> {
    let config = options.config()?;
    if options.once {
        let statistics = KernelSources::open(Path::new("/")).sample();
        return once::print(&statistics, options.json).map_err(|error| error.to_string());
    }
    let mut shrinkers = shrink::configured(&config.shrinkers, Path::new(STATE_FOLDER));
    if options.release {
        shrink::release_all(&mut shrinkers);
        return Ok(());
    }
    let address = match config.connect.as_deref().map(str::parse) {
        None => HostAddress::default(),
        Some(address) => {
            address.map_err(|error: crate::transport::AddressError| error.to_string())?
        }
    };
    run::run(&address, &config, shrinkers)
}

impl AgentOptions {
    /// The configuration file with the options applied.
    fn config(&self) -> Result<AgentConfig, String> {
        let file = self.config.as_deref().unwrap_or(Path::new(CONFIG_FILE));
        let mut config = match fs::read_to_string(file) {
            Ok(text) => config::parse(&text, file).map_err(|error| error.to_string())?,
            Err(error) if self.config.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                AgentConfig::default()
            }
            Err(error) => return Err(format!("{}: {error}", file.display())),
        };
        if let Some(address) = &self.connect {
            config.connect = Some(address.to_string());
        }
        let shrinkers = &mut config.shrinkers;
        if let Some(address) = &self.redis {
            let (password_file, keep) = (None, None);
            shrinkers.redis =
                Some(config::RedisConfig { address: address.clone(), password_file, keep });
        }
        if let Some(address) = &self.memcached {
            shrinkers.memcached =
                Some(config::MemcachedConfig { address: address.clone(), keep: None });
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
    fn examples_parse_and_every_option_has_help() {
        let command = AgentOptions::command();
        command.clone().debug_assert();
        assert!(command.get_arguments().all(|it| it.get_help().is_some()));
        let lines: Vec<&str> =
            EXAMPLES.lines().filter(|line| line.starts_with("  ballast-agent")).collect();
        assert!(lines.len() > 3);
        for line in lines {
            AgentOptions::try_parse_from(line.split_whitespace()).unwrap();
        }
    }

    #[test]
    fn options_override_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        fs::write(&file, "connect = \"vsock\"\n[shrinkers]\nhooks = \"/a\"\n").unwrap();
        let parse = |more: &[&str]| {
            let file = file.display().to_string();
            let words =
                ["ballast-agent", "--config", &file].into_iter().chain(more.iter().copied());
            AgentOptions::try_parse_from(words).unwrap().config().unwrap()
        };
        let config = parse(&[]);
        assert_eq!(config.connect.as_deref(), Some("vsock"));
        let config = parse(&["--connect", "unix:/s", "--hooks", "/b", "--redis", "/r"]);
        assert_eq!(config.connect.as_deref(), Some("unix:/s"));
        assert_eq!(config.shrinkers.hooks, Some("/b".into()));
        assert_eq!(config.shrinkers.redis.unwrap().address, "/r");
        let none =
            AgentOptions::try_parse_from(["ballast-agent", "--config", "/nonexistent"]).unwrap();
        assert!(none.config().unwrap_err().contains("/nonexistent"));
    }
}
