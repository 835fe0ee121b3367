//! Passes lines between a client and the test that plays the server: see `takopi_tests::relay`.

fn main() {
    takopi_tests::relay::main();
}
