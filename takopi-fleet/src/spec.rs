//! What of a request travels to a worker.
//!
//! Every setting is either in the spec, or has a meaning on the submitter's side only (`wait`), or is mapped to a place (`cwd`).
//! A test fails when a setting is added that is not dealt with here. Images and the output schema travel as files.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takopi_core::model::Reason;
use takopi_core::{RunError, RunRequest, RunSettings};

/// The files of a job may have so many bytes together.
pub const MAX_BLOBS: u64 = 20 * 1024 * 1024;

/// A run, as a worker gets it.
#[derive(Clone, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct JobSpec {
    /// The prompt.
    pub prompt: String,
    model: Option<String>,
    effort: Option<String>,
    pub(crate) sandbox: Option<String>,
    pub(crate) permission_mode: Option<String>,
    ephemeral: Option<bool>,
    pub(crate) options: Vec<(String, String)>,
    /// Variables for the engine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<(String, String)>,
    idle_timeout: Option<Duration>,
    wall_timeout: Option<Duration>,
    /// The names of the images; their bytes are the first blobs.
    images: Vec<String>,
    /// Whether the last blob is the output schema.
    output_schema: bool,
    /// The directory below the place.
    dir: Option<PathBuf>,
    /// Whether the submitter answers approval requests.
    pub asks: bool,
    /// Whether the submitter may send messages into the turn.
    pub steers: bool,
    /// Whether the answer is streamed.
    deltas: bool,
}

fn invalid(message: impl Into<String>) -> RunError {
    RunError::new(Reason::InvalidRequest, message)
}

impl JobSpec {
    /// The spec of a request, and the files that go with it. `dir` is where it works, below its place.
    pub fn of(
        request: &RunRequest,
        dir: Option<PathBuf>,
    ) -> Result<(Self, Vec<Vec<u8>>), RunError> {
        let text = |(name, value): &(OsString, OsString)| {
            let text = |it: &OsString| it.to_str().map(str::to_owned);
            text(name).zip(text(value)).ok_or_else(|| {
                invalid(format!("the variable {} is not text", name.to_string_lossy()))
            })
        };
        let env = request.env.iter().map(text).collect::<Result<_, _>>()?;
        let settings = &request.settings;
        let mut size = 0;
        let mut read = |file: &Path| {
            let blob = std::fs::read(file)
                .map_err(|error| invalid(format!("cannot read {}: {error}", file.display())))?;
            size += blob.len() as u64;
            if size > MAX_BLOBS {
                return Err(invalid(
                    "images and schema have more than 20 MB together: too much for a fleet",
                ));
            }
            Ok(blob)
        };
        let files = settings.images.iter().chain(&settings.output_schema);
        let blobs = files.map(|file| read(file)).collect::<Result<_, _>>()?;
        let name = |file: &PathBuf| {
            file.file_name()
                .map_or_else(|| "image".to_owned(), |name| name.to_string_lossy().into_owned())
        };
        let spec = Self {
            prompt: request.prompt.clone(),
            model: settings.model.clone(),
            effort: settings.effort.clone(),
            sandbox: settings.sandbox.clone(),
            permission_mode: settings.permission_mode.clone(),
            ephemeral: settings.ephemeral,
            options: settings.options.clone(),
            env,
            idle_timeout: settings.idle_timeout,
            wall_timeout: settings.wall_timeout,
            images: settings.images.iter().map(name).collect(),
            output_schema: settings.output_schema.is_some(),
            dir,
            asks: request.approvals.is_some(),
            steers: request.steering.is_some(),
            deltas: request.deltas,
        };
        Ok((spec, blobs))
    }

    /// The request that a worker runs, in its own directory of the place. Files are written below `scratch`.
    pub fn request(
        &self,
        place: &Path,
        scratch: &Path,
        blobs: &[Vec<u8>],
    ) -> Result<RunRequest, RunError> {
        let cwd = match &self.dir {
            Some(dir) => below(place, dir)?,
            None => place.to_owned(),
        };
        let mut settings = RunSettings::new();
        settings.cwd = Some(cwd);
        settings.model.clone_from(&self.model);
        settings.effort.clone_from(&self.effort);
        settings.sandbox.clone_from(&self.sandbox);
        settings.permission_mode.clone_from(&self.permission_mode);
        settings.options.clone_from(&self.options);
        settings.ephemeral = self.ephemeral;
        settings.idle_timeout = self.idle_timeout;
        settings.wall_timeout = self.wall_timeout;
        let write = |n: usize, name: &str| {
            let blob = blobs.get(n).ok_or_else(|| invalid("a file of the job is missing"))?;
            // The name is the submitter's: only its ending is used.
            let ending =
                Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or("bin");
            let ending: String =
                ending.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
            let file = scratch.join(format!("{n}.{ending}"));
            std::fs::create_dir_all(scratch).and_then(|()| std::fs::write(&file, blob)).map_err(
                |error| {
                    RunError::new(
                        Reason::SpawnFailed,
                        format!("cannot write {}: {error}", file.display()),
                    )
                },
            )?;
            Ok::<_, RunError>(file)
        };
        for (n, name) in self.images.iter().enumerate() {
            settings.images.push(write(n, name)?);
        }
        if self.output_schema {
            settings.output_schema = Some(write(self.images.len(), "schema.json")?);
        }
        let request = RunRequest::new(self.prompt.clone()).settings(settings).deltas(self.deltas);
        Ok(self.env.iter().fold(request, |request, (name, value)| request.env(name, value)))
    }
}

/// A directory below a place, also if links lead to it: they may be the work of an agent, or come with a repository.
fn below(place: &Path, dir: &Path) -> Result<PathBuf, RunError> {
    let outside = || invalid(format!("{} is not a directory below its place", dir.display()));
    if !dir.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(outside());
    }
    let unusable =
        |error: io::Error| invalid(format!("cannot use {} of its place: {error}", dir.display()));
    let real_place = place.canonicalize().map_err(unusable)?;
    let real = place.join(dir).canonicalize().map_err(unusable)?;
    // Without the links, which could lead elsewhere by the time the run begins.
    real.strip_prefix(&real_place).map(|dir| place.join(dir)).map_err(|_| outside())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_travels_or_has_its_reason_not_to() {
        let travels = [
            "model",
            "effort",
            "sandbox",
            "permission_mode",
            "ephemeral",
            "images",
            "output_schema",
            "options",
            "idle_timeout",
            "wall_timeout",
        ];
        // The place instead; how long the submitter waits.
        let stays = ["cwd", "wait"];
        for name in RunSettings::NAMES {
            assert!(
                travels.contains(name) || stays.contains(name),
                "`{name}` is lost on its way to a worker"
            );
        }
    }

    #[test]
    fn a_request_is_the_same_on_the_worker() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("a.png");
        std::fs::write(&image, "png").unwrap();
        let mut request =
            RunRequest::new("hi").model("m").effort("high").sandbox("read-only").image(&image);
        request = request
            .option("a", "b")
            .wall_timeout(Duration::from_secs(2))
            .permission_mode("plan")
            .deltas(true);
        let (spec, blobs) = JobSpec::of(&request, Some("sub".into())).unwrap();
        let spec: JobSpec = serde_json::from_value(serde_json::to_value(&spec).unwrap()).unwrap();
        let place = dir.path().join("place");
        std::fs::create_dir_all(place.join("sub")).unwrap();
        let there = spec.request(&place, &dir.path().join("s"), &blobs).unwrap();
        let mut expected = request.settings.clone();
        expected.cwd = Some(place.join("sub"));
        expected.images = vec![dir.path().join("s/0.png")];
        assert_eq!((there.prompt.as_str(), &there.settings, there.deltas), ("hi", &expected, true));
        assert_eq!(std::fs::read(&there.settings.images[0]).unwrap(), b"png");
        let (spec, _) = JobSpec::of(&request, Some("../up".into())).unwrap();
        assert!(spec.request(&place, dir.path(), &blobs).is_err());
        let (spec, blobs) = JobSpec::of(&request.env("A", "b"), None).unwrap();
        let there = spec.request(&place, dir.path(), &blobs).unwrap();
        assert_eq!(there.env, [("A".into(), "b".into())]);
    }

    #[test]
    fn a_link_in_a_place_does_not_lead_out_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        std::fs::create_dir_all(place.join("sub")).unwrap();
        for (to, name) in [("/", "root"), ("..", "up"), ("sub", "inside")] {
            std::os::unix::fs::symlink(to, place.join(name)).unwrap();
        }
        let cwd = |below: &str| {
            let (spec, _) = JobSpec::of(&RunRequest::new("hi"), Some(below.into())).unwrap();
            spec.request(&place, dir.path(), &[]).map(|request| request.settings.cwd)
        };
        for outside in ["root", "root/tmp", "up", "up/place/../..", "missing"] {
            assert!(cwd(outside).is_err(), "{outside}");
        }
        assert_eq!(cwd("inside").unwrap(), Some(place.join("sub")));
    }
}
