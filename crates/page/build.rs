//! Compresses the files of `web/` once, for all browsers that will ask for them.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Types by the end of a file's name; a file of another type does not belong there.
const TYPES: [(&str, &str); 5] = [
    ("html", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain; charset=utf-8"),
];

fn main() {
    println!("cargo::rerun-if-changed=web");
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    let mut names: Vec<String> = fs::read_dir("web")
        .expect("the folder is beside this file")
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("in UTF-8"))
        .collect();
    names.sort();
    let mut table = String::from("&[\n");
    for name in names {
        let ends = |(end, _): &&(&str, &str)| name.ends_with(&format!(".{end}"));
        let (_, content_type) = TYPES.iter().find(ends).expect("a file of a known type");
        let text = fs::read(Path::new("web").join(&name)).expect("it can be read");
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&text).expect("into memory");
        let to = Path::new(&out).join(format!("{name}.gz"));
        fs::write(&to, packed.finish().expect("into memory")).expect("cargo made the folder");
        table += &format!(
            "File {{ name: {name:?}, content_type: {content_type:?}, gzip: include_bytes!({to:?}) }},\n"
        );
    }
    fs::write(Path::new(&out).join("files.rs"), table + "]").expect("cargo made the folder");
}
