//! Powers the guest off.

use std::time::Duration;

use rustix::system::RebootCommand;

/// Powers the guest off; does not return.
pub(crate) fn power_off() -> ! {
    loop {
        if let Err(error) = rustix::system::reboot(RebootCommand::PowerOff) {
            eprintln!("lab-guest: cannot power off: {error}");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
