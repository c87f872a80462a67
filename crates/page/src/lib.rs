//! The files of the page that the daemon serves.
//!
//! Idea: plain modules of JavaScript, one for each view, in `web/`; no framework, no step of a
//! build but compression. They show what the API says, by the names that `ballast top` uses, and
//! are compressed when this crate is compiled, so that serving one copies it.
//!
//! Source: `web/uplot.js` and `web/uplot.css` are those of uPlot 1.6.32 as published, MIT
//! (`web/uplot-license.txt`).

#![forbid(unsafe_code)]

/// One file of the page.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Its name, without a folder.
    pub name: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Its content, compressed by gzip.
    pub gzip: &'static [u8],
}

/// The file that a browser asks for first.
pub const INDEX: &str = "index.html";

/// Every file, sorted by name.
pub static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The file of this name. O(log n).
pub fn file(name: &str) -> Option<&'static File> {
    FILES.binary_search_by(|file| file.name.cmp(name)).ok().map(|at| &FILES[at])
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn text(file: &File) -> String {
        let mut text = String::new();
        flate2::read::GzDecoder::new(file.gzip).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn every_file_that_the_page_refers_to_is_there() {
        for of in FILES.iter().filter(|file| !file.name.starts_with("uplot")) {
            let text = text(of);
            for (at, _) in text.match_indices("/page/files/") {
                let name = &text[at + "/page/files/".len()..];
                let name = &name[..name.find(['"', '\'']).unwrap()];
                assert!(file(name).is_some(), "{} refers to {name}", of.name);
            }
            for import in text.lines().filter(|line| line.starts_with("import ")) {
                let name = import.split("\"./").nth(1).unwrap().split('"').next().unwrap();
                assert!(file(name).is_some(), "{} imports {name}", of.name);
            }
        }
    }

    #[test]
    fn nothing_is_asked_of_other_servers() {
        for of in FILES.iter().filter(|file| !file.name.starts_with("uplot")) {
            let text = text(of).replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://"), "{} names an address", of.name);
        }
    }

    #[test]
    fn no_text_of_guests_can_become_markup() {
        let markup = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"];
        for of in FILES.iter().filter(|file| file.name != "uplot.js") {
            let text = text(of);
            assert!(markup.iter().all(|word| !text.contains(word)), "{}", of.name);
        }
    }

    #[test]
    fn all_files_together_stay_small() {
        let all: usize = FILES.iter().map(|file| file.gzip.len()).sum();
        assert!(all < 64 << 10, "{all} bytes");
        assert!(file(INDEX).is_some() && file("nothing").is_none());
    }
}
