//! Chaos over pi: see `takopi_tests::chaos`.

takopi_tests::chaos_tests!(takopi_tests::pi::home::TestHome);
