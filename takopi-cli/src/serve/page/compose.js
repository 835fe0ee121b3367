// Writing messages: drafts, the settings of a new conversation, sending.

const field = at('textarea');
const HINT = 'Enter sends, Shift+Enter starts a new line.';
const store = {
  get(key) { try { return localStorage.getItem('takopi.' + key); } catch { return null; } },
  set(key, value) { try { if (value) localStorage.setItem('takopi.' + key, value); else localStorage.removeItem('takopi.' + key); } catch { /* Without storage nothing is kept. */ } },
};

function setStatus(text, bad) {
  setText(at('#state'), text);
  at('#state').classList.toggle('bad', Boolean(bad));
}

async function call(path, body, silent) {
  try {
    const response = await fetch(path, body === undefined ? {} : {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
    });
    if (response.status === 401) { location.reload(); return null; }
    if (!response.ok) throw new Error(await response.text());
    if (!silent) setStatus(HINT);
    return await response.json();
  } catch (error) {
    setStatus(error instanceof TypeError ? 'The server cannot be reached.' : error.message, true);
    return null;
  }
}

// Unsent text belongs to its conversation. All open pages of a browser share it.
const draftKey = (chat = current) => 'draft.' + (chat ?? 'new');
const joined = (...texts) => texts.filter(Boolean).join('\n');
function addToDraft(chat, text) {
  store.set(draftKey(chat), joined(store.get(draftKey(chat)), text));
  if (chat === current) restoreDraft();
}
// Unless another page did it already.
function addOnce(chat, text) {
  const isThere = `\n${store.get(draftKey(chat)) ?? ''}\n`.includes(`\n${text}\n`);
  if (text && !isThere) addToDraft(chat, text);
}
// The draft of a conversation goes to the one that takes its place.
function moveDraft(from, to) {
  const text = store.get(draftKey(from));
  store.set(draftKey(from), '');
  addOnce(to, text);
}
function keepDraft() { store.set(draftKey(), field.value); }
function restoreDraft() { field.value = store.get(draftKey()) ?? ''; grow(); }
field.addEventListener('input', keepDraft);

function grow() {
  // For browsers whose style sheets cannot let the field grow.
  if (CSS.supports('field-sizing', 'content')) return;
  field.style.height = 'auto';
  field.style.height = field.scrollHeight + 'px';
}
field.addEventListener('input', grow);

function compose(text) {
  field.value = text;
  keepDraft();
  grow();
  field.focus();
  field.setSelectionRange(text.length, text.length);
}

async function send(text) {
  if (!text.trim()) return false;
  const chat = current;
  follows = true;
  const sent = await call('send', chat ? { chat, text } : { chat, text, choice: choice() });
  if (sent && current === chat && chat !== sent.chat) {
    // What was written meanwhile goes on there. What another page writes in its new conversation stays there.
    const text = field.value;
    if (store.get(draftKey(chat)) === text) store.set(draftKey(chat), '');
    addToDraft(sent.chat, text);
    show(sent.chat);
  }
  return Boolean(sent);
}

async function submit() {
  const text = field.value;
  if (!text.trim()) return;
  const chat = current;
  field.value = '';
  keepDraft();
  grow();
  if (await send(text)) return;
  // It comes back to its conversation, if that is still there, above what was written meanwhile.
  const place = chats.has(chat) ? chat : null;
  if (place === current) compose(joined(text, field.value)); else addToDraft(place, text);
}

const userTexts = () => [...chats.get(current)?.messages.values() ?? []].filter(it => it.kind === 'user');

// Sends the message again that a turn belongs to.
function retry(id) {
  const texts = userTexts().filter(it => Number(it.id) < Number(id));
  if (texts.length) send(texts.at(-1).text);
}

at('form#compose').onsubmit = event => { event.preventDefault(); submit(); };
field.onkeydown = event => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
  if (event.key === 'ArrowUp' && !field.value && !event.altKey && userTexts().length) {
    event.preventDefault();
    compose(userTexts().at(-1).text);
  }
};

// The settings of a new conversation. What is as it was offered is not chosen.

const form = at('#choice');
let offered = null;

function choice() {
  if (!offered) return {};
  const chosen = {};
  if (form.project.value) { chosen.project = form.project.value; chosen.branch = form.branch.value; }
  else if (form.cwd.value.trim() !== (offered.directory ?? '')) chosen.cwd = form.cwd.value;
  const project = offered.projects.find(it => it.name === form.project.value);
  if (form.engine.value !== (project?.engine ?? offered.engine)) chosen.engine = form.engine.value;
  if (form.approve.value !== offered.approve) chosen.approve = form.approve.value;
  const engine = offered.engines.find(it => it.id === form.engine.value) ?? {};
  for (const name of ['model', 'effort']) if (!form[name].disabled && form[name].value.trim() !== (engine[name] ?? '')) chosen[name] = form[name].value;
  return chosen;
}

function drawEngine() {
  const engine = offered.engines.find(it => it.id === form.engine.value) ?? {};
  for (const name of ['model', 'effort']) {
    form[name].disabled = engine[name] === null;
    form[name].value = engine[name] ?? '';
  }
}

// A project has its own directory, and may have its own engine.
function drawProject() {
  const project = offered.projects.find(it => it.name === form.project.value);
  form.project.parentNode.hidden = !offered.projects.length;
  form.branch.parentNode.hidden = !project;
  if (!project) form.branch.value = '';
  form.cwd.disabled = Boolean(project);
  form.cwd.value = project?.path ?? offered.directory ?? '';
  form.engine.value = project?.engine ?? offered.engine;
  drawEngine();
}

async function loadOptions() {
  offered = await call('options', undefined, true);
  if (!offered) return;
  form.project.replaceChildren(make('option', { value: '', textContent: 'none' }),
    ...offered.projects.map(it => make('option', { value: it.name, textContent: it.name, title: it.path })));
  form.engine.replaceChildren(...offered.engines.map(it => make('option', { value: it.id, textContent: it.id, title: it.title })));
  form.approve.value = offered.approve;
  form.querySelector('#efforts').replaceChildren(...offered.efforts.map(value => make('option', { value })));
  drawProject();
}
form.project.onchange = drawProject;
form.engine.onchange = drawEngine;
form.onsubmit = event => { event.preventDefault(); field.focus(); };
