//! The form of `ballast advise --json`; `docs/json.md` documents it.

use ballast_model::Bytes;
use ballast_replay::{
    ADVICE_ASSUMPTIONS, ASSUMPTIONS, Advice, AdviceConfidence, Amounts, CoursePoint, GuestAdvice,
    NeedAdvice,
};
use serde::Serialize;

/// What is printed as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct AdviceJson {
    journal: String,
    policy: String,
    /// Always true: what is imagined was not measured.
    simulated: bool,
    assumptions: Vec<&'static str>,
    window: WindowJson,
    held_mean_bytes: u64,
    imagined_mean_bytes: u64,
    needed_mean_bytes: u64,
    given_already_mean_bytes: u64,
    returnable: AmountsJson,
    room: AmountsJson,
    more_guests: MoreGuestsJson,
    swap_in_bytes: u64,
    imagined_swap_in_bytes: u64,
    swap_in_avoided_bytes: u64,
    plans_refused: u64,
    confidence: ConfidenceJson,
    guests: Vec<GuestJson>,
    guests_left_out: u64,
    course: Vec<CourseJson>,
}

#[derive(Clone, Debug, Serialize)]
struct WindowJson {
    first_unix_ms: i64,
    last_unix_ms: i64,
    ticks: u64,
    covered_s: f64,
}

#[derive(Clone, Debug, Serialize)]
struct AmountsJson {
    mean_bytes: u64,
    p50_bytes: u64,
    p95_bytes: u64,
    worst_hour_bytes: u64,
    worst_hour_unix_ms: i64,
}

#[derive(Clone, Debug, Serialize)]
struct MoreGuestsJson {
    size_bytes: Option<u64>,
    full: Option<u64>,
    need_bytes: Option<u64>,
    alike: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
struct ConfidenceJson {
    percent: u8,
    coverage_percent: u8,
    freshness_percent: u8,
    source_percent: u8,
    visibility_percent: u8,
    weakest: &'static str,
}

#[derive(Clone, Debug, Serialize)]
struct GuestJson {
    guest: String,
    size_bytes: Option<u64>,
    held_mean_bytes: u64,
    imagined_mean_bytes: u64,
    need_p50_bytes: Option<u64>,
    need_p95_bytes: Option<u64>,
    need_max_bytes: Option<u64>,
    returnable_mean_bytes: u64,
    swap_in_bytes: u64,
    imagined_swap_in_bytes: u64,
    usable_percent: u8,
    findings: Vec<FindingJson>,
}

#[derive(Clone, Debug, Serialize)]
struct FindingJson {
    code: &'static str,
    text: String,
    remedy: String,
}

#[derive(Clone, Debug, Serialize)]
struct CourseJson {
    at_unix_ms: i64,
    held_bytes: u64,
    imagined_bytes: u64,
    needed_bytes: u64,
    returnable_bytes: u64,
}

impl AdviceJson {
    /// The form of an advice from this journal.
    pub fn new(journal: &str, advice: &Advice) -> AdviceJson {
        let Advice { window, more, .. } = advice;
        AdviceJson {
            journal: journal.to_owned(),
            policy: advice.policy.to_string(),
            simulated: true,
            assumptions: ASSUMPTIONS.iter().chain(&ADVICE_ASSUMPTIONS).copied().collect(),
            window: WindowJson {
                first_unix_ms: window.first_ms,
                last_unix_ms: window.last_ms,
                ticks: window.ticks,
                covered_s: window.covered.as_secs_f64(),
            },
            held_mean_bytes: advice.held.get(),
            imagined_mean_bytes: advice.imagined.get(),
            needed_mean_bytes: advice.needed.get(),
            given_already_mean_bytes: advice.given_already.get(),
            returnable: advice.returnable.into(),
            room: advice.room.into(),
            more_guests: MoreGuestsJson {
                size_bytes: more.full.map(|_| more.size.get()),
                full: more.full,
                need_bytes: more.alike.map(|_| more.need.get()),
                alike: more.alike,
            },
            swap_in_bytes: advice.swap_in.get(),
            imagined_swap_in_bytes: advice.imagined_swap_in.get(),
            swap_in_avoided_bytes: advice.swap_in_avoided().get(),
            plans_refused: advice.plans_refused,
            confidence: advice.confidence.into(),
            guests: advice.guests.iter().map(GuestJson::from).collect(),
            guests_left_out: advice.guests_left_out,
            course: advice.course.iter().map(CourseJson::from).collect(),
        }
    }
}

impl From<Amounts> for AmountsJson {
    fn from(amounts: Amounts) -> AmountsJson {
        AmountsJson {
            mean_bytes: amounts.mean.get(),
            p50_bytes: amounts.p50.get(),
            p95_bytes: amounts.p95.get(),
            worst_hour_bytes: amounts.worst_hour.get(),
            worst_hour_unix_ms: amounts.worst_hour_ms,
        }
    }
}

impl From<AdviceConfidence> for ConfidenceJson {
    fn from(confidence: AdviceConfidence) -> ConfidenceJson {
        ConfidenceJson {
            percent: confidence.percent(),
            coverage_percent: confidence.coverage,
            freshness_percent: confidence.freshness,
            source_percent: confidence.source,
            visibility_percent: confidence.visibility,
            weakest: confidence.weakest(),
        }
    }
}

impl From<&GuestAdvice> for GuestJson {
    fn from(guest: &GuestAdvice) -> GuestJson {
        let need = |part: fn(NeedAdvice) -> Bytes| guest.need.map(|need| part(need).get());
        GuestJson {
            guest: guest.id.to_string(),
            size_bytes: guest.size.map(Bytes::get),
            held_mean_bytes: guest.held.get(),
            imagined_mean_bytes: guest.imagined.get(),
            need_p50_bytes: need(|need| need.p50),
            need_p95_bytes: need(|need| need.p95),
            need_max_bytes: need(|need| need.max),
            returnable_mean_bytes: guest.returnable.get(),
            swap_in_bytes: guest.swap_in.get(),
            imagined_swap_in_bytes: guest.imagined_swap_in.get(),
            usable_percent: guest.usable_percent,
            findings: guest
                .findings
                .iter()
                .map(|finding| FindingJson {
                    code: finding.code(),
                    text: finding.to_string(),
                    remedy: finding.remedy(&guest.id),
                })
                .collect(),
        }
    }
}

impl From<&CoursePoint> for CourseJson {
    fn from(point: &CoursePoint) -> CourseJson {
        CourseJson {
            at_unix_ms: point.at_ms,
            held_bytes: point.held.get(),
            imagined_bytes: point.imagined.get(),
            needed_bytes: point.needed.get(),
            returnable_bytes: point.returnable.get(),
        }
    }
}
