//! Times of both solvers on instances.

use anyhow::ensure;
use ballast_policy::meb::{dynamic_programme, exact};

use super::curves::{Curves, CurvesName};
use super::report::{Figures, Times};
use super::setup::Setup;
use crate::scaffold::name_of;
use crate::timing::timed;

/// Runs both solvers on instances of one kind of curves.
///
/// # Errors
/// They disagree.
pub(super) fn measure(
    setup: &Setup,
    curves: &Curves,
    name: CurvesName,
    instances: usize,
    repetitions: usize,
) -> anyhow::Result<Figures> {
    let (mut exact, mut program) = (Times::default(), Times::default());
    for number in 0..instances {
        let instance = setup.instance(curves, name, number)?;
        let (expected, taken) = timed(|| dynamic_programme::solve(&instance));
        program.push(&[taken]);
        let mut runs = Vec::with_capacity(repetitions);
        for _ in 0..repetitions {
            let (found, taken) = timed(|| exact::solve(&instance));
            ensure!(
                found == expected,
                "{}, {}, instance {number}: the solvers disagree: one of them is wrong",
                setup.name,
                name_of(name)
            );
            runs.push(taken);
        }
        exact.push(&runs);
    }
    Ok(Figures::new(setup, name, &exact, &program))
}
