// The section "Mask": which mask is drawn over the picture, its opacity, and which of its classes.

import { swatch } from './chart.js';
import { el, section, unique } from './dom.js';
import { hex } from './palette.js';
import { classOf, classesIn, colourOf, count, hiddenClasses, shownMask } from './shown.js';

/** The maximum number of classes in the legend. */
const LISTED = 256;

/** The number of pixels of each class in the values of a mask. @returns {Map<number, number>} */
function pixelsOf(values) {
  const pixelsOfValues = new Map();
  for (const value of values) pixelsOfValues.set(value, (pixelsOfValues.get(value) ?? 0) + 1);
  const pixels = new Map();
  for (const [value, number] of pixelsOfValues) {
    for (const id of classesIn(value)) pixels.set(id, (pixels.get(id) ?? 0) + number);
  }
  return pixels;
}

export function masksSection(session) {
  const { cube, view } = session;
  const { node, body } = section('masks', 'Mask', view.state.open.includes('masks'), session.fold('masks'));
  if (!cube.masks.length) {
    body.append(el('p', { class: 'muted hint' }, 'This cube has no mask.'));
    return { node, show() {} };
  }
  const id = unique('mask');
  const choice = el('select', { id, onchange: () => view.set({ mask: choice.value, hidden: null }) },
    cube.masks.map(({ name }) => el('option', { value: name }, name)), el('option', { value: '' }, 'No mask'));
  const slider = el('input', { type: 'range', min: 0, max: 100, step: 5, 'aria-label': 'Opacity of the mask',
    oninput: () => view.set({ opacity: Number(slider.value) / 100 }) });
  const part = el('span', { class: 'number' });
  const legend = el('ul', { class: 'legend' });
  const all = el('button', { type: 'button', onclick: () => view.set({ hidden: [] }) }, 'All');
  const none = el('button', { type: 'button',
    onclick: () => view.set({ hidden: [...shown.keys()] }) }, 'None');
  const rest = el('div', {}, el('div', { class: 'row' }, el('span', { class: 'label' }, 'Opacity'), slider, part),
    legend, el('div', { class: 'row' }, el('span', { class: 'label' }, 'Classes'), all, none));
  body.append(el('div', { class: 'row' }, el('label', { for: id, class: 'label' }, 'Mask'), choice), rest);

  /** @type {Map<number, number | null>} classes in the legend, and their numbers of pixels */
  let shown = new Map();
  let from = null;

  function legendOf(mask, ids) {
    if (ids && ids === from) return;
    from = ids;
    const pixels = ids ? pixelsOf(ids) : new Map();
    const known = mask.classes.map((one) => one.id);
    const every = [...new Set([...known, ...pixels.keys()])].sort((a, b) => a - b);
    const numbers = every.slice(0, LISTED);
    shown = new Map(numbers.map((number) => [number, ids ? pixels.get(number) ?? 0 : null]));
    legend.replaceChildren(...numbers.map((number) => {
      const one = classOf(mask, number);
      const box = el('input', { type: 'checkbox', 'data-class': number, onchange: () => {
        const hidden = hiddenClasses(mask, view.state);
        if (box.checked) hidden.delete(number); else hidden.add(number);
        view.set({ hidden: [...hidden].sort((a, b) => a - b) });
      } });
      return el('li', {}, el('label', { class: 'check' }, box, swatch(hex(colourOf(one))), el('span', { class: 'text' }, one.label)),
        el('span', { class: 'muted small number' }, ids && session.image.whole.full ? count(pixels.get(number) ?? 0) : ''));
    }), ...(every.length > LISTED ? [el('li', { class: 'muted' }, `and ${count(every.length - LISTED)} more`)] : []));
  }

  function show() {
    const mask = shownMask(cube, view.state);
    choice.value = mask?.name ?? '';
    rest.hidden = !mask;
    slider.value = String(Math.round(view.state.opacity * 100));
    part.textContent = `${slider.value} %`;
    if (!mask) return;
    const ids = session.image.whole.masks.get(mask.name);
    if (ids || from === null) legendOf(mask, ids);
    const hidden = hiddenClasses(mask, view.state);
    for (const box of legend.querySelectorAll('input')) box.checked = !hidden.has(Number(box.dataset.class));
  }
  view.on(['mask', 'opacity', 'hidden'], show);
  return { node, show };
}
