//! A host with a store in memory on a socket, and with an `xl` whose output a test determines.

mod ground;
mod orders;
mod sampling;
mod squeezed;
mod trouble;

use ground::{Ground, available, holds, link};
