//! A host with a store in memory on a socket, and with an `xl` whose output a test determines.

mod fake_xen;
mod orders;
mod sampling;
mod squeezed;
mod trouble;

use fake_xen::{FakeXen, available, holds, link};
