//! OpenAI's own SDKs. Their newest releases are older than the codex they are given here; both take one
//! of the caller's choice.

use std::process::Command;

use takopi_tests::codex::real;

use crate::contest::Entrant;
use crate::contest::sdk::{installed, python as python_with, run, script};

const VERSION: &str = "0.163.0";

/// `@openai/codex-sdk`, without its dependency, which is another codex.
pub(super) fn typescript(codex: &real::Codex) -> anyhow::Result<Entrant> {
    let place = installed(&format!("node-{VERSION}"), |place| {
        let package = format!("@openai/codex-sdk@{VERSION}");
        let mut pack = Command::new("npm");
        run(pack.args(["pack", "--silent", &package, "--pack-destination"]).arg(place))?;
        let archive = place.join(format!("openai-codex-sdk-{VERSION}.tgz"));
        run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(place))
    })?;
    let module = place.join("package/dist/index.js");
    let args = vec![script("codex/turns.mjs").into(), module.into()];
    let name = format!("TypeScript SDK {VERSION}");
    Ok(Entrant::foreign(name, "node".as_ref(), args, &codex.path))
}

/// `openai-codex`.
pub(super) fn python(codex: &real::Codex) -> anyhow::Result<Entrant> {
    let python = python_with(&format!("python-{VERSION}"), "codex/requirements.txt")?;
    let args = vec![script("codex/turns.py").into()];
    Ok(Entrant::foreign(format!("Python SDK {VERSION}"), &python, args, &codex.path))
}
