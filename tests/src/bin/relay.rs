//! Passes lines between a client and the test that plays the server: see `takopi_tests::codex::relay`.

fn main() {
    takopi_tests::codex::relay::main();
}
