//! What was measured, in the form in which it is kept and compared.
//!
//! Idea: one [`Record`] holds a whole scenario run: what was run on which machine, and per policy
//! and repetition a series of samples for each guest with its workloads' results. Table, page and
//! raw data are all made from the record, so none can say more than was measured. Sizes are whole
//! bytes. Counters count from the moment at which the workloads' schedule began. What is unknown is
//! `null`, never zero.

use serde::{Deserialize, Serialize};

use crate::fleet_record::{FleetInfo, FleetRun};
use crate::simulate::paper::PaperFigure;

/// Version of the format; a change that would mislead a reader gets a new number.
pub const FORMAT_VERSION: u32 = 1;

/// Everything measured for one scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// When the first run began, RFC 3339 in UTC.
    pub started_at: String,
    /// What was to be run.
    pub scenario: ScenarioInfo,
    /// What it ran on.
    pub machine: Machine,
    /// The runs, in the order in which they were played.
    pub runs: Vec<RunRecord>,
}

/// What was to be run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScenarioInfo {
    /// Its name.
    pub name: String,
    /// One or two sentences about it; may be empty.
    pub description: String,
    /// What all guests together may be allocated.
    pub budget_bytes: u64,
    /// How long every run was measured, in seconds.
    pub duration_s: f64,
    /// How often every policy was run.
    pub repetitions: u32,
    /// The policies compared; the first is what the others are measured against.
    pub policies: Vec<String>,
    /// Which of the policies is the runs with all the memory that guests can have; `None`: there
    /// were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<String>,
    /// Its guests, in the order of the scenario.
    pub guests: Vec<GuestInfo>,
    /// The hosts and what is expected of them, for a scenario with several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetInfo>,
    /// What a paper measured in the same situation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paper: Vec<PaperFigure>,
}

impl ScenarioInfo {
    /// The description of one guest.
    pub fn guest(&self, name: &str) -> Option<&GuestInfo> {
        self.guests.iter().find(|info| info.guest == name)
    }
}

/// What a guest was configured to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestInfo {
    /// Its name.
    pub guest: String,
    /// Memory it booted with.
    pub boot_bytes: u64,
    /// Memory it was ballooned to before measuring.
    pub start_bytes: u64,
    /// The smallest memory in which it read nothing back, if that was searched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_bytes: Option<u64>,
    /// Pages that it touches in a second at full speed, if the time to reach full speed is
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_speed_per_s: Option<u64>,
    /// Its fixed work, if it has one; the time to finish it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<u64>,
    /// The disk it swaps to, in words.
    pub swap: Option<String>,
    /// What it was to do, in words; empty: idle.
    pub workloads: Vec<String>,
}

/// What a scenario ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: Option<String>,
    /// Number of cores that were available.
    pub cores: Option<usize>,
    /// The host's memory.
    pub memory_bytes: Option<u64>,
    /// The host's kernel.
    pub kernel: Option<String>,
    /// The guests' kernel.
    pub guest_kernel: Option<String>,
    /// Version of QEMU; `None` under Xen, where QEMU does not run the guests.
    pub qemu: Option<String>,
    /// How guests executed: `kvm`, `tcg` or `xen`.
    pub accelerator: String,
    /// Version of Ballast.
    pub ballast: String,
    /// The commit that it was built from, with `-dirty` if its sources differed, where that is
    /// known.
    pub commit: Option<String>,
}

/// One run of the scenario under one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The policy.
    pub policy: String,
    /// Which repetition it belongs to, from 1.
    pub repetition: u32,
    /// When and by which call it was played; `None`: the record is older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<RunOrigin>,
    /// How long it was measured, in seconds.
    pub measured_s: f64,
    /// The guests, in the order of the scenario.
    pub guests: Vec<GuestRun>,
    /// Memory that the daemon moved, by guest and mechanism, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveRecord>,
    /// What the hypervisor says about the guests' memory, if they are Xen domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainRecord>,
    /// The time of a transfer from guest to guest, if one is timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<TransferRecord>,
    /// What became of the fleet, where the guests are on several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetRun>,
    /// What a reader of the figures should know.
    pub remarks: Vec<String>,
}

impl RunRecord {
    /// The run's name in tables: the policy, with the repetition if there are several.
    pub(super) fn name(&self, record: &Record) -> String {
        match record.scenario.repetitions {
            1 => self.policy.clone(),
            _ => format!("{} {}", self.policy, self.repetition),
        }
    }

    /// The record of one guest in this run.
    pub fn guest(&self, name: &str) -> Option<&GuestRun> {
        self.guests.iter().find(|guest| guest.guest == name)
    }
}

/// When a run was played, and which call of a command played it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOrigin {
    /// When it began, RFC 3339 in UTC.
    pub began_at: String,
    /// When the call began that played the run; it tells calls apart. RFC 3339 in UTC.
    pub call_at: String,
    /// The commit that the program was built from, where that is known.
    pub commit: Option<String>,
}

/// The memory of a Xen domain in one run, as `xl list` prints it, in whole MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainRecord {
    /// The guest.
    pub guest: String,
    /// Memory when the measurement began.
    pub start_bytes: u64,
    /// Memory when it ended.
    pub end_bytes: u64,
}

/// What one mechanism moved of one guest in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// The guest.
    pub guest: String,
    /// `balloon`, `virtio-mem`, `dimm`, `page-out` or `page-in`.
    pub mechanism: String,
    /// Number of orders; an order that stands over several ticks counts once. 0: the memory moved
    /// without an order.
    pub orders: u64,
    /// Memory that the guest gave, or that was taken from its process.
    pub to_host_bytes: u64,
    /// Memory that the guest got, or that its process got back.
    pub to_guest_bytes: u64,
    /// Total time between those ticks that showed a change, in seconds.
    pub moving_s: f64,
    /// Why this mechanism was chosen; the reasons in the order in which they first came.
    pub reasons: Vec<MoveReason>,
}

impl MoveRecord {
    /// Memory moved in both directions, in bytes a second of the time in which anything moved;
    /// `None`: nothing moved.
    pub fn bytes_per_s(&self) -> Option<f64> {
        let moved = self.to_host_bytes.saturating_add(self.to_guest_bytes);
        (self.moving_s > 0.0).then(|| moved as f64 / self.moving_s)
    }
}

/// A reason for which a mechanism was chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MoveReason {
    /// A stable word for the reason.
    pub code: String,
    /// The reason in words, with the figures of its first occurrence.
    pub text: String,
    /// Number of orders for this reason.
    pub count: u64,
}

/// The times of a transfer of memory from one guest to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferRecord {
    /// The guest that gave.
    pub from: String,
    /// The guest that received.
    pub to: String,
    /// Size of the transfer.
    pub amount_bytes: u64,
    /// Time from the demand to the receiver's first new memory, in seconds; `None`: it got none.
    pub first_use_s: Option<f64>,
    /// Time from the demand until the giver had given all of it, in seconds; `None`: it never had.
    pub given_s: Option<f64>,
    /// Time from the demand until the receiver had all of it, in seconds; `None`: it never had.
    pub arrived_s: Option<f64>,
    /// Time that the giver's balloon alone takes for the same amount in the same run, in seconds.
    pub balloon_alone_s: f64,
    /// The longest time between two polls of the receiver until all of it had arrived, in seconds:
    /// the resolution of the times above.
    #[serde(rename = "looks_apart_s_max")]
    pub polls_apart_s_max: f64,
}

impl TransferRecord {
    /// Time until all had arrived against the time that the balloon alone takes.
    pub fn ratio(&self) -> Option<f64> {
        self.arrived_s.filter(|_| self.balloon_alone_s > 0.0).map(|all| all / self.balloon_alone_s)
    }
}

/// One guest in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestRun {
    /// Its name.
    pub guest: String,
    /// One sample about every second.
    pub samples: Vec<Sample>,
    /// Results of its workloads.
    pub workloads: Vec<WorkloadRecord>,
}

impl GuestRun {
    /// Pages its workloads touched in total; `None` for a guest without workloads.
    pub fn touches(&self) -> Option<u64> {
        self.of_workloads(|workload| workload.touches)
    }

    /// Passes, or whatever its workloads count as an iteration, in total.
    pub fn iterations(&self) -> Option<u64> {
        self.of_workloads(|workload| workload.iterations)
    }

    fn of_workloads(&self, figure: impl Fn(&WorkloadRecord) -> u64) -> Option<u64> {
        (!self.workloads.is_empty()).then(|| self.workloads.iter().map(figure).sum())
    }

    /// The guest's last report.
    pub fn last_inside(&self) -> Option<&InsideSample> {
        self.samples.iter().rev().find_map(|sample| sample.inside.as_ref())
    }
}

/// One guest at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the schedule began, in seconds.
    pub at_s: f64,
    /// The daemon's view of the guest; `None`: it did not answer in time.
    pub daemon: Option<OutsideSample>,
    /// The guest's own report; `None`: none has come since the previous sample.
    pub inside: Option<InsideSample>,
    /// Memory it touched in the last whole second, if that is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touched_bytes: Option<u64>,
}

/// The daemon's view of a guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutsideSample {
    /// Memory the guest holds.
    pub allocation_bytes: Option<u64>,
    /// The target in force.
    pub target_bytes: Option<u64>,
    /// Memory it is estimated to use.
    pub used_bytes: Option<u64>,
    /// How its page touches are tracked; `None`: they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracking: Option<TrackingStatus>,
    /// What the daemon does with the guest: `grow`, `shrink`, `hold`, …
    pub doing: Option<String>,
    /// The same in words.
    pub doing_text: Option<String>,
}

/// How a guest is tracked at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackingStatus {
    /// `watching`, `resting`, …, as in `ballast status --json`.
    pub state: String,
    /// Its working set.
    pub working_set_bytes: Option<u64>,
    /// Processor time that tracking it took, as a share of one core.
    pub cost: Option<f64>,
}

/// A guest's view of itself. Counters count from the moment at which the schedule began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InsideSample {
    /// When the guest wrote it, on its own clock, in milliseconds since the schedule began.
    pub at_ms: i64,
    /// Its `MemTotal` less its `MemAvailable`.
    pub used_bytes: Option<u64>,
    /// Its `MemAvailable`.
    pub available_bytes: Option<u64>,
    /// Memory it has in its swap.
    pub swap_used_bytes: Option<u64>,
    /// Pages its workloads have touched so far.
    pub touches: u64,
    /// Iterations of its workloads so far.
    pub iterations: u64,
    /// Memory that its workloads use now.
    pub size_bytes: u64,
    /// Memory that its workloads' schedules want them to use now.
    pub size_wanted_bytes: u64,
    /// Faults that waited for a disk.
    pub major_faults: Option<u64>,
    /// Memory read back from swap.
    pub swap_in_bytes: Option<u64>,
    /// Memory written to swap.
    pub swap_out_bytes: Option<u64>,
}

/// The result of a workload in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRecord {
    /// Its name.
    pub workload: String,
    /// When it was started, in seconds since the schedule began.
    pub started_s: f64,
    /// How it ended, in words.
    pub end: String,
    /// Whether it ended as it should: by itself with success, or because the time was up.
    pub ended_well: bool,
    /// Pages it touched, not counting the first filling.
    pub touches: u64,
    /// Its iterations.
    pub iterations: u64,
    /// Time from its start to its end, in milliseconds.
    pub elapsed_ms: u64,
}
