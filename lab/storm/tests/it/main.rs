//! A small storm without a violation, and a check that every sabotage is found.

use ballast_storm::{Fault, Injected, Sabotage, Violation, run_seed, story_of};

/// The number of seeds in every `make test`.
const SEEDS: u64 = 250;
/// The number of seeds within which a sabotage has to be found.
const SABOTAGE_SEEDS: u64 = 500;
/// Seeds that find those sabotages that few seeds find. They are tried before others, which saves
/// minutes.
const TRIED_FIRST: [u64; 5] = [21, 26, 82, 96, 107];

/// The seeds in which to look for a sabotage, the likeliest first.
fn sabotage_seeds() -> impl Iterator<Item = u64> {
    (0..7).chain(TRIED_FIRST).chain(7..SABOTAGE_SEEDS)
}

#[test]
fn no_seed_breaks_a_promise() {
    let mut injected = Injected::default();
    for seed in 0..SEEDS {
        let report = run_seed(seed, None);
        if let Some((tick, violation)) = &report.violation {
            panic!("seed {seed}, tick {tick}: {violation}");
        }
        injected.add(&report.injected);
    }
    for (fault, count) in injected.by_kind() {
        assert!(count > 0, "{} never struck", fault.code());
    }
    assert!(injected.total() > 10_000, "{} faults", injected.total());
}

/// Tests that seeds which once broke a promise hold, in addition to those of the small storm.
macro_rules! seeds_that_hold {
    ($($(#[$doc:meta])* $name:ident: $seeds:expr;)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                for seed in $seeds {
                    if let Some((tick, violation)) = run_seed(seed, None).violation {
                        panic!("seed {seed}, tick {tick}: {violation}");
                    }
                }
            }
        )*
    };
}

seeds_that_hold! {
    /// A guest took its memory back and filled it, and was granted what it could not have asked
    /// for.
    what_is_taken_without_a_grant_earns_none:
        [393, 483, 652, 705, 967, 1074, 1095, 1133, 1566, 1581, 1643, 1708, 1849, 1864];
    /// A guest claims to use its whole grant and to have no swap.
    a_guest_without_swap_keeps_no_more_than_its_grant: [1691];
    /// A guest took its memory back, and then a daemon lost its journal.
    a_lost_journal_costs_what_was_taken_before: [1644];
    /// A guest took its memory back after a first decision that had moved nothing.
    what_is_taken_after_a_first_decision_earns_nothing: [5258, 11250, 11334, 13563];
    /// An order was lost, or was not sent because the daemon was killed, and its guest stayed stuck
    /// under it.
    a_stuck_guest_is_asked_again_whatever_is_in_force: [12571, 15370];
    /// A stuck guest was left some memory, then gave all it was asked for, but that memory counted
    /// for no other guest.
    what_a_stuck_guest_keeps_ends_as_it_gives: [2805, 14812];
    /// For a while the host did not see how much a guest occupies that claims to need more.
    a_claim_does_not_grow_while_nobody_sees: [729, 5866, 6104, 18508];
    /// A guest with a cap was granted more, up to all that there was.
    a_cap_is_raised_without_counting_anything_twice: [14349];
    /// Faults of some seconds ended some ticks earlier in the run without lies.
    a_run_without_lies_ticks_at_the_same_moments: [11320];
    /// A guest that claims everything got as much in addition to its needs as an honest one.
    what_is_given_beside_needs_is_no_gain: [15827];
    /// A guest that claims to have no swap was granted what it is believed to need.
    a_guest_without_swap_keeps_what_it_was_granted_since: [2153];
    /// A guest released memory for seconds, and seemed all the while to use a step more.
    a_slow_release_settles: [10569];
    /// A guest claimed to swap, and was given the floors of idle guests over and over.
    swap_traffic_takes_nothing_of_what_others_use: [372, 3594, 5437, 9782, 10962];
    /// Three guests held a little more than their parts, and a fourth one lacked that.
    what_is_not_worth_an_order_adds_up: [7754];
    /// Guests began anew together, and one that claimed more was the first to fill what it really
    /// uses.
    what_is_filled_by_new_processes_is_no_gain: [10604, 11618, 18555];
    /// A guest that was left more than its grant gave that memory, and in the decision in which its
    /// cap ended others were granted what the cap had taken.
    a_cap_that_may_end_frees_nothing: [939];
    /// In the decision after which its cap ended, a guest read back what it had been paged out for,
    /// and its cap was not kept.
    a_cap_that_ends_is_kept_for_its_last_decision: [517, 949];
    /// The power was lost, and it was not known yet what was left of the journal.
    a_journal_is_judged_by_what_a_power_loss_left: [3227, 7533, 7553, 7727, 15444];
    /// What a guest was only left was sent to it again, as if it had been granted.
    what_a_guest_is_let_keep_is_no_grant: [3557];
    /// A guest that had complied was ordered a part of what it had been left beyond its grant.
    what_a_guest_kept_is_granted_before_it_is_ordered: [5297];
    /// The daemon died before its first tick was recorded, or could not record a pause.
    a_pause_before_any_tick_outlives_the_daemon: [2617, 2629];
    /// The order to a stuck guest was meanwhile below its floor.
    a_stuck_guest_is_asked_anew_when_its_floor_rises: [4561];
    /// Before its first order, a driver claimed that its guest held less than its floor.
    a_claim_below_the_floor_orders_nothing_below_it: [4707];
    /// A guest took its memory back on a host that has hardly any swap.
    what_a_debtor_has_not_filled_squeezes_nobody: [2937, 3237, 3265, 5777];
    /// False sizes from a driver looked like another owner's orders, until an operator said
    /// otherwise.
    a_guest_taken_over_settles: [3564, 5553];
    /// What a guest claimed it could not spare had the weight of an operator's guarantee.
    a_claim_to_have_no_swap_weighs_nothing: [1477];
    /// A guest with a cap held what the cap leaves it, and a guest paged out without a cap held all
    /// of that.
    what_a_guest_still_holds_counts_before_and_after: [8561, 8612];
}

#[test]
fn every_sabotage_is_found() {
    for &sabotage in Sabotage::ALL {
        // A violation that the seed has without the sabotage, too, proves nothing.
        let is_found = |seed| {
            run_seed(seed, Some(sabotage)).violation.is_some()
                && run_seed(seed, None).violation.is_none()
        };
        assert!(sabotage_seeds().any(is_found), "{} is not found", sabotage.code());
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [3, 17] {
        assert_eq!(format!("{:?}", run_seed(seed, None)), format!("{:?}", run_seed(seed, None)));
    }
}

#[test]
fn belief_without_evidence_costs_honest_guests() {
    let costs = |seed| {
        let (_, violation) = run_seed(seed, Some(Sabotage::Belief)).violation?;
        Some(matches!(violation, Violation::Interference { .. }))
    };
    assert!(sabotage_seeds().any(|seed| costs(seed) == Some(true)));
}

#[test]
fn a_story_breaks_the_same_promise_with_fewer_faults() {
    let seed = 4;
    let whole = run_seed(seed, Some(Sabotage::Pause));
    assert!(matches!(whole.violation, Some((_, Violation::ActsPaused(_)))));
    let story = story_of(seed, Some(Sabotage::Pause)).expect("a pause ends with the daemon");
    assert!(matches!(story.violation, (_, Violation::ActsPaused(_))));
    let faults: Vec<Fault> = story.strikes.iter().map(|strike| strike.fault).collect();
    let [Fault::Pause, Fault::CrashBeforeAct | Fault::CrashAfterAct] = faults[..] else {
        panic!("{faults:?}");
    };
    assert!(story_of(0, None).is_none(), "seed 0 breaks nothing");
}
