//! The `takopi` command is a program; this library is empty.
//!
//! It lets the package be a dependency of its own tests, which need the program with its optional features.
