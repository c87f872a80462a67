//! The messages between the host and a lab guest.
//!
//! Idea: the host sends requests ([`ToGuest`]), the guest answers and reports once a second
//! ([`FromGuest`]). Bytes sent before the guest has opened its port can be lost, and a port may
//! close and reopen (the host disconnects, the guest migrates). Therefore every connection begins
//! with a handshake: the host repeats an empty line and [`ToGuest::Hello`] until a
//! [`FromGuest::Hello`] with its nonce arrives, and ignores everything before it. The guest then
//! sends [`FromGuest::Ready`], all undelivered messages except reports, and from then on its
//! reports.
//! Limits: see the constants; unknown message types and fields are refused, so a change of either
//! needs a new version.

use ballast_model::Bytes;
use serde::{Deserialize, Serialize};

use crate::workload::{Kind, WorkloadSpec};

/// Version of this protocol; both sides must have the same one.
pub const PROTOCOL_VERSION: u32 = 1;
/// Name of the virtio-serial port.
pub const PORT_NAME: &str = "ballast.lab";
/// Serial number of the virtio disk the guest swaps to.
pub const SWAP_DISK_SERIAL: &str = "swap";
/// Name of the disk that a Xen domain swaps to.
pub const SWAP_DISK_XEN: &str = "xvda";
/// Name of the disk that holds the files of `file-random` in a Xen domain.
pub const DATA_DISK_XEN: &str = "xvdb";
/// Argument of the kernel that names a console on which to serve the host, instead of the port: a
/// Xen domain has no ports.
pub const PORT_ARGUMENT: &str = "ballast.port=";
/// Serial number of the virtio disk that holds the files of `file-random`.
pub const DATA_DISK_SERIAL: &str = "data";
/// What the guest prints on its console once it serves its port; its uptime in seconds follows.
pub const READY_LINE_PREFIX: &str = "BALLAST-GUEST-READY";
/// Path of the agent in the initramfs; the guest runs it if it exists.
pub const AGENT_PATH: &str = "/bin/ballast-agent";
/// File of the initramfs that lists the kernel modules to load, one path a line, in order.
pub const MODULE_LIST_PATH: &str = "/lib/modules/load-order";

/// Time between two reports, in milliseconds.
pub const REPORT_PERIOD_MS: u64 = 1_000;
/// Most workloads a guest runs at once: each is a process, and a report must fit one line.
pub const WORKLOADS_MAX: usize = 32;
/// Most commands a guest executes at once.
pub const EXECS_MAX: usize = 8;
/// Most bytes sent of each output of a command; the end of the output is kept.
pub const EXEC_OUTPUT_BYTES_MAX: usize = 16 << 10;
/// Longest timeout of a command, in milliseconds.
pub const EXEC_TIMEOUT_MS_MAX: u64 = 86_400_000;
/// Longest name of a workload, in bytes.
pub const WORKLOAD_ID_LEN_MAX: usize = 64;
/// Longest text of an error, in bytes.
pub const ERROR_TEXT_LEN_MAX: usize = 2_000;

/// A message from the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ToGuest {
    /// Opens a connection; repeated until answered.
    Hello {
        /// [`PROTOCOL_VERSION`] of the host.
        version: u32,
        /// Any number, new for each connection; the answer repeats it.
        nonce: u64,
    },
    /// Starts a workload in a process of its own.
    Start {
        /// Its name, unique among those running: 1 to [`WORKLOAD_ID_LEN_MAX`] bytes.
        id: String,
        /// What it does.
        spec: WorkloadSpec,
    },
    /// Kills a workload; answered by [`FromGuest::Done`].
    Stop {
        /// Its name.
        id: String,
    },
    /// Executes a program; answered by [`FromGuest::ExecDone`].
    Exec {
        /// A number that the answer repeats.
        id: u64,
        /// The program and its arguments; for a shell line see [`ToGuest::shell`].
        argv: Vec<String>,
        /// Time after which it and its process group are killed, at most [`EXEC_TIMEOUT_MS_MAX`].
        timeout_ms: u64,
    },
    /// Kills everything and powers the guest off.
    Shutdown {},
}

impl ToGuest {
    /// Builds a [`ToGuest::Exec`] of a shell command line.
    pub fn shell(id: u64, line: &str, timeout_ms: u64) -> ToGuest {
        let argv = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        ToGuest::Exec { id, argv, timeout_ms }
    }
}

/// A message from the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FromGuest {
    /// Answers a [`ToGuest::Hello`]; after an answer with another version than the host's, nothing
    /// follows.
    Hello {
        /// [`PROTOCOL_VERSION`] of the guest.
        version: u32,
        /// The host's nonce.
        nonce: u64,
        /// Time since the guest booted, in milliseconds.
        uptime_ms: u64,
    },
    /// What the guest found at boot; follows [`FromGuest::Hello`].
    Ready(Ready),
    /// The state of the guest; sent every [`REPORT_PERIOD_MS`].
    Report(Box<LabReport>),
    /// A workload has ended.
    Done {
        /// Its name.
        id: String,
        /// How it ended.
        end: ProcessEnd,
        /// Its totals.
        totals: WorkloadTotals,
    },
    /// A program has ended.
    ExecDone {
        /// The number of the request.
        id: u64,
        /// How it ended.
        end: ProcessEnd,
        /// Its standard output; bytes that are not text are replaced.
        stdout: String,
        /// Its standard error.
        stderr: String,
        /// Whether the beginning of either was cut off because it exceeded
        /// [`EXEC_OUTPUT_BYTES_MAX`].
        truncated: bool,
    },
    /// A request failed, or a line could not be parsed.
    Error {
        /// The workload's name or the program's number, if any.
        id: Option<String>,
        /// The error text.
        text: String,
    },
}

/// What the guest found at boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// `MemTotal` at boot.
    pub memory_total: Option<Bytes>,
    /// Size of the kernel's swap; `None` without a swap disk.
    pub swap_total: Option<Bytes>,
    /// Whether there is a data disk.
    pub data_disk: bool,
    /// Failures that did not stop the boot, such as missing modules.
    pub complaints: Vec<String>,
}

/// The state of the guest at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabReport {
    /// Number of the report since boot, counting unsent reports: a gap is a lost report.
    pub seq: u64,
    /// Time since the guest booted, in milliseconds.
    pub uptime_ms: u64,
    /// `/proc/meminfo`.
    pub memory: MemoryInfo,
    /// `/proc/vmstat`.
    pub vm: VmCounters,
    /// Every running workload, by name.
    pub workloads: Vec<WorkloadReport>,
}

/// Fields of `/proc/meminfo`; a field that the kernel does not print is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryInfo {
    /// `MemTotal`
    pub total: Option<Bytes>,
    /// `MemFree`
    pub free: Option<Bytes>,
    /// `MemAvailable`
    pub available: Option<Bytes>,
    /// `Buffers`
    pub buffers: Option<Bytes>,
    /// `Cached`
    pub cached: Option<Bytes>,
    /// `Shmem`
    pub shmem: Option<Bytes>,
    /// `AnonPages`
    pub anon: Option<Bytes>,
    /// `Active`
    pub active: Option<Bytes>,
    /// `Inactive`
    pub inactive: Option<Bytes>,
    /// `SwapTotal`
    pub swap_total: Option<Bytes>,
    /// `SwapFree`
    pub swap_free: Option<Bytes>,
    /// `SwapCached`
    pub swap_cached: Option<Bytes>,
    /// `Dirty`
    pub dirty: Option<Bytes>,
    /// `Committed_AS`
    pub committed: Option<Bytes>,
}

/// Counters of `/proc/vmstat` since boot; a counter that the kernel does not have is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmCounters {
    /// Pages read from swap.
    pub pswpin: Option<u64>,
    /// Pages written to swap.
    pub pswpout: Option<u64>,
    /// Page faults.
    pub pgfault: Option<u64>,
    /// Major page faults.
    pub pgmajfault: Option<u64>,
    /// Anonymous pages that were faulted in again soon after their eviction.
    pub workingset_refault_anon: Option<u64>,
    /// File pages that were faulted in again soon after their eviction.
    pub workingset_refault_file: Option<u64>,
    /// Pages reclaimed by the allocating process (direct reclaim).
    pub pgsteal_direct: Option<u64>,
    /// Pages reclaimed in the background (kswapd).
    pub pgsteal_kswapd: Option<u64>,
    /// Processes that the OOM killer killed.
    pub oom_kill: Option<u64>,
    /// Pages given to the balloon.
    pub balloon_inflate: Option<u64>,
    /// Pages taken back from the balloon.
    pub balloon_deflate: Option<u64>,
}

/// The state of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadReport {
    /// Its name.
    pub id: String,
    /// Its kind.
    pub kind: Kind,
    /// What it is doing now.
    pub phase: WorkloadState,
    /// Pages touched since it started, without the first filling; for a program, the unit it
    /// counts.
    pub touches: u64,
    /// Pages touched since the previous report.
    pub touches_delta: u64,
    /// Passes through all of its memory, or changes of its size, whichever its kind counts.
    pub iterations: u64,
    /// Memory (or file) it uses now.
    pub size: Bytes,
    /// Memory (or file) its schedule calls for now; it differs from `size` while memory is being
    /// filled.
    pub size_wanted: Bytes,
    /// Its major page faults; `None` for programs, as are the two below.
    pub major_faults: Option<u64>,
    /// Its resident memory.
    pub resident: Option<Bytes>,
    /// Its swapped-out memory.
    pub swapped: Option<Bytes>,
}

/// What a workload is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadState {
    /// Its process is starting.
    Starting,
    /// It fills memory or a file for the first time.
    Filling,
    /// It touches pages.
    Touching,
    /// It waits because its rate is limited.
    Waiting,
}

impl WorkloadState {
    /// Whether it has filled its memory or file, and visits it.
    pub const fn has_filled(self) -> bool {
        matches!(self, WorkloadState::Touching | WorkloadState::Waiting)
    }
}

/// The totals of a workload over its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadTotals {
    /// Pages touched, without the first filling.
    pub touches: u64,
    /// See [`WorkloadReport::iterations`].
    pub iterations: u64,
    /// Time from its start to its end, in milliseconds.
    pub elapsed_ms: u64,
    /// Its major page faults as of the last report.
    pub major_faults: Option<u64>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProcessEnd {
    /// It exited.
    Exited {
        /// Exit status; 0 is success.
        code: i32,
    },
    /// A signal killed it; the OOM killer sends signal 9.
    Killed {
        /// The signal's number.
        signal: i32,
    },
    /// The host stopped it.
    Stopped {},
    /// It exceeded its timeout.
    TimedOut {},
}

impl ProcessEnd {
    /// Whether it exited with status 0.
    pub const fn is_success(self) -> bool {
        matches!(self, ProcessEnd::Exited { code: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{LINE_BYTES_MAX, decode, encode};
    use crate::workload::Pattern;

    /// A report in which every field has its longest value.
    fn longest_report(workloads: usize) -> LabReport {
        let size = Some(Bytes::new(u64::MAX));
        let workload = WorkloadReport {
            id: "\u{1}".repeat(WORKLOAD_ID_LEN_MAX),
            kind: Kind::RandomArray,
            phase: WorkloadState::Starting,
            touches: u64::MAX,
            touches_delta: u64::MAX,
            iterations: u64::MAX,
            size: Bytes::MAX,
            size_wanted: Bytes::MAX,
            major_faults: Some(u64::MAX),
            resident: size,
            swapped: size,
        };
        LabReport {
            seq: u64::MAX,
            uptime_ms: u64::MAX,
            memory: MemoryInfo { total: size, free: size, ..MemoryInfo::default() },
            vm: VmCounters { pswpin: Some(u64::MAX), ..VmCounters::default() },
            workloads: vec![workload; workloads],
        }
    }

    #[test]
    fn encoded_messages_are_stable() {
        let constant = Pattern::Constant { size: Bytes::mib(100) };
        for (message, text) in [
            (ToGuest::Hello { version: 1, nonce: 7 }, r#"{"type":"hello","version":1,"nonce":7}"#),
            (
                ToGuest::Start { id: "db".to_owned(), spec: constant.into() },
                r#"{"type":"start","id":"db","spec":{"kind":"constant","size":"100MiB"}}"#,
            ),
            (ToGuest::Stop { id: "db".to_owned() }, r#"{"type":"stop","id":"db"}"#),
            (
                ToGuest::shell(3, "free", 1000),
                r#"{"type":"exec","id":3,"argv":["/bin/sh","-c","free"],"timeout_ms":1000}"#,
            ),
            (ToGuest::Shutdown {}, r#"{"type":"shutdown"}"#),
        ] {
            assert_eq!(encode(&message).unwrap(), format!("{text}\n"));
            assert_eq!(decode::<ToGuest>(text), Ok(message));
        }
        let done = FromGuest::Done {
            id: "db".to_owned(),
            end: ProcessEnd::Killed { signal: 9 },
            totals: WorkloadTotals {
                touches: 5,
                iterations: 1,
                elapsed_ms: 20,
                major_faults: None,
            },
        };
        let text = r#"{"type":"done","id":"db","end":{"how":"killed","signal":9},"totals":{"touches":5,"iterations":1,"elapsed_ms":20,"major_faults":null}}"#;
        assert_eq!(encode(&done).unwrap(), format!("{text}\n"));
        assert_eq!(decode::<FromGuest>(text), Ok(done));
    }

    #[test]
    fn largest_messages_fit_one_line() {
        let report = FromGuest::Report(Box::new(longest_report(WORKLOADS_MAX)));
        let line = encode(&report).unwrap();
        assert_eq!(decode::<FromGuest>(line.trim_end()), Ok(report));
        let output = "\u{1}".repeat(EXEC_OUTPUT_BYTES_MAX);
        let exec = FromGuest::ExecDone {
            id: u64::MAX,
            end: ProcessEnd::TimedOut {},
            stdout: output.clone(),
            stderr: output,
            truncated: true,
        };
        assert!(encode(&exec).unwrap().len() < LINE_BYTES_MAX);
    }

    #[test]
    fn unknown_types_and_fields_are_refused() {
        for text in [
            r#"{"type":"reboot"}"#,
            r#"{"type":"shutdown","now":true}"#,
            r#"{"type":"hello","version":1,"nonce":7,"extra":0}"#,
            r#"{"type":"hello","version":1}"#,
            r#"{"type":"hello","version":-1,"nonce":7}"#,
            "[]",
            "7",
        ] {
            assert!(decode::<ToGuest>(text).is_err(), "{text}");
        }
    }
}
