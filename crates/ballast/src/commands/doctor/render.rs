//! A diagnosis as text: a table for each area. Findings that are not fine also have the reason and
//! the command that fixes them.
//!
//! Limits: all that is fine about one guest shares a row, so that the rest stands out.

use ballast_report::{Report, harmless_line};

use super::finding::{Area, Finding, Severity};

struct DoctorRow {
    what: String,
    severity: &'static str,
    text: String,
}

/// All findings, wrapped to `width` columns if given.
pub(super) fn render(findings: &[Finding], width: Option<u16>) -> String {
    let areas = [Area::Host, Area::Hypervisors, Area::Guests, Area::Owners, Area::Permissions];
    let mut text = String::new();
    for area in areas {
        let of_area: Vec<&Finding> = findings.iter().filter(|it| it.area == area).collect();
        if of_area.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        let heading = area.as_str().to_uppercase();
        let table = Report::<DoctorRow>::new()
            .text(&heading, |row| row.what.clone())
            .text("", |row| row.severity)
            .text("", |row| row.text.clone());
        text.push_str(&table.table(rows(&of_area), width));
    }
    text.push_str(&format!("\n{}\n", count(findings)));
    text
}

fn rows(findings: &[&Finding]) -> Vec<DoctorRow> {
    let mut rows = Vec::new();
    for group in findings.chunk_by(|a, b| a.subject == b.subject) {
        match &group[0].subject {
            Some(guest) if group[0].area == Area::Guests => rows.extend(guest_rows(guest, group)),
            _ => {
                for finding in group {
                    rows.extend(finding_rows(finding, place(finding)));
                }
            }
        }
    }
    rows
}

/// The topic, and the name of the subject.
fn place(finding: &Finding) -> String {
    match &finding.subject {
        None => finding.topic.to_owned(),
        Some(subject) => format!("{} {}", finding.topic, harmless_line(subject)),
    }
}

fn guest_rows(guest: &str, findings: &[&Finding]) -> Vec<DoctorRow> {
    let (well, other): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().copied().partition(|it| it.severity == Severity::Ok);
    let described = |it: &&Finding| format!("{}: {}", it.topic, harmless_line(&it.found));
    let well: Vec<String> = well.iter().map(described).collect();
    let mut rows = Vec::new();
    if !well.is_empty() {
        let severity = Severity::Ok.as_str();
        rows.push(DoctorRow { what: harmless_line(guest), severity, text: well.join("; ") });
    }
    for finding in other {
        rows.extend(finding_rows(finding, format!("{} {}", harmless_line(guest), finding.topic)));
    }
    rows
}

fn finding_rows(finding: &Finding, what: String) -> Vec<DoctorRow> {
    let severity = finding.severity.as_str();
    let mut rows = vec![DoctorRow { what, severity, text: harmless_line(&finding.found) }];
    if finding.severity == Severity::Ok {
        return rows;
    }
    let mut more = |text: String| rows.push(DoctorRow { what: String::new(), severity: "", text });
    more(finding.why.to_owned());
    if let Some(remedy) = &finding.remedy {
        more(format!("  $ {}", harmless_line(remedy)));
    }
    rows
}

/// How many findings there are of each severity, the worst first.
fn count(findings: &[Finding]) -> String {
    let mut parts = Vec::new();
    for (severity, one, many) in [
        (Severity::Problem, "problem", "problems"),
        (Severity::Warning, "warning", "warnings"),
        (Severity::Note, "note", "notes"),
    ] {
        let count = findings.iter().filter(|it| it.severity == severity).count();
        match count {
            0 => {}
            1 => parts.push(format!("1 {one}")),
            _ => parts.push(format!("{count} {many}")),
        }
    }
    if parts.is_empty() { "all is well".to_owned() } else { parts.join(", ") }
}
