//! A hypervisor's reports on a migration and on the pages that its guest writes: any text is
//! refused or gives bounded figures and printable words.
#![no_main]

use ballast_fuzz::assert_harmless;
use ballast_model::Bytes;
use ballast_qmp::migration::{DirtyRate, GuestMigration, MigrationProgress, Origin};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(DirtyRate::Measured { per_s }) = DirtyRate::parse(text) {
        assert!(per_s <= Bytes::gib(1024));
    }
    let Ok(progress) = MigrationProgress::parse(text) else { return };
    assert_harmless(progress.error.as_deref().unwrap_or_default(), 300);
    assert!(progress.bandwidth_per_s().is_none() || progress.sent > Bytes::ZERO);
    for run_state in ["running", "paused", "inmigrate", "postmigrate", "finish-migrate"] {
        let found = GuestMigration::of(run_state, &progress, Origin::default());
        assert!(found != GuestMigration::Loaded, "nobody has listened");
    }
});
