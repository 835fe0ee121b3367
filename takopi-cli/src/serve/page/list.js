// The list of conversations and of earlier sessions.

// The state of the server: conversations by id, newest last, each with its messages by id, in order.
const chats = new Map();
let sessions = [];
let leftOut = false;
let current = null;

const isAsking = message => message.kind === 'question' && message.buttons.length > 0;

function stateOf(chat) {
  const messages = [...chat.messages.values()];
  if (messages.some(isAsking)) return 'asking';
  const live = messages.filter(message => message.buttons.length).map(message => message.kind);
  if (live.includes('progress')) return 'working';
  if (live.includes('queued')) return 'queued';
  const last = messages.findLast(message => message.turn);
  return last?.turn.outcome === 'failed' ? 'failed' : 'idle';
}

const ORDER = ['asking', 'working', 'queued'];
const LABELS = { asking: 'waiting for approval', working: 'working', queued: 'queued', failed: 'failed', idle: '' };

// Those that ask come first, then those that run, then the others; the newest first.
function ordered() {
  const all = [...chats.values()].reverse().map(chat => ({ chat, state: stateOf(chat) }));
  const rank = ({ state }) => { const place = ORDER.indexOf(state); return place < 0 ? ORDER.length : place; };
  return all.sort((one, other) => rank(one) - rank(other));
}

const makeEntry = () => make('li', {}, make('button', { type: 'button' },
  make('span', { className: 'name' }), make('span', { className: 'about' })));

function fillEntry(element, { name, about, choose, state, isCurrent }) {
  const button = element.firstChild;
  button.onclick = choose;
  setText(button.children[0], name);
  setText(button.children[1], about);
  if (state) element.dataset.state = state;
  if (isCurrent !== undefined) button.setAttribute('aria-current', isCurrent);
}

function drawList() {
  const entries = ordered().map(({ chat, state }) => {
    const last = [...chat.messages.values()].at(-1);
    const time = last?.turn?.ended ?? last?.at;
    const about = [LABELS[state], !ORDER.includes(state) && time && clock(time)].filter(Boolean).join(' · ');
    return { id: chat.id, name: chat.title, about, state, isCurrent: chat.id === current, choose: () => show(chat.id) };
  });
  updateChildren(at('#now'), 'chat', entries, makeEntry, fillEntry);
  at('#now-title').hidden = !chats.size;
  const isOpen = session => [...chats.values()].some(chat => chat.resume?.endsWith(session.id));
  const earlier = sessions.filter(it => !isOpen(it)).map(session => ({
    id: session.id, name: session.title, about: session.said ?? `${session.engine} · ${session.when} · ${session.place}`,
    state: session.said ? 'said' : 'earlier',
    choose: () => resume(session.resume),
  }));
  updateChildren(at('#earlier'), 'session', earlier, makeEntry, fillEntry);
  const isSearch = Boolean(at('#open input').value.trim());
  at('#none').hidden = !isSearch || Boolean(sessions.length) && !leftOut;
  setText(at('#none'), leftOut ? 'Not every session was searched: there are too many, or they are too long.' : 'No session has these words.');
}

// Many changes at once are drawn once.
let isListDue = false;
function drawListSoon() {
  if (isListDue) return;
  isListDue = true;
  requestAnimationFrame(() => { isListDue = false; drawList(); attend(); });
  // A page in the background gets no frames.
  setTimeout(() => { if (isListDue) { isListDue = false; drawList(); attend(); } }, 250);
}

async function loadSessions(words = '') {
  const found = await call('sessions', words ? { words } : undefined, true);
  // Answers of earlier searches may come late.
  if (found && at('#open input').value.trim() === words) { sessions = found.sessions; leftOut = found.left_out; drawList(); }
}

let searching = 0;
at('#open input').oninput = event => {
  clearTimeout(searching);
  searching = setTimeout(() => loadSessions(event.target.value.trim()), 150);
};
at('#open').onsubmit = async event => {
  event.preventDefault();
  const field = event.target.session;
  if (!field.value.trim()) return;
  const only = at('#earlier').children.length === 1 && !/^\S*[0-9a-f-]{8,}|\s(resume|--resume)\s/.test(field.value);
  const opened = only ? await resume(sessions.find(it => it.id === at('#earlier').firstChild.dataset.session).resume) : await resume(field.value);
  if (opened) { field.value = ''; loadSessions(); }
};
