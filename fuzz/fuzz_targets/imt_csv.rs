//! Series of working sets and events: any bytes give rows or an error with a place; rows survive a
//! round trip.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match ballast_lab::imt::parse(bytes) {
        Err(fault) => assert!(fault.line >= 1 && fault.column >= 1, "{fault}"),
        Ok(rows) => {
            let lines = rows.iter().map(|row| format!("{},{}\n", row.wss.get(), row.events));
            let text = "wss_bytes,events\n".to_owned() + &lines.collect::<String>();
            assert_eq!(ballast_lab::imt::parse(text.as_bytes()).as_ref(), Ok(&rows));
        }
    }
});
