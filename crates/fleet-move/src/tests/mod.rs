//! Tests of the roles: each by itself, and together in every order of events.

mod cases;
mod every_order;
mod explore;
mod random_order;
mod world;
