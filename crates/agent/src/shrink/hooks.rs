//! Executables as shrinkers.
//!
//! Idea: what no built-in shrinker knows, an operator's program does. `HOOK can-give` prints bytes,
//! `HOOK give BYTES` gives and prints how many it gave, `HOOK release` lets its program grow again.
//!
//! Limits: [`HOOKS_MAX`] hooks, by name; each call is killed at its deadline, [`ASK_TIME_MAX`] for all
//! but giving; the first [`OUTPUT_BYTES_MAX`] of its output count.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::Shrinker;

/// Most hooks of a folder.
const HOOKS_MAX: usize = 16;
/// Longest time for `can-give` and `release`.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes read of what one prints: a number.
const OUTPUT_BYTES_MAX: u64 = 64;
/// Time between two looks whether it has ended.
const PAUSE: Duration = Duration::from_millis(10);

/// The shrinker.
pub struct Hook {
    name: String,
    program: PathBuf,
}

impl Hook {
    /// Those of a folder, sorted by name.
    pub fn all(folder: &Path) -> Vec<Hook> {
        let mut hooks: Vec<Hook> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| {
                // Through links, as an operator may have made them.
                fs::metadata(entry.path())
                    .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
            })
            .map(|entry| Hook {
                name: format!("hook:{}", entry.file_name().to_string_lossy()),
                program: entry.path(),
            })
            .collect();
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
                Ok(None) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Ok(None) => {
                    end(&mut child);
                    return Err(format!("{} was killed: its time was up", arguments.join(" ")));
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        if !status.success() {
            return Err(format!("{} ended with {status}", arguments.join(" ")));
        }
        let mut text = String::new();
        if let Some(output) = child.stdout.take() {
            // A process it left behind may hold the pipe: what is there is enough.
            rustix::io::ioctl_fionbio(&output, true).map_err(|error| error.to_string())?;
            let _ = output.take(OUTPUT_BYTES_MAX).read_to_string(&mut text);
        }
        Ok(text)
    }

    fn number(&self, arguments: &[&str], deadline: Instant) -> Result<u64, String> {
        let text = self.call(arguments, deadline)?;
        let text = text.trim();
        text.parse()
            .map_err(|_| format!("{} printed `{text}`: expected bytes", arguments.join(" ")))
    }
}

/// Kills it and what it started.
fn end(child: &mut Child) {
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
        // Its word for more than it was asked for counts for no more.
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
    fn what_a_folder_has_is_called_in_order() {
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
        let soon = Instant::now() + Duration::from_millis(50);
        assert!(hooks[3].give(1, soon).unwrap_err().contains("its time was up"));
        assert!(Hook::all(Path::new("/nonexistent")).is_empty());
    }
}
