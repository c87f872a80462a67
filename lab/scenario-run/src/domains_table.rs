//! The memory of guests that are Xen domains, as the hypervisor shows it before and after a run.
//!
//! Idea: the daemon sets a domain's memory by writing to xenstore; only the hypervisor shows
//! whether the domain followed. Limits: whole MiB, as `xl list` prints them.

use super::figures::size;
use super::record::{DomainRecord, Record, RunRecord};
use ballast_report::Report;

type DomainRow<'a> = (&'a RunRecord, &'a DomainRecord);

fn rows(record: &Record) -> impl Iterator<Item = DomainRow<'_>> {
    record.runs.iter().flat_map(|run| run.domains.iter().map(move |domain| (run, domain)))
}

/// The table for a terminal; empty if the guests are no Xen domains.
pub(super) fn render(record: &Record) -> String {
    if rows(record).next().is_none() {
        return String::new();
    }
    let report = Report::<DomainRow<'_>>::new()
        .text("policy", |it| it.0.name(record))
        .text("guest", |it| it.1.guest.clone())
        .figure("at the start", |it| size(it.1.start_bytes as f64))
        .figure("at the end", |it| size(it.1.end_bytes as f64));
    format!(
        "\nWhat the guests have, says the hypervisor (xl list):\n{}",
        report.in_capitals().table(rows(record), None)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use expect_test::expect;

    #[test]
    fn a_line_for_each_domain_of_each_run() {
        let mut record = fixture::record(&[("static", &[100]), ("global", &[250])]);
        assert_eq!(render(&record), "");
        let domain = |guest: &str, start_mib: u64, end_mib: u64| DomainRecord {
            guest: guest.to_owned(),
            start_bytes: start_mib << 20,
            end_bytes: end_mib << 20,
        };
        record.runs[1].domains = vec![domain("a", 256, 341), domain("b", 256, 171)];
        expect![[r#"

            What the guests have, says the hypervisor (xl list):
            POLICY  GUEST  AT THE START  AT THE END
            global  a            256MiB      341MiB
            global  b            256MiB      171MiB
        "#]]
        .assert_eq(&render(&record));
    }
}
