//! Every format from real files, plain and compressed, and the messages for files that cannot be
//! read.

use std::fs;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use ballast_trace::{
    BLOCK_REFERENCES, Column, Compression, Format, Options, Progress, TraceError, TraceReader,
};
use expect_test::expect;
use tempfile::TempDir;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 0).unwrap()
}

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn read_all(reader: &mut TraceReader) -> Result<Vec<u64>, TraceError> {
    let (mut all, mut block) = (Vec::new(), Vec::new());
    while reader.read_block(&mut block)? > 0 {
        all.append(&mut block);
    }
    Ok(all)
}

fn read(path: &Path, options: &Options) -> Result<Vec<u64>, TraceError> {
    read_all(&mut TraceReader::open(path, options)?)
}

/// The message of an error, without the folder's name.
fn message<T: std::fmt::Debug>(folder: &TempDir, result: Result<T, TraceError>) -> String {
    let text = result.unwrap_err().to_string();
    text.replace(&format!("{}/", folder.path().display()), "")
}

fn oracle_general(ids: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (nth, id) in ids.iter().enumerate() {
        bytes.extend((nth as u32).to_le_bytes());
        bytes.extend(id.to_le_bytes());
        bytes.extend(4096_u32.to_le_bytes());
        bytes.extend((-1_i64).to_le_bytes());
    }
    bytes
}

/// One trace in every format: 7, 2^40, 7, 2^64 - 1. (Lackey's addresses are of accesses that end
/// within 64 bits.)
fn everywhere() -> Vec<(&'static str, Vec<u8>)> {
    const REFERENCES: [u64; 4] = [7, 1 << 40, 7, u64::MAX];
    let numbers = REFERENCES.map(u64::to_le_bytes).concat();
    vec![
        ("a.txt", b"7\n0x10000000000\n7\n18446744073709551615\n".to_vec()),
        ("a.csv", b"addr\n7\n0x10000000000\n7\n18446744073709551615\n".to_vec()),
        ("a.u64", numbers.clone()),
        ("a.pg", numbers),
        ("a.oracleGeneral", oracle_general(&REFERENCES)),
        ("a.oracleGeneral.bin", oracle_general(&REFERENCES)),
        ("a.lackey", b"I  07,1\n L 10000000000,8\n M 7,2\n S ffffffffffffffff,1\n".to_vec()),
    ]
}

#[test]
fn formats_are_recognized_plain_and_compressed_by_name_and_content() {
    let folder = tempfile::tempdir().unwrap();
    for (name, plain) in everywhere() {
        let format = Format::from_path(name.as_ref()).unwrap();
        for (extension, compression, bytes) in [
            ("", None, plain.clone()),
            (".gz", Some(Compression::Gzip), gzip(&plain)),
            (".zst", Some(Compression::Zstd), zstd(&plain)),
        ] {
            let named = write(&folder, &format!("{name}{extension}"), &bytes);
            let nameless = write(&folder, "nameless", &bytes);
            let with_format = Options { format: Some(format), ..Options::default() };
            for (path, options) in [(named, Options::default()), (nameless, with_format)] {
                let mut reader = TraceReader::open(&path, &options).unwrap();
                assert_eq!((reader.format(), reader.compression()), (format, compression));
                let references = read_all(&mut reader).unwrap();
                assert_eq!(references, [7, 1 << 40, 7, u64::MAX], "{}", path.display());
                let bytes = bytes.len() as u64;
                let bytes_total = Some(bytes);
                let progress =
                    Progress { bytes_read: bytes, bytes_total, references: 4, skipped: 0 };
                assert_eq!(reader.progress(), progress, "{}", path.display());
            }
        }
    }
}

#[test]
fn an_empty_trace_has_no_references() {
    let folder = tempfile::tempdir().unwrap();
    for (name, _) in everywhere() {
        for (extension, bytes) in [
            ("", vec![]),
            (".gz", vec![]),
            (".zst", vec![]),
            (".gz", gzip(&[])),
            (".zst", zstd(&[])),
        ] {
            let path = write(&folder, &format!("{name}{extension}"), &bytes);
            assert_eq!(read(&path, &Options::default()).unwrap(), [], "{}", path.display());
        }
    }
}

#[test]
fn names_tell_formats() {
    for (name, format) in [
        ("a.txt", Some(Format::Text)),
        ("a.TXT.GZ", Some(Format::Text)),
        ("a.b.csv.zst", Some(Format::Csv)),
        ("web.u64.zst", Some(Format::U64)),
        ("web.pg", Some(Format::U64)),
        ("w01.oracleGeneral.bin.zst", Some(Format::OracleGeneral)),
        ("w01.oraclegeneral", Some(Format::OracleGeneral)),
        ("ls.lackey.gz", Some(Format::Lackey)),
        ("a.bin", None),
        ("a.gz", None),
        ("a.txt.gz.gz", None),
        ("txt", None),
        (".txt", None),
        ("a", None),
        ("/", None),
    ] {
        assert_eq!(Format::from_path(name.as_ref()), format, "{name}");
    }
    for format in Format::ALL {
        assert_eq!(format.as_str().parse(), Ok(format));
    }
    let unknown = "elf\u{1b}".parse::<Format>().unwrap_err().to_string();
    expect![[r"no format is called `elf\u{1b}`: it is one of text (.txt, .text), csv (.csv), u64 (.u64, .pg), oracle-general (.oracleGeneral), lackey (.lackey)"]]
        .assert_eq(&unknown);
}

#[test]
fn what_valgrind_really_writes() {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "tests", "data", "true.lackey"].iter().collect();
    let references = read(&path, &Options::default()).unwrap();
    assert_eq!(references[..3], [0x401ab70, 0x401ab73, 0x1fff000758]);
    assert_eq!(references.len(), 100);
    let pages = Options { page_size: NonZeroU64::new(4096), ..Options::default() };
    assert_eq!(read(&path, &pages).unwrap()[..3], [0x401a, 0x401a, 0x1fff000]);
}

#[test]
fn several_compressed_files_one_behind_the_other_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "a.txt.gz", &[gzip(b"1\n2"), gzip(b"3\n4\n")].concat());
    assert_eq!(read(&path, &Options::default()).unwrap(), [1, 23, 4]);
    let path = write(&folder, "a.txt.zst", &[zstd(b"1\n2"), zstd(b"3\n4\n")].concat());
    assert_eq!(read(&path, &Options::default()).unwrap(), [1, 23, 4]);
}

#[test]
fn blocks_are_full_but_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let count = 2 * BLOCK_REFERENCES as u64 + 3;
    let numbers: Vec<u64> = (0..count).collect();
    let text: String = numbers.iter().map(|it| format!("{it}\n")).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
    for (name, bytes) in [
        ("a.txt", text.clone().into_bytes()),
        ("a.csv", format!("x\n{text}").into_bytes()),
        ("a.u64", bytes),
        ("a.oracleGeneral", oracle_general(&numbers)),
    ] {
        let path = write(&folder, name, &bytes);
        let mut reader = TraceReader::open(&path, &Options::default()).unwrap();
        let (mut all, mut block) = (Vec::new(), Vec::new());
        for expected in [BLOCK_REFERENCES, BLOCK_REFERENCES, 3, 0, 0] {
            assert_eq!(reader.read_block(&mut block).unwrap(), expected, "{name}");
            all.append(&mut block);
        }
        assert!(all == numbers, "{name}");
    }
}

#[test]
fn addresses_are_divided_only_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "a.u64", &[4095, 4096, u64::MAX].map(u64::to_le_bytes).concat());
    for (page_size, expected) in [
        (None, [4095, 4096, u64::MAX]),
        (NonZeroU64::new(4096), [0, 1, u64::MAX / 4096]),
        (NonZeroU64::new(1000), [4, 4, u64::MAX / 1000]),
        (NonZeroU64::new(1), [4095, 4096, u64::MAX]),
        (NonZeroU64::new(u64::MAX), [0, 0, 1]),
    ] {
        let options = Options { page_size, ..Options::default() };
        assert_eq!(read(&path, &options).unwrap(), expected, "{page_size:?}");
    }
}

#[test]
fn a_stream_needs_its_format_specified() {
    let bytes = || Box::new(std::io::Cursor::new(zstd(b"1\n2\n")));
    let unsaid = TraceReader::from_read("standard input", bytes(), &Options::default());
    expect!["standard input: give --format: text (.txt, .text), csv (.csv), u64 (.u64, .pg), oracle-general (.oracleGeneral), lackey (.lackey)"]
        .assert_eq(&unsaid.err().unwrap().to_string());
    let options = Options { format: Some(Format::Text), ..Options::default() };
    let mut reader = TraceReader::from_read("standard input", bytes(), &options).unwrap();
    assert_eq!(read_all(&mut reader).unwrap(), [1, 2]);
    assert_eq!(reader.progress().bytes_total, None);
}

#[test]
fn what_cannot_be_read_is_reported_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let by_name = Options::default();
    let path = folder.path().join("none.txt");
    expect!["none.txt: cannot be opened: No such file or directory (os error 2)"]
        .assert_eq(&message(&folder, read(&path, &by_name)));
    fs::create_dir(folder.path().join("folder.txt")).unwrap();
    expect!["folder.txt: reading failed after 0 references: Is a directory (os error 21)"]
        .assert_eq(&message(&folder, read(&folder.path().join("folder.txt"), &by_name)));
    let path = write(&folder, "a.log", b"1\n");
    expect!["a.log: its name does not tell the format; give --format: text (.txt, .text), csv (.csv), u64 (.u64, .pg), oracle-general (.oracleGeneral), lackey (.lackey)"]
        .assert_eq(&message(&folder, read(&path, &by_name)));
    let path = write(&folder, "a.u64", &[0; 21]);
    expect!["a.u64: record 3: found 5 bytes at the end, expected a record of 8 bytes; references read before it: 2"]
        .assert_eq(&message(&folder, read(&path, &by_name)));
    let column = Options { column: Some(Column::Name("addr".into())), ..Options::default() };
    expect!["a.u64: u64 has no columns: leave out --column"]
        .assert_eq(&message(&folder, read(&path, &column)));
    let path = write(&folder, "a.txt", b"1\nx\n2\n");
    expect!["a.txt: line 2: found `x`, expected a decimal number, or 0x and hexadecimal digits, below 2^64; references read before it: 1"]
        .assert_eq(&message(&folder, read(&path, &by_name)));
    expect!["a.txt: text has no header: --column takes a number from 1, found `addr`"]
        .assert_eq(&message(&folder, read(&path, &column)));
}

#[test]
fn damaged_compression_is_an_error_even_when_skipping_records() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { skip_bad: true, ..Options::default() };
    let text: String = (0..100_000).map(|it| format!("{it}\n")).collect();
    for (name, bytes) in [("a.txt.gz", gzip(text.as_bytes())), ("a.txt.zst", zstd(text.as_bytes()))]
    {
        let path = write(&folder, name, &bytes[..bytes.len() / 2]);
        let error = read(&path, &options).unwrap_err();
        let TraceError::Decompress { references, .. } = error else { panic!("{error:?}") };
        assert!((1..100_000).contains(&references), "{references}");
    }
    let path = write(&folder, "not.txt.gz", b"1\n2\n3\n4\n5\n6\n");
    expect!["not.txt.gz: gzip data damaged or cut short after 0 references: invalid gzip header"]
        .assert_eq(&message(&folder, read(&path, &options)));
    let path = write(&folder, "not.txt.zst", b"1\n2\n3\n4\n5\n6\n");
    expect![
        "not.txt.zst: zstd data damaged or cut short, or its window is above 128 MiB, after 0 references: Unknown frame descriptor"
    ]
    .assert_eq(&message(&folder, read(&path, &options)));
}

#[test]
fn a_window_larger_than_the_bound_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // The header of a frame that needs a window of 2 GiB, and an empty last block.
    let path = write(&folder, "a.txt.zst", &[0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3, 1, 0, 0]);
    expect!["a.txt.zst: zstd data damaged or cut short, or its window is above 128 MiB, after 0 references: Frame requires too much memory for decoding"]
        .assert_eq(&message(&folder, read(&path, &Options::default())));
}

#[test]
fn skipped_records_are_counted_and_an_error_ends_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "a.u64", &[7_u64, 8].map(u64::to_le_bytes).concat()[..13]);
    let mut block = Vec::new();
    let options = Options { skip_bad: true, ..Options::default() };
    let mut reader = TraceReader::open(&path, &options).unwrap();
    assert_eq!(reader.read_block(&mut block).unwrap(), 1);
    assert_eq!(reader.progress().skipped, 1);
    let mut reader = TraceReader::open(&path, &Options::default()).unwrap();
    assert!(reader.read_block(&mut block).is_err());
    assert_eq!((block.as_slice(), reader.progress().references), (&[7][..], 1));
    assert_eq!(reader.read_block(&mut block).unwrap(), 0);
}
