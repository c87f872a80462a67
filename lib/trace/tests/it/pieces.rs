//! Random bytes, and nearly valid ones, in any pieces: the promises of the fuzz targets.

use std::num::NonZeroU64;

use ballast_trace::fuzz::{pieces_do_not_show, reading_is_the_same};
use ballast_trace::{Column, Format, Options};
use proptest::prelude::*;

fn options() -> impl Strategy<Value = Options> {
    let column = prop_oneof![
        Just(None),
        (1..4_u32).prop_map(|it| Column::Number(it.try_into().unwrap())).prop_map(Some),
        "[ab]".prop_map(Column::Name).prop_map(Some),
    ];
    let page_size = prop_oneof![Just(0), Just(1), Just(10), Just(4096)].prop_map(NonZeroU64::new);
    (column, page_size, any::<bool>()).prop_map(|(column, page_size, skip_bad)| Options {
        format: None,
        column,
        page_size,
        skip_bad,
    })
}

/// Bytes made of parts of the formats, with random bytes between.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        "[0-9]{0,22}|0x[0-9a-fA-F]{0,18}".prop_map(String::into_bytes),
        "[ILSM ]{0,3} [0-9a-f]{1,8},[0-9]{1,4}".prop_map(String::into_bytes),
        "[ab,\"# \t]{0,4}".prop_map(String::into_bytes),
        prop_oneof![Just("\n"), Just("\r\n"), Just("\r"), Just("=="), Just("\u{feff}")]
            .prop_map(|it| it.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..30),
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn do_not_show(options in options(), bytes in bytes(), piece_bytes in 1..100_usize) {
        for format in Format::ALL {
            pieces_do_not_show(format, &options, &bytes, piece_bytes);
        }
    }

    #[test]
    fn do_not_show_in_a_reader(bytes in bytes(), piece_bytes in 1..30_usize, how in 0..3) {
        let bytes = match how {
            0 => bytes,
            1 => zstd::encode_all(&bytes[..], 1).unwrap(),
            _ => [b"\x1f\x8b\x08\0\0\0\0\0\0\x03", &bytes[..]].concat(),
        };
        for format in Format::ALL {
            let options = Options { format: Some(format), skip_bad: true, ..Options::default() };
            reading_is_the_same(&options, &bytes, piece_bytes);
        }
    }
}
