//! The loop that runs a workload.
//!
//! Idea: one loop that makes the size follow its schedule, a few pages at a time, and touches pages
//! in between. The schedule's clock starts when the first size is filled. Each touch is counted
//! before the next one, which may be stuck in a page fault for long.
//! Limits: one thread; the clock is read once per batch, and batches shrink when touches are slow.

use std::path::Path;
use std::time::{Duration, Instant};

use ballast_lab_guest::pace::Pace;
use ballast_lab_guest::protocol::WorkloadState;
use ballast_lab_guest::rng::Rng;
use ballast_lab_guest::visits::Visits;
use ballast_lab_guest::workload::{Kind, Pattern, ScheduleEntry, WorkloadSpec};
use ballast_model::Bytes;

use crate::backing::{AnonymousMemory, Backing, CachedFile};
use crate::counters::Counters;

/// Pages filled before touching continues: 1 MiB.
const FILL_PAGES: u64 = 256;
/// Most touches between two readings of the clock; fewer while touches are slow.
const BATCH_MAX: u64 = 1024;
/// Fewest touches between two readings of the clock.
const BATCH_MIN: u64 = 8;
/// Longest time of a batch, so that the size follows its schedule; a batch that takes less than a
/// quarter of it grows.
const BATCH_TIME: Duration = Duration::from_millis(8);

/// Runs a valid workload until it ends. Files are created in `file_dir`.
pub(crate) fn run(spec: &WorkloadSpec, file_dir: &Path, counters: &Counters) -> Result<(), String> {
    let backing: Box<dyn Backing> = if spec.pattern.is_file() {
        let name = format!("lab-guest-{}", std::process::id());
        Box::new(CachedFile::create(&file_dir.join(name), spec.pattern.size_max())?)
    } else {
        Box::new(AnonymousMemory::new()?)
    };
    let mut engine = WorkloadEngine::new(spec, backing, counters);
    engine.fill_first()?;
    engine.follow_schedule()
}

/// A generator of its own for each draw, so that the size at any moment can be computed directly.
fn draw_pages(seed: u64, draw: u64, most: u64) -> u64 {
    let mut rng = Rng::new(Rng::new(seed ^ draw).next_u64());
    rng.below(most + 1)
}

struct WorkloadEngine<'a> {
    spec: &'a WorkloadSpec,
    backing: Box<dyn Backing>,
    counters: &'a Counters,
    visits: Visits,
    rng: Rng,
    pace: Option<Pace>,
    write_share: f64,
    /// Pages the backing has room for: the scheduled size.
    mapped: u64,
    /// Pages filled.
    pages: u64,
    touches: u64,
    batch: u64,
}

impl<'a> WorkloadEngine<'a> {
    fn new(spec: &'a WorkloadSpec, backing: Box<dyn Backing>, counters: &'a Counters) -> Self {
        let rate = match spec.pattern {
            Pattern::Cold { size, share_per_s } => Some(size.to_pages() as f64 * share_per_s),
            _ => spec.touches_per_s.map(|rate| rate as f64),
        };
        let write_share_default = if spec.pattern.is_file() { 0.0 } else { 1.0 };
        WorkloadEngine {
            spec,
            backing,
            counters,
            visits: Visits::new(&spec.pattern, spec.seed),
            // A different sequence from that of the visits.
            rng: Rng::new(!spec.seed),
            pace: rate.map(Pace::new),
            write_share: spec.write_share.unwrap_or(write_share_default),
            mapped: 0,
            pages: 0,
            touches: 0,
            batch: BATCH_MIN,
        }
    }

    /// Fills the first size, before the schedule's clock starts.
    fn fill_first(&mut self) -> Result<(), String> {
        let Some(wanted) = self.scheduled(Duration::ZERO) else { return Ok(()) };
        while self.pages < wanted.size.to_pages() {
            self.approach(wanted.size)?;
        }
        self.backing.finish_filling()
    }

    fn scheduled(&self, elapsed: Duration) -> Option<ScheduleEntry<'a>> {
        self.spec.at(elapsed, self.spec.seed, draw_pages)
    }

    fn follow_schedule(&mut self) -> Result<(), String> {
        let passes_max = match self.spec.pattern {
            Pattern::Sequential { passes, .. } => passes.unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        let counts_sizes = self.spec.pattern.kind() == Kind::RandomArray;
        let start = Instant::now();
        while let Some(wanted) = self.scheduled(start.elapsed()) {
            self.approach(wanted.size)?;
            self.touch_batch(start, passes_max)?;
            let passes = self.visits.passes();
            self.counters.set_iterations(if counts_sizes { wanted.changes } else { passes });
            if passes >= passes_max {
                break;
            }
        }
        Ok(())
    }

    /// Moves the size towards `size`: maps all of it or frees all excess at once, and fills a few
    /// pages.
    fn approach(&mut self, size: Bytes) -> Result<(), String> {
        self.counters.set_size_wanted(size);
        let wanted = size.to_pages();
        if wanted != self.mapped {
            self.backing.resize(wanted)?;
            self.mapped = wanted;
        }
        if wanted < self.pages {
            self.pages = wanted;
        } else if wanted > self.pages {
            self.counters.set_phase(WorkloadState::Filling);
            for _ in 0..FILL_PAGES.min(wanted - self.pages) {
                self.backing.fill(self.pages, &mut self.rng)?;
                self.pages += 1;
            }
        } else {
            return Ok(());
        }
        self.counters.set_size(Bytes::pages(self.pages));
        self.visits.resize(self.pages);
        Ok(())
    }

    fn touch_batch(&mut self, start: Instant, passes_max: u64) -> Result<(), String> {
        let began = start.elapsed();
        let allowed = self.pace.as_mut().map_or(u64::MAX, |pace| pace.allowed(began));
        if allowed == 0 {
            self.counters.set_phase(WorkloadState::Waiting);
            std::thread::sleep(self.pace.as_ref().map_or(Duration::ZERO, Pace::wait));
            return Ok(());
        }
        self.counters.set_phase(WorkloadState::Touching);
        let mut done = 0;
        while done < self.batch.min(allowed) && self.visits.passes() < passes_max {
            let write = self.write_share >= 1.0 || self.rng.chance(self.write_share);
            self.backing.touch(self.visits.next_page(), write)?;
            done += 1;
            self.touches += 1;
            self.counters.set_touches(self.touches);
        }
        if let Some(pace) = &mut self.pace {
            pace.spend(done);
        }
        let took = start.elapsed().saturating_sub(began);
        if took > BATCH_TIME {
            self.batch = (self.batch / 2).max(BATCH_MIN);
        } else if took < BATCH_TIME / 4 && done == self.batch {
            self.batch = (self.batch * 2).min(BATCH_MAX);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(text: &str) -> (Counters, Result<(), String>) {
        let spec: WorkloadSpec = serde_json::from_str(text).unwrap();
        spec.validate_for_guest().unwrap();
        let (counters, _) = Counters::create().unwrap();
        let end = run(&spec, &std::env::temp_dir(), &counters);
        (counters, end)
    }

    #[test]
    fn workload_ends_after_its_passes() {
        let (counters, end) = ran(r#"{"kind":"sequential","size":"1MiB","passes":3}"#);
        assert_eq!(end, Ok(()));
        assert_eq!((counters.touches(), counters.iterations()), (768, 3));
        assert_eq!(counters.size(), Bytes::mib(1));
    }

    #[test]
    fn every_kind_ends_after_its_duration() {
        for text in [
            r#"{"kind":"mono","low":"1MiB","high":"3MiB","ramp_s":0.02,"cycles":1}"#,
            r#"{"kind":"constant","size":"1MiB","duration_s":0.05,"write_share":0.5}"#,
            r#"{"kind":"flux","low":"1MiB","high":"3MiB","period_s":0.02,"duration_s":0.05}"#,
            r#"{"kind":"random-array","low":"1MiB","high":"3MiB","period_s":0.01,"duration_s":0.05}"#,
            r#"{"kind":"file-random","size":"1MiB","duration_s":0.05,"write_share":0.1}"#,
            r#"{"kind":"cold","size":"1MiB","share_per_s":1,"duration_s":0.3}"#,
        ] {
            let (counters, end) = ran(text);
            assert_eq!(end, Ok(()), "{text}");
            assert!(counters.touches() > 0, "{text}");
            assert!((Bytes::mib(1)..=Bytes::mib(3)).contains(&counters.size()), "{text}");
        }
    }

    #[test]
    fn touches_stay_below_the_rate() {
        let (counters, _) =
            ran(r#"{"kind":"constant","size":"1MiB","duration_s":0.3,"touches_per_s":1000}"#);
        assert!((1..=301).contains(&counters.touches()), "{}", counters.touches());
    }

    #[test]
    fn missing_directory_is_named() {
        let spec = WorkloadSpec::from(Pattern::FileRandom { size: Bytes::mib(1) });
        let (counters, _) = Counters::create().unwrap();
        let error = run(&spec, Path::new("/nonexistent"), &counters).unwrap_err();
        assert!(error.starts_with("/nonexistent/lab-guest-"), "{error}");
    }
}
