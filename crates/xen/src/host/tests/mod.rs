//! A host over a store in memory on a socket, and an `xl` that prints what a test wants.

mod ground;
mod orders;
mod sampling;
mod squeezed;
mod trouble;

use ground::{Ground, available, holds, link};
