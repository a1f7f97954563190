//! See `fencewire::wire::pg::fuzzing::startup`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = fencewire::wire::pg::fuzzing::startup(data) {
        panic!("{why}");
    }
});
