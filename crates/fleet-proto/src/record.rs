//! A host's record in parts, as JSON.
//!
//! Idea: the slow part, which seldom changes (names, floors, curves, compatibility), and the fast
//! part, which often does (sizes), are two keys, so that in a tick only the short fast part is
//! written, or nothing. The fast part has no names: its guests are in the order of the slow part,
//! and it has the number of the slow part that it belongs to. Sizes are in MiB, rounded so that no
//! host seems to have more than it has, and no guest to need less.
//! A third key says which machine has the host's name.
//! Cost: about 8 bytes a guest in the fast part, about 150 in the slow part.
//! Limits: there are no times in it, as no two hosts share a clock; the reader dates what arrives.
//! An unknown version is refused; unknown fields are ignored. When a guest was moved is not in it:
//! the leaders keep that (`past`).

use ballast_fleet::{
    CompactCurve, CompactCurveError, Compatibility, GuestRecord, HostId, HostRecord,
    HypervisorVersion, Label, ParseLabelError, PinnedBy, ReservationRecord,
};
use ballast_model::{Bytes, GuestId, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::coordinator::VALUE_BYTES_MAX;
use crate::sizes::{read_difference, read_size, write_difference, write_size};

/// Version of all records.
pub const RECORD_VERSION: u32 = 1;

/// Most characters of a reason in an error, as it may quote what other hosts wrote.
const REASON_CHARS_MAX: usize = 200;

/// A change of `copied` by this many MiB is written at once. Smaller changes are noise: the figure
/// includes what the hypervisor itself needs, which varies.
const COPIED_CHANGE_MIN: u64 = 16;

/// Why a value is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Larger than any record.
    #[error("{0} bytes: expected at most {VALUE_BYTES_MAX}")]
    TooLong(usize),
    /// Written by another version of this program.
    #[error("version {0} of a record: this program reads {RECORD_VERSION}; update the older one")]
    Version(u32),
    /// Not a record at all, or a field out of bounds.
    #[error("{0}")]
    Malformed(String),
    /// Sizes that belong to another slow part than the one that is there: the numbers of both.
    #[error("its sizes are for list {0} of its guests, and list {1} is there")]
    OtherList(u64, u64),
    /// Sizes of more or fewer guests than the slow part has: the numbers of both.
    #[error("its sizes are for {0} guests, and its list has {1}")]
    Guests(usize, usize),
}

/// Which machine has a host's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The machine's own identity, as in `/etc/machine-id`.
    pub machine: String,
}

/// Who wrote a key that says nothing else: who leads, who asked for a drain or a pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// The host.
    pub host: String,
}

/// What seldom changes of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowPart {
    /// Its number, which rises with each change.
    pub number: u64,
    hypervisor: String,
    hypervisor_version: [u32; 3],
    cpu: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    storage: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    networks: Vec<String>,
    /// MiB a second.
    bandwidth: u64,
    /// Whether the host carries out moves that are ordered.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) moves: bool,
    guests: Vec<SlowGuest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SlowGuest {
    name: GuestId,
    /// MiB.
    floor: u64,
    /// Pairs of MiB and misses a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    curve: Vec<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    misses_max: Option<u64>,
    /// Dirty rate in MiB a second.
    #[serde(default, skip_serializing_if = "is_zero")]
    dirty: u64,
    /// The most MiB that its process occupies while it is copied; 0 if that is no more than
    /// otherwise, or an older program wrote the record.
    #[serde(default, skip_serializing_if = "is_zero")]
    copied: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    gives: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stays: Option<PinnedByWord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    storage: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    networks: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PinnedByWord {
    Operator,
    Device,
    Unseen,
}

/// What often changes of a host, in MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "FastWire", into = "FastWire")]
pub struct FastPart {
    /// The number of the slow part that it belongs to.
    pub list: u64,
    budget: u64,
    reserve: u64,
    committed: u64,
    free: u64,
    reserved: Vec<ReservedPart>,
    /// Allocation, demand and resident memory of each guest, in the list's order.
    guests: Vec<[u64; 3]>,
}

/// The fast part as it is written.
#[derive(Serialize, Deserialize)]
struct FastWire {
    list: u64,
    /// Budget, reserve, committed, free.
    host: [u64; 4],
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reserved: Vec<ReservedPart>,
    /// For each guest its allocation, then the differences of its demand and of its resident memory
    /// to that, as `sizes` writes them.
    guests: String,
}

impl From<FastPart> for FastWire {
    fn from(part: FastPart) -> FastWire {
        let FastPart { list, budget, reserve, committed, free, reserved, guests: sizes } = part;
        let mut guests = String::new();
        for [allocation, demand, resident] in sizes {
            write_size(&mut guests, allocation);
            write_difference(&mut guests, demand, allocation);
            write_difference(&mut guests, resident, allocation);
        }
        FastWire { list, host: [budget, reserve, committed, free], reserved, guests }
    }
}

impl TryFrom<FastWire> for FastPart {
    type Error = &'static str;

    fn try_from(wire: FastWire) -> Result<FastPart, &'static str> {
        let FastWire { list, host: [budget, reserve, committed, free], reserved, guests } = wire;
        let (mut sizes, mut left) = (Vec::new(), guests.as_bytes());
        while !left.is_empty() {
            let mut guest = || {
                let allocation = read_size(&mut left)?;
                let demand = read_difference(&mut left, allocation)?;
                Some([allocation, demand, read_difference(&mut left, allocation)?])
            };
            sizes.push(guest().ok_or(
                "sizes of guests: expected three for each, none of them negative or too large",
            )?);
        }
        Ok(FastPart { list, budget, reserve, committed, free, reserved, guests: sizes })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ReservedPart {
    name: GuestId,
    size: u64,
    resident: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
}

/// Any record together with its version.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u32,
    #[serde(flatten)]
    record: T,
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// A record as the value of a key.
///
/// # Errors
/// It is longer than a value may be.
pub fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, RecordError> {
    let bytes = serde_json::to_vec(&Versioned { v: RECORD_VERSION, record })
        .map_err(|error| RecordError::Malformed(error.to_string()))?;
    if bytes.len() > VALUE_BYTES_MAX {
        return Err(RecordError::TooLong(bytes.len()));
    }
    Ok(bytes)
}

/// Reads the value of a key as a record.
///
/// # Errors
/// It is not such a record, or has an unknown version.
pub fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, RecordError> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(RecordError::TooLong(value.len()));
    }
    let malformed = |error: serde_json::Error| RecordError::Malformed(one_line(&error.to_string()));
    let VersionOnly { v } = serde_json::from_slice(value).map_err(malformed)?;
    if v != RECORD_VERSION {
        return Err(RecordError::Version(v));
    }
    let Versioned { record, .. } = serde_json::from_slice(value).map_err(malformed)?;
    Ok(record)
}

/// One line for logs and terminals: escaped, and cut.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().flat_map(char::escape_debug).take(REASON_CHARS_MAX).collect()
}

impl SlowPart {
    /// The slow part of a record; its guests keep their order.
    pub fn of(host: &HostRecord, number: u64) -> SlowPart {
        let Compatibility { hypervisor, version, cpu_model, storage, networks } =
            &host.compatibility;
        SlowPart {
            number,
            hypervisor: hypervisor.to_string(),
            hypervisor_version: version.0,
            cpu: cpu_model.to_string(),
            storage: words(storage),
            networks: words(networks),
            bandwidth: mib_down(host.bandwidth_per_s).max(1),
            moves: host.executes_moves,
            guests: host.guests.iter().map(SlowGuest::of).collect(),
        }
    }

    /// The group of a guest; `None` if it has none, or is not there.
    pub(crate) fn group_of(&self, guest: &GuestId) -> Option<Label> {
        let guest = self.guests.iter().find(|it| it.name == *guest)?;
        guest.group.as_deref()?.parse().ok()
    }

    /// Whether the other one differs only in its number and in what is measured all the time: miss
    /// curves, dirty rates, bandwidth, and small changes of `copied`.
    pub(crate) fn differs_in_measures_only(&self, other: &SlowPart) -> bool {
        let bare = |part: &SlowPart| {
            let mut part = SlowPart { number: 0, bandwidth: 0, ..part.clone() };
            for guest in &mut part.guests {
                (guest.dirty, guest.copied) = (0, 0);
                guest.curve.clear();
            }
            part
        };
        let mut copied = self.guests.iter().zip(&other.guests);
        let is_near = |(ours, others): (&SlowGuest, &SlowGuest)| {
            ours.copied.abs_diff(others.copied) < COPIED_CHANGE_MIN
        };
        copied.all(is_near) && bare(self) == bare(other)
    }
}

impl SlowGuest {
    fn of(guest: &GuestRecord) -> SlowGuest {
        let mut curve: Vec<(u64, u64)> = Vec::new();
        for (size, misses) in guest.curve.iter().flat_map(CompactCurve::points) {
            // Of points within one MiB only the first is kept, the one with the most misses.
            let size = mib_up(*size);
            if curve.last().is_none_or(|(last, _)| *last < size) {
                curve.push((size, *misses));
            }
        }
        SlowGuest {
            name: guest.id.clone(),
            floor: mib_up(guest.floor),
            curve,
            misses_max: guest.misses_per_s_max,
            dirty: mib_up(guest.dirty_per_s),
            copied: match guest.filled_by_copy() {
                Bytes::ZERO => 0,
                _ => mib_up(guest.copied_resident),
            },
            gives: guest.can_shrink,
            stays: guest.pinned_by.map(|by| match by {
                PinnedBy::Operator => PinnedByWord::Operator,
                PinnedBy::Device => PinnedByWord::Device,
                PinnedBy::Unseen => PinnedByWord::Unseen,
            }),
            group: guest.group.as_ref().map(Label::to_string),
            storage: words(&guest.storage),
            networks: words(&guest.networks),
        }
    }
}

impl FastPart {
    /// The fast part of a record whose slow part has the number `list`.
    pub fn of(host: &HostRecord, list: u64) -> FastPart {
        let sizes = |guest: &GuestRecord| {
            [mib_up(guest.allocation), mib_up(guest.demand), mib_down(guest.resident)]
        };
        let guests: Vec<[u64; 3]> = host.guests.iter().map(sizes).collect();
        let reserved: Vec<ReservedPart> = host
            .reservations
            .iter()
            .map(|it| ReservedPart {
                name: it.guest.clone(),
                size: mib_up(it.size),
                resident: mib_down(it.resident),
                group: it.group.as_ref().map(Label::to_string),
            })
            .collect();
        let allocated: u64 = guests.iter().map(|[allocation, ..]| allocation).sum();
        let kept: u64 = reserved.iter().map(|it| it.size).sum();
        FastPart {
            list,
            budget: mib_down(host.budget),
            reserve: mib_up(host.reserve),
            // Each allocation was rounded up, so their sum may be larger.
            committed: mib_up(host.committed).max(allocated + kept),
            free: mib_down(host.free),
            reserved,
            guests,
        }
    }

    /// Every size in it. Two parts about the same guests and reservations have the same order.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        let reserved = self.reserved.iter().flat_map(|it| [it.size, it.resident]);
        [self.budget, self.reserve, self.committed, self.free]
            .into_iter()
            .chain(reserved)
            .chain(self.guests.iter().flatten().copied())
    }

    /// Whether both have the same guests and reservations.
    pub(crate) fn has_same_guests(&self, other: &FastPart) -> bool {
        let is_same = |(ours, others): (&ReservedPart, &ReservedPart)| {
            ours.name == others.name && ours.group == others.group
        };
        self.list == other.list
            && self.guests.len() == other.guests.len()
            && self.reserved.len() == other.reserved.len()
            && self.reserved.iter().zip(&other.reserved).all(is_same)
    }
}

/// Joins both parts to one record of `host`, dated `seen_at`.
///
/// # Errors
/// The parts do not belong together, or a field is out of bounds.
pub fn join(
    host: &HostId,
    slow: &SlowPart,
    fast: &FastPart,
    seen_at: Timestamp,
    is_draining: bool,
) -> Result<HostRecord, RecordError> {
    if slow.number != fast.list {
        return Err(RecordError::OtherList(fast.list, slow.number));
    }
    if slow.guests.len() != fast.guests.len() {
        return Err(RecordError::Guests(fast.guests.len(), slow.guests.len()));
    }
    let guests = slow.guests.iter().zip(&fast.guests);
    let reservations = fast.reserved.iter().map(|it| {
        Ok(ReservationRecord {
            guest: it.name.clone(),
            size: Bytes::mib(it.size),
            resident: Bytes::mib(it.resident),
            group: it.group.as_deref().map(label).transpose()?,
        })
    });
    Ok(HostRecord {
        id: host.clone(),
        seen_at,
        budget: Bytes::mib(fast.budget),
        reserve: Bytes::mib(fast.reserve),
        committed: Bytes::mib(fast.committed),
        free: Bytes::mib(fast.free),
        bandwidth_per_s: Bytes::mib(slow.bandwidth),
        compatibility: Compatibility {
            hypervisor: label(&slow.hypervisor)?,
            version: HypervisorVersion(slow.hypervisor_version),
            cpu_model: label(&slow.cpu)?,
            storage: labels(&slow.storage)?,
            networks: labels(&slow.networks)?,
        },
        executes_moves: slow.moves,
        is_draining,
        reservations: reservations.collect::<Result<_, RecordError>>()?,
        guests: guests.map(|(slow, sizes)| guest(slow, sizes)).collect::<Result<_, _>>()?,
    })
}

fn guest(slow: &SlowGuest, sizes: &[u64; 3]) -> Result<GuestRecord, RecordError> {
    let [allocation, demand, resident] = sizes.map(Bytes::mib);
    let points: Vec<(Bytes, u64)> =
        slow.curve.iter().map(|(size, misses)| (Bytes::mib(*size), *misses)).collect();
    let curve = if points.is_empty() { None } else { Some(CompactCurve::new(points)) };
    let pinned_by = slow.stays.map(|word| match word {
        PinnedByWord::Operator => PinnedBy::Operator,
        PinnedByWord::Device => PinnedBy::Device,
        PinnedByWord::Unseen => PinnedBy::Unseen,
    });
    Ok(GuestRecord {
        id: slow.name.clone(),
        floor: Bytes::mib(slow.floor),
        allocation,
        demand,
        curve: curve.transpose().map_err(|error: CompactCurveError| {
            RecordError::Malformed(one_line(&format!("guest {}: {error}", slow.name)))
        })?,
        misses_per_s_max: slow.misses_max,
        resident,
        copied_resident: Bytes::mib(slow.copied),
        dirty_per_s: Bytes::mib(slow.dirty),
        can_shrink: slow.gives,
        pinned_by,
        moving_to: None,
        group: slow.group.as_deref().map(label).transpose()?,
        storage: labels(&slow.storage)?,
        networks: labels(&slow.networks)?,
        moves_in_24h: 0,
        last_move: None,
    })
}

fn label(text: &str) -> Result<Label, RecordError> {
    text.parse()
        .map_err(|error: ParseLabelError| RecordError::Malformed(one_line(&error.to_string())))
}

fn labels(texts: &[String]) -> Result<Vec<Label>, RecordError> {
    texts.iter().map(|text| label(text)).collect()
}

fn words(labels: &[Label]) -> Vec<String> {
    labels.iter().map(Label::to_string).collect()
}

fn mib_up(size: Bytes) -> u64 {
    size.get().div_ceil(1 << 20)
}

fn mib_down(size: Bytes) -> u64 {
    size.get() >> 20
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(is_so: &bool) -> bool {
    !is_so
}
