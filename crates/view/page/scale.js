// The colour scale of a map or a target, drawn over the picture; and the meaning of the colours when two masks are compared.

import { swatch } from './chart.js';
import { el } from './dom.js';
import { CHOSEN, hex, NODATA, viridis, WRONG } from './palette.js';
import { bandName, classOf, isTarget, number, shownBands } from './shown.js';

const STEPS = 16;

/** @param {any} session  of the page, or the picture beside its own */
export function mapScale(session) {
  const { cube, view, image } = session;
  const bar = el('div', { class: 'bar', 'aria-hidden': 'true' });
  const title = el('p', { class: 'small' });
  const low = el('span', { class: 'number' });
  const high = el('span', { class: 'number' });
  const limit = el('input', { type: 'number', min: 0, step: 'any',
    onchange: () => view.set({ limit: Number(limit.value) > 0 ? Number(limit.value) : null }) });
  const unit = el('span', {});
  const upTo = el('label', { class: 'row small' }, 'up to', limit, unit);
  const range = rangeInputs(session);
  const values = el('div', {}, bar, el('div', { class: 'row small' }, low, el('span', { class: 'gap' }), high), upTo, range.node,
    cube.masks.length ? el('p', { class: 'muted small' }, 'The mask is not shown on this map.') : null);
  const classes = el('ul', { class: 'small' });
  const node = el('div', { class: 'scale' }, title, values, classes);
  const entry = (colour, text) => el('li', {}, swatch(colour), ` ${text}`);

  function showBar(colour) {
    const colours = Array.from({ length: STEPS }, (_, step) => hex(colour(step / (STEPS - 1))));
    bar.style.backgroundImage = `linear-gradient(to right, ${colours.join(', ')})`;
  }

  function showValues(map) {
    const { low: from, high: to } = image.mapLimits();
    showBar(map.colour);
    title.textContent = map.title;
    low.textContent = from ? map.end(from).replace('-', '−') : '0';
    high.textContent = map.end(to);
    unit.textContent = map.unit;
    limit.setAttribute('aria-label', map.limit);
    if (document.activeElement !== limit) limit.value = String(Number(to.toPrecision(3)));
  }

  /** The values of a target. */
  function showRange() {
    const [channel] = shownBands(cube, view.state);
    const [ends] = image.limits();
    const inUnit = cube.unit ? ` ${cube.unit}` : '';
    showBar(viridis);
    title.textContent = cube.shape[2] > 1 ? `${cube.array}, ${bandName(cube, channel)}` : cube.array;
    [low.textContent, high.textContent] = [ends.low, ends.high].map((end) => number(end, 4).replace('-', '−') + inUnit);
    range.show(ends);
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
      const target = !map && isTarget(cube) && image.ready;
      node.hidden = !map && !pair && !target;
      values.hidden = !map && !target;
      upTo.hidden = !map;
      range.node.hidden = !target;
      classes.hidden = !pair;
      if (map) showValues(map);
      else if (target) showRange();
      else if (pair) showClasses(pair);
    },
  };
}

/** Number boxes for the values at the ends of a target's colours. */
function rangeInputs({ cube, view }) {
  const input = (end) => el('input', { type: 'number', step: 'any', 'aria-label': `${end} value of the colours of ${cube.array}`, onchange: set });
  const [least, most] = [input('Lowest'), input('Highest')];
  const usual = el('button', { type: 'button', title: 'The percentiles of the section Display', onclick: () => view.set({ range: null }) }, 'Reset');
  const boxes = [least, most];
  /** @type {number[]} the values at the ends, which the boxes show rounded */
  let shown = [];
  const text = (end) => String(Number(end.toPrecision(4)));
  function set() {
    const ends = boxes.map(({ value }, at) => (value === '' || value === text(shown[at]) ? shown[at] : Number(value)));
    if (ends[0] < ends[1]) view.set({ range: /** @type {[number, number]} */ (ends) });
    else boxes.forEach((box, at) => { box.value = text(shown[at]); });
  }
  function show({ low, high }) {
    shown = [low, high];
    boxes.forEach((box, at) => { if (document.activeElement !== box) box.value = text(shown[at]); });
    usual.disabled = !view.state.range;
  }
  const node = el('div', {}, el('div', { class: 'row small range', role: 'group', 'aria-label': `Range of ${cube.array}` }, least, 'to', most),
    el('div', { class: 'row small' }, el('span', { class: 'muted' }, swatch(hex(NODATA)), ' missing'), el('span', { class: 'gap' }), usual));
  return { node, show };
}
