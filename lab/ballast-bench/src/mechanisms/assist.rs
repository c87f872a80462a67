//! How much faster a balloon inflates with help inside the guest.
//!
//! Idea: a balloon takes free pages. If there are none left, the guest's kernel has to reclaim for
//! each page that it wants. A helper in the guest can have that done beforehand: in large steps,
//! and without a driver that pauses when it finds nothing. The same guest, filled to the same level
//! each time, inflates the same balloon in each way in turns; the time of the help counts.
//!
//! Cost: some ten seconds a run. Source: flexmemd changed the driver itself and was 51.5 % faster
//! on average; the driver of a stock kernel cannot be changed, so this is what can be gained
//! without that.
//! Limits: the help is a shell line that uses the same files as the agent's shrinkers. A guest that
//! uses what was dropped reads it back, which is not counted here.

use std::time::{Duration, Instant};

use ballast_lab_guest::workload::Pattern;
use ballast_lab_host::{Accel, DiskSpec, Speed};
use ballast_model::Bytes;
use serde::Serialize;

use super::test_guest::TestGuest;
use crate::timing::median;

/// Memory of the guest, and how much of it the balloon takes.
const MEMORY: Bytes = Bytes::mib(768);
const TAKEN: Bytes = Bytes::mib(512);
/// How much the guest is filled with: together with its kernel and what remains when the balloon
/// has its size, this is more than its memory.
const FILLED: Bytes = Bytes::mib(400);
/// Roughly how much of that must go: the amount that the help reclaims.
const TO_RECLAIM: Bytes = Bytes::mib(256);
const SWAP: Bytes = Bytes::gib(1);
/// A workload of this size creates the data disk's file system; it ends at once.
const MOUNTED_BY: Bytes = Bytes::mib(4);

/// What fills the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Content {
    /// Clean pages of a file.
    PageCache,
    /// Memory of a program that hardly touches it, with enough swap.
    IdleMemory,
}

/// The help before the balloon is inflated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Help {
    /// Nothing.
    None,
    /// Memory compacted (`compact_memory`).
    Compacted,
    /// All clean page cache and slabs dropped (`drop_caches`), memory compacted.
    Dropped,
    /// The needed amount reclaimed (`memory.reclaim`), memory compacted.
    Reclaimed,
}

impl Content {
    const ALL: [Content; 2] = [Content::PageCache, Content::IdleMemory];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Content::PageCache => "page cache",
            Content::IdleMemory => "idle memory",
        }
    }

    /// The kinds of help to compare.
    const fn helps(self) -> &'static [Help] {
        match self {
            Content::PageCache => &[Help::None, Help::Compacted, Help::Dropped, Help::Reclaimed],
            // None of it is clean, so dropping clean memory would not help.
            Content::IdleMemory => &[Help::None, Help::Compacted, Help::Reclaimed],
        }
    }

    /// Fills the guest again, whatever is left from the previous run.
    fn fill(self, test_guest: &TestGuest, is_first: bool) -> anyhow::Result<()> {
        match self {
            Content::PageCache if is_first => {
                test_guest.start_workload(Pattern::FileRandom { size: MOUNTED_BY }, None)?;
                test_guest.stop_workload()?;
                let mib = FILLED.get() >> 20;
                let line = format!("dd if=/dev/zero of=/data/full bs=1M count={mib} && sync");
                test_guest.lab.shell(&line).map(drop)
            }
            Content::PageCache => test_guest.lab.shell("cat /data/full > /dev/null").map(drop),
            Content::IdleMemory => {
                if !is_first {
                    test_guest.stop_workload()?;
                }
                test_guest.start_workload(Pattern::Constant { size: FILLED }, Some(1))
            }
        }
    }
}

impl Help {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Help::None => "none",
            Help::Compacted => "compacted",
            Help::Dropped => "dropped, compacted",
            Help::Reclaimed => "reclaimed, compacted",
        }
    }

    fn line(self) -> Option<String> {
        const COMPACT: &str = "echo 1 > /proc/sys/vm/compact_memory";
        match self {
            Help::None => None,
            Help::Compacted => Some(COMPACT.to_owned()),
            Help::Dropped => Some(format!("echo 3 > /proc/sys/vm/drop_caches; {COMPACT}")),
            Help::Reclaimed => {
                // The kernel reports a failure if it reclaims less than requested; that is the best
                // it can do.
                let bytes = TO_RECLAIM.get();
                Some(format!("echo {bytes} > /sys/fs/cgroup/memory.reclaim || true; {COMPACT}"))
            }
        }
    }
}

/// The result for one content and one help.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) content: Content,
    pub(super) help: Help,
    pub(super) runs: usize,
    pub(super) taken_bytes: u64,
    /// Medians in seconds: of the help, of the balloon, and of both together.
    pub(super) help_s: f64,
    pub(super) balloon_s: f64,
    pub(super) total_s: f64,
    /// The fastest and the slowest run, both times together.
    pub(super) least_s: f64,
    pub(super) most_s: f64,
    /// How much faster both together are than the balloon without help, in per cent; `null` for the
    /// balloon without help.
    pub(super) gain_percent: Option<f64>,
}

/// The times of one run: of the help, and of the balloon.
type HelpAndBalloonTimes = (Duration, Duration);

/// Measures; progress goes to `say`. Also returns how guests execute.
///
/// # Errors
/// Something that guests need is missing, or the guest does not reach a size.
pub(super) fn measure(rounds: usize, say: &dyn Fn(&str)) -> anyhow::Result<(Accel, Vec<Figure>)> {
    let mut figures = Vec::new();
    let mut accel = Accel::Tcg;
    for content in Content::ALL {
        say(&format!("help for a balloon, {}: booting", content.name()));
        let disk = |size| Some(DiskSpec { size, speed: Speed::Nvme });
        let test_guest = TestGuest::start(
            MEMORY,
            |spec| match content {
                Content::PageCache => spec.data = disk(FILLED.saturating_add(Bytes::mib(64))),
                Content::IdleMemory => spec.swap = disk(SWAP),
            },
            say,
        )?;
        accel = test_guest.accel();
        figures.extend(of_content(test_guest, content, rounds, say)?);
    }
    Ok((accel, figures))
}

fn of_content(
    mut test_guest: TestGuest,
    content: Content,
    rounds: usize,
    say: &dyn Fn(&str),
) -> anyhow::Result<Vec<Figure>> {
    test_guest.lab.shell("mkdir -p /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup")?;
    let helps = content.helps();
    let mut taken: Vec<Vec<HelpAndBalloonTimes>> = vec![Vec::new(); helps.len()];
    let mut is_first = true;
    for round in 0..rounds {
        for turn in 0..helps.len() {
            // Each kind of help comes first equally often.
            let which = (turn + round) % helps.len();
            let help = helps[which];
            let runs = format!("{}/{rounds}: {}", round + 1, help.name());
            say(&format!("help for a balloon, {} {runs}", content.name()));
            content.fill(&test_guest, is_first)?;
            is_first = false;
            let began = Instant::now();
            if let Some(line) = help.line() {
                test_guest.lab.shell(&line)?;
            }
            let helped = began.elapsed();
            taken[which].push((helped, test_guest.reach(MEMORY.saturating_sub(TAKEN))?));
            test_guest.reach(MEMORY)?;
        }
    }
    Ok(figures(content, helps, &taken))
}

/// The figures of runs that took these times; the first help is none.
fn figures(content: Content, helps: &[Help], taken: &[Vec<HelpAndBalloonTimes>]) -> Vec<Figure> {
    let total = |&(help, balloon): &HelpAndBalloonTimes| (help + balloon).as_secs_f64();
    let plain = taken.first().map_or(0.0, |runs| median(runs.iter().map(total)));
    let figure = |(&help, runs): (&Help, &Vec<HelpAndBalloonTimes>)| {
        let total_s = median(runs.iter().map(total));
        Figure {
            content,
            help,
            runs: runs.len(),
            taken_bytes: TAKEN.get(),
            help_s: median(runs.iter().map(|run| run.0.as_secs_f64())),
            balloon_s: median(runs.iter().map(|run| run.1.as_secs_f64())),
            total_s,
            least_s: runs.iter().map(total).fold(f64::INFINITY, f64::min),
            most_s: runs.iter().map(total).fold(0.0, f64::max),
            gain_percent: (help != Help::None).then(|| 100.0 * (plain / total_s - 1.0)),
        }
    };
    helps.iter().zip(taken).map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3 s without help; 0.5 s of help and 1.5 s of balloon: 50 % faster.
    #[test]
    fn gains_equal_those_by_hand() {
        let run =
            |help: u64, balloon: u64| (Duration::from_millis(help), Duration::from_millis(balloon));
        let taken = [
            vec![run(0, 3000), run(0, 2000), run(0, 9000)],
            vec![run(500, 1500), run(400, 1600), run(500, 5000)],
        ];
        let helps = [Help::None, Help::Reclaimed];
        let figures = figures(Content::IdleMemory, &helps, &taken);
        assert_eq!((figures[0].total_s, figures[0].gain_percent), (3.0, None));
        assert_eq!((figures[1].total_s, figures[1].gain_percent), (2.0, Some(50.0)));
        assert_eq!((figures[0].least_s, figures[0].most_s), (2.0, 9.0));
        assert!(
            (figures[1].help_s - 0.5).abs() < 1e-9 && (figures[1].balloon_s - 1.6).abs() < 1e-9
        );
    }
}
