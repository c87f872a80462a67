//! The series of a simulation as CSV, a line for each policy, guest and point.

use std::io::{self, Write};

use ballast_model::Bytes;
use ballast_report::{Report as Columns, csv_field};
use ballast_sim::{ComparisonReport, GuestReport, Point, PolicyReport};

type PointRow<'a> = (&'a PolicyReport, &'a GuestReport, &'a Point);

/// Writes every series of `report`; times in seconds, sizes in bytes.
///
/// # Errors
/// `out` cannot be written.
pub fn write(report: &ComparisonReport, out: &mut dyn Write) -> io::Result<()> {
    let columns = Columns::<PointRow<'_>>::new()
        .text("policy", |it| it.0.policy.to_string())
        .text("guest", |it| it.1.id.to_string())
        .figure("at_s", |it| it.2.at.as_secs_f64())
        .figure("allocation_bytes", |it| it.2.allocation.get())
        .figure("target_bytes", |it| csv_field(it.2.target.map(Bytes::get)))
        .figure("used_bytes", |it| it.2.used.get())
        .figure("demand_bytes", |it| it.2.demand.get())
        .figure("major_faults", |it| it.2.major_faults)
        .figure("work", |it| it.2.work);
    columns.write_csv_head(out)?;
    let guests =
        report.policies.iter().flat_map(|it| it.guests.iter().map(move |guest| (it, guest)));
    let points =
        guests.flat_map(|(policy, guest)| guest.series.iter().map(move |it| (policy, guest, it)));
    columns.write_csv(points, out)
}
