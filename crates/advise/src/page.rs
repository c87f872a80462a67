//! An advice as one self-contained page: nothing is loaded from outside, and no script runs.

use ballast_replay::Advice;
use ballast_report::Report;

use crate::plot::{PLOT_LINES, svg};
use crate::text::AdviceText;

/// Colours and spacing, for light, dark and narrow screens.
const STYLE: &str = include_str!("page.css");

/// The page of `advice` about `journal`; its foot shows `command`, which made it.
pub fn page(journal: &str, advice: &Advice, command: &str) -> String {
    let advice_text = AdviceText::new(advice);
    let mut body = format!(
        "<h1>What balancing would have been worth</h1>\n<p>{}: {}, replayed under {}. Simulated.</p>\n",
        escaped(journal),
        escaped(&advice_text.extent()),
        advice.policy
    );
    body.push_str(&table(&AdviceText::amount_columns(), &advice_text.amounts()));
    body.push_str("<dl>\n");
    for (name, text) in advice_text.facts() {
        let name = if name.is_empty() { String::new() } else { format!("<dt>{name}</dt>") };
        body.push_str(&format!("{name}<dd>{}</dd>\n", escaped(&text)));
    }
    body.push_str("</dl>\n");
    let plot = svg(&advice.course);
    if !plot.is_empty() {
        let keys =
            PLOT_LINES.map(|(class, name, _)| format!("<span class=\"{class}\">{name}</span>"));
        body.push_str(&format!("<h2>All guests</h2>\n<p>{}</p>\n{plot}", keys.join(" ")));
    }
    body.push_str("<h2>Guests</h2>\n");
    body.push_str(&table(&AdviceText::guest_columns(), &advice.guests));
    let findings = advice_text.findings();
    if !findings.is_empty() {
        body.push_str("<h2>What to do</h2>\n<dl>\n");
        for (guest, finding) in findings {
            body.push_str(&format!(
                "<dt>{}</dt><dd>{}<pre>{}</pre></dd>\n",
                escaped(guest.id.as_str()),
                escaped(&finding.to_string()),
                escaped(&finding.remedy(&guest.id))
            ));
        }
        body.push_str("</dl>\n");
    }
    let assumptions = AdviceText::assumptions().map(|text| format!("<li>{}</li>\n", escaped(text)));
    body.push_str("<h2>Assumptions</h2>\n<ul>\n");
    body.extend(assumptions);
    body.push_str("</ul>\n");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Ballast: advice</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\
         <footer>{}</footer>\n</body>\n</html>\n",
        escaped(command)
    )
}

/// The rows as a table, which scrolls on its own on a narrow screen.
fn table<Row>(columns: &Report<'_, Row>, rows: &[Row]) -> String {
    let class = |is_figure: bool| if is_figure { " class=\"figure\"" } else { "" };
    let are_figures: Vec<bool> = columns.heads().map(|(_, is_figure)| is_figure).collect();
    let heads: String = columns
        .heads()
        .map(|(name, is_figure)| format!("<th{}>{}</th>", class(is_figure), escaped(name)))
        .collect();
    let row = |row: &Row| {
        let cells = columns.cells(row).into_iter().zip(&are_figures);
        let cells: String = cells
            .map(|(cell, is_figure)| format!("<td{}>{}</td>", class(*is_figure), escaped(&cell)))
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = rows.iter().map(row).collect();
    format!("<div class=\"wide\"><table>\n<tr>{heads}</tr>\n{rows}</table></div>\n")
}

/// `text` escaped for HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_add_elements() {
        let text = "a<script>\"&\u{1b}";
        assert_eq!(escaped(text), "a&lt;script&gt;&quot;&amp;\u{fffd}");
    }
}
