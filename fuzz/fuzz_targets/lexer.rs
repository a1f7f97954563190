//! See `fencewire::sql::fuzzing::lexer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = fencewire::sql::fuzzing::lexer(data) {
        panic!("{why}");
    }
});
