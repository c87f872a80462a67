//! Doing what a workload says.
//!
//! Idea: one loop that lets the size follow its schedule, a few pages at a time, and touches pages in
//! between. The schedule's clock starts when the first size has been filled. Each touch is counted
//! before the next, because the next may hang in a fault for long.
//! Limits: one thread; the clock is read once a batch, and batches shrink when touches are slow.

use std::path::Path;
use std::time::{Duration, Instant};

use ballast_lab_guest::pace::Pace;
use ballast_lab_guest::protocol::Phase;
use ballast_lab_guest::rng::Rng;
use ballast_lab_guest::schedule::Schedule;
use ballast_lab_guest::visits::Visits;
use ballast_lab_guest::workload::{Pattern, WorkloadSpec};
use ballast_model::Bytes;

use crate::counters::Counters;
use crate::ground::{CachedFile, Ground, Memory};

/// Pages filled before touching goes on: 1 MiB.
const FILL_PAGES: u64 = 256;
/// Touches between two looks at the clock: at most this many, fewer while touches are slow.
const BATCH_MAX: u64 = 1024;
const BATCH_MIN: u64 = 8;
/// A batch should not take longer, so that the schedule is kept to; under a quarter of it, it grows.
const BATCH_TIME: Duration = Duration::from_millis(8);

/// Does what a valid workload says until it ends. Files are made in `file_dir`.
pub(crate) fn run(spec: &WorkloadSpec, file_dir: &Path, counters: &Counters) -> Result<(), String> {
    let schedule = Schedule::new(spec);
    let ground: Box<dyn Ground> = match spec.pattern {
        Pattern::FileRandom { .. } => {
            let name = format!("lab-guest-{}", std::process::id());
            Box::new(CachedFile::create(&file_dir.join(name), schedule.size_max())?)
        }
        _ => Box::new(Memory::reserve(schedule.size_max())?),
    };
    let mut engine = Engine::new(spec, schedule, ground, counters);
    engine.fill_first()?;
    engine.follow(spec)
}

struct Engine<'a> {
    schedule: Schedule,
    ground: Box<dyn Ground>,
    counters: &'a Counters,
    visits: Visits,
    rng: Rng,
    pace: Option<Pace>,
    write_share: f64,
    drawn_sizes: bool,
    pages: u64,
    touches: u64,
    batch: u64,
}

impl<'a> Engine<'a> {
    fn new(
        spec: &WorkloadSpec,
        schedule: Schedule,
        ground: Box<dyn Ground>,
        counters: &'a Counters,
    ) -> Self {
        let seed = spec.common.seed.unwrap_or_default();
        let is_file = matches!(spec.pattern, Pattern::FileRandom { .. });
        let rate = match spec.pattern {
            Pattern::Cold { size, share_per_s } => Some(size.to_pages() as f64 * share_per_s),
            _ => spec.common.touches_per_s.map(|rate| rate as f64),
        };
        Engine {
            schedule,
            ground,
            counters,
            visits: Visits::new(&spec.pattern, seed),
            // Another sequence than that of the visits.
            rng: Rng::new(!seed),
            pace: rate.map(Pace::new),
            write_share: spec.common.write_share.unwrap_or(if is_file { 0.0 } else { 1.0 }),
            drawn_sizes: matches!(spec.pattern, Pattern::RandomArray { .. }),
            pages: 0,
            touches: 0,
            batch: BATCH_MIN,
        }
    }

    /// Fills the first size; the schedule's clock stands still.
    fn fill_first(&mut self) -> Result<(), String> {
        let Some(wanted) = self.schedule.at(Duration::ZERO) else { return Ok(()) };
        while self.pages < wanted.size.to_pages() {
            self.approach(wanted.size)?;
        }
        self.ground.filled()
    }

    fn follow(&mut self, spec: &WorkloadSpec) -> Result<(), String> {
        let passes_max = match spec.pattern {
            Pattern::Sequential { passes, .. } => passes.unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        let start = Instant::now();
        while let Some(wanted) = self.schedule.at(start.elapsed()) {
            self.approach(wanted.size)?;
            self.touch_batch(start, passes_max)?;
            let passes = self.visits.passes();
            self.counters.set_iterations(if self.drawn_sizes { wanted.changes } else { passes });
            if passes >= passes_max {
                break;
            }
        }
        Ok(())
    }

    /// Gives back all that is too much, or fills some of what is missing.
    fn approach(&mut self, size: Bytes) -> Result<(), String> {
        self.counters.set_size_wanted(size);
        let wanted = size.to_pages();
        if wanted < self.pages {
            self.ground.give_back(wanted)?;
            self.pages = wanted;
        } else if wanted > self.pages {
            self.counters.set_phase(Phase::Filling);
            for _ in 0..FILL_PAGES.min(wanted - self.pages) {
                self.ground.fill(self.pages, &mut self.rng)?;
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
            self.counters.set_phase(Phase::Waiting);
            std::thread::sleep(self.pace.as_ref().map_or(Duration::ZERO, Pace::wait));
            return Ok(());
        }
        self.counters.set_phase(Phase::Touching);
        let mut done = 0;
        while done < self.batch.min(allowed) && self.visits.passes() < passes_max {
            let write = self.write_share >= 1.0 || self.rng.chance(self.write_share);
            self.ground.touch(self.visits.next_page(), write)?;
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
        spec.validate().unwrap();
        let (counters, _) = Counters::create().unwrap();
        let end = run(&spec, &std::env::temp_dir(), &counters);
        (counters, end)
    }

    #[test]
    fn passes_are_counted_and_end_it() {
        let (counters, end) = ran(r#"{"kind":"sequential","size":"1MiB","passes":3}"#);
        assert_eq!(end, Ok(()));
        assert_eq!((counters.touches(), counters.iterations()), (768, 3));
        assert_eq!(counters.size(), Bytes::mib(1));
    }

    #[test]
    fn every_kind_runs_and_ends_at_its_time() {
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
    fn a_rate_is_kept_to() {
        let (counters, _) =
            ran(r#"{"kind":"constant","size":"1MiB","duration_s":0.3,"touches_per_s":1000}"#);
        assert!((1..=301).contains(&counters.touches()), "{}", counters.touches());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let spec = WorkloadSpec::from(Pattern::FileRandom { size: Bytes::mib(1) });
        let (counters, _) = Counters::create().unwrap();
        let error = run(&spec, Path::new("/nonexistent"), &counters).unwrap_err();
        assert!(error.starts_with("/nonexistent/lab-guest-"), "{error}");
    }
}
