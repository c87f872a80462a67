//! Several guests and hosts, in random orders of many events.
//!
//! Idea: a world too large for every order is tried in random ones. Hosts are nearly full, so that
//! moves compete for memory. Once faults and orders stop, everything has to come to rest.

use proptest::prelude::*;

use super::world::{Event, HONEST, World};

const HOSTS: u8 = 3;
const GUESTS: u8 = 4;
/// Room for one guest more than there are on the fullest host.
const CAPACITY: u8 = 3;
/// Most events until everything is at rest; some hundred are usual.
const CALM_EVENTS_MAX: usize = 100_000;

fn pick(events: &[Event], rng: &mut fastrand::Rng) -> Event {
    events[rng.usize(..events.len())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_orders_keep_every_promise_and_come_to_rest(
        seed: u64,
        orders in 1_u8..12,
        faults in 0_u8..8,
        ends_source: bool,
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::new(HOSTS, GUESTS, CAPACITY);
        (world.orders_left, world.faults_left) = (orders, faults);
        world.ends_source = ends_source;
        for _ in 0..800 {
            let event = pick(&world.events(), &mut rng);
            // If the clock ran freely, most moves would time out.
            if event == Event::Tick && rng.u8(..8) > 0 {
                continue;
            }
            world = world.after(event, &HONEST).map_err(TestCaseError::fail)?;
        }
        for _ in 0..CALM_EVENTS_MAX {
            if world.is_quiet() {
                return Ok(());
            }
            let calm = |event: &Event| world.is_calm(*event);
            let events: Vec<Event> = world.events().into_iter().filter(calm).collect();
            world = world.after(pick(&events, &mut rng), &HONEST).map_err(TestCaseError::fail)?;
        }
        prop_assert!(false, "never at rest: {world:#?}");
    }
}
