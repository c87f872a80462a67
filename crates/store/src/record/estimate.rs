//! What was estimated of a guest as a record, and back without loss.
//!
//! Format 1 began with used and available memory alone, so a record without demand is one where the
//! demand is the memory in use.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{
    Bytes, Confidence, Demand, DemandSource, Estimate, MemoryRequest, MissCurve, PassedOver,
    Provenance, Signals, WhyPassedOver,
};
use serde::{Deserialize, Serialize};

use super::report::{CurveRecord, RequestRecord};
use super::{RecordError, ns, some_bytes};

/// An [`Estimate`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct EstimateRecord {
    pub used_bytes: u64,
    pub available_bytes: u64,
    pub provenance: ProvenanceRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<DemandRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<PassedOverRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<CurveRecord>,
    #[serde(default, skip_serializing_if = "SignalsRecord::is_empty")]
    pub signals: SignalsRecord,
}

/// A [`Provenance`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "figures", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum ProvenanceRecord {
    BalloonStatistics { age_ns: u64 },
}

/// A [`Demand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct DemandRecord {
    pub size_bytes: u64,
    pub source: DemandSourceRecord,
    pub age_ns: u64,
    pub confidence_percent: u8,
}

/// A [`DemandSource`]; the word is [`DemandSource::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum DemandSourceRecord {
    WorkingSet,
    Probing,
    Used,
    Committed,
}

/// A [`PassedOver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct PassedOverRecord {
    pub size_bytes: u64,
    pub source: DemandSourceRecord,
    pub age_ns: u64,
    pub why: WhyPassedOverRecord,
}

/// A [`WhyPassedOver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "figures", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum WhyPassedOverRecord {
    LessTrusted,
    Contradicts,
    Stale { age_max_ns: u64 },
}

/// [`Signals`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct SignalsRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probed_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped_pages_per_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRecord>,
}

impl SignalsRecord {
    fn is_empty(&self) -> bool {
        *self == SignalsRecord::default()
    }
}

impl From<&Estimate> for EstimateRecord {
    fn from(estimate: &Estimate) -> Self {
        let Estimate { used, available, provenance, demand, passed_over, curve, signals } =
            estimate;
        let plain = Estimate::of_used(*used, *available, *provenance).demand;
        EstimateRecord {
            used_bytes: used.get(),
            available_bytes: available.get(),
            provenance: match provenance {
                Provenance::BalloonStatistics { age } => {
                    ProvenanceRecord::BalloonStatistics { age_ns: ns(*age) }
                }
            },
            demand: (*demand != plain).then(|| DemandRecord::from(*demand)),
            passed_over: passed_over.iter().copied().map(PassedOverRecord::from).collect(),
            curve: curve.as_deref().map(CurveRecord::from),
            signals: SignalsRecord::from(*signals),
        }
    }
}

impl TryFrom<EstimateRecord> for Estimate {
    type Error = RecordError;

    fn try_from(record: EstimateRecord) -> Result<Self, RecordError> {
        let provenance = match record.provenance {
            ProvenanceRecord::BalloonStatistics { age_ns } => {
                Provenance::BalloonStatistics { age: Duration::from_nanos(age_ns) }
            }
        };
        let used = Bytes::new(record.used_bytes);
        let plain = Estimate::of_used(used, Bytes::new(record.available_bytes), provenance);
        Ok(Estimate {
            demand: record.demand.map_or(plain.demand, Demand::from),
            passed_over: record.passed_over.into_iter().map(PassedOver::from).collect(),
            curve: record.curve.map(MissCurve::try_from).transpose()?.map(Arc::new),
            signals: record.signals.into(),
            ..plain
        })
    }
}

impl From<Demand> for DemandRecord {
    fn from(Demand { size, source, age, confidence }: Demand) -> Self {
        DemandRecord {
            size_bytes: size.get(),
            source: source.into(),
            age_ns: ns(age),
            confidence_percent: confidence.percent(),
        }
    }
}

impl From<DemandRecord> for Demand {
    fn from(record: DemandRecord) -> Self {
        Demand {
            size: Bytes::new(record.size_bytes),
            source: record.source.into(),
            age: Duration::from_nanos(record.age_ns),
            confidence: Confidence::from_percent(record.confidence_percent),
        }
    }
}

impl From<DemandSource> for DemandSourceRecord {
    fn from(source: DemandSource) -> Self {
        match source {
            DemandSource::WorkingSet => DemandSourceRecord::WorkingSet,
            DemandSource::Probing => DemandSourceRecord::Probing,
            DemandSource::Used => DemandSourceRecord::Used,
            DemandSource::Committed => DemandSourceRecord::Committed,
        }
    }
}

impl From<DemandSourceRecord> for DemandSource {
    fn from(record: DemandSourceRecord) -> Self {
        match record {
            DemandSourceRecord::WorkingSet => DemandSource::WorkingSet,
            DemandSourceRecord::Probing => DemandSource::Probing,
            DemandSourceRecord::Used => DemandSource::Used,
            DemandSourceRecord::Committed => DemandSource::Committed,
        }
    }
}

impl From<PassedOver> for PassedOverRecord {
    fn from(PassedOver { source, size, age, why }: PassedOver) -> Self {
        let why = match why {
            WhyPassedOver::LessTrusted => WhyPassedOverRecord::LessTrusted,
            WhyPassedOver::Contradicts => WhyPassedOverRecord::Contradicts,
            WhyPassedOver::Stale { age_max } => {
                WhyPassedOverRecord::Stale { age_max_ns: ns(age_max) }
            }
        };
        PassedOverRecord { size_bytes: size.get(), source: source.into(), age_ns: ns(age), why }
    }
}

impl From<PassedOverRecord> for PassedOver {
    fn from(record: PassedOverRecord) -> Self {
        let why = match record.why {
            WhyPassedOverRecord::LessTrusted => WhyPassedOver::LessTrusted,
            WhyPassedOverRecord::Contradicts => WhyPassedOver::Contradicts,
            WhyPassedOverRecord::Stale { age_max_ns } => {
                WhyPassedOver::Stale { age_max: Duration::from_nanos(age_max_ns) }
            }
        };
        PassedOver {
            source: record.source.into(),
            size: Bytes::new(record.size_bytes),
            age: Duration::from_nanos(record.age_ns),
            why,
        }
    }
}

impl From<Signals> for SignalsRecord {
    fn from(signals: Signals) -> Self {
        let Signals { free, committed, probed, swapped_pages_per_s, request } = signals;
        SignalsRecord {
            free_bytes: some_bytes(free),
            committed_bytes: some_bytes(committed),
            probed_bytes: some_bytes(probed),
            swapped_pages_per_s,
            request: request.map(RequestRecord::from),
        }
    }
}

impl From<SignalsRecord> for Signals {
    fn from(record: SignalsRecord) -> Self {
        Signals {
            free: record.free_bytes.map(Bytes::new),
            committed: record.committed_bytes.map(Bytes::new),
            probed: record.probed_bytes.map(Bytes::new),
            swapped_pages_per_s: record.swapped_pages_per_s,
            request: record.request.map(MemoryRequest::from),
        }
    }
}
