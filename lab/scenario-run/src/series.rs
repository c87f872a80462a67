//! Series over time, made from a record.
//!
//! Idea: the plotted points are the same as those that the page shows under the pointer.
//! Limits: a rate is the one between two reports of a guest, on the guest's own clock, so a late
//! report makes one longer interval and no false peak.

use super::record::{GuestRun, InsideSample, OutsideSample};

const MIB: f64 = 1_048_576.0;

/// What a series shows; it decides the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Memory the guest uses.
    Used,
    /// Memory it holds.
    Allocation,
    /// Memory the guest should hold.
    Target,
    /// Memory its workloads want.
    Wanted,
    /// Memory it touched in a second.
    Touched,
    /// Memory in its swap.
    Swap,
    /// Work it does.
    Throughput,
    /// Faults that waited for a disk.
    Faults,
}

/// A series: (seconds since the schedule began, value).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) kind: Kind,
    pub(super) points: Vec<(f64, f64)>,
}

impl Kind {
    /// Its CSS class, and its name for people.
    pub(super) const fn words(self) -> [&'static str; 2] {
        match self {
            Kind::Used => ["used", "used"],
            Kind::Allocation => ["allocation", "allocation"],
            Kind::Target => ["target", "target"],
            Kind::Wanted => ["wanted", "workload's size"],
            Kind::Touched => ["touched", "touched in 1 s"],
            Kind::Swap => ["swap", "swap used"],
            Kind::Throughput => ["throughput", "page touches"],
            Kind::Faults => ["faults", "major faults"],
        }
    }
}

/// A plot; decides which series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Panel {
    /// Target, allocation, used, wanted and touched, in MiB.
    Memory,
    /// Memory in swap, in MiB.
    Swap,
    /// Page touches a second.
    Throughput,
    /// Major faults a second.
    Faults,
}

impl Panel {
    /// Every panel, from top to bottom.
    pub(super) const ALL: [Panel; 4] =
        [Panel::Memory, Panel::Swap, Panel::Throughput, Panel::Faults];

    /// The heading, with the unit.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Panel::Memory => "Memory, MiB",
            Panel::Swap => "Swap used, MiB",
            Panel::Throughput => "Page touches per second",
            Panel::Faults => "Major faults per second",
        }
    }

    /// The unit, as it stands after a figure.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Panel::Memory | Panel::Swap => " MiB",
            Panel::Throughput | Panel::Faults => "/s",
        }
    }

    /// The series for a guest; those without points are left out.
    pub(super) fn series(self, guest: &GuestRun) -> Vec<Series> {
        let all = match self {
            Panel::Memory => vec![
                outside(guest, Kind::Used, |it| it.used_bytes),
                inside(guest, Kind::Wanted, |it| Some(it.size_wanted_bytes)),
                touched(guest),
                outside(guest, Kind::Target, |it| it.target_bytes),
                outside(guest, Kind::Allocation, |it| it.allocation_bytes),
            ],
            Panel::Swap => vec![inside(guest, Kind::Swap, |it| it.swap_used_bytes)],
            Panel::Throughput => vec![rate(guest, Kind::Throughput, |it| Some(it.touches))],
            Panel::Faults => vec![rate(guest, Kind::Faults, |it| it.major_faults)],
        };
        let idle = guest.workloads.is_empty();
        let of_workloads = |kind| matches!(kind, Kind::Wanted | Kind::Throughput);
        all.into_iter()
            .filter(|series| !series.points.is_empty())
            .filter(|series| !idle || !of_workloads(series.kind))
            .collect()
    }
}

/// The series of one of the daemon's figures, in MiB.
fn outside(guest: &GuestRun, kind: Kind, figure: impl Fn(&OutsideSample) -> Option<u64>) -> Series {
    let point = |(at, it): (f64, &OutsideSample)| Some((at, figure(it)? as f64 / MIB));
    let known =
        guest.samples.iter().filter_map(|sample| Some((sample.at_s, sample.daemon.as_ref()?)));
    Series { kind, points: known.filter_map(point).collect() }
}

/// The series of the memory that the guest touched, in MiB.
fn touched(guest: &GuestRun) -> Series {
    let known =
        guest.samples.iter().filter_map(|it| Some((it.at_s, it.touched_bytes? as f64 / MIB)));
    Series { kind: Kind::Touched, points: known.collect() }
}

/// The guest's own reports since the schedule began, each with its time in seconds.
fn reports(guest: &GuestRun) -> impl Iterator<Item = (f64, &InsideSample)> {
    let reports = guest.samples.iter().filter_map(|sample| sample.inside.as_ref());
    reports.map(|inside| (inside.at_ms as f64 / 1000.0, inside))
}

/// The series of one of the guest's figures, in MiB.
fn inside(guest: &GuestRun, kind: Kind, figure: impl Fn(&InsideSample) -> Option<u64>) -> Series {
    let point = |(at, it): (f64, &InsideSample)| Some((at.max(0.0), figure(it)? as f64 / MIB));
    Series { kind, points: reports(guest).filter_map(point).collect() }
}

/// Pages that the guest touches a second: (end of the interval in seconds, rate).
pub(super) fn touch_rates(guest: &GuestRun) -> Vec<(f64, f64)> {
    rate(guest, Kind::Throughput, |it| Some(it.touches)).points
}

/// The rate of one of the guest's counters, per second. Each value covers the interval before its
/// point.
fn rate(guest: &GuestRun, kind: Kind, counter: impl Fn(&InsideSample) -> Option<u64>) -> Series {
    let known: Vec<(f64, u64)> =
        reports(guest).filter_map(|(at, it)| Some((at, counter(it)?))).collect();
    let points = known.windows(2).filter_map(|pair| {
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        let span = to - from;
        (span > 0.0).then(|| (to, after.saturating_sub(before) as f64 / span))
    });
    Series { kind, points: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_late_report_makes_no_peak() {
        let record = fixture::record(&[("static", &[1000])]);
        let [series] = &Panel::Throughput.series(&record.runs[0].guests[0])[..] else {
            panic!("one series")
        };
        // Ten intervals of a second; a late report has made one of two.
        assert_eq!(series.points.len(), 9);
        assert!(series.points.iter().all(|(_, rate)| *rate == 100.0), "{series:?}");
    }

    #[test]
    fn an_idle_guest_has_no_work_to_draw() {
        let record = fixture::record(&[("static", &[1000])]);
        let kinds = |panel: Panel| {
            let series = panel.series(&record.runs[0].guests[1]);
            series.into_iter().map(|series| series.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(Panel::Throughput), []);
        assert_eq!(kinds(Panel::Memory), [Kind::Used, Kind::Target, Kind::Allocation]);
    }
}
