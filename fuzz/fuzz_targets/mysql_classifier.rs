//! See `fencewire::sql::fuzzing::mysql_classifier`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = fencewire::sql::fuzzing::mysql_classifier(data) {
        panic!("{why}");
    }
});
