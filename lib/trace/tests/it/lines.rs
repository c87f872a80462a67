//! Tables of good and bad lines in each text format, with the messages for bad ones.

use std::fmt::Write;
use std::num::NonZeroU64;

use ballast_trace::fuzz::parse;
use ballast_trace::{Format, LINE_BYTES_MAX, Options, Parser};
use expect_test::{Expect, expect};

/// The result of each trace, one per line; pieces of different sizes must give the same.
fn table(format: Format, options: &Options, traces: &[&str], expected: Expect) {
    let mut text = String::new();
    for trace in traces {
        let mut parser = Parser::new(format, options).unwrap();
        let parsed = parse(&mut parser, trace.as_bytes(), usize::MAX);
        for piece_bytes in [1, 2, 3, 7] {
            let mut parser = Parser::new(format, options).unwrap();
            assert_eq!(parse(&mut parser, trace.as_bytes(), piece_bytes), parsed, "{trace:?}");
        }
        write!(text, "{trace:?} → {:?}", parsed.references).unwrap();
        if parsed.skipped > 0 {
            write!(text, " skipped {}", parsed.skipped).unwrap();
        }
        if let Err(fault) = parsed.end {
            write!(text, " {fault}").unwrap();
        }
        text.push('\n');
    }
    expected.assert_eq(&text);
}

fn column(column: &str) -> Options {
    Options { column: Some(column.parse().unwrap()), ..Options::default() }
}

fn page_size(bytes: u64) -> Options {
    Options { page_size: NonZeroU64::new(bytes), ..Options::default() }
}

#[test]
fn text_lines_are_read_or_name_their_fault() {
    table(
        Format::Text,
        &Options::default(),
        &[
            "",
            "1",
            "1\n2\n",
            "1\r\n2\r\n",
            "\u{feff}1\n2\n",
            "1\n\u{feff}2\n",
            "# a comment\n\n  \t\n 12 # why\n#\n34",
            "0x1F\n0X1f\n0xffffffffffffffff\n18446744073709551615\n00000000000000000000000012\n",
            "1\n18446744073709551616\n",
            "99999999999999999999\n",
            "0x10000000000000000\n",
            "0x\n",
            "1f\n",
            "-1\n",
            "+1\n",
            "1_000\n",
            "1,000\n",
            "1.0\n",
            "1\n2 3\n",
            "1\n2 # 3\n",
            "12#34\n",
            "1\n12345678\n123456789012\n1234567890123456\n12345678901234567\n1234567890123456789\n18446744073709551616\n",
            "1\n/\n",
            "1\n12:\n",
            "1\n\u{1b}[2J\u{7}\0\n",
            "a line of rubbish that is rather long, longer than anybody would read\n",
            "１\n",
        ],
        expect![[r##"
            "" → []
            "1" → [1]
            "1\n2\n" → [1, 2]
            "1\r\n2\r\n" → [1, 2]
            "\u{feff}1\n2\n" → [1, 2]
            "1\n\u{feff}2\n" → [1] line 2: found `\u{feff}2`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "# a comment\n\n  \t\n 12 # why\n#\n34" → [12, 34]
            "0x1F\n0X1f\n0xffffffffffffffff\n18446744073709551615\n00000000000000000000000012\n" → [31, 31, 18446744073709551615, 18446744073709551615, 12]
            "1\n18446744073709551616\n" → [1] line 2: found `18446744073709551616`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "99999999999999999999\n" → [] line 1: found `99999999999999999999`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "0x10000000000000000\n" → [] line 1: found `0x10000000000000000`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "0x\n" → [] line 1: found `0x`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "1f\n" → [] line 1: found `1f`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "-1\n" → [] line 1: found `-1`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "+1\n" → [] line 1: found `+1`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "1_000\n" → [] line 1: found `1_000`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "1,000\n" → [] line 1: found `1,000`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "1.0\n" → [] line 1: found `1.0`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "1\n2 3\n" → [1] line 2: found `2 3`, expected one number, or --column to choose one of several
            "1\n2 # 3\n" → [1, 2]
            "12#34\n" → [] line 1: found `12#34`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "1\n12345678\n123456789012\n1234567890123456\n12345678901234567\n1234567890123456789\n18446744073709551616\n" → [1, 12345678, 123456789012, 1234567890123456, 12345678901234567, 1234567890123456789] line 7: found `18446744073709551616`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "1\n/\n" → [1] line 2: found `/`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "1\n12:\n" → [1] line 2: found `12:`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "1\n\u{1b}[2J\u{7}\0\n" → [1] line 2: found `\u{1b}[2J\u{7}\0`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "a line of rubbish that is rather long, longer than anybody would read\n" → [] line 1: found `a line of rubbish that is rather long, l…`, expected one number, or --column to choose one of several
            "１\n" → [] line 1: found `１`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
        "##]],
    );
}

#[test]
fn one_column_of_text_is_read() {
    table(
        Format::Text,
        &column("2"),
        &[
            "a 1 x\n b\t2\r\n",
            "1 2\n 3 4\n\t5\t 6 7\n8\x0c9\n",
            "0 0\n1 2 \r x\n3 4#5\n",
            "a 0x1f # 3\n",
            "# a b\n\na 1",
            "a 1\nb\n",
            "a 1\nb # 2\n",
            "a b\n",
        ],
        expect![[r##"
            "a 1 x\n b\t2\r\n" → [1, 2]
            "1 2\n 3 4\n\t5\t 6 7\n8\u{c}9\n" → [2, 4, 6, 9]
            "0 0\n1 2 \r x\n3 4#5\n" → [0, 2] line 3: found `4#5`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "a 0x1f # 3\n" → [31]
            "# a b\n\na 1" → [1]
            "a 1\nb\n" → [1] line 2: found 1 column, expected 2 or more
            "a 1\nb # 2\n" → [1] line 2: found 1 column, expected 2 or more
            "a b\n" → [] line 1: found `b`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
        "##]],
    );
    table(
        Format::Text,
        &column("1"),
        &["1 2\n3\n# 4\n", "x 1\n"],
        expect![[r#"
        "1 2\n3\n# 4\n" → [1, 3]
        "x 1\n" → [] line 1: found `x`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
    "#]],
    );
}

#[test]
fn bad_lines_are_left_out_when_asked() {
    let options = Options { skip_bad: true, ..column("2") };
    table(
        Format::Text,
        &options,
        &["a 1\nb\nc 2\nd x\n", "a 1\nb"],
        expect![[r#"
        "a 1\nb\nc 2\nd x\n" → [1, 2] skipped 2
        "a 1\nb" → [1] skipped 1
    "#]],
    );
    let long = format!("1\n{}\n2\n", "9".repeat(LINE_BYTES_MAX + 1));
    let mut parser =
        Parser::new(Format::Text, &Options { skip_bad: true, ..Options::default() }).unwrap();
    let parsed = parse(&mut parser, long.as_bytes(), 1000);
    assert_eq!((parsed.references.as_slice(), parsed.skipped), (&[1, 2][..], 1));
}

#[test]
fn lines_are_bounded() {
    for (format, kind) in [(Format::Text, ""), (Format::Lackey, "I ")] {
        let most = format!("{kind}{}1", " ".repeat(LINE_BYTES_MAX - 1 - kind.len()));
        for piece_bytes in [1000, LINE_BYTES_MAX, LINE_BYTES_MAX + 1, usize::MAX] {
            let line = |text: &str| {
                let mut parser = Parser::new(format, &Options::default()).unwrap();
                parse(&mut parser, text.as_bytes(), piece_bytes)
            };
            if format == Format::Text {
                assert_eq!(line(&format!("{most}\n")).references, [1]);
            }
            let text = line(&format!("\n{most}1\n")).end.unwrap_err().to_string();
            assert!(text.starts_with("line 2: found a line longer than 65536 bytes"), "{text}");
        }
    }
}

#[test]
fn csv_rows_are_read_or_name_their_fault() {
    table(
        Format::Csv,
        &column("addr"),
        &[
            "",
            "addr\n",
            "time,addr\n1,2\n3,0x1f\n",
            "time,addr,what\r\n1,2,x\r\n3,4\r\n",
            "\u{feff}addr\n1\n",
            "\u{feff}\"addr\"\n1\n",
            "\u{feff}\u{feff}addr\n1\n",
            " addr , time \n 1 , 2 \n\n3",
            "\"a,\nb\",\"addr\"\n\"x\"\"\ny\",\"5\"\n,\"6\"\n",
            "addr,addr\n1,2\n",
            "a,b\n1,2\n",
            "a,\u{1b},\"b\nc\"\n1,2,3\n",
            "t,addr\n1,2\n3\n",
            "t,addr\n1,2\n\n\n3,x\n",
            "t,addr\r\n1,2\r\n\r\n3,x\r\n",
            "t,addr\r1,2\r3,x\r",
            "t,addr\n1,2\n3,",
            "t,addr\n1,2\n\"3\n4\",\"x\ny\"\n",
            "t,addr\n1,2\n\"3\n4",
            "t,addr\n1,2\n\"3\n4\n",
            "t,addr\n1,2\r\n3,4,x\n\"5\n\",6\r7,8\r\n9,0x10\n11,12 \n13,x\n",
        ],
        expect![[r#"
            "" → []
            "addr\n" → []
            "time,addr\n1,2\n3,0x1f\n" → [2, 31]
            "time,addr,what\r\n1,2,x\r\n3,4\r\n" → [2, 4]
            "\u{feff}addr\n1\n" → [1]
            "\u{feff}\"addr\"\n1\n" → [1]
            "\u{feff}\u{feff}addr\n1\n" → [] line 1: no column `addr`; there are `\u{feff}addr`
            " addr , time \n 1 , 2 \n\n3" → [1, 3]
            "\"a,\nb\",\"addr\"\n\"x\"\"\ny\",\"5\"\n,\"6\"\n" → [5, 6]
            "addr,addr\n1,2\n" → [1]
            "a,b\n1,2\n" → [] line 1: no column `addr`; there are `a`, `b`
            "a,\u{1b},\"b\nc\"\n1,2,3\n" → [] line 1: no column `addr`; there are `a`, `\u{1b}`, `b\nc`
            "t,addr\n1,2\n3\n" → [2] line 3: found 1 column, expected 2 or more
            "t,addr\n1,2\n\n\n3,x\n" → [2] line 5: found `x`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "t,addr\r\n1,2\r\n\r\n3,x\r\n" → [2] line 4: found `x`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "t,addr\r1,2\r3,x\r" → [2] line 1: found `x`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "t,addr\n1,2\n3," → [2] line 3: found ``, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "t,addr\n1,2\n\"3\n4\",\"x\ny\"\n" → [2] line 3: found `x\ny`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
            "t,addr\n1,2\n\"3\n4" → [2] line 3: found 1 column, expected 2 or more
            "t,addr\n1,2\n\"3\n4\n" → [2] line 3: found 1 column, expected 2 or more
            "t,addr\n1,2\r\n3,4,x\n\"5\n\",6\r7,8\r\n9,0x10\n11,12 \n13,x\n" → [2, 4, 6, 8, 16, 12] line 8: found `x`, expected a decimal number, or 0x and hexadecimal digits, below 2^64
        "#]],
    );
    table(
        Format::Csv,
        &Options::default(),
        &["addr\n1\n2,3\n", "a,b\n1\n", "\n\na\n1"],
        expect![[r#"
            "addr\n1\n2,3\n" → [1, 2]
            "a,b\n1\n" → [] line 1: which column holds the references? choose with --column: `a`, `b`
            "\n\na\n1" → [1]
        "#]],
    );
    table(
        Format::Csv,
        &column("2"),
        &["a,b\n1,2\n", "a\n1\n", "2,1\n1,2\n"],
        expect![[r#"
        "a,b\n1,2\n" → [2]
        "a\n1\n" → [] line 1: no column 2; there are `a`
        "2,1\n1,2\n" → [2]
    "#]],
    );
    let many = (1..=30).map(|it| format!("column{it}")).collect::<Vec<_>>().join(",");
    table(
        Format::Csv,
        &column("addr"),
        &[&many],
        expect![[r#"
        "column1,column2,column3,column4,column5,column6,column7,column8,column9,column10,column11,column12,column13,column14,column15,column16,column17,column18,column19,column20,column21,column22,column23,column24,column25,column26,column27,column28,column29,column30" → [] line 1: no column `addr`; there are `column1`, `column2`, `column3`, `column4`, `column5`, `column6`, `column7`, `column8`, `column9`, `column10`, `column11`, `column12`, `column13`, `column14`, `column15`, `column16`, `column17`, `column18`, `column19`, `column20` and 10 more
    "#]],
    );
}

const HEADER_TOO_LONG: &str = "line 1: the header is longer than 65536 bytes or 1024 columns";

#[test]
fn csv_rows_are_bounded() {
    let skip_bad = Options { skip_bad: true, ..column("a") };
    let long = format!("a,b\n1,2\n\"\n{}\n\"\n3,4\n", "x\n".repeat(LINE_BYTES_MAX));
    let wide = format!("a,b\n1,2\n{}\n3,4\n", ",".repeat(5000));
    for trace in [long, wide] {
        for piece_bytes in [1, 1000, LINE_BYTES_MAX, usize::MAX] {
            let mut parser = Parser::new(Format::Csv, &skip_bad).unwrap();
            let parsed = parse(&mut parser, trace.as_bytes(), piece_bytes);
            assert_eq!((parsed.references.as_slice(), parsed.skipped), (&[1, 3][..], 1));
            let mut parser = Parser::new(Format::Csv, &column("a")).unwrap();
            let parsed = parse(&mut parser, trace.as_bytes(), piece_bytes);
            let text = parsed.end.unwrap_err().to_string();
            let expected = "line 3: found a row longer than 65536 bytes or 1024 columns, ";
            assert!(text.starts_with(expected), "{text}");
        }
    }
    let header = ",".repeat(5000);
    header_fault(&header, HEADER_TOO_LONG);
    header_fault(&"x".repeat(LINE_BYTES_MAX + 1), HEADER_TOO_LONG);
}

fn header_fault(trace: &str, expected: &str) {
    let mut parser = Parser::new(Format::Csv, &column("a")).unwrap();
    let parsed = parse(&mut parser, trace.as_bytes(), 1000);
    assert_eq!(parsed.end.unwrap_err().to_string(), expected);
}

#[test]
fn lackey_lines_are_read_or_name_their_fault() {
    let traces = [
        "==1== Lackey, an example\n==1== \nI  04001000,3\n L 1ffe,8\n S 1fff000758,32\n M 0,1\n==1== end\n",
        "--1-- warning\n**1** shout\n\nI  10,1\r\n\n",
        "L 10,1\nM 10,1",
        "I  10\n",
        "I  10,0\n",
        "I  10,4097\n",
        "I  10,4096\n",
        "I  0x10,1\n",
        "I  ,1\n",
        "I  10,\n",
        "I  10,f\n",
        "I10,1\n",
        " X 10,1\n",
        " L ffffffffffffffff,1\n",
        " L ffffffffffffffff,2\n",
        " L 10000000000000000,1\n",
        "hello from the traced program\n",
    ];
    table(
        Format::Lackey,
        &Options::default(),
        &traces,
        expect![[r#"
        "==1== Lackey, an example\n==1== \nI  04001000,3\n L 1ffe,8\n S 1fff000758,32\n M 0,1\n==1== end\n" → [67112960, 8190, 137422178136, 0]
        "--1-- warning\n**1** shout\n\nI  10,1\r\n\n" → [16]
        "L 10,1\nM 10,1" → [16, 16]
        "I  10\n" → [] line 1: found `I  10`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        "I  10,0\n" → [] line 1: found `I  10,0`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        "I  10,4097\n" → [] line 1: found `I  10,4097`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        "I  10,4096\n" → [16]
        "I  0x10,1\n" → [] line 1: found `I  0x10,1`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        "I  ,1\n" → [] line 1: found `I  ,1`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        "I  10,\n" → [] line 1: found `I  10,`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        "I  10,f\n" → [] line 1: found `I  10,f`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        "I10,1\n" → [] line 1: found `I10,1`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        " X 10,1\n" → [] line 1: found ` X 10,1`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        " L ffffffffffffffff,1\n" → [18446744073709551615]
        " L ffffffffffffffff,2\n" → [] line 1: found ` L ffffffffffffffff,2`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        " L 10000000000000000,1\n" → [] line 1: found ` L 10000000000000000,1`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
        "hello from the traced program\n" → [] line 1: found `hello from the traced program`, expected an access like `I  04001000,3` or ` L 1ffe,8` (I, L, S or M, hexadecimal address, 1 to 4096 bytes)
    "#]],
    );
    table(
        Format::Lackey,
        &page_size(4096),
        &["I  1000,4\n L 1ffe,2\n L 1ffe,3\n S fff,4096\n S fff,4095\n", " L ffffffffffffffff,1\n"],
        expect![[r#"
            "I  1000,4\n L 1ffe,2\n L 1ffe,3\n S fff,4096\n S fff,4095\n" → [1, 1, 1, 2, 0, 1, 0, 1]
            " L ffffffffffffffff,1\n" → [4503599627370495]
        "#]],
    );
    table(
        Format::Lackey,
        &page_size(3),
        &[" L 2,8\n"],
        expect![[r#"
        " L 2,8\n" → [0, 1, 2, 3]
    "#]],
    );
}
