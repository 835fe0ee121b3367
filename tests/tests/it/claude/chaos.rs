//! Chaos over Claude Code: see `takopi_tests::chaos`.

takopi_tests::chaos_tests!(takopi_tests::claude::home::TestHome);
