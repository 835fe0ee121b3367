//! Bridge kit.
