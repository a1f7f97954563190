//! See `fencewire::sql::fuzzing::classifier`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = fencewire::sql::fuzzing::classifier(data) {
        panic!("{why}");
    }
});
