//! One tab: opened, looked at, typed and clicked into, and pictured.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::wire::Wire;
use crate::dirs::target_dir;
use crate::model::{PATIENCE, within};

/// One tab in a browser of its own.
#[derive(Debug)]
pub struct Page {
    wire: Wire,
    session: String,
    /// The browser's own files; removed last.
    directory: TempDir,
}

impl Page {
    pub(super) async fn start(browser: &Path) -> Self {
        let place = target_dir().join("takopi-browser");
        std::fs::create_dir_all(&place).expect("create the directory of browsers");
        let directory = tempfile::Builder::new().prefix("profile-").tempdir_in(place);
        let directory = directory.expect("create a profile");
        let mut wire = Wire::start(browser, directory.path());
        let mut browser = async |method, params| {
            let calling = wire.call(None, method, params);
            within(PATIENCE, method, calling).await.expect("the browser obeys")
        };
        let target = browser("Target.createTarget", json!({ "url": "about:blank" })).await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser("Target.attachToTarget", attach).await;
        let permissions = json!({ "permissions": ["clipboardReadWrite"] });
        browser("Browser.grantPermissions", permissions).await;
        let session = attached["sessionId"].as_str().expect("a session has an id").to_owned();
        let mut page = Self { wire, session, directory };
        for domain in ["Page", "Runtime", "Log"] {
            page.call(&format!("{domain}.enable"), json!({})).await;
        }
        page
    }

    /// Opens an address, and waits until it is loaded.
    pub async fn open(&mut self, address: &str) {
        let opened = self.call("Page.navigate", json!({ "url": address })).await;
        assert!(opened.get("errorText").is_none(), "cannot open {address}: {opened}");
        let loaded = "document.readyState === 'complete' || \
            new Promise(done => addEventListener('load', () => done(true)))";
        self.eval(loaded).await;
    }

    /// The value of a JavaScript expression; a promise is awaited.
    pub async fn eval(&mut self, expression: &str) -> Value {
        self.try_eval(expression).await.unwrap_or_else(|error| panic!("{error}"))
    }

    async fn try_eval(&mut self, expression: &str) -> Result<Value, String> {
        let params = json!({
            "expression": expression,
            "awaitPromise": true,
            "returnByValue": true,
            "userGesture": true,
        });
        let mut result = self.wire.call(Some(&self.session), "Runtime.evaluate", params).await?;
        let error = &result["exceptionDetails"];
        assert!(error.is_null(), "{expression}\n{error:#}");
        Ok(result["result"]["value"].take())
    }

    /// Waits until an expression is true, which is looked at again whenever the page changes.
    pub async fn wait_for(&mut self, expression: &str) {
        let waiting = format!(
            "new Promise(done => {{
                const look = () => {{
                    if (!({expression})) return false;
                    changes.disconnect();
                    done(true);
                }};
                const changes = new MutationObserver(look);
                changes.observe(document, {{
                    subtree: true, childList: true, attributes: true, characterData: true,
                }});
                look();
            }})"
        );
        let seen = tokio::time::timeout(PATIENCE, self.eval_after_navigation(&waiting)).await;
        if seen.is_err() {
            let page = self.eval("document.body.innerText").await;
            panic!(
                "waited {PATIENCE:?} in vain for {expression}; the page:\n{}",
                page.as_str().unwrap_or_default()
            );
        }
    }

    /// The value of an expression in the document that is there, or in the next one if the page goes there meanwhile.
    async fn eval_after_navigation(&mut self, expression: &str) -> Value {
        loop {
            match self.try_eval(expression).await {
                Err(error)
                    if error.contains("navigated or closed") || error.contains("context") => {}
                result => return result.unwrap_or_else(|error| panic!("{error}")),
            }
        }
    }

    /// Waits until the page shows a text.
    pub async fn wait_for_text(&mut self, text: &str) {
        self.wait_for(&format!("document.body?.innerText.includes({})", json!(text))).await;
    }

    /// All the text that the page shows.
    pub async fn text(&mut self) -> String {
        self.eval("document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks into the middle of the first element that a selector finds, once it is there.
    pub async fn click(&mut self, selector: &str) {
        self.press_mouse(selector).await.release().await;
    }

    /// Presses the mouse button in the middle of the first element that a selector finds, once it is there, and holds it.
    pub async fn press_mouse(&mut self, selector: &str) -> HeldMouse<'_> {
        self.wait_for(&format!("document.querySelector({})", json!(selector))).await;
        let middle = self
            .eval(&format!(
                "(() => {{
                    const element = document.querySelector({});
                    element.scrollIntoView({{ block: 'center', behavior: 'instant' }});
                    const box = element.getBoundingClientRect();
                    return {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }};
                }})()",
                json!(selector)
            ))
            .await;
        self.mouse("mousePressed", &middle).await;
        HeldMouse { page: self, at: middle }
    }

    async fn mouse(&mut self, kind: &str, at: &Value) {
        let params = json!({
            "type": kind, "x": at["x"], "y": at["y"], "button": "left", "clickCount": 1,
        });
        self.call("Input.dispatchMouseEvent", params).await;
    }

    /// Types text into whatever has the focus.
    pub async fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Presses and releases Enter, with Shift held or not.
    pub async fn press_enter(&mut self, shift: bool) {
        for kind in ["keyDown", "keyUp"] {
            let params = json!({
                "type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13,
                "text": "\r", "modifiers": if shift { 8 } else { 0 },
            });
            self.call("Input.dispatchKeyEvent", params).await;
        }
    }

    /// Presses and releases a key that types nothing, such as `Tab` or `Escape`, with Alt held or not.
    pub async fn press_key(&mut self, key: &str, code: u32, alt: bool) {
        for kind in ["rawKeyDown", "keyUp"] {
            let params = json!({
                "type": kind, "key": key, "windowsVirtualKeyCode": code, "modifiers": u32::from(alt),
            });
            self.call("Input.dispatchKeyEvent", params).await;
        }
    }

    /// What axe-core finds wrong for people with disabilities, of what is serious or worse.
    pub async fn serious_violations(&mut self, axe: &str) -> Vec<String> {
        // The policy of a page does not apply to what the browser's own protocol evaluates.
        self.eval(&format!("{axe}\n;0")).await;
        let found = self
            .eval(
                "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations
                    .filter(it => ['serious', 'critical'].includes(it.impact))
                    .flatMap(it => it.nodes.map(node => `${it.id}: ${node.html} ${node.failureSummary}`)))",
            )
            .await;
        serde_json::from_value(found).expect("a list of texts")
    }

    /// Gives the page this many pixels, and a light or a dark appearance. Nothing moves, so that pictures hold still.
    pub async fn look(&mut self, (width, height): (u32, u32), scheme: &str) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// A picture of what is seen, as PNG.
    pub async fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        unbase64(picture["data"].as_str().expect("a picture has data"))
    }

    /// Where its browser keeps its files, until it is dropped.
    pub fn profile(&self) -> &Path {
        self.directory.path()
    }

    /// Fails if the page complained: an uncaught error, an error on the console, something its policy refused.
    pub fn assert_content(&self) {
        let complaints = self.wire.complaints();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let answered = self.wire.call(Some(&self.session), method, params).await;
        answered.unwrap_or_else(|error| panic!("{error}"))
    }
}

/// A mouse button that is held down.
#[must_use = "the button stays down until it is released"]
#[derive(Debug)]
pub struct HeldMouse<'a> {
    /// The page it is held on.
    pub page: &'a mut Page,
    at: Value,
}

impl HeldMouse<'_> {
    /// Releases the button where it was pressed.
    pub async fn release(self) {
        self.page.mouse("mouseReleased", &self.at).await;
    }
}

/// The bytes of a text in base 64.
fn unbase64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    for digit in text.bytes().filter_map(|it| DIGITS.iter().position(|digit| *digit == it)) {
        held = held << 6 | u32::try_from(digit).expect("a digit is below 64");
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).expect("eight bits are a byte"));
        }
    }
    bytes
}
