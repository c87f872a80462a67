//! The outcome in sentences.
//!
//! Idea: one sentence for each policy against the first one, saying what the figures say and no
//! more; a figure from a single run is called that.

use ballast_model::Bytes;

use super::compare::{Comparison, Figure, Gain, Ratio, Spread};
use super::figures::{self, times};
use super::record::Record;

/// The outcome, a sentence or two for each policy but the first.
pub(super) fn outcome(record: &Record, comparison: &Comparison) -> Vec<String> {
    let Some(first) = comparison.policies.first() else { return Vec::new() };
    let working = working_guests(record);
    if working.is_empty() {
        return vec!["No guest had any work to do: there is nothing to compare.".to_owned()];
    }
    let sentence = |gain: &Gain| sentence(record, comparison, first, &working, gain);
    let sentences = comparison.gains.iter().map(sentence);
    sentences.chain(against_best(record, comparison)).chain(needs(record)).collect()
}

/// The guests' needs, if they were searched for.
fn needs(record: &Record) -> Option<String> {
    let guests = record.scenario.guests.iter();
    let needs: Vec<String> = guests
        .filter_map(|guest| Some(format!("{} {}", guest.guest, Bytes::new(guest.needs_bytes?))))
        .collect();
    (!needs.is_empty()).then(|| {
        format!("The smallest memory in which a guest reads nothing back: {}.", needs.join(", "))
    })
}

/// How close each policy comes to the work that the guests do with all their memory.
fn against_best(record: &Record, comparison: &Comparison) -> Option<String> {
    let best = record.scenario.best.as_deref()?;
    let others = comparison.policies.iter().filter(|policy| *policy != best);
    let shares: Vec<String> = others
        .filter_map(|policy| {
            let share = comparison.row(None, policy)?.cell(Figure::OfBest)?.value?;
            Some(format!("{policy} {}", figures::value(Figure::OfBest, Some(share))))
        })
        .collect();
    (!shares.is_empty()).then(|| {
        format!(
            "Of the work done with all the memory that guests can have ({best}), the mean over guests: {}.",
            shares.join(", ")
        )
    })
}

fn sentence(
    record: &Record,
    comparison: &Comparison,
    first: &str,
    working: &str,
    gain: &Gain,
) -> String {
    let duration = record.scenario.duration_s;
    let policy = &gain.policy;
    let Ratio::Times(work) = gain.work else {
        return format!("Under {first} {working} did no work at all in {duration:.0} s.");
    };
    let mut text = match work.median {
        n if n >= 1.05 => format!(
            "With {policy} {working} did {} the work of {first} in the same {duration:.0} s",
            times(n)
        ),
        n if n > 0.95 => format!(
            "With {policy} {working} did about as much work as with {first} in the same \
             {duration:.0} s ({})",
            times(n)
        ),
        n => format!(
            "With {policy} {working} did only {} the work of {first} in the same {duration:.0} s",
            times(n)
        ),
    };
    if let Some(same) = gain.same_work_s.filter(|same| same.median < 0.95 * duration) {
        text.push_str(&format!("; the work of {first} was done after {:.0} s", same.median));
    }
    text.push_str(&certainty(comparison, work));
    text
}

/// How far the figures can be trusted.
fn certainty(comparison: &Comparison, work: Spread) -> String {
    match comparison.repetitions {
        0 | 1 => {
            " (from one run of each; ballast lab run --repetitions shows the spread).".to_owned()
        }
        n => format!(
            " (medians of {n} runs of each; the ratio went from {} to {}).",
            times(work.min),
            times(work.max)
        ),
    }
}

fn working_guests(record: &Record) -> String {
    let working = record.scenario.guests.iter().filter(|guest| !guest.workloads.is_empty());
    let names: Vec<&str> = working.map(|guest| guest.guest.as_str()).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("guest {one}"),
        [most @ .., last] => format!("guests {} and {last} together", most.join(", ")),
    }
}

/// The setting in a few words: guests, budget, length.
pub(super) fn setting(record: &Record) -> String {
    let scenario = &record.scenario;
    let guests = match scenario.guests.len() {
        1 => "one guest".to_owned(),
        n => format!("{n} guests"),
    };
    let times = match scenario.repetitions {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    };
    format!(
        "{guests}, {} for all of them, {:.0} s under each of {}, {times}",
        figures::size(scenario.budget_bytes as f64),
        scenario.duration_s,
        scenario.policies.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn sentences(work: &[(&str, &[u64])]) -> String {
        let record = fixture::record(work);
        outcome(&record, &Comparison::new(&record)).join("\n")
    }

    #[test]
    fn sentences_say_what_was_measured() {
        let one = sentences(&[("static", &[100]), ("global", &[250])]);
        assert_eq!(
            one,
            "With global guest a did 2.50× the work of static in the same 10 s; the work of static \
             was done after 4 s (from one run of each; ballast lab run --repetitions shows the spread)."
        );
        let same = sentences(&[("static", &[100]), ("global", &[101])]);
        assert!(same.contains("about as much work as with static"), "{same}");
        let less = sentences(&[("static", &[100, 100, 100]), ("global", &[40, 50, 60])]);
        assert_eq!(
            less,
            "With global guest a did only 0.50× the work of static in the same 10 s (medians of 3 \
             runs of each; the ratio went from 0.40× to 0.60×)."
        );
        let none = sentences(&[("static", &[0]), ("global", &[40])]);
        assert_eq!(none, "Under static guest a did no work at all in 10 s.");
    }

    #[test]
    fn work_is_a_share_of_the_best_in_its_repetition() {
        let text = sentences(&[("static", &[10, 40]), ("meb", &[50, 80]), ("best", &[100, 100])]);
        let share = "static 25 % (10 %…40 %), meb 65 % (50 %…80 %).";
        assert!(text.ends_with(share), "{text}");
    }

    #[test]
    fn without_work_there_is_nothing_to_compare() {
        let mut record = fixture::record(&[("static", &[1]), ("global", &[1])]);
        record.scenario.guests.iter_mut().for_each(|guest| guest.workloads.clear());
        let text = outcome(&record, &Comparison::new(&record)).join("");
        assert!(text.contains("nothing to compare"), "{text}");
    }
}
