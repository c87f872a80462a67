//! The parts that every page has: one document that includes its style and script, for light, dark
//! and print.
//!
//! Idea: everything is in the page itself, so that it can be kept, mailed and printed, and opened
//! in ten years.

use std::borrow::Borrow;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use ballast_report::{Report, harmless_line};

const BASE: &str = include_str!("base.css");

/// A whole page: `body`, with the common style and `style`, and with `script` at its end.
pub fn document(title: &str, style: &str, script: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Ballast · " (title) }
                style { (PreEscaped(BASE)) (PreEscaped(style)) }
            }
            body { (body) script { (PreEscaped(script)) } }
        }
    };
    page.into_string()
}

/// A table of `rows` with the columns of `report`.
pub fn table<Row: ?Sized, R: Borrow<Row>>(
    report: &Report<'_, Row>,
    rows: impl IntoIterator<Item = R>,
) -> Markup {
    let class = |is_figure: bool| is_figure.then_some("number");
    html! {
        div.wide {
            table {
                thead { tr {
                    @for (name, is_figure) in report.heads() { th class=[class(is_figure)] { (name) } }
                } }
                tbody { @for row in rows { tr {
                    @for (cell, (_, is_figure)) in report.cells(row.borrow()).iter().zip(report.heads()) {
                        td class=[class(is_figure)] { (cell) }
                    }
                } } }
            }
        }
    }
}

/// The section that explains the words of a page.
pub fn how_to_read(terms: &[(&str, &str)]) -> Markup {
    html! {
        section.explain {
            h2 { "How to read this" }
            dl { @for (term, text) in terms { dt { (term) } dd { (text) } } }
        }
    }
}

/// The section with the command that made the page.
pub fn what_was_run(command: &str) -> Markup {
    html! {
        section.facts {
            h2 { "What was run" }
            dl {
                dt { "command" }
                dd { code { (harmless_line(command)) } }
                dt { "Ballast" }
                dd { (env!("CARGO_PKG_VERSION")) }
            }
        }
    }
}
