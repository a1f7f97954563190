//! See `fencewire::sql::fuzzing::mysql_lexer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = fencewire::sql::fuzzing::mysql_lexer(data) {
        panic!("{why}");
    }
});
