// The colour scale of a map, drawn over the picture; and the meaning of the colours when two masks are compared.

import { swatch } from './chart.js';
import { el } from './dom.js';
import { CHOSEN, hex, WRONG } from './palette.js';
import { classOf } from './shown.js';

const STEPS = 16;

export function mapScale(session) {
  const { view, image } = session;
  const bar = el('div', { class: 'bar', 'aria-hidden': 'true' });
  const title = el('p', { class: 'small' });
  const low = el('span', { class: 'number' });
  const high = el('span', { class: 'number' });
  const limit = el('input', { type: 'number', min: 0, step: 'any',
    onchange: () => view.set({ limit: Number(limit.value) > 0 ? Number(limit.value) : null }) });
  const unit = el('span', {});
  const values = el('div', {}, bar, el('div', { class: 'row small' }, low, el('span', { class: 'gap' }), high),
    el('label', { class: 'row small' }, 'up to', limit, unit),
    session.cube.masks.length ? el('p', { class: 'muted small' }, 'The mask is not shown on this map.') : null);
  const classes = el('ul', { class: 'small' });
  const node = el('div', { class: 'scale' }, title, values, classes);
  const entry = (colour, text) => el('li', {}, swatch(colour), ` ${text}`);

  function showValues(map) {
    const { low: from, high: to } = image.mapLimits();
    const colours = Array.from({ length: STEPS }, (_, step) => hex(map.colour(step / (STEPS - 1))));
    bar.style.backgroundImage = `linear-gradient(to right, ${colours.join(', ')})`;
    title.textContent = map.title;
    low.textContent = from ? map.end(from).replace('-', '−') : '0';
    high.textContent = map.end(to);
    unit.textContent = map.unit;
    limit.setAttribute('aria-label', map.limit);
    if (document.activeElement !== limit) limit.value = String(Number(to.toPrecision(3)));
  }

  function showClasses({ truth, prediction }) {
    const { cell, ignore } = view.state;
    title.textContent = `${truth.name} and ${prediction.name}`;
    classes.replaceChildren(
      ...(cell ? [entry(hex(CHOSEN), `${truth.name}: ${classOf(truth, cell[0]).label}; ${prediction.name}: ${classOf(prediction, cell[1]).label}`)] : []),
      entry(hex(WRONG), cell ? 'differ elsewhere (paler)' : 'differ'), entry('#9a9a9a', 'agree (the picture, muted)'),
      ...(ignore ? [entry('#303030', 'left out (dark)')] : []));
  }

  return {
    node,
    show() {
      const map = image.shownField() && image.map;
      const pair = image.agreement();
      node.hidden = !map && !pair;
      values.hidden = !map;
      classes.hidden = !pair;
      if (map) showValues(map);
      else if (pair) showClasses(pair);
    },
  };
}
