//! Tests of the manual pages and completions that are packaged.

use std::fs;
use std::process::{Command, Stdio};

#[path = "../../examples/pages/render.rs"]
mod render;

/// `man` can read every manual page, and each shell can read its completions.
#[test]
fn pages_and_completions_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    render::write(folder.path()).unwrap();
    let mut pages = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(!path.to_str().unwrap().contains("-help"), "{}", path.display());
        assert!(fs::metadata(&path).unwrap().len() > 0, "{}", path.display());
        let mut check = match path.extension().and_then(|it| it.to_str()) {
            Some("1") => {
                pages += 1;
                let mut check = Command::new("groff");
                check.args(["-man", "-Kutf8", "-ww", "-z", "-Tutf8"]);
                check
            }
            Some("bash") => {
                let mut check = Command::new("bash");
                check.arg("-n");
                check
            }
            _ => continue,
        };
        match check.arg(&path).stdin(Stdio::null()).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && said.is_empty(), "{}: {said}", path.display());
            }
            Err(error) => println!("SKIPPED: {check:?}: {error}"),
        }
    }
    assert!(pages > 40, "{pages}");
    for name in ["ballast.1", "ballast-status.1", "ballast-lab.1", "_ballast", "ballast.fish"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
    for name in ["ballast-fleet-drain.1", "_ballast-fleet", "ballast-fleet.bash"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
    let page = fs::read_to_string(folder.path().join("ballast-fleet.1")).unwrap();
    assert!(page.contains("ballast\\-fleet\\-drain"), "that of the program: {page}");
}
