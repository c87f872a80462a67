//! Values of the model made from bytes, for targets that decide instead of parsing.
//!
//! Idea: every byte string gives some value, and a small change of the bytes is a small change of
//! the value. Sizes mostly have the order of magnitude of a real host's, and now and then are zero,
//! odd, or the largest possible.

mod fake_server;

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{
    AgentReport, BalloonOwner, Bytes, Capabilities, Confidence, Demand, DemandSource, GuestId,
    GuestLimits, GuestSample, GuestStats, HostSample, Hotplug, HotplugKind, LinkDown, LinkState,
    Measured, MemoryRequest, MissCurve, OutcomeKind, PolicyName, Pressure, ProcessId, RequestKind,
    RunState, Signals, Snapshot, Tax, Timestamp, TrackerReport, TrackingSource,
};
use ballast_policy::flexmemd::{
    CombinationChoice, DemandInput, FlexmemdSettings, Frequency, PriceRule, RoundLimit,
};
use ballast_policy::meb::{MebSettings, Weighting};
use ballast_policy::{Contender, PolicySettings, TaxRule};

pub use fake_server::FakeServer;

/// Most guests of one problem: enough for all to compete for memory.
const GUESTS_MAX: u64 = 9;
/// Greatest age of a figure: ten thousand years.
const AGE_MAX: Duration = Duration::from_secs(1 << 38);
/// Largest host.
const HOST_MAX: Bytes = Bytes::gib(256);
/// No guest has more memory: see the target `qmp_guest`.
const ADDRESSABLE_MAX: Bytes = Bytes::new(1 << 52);
/// Most points of a curve.
const POINTS_MAX: u64 = 24;

/// Checks that a text may be written to a log: it has no control characters, and at most
/// `chars_max` others.
pub fn assert_harmless(text: &str, chars_max: usize) {
    assert!(text.chars().count() <= chars_max, "more than {chars_max} characters: {text:?}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

/// The rest of the input; zeros after its end.
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Source(bytes)
    }

    /// The next `count` bytes, or fewer at the end.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// The whole rest.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn yes(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number less than `bound`, or 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.byte()) % bound.max(1)
    }

    fn short(&mut self) -> u64 {
        u64::from(self.byte()) << 8 | u64::from(self.byte())
    }

    pub fn long(&mut self) -> u64 {
        (0..4).fold(0, |sum, _| sum << 16 | self.short())
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    pub fn perhaps<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (!self.byte().is_multiple_of(4)).then(|| make(self))
    }

    /// Mostly up to 64 GiB in MiB, otherwise pages, bytes, or any number.
    pub fn size(&mut self) -> Bytes {
        match self.byte() % 16 {
            0 => Bytes::ZERO,
            1 => Bytes::new(self.long()),
            2 => Bytes::MAX,
            3 => Bytes::new(self.short()),
            4..7 => Bytes::pages(self.short()),
            _ => Bytes::mib(self.short()),
        }
    }

    pub fn number(&mut self) -> u64 {
        match self.byte() % 8 {
            0 => self.long(),
            1 => u64::MAX,
            _ => self.short(),
        }
    }

    pub fn span(&mut self) -> Duration {
        match self.byte() % 8 {
            0 => Duration::ZERO,
            1 => Duration::from_nanos(self.long()),
            2 => Duration::MAX,
            _ => Duration::from_millis(self.short()),
        }
    }

    /// A duration as settings have it: up to a minute.
    pub fn pause(&mut self) -> Duration {
        Duration::from_millis(self.short())
    }

    pub fn id(&mut self) -> GuestId {
        const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let name = self.one_of(&NAMES);
        name.parse().expect("a name of one letter")
    }

    pub fn policy(&mut self) -> PolicyName {
        self.one_of(&PolicyName::ALL)
    }

    pub fn curve(&mut self) -> Option<Arc<MissCurve>> {
        let step = Bytes::pages(self.short().max(1));
        let interval = self.span().max(Duration::from_nanos(1));
        let mut misses: Vec<u64> = (0..=self.below(POINTS_MAX)).map(|_| self.number()).collect();
        misses.sort_unstable_by(|a, b| b.cmp(a));
        MissCurve::new(step, interval, misses).ok().map(Arc::new)
    }

    pub fn request(&mut self) -> MemoryRequest {
        let kinds = [RequestKind::More, RequestKind::Less, RequestKind::Emergency];
        MemoryRequest { number: self.below(8), kind: self.one_of(&kinds), amount: self.size() }
    }

    pub fn contenders(&mut self) -> Vec<Contender> {
        (0..self.below(GUESTS_MAX + 1)).map(|place| self.contender(place)).collect()
    }

    fn contender(&mut self, place: u64) -> Contender {
        let source = [
            DemandSource::WorkingSet,
            DemandSource::Probing,
            DemandSource::Used,
            DemandSource::Committed,
        ];
        Contender {
            floor: self.size(),
            ceiling: self.size(),
            shares: if self.yes() { 1000 } else { self.number() as u32 },
            priority: self.byte() % 4,
            miss_rate_max: self.perhaps(Source::number),
            allocation: self.size(),
            held: self.perhaps(Source::size),
            demand: self.perhaps(|from| Demand {
                size: from.size(),
                source: from.one_of(&source),
                age: from.span(),
                confidence: Confidence::from_percent(from.byte()),
            }),
            curve: self.perhaps(Source::curve).flatten(),
            signals: Signals {
                free: self.perhaps(Source::size),
                committed: self.perhaps(Source::size),
                probed: self.perhaps(Source::size),
                swapped_pages_per_s: self.perhaps(Source::number),
                request: self.perhaps(Source::request),
            },
            ..Contender::new(format!("g{place}").parse().expect("a name"), self.size())
        }
    }

    pub fn policy_settings(&mut self) -> PolicySettings {
        let plain = PolicySettings::default();
        if self.yes() {
            return plain;
        }
        let fraction = self.long();
        let tax = TaxRule::Fixed(Tax::from_fraction(fraction));
        PolicySettings {
            reserve: self.size(),
            tax: if self.yes() { TaxRule::Dynamic } else { tax },
            meb: MebSettings {
                step: self.size(),
                shrink_basis_points: self.number() as u32,
                grow_basis_points: self.number() as u32,
                weighting: self.one_of(&[Weighting::Shares, Weighting::Equal]),
            },
            flexmemd: self.flexmemd(),
        }
    }

    fn flexmemd(&mut self) -> FlexmemdSettings {
        let plain = FlexmemdSettings::default();
        let (price, demands) =
            (self.number(), [DemandInput::Ignored, DemandInput::Explicit, DemandInput::Implicit]);
        let prices = [
            PriceRule::None,
            PriceRule::Fixed(price),
            PriceRule::Proportional(price),
            PriceRule::Market,
        ];
        let often = [Frequency::Once, Frequency::Immediate, Frequency::Periodic];
        FlexmemdSettings {
            period: self.span(),
            tax_basis_points: self.number() as u32,
            round: self.one_of(&[RoundLimit::Equal, RoundLimit::ByFloor]),
            choice: CombinationChoice {
                frequency: self.perhaps(|from| from.one_of(&often)),
                price: self.perhaps(|from| from.one_of(&prices)),
                demand: self.perhaps(|from| from.one_of(&demands)),
            },
            ..plain
        }
    }

    pub fn limits(&mut self) -> GuestLimits {
        GuestLimits {
            floor: self.perhaps(Source::size),
            ceiling: self.perhaps(Source::size),
            shares: self.number() as u32,
            priority: self.byte() % 4,
            miss_rate_max: self.perhaps(Source::number),
            swap: self.perhaps(|from| from.byte() % 2 == 0),
            fence: false,
            managed: !self.byte().is_multiple_of(8),
            take_over: self.yes(),
        }
    }

    /// A time near `last`, mostly after it; never near the end of the clock, where no deadline
    /// could follow.
    pub fn moment(&mut self, last: Timestamp) -> Timestamp {
        match self.byte() % 16 {
            0 => Timestamp::from_millis(self.long() / 2),
            1 => last,
            2 => Timestamp::from_millis(last.as_millis().saturating_sub(self.short())),
            _ => Timestamp::from_millis(last.as_millis().saturating_add(self.short() % 4096)),
        }
    }

    pub fn snapshot(&mut self, taken_at: Timestamp) -> Snapshot {
        let host = HostSample {
            merging: None,
            balloon_owner: self.perhaps(|from| {
                from.one_of(&[BalloonOwner::Mom, BalloonOwner::Pvestatd, BalloonOwner::Ballast])
            }),
            // The length of a curve grows with the host, so the host is limited.
            memory_total: self.perhaps(|from| from.size().min(HOST_MAX)),
            memory_available: self.perhaps(Source::size),
            swap_total: self.perhaps(Source::size),
            swap_free: self.perhaps(Source::size),
            pressure: self.perhaps(|from| Pressure {
                some_basis_points: (from.short() % 10_001) as u32,
                full_basis_points: (from.short() % 10_001) as u32,
            }),
        };
        let guests = (0..self.below(GUESTS_MAX)).map(|_| self.guest()).collect();
        Snapshot::new(taken_at, host, guests)
    }

    fn guest(&mut self) -> GuestSample {
        let links =
            [LinkState::Up, LinkState::Up, LinkState::Up, LinkState::Down(LinkDown::TimedOut)];
        let link = links[self.below(4) as usize].clone();
        let states = [
            RunState::Running,
            RunState::Running,
            RunState::Paused,
            RunState::Shutdown,
            RunState::Panicked,
            RunState::Other("io-error".to_owned()),
        ];
        let state = states[self.below(6) as usize].clone();
        let flag = |from: &mut Self| from.perhaps(Source::yes);
        let mut sample = GuestSample {
            run_state: self.perhaps(|_| state),
            allocation: self.perhaps(|from| from.measured(Source::size)),
            boot_memory: self.perhaps(|from| from.size().page_floor().min(ADDRESSABLE_MAX)),
            hotplug: if self.yes() { None } else { Some(self.hotplug()) },
            process: self.perhaps(|from| ProcessId {
                pid: 1 + u32::from(from.byte()),
                start_ticks: from.below(3),
            }),
            resident: self.perhaps(|from| from.measured(Source::size)),
            overhead: self.perhaps(Source::size),
            unmapped: self.perhaps(Source::size),
            stats: self.perhaps(|from| from.measured(Source::stats)),
            agent: self.perhaps(|from| Box::new(from.measured(Source::agent))),
            tracker: self.perhaps(|from| {
                let report = from.measured(|from| TrackerReport {
                    working_set: from.size(),
                    curve: from.perhaps(Source::curve).flatten(),
                    source: [
                        TrackingSource::Library,
                        TrackingSource::Damon,
                        TrackingSource::DamonHuge,
                        TrackingSource::Mglru,
                        TrackingSource::MglruHuge,
                        TrackingSource::Referenced,
                    ][usize::from(from.byte() % 6)],
                });
                Box::new(report)
            }),
            capabilities: Capabilities {
                balloon: flag(self),
                statistics: flag(self),
                free_page_reporting: flag(self),
                deflate_on_oom: flag(self),
                memory_devices: flag(self),
                discard_inhibited: flag(self),
                shared_control: flag(self),
            },
            ..GuestSample::unknown(self.id(), link)
        };
        // The QMP monitor promises this (target `qmp_guest`).
        let most = sample.present_memory().unwrap_or(Bytes::MAX);
        if let Some(allocation) = &mut sample.allocation {
            let virtio_mem = sample.hotplug.filter(|it| it.kind == HotplugKind::VirtioMem);
            let least = match sample.capabilities.balloon {
                Some(false) => most,
                _ => virtio_mem.map_or(Bytes::ZERO, |it| it.plugged),
            };
            allocation.value = allocation.value.max(least).min(most).page_floor();
        }
        sample
    }

    /// Amounts that devices can have (target `qmp_guest`). Several devices may have blocks of
    /// different sizes: the amounts are then whole blocks of the smallest, and the sample names the
    /// largest.
    fn hotplug(&mut self) -> Hotplug {
        let blocks = [Bytes::mib(2), Bytes::mib(128), Bytes::gib(1)];
        let kind = self.one_of(&[HotplugKind::VirtioMem, HotplugKind::Dimm]);
        let block = match kind {
            HotplugKind::VirtioMem => self.one_of(&blocks),
            HotplugKind::Dimm => Bytes::mib(128),
        };
        let unit = match kind {
            HotplugKind::VirtioMem => self.one_of(&[block, Bytes::mib(2)]),
            HotplugKind::Dimm => block,
        };
        let max = unit.fraction(self.below(200), 1);
        let mut amount = || unit.fraction(self.below(200), 1).min(max);
        Hotplug { kind, plugged: amount(), requested: amount(), max, block }
    }

    /// Every outcome that a mechanism can report.
    pub fn outcome(&mut self) -> OutcomeKind {
        match self.byte() % 8 {
            0 => OutcomeKind::Failed("refused".to_owned()),
            1 => OutcomeKind::Expired,
            2 => OutcomeKind::Superseded,
            3 => OutcomeKind::Waiting,
            _ => OutcomeKind::Accepted,
        }
    }

    fn measured<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Measured<T> {
        let age = if self.yes() { Duration::ZERO } else { self.span().min(AGE_MAX) };
        Measured { value: make(self), age }
    }

    fn stats(&mut self) -> GuestStats {
        GuestStats {
            total: self.perhaps(Source::size),
            free: self.perhaps(Source::size),
            available: self.perhaps(Source::size),
            disk_caches: self.perhaps(Source::size),
            swap_in: self.perhaps(Source::size),
            swap_out: self.perhaps(Source::size),
            major_faults: self.perhaps(Source::number),
            minor_faults: self.perhaps(Source::number),
        }
    }

    fn agent(&mut self) -> AgentReport {
        AgentReport {
            committed: self.perhaps(Source::size),
            swap_used: self.perhaps(Source::size),
            swap_free: self.perhaps(Source::size),
            active: self.perhaps(Source::size),
            inactive: self.perhaps(Source::size),
            watermark_high: self.perhaps(Source::size),
            refaulted_file_pages: self.perhaps(Source::number),
            scanned_pages: self.perhaps(Source::number),
            reclaimed_pages: self.perhaps(Source::number),
            request: self.perhaps(Source::request),
        }
    }
}
