//! See `fencewire::wire::mysql::fuzzing::login`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = fencewire::wire::mysql::fuzzing::login(data) {
        panic!("{why}");
    }
});
