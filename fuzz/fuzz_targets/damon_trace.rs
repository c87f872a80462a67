//! DAMON's output in tracefs: any text gives whole windows or none, and the same ones for any
//! pieces.
#![no_main]

use ballast_damon::{DamonTarget, WindowReader};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Some((&cut, text)) = text.split_first() else { return };
    let targets = [
        DamonTarget { pid: 7, pages: vec![4096, 20480] },
        DamonTarget { pid: 8, pages: vec![8192] },
    ];
    let read = |len: usize| {
        let (mut reader, mut windows) = (WindowReader::new(&targets), Vec::new());
        text.chunks(len).for_each(|piece| reader.read(piece, &mut windows));
        windows
    };
    let windows = read(usize::from(cut).max(1));
    assert_eq!(windows, read(text.len().max(1)));
    for window in windows {
        let pages = targets[window.target].pages.len();
        assert!(window.touched.len() <= pages && window.touched.is_sorted());
    }
});
