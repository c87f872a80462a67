//! Tests: a controller that takes another's place promises each guest at least as much.

use ballast_actuation::hotplug::HotplugSettings;
use ballast_model::{Bytes, PolicyName};
use proptest::prelude::*;

use crate::world::{Mood, ToyGuest, World, settings};
use crate::{Controller, Event};

/// What each guest was promised, and the cap on its process.
fn promised(controller: &Controller) -> Vec<(Option<Bytes>, Option<Bytes>)> {
    controller.guests.values().map(|state| (state.log.promised(), state.cap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Both controllers are paused, so neither makes new promises, and both see the same guests.
    #[test]
    fn a_restart_promises_what_was_promised(
        sizes in prop::collection::vec((512..4096u64, 0..100u64, 10..400u64, 0..2048u64), 1..5),
        turns in prop::collection::vec((0..5usize, 0..4096u64, 0..3u8, 1..30u64), 1..6),
        sent in 0..4usize,
        was_paused in any::<bool>(),
        is_gone in any::<bool>(),
        spare in 0..1500u64,
    ) {
        let toy = |(at, (boot, used, rate, plug)): (usize, &(u64, u64, u64, u64))| ToyGuest {
            rate: *rate,
            plug_max: plug - plug % 2,
            ..ToyGuest::new(&format!("g{at}"), *boot, boot / 2, boot * used / 100)
        };
        let guests: Vec<ToyGuest> = sizes.iter().enumerate().map(toy).collect();
        let budget = guests.iter().map(|guest| guest.holds).sum::<u64>() + spare;
        let mut settings = settings(PolicyName::Global, budget);
        settings.hotplug = Some(HotplugSettings::default());
        let mut world = World::new(settings, guests);
        world.host_swaps = true;
        world.ticks(3);
        for (at, used, mood, ticks) in turns {
            let at = at % world.guests.len();
            let guest = &mut world.guests[at];
            guest.used = used.min(guest.boot);
            guest.mood = [Mood::Willing, Mood::Stubborn, Mood::Silent][usize::from(mood)];
            world.ticks(ticks);
        }
        if was_paused {
            world.controller.handle_event(Event::Pause);
        }
        let mut killed = world.tick_and_restart(sent);
        prop_assert_eq!(world.controller.paused(), was_paused);

        killed.handle_event(Event::Pause);
        world.controller.handle_event(Event::Pause);
        let mood = world.guests[0].mood;
        if is_gone {
            // At the first sample after a start, a link is often still down.
            world.guests[0].mood = Mood::Gone;
            world.pass();
            let before = killed.handle_sample(&world.snapshot());
            let after = world.controller.handle_sample(&world.snapshot());
            prop_assert!(after.budget.committed >= before.budget.committed);
            for (old, new) in promised(&killed).into_iter().zip(promised(&world.controller)) {
                prop_assert!(new.0 >= old.0, "{new:?} after {old:?}");
            }
        }
        world.guests[0].mood = mood;
        world.pass();
        let had = promised(&killed);
        let before = killed.handle_sample(&world.snapshot());
        let after = world.controller.handle_sample(&world.snapshot());
        let old = promised(&killed);
        for (place, new) in promised(&world.controller).into_iter().enumerate() {
            let (had, old) = (had[place], old[place]);
            prop_assert!(new.0 >= old.0, "{new:?} after {old:?}");
            // A cap takes two ticks to end, and starts over if a restart comes between them.
            let had_cap = had.1.is_some() || old.1.is_some();
            prop_assert!(new.1.is_none() || had_cap, "a cap from nowhere: {new:?}");
        }
        prop_assert!(after.budget.committed >= before.budget.committed);
    }
}
