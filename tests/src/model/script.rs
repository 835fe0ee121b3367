//! Scripts: the answers to the requests of one prompt.

/// The answers to the requests of one prompt, first to last. Which request gets which of them depends on the API.
#[derive(Clone, Debug)]
pub struct Script<T> {
    pub(super) answers: Vec<T>,
    pub(super) repeats: bool,
}

/// Something that a script is made of.
pub trait Scripted: for<'a> From<&'a str> {}

impl<T: Scripted> Script<T> {
    /// The same answer to every request, however many come.
    pub fn repeat(answer: impl Into<T>) -> Self {
        Self { answers: vec![answer.into()], repeats: true }
    }
}

impl<T: Scripted> From<Vec<T>> for Script<T> {
    fn from(answers: Vec<T>) -> Self {
        Self { answers, repeats: false }
    }
}

impl<T: Scripted, const N: usize> From<[T; N]> for Script<T> {
    fn from(answers: [T; N]) -> Self {
        Vec::from(answers).into()
    }
}

impl<T: Scripted> From<T> for Script<T> {
    fn from(answer: T) -> Self {
        vec![answer].into()
    }
}

impl<T: Scripted> From<&str> for Script<T> {
    fn from(text: &str) -> Self {
        T::from(text).into()
    }
}
