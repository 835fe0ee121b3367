// The messages of the conversation that is shown.

const MARKS = { running: '▸', done: '✓', failed: '✗', note: '•', warning: '!' };
const WORDS = { running: 'running', done: 'done', failed: 'failed', note: 'note', warning: 'warning' };

function button(message, { press, label }) {
  const element = make('button', { type: 'button', textContent: label, className: press === 'accept' ? 'main' : '' });
  element.dataset.press = press;
  let isPressed = false;
  element.onclick = async () => {
    // Not disabled: that would take the focus away from who uses the keyboard.
    if (isPressed) return;
    isPressed = true;
    await call('press', { chat: current, message: message.id, press });
    isPressed = false;
  };
  return element;
}

// Changes what is in an element. The focus that was there goes to the field, which would take a selection away.
function keepingFocus(element, change) {
  const hadFocus = element.contains(document.activeElement) && getSelection().isCollapsed;
  change();
  if (hadFocus && !element.contains(document.activeElement)) field.focus({ preventScroll: true });
}

function tool(label, about, act) {
  return make('button', { type: 'button', onclick: act }, label, make('span', { className: 'unseen', textContent: about }));
}

// A message of the user: its text, and buttons to send it again.
function makeUser(message) {
  return make('article', {}, make('div', { className: 'body' }), make('div', { className: 'tools' },
    tool('Edit', ' this message and send it again', () => compose(message.text)),
    tool('Retry', ' this message', () => send(message.text))));
}

function makeText() {
  return make('article', {}, make('div', { className: 'body text-html' }), make('footer', {}));
}

// A turn of the agent: its state, its steps, its answer.
function makeTurn() {
  const steps = make('details', { className: 'steps', open: true }, make('summary', {}), make('ol', {}));
  return make('article', {},
    make('div', { className: 'head' }, make('span', { className: 'state' }), make('span', { className: 'note' })),
    steps, make('div', { className: 'answer text-html' }), make('p', { className: 'error' }), make('p', { className: 'hint' }),
    make('footer', {}), make('div', { className: 'tools' }));
}

function makeStep(step) {
  const line = [make('span', { className: 'mark' }), make('span', { className: 'text' }), make('span', { className: 'figure' })];
  const element = make('li', {});
  element.foldable = Boolean(step.body);
  if (element.foldable) {
    element.append(make('details', { open: step.open }, make('summary', {}, ...line), make('div', { className: 'more text-html' })));
  } else {
    element.append(make('div', { className: 'line' }, ...line));
  }
  return element;
}

function fillStep(element, step) {
  if (element.foldable !== Boolean(step.body)) {
    const other = makeStep(step);
    element.replaceChildren(...other.childNodes);
    element.foldable = other.foldable;
  }
  element.dataset.state = step.state;
  const [mark, text, figure] = element.querySelectorAll('.mark, .text, .figure');
  setText(mark, MARKS[step.state]);
  mark.setAttribute('role', 'img');
  mark.setAttribute('aria-label', WORDS[step.state]);
  setText(text, step.title);
  text.classList.toggle('mono', step.code);
  setText(figure, step.about ?? '');
  const more = element.querySelector('.more');
  if (more) setHtml(more, step.body);
  // Opened once, when it failed; what a person folds stays folded.
  if (step.open && !element.wasOpened) {
    element.firstChild.open = true;
    element.wasOpened = true;
  }
}

function stepsLine({ steps, omitted, began, ended, outcome }) {
  const count = steps.length + omitted;
  const failed = steps.filter(step => step.state === 'failed').length;
  const parts = [count === 1 ? '1 step' : `${count} steps`];
  if (outcome && began) parts.push(duration(ended - began));
  if (failed) parts.push(`${failed} failed`);
  return parts.join(' · ');
}

function fillTurn(element, message) {
  const turn = message.turn;
  const [head, steps, answer, error, hint, footer, tools] = element.children;
  if (turn.outcome) element.dataset.outcome = turn.outcome;
  fillHead(element, message);
  // The answer speaks for itself; of a stored turn without one nothing more is known.
  head.hidden = !message.note && (turn.outcome === 'done' || message.kind === 'agent');
  steps.hidden = !turn.steps.length;
  setText(steps.firstChild, stepsLine(turn));
  updateChildren(steps.lastChild, 'step', turn.steps, makeStep, fillStep);
  // Folded when it is over, unless there is nothing else to see, or a command failed: its output is shown without asking.
  if ((turn.outcome || message.kind === 'agent') && !element.isOver) {
    element.isOver = true;
    steps.open = !turn.answer.length && !turn.error || turn.steps.some(step => step.open);
  }
  fillAnswer(answer, turn.answer);
  setText(error, turn.error ?? '');
  error.hidden = !turn.error;
  setText(hint, turn.hint ? `Hint: ${turn.hint}` : '');
  hint.hidden = !turn.hint;
  fillButtons(footer, message);
  if (turn.outcome && !tools.childNodes.length) {
    if (turn.source) tools.append(tool('Copy', ' the answer', event => copy(message.turn.source, event.currentTarget)));
    if (turn.outcome !== 'done') tools.append(tool('Retry', ' the message', () => retry(message.id)));
    const about = [turn.outcome === 'done' && turn.engine, turn.outcome === 'done' && turn.ended && clock(turn.ended), turn.usage];
    tools.append(make('span', { className: 'usage', textContent: about.filter(Boolean).join(' · ') }));
  }
  tools.hidden = !tools.childNodes.length;
}

// `Working · Codex · 12s`: brought up to date every second.
function fillHead(element, message) {
  const { turn, kind, note } = message;
  const [state, about] = element.children[0].children;
  const running = kind === 'progress' && !turn.outcome;
  const asks = running && [...chats.get(current)?.messages.values() ?? []].some(it => it.job === message.job && isAsking(it));
  const word = kind === 'queued' ? 'Waiting' : asks ? 'Waiting for approval' : running ? (turn.engine ? 'Working' : 'Starting')
    : { done: 'Done', failed: 'Failed', cancelled: 'Cancelled' }[turn.outcome] ?? '';
  setText(state, word);
  const parts = [note, turn.engine, turn.began && duration((turn.ended ?? Date.now()) - turn.began), !running && turn.ended && clock(turn.ended)];
  setText(about, parts.filter(Boolean).join(' · '));
}

function fillAnswer(element, blocks, from = 0) {
  for (const [index, html] of blocks.entries()) {
    const block = element.children[from + index] ?? element.appendChild(make('div', {}));
    setHtml(block, html);
  }
  while (element.children.length > from + blocks.length) element.lastChild.remove();
}

function fillButtons(footer, message) {
  const buttons = JSON.stringify(message.buttons);
  if (footer.buttons !== buttons) keepingFocus(footer, () => footer.replaceChildren(...message.buttons.map(it => button(message, it))));
  footer.buttons = buttons;
  footer.hidden = !message.buttons.length;
}

function fill(element, message) {
  element.className = message.kind;
  element.message = message;
  if (message.turn) return fillTurn(element, message);
  if (message.kind === 'user') return setText(element.firstChild, message.text);
  setHtml(element.firstChild, message.html);
  fillButtons(element.children[1], message);
}

// Inserts or updates a message: a new one goes to the end, an approval request above the progress of its job.
function put(message) {
  let shown = document.getElementById('m' + message.id);
  if (shown && Boolean(shown.message.turn) !== Boolean(message.turn)) { keepingFocus(shown, () => shown.remove()); shown = null; }
  const create = message.turn ? makeTurn : message.kind === 'user' ? makeUser : makeText;
  const element = shown ?? Object.assign(create(message), { id: 'm' + message.id });
  fill(element, message);
  if (message.job) element.dataset.job = message.job;
  if (shown) return element;
  const job = message.kind === 'question' && at(`#log > [data-job="${message.job}"]:not(.question)`);
  if (job) job.before(element); else at('#log').append(element);
  return element;
}

// Scrolling: a view at the end follows what comes, until the beginning of the answer is at its top.

const log = at('#log');
let follows = true;

const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 60;

function endOfView() {
  const bottom = log.scrollHeight - log.clientHeight;
  const last = [...log.querySelectorAll(':scope > .final, :scope > .progress, :scope > .agent')].at(-1);
  if (!last || last.nextElementSibling?.matches('.user, .question')) return bottom;
  const begin = (last.querySelector('.answer') ?? last).offsetTop - log.offsetTop - 12;
  return Math.min(bottom, begin);
}

function follow() {
  if (follows) log.scrollTop = endOfView();
  at('#newest').hidden = follows || isAtEnd();
}

let scrolledTo = 0;
log.addEventListener('scroll', () => {
  const by = log.scrollTop - scrolledTo;
  scrolledTo = log.scrollTop;
  if (by < -2 && !isAtEnd()) follows = false;
  if (isAtEnd()) { follows = true; at('#newest').hidden = true; }
});
at('#newest').onclick = () => { follows = true; log.scrollTop = log.scrollHeight; log.focus({ preventScroll: true }); };

log.addEventListener('click', event => {
  const button = event.target.closest('button.copy');
  if (button) copy(button.closest('.code').querySelector('pre').textContent, button);
});

setInterval(() => {
  for (const element of log.querySelectorAll(':scope > .progress')) fillHead(element, element.message);
}, 1000);
