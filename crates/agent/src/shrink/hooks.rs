//! Hooks: an operator's executables as shrinkers.
//!
//! `HOOK can-give` prints how many bytes it can give, `HOOK give BYTES` gives and prints how many
//! it gave, `HOOK release` lets its program grow again.
//!
//! Limits: the first [`HOOKS_MAX`] hooks by name. A call is killed at its deadline: the order's for
//! `give`, otherwise [`ASK_TIME_MAX`]. Only the first [`OUTPUT_BYTES_MAX`] of the output are read.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::shrink::shrinker::Shrinker;

/// Most hooks in a folder.
const HOOKS_MAX: usize = 16;
/// Longest time for `can-give` and `release`.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes read of a hook's output, which is a number.
const OUTPUT_BYTES_MAX: u64 = 64;
/// Time between two checks whether a hook has ended.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// A shrinker that calls an executable.
pub struct Hook {
    name: String,
    program: PathBuf,
}

impl Hook {
    /// The hooks in a folder, sorted by name.
    pub fn all(folder: &Path) -> Vec<Hook> {
        let mut hooks = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let program = entry.path();
            // Follows links.
            let is_executable = fs::metadata(&program)
                .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
            if is_executable {
                let name = format!("hook:{}", entry.file_name().to_string_lossy());
                hooks.push(Hook { name, program });
            }
        }
        hooks.sort_by(|a, b| a.name.cmp(&b.name));
        hooks.truncate(HOOKS_MAX);
        hooks
    }

    fn call(&self, arguments: &[&str], deadline: Instant) -> Result<String, String> {
        let mut child = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL_PERIOD),
                Ok(None) => {
                    kill(&mut child);
                    return Err(format!("{} timed out and was killed", arguments.join(" ")));
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        if !status.success() {
            return Err(format!("{} ended with {status}", arguments.join(" ")));
        }
        let mut text = String::new();
        if let Some(output) = child.stdout.take() {
            // A process it left behind may hold the pipe open: read only what is there.
            rustix::io::ioctl_fionbio(&output, true).map_err(|error| error.to_string())?;
            let _ = output.take(OUTPUT_BYTES_MAX).read_to_string(&mut text);
        }
        Ok(text)
    }

    fn number(&self, arguments: &[&str], deadline: Instant) -> Result<u64, String> {
        let text = self.call(arguments, deadline)?;
        let text = text.trim();
        text.parse()
            .map_err(|_| format!("{} printed `{text}`: expected a number", arguments.join(" ")))
    }
}

/// Kills a hook and the processes it started.
fn kill(child: &mut Child) {
    let _ = rustix::process::kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
}

impl Shrinker for Hook {
    fn name(&self) -> &str {
        &self.name
    }

    fn can_give(&mut self) -> Result<u64, String> {
        self.number(&["can-give"], Instant::now() + ASK_TIME_MAX)
    }

    fn give(&mut self, bytes: u64, deadline: Instant) -> Result<u64, String> {
        // Claims beyond the request do not count.
        Ok(self.number(&["give", &bytes.to_string()], deadline)?.min(bytes))
    }

    fn release(&mut self) -> Result<(), String> {
        self.call(&["release"], Instant::now() + ASK_TIME_MAX).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(folder: &Path, name: &str, script: &str) {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn hooks_are_called_in_order_of_name() {
        let folder = tempfile::tempdir().unwrap();
        hook(folder.path(), "b", "case $1 in can-give) echo 100;; give) echo $2;; esac");
        hook(folder.path(), "a", "echo much");
        hook(folder.path(), "c", "exit 3");
        hook(folder.path(), "d", "sleep 1000");
        fs::write(folder.path().join("README"), "not executable").unwrap();
        let mut hooks = Hook::all(folder.path());
        let names: Vec<&str> = hooks.iter().map(Hook::name).collect();
        assert_eq!(names, ["hook:a", "hook:b", "hook:c", "hook:d"]);
        assert!(hooks[0].can_give().unwrap_err().contains("printed `much`"));
        assert_eq!(hooks[1].can_give(), Ok(100));
        let deadline = Instant::now() + Duration::from_secs(30);
        assert_eq!(hooks[1].give(70, deadline), Ok(70));
        assert_eq!(hooks[1].release(), Ok(()));
        assert!(hooks[2].can_give().unwrap_err().contains("exit status: 3"));
        let deadline = Instant::now() + Duration::from_millis(50);
        assert!(hooks[3].give(1, deadline).unwrap_err().contains("timed out"));
        assert!(Hook::all(Path::new("/nonexistent")).is_empty());
    }
}
