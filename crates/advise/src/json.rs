//! The JSON of `ballast advise --json`, which is also the API's reply. `docs/json.md` documents it.

use ballast_api::{
    AdviceView, AdviceWindowView, AmountsView, ConfidenceView, CoursePointView, FindingView,
    GuestAdviceView, MoreGuestsView,
};
use ballast_model::Bytes;
use ballast_replay::{
    ADVICE_ASSUMPTIONS, ASSUMPTIONS, Advice, AdviceConfidence, Amounts, CoursePoint, GuestAdvice,
    NeedAdvice,
};

/// The reply for `advice`, which was made from `journal`.
pub fn advice_view(journal: &str, advice: &Advice) -> AdviceView {
    let Advice { window, more, .. } = advice;
    AdviceView {
        journal: journal.to_owned(),
        policy: advice.policy.to_string(),
        simulated: true,
        assumptions: ASSUMPTIONS
            .iter()
            .chain(&ADVICE_ASSUMPTIONS)
            .map(ToString::to_string)
            .collect(),
        window: AdviceWindowView {
            first_unix_ms: window.first_ms,
            last_unix_ms: window.last_ms,
            ticks: window.ticks,
            covered_s: window.covered.as_secs_f64(),
        },
        held_mean_bytes: advice.held.get(),
        imagined_mean_bytes: advice.imagined.get(),
        needed_mean_bytes: advice.needed.get(),
        given_already_mean_bytes: advice.given_already.get(),
        returnable: amounts(advice.returnable),
        room: amounts(advice.room),
        more_guests: MoreGuestsView {
            size_bytes: more.full.map(|_| more.size.get()),
            full: more.full,
            need_bytes: more.alike.map(|_| more.need.get()),
            alike: more.alike,
        },
        swap_in_bytes: advice.swap_in.get(),
        imagined_swap_in_bytes: advice.imagined_swap_in.map(Bytes::get),
        swap_in_avoided_bytes: advice.swap_in_avoided.get(),
        guests_hiding_need: advice.guests_hiding_need,
        plans_refused: advice.plans_refused,
        confidence: confidence(advice.confidence),
        guests: advice.guests.iter().map(guest).collect(),
        guests_left_out: advice.guests_left_out,
        course: advice.course.iter().map(course_point).collect(),
    }
}

fn amounts(amounts: Amounts) -> AmountsView {
    AmountsView {
        mean_bytes: amounts.mean.get(),
        p50_bytes: amounts.p50.get(),
        p95_bytes: amounts.p95.get(),
        worst_hour_bytes: amounts.worst_hour.get(),
        worst_hour_unix_ms: amounts.worst_hour_ms,
    }
}

fn confidence(confidence: AdviceConfidence) -> ConfidenceView {
    ConfidenceView {
        percent: confidence.percent(),
        coverage_percent: confidence.coverage,
        freshness_percent: confidence.freshness,
        source_percent: confidence.source,
        visibility_percent: confidence.visibility,
        weakest: confidence.weakest().to_owned(),
    }
}

fn guest(guest: &GuestAdvice) -> GuestAdviceView {
    let need = |part: fn(NeedAdvice) -> Bytes| guest.need.map(|need| part(need).get());
    GuestAdviceView {
        guest: guest.id.to_string(),
        size_bytes: guest.size.map(Bytes::get),
        held_mean_bytes: guest.held.get(),
        imagined_mean_bytes: guest.imagined.get(),
        need_p50_bytes: need(|need| need.p50),
        need_p95_bytes: need(|need| need.p95),
        need_max_bytes: need(|need| need.max),
        need_is_least: guest.need_is_least,
        returnable_mean_bytes: guest.returnable.get(),
        swap_in_bytes: guest.swap_in.get(),
        imagined_swap_in_bytes: guest.imagined_swap_in.map(Bytes::get),
        usable_percent: guest.usable_percent,
        findings: guest
            .findings
            .iter()
            .map(|finding| FindingView {
                code: finding.code().to_owned(),
                text: finding.to_string(),
                remedy: finding.remedy(&guest.id),
            })
            .collect(),
    }
}

fn course_point(point: &CoursePoint) -> CoursePointView {
    CoursePointView {
        at_unix_ms: point.at_ms,
        held_bytes: point.held.get(),
        imagined_bytes: point.imagined.get(),
        needed_bytes: point.needed.get(),
        returnable_bytes: point.returnable.get(),
    }
}
