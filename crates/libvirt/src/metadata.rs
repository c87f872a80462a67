//! The settings kept with a domain: an element of ours in its `<metadata>`.
//!
//! Idea: one element in a namespace of its own, with one child for each setting. A wrong setting is
//! reported by name, and the others still count. Source: libvirt's domain format, on custom
//! metadata.
//! Limits: a text of at most [`TEXT_MAX`] bytes; whole sizes, as everywhere in Ballast.

use std::fmt::Display;
use std::str::FromStr;

use ballast_model::{GuestChange, GuestLimits};
use roxmltree::Node;

/// The namespace of the element.
pub const NAMESPACE: &str = "urn:ballast:guest:1";
/// The prefix that the element is written with.
pub(crate) const PREFIX: &str = "ballast";
/// The element's name.
const ELEMENT: &str = "guest";
/// Longest text of a setting, in bytes.
const TEXT_MAX: usize = 100;

const SIZE: &str = "a size such as 512MiB";
const FLAG: &str = "true or false";

/// Our element in `<metadata>`.
pub(crate) fn element<'a, 'input>(metadata: Node<'a, 'input>) -> Option<Node<'a, 'input>> {
    let is_ours =
        |node: &Node<'_, '_>| node.is_element() && node.tag_name().namespace() == Some(NAMESPACE);
    metadata.children().find(is_ours)
}

/// Reads the element; also returns its problems.
pub(crate) fn read(element: Node<'_, '_>) -> (GuestChange, Vec<String>) {
    let mut parser = SettingsParser::default();
    if element.tag_name().name() != ELEMENT {
        let name = element.tag_name().name();
        parser.complain(format!("element <{name}>: expected <{ELEMENT}>"));
        return (parser.change, parser.complaints);
    }
    for child in element.children().filter(Node::is_element) {
        parser.parse(child.tag_name().name(), child.text().unwrap_or_default().trim());
    }
    (parser.change, parser.complaints)
}

/// The element with these settings, without the namespace, which libvirt adds.
pub(crate) fn write(settings: &GuestChange) -> String {
    // Settings that libvirt keeps are a layer, which unsets nothing.
    let GuestChange {
        floor,
        ceiling,
        ceiling_unset: _,
        shares,
        priority,
        miss_rate_max,
        managed,
        take_over,
    } = settings;
    let mut element = format!("<{ELEMENT}>");
    // No value has a character that XML would escape.
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            element.push_str(&format!("<{name}>{value}</{name}>"));
        }
    };
    add("floor", floor.map(|it| format!("{it:#}")));
    add("ceiling", ceiling.map(|it| format!("{it:#}")));
    add("shares", shares.map(|it| it.to_string()));
    add("priority", priority.map(|it| it.to_string()));
    add("miss-rate-max", miss_rate_max.map(|it| it.to_string()));
    add("managed", managed.map(|it| it.to_string()));
    add("take-over", take_over.map(|it| it.to_string()));
    element.push_str(&format!("</{ELEMENT}>"));
    element
}

/// Parses settings, and keeps them and the complaints so far.
#[derive(Debug, Default)]
struct SettingsParser {
    change: GuestChange,
    complaints: Vec<String>,
}

impl SettingsParser {
    fn complain(&mut self, what: String) {
        self.complaints.push(format!("settings in its metadata ({NAMESPACE}): {what}"));
    }

    /// Parses one setting.
    fn parse(&mut self, name: &str, text: &str) {
        match name {
            "floor" => self.change.floor = self.value(name, text, SIZE),
            "ceiling" => self.change.ceiling = self.value(name, text, SIZE),
            "shares" => {
                let expected = "a number from 1 to 1000000";
                let shares = self.value(name, text, expected);
                let can_be = |it: &u32| (1..=GuestLimits::SHARES_MAX).contains(it);
                self.change.shares = shares.filter(can_be);
                if shares.is_some_and(|it| !can_be(&it)) {
                    self.complain(complaint(name, text, expected));
                }
            }
            "priority" => self.change.priority = self.value(name, text, "a number from 0 to 255"),
            "miss-rate-max" => {
                let expected = "misses a second, a number; 0: none";
                self.change.miss_rate_max = self.value(name, text, expected);
            }
            "managed" => self.change.managed = self.value(name, text, FLAG),
            "take-over" => self.change.take_over = self.value(name, text, FLAG),
            _ => {
                let name: String = name.chars().take(TEXT_MAX).collect();
                self.complain(format!(
                    "<{name}> is unknown: expected floor, ceiling, shares, priority, miss-rate-max, \
                     managed or take-over"
                ));
            }
        }
    }

    fn value<T: FromStr<Err: Display>>(
        &mut self,
        name: &str,
        text: &str,
        expected: &str,
    ) -> Option<T> {
        let value = text.parse().ok().filter(|_| text.len() <= TEXT_MAX);
        if value.is_none() {
            self.complain(complaint(name, text, expected));
        }
        value
    }
}

fn complaint(name: &str, text: &str, expected: &str) -> String {
    let text: String = text.chars().take(TEXT_MAX).collect();
    format!("<{name}> is `{}`: expected {expected}", text.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_model::Bytes;
    use proptest::prelude::*;

    fn read_text(element: &str) -> (GuestChange, Vec<String>) {
        let xml = format!("<metadata>{element}</metadata>");
        let document = roxmltree::Document::parse(&xml).unwrap();
        super::element(document.root_element()).map(read).unwrap_or_default()
    }

    #[test]
    fn mistakes_are_named_and_the_rest_counts() {
        let (change, complaints) = read_text(
            "<other xmlns='urn:other'><floor>1GiB</floor></other>\
             <b:guest xmlns:b='urn:ballast:guest:1'><b:floor> 512MiB </b:floor>\
             <b:ceiling>lots</b:ceiling><shares>0</shares><b:priority>7</b:priority>\
             <b:colour>red</b:colour><b:managed>maybe</b:managed></b:guest>",
        );
        let expected = GuestChange {
            floor: Some(Bytes::mib(512)),
            priority: Some(7),
            ..GuestChange::default()
        };
        assert_eq!(change, expected);
        let parts =
            ["<ceiling> is `lots`: expected a size", "<shares> is `0`", "<colour> is unknown"];
        for (complaint, part) in complaints.iter().zip(parts) {
            assert!(complaint.contains(part), "{complaint}");
        }
        assert!(complaints[3].contains("<managed> is `maybe`: expected true or false"));
        assert_eq!(complaints.len(), 4);
    }

    #[test]
    fn another_element_of_the_namespace_is_refused() {
        let (change, complaints) =
            read_text("<vm xmlns='urn:ballast:guest:1'><floor>1GiB</floor></vm>");
        assert!(change.is_empty() && complaints[0].contains("expected <guest>"), "{complaints:?}");
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            sizes in (any::<Option<u32>>(), any::<Option<u64>>()),
            shares in prop::option::of(1..=1_000_000_u32),
            rest in any::<(Option<u8>, Option<u64>, Option<bool>, Option<bool>)>(),
        ) {
            let settings = GuestChange {
                floor: sizes.0.map(|it| Bytes::new(it.into())),
                ceiling: sizes.1.map(Bytes::new),
                shares,
                priority: rest.0,
                miss_rate_max: rest.1,
                managed: rest.2,
                take_over: rest.3,
                ..GuestChange::default()
            };
            let element = write(&settings).replacen("<guest>", "<guest xmlns='urn:ballast:guest:1'>", 1);
            prop_assert_eq!(read_text(&element), (settings, Vec::new()));
        }
    }
}
