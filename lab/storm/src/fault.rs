//! The kinds of faults, and how often each struck.
//!
//! Idea: a kind belongs to the part of the storm that it strikes. Expensive parts (a journal on a
//! disk, bytes on a wire) are in some seeds only, and so are their kinds.

use std::collections::BTreeMap;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident => $code:literal in $seam:ident $(of $struck:ident)?,)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// Every kind.
            pub const ALL: &'static [Fault] = &[$(Fault::$name),*];

            /// Stable word for machines.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Fault::$name => $code,)*
                }
            }

            /// The part of the storm that it strikes.
            pub(crate) const fn seam(self) -> Seam {
                match self {
                    $(Fault::$name => Seam::$seam,)*
                }
            }

            /// What it strikes.
            pub(crate) const fn strikes(self) -> Strikes {
                match self {
                    $($(Fault::$name => Strikes::$struck,)?)*
                    _ => Strikes::Guest,
                }
            }
        }
    };
}

/// The part of the storm that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seam {
    /// Guests, the host and the daemon: in every seed.
    World,
    /// The journal on a disk.
    Disk,
    /// The answers of that disk.
    Io,
    /// The bytes between the daemon and hypervisors.
    Wire,
    /// Agents inside guests.
    Agent,
    /// A host with little spare memory: its swap, the ends of its guests, each effect of a tick,
    /// its operators.
    Hard,
    /// A host of a fleet: guests leave for other hosts and come from them.
    Fleet,
}

/// What a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strikes {
    /// The guest that the strike names, if that is present.
    Guest,
    /// The same, if it is an offender.
    Offender,
    /// No guest, or one that need not be present: its limits are set, or it is on another host.
    Other,
}

faults! {
    /// A guest's hypervisor does not answer for a while.
    Stall => "stall" in World,
    /// A guest reboots: its balloon is empty and hardly any memory is touched.
    Reboot => "reboot" in World,
    /// A guest's process ends and another begins under the same name.
    Replace => "replace" in World,
    /// A guest is stopped by its operator for a while.
    Stop => "stop" in World,
    /// A guest's statistics stop for a while.
    Silence => "silence" in World,
    /// An offender's driver claims to have given memory that it keeps.
    HideMemory => "hide-memory" in World of Offender,
    /// An offender's driver claims to hold more than it does.
    ClaimTooMuch => "claim-too-much" in World of Offender,
    /// An offender's driver takes back all memory and fills it.
    TakeBack => "take-back" in World of Offender,
    /// An offender's driver gives no memory.
    Refuse => "refuse" in World of Offender,
    /// An offender claims to use everything it holds, and some to have no swap.
    ClaimUse => "claim-use" in World of Offender,
    /// An offender's memory in use grows without end.
    Grow => "grow" in World of Offender,
    /// An order to a guest is lost, and so is its outcome.
    LoseOrder => "lose-order" in World of Other,
    /// An order is carried out, but its outcome is lost.
    LoseOutcome => "lose-outcome" in World of Other,
    /// An order is carried out only at the next tick.
    DelayOrder => "delay-order" in World of Other,
    /// The memory that a process occupies cannot be read.
    HideResident => "hide-resident" in World,
    /// The memory that a process occupies is reported some seconds late.
    AgeResident => "age-resident" in World,
    /// The host's own figures cannot be read.
    HideHost => "hide-host" in World of Other,
    /// The host's swap does nothing for a while.
    HangSwap => "hang-swap" in World of Other,
    /// The daemon is killed after it decided and before it acted.
    CrashBeforeAct => "crash-before-act" in World of Other,
    /// The daemon is killed after it acted and before it recorded.
    CrashAfterAct => "crash-after-act" in World of Other,
    /// The machine sleeps.
    Suspend => "suspend" in World of Other,
    /// The wall clock jumps.
    JumpWall => "jump-wall" in World of Other,
    /// An operator pauses and resumes.
    Pause => "pause" in World of Other,
    /// An operator sets a guest's limits.
    SetGuest => "set-guest" in World of Other,
    /// The configuration is read again.
    Reload => "reload" in World of Other,
    /// The daemon is killed, and a sector of its journal has other bytes than were written.
    TearJournal => "tear-journal" in Disk of Other,
    /// The daemon is killed, and the end of a file of its journal is gone.
    CutJournal => "cut-journal" in Disk of Other,
    /// The disk is gone for a while: it accepts no writes.
    LoseDisk => "lose-disk" in Disk of Other,
    /// The host loses its power: guests start anew, and unsynced parts of the journal are torn or
    /// gone.
    LosePower => "lose-power" in Disk of Other,
    /// Some reads of the journal fail for a while.
    FailReads => "fail-reads" in Io of Other,
    /// Some writes of the journal fail for a while, after writing a part.
    FailWrites => "fail-writes" in Io of Other,
    /// Some syncs of the journal fail for a while.
    FailSyncs => "fail-syncs" in Io of Other,
    /// The disk has hardly any room for a while.
    FillDisk => "fill-disk" in Io of Other,
    /// Bytes from a hypervisor arrive late, cut anywhere.
    HoldBytes => "hold-bytes" in Wire,
    /// A hypervisor's connection ends, within a message if one is on its way.
    CutLink => "cut-link" in Wire,
    /// A hypervisor's connection ends, and new connections get no greeting for a while.
    GreetLate => "greet-late" in Wire,
    /// Bytes from a hypervisor arrive twice, beginning anywhere.
    DoubleBytes => "double-bytes" in Wire,
    /// Each reply of a hypervisor arrives twice.
    DoubleReplies => "double-replies" in Wire,
    /// Replies of a hypervisor arrive in another order.
    SwapReplies => "swap-replies" in Wire,
    /// Two replies of a hypervisor have each other's ids.
    SwapIds => "swap-ids" in Wire,
    /// For a while replies with false sizes arrive, with the id of a command that was already
    /// answered.
    ForgeReplies => "forge-replies" in Wire,
    /// A hypervisor refuses the next commands.
    RefuseCommands => "refuse-commands" in Wire,
    /// Events arrive without a cause, some of them twice.
    DoubleEvents => "double-events" in Wire,
    /// An offender's driver reports an arbitrary size for a while.
    FalseActual => "false-actual" in Wire of Offender,
    /// A guest's agent says nothing for a while.
    SilenceAgent => "silence-agent" in Agent,
    /// An offender's agent sends more than may be read, for a while.
    FloodByAgent => "flood-by-agent" in Agent of Offender,
    /// An offender's agent is started again and again, and each instance sends an emergency.
    CycleAgent => "cycle-agent" in Agent of Offender,
    /// An offender's agent sends emergencies without need.
    CallWithoutNeed => "call-without-need" in Agent of Offender,
    /// An offender's agent reports that all memory is in use, and asks for more.
    LieByAgent => "lie-by-agent" in Agent of Offender,
    /// An offender's agent sends noise, and repeats what it sent before.
    GarbleAgent => "garble-agent" in Agent of Offender,
    /// Other processes fill the host's swap for a while.
    FillSwap => "fill-swap" in Hard of Other,
    /// The host's swap is slow for a while.
    SlowSwap => "slow-swap" in Hard of Other,
    /// A guest's process ends. Another one may begin under its name later.
    Exit => "exit" in Hard,
    /// A guest's hypervisor moves or saves it; the guest is stopped meanwhile.
    Migrate => "migrate" in Hard,
    /// A guest's kernel panics. It reboots later.
    Panic => "panic" in Hard,
    /// The daemon is killed after it decided and before it recorded the decision.
    CrashBeforeRecord => "crash-before-record" in Hard of Other,
    /// The daemon is killed after it recorded and before it raised fences.
    CrashBeforeFence => "crash-before-fence" in Hard of Other,
    /// The daemon is killed after some of its orders.
    CrashInAct => "crash-in-act" in Hard of Other,
    /// The daemon is killed after its orders to balloons and before its orders to page.
    CrashBeforePage => "crash-before-page" in Hard of Other,
    /// The outcome of an order arrives twice.
    DoubleOutcome => "double-outcome" in Hard of Other,
    /// The outcome of an order arrives once more, a tick later.
    RepeatOutcome => "repeat-outcome" in Hard of Other,
    /// An operator sets a guest's floor and ceiling.
    SetBounds => "set-bounds" in Hard of Other,
    /// Readers ask the daemon without pause what it sees and what it would do.
    FloodByReaders => "flood-by-readers" in Hard of Other,
    /// A guest is shrunk by a lower ceiling, and leaves for another host.
    Depart => "depart" in Fleet,
    /// Memory is reserved for a guest on another host, and the guest arrives.
    Arrive => "arrive" in Fleet of Other,
    /// A reservation is released, and its guest does not arrive.
    AbandonMove => "abandon-move" in Fleet of Other,
    /// Limits, credits and history that a guest brings from another host take effect.
    TakeCarried => "take-carried" in Fleet,
}

impl Fault {
    /// What an honest guest does instead; `None`: nothing. Faults that are no lies stay as they
    /// are. A driver that takes its memory back becomes a guest that needs as much.
    pub(crate) const fn honest(self) -> Option<Fault> {
        match self {
            Fault::HideMemory
            | Fault::ClaimTooMuch
            | Fault::Refuse
            | Fault::ClaimUse
            | Fault::FalseActual
            | Fault::CallWithoutNeed
            | Fault::LieByAgent => None,
            Fault::TakeBack => Some(Fault::Grow),
            other => Some(other),
        }
    }
}

/// How often each kind struck.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injected(BTreeMap<Fault, u64>);

impl Injected {
    pub(crate) fn count(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    /// Adds what another run injected.
    pub fn add(&mut self, other: &Injected) {
        for (fault, count) in &other.0 {
            *self.0.entry(*fault).or_default() += count;
        }
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each kind with its count; kinds that never struck have zero.
    pub fn by_kind(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        Fault::ALL.iter().map(|fault| (*fault, self.0.get(fault).copied().unwrap_or_default()))
    }
}
