//! The calls of an order.
//!
//! Idea: as for Cloud Hypervisor, boot memory less the balloon, plus the plugged memory, must be
//! the target or slightly more, and never less. Memory is plugged in before the balloon moves, and
//! out after.
//! Limits: Firecracker counts in MiB. A balloon's size is rounded down to whole MiB, so that the
//! guest keeps the rest.

use ballast_model::{Bytes, Hotplug, HotplugKind};
use ballast_rest::{Call, Method};
use serde_json::json;

use crate::api::{HotplugStatus, mib};

/// The calls that move memory.
pub(crate) const BALLOON: &str = "/balloon";
pub(crate) const HOTPLUG: &str = "/hotplug/memory";

/// The parts of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Boot memory.
    pub boot: Bytes,
    /// Whether its balloon can be used: it has one, and Firecracker reports the balloon's size.
    pub has_balloon: bool,
    /// Its pluggable memory; `None` if nothing can be plugged in.
    pub hotplug: Option<Hotplug>,
}

/// The calls of an order, and the amounts in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The calls, to be made one after the other.
    pub calls: Vec<Call>,
    /// The size requested to be plugged in.
    pub plugged: Bytes,
    /// The size requested of the balloon; `None` if it stays as it is.
    pub balloon: Option<Bytes>,
}

/// The pluggable memory by the API's figures; `None` if they are impossible.
pub(crate) fn hotplug(status: HotplugStatus) -> Option<Hotplug> {
    let block = mib(status.block_size_mib);
    let most = in_blocks(mib(status.total_size_mib), block)?;
    Some(Hotplug {
        kind: HotplugKind::VirtioMem,
        plugged: mib(status.plugged_size_mib).min(most),
        requested: mib(status.requested_size_mib).min(most),
        max: most,
        block,
    })
}

impl Layout {
    /// The calls that lead to `target`, with `plug` plugged in (`None`: as much as was requested
    /// last).
    ///
    /// # Errors
    /// The target is impossible; the text says why.
    pub fn orders(&self, target: Bytes, plug: Option<Bytes>) -> Result<Orders, String> {
        let most = self.hotplug.map_or(Bytes::ZERO, |it| it.max);
        if let Some(plug) = plug.filter(|plug| *plug > most) {
            return Err(format!("cannot plug {plug}: expected at most {most}"));
        }
        if !self.has_balloon && plug.is_none() {
            return Err(
                "the size of its balloon is not known: it has none, or one without statistics"
                    .to_owned(),
            );
        }
        let requested = self.hotplug.map_or(Bytes::ZERO, |it| it.requested);
        let wanted = match (plug, self.hotplug) {
            (Some(plug), Some(it)) => in_blocks(plug, it.block).unwrap_or(requested),
            _ => requested,
        };
        let mut calls = Vec::new();
        let resize = json!({ "requested_size_mib": wanted.get() >> 20 });
        let resize = Call::send(Method::Patch, HOTPLUG, &resize);
        if wanted > requested {
            calls.push(resize.clone());
        }
        let mut balloon = None;
        if self.has_balloon {
            let left = target.saturating_sub(wanted).min(self.boot);
            if left == Bytes::ZERO {
                return Err(format!(
                    "{wanted} of plugged memory leave nothing of {target} for boot memory"
                ));
            }
            let amount = (self.boot - left).get() >> 20;
            let body = json!({ "amount_mib": amount });
            calls.push(Call::send(Method::Patch, BALLOON, &body));
            balloon = Some(mib(amount));
        }
        if wanted < requested {
            calls.push(resize);
        }
        Ok(Orders { calls, plugged: wanted, balloon })
    }
}

/// `amount` rounded down to whole multiples of `block`; `None` if `block` is zero.
fn in_blocks(amount: Bytes, block: Bytes) -> Option<Bytes> {
    let rest = amount.get().checked_rem(block.get())?;
    Some(Bytes::new(amount.get() - rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(total: u64, block: u64, plugged: u64, requested: u64) -> HotplugStatus {
        HotplugStatus {
            total_size_mib: total,
            block_size_mib: block,
            plugged_size_mib: plugged,
            requested_size_mib: requested,
        }
    }

    fn layout(has_balloon: bool, hotplug_status: Option<HotplugStatus>) -> Layout {
        let hotplug = hotplug_status.and_then(hotplug);
        Layout { boot: Bytes::mib(1024), has_balloon, hotplug }
    }

    fn calls(layout: Layout, target: u64, plug: Option<u64>) -> Vec<String> {
        let orders = layout.orders(Bytes::mib(target), plug.map(Bytes::mib)).unwrap();
        orders.calls.iter().map(|call| format!("{call} {}", call.body)).collect()
    }

    #[test]
    fn memory_is_plugged_in_before_and_out_after_the_balloon() {
        let balloon = |mib: u64| format!("PATCH /balloon {{\"amount_mib\":{mib}}}");
        let hotplug = |mib: u64| format!("PATCH /hotplug/memory {{\"requested_size_mib\":{mib}}}");
        assert_eq!(calls(layout(true, None), 700, None), [balloon(324)]);
        assert_eq!(calls(layout(true, None), 5000, None), [balloon(0)]);
        let plugs = layout(true, Some(status(512, 2, 64, 64)));
        assert_eq!(calls(plugs, 700, None), [balloon(1024 - 636)], "64 stay plugged");
        assert_eq!(calls(plugs, 1153, Some(129)), [hotplug(128), balloon(0)], "in whole blocks");
        assert_eq!(calls(plugs, 1000, Some(0)), [balloon(24), hotplug(0)]);
        let alone = layout(false, Some(status(512, 2, 64, 64)));
        assert_eq!(calls(alone, 1100, Some(76)), [hotplug(76)]);
    }

    #[test]
    fn what_cannot_be_says_why() {
        let why = |layout: Layout, target: u64, plug: Option<u64>| {
            layout.orders(Bytes::mib(target), plug.map(Bytes::mib)).unwrap_err()
        };
        assert_eq!(
            why(layout(false, None), 500, None),
            "the size of its balloon is not known: it has none, or one without statistics"
        );
        assert!(why(layout(true, None), 500, Some(2)).contains("expected at most 0"));
        let plugged = Some(status(512, 2, 512, 512));
        assert!(why(layout(true, plugged), 500, None).contains("leave nothing of 500"));
        assert_eq!(hotplug(status(512, 0, 0, 0)), None, "no block");
    }

    proptest! {
        /// A guest that complies holds its target or all its memory, and never less.
        #[test]
        fn nothing_is_asked_for_below_the_target(
            boot in 1u64..1 << 22,
            has_balloon: bool,
            sizes in prop::option::of((0u64..1 << 20, 0u64..9, 0u64..1 << 20, 0u64..1 << 20)),
            target in 1u64..1 << 31,
            plug in prop::option::of(0u64..1 << 30),
        ) {
            let hotplug = sizes.and_then(|(total, block, plugged, requested)| {
                hotplug(status(total, block, plugged, requested))
            });
            let layout = Layout { boot: Bytes::mib(boot), has_balloon, hotplug };
            let target = Bytes::pages(target);
            let Ok(orders) = layout.orders(target, plug.map(Bytes::pages)) else { return Ok(()) };
            let balloon = orders.balloon.unwrap_or_default();
            prop_assert!(balloon < layout.boot);
            let held = layout.boot - balloon + orders.plugged;
            prop_assert!(held >= target.min(layout.boot + orders.plugged));
            prop_assert!(orders.plugged <= hotplug.map_or(Bytes::ZERO, |it| it.max));
        }
    }
}
