//! Processor time of a fleet per guest and tick. The QMP peers run in another process.
//!
//! `cargo bench -p ballast-qmp --bench fleet` prints the figure; with `--test` it runs few ticks.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use ballast_model::{LinkState, Timestamp};
use ballast_qmp::fleet::{Fleet, FleetConfig};
use ballast_qmp_testing::{Peer, PeerConfig};
use rustix::time::{ClockId, clock_gettime};

const GUESTS: usize = 100;
const TICK: Duration = Duration::from_millis(100);
const PEERS_FOLDER: &str = "BALLAST_BENCH_PEERS_FOLDER";

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("processor time is not negative")
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if let Some(folder) = std::env::var_os(PEERS_FOLDER) {
        return serve(Path::new(&folder)).await;
    }
    let ticks = if std::env::args().any(|argument| argument == "--test") { 3 } else { 200 };
    let folder = tempfile::tempdir().expect("a folder for sockets");
    let mut peers = Command::new(std::env::current_exe().expect("own path"))
        .env(PEERS_FOLDER, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the peers' process");
    let mut ready = String::new();
    let output = peers.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut ready).expect("the peers' word");

    let origin = Instant::now();
    let mut fleet = Fleet::new(FleetConfig::new(vec![folder.path().to_owned()]));
    let mut spent = Duration::ZERO;
    let mut slowest = Duration::ZERO;
    for tick in 0..=ticks {
        let (begun, before) = (Instant::now(), processor_time());
        let now = Timestamp::ZERO + origin.elapsed();
        let readings = fleet.sample(now, SystemTime::now(), Duration::from_secs(1)).await;
        // The first tick connects and probes.
        if tick > 0 {
            spent += processor_time() - before;
            slowest = slowest.max(begun.elapsed());
        }
        let up = readings.iter().filter(|reading| reading.sample.link == LinkState::Up).count();
        assert_eq!(up, GUESTS, "in tick {tick}");
        tokio::time::sleep(TICK.saturating_sub(begun.elapsed())).await;
    }
    let each = spent / (ticks * GUESTS as u32);
    let share = each.as_secs_f64() * GUESTS as f64 * 100.0;
    println!(
        "{GUESTS} guests, {ticks} ticks: {:.1} µs of processor time per guest and tick, \
         {share:.2} % of a core at one tick a second; slowest tick {:.1} ms",
        each.as_secs_f64() * 1e6,
        slowest.as_secs_f64() * 1e3,
    );
    drop(peers.stdin.take());
    peers.wait().expect("the peers' end");
}

/// Serves until standard input ends.
async fn serve(folder: &Path) {
    let peers: Vec<Peer> = (0..GUESTS)
        .map(|n| Peer::spawn(&folder.join(format!("guest-{n}.sock")), PeerConfig::default()))
        .collect::<Result<_, _>>()
        .expect("sockets");
    println!("ready");
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    ended.await.expect("no panic").expect("standard input");
    drop(peers);
}
