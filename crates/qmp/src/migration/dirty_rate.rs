//! How fast a guest writes to its memory, as its QEMU measures it.
//!
//! Idea: QEMU takes checksums of pages picked at random, and again after a second: how many differ
//! says how much was written. The guest runs on untouched, by whatever accelerator. That has to be
//! known before a copy: a guest that writes faster than can be copied never arrives.
//! Source: `calc-dirty-rate` and `query-dirty-rate` in `qapi/migration.json` of QEMU 7.2, mode
//! `page-sampling` (QEMU 6.2 and later); `migration/dirtyrate.c`.
//! Limits: whole MiB a second. A page that was written many times counts once, as in a copy; one
//! that is written with what it has counts for nothing. Memory of less than 128 KiB in a block is
//! not looked at. The error is that of [`SAMPLED_PER_GIB`] pages in a GiB.

use std::time::Duration;

use ballast_model::Bytes;
use serde::Deserialize;

/// How long it is measured.
pub const MEASURED_FOR: Duration = Duration::from_secs(1);
/// Pages looked at in a GiB: 4 MiB of checksums, twice; within 2 % of memory with 95 % certainty.
pub const SAMPLED_PER_GIB: u32 = 1024;
/// Most MiB a second that are believed: no machine writes a TiB in a second.
const MIB_PER_S_MAX: i64 = 1 << 20;

/// What QEMU says of its last measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyRate {
    /// There was none, or no figure came of it.
    Nothing,
    /// It is under way.
    UnderWay,
    /// It is over.
    Measured {
        /// Memory that the guest has written in a second.
        per_s: Bytes,
    },
}

#[derive(Deserialize)]
struct RateReply<'a> {
    #[serde(borrow)]
    status: std::borrow::Cow<'a, str>,
    #[serde(default, rename = "dirty-rate")]
    mib_per_s: Option<i64>,
}

impl DirtyRate {
    /// Reads what `query-dirty-rate` returned. A figure that cannot be is none.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(json: &str) -> Result<DirtyRate, serde_json::Error> {
        let reply: RateReply<'_> = serde_json::from_str(json)?;
        let believed = reply.mib_per_s.filter(|rate| (0..=MIB_PER_S_MAX).contains(rate));
        let believed = believed.and_then(|rate| u64::try_from(rate).ok());
        Ok(match (&*reply.status, believed) {
            ("measured", Some(mib)) => DirtyRate::Measured { per_s: Bytes::mib(mib) },
            ("measuring", _) => DirtyRate::UnderWay,
            _ => DirtyRate::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replies_before_during_and_after_are_told_apart() {
        let reply = |status: &str, rate: &str| {
            DirtyRate::parse(&format!(
                r#"{{"status":"{status}",{rate}"start-time":7,"calc-time":1,"sample-pages":1024,
                    "mode":"page-sampling"}}"#
            ))
            .unwrap()
        };
        let measured = |mib| DirtyRate::Measured { per_s: Bytes::mib(mib) };
        for (status, rate, expected) in [
            ("unstarted", "", DirtyRate::Nothing),
            ("measuring", "", DirtyRate::UnderWay),
            // The last one's figure, as the next is under way.
            ("measuring", r#""dirty-rate":5,"#, DirtyRate::UnderWay),
            ("measured", r#""dirty-rate":0,"#, measured(0)),
            ("measured", r#""dirty-rate":108,"#, measured(108)),
            ("measured", r#""dirty-rate":-1,"#, DirtyRate::Nothing),
            ("measured", r#""dirty-rate":1048577,"#, DirtyRate::Nothing),
            ("measured", "", DirtyRate::Nothing),
            ("later", r#""dirty-rate":5,"#, DirtyRate::Nothing),
        ] {
            assert_eq!(reply(status, rate), expected, "{status} {rate}");
        }
        assert!(DirtyRate::parse("{}").is_err());
    }

    proptest! {
        #[test]
        fn no_reply_breaks_the_parser(text in ".*", status in ".*", rate in any::<i64>()) {
            let reply = serde_json::json!({ "status": status, "dirty-rate": rate });
            let measured = serde_json::json!({ "status": "measured", "dirty-rate": rate });
            for json in [text, reply.to_string(), measured.to_string()] {
                if let Ok(DirtyRate::Measured { per_s }) = DirtyRate::parse(&json) {
                    prop_assert!(per_s <= Bytes::gib(1024));
                }
            }
        }
    }
}
