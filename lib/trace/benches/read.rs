//! Speed of reading each format, plain and compressed, from a file in the page cache. Run: `cargo
//! bench -p ballast-trace --bench read`.
//!
//! Every file holds the same references: page numbers of 20 bits in no order. The throughput is in
//! references per second. The bytes per reference of each file are printed, so that MB/s can be
//! computed.

use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;

use ballast_trace::{Column, Format, Options, TraceReader};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const REFERENCES: usize = 1 << 20;

/// Page numbers of 20 bits, spread evenly (a multiplicative congruential sequence).
fn pages() -> impl Iterator<Item = u64> {
    (1..=REFERENCES as u64).map(|nth| nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44)
}

fn lines(header: &str, line: impl Fn(u64) -> String) -> Vec<u8> {
    let mut bytes = header.as_bytes().to_vec();
    pages().for_each(|page| bytes.extend(line(page).into_bytes()));
    bytes
}

fn formats(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let record =
        |page: u64| [&[1; 4][..], &page.to_le_bytes(), &[2; 4], &page.to_be_bytes()].concat();
    let named = Some(Column::Name("addr".to_owned()));
    let second = "2".parse().ok();
    let files = [
        ("u64", Format::U64, None, pages().flat_map(u64::to_le_bytes).collect()),
        ("oracle-general", Format::OracleGeneral, None, pages().flat_map(record).collect()),
        ("text", Format::Text, None, lines("", |it| format!("{it}\n"))),
        ("text, 0x", Format::Text, None, lines("", |it| format!("{:#x}\n", it << 12))),
        ("text, --column 2", Format::Text, second, lines("", |it| format!("R {it} 8\n"))),
        ("csv, of 3 columns", Format::Csv, named, lines("t,addr,n\n", |it| format!("1,{it},8\n"))),
        ("lackey", Format::Lackey, None, lines("", |it| format!(" L {:08x},8\n", it << 12))),
    ];
    let mut group = c.benchmark_group("read");
    group.sample_size(10).throughput(Throughput::Elements(REFERENCES as u64));
    for (name, format, column, plain) in files {
        let options = Options { format: Some(format), column, ..Options::default() };
        let mut one = |how: &str, bytes: &[u8]| {
            let path = folder.path().join("trace");
            fs::write(&path, bytes).unwrap();
            let each = bytes.len() as f64 / REFERENCES as f64;
            let id = format!("{name}{how}, {each:.1} bytes each");
            group.bench_function(id, |b| b.iter(|| assert_eq!(all(&path, &options), REFERENCES)));
        };
        one("", &plain);
        if ["u64", "text"].contains(&name) {
            one(", gzip", &gzip(&plain));
            one(", zstd", &zstd::encode_all(&plain[..], 0).unwrap());
        }
    }
}

fn all(path: &Path, options: &Options) -> usize {
    let mut reader = TraceReader::open(path, options).unwrap();
    let (mut block, mut count) = (Vec::new(), 0);
    while let read @ 1.. = reader.read_block(&mut block).unwrap() {
        black_box(&block);
        count += read;
    }
    count
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

criterion_group!(benches, formats);
criterion_main!(benches);
