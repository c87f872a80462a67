//! How libvirt names a domain.

use crate::xdr::{XdrError, XdrReader, XdrWriter};

/// A domain, as libvirt names it in calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// Its UUID, which stays when the domain is renamed.
    pub uuid: [u8; 16],
    /// Its ID, which changes each time the domain is started.
    pub id: i32,
}

impl Domain {
    pub(crate) fn read(from: &mut XdrReader<'_>) -> Result<Domain, XdrError> {
        Ok(Domain {
            name: from.text("a domain's name")?.to_owned(),
            uuid: from.fixed("a domain's UUID")?,
            id: from.i32("a domain's ID")?,
        })
    }

    /// Its UUID as text, as in the command line of its hypervisor.
    pub fn uuid_text(&self) -> String {
        let mut text = String::with_capacity(36);
        for (place, byte) in self.uuid.iter().enumerate() {
            if [4, 6, 8, 10].contains(&place) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }

    pub(crate) fn written(&self) -> XdrWriter {
        XdrWriter::default().text(&self.name).fixed(&self.uuid).i32(self.id)
    }
}
