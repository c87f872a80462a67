//! The integration tests of `ballast-policy`.

mod dense_solve;
mod fairness;
mod flexmemd;
mod properties;
mod tables;
