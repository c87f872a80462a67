//! Hardware virtualization or emulation.
//!
//! Idea: that `/dev/kvm` can be opened says nothing about whether a guest comes up under it (nested
//! virtualization may hang one for ever). `auto` starts a guest once under KVM and takes it only if
//! the guest gets ready; the answer is kept in the cache for this host kernel, QEMU and guest kernel.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::debian::Kernel;
use crate::qemu::{QEMU, QEMU_PACKAGE};
use crate::{Cache, LabError, tool};

/// How long a guest may take to get ready under KVM; one that comes up takes a second or two.
const KVM_PATIENCE: Duration = Duration::from_secs(20);
/// How long the same guest may take under emulation.
const TCG_PATIENCE: Duration = Duration::from_secs(90);
/// Name of the answer inside its cache entry.
const ANSWER_FILE: &str = "answer.json";

/// How guests execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accel {
    /// On the processor.
    Kvm,
    /// Emulated.
    Tcg,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        })
    }
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccelChoice {
    /// KVM where guests get ready under it, else emulation.
    #[default]
    Auto,
    /// KVM without trying.
    Kvm,
    /// Emulation.
    Tcg,
}

impl FromStr for AccelChoice {
    type Err = LabError;

    fn from_str(text: &str) -> Result<AccelChoice, LabError> {
        match text {
            "auto" => Ok(AccelChoice::Auto),
            "kvm" => Ok(AccelChoice::Kvm),
            "tcg" => Ok(AccelChoice::Tcg),
            _ => Err(LabError::Invalid(format!(
                "`{text}` is not an accelerator: expected auto, kvm or tcg"
            ))),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    kvm_works: bool,
}

/// Decides how guests execute; `boots` starts a small guest and waits for it. Says the outcome of
/// `auto` in one line.
pub(crate) fn choose(
    choice: AccelChoice,
    cache: &Cache,
    kernel: &Kernel,
    say: &dyn Fn(&str),
    boots: &dyn Fn(Accel, Duration) -> Result<(), LabError>,
) -> Result<Accel, LabError> {
    match (choice, kvm_device()) {
        (AccelChoice::Tcg, _) => Ok(Accel::Tcg),
        (AccelChoice::Kvm, Ok(())) => Ok(Accel::Kvm),
        (AccelChoice::Kvm, Err(why)) => Err(LabError::KvmUnusable(why)),
        (AccelChoice::Auto, Err(why)) => {
            say(&format!("accelerator tcg: {why}"));
            Ok(Accel::Tcg)
        }
        (AccelChoice::Auto, Ok(())) => {
            let name = format!("accel/{}", key(kernel)?);
            let works = remembered(cache, &name, say, boots)?;
            if works {
                say("accelerator kvm");
                return Ok(Accel::Kvm);
            }
            say(&format!(
                "accelerator tcg: guests do not get ready under KVM here (remembered in {})",
                cache.root().join("accel").display()
            ));
            Ok(Accel::Tcg)
        }
    }
}

/// Whether guests get ready under KVM: from the cache, or found out now.
fn remembered(
    cache: &Cache,
    name: &str,
    say: &dyn Fn(&str),
    boots: &dyn Fn(Accel, Duration) -> Result<(), LabError>,
) -> Result<bool, LabError> {
    let folder = cache.entry(name, |folder| {
        say(&format!("trying a guest under KVM, for up to {} s", KVM_PATIENCE.as_secs()));
        let kvm_works = boots(Accel::Kvm, KVM_PATIENCE).is_ok();
        if !kvm_works {
            // A guest that does not come up at all says nothing about KVM.
            boots(Accel::Tcg, TCG_PATIENCE)?;
        }
        let path = folder.join(ANSWER_FILE);
        let text = serde_json::json!(Answer { kvm_works }).to_string();
        fs::write(&path, text).map_err(LabError::io("write", path))
    })?;
    let path = folder.join(ANSWER_FILE);
    let text = fs::read_to_string(&path).map_err(LabError::io("read", &path))?;
    let answer: Answer =
        serde_json::from_str(&text).map_err(|e| LabError::io("read", &path)(e.into()))?;
    Ok(answer.kvm_works)
}

fn kvm_device() -> Result<(), String> {
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("/dev/kvm cannot be opened ({error})")),
    }
}

/// Names all that the answer depends on, as a file name.
fn key(kernel: &Kernel) -> Result<String, LabError> {
    let qemu = tool::require(QEMU, QEMU_PACKAGE)?;
    let version = tool::run(
        Command::new(qemu).arg("--version"),
        "its installation may be damaged: install it again",
    )?;
    let version = version.lines().next().unwrap_or_default();
    let host = rustix::system::uname();
    let host = format!("{}-{}", host.release().to_string_lossy(), host.version().to_string_lossy());
    Ok(file_name(&format!("{host}-{version}-{}", kernel.version)))
}

/// `text` with everything but letters, digits and dots replaced.
fn file_name(text: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    text.chars().map(safe).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn failure() -> LabError {
        LabError::Invalid("hangs".to_owned())
    }

    #[test]
    fn a_hang_under_kvm_is_found_out_once_and_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let tried = RefCell::new(Vec::new());
        let boots = |accel, _| {
            tried.borrow_mut().push(accel);
            if accel == Accel::Kvm { Err(failure()) } else { Ok(()) }
        };
        for _ in 0..2 {
            assert!(!remembered(&cache, "accel/x", &|_| {}, &boots).unwrap());
        }
        assert_eq!(*tried.borrow(), [Accel::Kvm, Accel::Tcg]);
    }

    #[test]
    fn a_guest_that_never_comes_up_says_nothing_about_kvm() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        assert!(remembered(&cache, "accel/x", &|_| {}, &|_, _| Err(failure())).is_err());
        assert!(remembered(&cache, "accel/x", &|_| {}, &|_, _| Ok(())).unwrap());
    }

    #[test]
    fn keys_are_file_names() {
        assert_eq!(file_name("6.1 #1/SMP"), "6.1__1_SMP");
    }
}
