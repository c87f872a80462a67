//! Bytes copied and floors met in simulated days, under the planner and its rivals.
//!
//! Each rival runs with several settings, from its product's defaults to those that suit this
//! simulation best. The figures are simulated: the crate's header says what that leaves out.

use ballast_fleet_sim::rivals::{
    FirstFit, LoadKind, LowNodeUtilization, ProxmoxRebalancer, WorkloadBalance,
};
use ballast_fleet_sim::{Balancer, Division, Figures, FleetPlanner, FloorDay, FloorSpec, play};
use ballast_model::PolicyName;

const SEEDS: u64 = 10;

/// Makes a new balancer for each day.
type MakeBalancer = Box<dyn Fn() -> Box<dyn Balancer>>;

fn contestants() -> Vec<MakeBalancer> {
    let mut all: Vec<MakeBalancer> = vec![Box::new(|| Box::new(FleetPlanner::default()))];
    for load in [LoadKind::Floors, LoadKind::Use] {
        all.push(Box::new(move || Box::new(FirstFit { load })));
        for (low_percent, high_percent) in [(20, 50), (75, 90), (85, 95), (90, 100)] {
            all.push(Box::new(move || {
                Box::new(LowNodeUtilization { low_percent, high_percent, load })
            }));
        }
        for threshold_percent in [80, 90, 95, 101] {
            all.push(Box::new(move || Box::new(WorkloadBalance { threshold_percent, load })));
        }
        for threshold_percent in [5, 10, 15, 30] {
            all.push(Box::new(move || {
                Box::new(ProxmoxRebalancer { threshold_percent, margin_percent: 10, load })
            }));
        }
    }
    all
}

fn main() {
    let division = Division::ByPolicy { name: PolicyName::Global, is_tracked: false };
    println!(
        "{SEEDS} simulated days of {:?}\n\n{:40} {:>9} {:>12} {:>7} {:>12} {:>12} {:>12}",
        FloorSpec::usual(0),
        "",
        "GiB copied",
        "if shrunk",
        "guests",
        "host-rounds",
        "GiB-rounds",
        "guest-rounds"
    );
    println!(
        "{:40} {:>9} {:>12} {:>7} {:>12} {:>12} {:>12}",
        "", "", "first", "moved", "short", "short", "below floor"
    );
    let mut ours = None;
    let mut best: Option<(u64, String)> = None;
    for make in contestants() {
        let mut all = Figures::default();
        for seed in 1..=SEEDS {
            let mut day = FloorDay::new(FloorSpec::usual(seed));
            all.add(&play(&mut day, division, Some(make().as_mut())));
        }
        let name = make().name();
        println!(
            "{name:40} {:9.1} {:12.1} {:7} {:12} {:12.1} {:12}",
            all.copied as f64 / 1024.0,
            all.copied_if_shrunk as f64 / 1024.0,
            all.migrations,
            all.short_hosts,
            all.short as f64 / 1024.0,
            all.below_floor
        );
        let is_met = all.short_hosts == 0;
        match ours {
            None => ours = is_met.then_some(all.copied),
            Some(_) if is_met && best.as_ref().is_none_or(|(least, _)| all.copied < *least) => {
                best = Some((all.copied, name));
            }
            Some(_) => {}
        }
    }
    match (ours, best) {
        (Some(ours), Some((least, name))) => {
            let (ours, least) = (ours as f64 / 1024.0, least as f64 / 1024.0);
            let fewer = (1.0 - ours / least) * 100.0;
            println!(
                "\nours {ours:.1} GiB, best rival that met all floors {least:.1} GiB ({name}): {fewer:.1} % fewer"
            );
        }
        (None, _) => println!("\nours did not meet all floors"),
        (_, None) => println!("\nno rival met all floors"),
    }
}
