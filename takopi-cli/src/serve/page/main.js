// The conversation that is shown, changes from the server, and shortcuts.

const empty = at('#empty');

function show(id, takesFocus = true) {
  current = id;
  // What has the focus there is replaced.
  takesFocus ||= log.contains(document.activeElement) && document.activeElement !== log;
  const chat = chats.get(id);
  history.replaceState(null, '', id ? '#' + id : '#');
  log.replaceChildren(...(chat ? [] : [empty]));
  for (const message of chat?.messages.values() ?? []) put(message);
  follows = true;
  follow();
  setText(at('#announce'), '');
  restoreDraft();
  drawHead();
  drawList();
  attend();
  menu(false);
  if (takesFocus) field.focus({ preventScroll: true });
}

function drawHead() {
  const chat = chats.get(current);
  if (!at('#title input')) setText(at('#title'), chat ? chat.title : 'New conversation');
  const { project, branch, engine, cwd, model, effort, approve } = chat?.choice ?? {};
  const words = { ask: 'asks for approval', deny: 'declines approvals', accept: 'accepts all approvals' };
  const about = [project, branch && `@${branch}`, engine, model, effort && `effort ${effort}`, words[approve], cwd].filter(Boolean).join(' · ');
  setText(at('#about'), about);
  at('#about').hidden = !about;
  at('#resume').hidden = !chat?.resume;
  setText(at('#resume code'), chat?.resume ?? '');
  at('#tools').hidden = !chat;
}

function menu(open) {
  document.body.classList.toggle('menu', open);
  at('#menu').setAttribute('aria-expanded', open);
}

function announce(message) {
  const turn = message.turn;
  const text = message.kind === 'question' ? document.getElementById('m' + message.id).innerText
    : message.kind === 'final' ? `${turn.outcome}. ${document.getElementById('m' + message.id).querySelector('.answer').innerText}`
      : message.kind === 'notice' ? document.getElementById('m' + message.id).innerText : message.kind === 'progress' ? 'Working' : message.note ?? '';
  setText(at('#announce'), text.slice(0, 2000));
}

// Changes from the server.

const handlers = {
  snapshot(all) {
    const before = chats.get(current);
    chats.clear();
    for (const chat of all.chats) {
      chats.set(chat.id, { ...chat, messages: new Map(chat.messages.map(it => [it.id, it])) });
    }
    if (!offered) attendSilently();
    const wanted = current ?? location.hash.slice(1);
    if (current) keepDraft();
    // A restarted server does not know the conversation, but its session can be opened. Until then it stays as it is.
    const isLost = before?.resume && !chats.has(before.id);
    if (isLost) chats.set(before.id, before);
    else if (wanted && !chats.has(wanted)) moveDraft(wanted, null);
    // Do not move the focus while the user is typing.
    show(chats.has(wanted) ? wanted : null, document.activeElement === document.body);
    setStatus(HINT);
    if (isLost) reopen(before);
    loadSessions();
    if (!offered) loadOptions();
  },
  chat({ type, ...chat }) {
    chats.set(chat.id, { messages: chats.get(chat.id)?.messages ?? new Map(), ...chat });
    if (chat.id === current) drawHead();
    drawListSoon();
  },
  message({ chat, message }) {
    const known = chats.get(chat);
    if (!known) return;
    const before = known.messages.get(message.id);
    known.messages.set(message.id, message);
    if (chat === current) {
      empty.remove();
      put(message);
      if (message.kind === 'question') for (const element of log.querySelectorAll(':scope > .progress')) fillHead(element, element.message);
      follow();
      if (message.kind !== 'user' && (before?.kind !== message.kind || message.kind === 'question')) announce(message);
    }
    drawListSoon();
  },
  step({ chat, message, step, omitted }) {
    const known = chats.get(chat)?.messages.get(message);
    if (!known?.turn) return;
    const steps = known.turn.steps;
    const place = steps.findIndex(it => it.id === step.id);
    if (place < 0) steps.push(step); else steps[place] = step;
    // Of many steps the last ones are kept.
    steps.splice(0, omitted - known.turn.omitted);
    known.turn.omitted = omitted;
    if (chat !== current) return;
    put(known);
    follow();
  },
  answer({ chat, message, from, blocks }) {
    const known = chats.get(chat)?.messages.get(message);
    if (!known?.turn) return;
    known.turn.answer.splice(from, Infinity, ...blocks);
    const element = chat === current && document.getElementById('m' + message);
    if (!element) return;
    fillAnswer(element.querySelector('.answer'), blocks, from);
    follow();
  },
  gone({ chat, message }) {
    chats.get(chat)?.messages.delete(message);
    const element = chat === current && document.getElementById('m' + message);
    if (element) keepingFocus(element, () => element.remove());
    drawListSoon();
  },
  closed({ chat }) {
    chats.delete(chat);
    seen.delete(chat);
    // What is being written is not lost, nor what could not be sent, whichever page shows the conversation.
    const written = chat === current || !current ? field.value : '';
    moveDraft(chat, null);
    addOnce(null, written);
    if (chat === current) show(null); else drawListSoon();
  },
};

function listen() {
  const events = new EventSource('events');
  events.onmessage = event => {
    const change = JSON.parse(event.data);
    handlers[change.type]?.(change);
  };
  events.onerror = () => {
    setStatus('The server cannot be reached; reconnecting…', true);
    // Browsers reconnect by themselves, but not after an error response.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
}
listen();

// Actions of the user.

async function openSession(session) {
  const opened = await call('open', { session });
  // The conversation itself comes with the events, which may be later.
  if (opened && !chats.has(opened.chat)) chats.set(opened.chat, { id: opened.chat, title: session, messages: new Map() });
  return opened;
}

async function resume(session) {
  const opened = await openSession(session);
  if (opened) show(opened.chat);
  return opened;
}

// Opens the session of a conversation that the server does not know any more, with what is being written in it.
async function reopen(lost) {
  const opened = await openSession(lost.resume);
  moveDraft(lost.id, opened?.chat ?? null);
  if (current === lost.id && opened) show(opened.chat, document.activeElement === document.body);
  handlers.closed({ chat: lost.id });
}

function rename() {
  const chat = chats.get(current);
  if (!chat || at('#title input')) return;
  const input = make('input', { value: chat.title, ariaLabel: 'Title of the conversation' });
  at('#title').replaceChildren(input);
  input.select();
  const end = async save => {
    input.onblur = null;
    input.remove();
    if (save && input.value.trim() && input.value !== chat.title) await call('rename', { chat: chat.id, title: input.value });
    drawHead();
    field.focus();
  };
  input.onblur = () => end(true);
  input.onkeydown = event => {
    if (event.key === 'Enter') end(true);
    if (event.key === 'Escape') { event.stopPropagation(); end(false); }
  };
}

async function close() {
  const chat = chats.get(current);
  const runs = ORDER.includes(stateOf(chat));
  if (runs && !confirm('This conversation is running. Cancel it and close?')) return;
  await call('close', { chat: chat.id });
  loadSessions();
}

function move(by) {
  const order = ordered().map(({ chat }) => chat.id);
  const place = order.indexOf(current);
  const next = order[place < 0 ? 0 : Math.min(order.length - 1, Math.max(0, place + by))];
  if (next) show(next);
}

function goToRequest() {
  const asking = ordered().find(({ state }) => state === 'asking');
  if (!asking) return;
  if (asking.chat.id !== current) show(asking.chat.id);
  at('.question footer:not([hidden]) button')?.focus();
}

at('#new').onclick = () => show(null);
at('#rename').onclick = rename;
at('#close').onclick = close;
at('#keys').onclick = () => at('#help').showModal();
at('#menu').onclick = () => menu(!document.body.classList.contains('menu'));
at('main').addEventListener('click', event => { if (!event.target.closest('#menu')) menu(false); });
at('#resume button').onclick = event => copy(at('#resume code').textContent, event.currentTarget);

document.addEventListener('keydown', event => {
  const types = event.target.matches('input, textarea, select');
  const name = (event.altKey ? 'Alt+' : '') + (event.ctrlKey || event.metaKey ? 'Ctrl+' : '') + event.key;
  const acts = {
    'Alt+n': () => show(null), 'Alt+ArrowUp': () => move(-1), 'Alt+ArrowDown': () => move(1), 'Alt+a': goToRequest,
    'Ctrl+k': () => { menu(true); at('#open input').focus(); }, F2: rename,
    Escape: () => { if (!at('#help').open) { menu(false); field.focus(); } },
    ...(types ? {} : { '?': () => at('#help').showModal() }),
  };
  if (!acts[name]) return;
  event.preventDefault();
  acts[name]();
});
