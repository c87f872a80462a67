//! The question: the line that the daemon writes.
//!
//! Limits: a figure that is unknown is left out, never 0. A miss curve is thinned to at most
//! [`CURVE_POINTS_MAX`] points.

use ballast_model::{Bytes, Confidence, Demand, HostSample, MissCurve};
use ballast_policy::{Contender, Question};
use serde::Serialize;

/// The protocol's version, in every question. It changes when a field changes its meaning or is
/// removed; added fields do not change it.
pub const PROTOCOL_VERSION: u32 = 1;

/// Most points of a miss curve in a question.
pub const CURVE_POINTS_MAX: usize = 256;

#[derive(Serialize)]
struct QuestionLine<'a> {
    version: u32,
    question: u64,
    now_ms: u64,
    budget_bytes: u64,
    reserve_bytes: u64,
    host: HostPart,
    guests: Vec<GuestPart<'a>>,
}

#[derive(Serialize)]
struct HostPart {
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap_total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap_free_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure_some_basis_points: Option<u32>,
}

#[derive(Serialize)]
struct GuestPart<'a> {
    guest: &'a str,
    floor_bytes: u64,
    ceiling_bytes: u64,
    shares: u32,
    priority: u8,
    allocation_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_bytes: Option<u64>,
    used_bytes: u64,
    demand_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    demand_source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    demand_confidence_percent: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    committed_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probed_working_set_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swapped_pages_per_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    misses_per_s_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    miss_curve: Option<CurvePart>,
}

/// A miss curve: with `k × step` of memory, `misses[k]` references of an interval miss.
#[derive(Serialize)]
struct CurvePart {
    step_bytes: u64,
    interval_ms: u64,
    misses: Vec<u64>,
}

/// A question as a line, with its end. The answer has to repeat `number`.
pub fn question_line(number: u64, question: &Question) -> String {
    let Question { problem, reserve } = question;
    let line = QuestionLine {
        version: PROTOCOL_VERSION,
        question: number,
        now_ms: problem.now().as_millis(),
        budget_bytes: problem.budget().get(),
        reserve_bytes: reserve.get(),
        host: problem.host().into(),
        guests: problem.contenders().iter().map(GuestPart::from).collect(),
    };
    // Writing names and numbers does not fail. If it did, the program would get an empty line and
    // could not answer, which the daemon reports.
    let mut text = serde_json::to_string(&line).unwrap_or_default();
    text.push('\n');
    text
}

impl From<&HostSample> for HostPart {
    fn from(host: &HostSample) -> HostPart {
        HostPart {
            memory_total_bytes: host.memory_total.map(Bytes::get),
            memory_available_bytes: host.memory_available.map(Bytes::get),
            swap_total_bytes: host.swap_total.map(Bytes::get),
            swap_free_bytes: host.swap_free.map(Bytes::get),
            pressure_some_basis_points: host.pressure.map(|it| it.some_basis_points),
        }
    }
}

impl<'a> From<&'a Contender> for GuestPart<'a> {
    fn from(contender: &'a Contender) -> GuestPart<'a> {
        let signals = &contender.signals;
        let confidence = |demand: Demand| Confidence::percent(demand.confidence);
        GuestPart {
            guest: contender.id.as_str(),
            floor_bytes: contender.floor.get(),
            ceiling_bytes: contender.ceiling.get(),
            shares: contender.shares,
            priority: contender.priority,
            allocation_bytes: contender.allocation.get(),
            held_bytes: contender.held.map(Bytes::get),
            used_bytes: contender.used.get(),
            demand_bytes: contender.demand().get(),
            demand_source: contender.demand.map(|demand| demand.source.code()),
            demand_confidence_percent: contender.demand.map(confidence),
            free_bytes: signals.free.map(Bytes::get),
            committed_bytes: signals.committed.map(Bytes::get),
            probed_working_set_bytes: signals.probed.map(Bytes::get),
            swapped_pages_per_s: signals.swapped_pages_per_s,
            misses_per_s_max: contender.miss_rate_max,
            miss_curve: contender.curve.as_deref().map(CurvePart::from),
        }
    }
}

impl From<&MissCurve> for CurvePart {
    fn from(curve: &MissCurve) -> CurvePart {
        let stride = curve.points().len().div_ceil(CURVE_POINTS_MAX).max(1);
        CurvePart {
            step_bytes: curve.step().get().saturating_mul(stride as u64),
            interval_ms: u64::try_from(curve.interval().as_millis()).unwrap_or(u64::MAX),
            misses: curve.points().iter().step_by(stride).copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ballast_model::{DemandSource, Signals, Timestamp};
    use ballast_policy::Problem;
    use serde_json::{Value, json};

    use super::*;

    fn asked(contenders: Vec<Contender>) -> Value {
        let problem = Problem::new(Bytes::gib(1), contenders).at(Timestamp::from_millis(5));
        let question = Question::about(problem, Bytes::mib(100)).unwrap();
        let line = question_line(7, &question);
        assert_eq!(line.find('\n'), Some(line.len() - 1), "one line");
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn a_question_has_what_is_known() {
        let mib = |n: u64| n << 20;
        let curve =
            MissCurve::new(Bytes::mib(1), Duration::from_secs(1), (0..1000).rev().collect());
        let known = Contender {
            floor: Bytes::mib(64),
            ceiling: Bytes::mib(512),
            held: Some(Bytes::mib(300)),
            demand: Some(Demand {
                size: Bytes::mib(210),
                source: DemandSource::WorkingSet,
                age: Duration::ZERO,
                confidence: Confidence::USED,
            }),
            curve: Some(Arc::new(curve.unwrap())),
            signals: Signals { swapped_pages_per_s: Some(3), ..Signals::default() },
            ..Contender::new("a".parse().unwrap(), Bytes::mib(200))
        };
        let asked = asked(vec![known]);
        let mut guest = asked["guests"][0].clone();
        let curve = guest.as_object_mut().unwrap().remove("miss_curve").unwrap();
        assert_eq!(
            guest,
            json!({
                "guest": "a", "floor_bytes": mib(64), "ceiling_bytes": mib(512), "shares": 1000,
                "priority": 0, "allocation_bytes": mib(200), "held_bytes": mib(300),
                "used_bytes": mib(200), "demand_bytes": mib(210), "demand_source": "working-set",
                "demand_confidence_percent": 60, "swapped_pages_per_s": 3,
            })
        );
        let points = curve["misses"].as_array().unwrap();
        assert!(points.len() <= CURVE_POINTS_MAX && points[1] == 995, "{points:?}");
        assert_eq!((&curve["step_bytes"], &curve["interval_ms"]), (&json!(mib(4)), &json!(1000)));
        assert_eq!((&asked["version"], &asked["question"]), (&json!(1), &json!(7)));
        assert_eq!(asked["budget_bytes"], mib(1024));
        assert_eq!((&asked["reserve_bytes"], &asked["now_ms"]), (&json!(mib(100)), &json!(5)));
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let asked = asked(vec![Contender::new("a".parse().unwrap(), Bytes::mib(200))]);
        assert_eq!(asked["host"], json!({}));
        let guest = asked["guests"][0].as_object().unwrap();
        assert!(guest.values().all(|value| !value.is_null()), "{guest:?}");
        assert!(!guest.contains_key("miss_curve") && !guest.contains_key("held_bytes"));
    }
}
