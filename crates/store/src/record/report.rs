//! What is reported beside the balloon device's statistics, as records, and back without loss.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{
    AgentReport, Bytes, Measured, MemoryRequest, MissCurve, RequestKind, Share, TrackerReport,
    Tracking, TrackingState,
};
use serde::{Deserialize, Serialize};

use super::{RecordError, ns, some_bytes};

/// A measured [`AgentReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct AgentRecord {
    pub age_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_used_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_free_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermark_high_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refaulted_file_pages: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scanned_pages: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaimed_pages: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRecord>,
}

/// A [`MemoryRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct RequestRecord {
    pub number: u64,
    pub kind: RequestKindRecord,
    pub amount_bytes: u64,
}

/// A [`RequestKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum RequestKindRecord {
    More,
    Less,
    Emergency,
}

/// A measured [`TrackerReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct TrackerRecord {
    pub age_ns: u64,
    pub working_set_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<CurveRecord>,
}

/// A [`Tracking`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct TrackingRecord {
    pub state: TrackingStateRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched_millionths: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_millionths: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A [`TrackingState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum TrackingStateRecord {
    Waiting,
    Watching,
    Resting,
    Referenced,
    Absent,
    Failing,
}

/// A [`MissCurve`], or in a journal from format 2 on, which one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub enum CurveRecord {
    Whole {
        step_bytes: u64,
        interval_ns: u64,
        misses: Vec<u64>,
    },
    /// Row `id` of the table of curves, [shifted](MissCurve::shifted) by so many steps.
    Kept {
        id: i64,
        #[serde(default, skip_serializing_if = "is_zero")]
        shifted: u32,
    },
}

fn is_zero(shifted: &u32) -> bool {
    *shifted == 0
}

impl CurveRecord {
    /// The steps by which this is `plain` shifted; `None`: it is another one.
    pub(crate) fn shifted_from(&self, plain: &CurveRecord) -> Option<u32> {
        use CurveRecord::Whole;
        let Whole { step_bytes, interval_ns, misses } = self else { return None };
        let Whole { step_bytes: step, interval_ns: interval, misses: plain } = plain else {
            return None;
        };
        let (first, rest) = misses.split_at_checked(misses.len().checked_sub(plain.len())?)?;
        let is_same = (step_bytes, interval_ns) == (step, interval) && rest == plain;
        let is_shifted = is_same && first.iter().all(|count| Some(count) == plain.first());
        is_shifted.then(|| u32::try_from(first.len()).ok())?
    }

    /// This, shifted by so many steps.
    #[must_use]
    pub(crate) fn shifted_by(mut self, steps: u32) -> CurveRecord {
        if let CurveRecord::Whole { misses, .. } = &mut self
            && let Some(&first) = misses.first()
        {
            // No curve has more points; a damaged record must not fill memory.
            let steps = (steps as usize).min(MissCurve::POINTS_MAX);
            misses.splice(0..0, std::iter::repeat_n(first, steps));
        }
        self
    }
}

impl From<Measured<AgentReport>> for AgentRecord {
    fn from(Measured { value, age }: Measured<AgentReport>) -> Self {
        let AgentReport {
            committed,
            swap_used,
            swap_free,
            active,
            inactive,
            watermark_high,
            refaulted_file_pages,
            scanned_pages,
            reclaimed_pages,
            request,
        } = value;
        AgentRecord {
            age_ns: ns(age),
            committed_bytes: some_bytes(committed),
            swap_used_bytes: some_bytes(swap_used),
            swap_free_bytes: some_bytes(swap_free),
            active_bytes: some_bytes(active),
            inactive_bytes: some_bytes(inactive),
            watermark_high_bytes: some_bytes(watermark_high),
            refaulted_file_pages,
            scanned_pages,
            reclaimed_pages,
            request: request.map(RequestRecord::from),
        }
    }
}

impl From<AgentRecord> for Measured<AgentReport> {
    fn from(record: AgentRecord) -> Self {
        let value = AgentReport {
            committed: record.committed_bytes.map(Bytes::new),
            swap_used: record.swap_used_bytes.map(Bytes::new),
            swap_free: record.swap_free_bytes.map(Bytes::new),
            active: record.active_bytes.map(Bytes::new),
            inactive: record.inactive_bytes.map(Bytes::new),
            watermark_high: record.watermark_high_bytes.map(Bytes::new),
            refaulted_file_pages: record.refaulted_file_pages,
            scanned_pages: record.scanned_pages,
            reclaimed_pages: record.reclaimed_pages,
            request: record.request.map(MemoryRequest::from),
        };
        Measured { value, age: Duration::from_nanos(record.age_ns) }
    }
}

impl From<MemoryRequest> for RequestRecord {
    fn from(MemoryRequest { number, kind, amount }: MemoryRequest) -> Self {
        let kind = match kind {
            RequestKind::More => RequestKindRecord::More,
            RequestKind::Less => RequestKindRecord::Less,
            RequestKind::Emergency => RequestKindRecord::Emergency,
        };
        RequestRecord { number, kind, amount_bytes: amount.get() }
    }
}

impl From<RequestRecord> for MemoryRequest {
    fn from(RequestRecord { number, kind, amount_bytes }: RequestRecord) -> Self {
        let kind = match kind {
            RequestKindRecord::More => RequestKind::More,
            RequestKindRecord::Less => RequestKind::Less,
            RequestKindRecord::Emergency => RequestKind::Emergency,
        };
        MemoryRequest { number, kind, amount: Bytes::new(amount_bytes) }
    }
}

impl From<&Measured<TrackerReport>> for TrackerRecord {
    fn from(Measured { value, age }: &Measured<TrackerReport>) -> Self {
        TrackerRecord {
            age_ns: ns(*age),
            working_set_bytes: value.working_set.get(),
            curve: value.curve.as_deref().map(CurveRecord::from),
        }
    }
}

impl TryFrom<TrackerRecord> for Measured<TrackerReport> {
    type Error = RecordError;

    fn try_from(record: TrackerRecord) -> Result<Self, RecordError> {
        let value = TrackerReport {
            working_set: Bytes::new(record.working_set_bytes),
            curve: record.curve.map(MissCurve::try_from).transpose()?.map(Arc::new),
        };
        Ok(Measured { value, age: Duration::from_nanos(record.age_ns) })
    }
}

impl From<&Tracking> for TrackingRecord {
    fn from(Tracking { state, watched, cost, trouble }: &Tracking) -> Self {
        TrackingRecord {
            state: (*state).into(),
            watched_millionths: watched.map(Share::millionths),
            cost_millionths: cost.map(Share::millionths),
            trouble: trouble.clone(),
        }
    }
}

impl From<TrackingRecord> for Tracking {
    fn from(record: TrackingRecord) -> Self {
        Tracking {
            state: record.state.into(),
            watched: record.watched_millionths.map(Share::from_millionths),
            cost: record.cost_millionths.map(Share::from_millionths),
            trouble: record.trouble,
        }
    }
}

impl From<TrackingState> for TrackingStateRecord {
    fn from(state: TrackingState) -> Self {
        match state {
            TrackingState::Waiting => TrackingStateRecord::Waiting,
            TrackingState::Watching => TrackingStateRecord::Watching,
            TrackingState::Resting => TrackingStateRecord::Resting,
            TrackingState::Referenced => TrackingStateRecord::Referenced,
            TrackingState::Absent => TrackingStateRecord::Absent,
            TrackingState::Failing => TrackingStateRecord::Failing,
        }
    }
}

impl From<TrackingStateRecord> for TrackingState {
    fn from(record: TrackingStateRecord) -> Self {
        match record {
            TrackingStateRecord::Waiting => TrackingState::Waiting,
            TrackingStateRecord::Watching => TrackingState::Watching,
            TrackingStateRecord::Resting => TrackingState::Resting,
            TrackingStateRecord::Referenced => TrackingState::Referenced,
            TrackingStateRecord::Absent => TrackingState::Absent,
            TrackingStateRecord::Failing => TrackingState::Failing,
        }
    }
}

impl From<&MissCurve> for CurveRecord {
    fn from(curve: &MissCurve) -> Self {
        CurveRecord::Whole {
            step_bytes: curve.step().get(),
            interval_ns: ns(curve.interval()),
            misses: curve.points().to_vec(),
        }
    }
}

impl TryFrom<CurveRecord> for MissCurve {
    type Error = RecordError;

    fn try_from(record: CurveRecord) -> Result<Self, RecordError> {
        match record {
            CurveRecord::Whole { step_bytes, interval_ns, misses } => {
                let interval = Duration::from_nanos(interval_ns);
                Ok(MissCurve::new(Bytes::new(step_bytes), interval, misses)?)
            }
            CurveRecord::Kept { id, .. } => Err(RecordError::CurveApart(id)),
        }
    }
}
