//! A host that is always busy.
//!
//! Idea: guests that grow and shrink, jump, visit pages at random and read files, with half of what
//! they want and with every source of figures enabled: working sets change, guests swap, and
//! balloons move all the time.

use std::time::Duration;

use anyhow::Context;
use ballast_control::Settings;
use ballast_model::{Bytes, PolicyName};
use ballast_sim::{GuestSpec, HostSpec, Pattern, Scenario};

/// Boot memory of each guest.
const MEMORY: Bytes = Bytes::gib(1);

/// `guests` guests for `duration`, with their memory in blocks of `block`.
///
/// # Errors
/// A guest's name is not valid.
pub(super) fn crowd(guests: u64, duration: Duration, block: Bytes) -> anyhow::Result<Scenario> {
    let mut control = Settings::new(PolicyName::Static);
    control.guard.budget = Some(MEMORY.fraction(guests, 2));
    Ok(Scenario {
        name: "crowd".to_owned(),
        duration,
        seed: 1,
        block,
        host: HostSpec::new(MEMORY.fraction(guests, 1)),
        control,
        guests: (0..guests).map(guest).collect::<anyhow::Result<_>>()?,
    })
}

fn guest(number: u64) -> anyhow::Result<GuestSpec> {
    let (s, mib) = (Duration::from_secs, Bytes::mib);
    let pattern = match number % 4 {
        0 => Pattern::Mono {
            low: mib(50),
            high: mib(650),
            ramp: s(25).into(),
            hold: s(35),
            cycles: None,
        },
        1 => Pattern::Flux { low: mib(100), high: mib(500), period: s(40) },
        2 => Pattern::RandomDrawn { low: mib(100), high: mib(600), period: s(30) },
        _ => Pattern::Zipf { size: mib(600), exponent: 0.8, file: true },
    };
    let name = format!("g{number:04}").parse().context("the bench's own guest")?;
    let start = Some(mib(480));
    Ok(GuestSpec { start, ..GuestSpec::new(name, MEMORY) }.with(s(number % 7), pattern))
}
