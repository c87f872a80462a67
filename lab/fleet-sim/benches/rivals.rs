//! Bytes copied and floors met in simulated days, under the planner and its rivals.
//!
//! Each rival runs with several settings, from what its product ships with to what suits this
//! simulation best. Simulated: see the crate's header for what that leaves out.

use ballast_fleet_sim::rivals::{
    FirstFit, LoadKind, LowNodeUtilization, ProxmoxRebalancer, WorkloadBalance,
};
use ballast_fleet_sim::{Balancer, DaySpec, Figures, Planned, play};

const SEEDS: u64 = 10;

/// How to make a balancer anew for each day.
type Make = Box<dyn Fn() -> Box<dyn Balancer>>;

fn contestants() -> Vec<Make> {
    let mut all: Vec<Make> =
        vec![Box::new(|| Box::new(Planned::default())), Box::new(|| Box::new(FirstFit))];
    for load in [LoadKind::Floors, LoadKind::Use] {
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
    println!(
        "{SEEDS} simulated days of {:?}\n\n{:40} {:>9} {:>12} {:>7} {:>12} {:>12}",
        DaySpec::usual(0),
        "",
        "GiB copied",
        "if shrunk",
        "guests",
        "host-rounds",
        "GiB-rounds"
    );
    println!("{:40} {:>9} {:>12} {:>7} {:>12} {:>12}", "", "", "first", "moved", "short", "short");
    for make in contestants() {
        let mut all = Figures::default();
        for seed in 1..=SEEDS {
            let day = play(&DaySpec::usual(seed), make().as_mut());
            all.copied += day.copied;
            all.copied_if_shrunk += day.copied_if_shrunk;
            all.migrations += day.migrations;
            all.short_hosts += day.short_hosts;
            all.short += day.short;
            all.short_before += day.short_before;
        }
        println!(
            "{:40} {:9.1} {:12.1} {:7} {:12} {:12.1}",
            make().name(),
            all.copied as f64 / 1024.0,
            all.copied_if_shrunk as f64 / 1024.0,
            all.migrations,
            all.short_hosts,
            all.short as f64 / 1024.0
        );
    }
}
