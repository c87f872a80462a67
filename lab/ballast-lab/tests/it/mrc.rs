//! Tests `ballast mrc` as scripts use it: every format and engine with the real program, against
//! figures computed by hand.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{self, Done, ballast};

/// Pages in order: four of the references are cold; the others have distances 3, 1, 2, 3, 1 and 4.
const PAGES: [u64; 10] = [1, 2, 3, 1, 1, 3, 2, 2, 4, 1];
/// Recorded page numbers of a real program.
const RECORDED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../lib/mrc/tests/traces/perl.pg.zst");

fn run(arguments: &[&str]) -> Done {
    program::run(ballast(&["mrc"]).args(arguments))
}

fn piped(arguments: &[&str], input: &[u8]) -> Done {
    program::feed(ballast(&["mrc"]).args(arguments), input)
}

/// The JSON that a run prints; the run must succeed.
fn json(arguments: &[&str]) -> Value {
    let Done { status, out, err } = run(&[arguments, &["--json"]].concat());
    assert_eq!(status, Some(0), "{arguments:?}: {err}");
    serde_json::from_str(&out).unwrap()
}

fn little_endian(pages: &[u64]) -> Vec<u8> {
    pages.iter().flat_map(|page| page.to_le_bytes()).collect()
}

fn write(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// [`PAGES`] in every format: a name, the bytes, and the options to read them.
fn formats() -> Vec<(&'static str, Vec<u8>, Vec<&'static str>)> {
    let lines = |line: &dyn Fn(u64) -> String| {
        PAGES.iter().map(|page| line(*page)).collect::<String>().into_bytes()
    };
    let record = |page: &u64| {
        let parts = [&7u32.to_le_bytes()[..], &page.to_le_bytes(), &1u32.to_le_bytes(), &[255; 8]];
        parts.concat()
    };
    let csv = [b"time,\"block, first\",size\n".to_vec(), lines(&|page| format!("9,{page},1\n"))];
    let lackey =
        [b"==7== Lackey\n".to_vec(), lines(&|page| format!(" L {:x},4\n", page * 4096 + 8))];
    vec![
        ("a.txt", lines(&|page| format!("{page}\n")), vec![]),
        ("hex.txt", lines(&|page| format!("r {:#x} 8\n", page << 12)), {
            vec!["--column", "2", "--page-size", "4KiB"]
        }),
        ("a.csv", csv.concat(), vec!["--column", "block, first"]),
        ("a.u64", little_endian(&PAGES), vec![]),
        ("a.pg", little_endian(&PAGES), vec![]),
        ("a.oracleGeneral", PAGES.iter().flat_map(record).collect(), vec![]),
        ("a.lackey", lackey.concat(), vec!["--page-size", "4KiB"]),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn assert_hand_computed(result: &Value, what: &str) {
    let counts = json!({"1": 2, "2": 1, "3": 2, "4": 1});
    assert_eq!(result["histogram"], counts, "{what}");
    let figures = ["accesses", "cold", "distinct"].map(|name| result[name].as_u64());
    assert_eq!(figures, [Some(10), Some(4), Some(4)], "{what}");
}

#[test]
fn every_format_gives_the_same_plain_and_compressed() {
    let folder = folder();
    for (name, bytes, options) in formats() {
        let files = [
            (name.to_owned(), bytes.clone()),
            (format!("{name}.gz"), gzip(&bytes)),
            (format!("{name}.zst"), zstd::encode_all(&bytes[..], 3).unwrap()),
        ];
        for (name, bytes) in files {
            let path = write(&folder, &name, bytes);
            let result = json(&[&[path.as_str()], &options[..]].concat());
            assert_hand_computed(&result, &name);
            assert_eq!(result["trace"], json!(path));
        }
    }
}

#[test]
fn standard_input_takes_a_named_trace_format() {
    for bytes in [little_endian(&PAGES), gzip(&little_endian(&PAGES))] {
        let Done { status, out, err } = piped(&["-", "--format", "u64", "--json"], &bytes);
        assert_eq!(status, Some(0), "{err}");
        assert_hand_computed(&serde_json::from_str(&out).unwrap(), "standard input");
        assert!(err.contains("standard input: 10 references in"), "{err}");
    }
    let Done { status, out, err } = piped(&["-"], b"1\n");
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(err.starts_with("error: standard input: give --format: text"), "{err}");
}

#[test]
fn names_neither_command_the_terminal_nor_forge_lines() {
    let folder = folder();
    let name = "a\u{1b}[2J\nerror: forged\u{9b}1m.txt";
    let path = write(&folder, name, "1\n1\n");
    let bad = write(&folder, &format!("bad {name}"), "x\n");
    for arguments in [&[path.as_str()][..], &[&path, &path], &[&path, "--json"], &[&bad]] {
        let Done { out, err, .. } = run(arguments);
        for text in [&out, &err] {
            let is_harmless = !text.chars().any(|c| c.is_control() && c != '\n');
            assert!(is_harmless && !text.contains("\nerror: forged"), "{arguments:?}: {text:?}");
        }
    }
    assert_eq!(json(&[&path])["trace"], json!(path));
}

#[test]
fn the_curve_and_working_sets_are_those_computed_by_hand() {
    let folder = folder();
    let path = write(&folder, "a.pg", little_endian(&PAGES));
    let result = json(&[&path, "--unit", "4KiB", "--epsilon", "0.5,20%,0"]);
    let point = |pages: u64, warm: f64, total: f64| json!({"pages": pages, "miss_ratio_warm": warm, "miss_ratio_total": total});
    let curve = json!([
        point(0, 1.0, 1.0),
        point(1, 4.0 / 6.0, 0.8),
        point(2, 0.5, 0.7),
        point(3, 1.0 / 6.0, 0.5),
        point(4, 0.0, 0.4),
    ]);
    assert_eq!(result["curve"], curve);
    let set = |epsilon: f64, pages: u64| json!({"epsilon": epsilon, "pages": pages, "bytes": pages * 4096});
    assert_eq!(result["working_sets"], json!([set(0.5, 2), set(0.2, 3), set(0.0, 4)]));
    assert_eq!(result["page_bytes"], json!(4096));
}

#[test]
fn people_are_told_the_same() {
    let folder = folder();
    let path = write(&folder, "a.pg", little_endian(&PAGES));
    let Done { status, out, err } = run(&[&path, "--unit", "4KiB"]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    for text in [
        "references   10\n",
        "distinct     4 pages (16KiB)\n",
        "cold         4 (40 % of references)\n",
        "working set  16KiB (4 pages): at most 1 % of warm references miss\n",
        "engine       exact: 4 tags need",
        "M references/s",
    ] {
        assert!(out.contains(text), "{text} is missing: {out}");
    }
}

#[test]
fn addresses_that_are_taken_for_pages_are_told_of() {
    let folder = folder();
    let path = write(&folder, "a.lackey", " L 1000,4\n L 1004,4\n");
    let Done { status, out, .. } = run(&[&path]);
    assert_eq!(status, Some(0));
    assert!(out.contains("distinct     2 pages\n") && out.contains("--page-size 4KiB"), "{out}");
    let Done { out, .. } = run(&[&path, "--page-size", "4KiB"]);
    assert!(out.contains("distinct     1 page (4KiB)\n"), "{out}");
    assert!(!out.contains("--page-size"), "{out}");
}

#[test]
fn bad_records_are_located_or_skipped_and_counted() {
    let folder = folder();
    let path = write(&folder, "bad.txt", "1\n2\nthree\n1\n4x\n");
    let Done { status, out, err } = run(&[&path]);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(err.starts_with(&format!("error: {path}: line 3: found `three`, expected")), "{err}");
    assert!(err.trim_end().ends_with("references read before it: 2"), "{err}");
    let result = json(&[&path, "--skip-bad"]);
    assert_eq!((&result["skipped"], &result["accesses"]), (&json!(2), &json!(3)));
    let Done { out, .. } = run(&[&path, "--skip-bad"]);
    assert!(out.contains("skipped      2 bad records were left out\n"), "{out}");

    let short = write(&folder, "short.u64", &little_endian(&PAGES)[..75]);
    let Done { status, err, .. } = run(&[&short]);
    assert_eq!(status, Some(1));
    assert!(err.contains("short.u64: record 10"), "{err}");

    for most in ["1", "2"] {
        assert_eq!(
            json(&[&path, "--max-references", most])["accesses"],
            json!(most.parse::<u8>().unwrap())
        );
    }
    assert_eq!(run(&[&path, "--max-references", "3"]).status, Some(1));

    let damaged = write(&folder, "damaged.u64.gz", &gzip(&little_endian(&PAGES))[..20]);
    let Done { status, err, .. } = run(&[&damaged, "--skip-bad"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("damaged.u64.gz: gzip data damaged or cut short"), "{err}");
}

#[test]
fn what_cannot_be_read_is_named() {
    for (arguments, status, expected) in [
        (&["/nonexistent/a.u64"][..], 1, "/nonexistent/a.u64: cannot be opened"),
        (&["/dev/null"], 1, "/dev/null: its name does not tell the format"),
        (&["/dev/null", "--format", "u64", "--column", "2"], 1, "u64 has no columns"),
        (&["/dev/null", "--format", "bin"], 2, "possible values"),
        (&[], 2, "TRACE"),
    ] {
        let run = run(arguments);
        assert_eq!((run.status, run.out.as_str()), (Some(status), ""), "{arguments:?}");
        assert!(run.err.contains(expected), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn every_trace_is_looked_at_before_the_first_is_counted() {
    let folder = folder();
    // Counting this trace would fail.
    let bad = write(&folder, "bad.u64", [1; 7]);
    let text = write(&folder, "a.log", "1\n");
    for (second, expected) in [
        ("/nonexistent/a.u64", "/nonexistent/a.u64: cannot be opened"),
        (&text, "a.log: its name does not tell the format"),
        ("-", "standard input: give --format"),
        ("/dev/null", "/dev/null: its name does not tell the format"),
        (RECORDED, "bad.u64: record 1"),
    ] {
        let Done { status, out, err } = run(&[&bad, second]);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{second}");
        assert!(err.contains(expected), "{second}: {err}");
    }
}

#[test]
fn small_and_far_traces_work() {
    let folder = folder();
    let far = [(1 << 40) - 1, 1 << 40, (1 << 40) - 1, u64::MAX];
    for (name, pages, accesses, distinct, points) in [
        ("empty.u64", &[][..], 0, 0, 0),
        ("one.u64", &[5], 1, 1, 1),
        ("same.u64", &[5, 5], 2, 1, 2),
        ("far.u64", &far, 4, 3, 2),
    ] {
        let path = write(&folder, name, little_endian(pages));
        let svg = folder.path().join("small.svg").display().to_string();
        let html = folder.path().join("small.html").display().to_string();
        let result = json(&[&path, "--verify", "--plot", &svg, "--plot", &html]);
        assert_eq!(result["accesses"], json!(accesses), "{name}");
        assert_eq!(result["distinct"], json!(distinct), "{name}");
        assert_eq!(result["curve"].as_array().unwrap().len(), points, "{name}");
        let drawn = fs::read_to_string(svg).unwrap();
        let says_so = drawn.contains("no page was referenced twice");
        assert_eq!(says_so, distinct == accesses, "{name}");
        assert_well_formed(&drawn);
        assert_well_formed(&fs::read_to_string(html).unwrap());
    }
}

#[test]
fn exact_engines_agree_with_an_oracle_on_a_real_program() {
    let options = ["--max-references", "300000", "--verify"];
    for (engine, granularity, reading, oracle) in [
        ("exact", "1", "paper", "list"),
        ("exact", "8", "paper", "list"),
        ("exact", "8", "touched", "avl"),
        ("avl", "1", "paper", "list"),
        ("list", "1", "paper", "avl"),
        ("auto", "32", "touched", "avl"),
    ] {
        let choice =
            ["--engine", engine, "--granularity", granularity, "--reading", reading, "--json"];
        let Done { status, out, err } = run(&[&[RECORDED], &options[..], &choice[..]].concat());
        assert_eq!(status, Some(0), "{choice:?}: {err}");
        let result: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(result["verified_with"], json!(oracle), "{choice:?}");
        assert_eq!(result["accesses"], json!(300_000), "{choice:?}");
    }
}

/// Page numbers without order, below `pages`.
fn scattered(pages: u64, count: u64) -> Vec<u64> {
    let mix = |n: u64| {
        let n = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
    };
    (1..=count).map(|n| mix(n) % pages).collect()
}

#[test]
fn the_oracle_handles_more_pages_than_a_list_holds() {
    let folder = folder();
    let path = write(&folder, "wide.u64", little_endian(&scattered(9_000, 200_000)));
    for (engine, oracle) in [("exact", "avl"), ("avl", "exact")] {
        let result = json(&[&path, "--verify", "--engine", engine]);
        assert_eq!(result["verified_with"], json!(oracle), "{engine}");
    }
}

#[test]
fn engines_that_sample_are_near_and_their_error_is_told() {
    let folder = folder();
    let path = write(&folder, "wide.u64", little_endian(&scattered(20_000, 400_000)));
    for options in [
        &["--engine", "shards", "--rate", "0.1"][..],
        &["--engine", "shards-fixed-size", "--samples", "4000"],
        &["--engine", "aet"],
        &["--engine", "aet", "--samples", "2000"],
    ] {
        let result = json(&[&[path.as_str(), "--verify"], options].concat());
        let error = result["mean_absolute_error"].as_f64().unwrap();
        assert!(error < 0.03, "{options:?}: {error}");
        assert_eq!((&result["engine"], &result["engine_why"]), (&json!(options[1]), &Value::Null));
    }
    let statistical =
        [&path, "--engine", "statistical", "--allocation", "40000", "--samples", "2000"];
    let result = json(&statistical);
    let active = result["active_pages"].as_u64().unwrap();
    assert!((17_000..23_000).contains(&active), "{active}");
    assert_eq!((&result["histogram"], &result["curve"]), (&Value::Null, &json!([])));
    assert_eq!(result["distinct"], Value::Null);
    assert!(run(&statistical).out.contains("\ndistinct     –\n"));
    let Done { out, .. } = run(&[&[path.as_str()], &statistical[..]].concat());
    assert!(out.contains(&format!("wide.u64: active: {active} pages in a period")), "{out}");
}

#[test]
fn beyond_its_memory_auto_samples_and_says_so() {
    let folder = folder();
    let pages = scattered(60_000, 300_000);
    let path = write(&folder, "wide.u64", little_endian(&pages));
    let result = json(&[&path, "--verify"]);
    assert_eq!(result["engine"], json!("exact"));
    assert_eq!(result["mean_absolute_error"], Value::Null);
    let distinct = result["distinct"].as_f64().unwrap();

    let small = ["--memory", "1MiB", "--verify", "--json"];
    let from_file = run(&[&[path.as_str()], &small[..]].concat());
    let from_pipe =
        piped(&[&["-", "--format", "u64"], &small[..]].concat(), &little_endian(&pages));
    for Done { status, out, err } in [from_file, from_pipe] {
        assert_eq!(status, Some(0), "{err}");
        let result: Value = serde_json::from_str(&out).unwrap();
        assert_ne!(result["engine"], json!("exact"));
        let why = result["engine_why"].as_str().unwrap();
        assert!(
            why.contains("exact was dropped at") && why.ends_with("too many for 1MiB"),
            "{why}"
        );
        let off = result["distinct"].as_f64().unwrap() / distinct - 1.0;
        assert!(off.abs() < 0.02, "{off}");
        assert!(result["mean_absolute_error"].as_f64().unwrap() < 0.05);
        // The memory of both engines, until a block had too many tags for the exact one.
        let memory = result["engine_memory_bytes"].as_u64().unwrap();
        assert!((1 << 20..4 << 20).contains(&memory), "{memory}");
    }
}

#[test]
fn tags_that_lie_far_apart_are_said_to_be_why() {
    let folder = folder();
    let far: Vec<u64> = (0..3000).map(|tag| tag << 40 | tag << 13).collect();
    let path = write(&folder, "far.u64", little_endian(&far));
    let result = json(&[&path, "--memory", "80KiB"]);
    let why = result["engine_why"].as_str().unwrap();
    assert!(why.ends_with("dropped at 3000 tags, which lie too far apart for 80KiB"), "{why}");
}

#[test]
fn tags_of_several_pages_are_read_in_two_ways() {
    let folder = folder();
    // Three rounds over two pages of each of four tags of eight pages.
    let round: Vec<u64> = (0..4).flat_map(|tag| [tag * 8, tag * 8 + 1]).collect();
    let path = write(&folder, "sparse.u64", little_endian(&round.repeat(3)));
    let paper = json(&[&path, "--granularity", "8"]);
    assert_eq!(paper["histogram"], json!({"1": 12, "4": 8}));
    assert_eq!((&paper["cold"], &paper["distinct"]), (&json!(4), &json!(4)));
    assert_eq!(paper["working_sets"][1]["pages"], json!(32));
    assert_eq!(paper["distance_unit"], json!("tags"));
    let touched = json(&[&path, "--granularity", "8", "--reading", "touched"]);
    assert_eq!(touched["histogram"], json!({"8": 16}));
    assert_eq!((&touched["cold"], &touched["pages_touched"]), (&json!(8), &json!(8)));
    assert_eq!(touched["working_sets"][1]["pages"], json!(8));
    assert_eq!(touched["distance_unit"], json!("pages"));
}

#[test]
fn what_touched_pages_take_stays_within_its_memory() {
    let folder = folder();
    let path = write(&folder, "far.u64", little_endian(&[0, 1 << 20, 1 << 21, 1 << 22].repeat(9)));
    let coarse = [path.as_str(), "--granularity", "1048576", "--reading", "touched"];
    let Done { status, err, .. } = run(&[&coarse[..], &["--memory", "1MiB"]].concat());
    let expected = "error: REPLACED: --reading touched needs more than --memory 1MiB at 4 tags: a smaller \
                --granularity, or --reading paper\n";
    assert_eq!((status, err), (Some(1), expected.replace("REPLACED", &path)));
    assert_eq!(json(&[&coarse[..], &["--memory", "8MiB"]].concat())["pages_touched"], json!(4));
}

#[test]
fn intervals_age_what_was_counted() {
    let folder = folder();
    let path = write(&folder, "a.u64", little_endian(&PAGES));
    // Distances by intervals of four: cold, cold, cold, 3 | 1, 2, 3, 1 | cold, 4.
    let kept = json(&[&path, "--interval", "4", "--aging", "1"]);
    assert_hand_computed(&kept, "λ = 1");
    let halved = json(&[&path, "--interval", "4", "--aging", "0.5"]);
    assert_eq!(halved["histogram"], json!({"1": 1, "2": 0.5, "3": 0.75, "4": 1}));
    assert_eq!((&halved["cold"], &halved["accesses"]), (&json!(1.75), &json!(10)));
    assert_eq!((&halved["interval"], &halved["aging"]), (&json!(4), &json!(0.5)));
    let Done { out, .. } = run(&[&path, "--interval", "4"]);
    // Of 1.75 cold and 3.25 warm.
    assert!(out.contains("cold         2 (35 % of aged references)\n"), "{out}");
    assert!(out.contains("aged         cold, curve and working sets are of counts"), "{out}");
    let latest = json(&[&path, "--interval", "4", "--aging", "0"]);
    assert_eq!(latest["histogram"], json!({"4": 1}));
}

#[test]
fn several_traces_go_into_one_table_array_csv_and_plot() {
    let folder = folder();
    let a = write(&folder, "a,b.u64", little_endian(&PAGES));
    let b = write(&folder, "<c>.u64", little_endian(&[7; 5]));
    let files = ["out.csv", "out.svg", "out.html"].map(|name| folder.path().join(name));
    let [csv, svg, html] = files.each_ref().map(|path| path.to_str().unwrap());
    let arguments = [&a, &b, "--csv", csv, "--plot", svg, "--plot", html];
    let result = json(&arguments);
    assert_hand_computed(&result[0], "the first of two");
    assert_eq!(result[1]["histogram"], json!({"1": 4}));

    let rows = fs::read_to_string(csv).unwrap();
    let mut lines = rows.lines();
    assert_eq!(lines.next(), Some("trace,pages,miss_ratio_warm,miss_ratio_total"));
    assert_eq!(lines.next(), Some(format!("\"{a}\",0,1,1").as_str()));
    assert_eq!(rows.lines().last(), Some(format!("{b},1,0,0.2").as_str()));
    assert_eq!(rows.lines().count(), 1 + 5 + 2);

    let drawn = fs::read_to_string(svg).unwrap();
    assert!(drawn.contains("a,b.u64 · WSS(1 %)") && drawn.contains("&lt;c&gt;.u64"), "{drawn}");
    assert_well_formed(&drawn);
    let page = fs::read_to_string(html).unwrap();
    assert!(page.contains("a,b.u64, &lt;c&gt;.u64") && page.contains("--csv"), "{page}");
    assert_well_formed(&page);

    let Done { out, .. } = run(&arguments);
    assert!(out.starts_with("TRACE"), "{out}");
    assert!(
        out.lines().any(|line| line.starts_with("a,b.u64          10         4     4")),
        "{out}"
    );
}

#[test]
fn a_failure_leaves_older_files_as_they_were() {
    let folder = folder();
    let good = write(&folder, "a.u64", little_endian(&PAGES));
    let bad = write(&folder, "bad.txt", "x\n");
    let plot = write(&folder, "old.svg", "old");
    let Done { status, .. } = run(&[&good, &bad, "--plot", &plot]);
    assert_eq!(status, Some(1));
    assert_eq!(fs::read_to_string(&plot).unwrap(), "old");
    let mut names: Vec<PathBuf> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let ends = names.iter().map(|path| path.file_name().unwrap().to_str().unwrap());
    assert_eq!(ends.collect::<Vec<_>>(), ["a.u64", "bad.txt", "old.svg"]);
    let Done { status, err, .. } = run(&[&good, "--csv", "/nonexistent/a.csv"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("cannot write /nonexistent/a.csv"), "{err}");
}

#[test]
fn a_trace_is_never_written_over() {
    let folder = folder();
    let trace = write(&folder, "a.csv", "page\n1\n1\n");
    for name in ["a.csv", "link.csv"] {
        let output = folder.path().join(name);
        if name != "a.csv" {
            symlink("a.csv", &output).unwrap();
        }
        let Done { status, out, err } = run(&[&trace, "--csv", output.to_str().unwrap()]);
        assert_eq!((status, out.as_str()), (Some(1), ""));
        let expected = format!("error: cannot write {}: it is also an input\n", output.display());
        assert_eq!(err, expected);
    }
    assert_eq!(fs::read_to_string(&trace).unwrap(), "page\n1\n1\n");
    let plot = folder.path().join("a.svg").display().to_string();
    let Done { err, .. } = run(&[&trace, "--plot", &plot, "--plot", &plot]);
    assert!(err.contains("a.svg: it is given twice"), "{err}");
}

#[test]
fn the_documented_command_draws_the_documented_picture() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let page = fs::read_to_string(format!("{root}/docs/curves.md")).unwrap();
    let command = "ballast mrc lib/mrc/tests/traces/*.pg.zst --unit 4KiB --plot docs/images/\
                   miss-ratio.svg\n";
    assert!(page.contains(command));
    let folder = folder();
    let plot = folder.path().join("plot.svg").display().to_string();
    let traces =
        ["perl", "python", "sort"].map(|name| format!("{root}/lib/mrc/tests/traces/{name}.pg.zst"));
    let mut arguments: Vec<&str> = traces.iter().map(String::as_str).collect();
    arguments.extend(["--unit", "4KiB", "--plot", &plot]);
    let Done { status, err, .. } = run(&arguments);
    assert_eq!(status, Some(0), "{err}");
    let kept = fs::read_to_string(format!("{root}/docs/images/miss-ratio.svg")).unwrap();
    let drawn = fs::read_to_string(&plot).unwrap();
    let ((kept, places), (drawn, drawn_places)) = (numbers_apart(&kept), numbers_apart(&drawn));
    // Another version of libm may round a place the other way.
    let near = |(a, b): (&i64, &i64)| (a - b).abs() <= 1;
    let is_same = kept == drawn && places.iter().zip(&drawn_places).all(near);
    assert!(is_same, "draw it again: {command}");
}

/// `text` with a mark in place of every number, and the numbers.
fn numbers_apart(text: &str) -> (String, Vec<i64>) {
    let (mut rest, mut numbers) = (String::new(), Vec::new());
    let mut digits = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            numbers.push(std::mem::take(&mut digits).parse().unwrap());
            rest.push('#');
        }
        rest.push(c);
    }
    (rest, numbers)
}

/// Checks that every element of a page or plot is closed, in order.
fn assert_well_formed(text: &str) {
    const VOID: [&str; 2] = ["meta", "input"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let name = tag.split([' ', '\n', '/']).next().unwrap();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{}", text.len() - rest.len());
        } else if name == "script" || name == "style" {
            let end = rest.find(&format!("</{name}>")).expect("it ends");
            rest = &rest[end + name.len() + 3..];
        } else if !tag.ends_with('/') && !tag.starts_with('!') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
}
