//! Chaos over an agent that speaks ACP: see `takopi_tests::chaos`.

takopi_tests::chaos_tests!(takopi_tests::home::Home);
