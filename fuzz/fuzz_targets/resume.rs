//! Resume lines: whatever text they stand in.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let codec = takopi_codex::resume_codec();
    if let Some(token) = codec.extract(text) {
        let line = codec.format(&token);
        assert!(codec.is_line(&line), "{line}");
        assert_eq!(codec.extract(&line), Some(token));
    }
});
