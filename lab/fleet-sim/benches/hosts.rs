//! A day of a large fleet with a daemon's policy on each host: 64 GiB and 30 guests per host.
//!
//! Load follows the time of day. Each host divides its memory by its policy, and the planner of
//! migrations sees what real hosts would report. Environment variables: `BALLAST_FLEET_HOSTS` is
//! the number of hosts, 1,000 by default. `BALLAST_FLEET_POLICY` is the policy, `meb` by default,
//! which keeps objectives as far as it can (`global` has no objectives). `BALLAST_FLEET_ROUNDS` is
//! the number of rounds of ten minutes, 144 by default. `BALLAST_FLEET_GUESTS` is the number of
//! guests per host. `BALLAST_FLEET_MOVES=only` leaves out the day without moves.

use std::time::Instant;

use ballast_fleet_sim::{Division, FleetPlanner, LoadDay, LoadSpec, play};
use ballast_model::{Bytes, PolicyName};

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// The greatest memory that this process ever occupied.
fn peak() -> Option<Bytes> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"))?;
    Some(Bytes::kib(line.trim().strip_suffix(" kB")?.parse().ok()?))
}

fn main() {
    let hosts = number("BALLAST_FLEET_HOSTS").unwrap_or(1000);
    let guests = number("BALLAST_FLEET_GUESTS").unwrap_or(30);
    let rounds = number("BALLAST_FLEET_ROUNDS").unwrap_or(144) as u64;
    let name = std::env::var("BALLAST_FLEET_POLICY").ok().and_then(|it| it.parse().ok());
    let division = Division::ByPolicy { name: name.unwrap_or(PolicyName::Meb), is_tracked: true };
    let migrations_max = hosts * 2 / 5;
    let spec = LoadSpec { hosts, rounds, migrations_max, ..LoadSpec::usual(hosts * guests, 1) };
    println!("{spec:?}, {division:?}");
    let is_moved_only = std::env::var("BALLAST_FLEET_MOVES").is_ok_and(|it| it == "only");
    let days: &[bool] = if is_moved_only { &[true] } else { &[false, true] };
    for &moves in days {
        let Some(mut day) = LoadDay::new(spec) else {
            println!("so many guests cannot be placed");
            return;
        };
        let mut planned = FleetPlanner::with_curves();
        let begun = Instant::now();
        let figures = match moves {
            true => play(&mut day, division, Some(&mut planned)),
            false => play(&mut day, division, None),
        };
        println!(
            "{}: {} ppm of all guests' time slow, {} ppm of the worst's; {} moved, {} given up, \
             {:.1} GiB copied; {} s",
            if moves { "ballast-fleet" } else { "no moves" },
            figures.slow_ppm(),
            figures.worst_ppm,
            figures.migrations,
            figures.given_up,
            figures.copied as f64 / 1024.0,
            begun.elapsed().as_secs()
        );
    }
    if let Some(peak) = peak() {
        println!("most memory of the process: {peak}");
    }
}
