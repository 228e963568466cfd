// Makes elements. Text is only ever set as text, so a name that looks like markup stays a name.

const SVG = 'http://www.w3.org/2000/svg';

/** @param {Element} node @param {Record<string, any>} attributes */
function dress(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(/** @type {HTMLElement} */ (node).style, value);
    else if (name === 'value' || name === 'checked' || name === 'disabled') node[name] = value;
    else node.setAttribute(name, value === true ? '' : String(value));
  }
}

/**
 * Makes an HTML element. `onclick` and similar attributes become listeners; children that are not nodes become text.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...any} children
 * @returns {any}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  // The options of a select must exist before its `value` is set.
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  dress(node, attributes);
  return node;
}

/** Makes an SVG element. @returns {any} */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  dress(node, attributes);
  return node;
}

let numbers = 0;

/** An id that no other element has. @param {string} stem */
export function unique(stem) {
  numbers += 1;
  return `${stem}-${numbers}`;
}

/** A section that folds. `onfold(open)` is called when the user opens or closes it. */
export function section(name, title, open, onfold, ...children) {
  const body = el('div', { class: 'body' }, ...children);
  const node = el('details', { class: `section ${name}`, open },
    el('summary', {}, el('h2', {}, title)), body);
  node.addEventListener('toggle', () => onfold(node.open));
  return { node, body };
}

/** Shows a short message for a few seconds, also to screen readers. @param {string} text */
export function say(text) {
  const status = /** @type {any} */ (document.getElementById('status'));
  status.textContent = text;
  clearTimeout(status.timer);
  status.timer = setTimeout(() => { status.textContent = ''; }, 4000);
}

/** Calls `act` once, `wait` ms after the last of several calls. `.now()` makes a waiting call at once; `.stop()` cancels it. */
export function debounced(act, wait) {
  let timer = 0;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(() => { timer = 0; act(); }, wait);
  };
  later.now = () => {
    if (timer) { clearTimeout(timer); timer = 0; act(); }
  };
  later.stop = () => { clearTimeout(timer); timer = 0; };
  return later;
}
