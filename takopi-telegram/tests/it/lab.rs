//! A bot on a fake service.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use takopi_bridge::{Pace, Router, Settings};
use takopi_codex::Codex;
use takopi_codex::app_server::CodexAppServer;
use takopi_core::approvals::deny;
use takopi_core::demo::Demo;
use takopi_core::{EngineRunner, Host, Runner};
use takopi_projects::{Project, Projects};
use takopi_telegram::bot::Parts;
use takopi_telegram::rate::Limits;
use takopi_telegram::{Api, Bot, BotError, Config, Store, Token};
use takopi_tests::dice::Dice;
use takopi_tests::telegram::{Call, FakeTelegram, Fault, TOKEN};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// Two people who are allowed, and one who is not.
pub(crate) const ALICE: i64 = 11;
pub(crate) const BOB: i64 = 12;
pub(crate) const MALLORY: i64 = 66;
/// The group that is allowed.
pub(crate) const GROUP: i64 = -100;

/// One call in ten fails; of the failures one in four comes when the service has already acted.
/// `TAKOPI_TELEGRAM_SEED` is a seed instead of the usual one.
pub(crate) fn one_call_in_ten(seed: u64) -> impl FnMut(&Call) -> Option<Fault> + Send + 'static {
    let other = std::env::var("TAKOPI_TELEGRAM_SEED").ok();
    let mut dice = Dice::new(other.map_or(seed, |seed| seed.parse().unwrap()));
    move |_| {
        (dice.below(10) == 0).then(|| match dice.below(4) {
            0 => Fault::TooManyRequests(1),
            1 => Fault::BadGateway,
            2 => Fault::Reset,
            _ => Fault::ResetBehind,
        })
    }
}

pub(crate) struct Lab {
    pub(crate) fake: Arc<FakeTelegram>,
    pub(crate) directory: TempDir,
    pub(crate) config: Value,
    pub(crate) projects: Projects,
}

/// A bot on a runtime of its own, which a crash takes away.
pub(crate) struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), BotError>>,
    runtime: Runtime,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let config = json!({
            "allowed_users": [ALICE, BOB], "chats": [GROUP], "forward_window": "0s",
        });
        let directory = TempDir::new().unwrap();
        std::fs::create_dir(directory.path().join("work")).unwrap();
        let fake = Arc::new(FakeTelegram::start());
        Self { fake, directory, config, projects: Projects::default() }
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config[key] = value.into();
        self
    }

    pub(crate) fn project(mut self, name: &str, path: &Path) -> Self {
        self.projects.add(Project::new(name, path));
        self
    }

    /// A lab with a project `web` that is a git repository, and where its branch `topic` will be.
    pub(crate) fn with_branch() -> (Self, PathBuf) {
        let lab = Self::new();
        let web = lab.work().join("web");
        std::fs::create_dir(&web).unwrap();
        lab.git(&["init", "--quiet"]);
        lab.git(&["commit", "--quiet", "--allow-empty", "-m", "first"]);
        let branch = web.join(".worktrees/topic");
        (lab.project("web", &web), branch)
    }

    /// Runs git in the project `web`.
    pub(crate) fn git(&self, args: &[&str]) {
        let identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
        let mut git = std::process::Command::new("git");
        git.arg("-C").arg(self.work().join("web")).args(identity).args(args);
        assert!(git.status().unwrap().success(), "{args:?}");
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.directory.path().join("work").canonicalize().unwrap()
    }

    pub(crate) fn api(&self) -> Api {
        Api::new(self.fake.url(), Token::parse(TOKEN).unwrap()).unwrap()
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(self.directory.path().join("state/telegram.json")).unwrap()
    }

    /// A runner of the demo engine.
    pub(crate) fn demo(&self) -> Arc<dyn Runner> {
        let host = Host::builder().state_directory(self.directory.path().join("host")).build();
        Arc::new(Demo::new().runner().on(host.unwrap()))
    }

    pub(crate) fn parts(&self, runner: Arc<dyn Runner>, settings: Settings) -> Parts {
        let config = Config::read(self.config.as_object().unwrap()).unwrap();
        let router = Router::new(runner);
        let mut parts = Parts::new(self.api(), config, router, self.store(), self.work());
        parts.projects = self.projects.clone();
        parts.settings = settings;
        // The rate has tests of its own.
        let brief = Duration::from_millis(1);
        parts.limits = Limits { per_second: 100_000, chat_interval: brief, group_minute: 100_000 };
        let pace = Pace::default().interval(Duration::from_millis(20)).attempts(40);
        parts.pace = pace;
        parts
    }

    /// The same with the demo engine behind another one, which is the default and never runs.
    pub(crate) fn parts_with_another_default(&self, settings: Settings) -> Parts {
        let mut parts = self.parts(self.demo(), settings);
        let host = Host::builder().state_directory(self.directory.path().join("other")).build();
        let codex = EngineRunner::new(CodexAppServer::new(Codex::new())).on(host.unwrap());
        parts.router = Router::new(Arc::new(codex)).with(self.demo());
        parts
    }

    /// A bot whose agent is the demo engine; nobody is asked for approvals.
    pub(crate) async fn bot(&self) -> Running {
        let settings = Settings::default().approvals(|_| Arc::new(deny()));
        self.run(self.parts(self.demo(), settings)).await
    }

    pub(crate) async fn run(&self, parts: Parts) -> Running {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let bot = runtime.spawn(Bot::start(parts)).await.unwrap().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = runtime.spawn(async move { bot.run(&stopped).await });
        Running { stop, task, runtime }
    }
}

impl Running {
    /// Ends as on a signal.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        self.runtime.shutdown_background();
    }

    /// Ends as by a crash: the chat is told nothing.
    pub(crate) async fn crash(self) {
        self.runtime.shutdown_background();
        let _ = self.task.await;
    }
}
