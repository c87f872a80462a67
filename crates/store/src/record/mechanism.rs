//! Mechanisms as records: what can be plugged in, which way memory is moved and why, whom the host pages.

use std::time::Duration;

use ballast_model::{
    Bytes, Generation, GuestId, Hotplug, HotplugKind, Mechanism, Move, Paging, Regret, Rung,
    Timestamp, Why,
};
use serde::{Deserialize, Serialize};

use super::{RecordError, ns};

/// A [`Hotplug`]; the kind is [`HotplugKind::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct HotplugRecord {
    pub kind: HotplugKindRecord,
    pub plugged_bytes: u64,
    pub requested_bytes: u64,
    pub max_bytes: u64,
    pub block_bytes: u64,
}

/// A [`HotplugKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum HotplugKindRecord {
    VirtioMem,
    Dimm,
}

/// A [`Move`]; the mechanism is [`Mechanism::code`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct MoveRecord {
    pub mechanism: String,
    pub from_bytes: u64,
    pub to_bytes: u64,
    pub why: WhyRecord,
}

/// A [`Why`]; the code is [`Why::code`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "figures", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum WhyRecord {
    BalloonHasIt,
    BalloonTakesIt,
    BalloonRunsOut { left_bytes: u64 },
    BallooningInhibited,
    NoBalloon,
    PluggedIdle { idle_ns: u64 },
    NotOnlined { unused_bytes: u64 },
    AskedByOthers { more_bytes: u64 },
    UnplugStalled { idle_ns: u64 },
    NotGiven { left_bytes: u64, asked_ns: u64 },
    HostShort { rung: String },
    Growing,
}

/// A [`Paging`]; the mechanism is [`Mechanism::code`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct PagingRecord {
    pub guest: GuestId,
    pub mechanism: String,
    pub resident_bytes: u64,
    pub generation: u64,
    pub deadline_ms: u64,
}

/// A [`Regret`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct RegretRecord {
    pub taken_bytes: u64,
    pub read_back_bytes: u64,
    pub undone: u64,
}

/// The word of a rung; none for the lowest, which old records do not name.
pub(super) fn rung_word(rung: Rung) -> Option<String> {
    (rung != Rung::Normal).then(|| rung.code().to_owned())
}

/// The rung of such a word.
pub(super) fn rung(word: Option<&str>) -> Result<Rung, RecordError> {
    let Some(word) = word else { return Ok(Rung::Normal) };
    Rung::of_code(word).ok_or_else(|| RecordError::Word { what: "rung", word: word.to_owned() })
}

fn mechanism(word: &str) -> Result<Mechanism, RecordError> {
    let unknown = || RecordError::Word { what: "mechanism", word: word.to_owned() };
    Mechanism::of_code(word).ok_or_else(unknown)
}

impl From<Hotplug> for HotplugRecord {
    fn from(Hotplug { kind, plugged, requested, max, block }: Hotplug) -> Self {
        HotplugRecord {
            kind: match kind {
                HotplugKind::VirtioMem => HotplugKindRecord::VirtioMem,
                HotplugKind::Dimm => HotplugKindRecord::Dimm,
            },
            plugged_bytes: plugged.get(),
            requested_bytes: requested.get(),
            max_bytes: max.get(),
            block_bytes: block.get(),
        }
    }
}

impl From<HotplugRecord> for Hotplug {
    fn from(record: HotplugRecord) -> Self {
        Hotplug {
            kind: match record.kind {
                HotplugKindRecord::VirtioMem => HotplugKind::VirtioMem,
                HotplugKindRecord::Dimm => HotplugKind::Dimm,
            },
            plugged: Bytes::new(record.plugged_bytes),
            requested: Bytes::new(record.requested_bytes),
            max: Bytes::new(record.max_bytes),
            block: Bytes::new(record.block_bytes),
        }
    }
}

impl From<&Move> for MoveRecord {
    fn from(Move { mechanism, from, to, why }: &Move) -> Self {
        MoveRecord {
            mechanism: mechanism.code().to_owned(),
            from_bytes: from.get(),
            to_bytes: to.get(),
            why: why.into(),
        }
    }
}

impl TryFrom<MoveRecord> for Move {
    type Error = RecordError;

    fn try_from(record: MoveRecord) -> Result<Self, RecordError> {
        Ok(Move {
            mechanism: mechanism(&record.mechanism)?,
            from: Bytes::new(record.from_bytes),
            to: Bytes::new(record.to_bytes),
            why: record.why.try_into()?,
        })
    }
}

impl From<&Why> for WhyRecord {
    fn from(why: &Why) -> Self {
        match *why {
            Why::BalloonHasIt => WhyRecord::BalloonHasIt,
            Why::BalloonTakesIt => WhyRecord::BalloonTakesIt,
            Why::BalloonRunsOut { left } => WhyRecord::BalloonRunsOut { left_bytes: left.get() },
            Why::BallooningInhibited => WhyRecord::BallooningInhibited,
            Why::NoBalloon => WhyRecord::NoBalloon,
            Why::PluggedIdle { idle } => WhyRecord::PluggedIdle { idle_ns: ns(idle) },
            Why::NotOnlined { unused } => WhyRecord::NotOnlined { unused_bytes: unused.get() },
            Why::AskedByOthers { more } => WhyRecord::AskedByOthers { more_bytes: more.get() },
            Why::UnplugStalled { idle } => WhyRecord::UnplugStalled { idle_ns: ns(idle) },
            Why::NotGiven { left, asked } => {
                WhyRecord::NotGiven { left_bytes: left.get(), asked_ns: ns(asked) }
            }
            Why::HostShort { rung } => WhyRecord::HostShort { rung: rung.code().to_owned() },
            Why::Growing => WhyRecord::Growing,
        }
    }
}

impl TryFrom<WhyRecord> for Why {
    type Error = RecordError;

    fn try_from(record: WhyRecord) -> Result<Self, RecordError> {
        Ok(match record {
            WhyRecord::BalloonHasIt => Why::BalloonHasIt,
            WhyRecord::BalloonTakesIt => Why::BalloonTakesIt,
            WhyRecord::BalloonRunsOut { left_bytes } => {
                Why::BalloonRunsOut { left: Bytes::new(left_bytes) }
            }
            WhyRecord::BallooningInhibited => Why::BallooningInhibited,
            WhyRecord::NoBalloon => Why::NoBalloon,
            WhyRecord::PluggedIdle { idle_ns } => {
                Why::PluggedIdle { idle: Duration::from_nanos(idle_ns) }
            }
            WhyRecord::NotOnlined { unused_bytes } => {
                Why::NotOnlined { unused: Bytes::new(unused_bytes) }
            }
            WhyRecord::AskedByOthers { more_bytes } => {
                Why::AskedByOthers { more: Bytes::new(more_bytes) }
            }
            WhyRecord::UnplugStalled { idle_ns } => {
                Why::UnplugStalled { idle: Duration::from_nanos(idle_ns) }
            }
            WhyRecord::NotGiven { left_bytes, asked_ns } => Why::NotGiven {
                left: Bytes::new(left_bytes),
                asked: Duration::from_nanos(asked_ns),
            },
            WhyRecord::HostShort { rung: word } => Why::HostShort { rung: rung(Some(&word))? },
            WhyRecord::Growing => Why::Growing,
        })
    }
}

impl From<&Paging> for PagingRecord {
    fn from(Paging { guest, mechanism, resident, generation, deadline }: &Paging) -> Self {
        PagingRecord {
            guest: guest.clone(),
            mechanism: mechanism.code().to_owned(),
            resident_bytes: resident.get(),
            generation: generation.0,
            deadline_ms: deadline.as_millis(),
        }
    }
}

impl TryFrom<PagingRecord> for Paging {
    type Error = RecordError;

    fn try_from(record: PagingRecord) -> Result<Self, RecordError> {
        Ok(Paging {
            guest: record.guest,
            mechanism: mechanism(&record.mechanism)?,
            resident: Bytes::new(record.resident_bytes),
            generation: Generation(record.generation),
            deadline: Timestamp::from_millis(record.deadline_ms),
        })
    }
}

impl From<Regret> for RegretRecord {
    fn from(Regret { taken, read_back, undone }: Regret) -> Self {
        RegretRecord { taken_bytes: taken.get(), read_back_bytes: read_back.get(), undone }
    }
}

impl From<RegretRecord> for Regret {
    fn from(record: RegretRecord) -> Self {
        Regret {
            taken: Bytes::new(record.taken_bytes),
            read_back: Bytes::new(record.read_back_bytes),
            undone: record.undone,
        }
    }
}
