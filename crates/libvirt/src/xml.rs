//! Elements of XML by their names, and sizes in them.
//!
//! Source: libvirt's domain format, "Memory Allocation". Limits: names without a namespace.

use ballast_model::Bytes;
use roxmltree::Node;

pub(crate) fn children<'a, 'input>(
    of: Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    of.children().filter(move |node| node.has_tag_name(name))
}

pub(crate) fn child<'a, 'input>(
    of: Node<'a, 'input>,
    name: &'static str,
) -> Option<Node<'a, 'input>> {
    children(of, name).next()
}

/// A size with its unit, which is KiB in what libvirt writes.
pub(crate) fn size(node: Node<'_, '_>) -> Option<Bytes> {
    let number: u64 = node.text()?.trim().parse().ok()?;
    let unit = match node.attribute("unit").unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KiB" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit).map(Bytes::new)
}
