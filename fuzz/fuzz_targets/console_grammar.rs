//! See `fencewire::admin::console::fuzzing::console_grammar`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(why) = fencewire::admin::console::fuzzing::console_grammar(data) {
        panic!("{why}");
    }
});
