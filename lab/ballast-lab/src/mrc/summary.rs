//! The figures of traces as text: one trace as a list, several as a table.

use ballast_trace::Format;

use super::outcome::{Outcome, WorkingSet};
use super::settings::Intervals;
use super::settings::Reading;
use super::words;
use ballast_chart::{percent, percent_exactly};
use ballast_report::figures::{self, NONE, or_none};
use ballast_report::{Report, format, harmless_line};

/// The figures of `outcomes`, wrapped to `width` columns if given.
pub(crate) fn render(outcomes: &[Outcome], width: Option<u16>) -> String {
    match outcomes {
        [outcome] => list(outcome),
        _ => table(outcomes, width),
    }
}

/// One trace, a line for every figure.
fn list(outcome: &Outcome) -> String {
    let units = outcome.units;
    let mut lines = vec![
        ("trace", format!("{} ({})", harmless_line(&outcome.trace), outcome.format)),
        ("references", outcome.accesses.to_string()),
        ("distinct", distinct(outcome)),
        ("cold", cold(outcome)),
    ];
    lines.extend(outcome.working_sets.iter().map(|set| {
        let size = words::size_and_pages(set.pages, units.page_bytes);
        (
            "working set",
            format!("{size}: at most {} of warm references miss", percent_exactly(set.epsilon)),
        )
    }));
    let engine = outcome.used.engine.to_string();
    lines.push(("engine", outcome.used.why.clone().unwrap_or(engine)));
    lines.extend(notes(outcome));
    let seconds = outcome.elapsed.as_secs_f64();
    lines.push(("speed", format!("{} ({seconds:.2} s)", words::speed(outcome))));
    lines.push(("memory", format::size(outcome.used.memory_bytes)));
    lines.iter().map(|(name, value)| format!("{name:<11}  {value}\n")).collect()
}

fn distinct(outcome: &Outcome) -> String {
    let units = outcome.units;
    let about = if outcome.used.engine.is_exact() { "" } else { "about " };
    let pages = units.granularity.pages();
    let Some(tags) = outcome.distinct else { return NONE.to_owned() };
    if pages == 1 {
        let bytes = units.page_bytes.map(|_| format!(" ({})", words::size(tags, units.page_bytes)));
        return format!("{about}{}{}", words::exactly(tags), bytes.unwrap_or_default());
    }
    let size = words::size(tags.saturating_mul(pages), units.page_bytes);
    let touched = outcome.pages_touched.map(|touched| format!(", {touched} pages touched"));
    let (tags, touched) = (words::tags(tags), touched.unwrap_or_default());
    format!("{about}{tags} of {pages} pages ({size}{touched})")
}

fn cold(outcome: &Outcome) -> String {
    let Some(cold) = outcome.cold() else { return NONE.to_owned() };
    let of_what = if outcome.intervals.is_some() { "aged references" } else { "references" };
    match outcome.counted() {
        0.0 => "0".to_owned(),
        counted => format!("{cold:.0} ({} of {of_what})", percent(cold / counted)),
    }
}

/// Why the engine samples, if the program chose one that does.
pub(crate) fn sampled(outcome: &Outcome) -> Option<(&'static str, String)> {
    let why = outcome.used.why.clone().filter(|_| !outcome.used.engine.is_exact())?;
    Some(("engine", why))
}

/// Remarks on the figures.
pub(crate) fn notes(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    if let Some(pages) = outcome.active_pages {
        let size = words::size_and_pages(pages, outcome.units.page_bytes);
        notes.push(("active", format!("{size} in a period, as sampling estimates")));
    }
    if outcome.format == Format::Lackey && !outcome.is_divided {
        let text = "are taken for pages, one for each: --page-size 4KiB makes pages of them";
        notes.push(("addresses", text.to_owned()));
    }
    if let Some(verified) = outcome.verified {
        let oracle = verified.oracle;
        let count = verified.distances;
        notes.push((
            "verified",
            match verified.error {
                None => {
                    let but = match outcome.units.reading {
                        Reading::Paper => "",
                        Reading::Touched => "; pages of tags are weighed by the same code in both",
                    };
                    format!("{oracle} counts the same at all of {count} distances{but}")
                }
                Some(error) => {
                    format!("mean error of the warm miss ratio {error:.6}, against {oracle}")
                }
            },
        ));
    }
    if outcome.skipped > 0 {
        let text = match outcome.skipped {
            1 => "1 bad record was left out".to_owned(),
            count => format!("{count} bad records were left out"),
        };
        notes.push(("skipped", text));
    }
    if let Some(Intervals { references, factor }) = outcome.intervals {
        let text = format!(
            "cold, curve and working sets are of counts that keep {} of their weight with each \
             interval of {references} references",
            percent_exactly(factor)
        );
        notes.push(("aged", text));
    }
    if outcome.units.granularity.pages() > 1 {
        let reading = match outcome.units.reading {
            Reading::Paper => "all of their pages",
            Reading::Touched => "the pages touched of them, on average",
        };
        notes.push(("sizes", format!("tags are taken to occupy {reading}")));
    }
    notes
}

/// The speed of counting a trace, in one line.
pub(crate) fn speed(outcome: &Outcome) -> String {
    let seconds = outcome.elapsed.as_secs_f64();
    let (trace, count) = (harmless_line(&outcome.trace), outcome.accesses);
    format!("{trace}: {count} references in {seconds:.2} s, {}", words::speed(outcome))
}

/// Several traces, a row for each.
fn table(outcomes: &[Outcome], width: Option<u16>) -> String {
    let sets = outcomes.first().map_or(&[][..], |first| &first.working_sets);
    let names = words::names(outcomes);
    let mut columns = Report::<(&Outcome, &String)>::new()
        .text("TRACE", |it| it.1.clone())
        .figure("REFERENCES", |it| it.0.accesses)
        .figure("DISTINCT", |it| or_none(it.0.distinct))
        .figure("COLD", |it| or_none(it.0.cold().map(|cold| format!("{cold:.0}"))));
    for (place, set) in sets.iter().enumerate() {
        columns = columns.figure(&format!("WSS {}", percent_exactly(set.epsilon)), move |it| {
            working_set(it.0, it.0.working_sets.get(place))
        });
    }
    let columns = columns
        .text("ENGINE", |it| it.0.used.engine)
        .figure("MEMORY", |it| format::size(it.0.used.memory_bytes))
        .figure("REFERENCES/S", |it| or_none(it.0.speed().map(figures::count)));
    let mut out = columns.table(outcomes.iter().zip(&names), width);
    for (outcome, name) in outcomes.iter().zip(&names) {
        for (what, text) in sampled(outcome).into_iter().chain(notes(outcome)) {
            out.push_str(&format!("\n{name}: {what}: {text}"));
        }
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn working_set(outcome: &Outcome, set: Option<&WorkingSet>) -> String {
    let page_bytes = outcome.units.page_bytes;
    or_none(set.map(|set| match page_bytes {
        Some(_) => format!("{} ({})", words::size(set.pages, page_bytes), set.pages),
        None => set.pages.to_string(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::fixture::{self, PAGES};
    use crate::mrc::outcome::Verified;
    use crate::mrc::settings::Units;
    use ballast_mrc::{EngineName, Granularity};
    use expect_test::expect;

    #[test]
    fn one_trace_is_a_list() {
        let mut outcome = fixture::falling("traces/web.pg.zst", 5000, PAGES);
        outcome.used.why = Some("about 5000 tags fit".to_owned());
        outcome.verified = Some(Verified { oracle: EngineName::Avl, distances: 5000, error: None });
        outcome.skipped = 3;
        expect![[r#"
            trace        traces/web.pg.zst (u64)
            references   1821419
            distinct     5000 pages (19.5MiB)
            cold         5000 (0.27 % of references)
            working set  12.3MiB (3161 pages): at most 5 % of warm references miss
            working set  17.8MiB (4562 pages): at most 1 % of warm references miss
            working set  19.4MiB (4955 pages): at most 0.1 % of warm references miss
            engine       about 5000 tags fit
            verified     avl counts the same at all of 5000 distances
            skipped      3 bad records were left out
            speed        91.1 M references/s (0.02 s)
            memory       6MiB
        "#]]
        .assert_eq(&render(&[outcome], None));
    }

    #[test]
    fn tags_of_several_pages_are_named_as_such() {
        let granularity = Granularity::new(8).unwrap();
        let units = Units { page_bytes: None, granularity, reading: Reading::Touched };
        let mut outcome = fixture::scan("loop", 100, 3, units);
        outcome.pages_touched = Some(700);
        expect![[r#"
            trace        loop (u64)
            references   300
            distinct     100 tags of 8 pages (800 pages, 700 pages touched)
            cold         100 (33 % of references)
            working set  800 pages: at most 5 % of warm references miss
            working set  800 pages: at most 1 % of warm references miss
            working set  800 pages: at most 0.1 % of warm references miss
            engine       exact
            sizes        tags are taken to occupy the pages touched of them, on average
            speed        0.015 M references/s (0.02 s)
            memory       6MiB
        "#]]
        .assert_eq(&render(&[outcome], None));
    }

    #[test]
    fn several_traces_stand_side_by_side() {
        let mut outcomes =
            [fixture::scan("x/loop.u64", 300, 9, PAGES), fixture::falling("web.pg", 5000, PAGES)];
        outcomes[1].used.why = Some("shards-fixed-size: 5000 tags are many".to_owned());
        outcomes[1].used.engine = EngineName::ShardsFixedSize;
        expect![[r#"
            TRACE     REFERENCES  DISTINCT  COLD         WSS 5 %         WSS 1 %       WSS 0.1 %  ENGINE             MEMORY  REFERENCES/S
            loop.u64        2700       300   300    1.2MiB (300)    1.2MiB (300)    1.2MiB (300)  exact                6MiB         135 k
            web.pg       1821419      5000  5000  12.3MiB (3161)  17.8MiB (4562)  19.4MiB (4955)  shards-fixed-size    6MiB        91.1 M

            web.pg: engine: shards-fixed-size: 5000 tags are many
        "#]].assert_eq(&render(&outcomes, None));
    }

    #[test]
    fn no_references_are_no_error() {
        expect![[r#"
            trace        none.u64 (u64)
            references   0
            distinct     0 pages (0B)
            cold         0
            working set  0B (0 pages): at most 5 % of warm references miss
            working set  0B (0 pages): at most 1 % of warm references miss
            working set  0B (0 pages): at most 0.1 % of warm references miss
            engine       exact
            speed        – (0.02 s)
            memory       6MiB
        "#]]
        .assert_eq(&render(&[fixture::outcome("none.u64", &[], PAGES)], None));
    }
}
