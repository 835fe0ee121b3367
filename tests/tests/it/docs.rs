//! The documentation names files and pages that exist.
use std::path::{Path, PathBuf};

/// The folders and files of the repository that the documentation speaks of.
const ROOTS: &[&str] = &[
    ".ci",
    ".github",
    "bench",
    "docs",
    "fixtures",
    "fuzz",
    "scripts",
    "takopi-batch",
    "takopi-projects",
    "takopi-telegram",
    "takopi-bridge",
    "takopi-claude",
    "takopi-cli",
    "takopi-codex",
    "takopi-core",
    "takopi-fleet",
    "takopi-pi",
    "tests",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All files below a directory.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// The pages written in Markdown, with their text outside of code blocks.
fn pages() -> Vec<(PathBuf, String)> {
    let repository = repository();
    let mut all = vec![repository.join("README.md"), repository.join("CONTRIBUTING.md")];
    for root in ROOTS.iter().filter(|root| **root != "fixtures") {
        files(&repository.join(root), &mut all);
    }
    let is_page = |path: &PathBuf| has_extension(path, "md");
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let blocks = text.split("\n```").step_by(2).collect();
        (path, blocks)
    };
    all.into_iter().filter(is_page).map(read).collect()
}

/// The example of the README.
#[expect(dead_code, reason = "it would run the user's codex")]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "as in the README")]
async fn readme_example() {
    // begin
    use takopi_codex::Codex;
    use takopi_core::{RunRequest, Runner};

    let codex = Codex::new().app_server();
    let completed = codex.ask(RunRequest::new("what does this project do?")).await;
    match completed.error {
        None => println!("{}", completed.answer),
        Some(error) => eprintln!("failed: {error}"),
    }
    codex.shutdown().await;
    // end
}

#[test]
fn the_example_of_the_readme_compiles() {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, example) = readme.split_once("\n```rust\n").unwrap();
    let example = example.split_once("\n```\n").unwrap().0;
    let (_, compiled) = include_str!("docs.rs").split_once("    // begin\n").unwrap();
    let compiled = compiled.split_once("    // end\n").unwrap().0;
    let lines = |text: &str| {
        let lines = text.lines().map(|line| line.trim().to_owned());
        lines.filter(|line| !line.is_empty() && !line.starts_with("//")).collect::<Vec<_>>()
    };
    assert_eq!(lines(example), lines(compiled), "change both together");
}

#[test]
fn files_named_in_the_docs_exist() {
    let repository = repository();
    let mut known = Vec::new();
    for root in ROOTS {
        files(&repository.join(root), &mut known);
    }
    let mut missing = Vec::new();
    for (page, text) in pages() {
        for span in text.split('`').skip(1).step_by(2) {
            let in_root = ROOTS.iter().any(|root| span.starts_with(&format!("{root}/")));
            let is_source = has_extension(Path::new(span), "rs");
            let is_path = !span.contains([' ', '*', '…', '<', '\n']);
            if !is_path || !(in_root || is_source) {
                continue;
            }
            // A short name stands beside a full one: any file that ends like it will do.
            let exists = repository.join(span).exists()
                || (is_source && known.iter().any(|file| file.ends_with(span)));
            if !exists {
                missing.push(format!("{}: {span}", page.display()));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "named in the documentation, but not there:\n{}",
        missing.join("\n")
    );
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    heading.chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    let mut broken = Vec::new();
    for (page, text) in pages() {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.with_file_name(path) };
            let found = target.exists()
                && (heading.is_empty() || {
                    let text = std::fs::read_to_string(&target).unwrap();
                    let mut headings = text.lines().filter(|line| line.starts_with('#'));
                    headings.any(|line| anchor(line) == heading)
                });
            if !found {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}
