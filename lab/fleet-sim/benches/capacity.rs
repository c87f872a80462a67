//! How many guests a fleet holds at one service objective, under each way to balance it.
//!
//! The day is `LoadDay`, with 20 hosts of 64 GiB. The figures are simulated: the crate's header
//! says what that leaves out. Environment variables: `BALLAST_FLEET_SEEDS` is the number of days, 3
//! by default. `BALLAST_FLEET_WAYS` is a part of the names of the ways to play in addition to fixed
//! sizes, all by default. `BALLAST_FLEET_SWING` is how far working sets fall from their peaks, in
//! per cent of the usual, 100 by default.

use ballast_fleet_sim::rivals::{
    FirstFit, LoadKind, LowNodeUtilization, ProxmoxRebalancer, WorkloadBalance,
};
use ballast_fleet_sim::{
    Balancer, Division, Figures, FleetPlanner, LoadDay, LoadSpec, Placement, SLOW_PPM_MAX,
    SearchResult, WORST_PPM_MAX, most_guests, play,
};
use ballast_model::PolicyName;

/// The step of the search, in guests.
const STEP: usize = 5;
/// More guests than any way to balance can place.
const MOST: usize = 1000;

/// Makes a balancer for a day; `None`: guests never move.
type MakeBalancer = fn(&LoadDay) -> Option<Box<dyn Balancer>>;

/// A way to operate the fleet.
struct Approach {
    name: &'static str,
    placement: Placement,
    division: Division,
    make: MakeBalancer,
}

const BY_STATISTICS: Division = Division::ByPolicy { name: PolicyName::Global, is_tracked: false };
const BY_STATISTICS_TRACKED: Division =
    Division::ByPolicy { name: PolicyName::Global, is_tracked: true };
const BY_CURVES: Division = Division::ByPolicy { name: PolicyName::Meb, is_tracked: true };

fn ways() -> Vec<Approach> {
    let fixed =
        |name, placement| Approach { name, placement, division: Division::Fixed, make: |_| None };
    let divided = |name, division, make: MakeBalancer| Approach {
        name,
        placement: Placement::Spread,
        division,
        make,
    };
    vec![
        fixed("fixed, as sold", Placement::AsSold),
        fixed("fixed, at this day's peak", Placement::AtPeak),
        divided("global, no moves", BY_STATISTICS, |_| None),
        divided("global, ballast-fleet", BY_STATISTICS_TRACKED, |_| {
            Some(Box::new(FleetPlanner::with_curves()))
        }),
        divided("meb, no moves", BY_CURVES, |_| None),
        divided("meb, ballast-fleet", BY_CURVES, |_| Some(Box::new(FleetPlanner::with_curves()))),
        divided("meb, ballast-fleet that foresees", BY_CURVES, |day| {
            Some(Box::new(FleetPlanner::foreseeing(day.yesterday())))
        }),
        divided("meb, first fit of use", BY_CURVES, |_| {
            Some(Box::new(FirstFit { load: LoadKind::Use }))
        }),
        divided("meb, LowNodeUtilization 85/95 % of use", BY_CURVES, |_| {
            let (low_percent, high_percent, load) = (85, 95, LoadKind::Use);
            Some(Box::new(LowNodeUtilization { low_percent, high_percent, load }))
        }),
        divided("meb, LowNodeUtilization 90/100 % of use", BY_CURVES, |_| {
            let (low_percent, high_percent, load) = (90, 100, LoadKind::Use);
            Some(Box::new(LowNodeUtilization { low_percent, high_percent, load }))
        }),
        divided("meb, Watcher 97 % of use", BY_CURVES, |_| {
            Some(Box::new(WorkloadBalance { threshold_percent: 97, load: LoadKind::Use }))
        }),
        divided("meb, Proxmox imbalance 5 % of use", BY_CURVES, |_| {
            let (threshold_percent, margin_percent, load) = (5, 10, LoadKind::Use);
            Some(Box::new(ProxmoxRebalancer { threshold_percent, margin_percent, load }))
        }),
    ]
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn day(way: &Approach, guests: usize, seed: u64) -> Option<Figures> {
    let swing_percent = number("BALLAST_FLEET_SWING").unwrap_or(100);
    let usual = LoadSpec::usual(guests, seed);
    let mut day = LoadDay::new(LoadSpec { placement: way.placement, swing_percent, ..usual })?;
    let mut balancer = (way.make)(&day);
    Some(match &mut balancer {
        Some(balancer) => play(&mut day, way.division, Some(balancer.as_mut())),
        None => play(&mut day, way.division, None),
    })
}

fn main() {
    let seeds = number("BALLAST_FLEET_SEEDS").unwrap_or(3);
    let wanted = std::env::var("BALLAST_FLEET_WAYS").unwrap_or_default();
    println!(
        "{:?}\nslow at most {SLOW_PPM_MAX} ppm of all guests' time and {WORST_PPM_MAX} ppm of \
         each; {seeds} days; steps of {STEP} guests\n",
        LoadSpec::usual(0, 0)
    );
    println!(
        "{:40} {:>6} {:>13} {:>10} {:>10} {:>6} {:>9}",
        "", "guests", "least, most", "as sold", "at peak", "moved", "GiB"
    );
    let mut fixed: Vec<usize> = Vec::new();
    let is_wanted = |way: &Approach| way.division == Division::Fixed || way.name.contains(&wanted);
    for way in ways().into_iter().filter(is_wanted) {
        let found: Vec<SearchResult> = (1..=seeds)
            .map(|seed| most_guests(STEP, MOST, |guests| day(&way, guests, seed)))
            .collect();
        let all: usize = found.iter().map(|it| it.guests).sum();
        let (least, most) = found
            .iter()
            .fold((usize::MAX, 0), |(least, most), it| (least.min(it.guests), most.max(it.guests)));
        if way.division == Division::Fixed {
            fixed.push(all);
        }
        let against = |which: usize| match fixed.get(which) {
            Some(&of) => format!("{:+.1} %", (all as f64 / of as f64 - 1.0) * 100.0),
            None => String::new(),
        };
        let mut figures = Figures::default();
        found.iter().for_each(|it| figures.add(&it.figures));
        println!(
            "{:40} {:6} {:>13} {:>10} {:>10} {:6} {:9.1}",
            way.name,
            all / found.len().max(1),
            format!("{least} to {most}"),
            against(0),
            against(1),
            figures.migrations / seeds,
            figures.copied as f64 / 1024.0 / seeds as f64
        );
    }
}
