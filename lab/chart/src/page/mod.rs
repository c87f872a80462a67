//! What every page has: one document with style and script inside, for light, dark and print.
//!
//! Idea: everything is in the page itself, so that it can be kept, mailed and printed, and opened in
//! ten years.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::commands::harmless_line;

const BASE: &str = include_str!("base.css");

/// A whole page: `body` under the common style and `style`, with `script` at its end.
pub(crate) fn document(title: &str, style: &str, script: &str, body: &Markup) -> String {
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

/// The section that says what the words of a page mean.
pub(crate) fn how_to_read(terms: &[(&str, &str)]) -> Markup {
    html! {
        section.explain {
            h2 { "How to read this" }
            dl { @for (term, text) in terms { dt { (term) } dd { (text) } } }
        }
    }
}

/// The section that says by which command a page came about.
pub(crate) fn what_was_run(command: &str) -> Markup {
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
