//! The machine that a scenario runs on, as far as it can be found out.
//!
//! Limits: the commit of the program is not known here; the call of a command names it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use ballast_host::{HostReader, PROC};
use ballast_lab_host::{Accel, Run};
use ballast_model::Bytes;

use super::record::Machine;

/// The emulator, asked for its version.
const QEMU: &str = "qemu-system-x86_64";

/// Describes the machine on which `run` runs, without the commit.
pub(super) fn look(run: &Run) -> Machine {
    let (host, _) = HostReader::new(Path::new(PROC)).sample();
    let guest = run.guests().next().and_then(|guest| guest.ready().ok());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    let has_qemu = run.accel() != Accel::Xen;
    let qemu = has_qemu.then(|| first_line(QEMU, &["--version"])).flatten();
    Machine {
        cpu: cpu(),
        cores: std::thread::available_parallelism().ok().map(usize::from),
        memory_bytes: host.memory_total.map(Bytes::get),
        kernel: kernel.map(|kernel| kernel.trim().to_owned()),
        guest_kernel: guest.map(|ready| ready.kernel),
        qemu: qemu.map(|line| version(&line)),
        accelerator: run.accel().described(),
        ballast: env!("CARGO_PKG_VERSION").to_owned(),
        commit: None,
    }
}

/// The processor's model.
pub fn cpu() -> Option<String> {
    cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// `QEMU emulator version 7.2.1 (Debian …)` without the first three words.
fn version(line: &str) -> String {
    line.trim_start_matches("QEMU emulator version ").to_owned()
}

/// The first line of a program's output, if the program succeeds.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().filter(|_| output.status.success())?;
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_known() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast 9000\n").unwrap(), "Fast 9000");
        assert_eq!(cpu_model("processor\t: 0\n"), None);
        assert_eq!(version("QEMU emulator version 7.2.1 (Debian)"), "7.2.1 (Debian)");
        assert_eq!(first_line("no-such-program", &[]), None);
        assert_eq!(first_line("false", &[]), None);
    }
}
