//! What a fleet's scenario is expected to do, and what the runs did.
//!
//! Idea: each expectation is a statement about all runs and is checked against the record alone, so
//! that an old record can be judged again. Work is compared within each repetition, in the last
//! part of the run, with moves and without.
//! Limits: pure. What happens between two samples is not seen.

use serde::Serialize;

use super::compare::Spread;
use super::fleet_record::{FleetInfo, FleetRun};
use super::record::{GuestRun, InsideSample, Record, RunRecord};

/// An expectation and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Expectation {
    /// What is expected.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// Whether the expectation is met.
    pub is_met: bool,
}

/// The expectations of the runs of `record`, with their results; empty for a scenario with one
/// host.
pub fn expectations(record: &Record) -> Vec<Expectation> {
    let Some(info) = &record.scenario.fleet else { return Vec::new() };
    let mut all = vec![
        moves(record, info),
        work(record, info),
        floors(record, info),
        budgets(record, info),
        goes_on(record),
        plans(record),
    ];
    all.extend(info.kills_leader.then(|| leader(record)));
    all
}

/// The work of all guests in the last part of a run, in touches a second; `None`: a guest did not
/// report.
pub fn work_per_s(run: &RunRecord, info: &FleetInfo, duration_s: f64) -> Option<f64> {
    let from_s = duration_s - info.window_s;
    let working = run.guests.iter().filter(|guest| !guest.workloads.is_empty());
    working.map(|guest| guest_work_per_s(guest, from_s)).sum()
}

fn guest_work_per_s(guest: &GuestRun, from_s: f64) -> Option<f64> {
    let within = guest.samples.iter().filter(|sample| sample.at_s >= from_s);
    let mut insides = within.filter_map(|sample| sample.inside.as_ref());
    let first = insides.next()?;
    let last = insides.next_back()?;
    let span_s = (last.at_ms - first.at_ms) as f64 / 1000.0;
    let done = last.touches.saturating_sub(first.touches) as f64;
    (span_s > 0.0).then(|| done / span_s)
}

/// Work with moves against work without, over repetitions.
pub fn work_times(record: &Record) -> Option<Spread> {
    let info = record.scenario.fleet.as_ref()?;
    let work = |run: &RunRecord| work_per_s(run, info, record.scenario.duration_s);
    let pairs = moving(record).filter_map(|(run, _)| {
        let mut others = record.runs.iter();
        let alone = others.find(|it| !is_moving(record, it) && it.repetition == run.repetition)?;
        Some(work(run)? / work(alone)?)
    });
    Spread::of(pairs.filter(|times| times.is_finite()))
}

/// The runs in which the fleet moves guests.
fn moving(record: &Record) -> impl Iterator<Item = (&RunRecord, &FleetRun)> {
    let runs = record.runs.iter().filter(|run| is_moving(record, run));
    runs.filter_map(|run| Some((run, run.fleet.as_ref()?)))
}

/// Whether the fleet moves guests in this run: the first variant of a scenario is without moves.
fn is_moving(record: &Record, run: &RunRecord) -> bool {
    record.scenario.policies.first() != Some(&run.policy)
}

fn expectation(expected: String, faults: Vec<String>, otherwise: String) -> Expectation {
    let is_met = faults.is_empty();
    Expectation { expected, found: if is_met { otherwise } else { faults.join("; ") }, is_met }
}

fn moves(record: &Record, info: &FleetInfo) -> Expectation {
    let last_s = record.scenario.duration_s - info.window_s;
    let mut faults = Vec::new();
    let mut sentences = Vec::new();
    for run in &record.runs {
        let name = run.name(record);
        let Some(fleet) = &run.fleet else { continue };
        let moved: Vec<_> = fleet.migrations.iter().filter(|it| it.is_moved()).collect();
        match (is_moving(record, run), moved.as_slice()) {
            (false, []) => {}
            (true, [one]) => {
                let there_s = one.at("moved").unwrap_or(f64::INFINITY);
                let text = format!("{name}: {} from {} to {}", one.guest, one.from, one.to);
                if one.from != info.overloaded || there_s > last_s {
                    faults.push(format!("{text} after {there_s:.0} s"));
                }
                sentences.push(text);
            }
            (_, moved) => {
                let ended = fleet.migrations.iter().map(|it| match &it.ended {
                    Some(ended) => format!("{} {ended}", it.guest),
                    None => format!("{} on its way", it.guest),
                });
                let ended: Vec<String> = ended.collect();
                faults.push(format!("{name}: {} moved ({})", moved.len(), ended.join(", ")));
            }
        }
    }
    let overloaded = &info.overloaded;
    let expected = format!(
        "with moves one guest leaves host {overloaded} within {last_s:.0} s, and without none moves"
    );
    expectation(expected, faults, sentences.join("; "))
}

fn work(record: &Record, info: &FleetInfo) -> Expectation {
    let found = work_times(record);
    let expected = format!(
        "all guests together do at least {:.2} × the work in the last {:.0} s",
        info.work_times, info.window_s
    );
    let is_met = found.is_some_and(|found| found.median >= info.work_times);
    let found = found.map_or("not measured".to_owned(), |it| {
        format!("{:.2} × ({:.2} to {:.2} in {} pairs of runs)", it.median, it.min, it.max, it.count)
    });
    Expectation { expected, found, is_met }
}

fn floors(record: &Record, info: &FleetInfo) -> Expectation {
    let mut faults = Vec::new();
    let mut samples = 0_u64;
    for run in &record.runs {
        for guest in &run.guests {
            let floor = info.floors.iter().find(|floor| floor.guest == guest.guest);
            let Some(floor) = floor else { continue };
            let held = guest.samples.iter().filter_map(|sample| {
                Some((sample.at_s, sample.daemon.as_ref()?.allocation_bytes?))
            });
            let held: Vec<(f64, u64)> = held.collect();
            samples += held.len() as u64;
            let least = held.iter().min_by_key(|(_, bytes)| *bytes);
            match least {
                None => faults.push(format!("{}: {} was not seen", run.name(record), guest.guest)),
                Some((at_s, bytes)) if *bytes < floor.floor_bytes => faults.push(format!(
                    "{}: {} had {} at {at_s:.0} s, its floor is {}",
                    run.name(record),
                    guest.guest,
                    size(*bytes),
                    size(floor.floor_bytes)
                )),
                Some(_) => {}
            }
        }
    }
    let expected = "every guest has its floor all the time, on whatever host".to_owned();
    expectation(expected, faults, format!("so in {samples} looks"))
}

/// Only what guests hold counts here. Memory that their processes occupy beyond that is reported
/// separately ([`occupied`]).
fn budgets(record: &Record, info: &FleetInfo) -> Expectation {
    let mut faults = Vec::new();
    let mut most = 0.0_f64;
    for (run, host) in record.runs.iter().flat_map(|run| {
        run.fleet.iter().flat_map(move |fleet| fleet.hosts.iter().map(move |host| (run, host)))
    }) {
        let budget = info.hosts.iter().find(|it| it.host == host.host);
        let budget = budget.map_or(0, |it| it.budget_bytes);
        let over = host.samples.iter().find(|it| it.held_bytes > budget);
        if let Some(over) = over {
            faults.push(format!(
                "{}: host {} at {:.0} s: {} of {}",
                run.name(record),
                host.host,
                over.at_s,
                size(over.held_bytes),
                size(budget)
            ));
        }
        if host.samples.is_empty() {
            faults.push(format!("{}: host {} was not seen", run.name(record), host.host));
        }
        for sample in &host.samples {
            most = most.max(sample.held_bytes as f64 / budget.max(1) as f64);
        }
    }
    let expected = "no host's guests hold more than its budget".to_owned();
    expectation(expected, faults, format!("at most {:.1} % of it", 100.0 * most))
}

/// The most by which the memory that a host's guests held or were promised, or that their processes
/// occupied, exceeded its budget, in bytes: the run, the host, and how much. `None`: it never did.
pub fn occupied(record: &Record) -> Option<(String, String, u64)> {
    let info = record.scenario.fleet.as_ref()?;
    let mut most: Option<(String, String, u64)> = None;
    for run in &record.runs {
        for host in run.fleet.iter().flat_map(|fleet| &fleet.hosts) {
            let budget = info.hosts.iter().find(|it| it.host == host.host)?.budget_bytes;
            // While guests make room for one that is to come, that memory is promised twice.
            let settled = host.samples.iter().filter(|it| it.reserved_bytes == 0);
            let over = settled.map(|it| it.committed_bytes.saturating_sub(budget)).max();
            let over = over.filter(|over| *over > most.as_ref().map_or(0, |it| it.2));
            if let Some(over) = over {
                most = Some((run.name(record), host.host.clone(), over));
            }
        }
    }
    most
}

fn goes_on(record: &Record) -> Expectation {
    let mut faults = Vec::new();
    let mut sentences = Vec::new();
    for run in &record.runs {
        for guest in &run.guests {
            let insides: Vec<(f64, &InsideSample)> = guest
                .samples
                .iter()
                .filter_map(|sample| Some((sample.at_s, sample.inside.as_ref()?)))
                .collect();
            let falls = insides.windows(2).find(|pair| {
                let [before, after] = [pair[0].1, pair[1].1];
                after.at_ms <= before.at_ms || after.touches < before.touches
            });
            if let Some(pair) = falls {
                let (name, at_s) = (run.name(record), pair[1].0);
                faults.push(format!("{name}: {} began anew at {at_s:.0} s", guest.guest));
            }
            let arrived = run.fleet.iter().flat_map(|fleet| &fleet.places);
            let arrived = arrived.filter(|it| it.guest == guest.guest && it.from_s > 0.0);
            for place in arrived {
                let after = || insides.iter().filter(|(at_s, _)| *at_s >= place.from_s);
                let done = after().next_back().zip(after().next());
                let done =
                    done.map_or(0, |(last, first)| last.1.touches.saturating_sub(first.1.touches));
                let text = format!(
                    "{}: {} touched {done} pages at {}",
                    run.name(record),
                    guest.guest,
                    place.host
                );
                if done == 0 { faults.push(text) } else { sentences.push(text) }
            }
        }
    }
    let expected = "work goes on where it was: no clock or counter of a guest falls".to_owned();
    expectation(expected, faults, sentences.join("; "))
}

fn plans(record: &Record) -> Expectation {
    let hosts = record.runs.iter().filter_map(|run| run.fleet.as_ref()).flat_map(|it| &it.hosts);
    let refused: u64 = hosts.map(|host| host.plans_refused).sum();
    Expectation {
        expected: "no daemon's checker refuses a plan".to_owned(),
        found: format!("{refused} refused"),
        is_met: refused == 0,
    }
}

fn leader(record: &Record) -> Expectation {
    let mut faults = Vec::new();
    let mut sentences = Vec::new();
    for (run, fleet) in moving(record) {
        let name = run.name(record);
        let Some(kill) = &fleet.kill else {
            faults.push(format!("{name}: no leader was killed"));
            continue;
        };
        let order = fleet.migrations.iter().filter(|it| it.guest == kill.guest);
        let mut order = order.filter(|it| it.phases.first().is_some_and(|it| it.at_s <= kill.at_s));
        let order = order.next_back();
        let ended = order.and_then(|it| it.ended.as_deref()).unwrap_or("not ended");
        let is_removed = order.is_some_and(|it| it.removed_s.is_some());
        let text = format!(
            "{name}: {} led and was killed in phase {}, {}; the order: {ended}{}",
            kill.host,
            kill.phase,
            fleet.successor().map_or("nobody led then".to_owned(), |(host, from_s)| {
                format!("{host} led after {:.1} s", from_s - kill.at_s)
            }),
            if is_removed { " and put away" } else { ", and its record is left" }
        );
        let is_other = fleet.successor().is_some_and(|(host, _)| host != kill.host);
        let is_well = is_other && is_removed && fleet.migrations.iter().any(|it| it.is_moved());
        if is_well { sentences.push(text) } else { faults.push(text) }
    }
    if sentences.is_empty() && faults.is_empty() {
        faults.push("no run with moves".to_owned());
    }
    let expected =
        "the leader is killed while an order is under way, and another host finishes".to_owned();
    expectation(expected, faults, sentences.join("; "))
}

fn size(bytes: u64) -> String {
    super::figures::size(bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::fixture::fleet as record;

    fn missed(record: &Record) -> Vec<String> {
        let missed = expectations(record).into_iter().filter(|it| !it.is_met);
        missed.map(|it| it.found).collect()
    }

    #[test]
    fn all_is_met_when_all_goes_well() {
        let record = record();
        assert_eq!(missed(&record), Vec::<String>::new());
        assert_eq!(expectations(&record).len(), 7);
        assert!((work_times(&record).unwrap().median - 4.0).abs() < 0.1);
        assert!(expectations(&fixture::record(&[("static", &[1])])).is_empty());
    }

    #[test]
    fn whatever_goes_wrong_is_an_expectation_not_met() {
        type Spoil = fn(&mut Record);
        let cases: [(Spoil, &str); 10] = [
            (|it| run(it).migrations.clear(), "move: 0 moved ()"),
            (|it| run(it).migrations[0].from = "y".to_owned(), "move: a from y to y after 3 s"),
            (|it| run(it).migrations[0].phases[3].at_s = 6.0, "move: a from x to y after 6 s"),
            (|it| it.scenario.fleet.as_mut().unwrap().work_times = 9.0, "4.00 × (4.00 to 4.00"),
            (|it| it.scenario.fleet.as_mut().unwrap().floors[0].floor_bytes = 1 << 40, "a had "),
            (|it| run(it).hosts[0].samples[0].held_bytes = 101, "host x at 1 s: 101"),
            (|it| run(it).hosts[0].plans_refused = 1, "1 refused"),
            (|it| run(it).kill = None, "no leader was killed"),
            (|it| run(it).leaders.truncate(2), "nobody led then"),
            (|it| run(it).migrations[0].removed_s = None, "its record is left"),
        ];
        for (spoil, expected) in cases {
            let mut record = record();
            spoil(&mut record);
            let missed = missed(&record);
            assert!(missed.iter().any(|found| found.contains(expected)), "{expected}: {missed:?}");
        }
        let mut record = record();
        let samples = &mut record.runs[1].guests[0].samples;
        let last = samples.iter_mut().rev().find_map(|sample| sample.inside.as_mut()).unwrap();
        last.touches = 0;
        assert!(missed(&record).iter().any(|found| found.contains("a began anew")));
    }

    fn run(record: &mut Record) -> &mut FleetRun {
        record.runs[1].fleet.as_mut().unwrap()
    }
}
