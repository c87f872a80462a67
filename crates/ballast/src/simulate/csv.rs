//! The series of a simulation as CSV, a line for each policy, guest and point.

use std::io::{self, Write};

use ballast_model::Bytes;
use ballast_sim::Report;

use crate::csv::quoted;

/// Writes every series of `report`; times in seconds, sizes in bytes.
pub(crate) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "policy,guest,at_s,allocation_bytes,target_bytes,used_bytes,demand_bytes,major_faults,work"
    )?;
    for policy in &report.policies {
        for guest in &policy.guests {
            for point in &guest.series {
                writeln!(
                    out,
                    "{},{},{},{},{},{},{},{},{}",
                    quoted(policy.policy.as_str()),
                    quoted(guest.id.as_str()),
                    point.at.as_secs_f64(),
                    point.allocation.get(),
                    point.target.map(Bytes::get).map(|it| it.to_string()).unwrap_or_default(),
                    point.used.get(),
                    point.demand.get(),
                    point.major_faults,
                    point.work
                )?;
            }
        }
    }
    Ok(())
}
