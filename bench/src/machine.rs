//! The machine that figures were measured on.

use std::process::Command;

/// A few lines about it.
pub(crate) fn describe() -> anyhow::Result<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let output = Command::new("rustc").arg("--version").output()?;
    let unknown = || "unknown".to_owned();
    let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_else(unknown);
    Ok(format!(
        "{} cores of {}, {memory} of memory, Linux {}, {}; load {} before the first table.\n",
        std::thread::available_parallelism()?,
        field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
        // What is behind the number is the distributor's business.
        read("/proc/sys/kernel/osrelease").trim().split('-').next().unwrap_or_default(),
        String::from_utf8_lossy(&output.stdout).trim(),
        read("/proc/loadavg").split(' ').next().unwrap_or_default(),
    ))
}
