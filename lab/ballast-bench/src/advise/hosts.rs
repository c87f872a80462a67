//! The hosts on which advice is tried.
//!
//! Idea: situations of an operator who observes first. Guests boot with all the memory they could
//! ever have, or with a part of it. They have balloon statistics and nothing else, except on two
//! hosts: those with swapping guests are also tried with agents, and with a record that begins
//! after the guests have swapped for a long time.

use std::time::Duration;

use anyhow::Context;
use ballast_control::Settings;
use ballast_model::{Bytes, PolicyName};
use ballast_sim::{GuestSpec, HostSpec, Pattern, Scenario, Sources};

/// Long enough for guests to have swapped out and read back many times what they lack.
const LATE: Duration = Duration::from_secs(300);

/// A host, and when its record begins.
#[derive(Clone, Debug)]
pub(super) struct AdviceHost {
    pub(super) scenario: Scenario,
    /// Time from the start that is not recorded, and not measured when balanced.
    pub(super) unrecorded: Duration,
}

/// Every host, recorded for `duration`.
///
/// # Errors
/// A guest's name is not valid.
pub(super) fn all(duration: Duration) -> anyhow::Result<Vec<AdviceHost>> {
    let late = |name: &str, guests| AdviceHost {
        unrecorded: LATE,
        ..host(name, Bytes::gib(4), duration + LATE, guests)
    };
    Ok(vec![
        host("idle", Bytes::gib(12), duration, idle()?),
        host("swings", Bytes::gib(12), duration, swings()?),
        host("page cache", Bytes::gib(8), duration, page_cache()?),
        host("uneven", Bytes::gib(4), duration, uneven()?),
        host("uneven, agents", Bytes::gib(4), duration, with_agents(uneven()?)),
        late("uneven, late", uneven()?),
        late("uneven, late, agents", with_agents(uneven()?)),
        host("short", Bytes::gib(3), duration, short()?),
        host("short, agents", Bytes::gib(3), duration, with_agents(short()?)),
    ])
}

fn with_agents(mut guests: Vec<GuestSpec>) -> Vec<GuestSpec> {
    for guest in &mut guests {
        guest.sources.agent = true;
    }
    guests
}

fn host(name: &str, budget: Bytes, duration: Duration, guests: Vec<GuestSpec>) -> AdviceHost {
    let mut control = Settings::new(PolicyName::Static);
    control.guard.budget = Some(budget);
    let memory = budget.saturating_add(control.guard.host_reserve);
    let scenario = Scenario {
        name: name.to_owned(),
        duration,
        seed: 1,
        block: Scenario::BLOCK_DEFAULT,
        host: HostSpec::new(memory),
        control,
        guests,
    };
    AdviceHost { scenario, unrecorded: Duration::ZERO }
}

/// A guest that starts with `start` of its memory and runs these workloads.
fn guest(
    number: usize,
    memory: Bytes,
    start: Bytes,
    patterns: Vec<Pattern>,
) -> anyhow::Result<GuestSpec> {
    let name = format!("g{number}").parse().context("the bench's own guest")?;
    let sources = Sources { agent: false, tracker: None, ..Sources::default() };
    let spec = GuestSpec { start: Some(start), sources, ..GuestSpec::new(name, memory) };
    let at = Duration::from_secs(number as u64 % 7);
    Ok(patterns.into_iter().fold(spec, |spec, pattern| spec.with(at, pattern)))
}

/// Six guests that constantly use between a tenth and half of their memory.
fn idle() -> anyhow::Result<Vec<GuestSpec>> {
    let whole = Bytes::gib(2);
    let sizes = [200, 300, 400, 500, 700, 900].map(Bytes::mib).into_iter().enumerate();
    sizes
        .map(|(number, size)| guest(number, whole, whole, vec![Pattern::Constant { size }]))
        .collect()
}

/// Six guests that grow and shrink, jump, or draw another size every few minutes.
fn swings() -> anyhow::Result<Vec<GuestSpec>> {
    let (s, mib, whole) = (Duration::from_secs, Bytes::mib, Bytes::gib(2));
    let pattern = |number: usize| match number % 3 {
        0 => Pattern::Mono {
            low: mib(100),
            high: mib(1100),
            ramp: s(120).into(),
            hold: s(240),
            cycles: None,
        },
        1 => Pattern::Flux { low: mib(200), high: mib(900), period: s(400) },
        _ => Pattern::RandomDrawn { low: mib(100), high: mib(1200), period: s(300) },
    };
    (0..6).map(|number| guest(number, whole, whole, vec![pattern(number)])).collect()
}

/// Four guests that work on files and some memory of their own.
fn page_cache() -> anyhow::Result<Vec<GuestSpec>> {
    let whole = Bytes::gib(2);
    let patterns = |number: u64| {
        let files = Bytes::mib(400 + 300 * number);
        vec![
            Pattern::Constant { size: Bytes::mib(150 + 100 * number) },
            Pattern::Zipf { size: files, exponent: 0.9, file: true },
        ]
    };
    (0..4).map(|number| guest(number, whole, whole, patterns(number as u64))).collect()
}

/// Two guests that lack memory and two that have too much: all fits.
fn uneven() -> anyhow::Result<Vec<GuestSpec>> {
    let (whole, half) = (Bytes::gib(2), Bytes::gib(1));
    let sizes = [1200, 1100, 250, 300].map(Bytes::mib).into_iter().enumerate();
    let pattern = |size| Pattern::Zipf { size, exponent: 0.8, file: false };
    sizes.map(|(number, size)| guest(number, whole, half, vec![pattern(size)])).collect()
}

/// Three guests that together need more than there is.
fn short() -> anyhow::Result<Vec<GuestSpec>> {
    let (whole, part) = (Bytes::gib(2), Bytes::gib(1));
    let sizes = [1500, 1200, 900].map(Bytes::mib).into_iter().enumerate();
    let pattern = |size| Pattern::Zipf { size, exponent: 0.8, file: false };
    sizes.map(|(number, size)| guest(number, whole, part, vec![pattern(size)])).collect()
}
