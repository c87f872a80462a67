//! An advice for people in a terminal of 80 columns.
//!
//! Idea: [`AdviceText`] makes every sentence and every table; the text and the page both use it.

use ballast_model::Bytes;
use ballast_replay::{
    ADVICE_ASSUMPTIONS, ASSUMPTIONS, Advice, Amounts, GuestAdvice, GuestFinding, NeedAdvice,
};
use ballast_report::Report;
use ballast_report::format::{UNKNOWN, span};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Width of text that is not for a terminal, in columns.
const WIDTH: u16 = 80;

/// One line of the table of amounts: its name, and the returnable memory and the room in it.
pub(crate) type AmountRow = (String, Bytes, Bytes);

/// A finding, with its guest.
pub(crate) type FindingRow<'a> = (&'a GuestAdvice, GuestFinding);

/// An advice as sentences and rows of tables.
pub(crate) struct AdviceText<'a> {
    advice: &'a Advice,
}

impl<'a> AdviceText<'a> {
    pub(crate) fn new(advice: &'a Advice) -> AdviceText<'a> {
        AdviceText { advice }
    }

    /// How much was replayed: ticks, time covered, first and last moment.
    pub(crate) fn extent(&self) -> String {
        let window = self.advice.window;
        let covered = u64::try_from(window.covered.as_millis()).unwrap_or(u64::MAX);
        format!(
            "{} ticks in {}, {} to {}",
            window.ticks,
            span(covered),
            moment(window.first_ms),
            moment(window.last_ms)
        )
    }

    pub(crate) fn amounts(&self) -> Vec<AmountRow> {
        let Advice { returnable, room, .. } = self.advice;
        let row =
            |name: &str, of: fn(&Amounts) -> Bytes| (name.to_owned(), of(returnable), of(room));
        let worst = format!("in the worst hour, {}", moment(returnable.worst_hour_ms));
        vec![
            row("on average", |it| it.mean),
            row("half of the time, at least", |it| it.p50),
            row("95 % of the time, at least", |it| it.p95),
            row(&worst, |it| it.worst_hour),
        ]
    }

    pub(crate) fn amount_columns() -> Report<'static, AmountRow> {
        Report::new()
            .text("", |row: &AmountRow| row.0.clone())
            .figure("could be given back", |row| row.1)
            .figure("room for others", |row| row.2)
    }

    /// Names, each with a sentence; an empty name continues the one before.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let Advice { held, imagined, needed, given_already, more, confidence, .. } = self.advice;
        let mut facts = vec![(
            "guests",
            format!("held {held} on average and needed {needed}; balanced, {imagined}"),
        )];
        if *given_already > Bytes::ZERO {
            facts.push(("", format!("{given_already} of their memory was given back already")));
        }
        if let Some(full) = more.full {
            let size = more.size;
            facts.push(("more fit", format!("{full} of the median size, {size}, if all is used")));
        }
        if let Some(alike) = more.alike {
            let need = more.need;
            facts.push(("", format!("{alike} of the median need, {need}")));
        }
        facts.extend(self.swap_ins());
        let (percent, weakest) = (confidence.percent(), confidence.weakest());
        facts.push(("confidence", format!("{percent} %: {weakest}")));
        facts.push((
            "",
            format!(
                "coverage {} %, freshness {} %, source {} %, visibility {} %",
                confidence.coverage, confidence.freshness, confidence.source, confidence.visibility
            ),
        ));
        if self.advice.plans_refused > 0 {
            let refused = self.advice.plans_refused;
            facts.push(("refused", format!("{refused} plans of the replay by the checker")));
        }
        if self.advice.guests_left_out > 0 {
            let left_out = self.advice.guests_left_out;
            facts.push(("left out", format!("{left_out} guests beyond the first are not listed")));
        }
        facts
    }

    /// Sentences about swap-ins, and about need that swapping hides.
    fn swap_ins(&self) -> Vec<(&'static str, String)> {
        let Advice { swap_in, imagined_swap_in, swap_in_avoided, .. } = self.advice;
        let mut facts = vec![match (*swap_in_avoided, *imagined_swap_in) {
            (Bytes::ZERO, Some(_)) => ("swap-ins", format!("{swap_in}, balanced or not")),
            (Bytes::ZERO, None) => ("swap-ins", format!("{swap_in}; balanced, none is avoided")),
            (avoided, _) => {
                ("swap-ins", format!("{swap_in}; balanced, {avoided} of that is avoided"))
            }
        }];
        if imagined_swap_in.is_none() {
            let unknown = "what balancing itself makes guests read back is not known";
            facts.push(("", unknown.to_owned()));
        }
        let hiding = self.advice.guests_hiding_need;
        if hiding > 0 {
            let guests = match hiding {
                1 => "1 guest swaps".to_owned(),
                more => format!("{more} guests swap"),
            };
            let bound = "they need at least this, and less may be given back";
            facts.push(("unseen", format!("{guests}, and no agent says how much: {bound}")));
        }
        facts
    }

    pub(crate) fn guest_columns() -> Report<'static, GuestAdvice> {
        let need = |guest: &GuestAdvice, of: fn(NeedAdvice) -> Bytes| {
            let least = if guest.need_is_least { "≥ " } else { "" };
            guest.need.map_or_else(|| UNKNOWN.to_owned(), |need| format!("{least}{}", of(need)))
        };
        Report::<GuestAdvice>::new()
            .text("guest", |it| it.id.to_string())
            .figure("has", |it| it.size.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string()))
            .figure("held", |it| it.held)
            .figure("need 50 %", move |it| need(it, |need| need.p50))
            .figure("95 %", move |it| need(it, |need| need.p95))
            .figure("most", move |it| need(it, |need| need.max))
            .figure("give back", |it| it.returnable)
            .figure("swap-in", |it| it.swap_in)
    }

    pub(crate) fn findings(&self) -> Vec<FindingRow<'a>> {
        let guests = self.advice.guests.iter();
        guests.flat_map(|guest| guest.findings.iter().map(move |it| (guest, *it))).collect()
    }

    pub(crate) fn assumptions() -> impl Iterator<Item = &'static str> {
        ASSUMPTIONS.into_iter().chain(ADVICE_ASSUMPTIONS)
    }
}

/// The text of an advice from `journal`, wrapped to `width` columns if given.
pub fn render(journal: &str, advice: &Advice, width: Option<u16>) -> String {
    let advice_text = AdviceText::new(advice);
    let width = Some(width.unwrap_or(WIDTH));
    let (policy, extent) = (advice.policy, advice_text.extent());
    let mut out = format!("{journal}\n{extent}\nreplayed under {policy}\n\n");
    out.push_str(&AdviceText::amount_columns().in_capitals().table(advice_text.amounts(), width));
    out.push('\n');
    let facts = Report::<(&str, String)>::new().text("", |it| it.0).text("", |it| it.1.clone());
    out.push_str(facts.table(advice_text.facts(), width).trim_start_matches('\n'));
    out.push('\n');
    out.push_str(&AdviceText::guest_columns().in_capitals().table(&advice.guests, width));
    let findings = advice_text.findings();
    if !findings.is_empty() {
        let rows = findings.iter().flat_map(|(guest, finding)| {
            let id = &guest.id;
            [(id.to_string(), finding.to_string()), (String::new(), line(finding.remedy(id)))]
        });
        let columns = Report::<(String, String)>::new()
            .text("WHAT TO DO", |row| row.0.clone())
            .text("", |row| row.1.clone());
        out.push('\n');
        out.push_str(&columns.table(rows.collect::<Vec<_>>(), width));
    }
    out.push_str("\nWhat is not recorded is imagined, by these assumptions:\n");
    out.extend(AdviceText::assumptions().map(|text| format!("  - {text}\n")));
    out
}

/// A command, with a prompt.
fn line(remedy: String) -> String {
    format!("  $ {remedy}")
}

/// A moment in the local time zone, to the minute.
pub(crate) fn moment(unix_ms: i64) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(at) => at.to_zoned(TimeZone::system()).strftime("%F %R").to_string(),
        Err(_) => UNKNOWN.to_owned(),
    }
}
