// Elements, and how they are brought to a new state in place: what does not change keeps a click that is under way,
// the focus and a selection.

const at = selector => document.querySelector(selector);

const make = (tag, properties, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Brings a text node to a text. Appending keeps a selection in it.
function morphText(node, text) {
  if (node.data === text) return;
  if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length)); else node.data = text;
}

// Brings the children of an element to those of another.
function morph(element, wanted) {
  let old = element.firstChild;
  for (const node of [...wanted.childNodes]) {
    const isSame = old && old.nodeType === node.nodeType && old.nodeName === node.nodeName;
    if (!isSame) {
      element.insertBefore(node, old);
      continue;
    }
    if (old.nodeType === Node.TEXT_NODE) morphText(old, node.data);
    else if (old.nodeType === Node.ELEMENT_NODE) {
      for (const { name, value } of [...node.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      for (const { name } of [...old.attributes]) if (!node.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
      morph(old, node);
    }
    old = old.nextSibling;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

// Brings an element to HTML of the server, which has escaped what others wrote.
function setHtml(element, html) {
  if (element.html === html) return;
  element.html = html;
  const wanted = document.createElement('template');
  wanted.innerHTML = html;
  morph(element, wanted.content);
}

// Brings the children of an element to a list of items with ids: those that were there stay.
function updateChildren(parent, key, items, create, update) {
  const old = new Map([...parent.children].map(element => [element.dataset[key], element]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const element = old.get(item.id) ?? create(item);
    old.delete(item.id);
    element.dataset[key] = item.id;
    update(element, item);
    while (next && !old.has(next.dataset[key]) && next !== element && !items.some(it => it.id === next.dataset[key])) next = next.nextElementSibling;
    if (element === next) next = next.nextElementSibling;
    else if (element.parentNode !== parent || element.nextElementSibling !== next) {
      const focused = element.contains(document.activeElement) ? document.activeElement : null;
      parent.insertBefore(element, next);
      focused?.focus({ preventScroll: true });
    }
  }
  for (const element of old.values()) element.remove();
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without HTTPS or loopback there is no clipboard API; copying a selection works.
    const field = make('textarea', { value: text, className: 'unseen' });
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
    button.focus();
  }
  const label = button.firstChild;
  label.data = 'Copied';
  setTimeout(() => { label.data = 'Copy'; }, 1500);
}

const clock = at => new Date(at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

function duration(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes}m ${String(seconds % 60).padStart(2, '0')}s` : `${Math.floor(minutes / 60)}h ${String(minutes % 60).padStart(2, '0')}m`;
}
