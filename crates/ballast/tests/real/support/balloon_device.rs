//! A guest's balloon device, used by root in the guest instead of its driver.
//!
//! Idea: a balloon's size is a field of the device (`actual`) that the guest writes. Every virtio
//! device on PCI has a capability through which its fields can be accessed from its configuration
//! space, and the kernel lets root write there whether or not a driver uses the device. So a guest
//! can lie, or keep interrupts from its driver, with a shell and without a kernel module.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.1, 4.1.4 and 5.5.4; PCI Local Bus 3.0, 6.2.2.
//! Limits: one device per guest, with interrupts by pin, as QEMU's have; nobody else may use the
//! capability meanwhile.

use super::Lab;

/// Bytes of configuration space that contain capabilities.
const SPACE: usize = 256;
/// Offset of the field with the offset of the first capability.
const FIRST_CAPABILITY: usize = 0x34;
const VENDOR: u8 = 0x09;
/// Kinds of virtio's own capabilities: the place of the device's fields, and the access to memory
/// by configuration space (`VIRTIO_PCI_CAP_PCI_CFG`).
const DEVICE_CFG: u8 = 4;
const PCI_CFG: u8 = 5;
/// Offsets in such a capability: its kind, the memory region of the device, the offset in that, the
/// number of bytes, and (for access) the bytes.
const KIND: usize = 3;
const BAR: usize = 4;
const OFFSET: usize = 8;
const LENGTH: usize = 12;
const DATA: usize = 16;
/// Offsets of the device's fields, of four bytes each: pages asked for (`num_pages`), and pages
/// that the guest claims to have given (`actual`).
const NUM_PAGES: u32 = 0;
const ACTUAL: u32 = 4;
/// The command register, and the bit in it that disables the device's interrupts.
const COMMAND: usize = 0x04;
const INTERRUPTS_OFF: u16 = 0x0400;

/// The balloon device of one guest.
pub struct BalloonDevice<'a> {
    lab: &'a Lab,
    guest: &'static str,
    /// The file in the guest with the device's configuration space.
    file: String,
    /// Offset in that of the capability for access.
    pci_cfg: usize,
    /// The value of the command register that its driver has set.
    command: u16,
    /// Offset of the fields in the device's memory.
    fields: u32,
}

impl<'a> BalloonDevice<'a> {
    /// Finds the device; it may have a driver or none.
    pub fn find(lab: &'a Lab, guest: &'static str) -> BalloonDevice<'a> {
        let found = lab.shell(
            guest,
            "for d in /sys/bus/virtio/devices/*; do \
             [ $(cat $d/device) != 0x0005 ] || readlink -f $d/..; done",
        );
        let file = format!("{}/config", found.trim());
        let dump = lab.shell(guest, &format!("od -A n -v -t x1 -N {SPACE} {file}"));
        let byte = |text| u8::from_str_radix(text, 16).unwrap();
        let space: Vec<u8> = dump.split_whitespace().map(byte).collect();
        assert_eq!(space.len(), SPACE, "{file}: {dump}");
        let place = |kind| capability(&space, kind).expect("a capability of virtio");
        let (fields, pci_cfg) = (place(DEVICE_CFG), place(PCI_CFG));
        let device = BalloonDevice {
            lab,
            guest,
            pci_cfg,
            command: u16::from_le_bytes([space[COMMAND], space[COMMAND + 1]]),
            fields: u32::from_le_bytes(space[fields + OFFSET..][..4].try_into().unwrap()),
            file,
        };
        // Access to the same memory region, four bytes at a time.
        let script = [
            device.put(pci_cfg + BAR, &space[fields + BAR..][..1]),
            device.put(pci_cfg + LENGTH, &4_u32.to_le_bytes()),
        ];
        lab.shell(guest, &script.join("; "));
        device
    }

    /// The guest claims to have given this many pages, whatever it has given.
    pub fn claim_actual(&self, pages: u32) {
        let script =
            [self.select(ACTUAL), self.put(self.pci_cfg + DATA, &pages.to_le_bytes())].join("; ");
        self.lab.shell(self.guest, &script);
    }

    /// From now on the guest claims at once to have given whatever it is asked for. The device must
    /// have no driver.
    pub fn claim_every_target(&self) {
        let data = (self.pci_cfg + DATA) / 4;
        let (asked, given) = (self.select(NUM_PAGES), self.select(ACTUAL));
        let file = &self.file;
        let read = format!("dd if={file} bs=4 skip={data} count=1 of=/tmp/asked");
        let write = format!("dd if=/tmp/asked of={file} bs=4 seek={data} conv=notrunc");
        let round = format!("{asked}; {read}; {given}; {write}; sleep 0.1");
        let line = format!("(while true; do {round}; done) </dev/null >/dev/null 2>&1 &");
        self.lab.shell(self.guest, &line);
    }

    /// The driver no longer gets interrupts of the device.
    pub fn mask_interrupts(&self) {
        let command = self.command | INTERRUPTS_OFF;
        self.lab.shell(self.guest, &self.put(COMMAND, &command.to_le_bytes()));
    }

    /// The driver gets interrupts again, also a pending one.
    pub fn unmask_interrupts(&self) {
        self.lab.shell(self.guest, &self.put(COMMAND, &self.command.to_le_bytes()));
    }

    /// A line of shell that directs the access to one of the device's fields.
    fn select(&self, field: u32) -> String {
        self.put(self.pci_cfg + OFFSET, &(self.fields + field).to_le_bytes())
    }

    /// A line of shell that writes `bytes` into configuration space, in one access.
    fn put(&self, place: usize, bytes: &[u8]) -> String {
        let (size, file) = (bytes.len(), &self.file);
        assert_eq!(place % size, 0, "aligned");
        let text: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
        let to = format!("of={file} bs={size} seek={} conv=notrunc", place / size);
        format!("printf '{text}' | dd {to} 2>/dev/null")
    }
}

/// The offset of virtio's first capability of this kind.
fn capability(space: &[u8], kind: u8) -> Option<usize> {
    let mut place = usize::from(space[FIRST_CAPABILITY]);
    // Bounds the loop: there is no room for a longer list.
    for _ in 0..SPACE / 4 {
        if place == 0 {
            return None;
        }
        if space[place] == VENDOR && space[place + KIND] == kind {
            return Some(place);
        }
        place = usize::from(space[place + 1]);
    }
    None
}
