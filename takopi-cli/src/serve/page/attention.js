// What a person sees who looks elsewhere: title, icon, and notifications without a sound.

const COLORS = { asks: '#c26a00', failed: '#c62828', done: '#1a7f3c', works: '#0f8a7e', idle: '#7a828c' };
const SIGNS = { asks: '? ', failed: '✗ ', done: '✓ ', works: '▸ ', idle: '' };
let unseen = null;
const seen = new Map();

function icon(state) {
  const mark = { asks: '?', failed: '!', done: '✓' }[state] ?? '';
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><circle cx="16" cy="16" r="15" fill="${COLORS[state]}"/>`
    + `<text x="16" y="23" font-size="21" font-weight="bold" font-family="sans-serif" text-anchor="middle" fill="#fff">${mark}</text></svg>`;
  return 'data:image/svg+xml,' + encodeURIComponent(svg);
}

// The last turn of a conversation that ended while the page was open.
const lastEnded = chat => [...chat.messages.values()].findLast(it => it.turn?.outcome && it.kind !== 'agent');

// What was there when the page was opened is not news.
function attendSilently() {
  for (const chat of chats.values()) seen.set(chat.id, { state: stateOf(chat), ended: lastEnded(chat)?.id });
}

// Compares the conversations with what was seen of them. A turn may have ended without being seen to run.
function attend() {
  let asks = false;
  let works = false;
  for (const chat of chats.values()) {
    const state = stateOf(chat);
    const ended = lastEnded(chat);
    const before = seen.get(chat.id) ?? {};
    seen.set(chat.id, { state, ended: ended?.id });
    asks ||= state === 'asking';
    works ||= state === 'working' || state === 'queued';
    if (!document.hidden) continue;
    if (state === 'asking') { if (before.state !== 'asking') tell(chat, 'waits for your approval'); continue; }
    const outcome = ended && ended.id !== before.ended ? ended.turn.outcome : null;
    if (outcome === 'failed') { unseen = 'failed'; tell(chat, 'failed'); }
    if (outcome === 'done') { unseen ??= 'done'; tell(chat, 'is done'); }
  }
  const state = asks ? 'asks' : unseen ?? (works ? 'works' : 'idle');
  const chat = chats.get(current);
  const title = SIGNS[state] + (chat ? chat.title + ' · ' : '') + 'takopi';
  if (document.title !== title) document.title = title;
  const link = at('link[rel=icon]');
  if (link.dataset.state !== state) { link.dataset.state = state; link.href = icon(state); }
}

function tell(chat, text) {
  if (!('Notification' in window) || Notification.permission !== 'granted') return;
  const shown = new Notification(chat.title, { body: text, tag: chat.id, silent: true });
  shown.onclick = () => { focus(); show(chat.id); shown.close(); };
}

document.addEventListener('visibilitychange', () => { if (!document.hidden) { unseen = null; attend(); } });

if ('Notification' in window && Notification.permission === 'default') at('#notify').hidden = false;
at('#notify').onclick = async () => {
  const permission = await Notification.requestPermission();
  at('#notify').hidden = true;
  setStatus(permission === 'granted' ? 'You are notified when an agent asks or is done.' : 'The browser does not allow notifications.', permission !== 'granted');
};
