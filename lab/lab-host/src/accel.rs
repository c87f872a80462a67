//! The choice between hardware virtualization and emulation.
//!
//! Idea: an accessible `/dev/kvm` does not guarantee that a guest boots (nested virtualization may
//! hang it forever). `auto` boots a guest once under KVM and chooses KVM only if the guest becomes
//! ready; the cache keeps the result for this host kernel, QEMU and guest kernel.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::debian::Kernel;
use crate::tool::{QEMU, QEMU_PACKAGE};
use crate::{Cache, LabError, nested, tool};

/// Boot timeout under KVM; a working guest takes a second or two.
const KVM_BOOT_TIMEOUT: Duration = Duration::from_secs(20);
/// Boot timeout under emulation.
const TCG_BOOT_TIMEOUT: Duration = Duration::from_secs(90);
/// Name of the result file inside its cache entry.
const TRIAL_FILE: &str = "answer.json";

/// How guests' processors execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accel {
    /// By hardware virtualization.
    Kvm,
    /// By emulation.
    Tcg,
    /// Paravirtualized, by Xen, which controls the processor.
    Xen,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
            Accel::Xen => "xen",
        })
    }
}

impl Accel {
    /// Its name for a report, with what its figures mean.
    pub fn described(self) -> String {
        match self {
            Accel::Kvm if nested::is_inside() => nested::KVM_TEXT.to_owned(),
            Accel::Xen => nested::XEN_TEXT.to_owned(),
            _ => self.to_string(),
        }
    }
}

/// The operator's choice of accelerator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccelChoice {
    /// KVM if a guest boots under it, else emulation.
    #[default]
    Auto,
    /// KVM, without a trial boot.
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
struct KvmTrial {
    kvm_works: bool,
}

/// Chooses the accelerator; `boots` boots a small guest and waits for it. Reports the outcome of
/// `auto` in one line.
pub(crate) fn choose(
    choice: AccelChoice,
    cache: &Cache,
    kernel: &Kernel,
    say: &dyn Fn(&str),
    boots: &dyn Fn(Accel, Duration) -> Result<(), LabError>,
) -> Result<Accel, LabError> {
    match (choice, kvm_device()) {
        // The machine's set-up has checked that KVM works; a trial would only cost a boot.
        (AccelChoice::Auto, Ok(())) if nested::is_inside() => {
            say(&format!("accelerator {}", nested::KVM_TEXT));
            Ok(Accel::Kvm)
        }
        (AccelChoice::Tcg, _) => Ok(Accel::Tcg),
        (AccelChoice::Kvm, Ok(())) => Ok(Accel::Kvm),
        (AccelChoice::Kvm, Err(why)) => Err(LabError::KvmUnusable(why)),
        (AccelChoice::Auto, Err(why)) => {
            say(&format!("accelerator tcg: {why}"));
            Ok(Accel::Tcg)
        }
        (AccelChoice::Auto, Ok(())) => {
            let name = format!("accel/{}", key(kernel)?);
            let works = cached_trial(cache, &name, say, boots)?;
            if works {
                say("accelerator kvm");
                return Ok(Accel::Kvm);
            }
            say(&format!(
                "accelerator tcg: guests do not boot under KVM on this host (result kept in {})",
                cache.root().join("accel").display()
            ));
            Ok(Accel::Tcg)
        }
    }
}

/// Whether guests boot under KVM: from the cache, or by a trial boot.
fn cached_trial(
    cache: &Cache,
    name: &str,
    say: &dyn Fn(&str),
    boots: &dyn Fn(Accel, Duration) -> Result<(), LabError>,
) -> Result<bool, LabError> {
    let folder = cache.entry(name, |folder| {
        say(&format!(
            "booting a trial guest under KVM, for up to {} s",
            KVM_BOOT_TIMEOUT.as_secs()
        ));
        let kvm_works = boots(Accel::Kvm, KVM_BOOT_TIMEOUT).is_ok();
        if !kvm_works {
            // If the guest does not boot under emulation either, KVM is not the cause.
            boots(Accel::Tcg, TCG_BOOT_TIMEOUT)?;
        }
        let path = folder.join(TRIAL_FILE);
        let text = serde_json::json!(KvmTrial { kvm_works }).to_string();
        fs::write(&path, text).map_err(LabError::io("write", path))
    })?;
    let path = folder.join(TRIAL_FILE);
    let text = fs::read_to_string(&path).map_err(LabError::io("read", &path))?;
    let trial: KvmTrial =
        serde_json::from_str(&text).map_err(|e| LabError::io("read", &path)(e.into()))?;
    Ok(trial.kvm_works)
}

fn kvm_device() -> Result<(), String> {
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("cannot open /dev/kvm ({error})")),
    }
}

/// A file name from everything that the result depends on.
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

/// `text` with every character but letters, digits and dots replaced.
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
    fn hang_under_kvm_is_tried_once_and_cached() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let tried = RefCell::new(Vec::new());
        let boots = |accel, _| {
            tried.borrow_mut().push(accel);
            if accel == Accel::Kvm { Err(failure()) } else { Ok(()) }
        };
        for _ in 0..2 {
            assert!(!cached_trial(&cache, "accel/x", &|_| {}, &boots).unwrap());
        }
        assert_eq!(*tried.borrow(), [Accel::Kvm, Accel::Tcg]);
    }

    #[test]
    fn failure_under_both_accelerators_is_not_cached() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        assert!(cached_trial(&cache, "accel/x", &|_| {}, &|_, _| Err(failure())).is_err());
        assert!(cached_trial(&cache, "accel/x", &|_| {}, &|_, _| Ok(())).unwrap());
    }

    #[test]
    fn keys_are_file_names() {
        assert_eq!(file_name("6.1 #1/SMP"), "6.1__1_SMP");
    }
}
