// The section "Boxes": bounding boxes of objects, drawn on the picture, and which of their classes.

import { swatch } from './chart.js';
import { el, section } from './dom.js';
import { hex } from './palette.js';
import { colourOf, count } from './shown.js';

/** @typedef {{corners: [number, number, number, number], label: string, colour: string}} Box  x and y by the edges of pixels */

/** The maximum number of classes in the legend. */
const LISTED = 256;

export function boxesSection(session) {
  const { cube, view } = session;
  /** @type {Box[]} */
  const boxes = cube.boxes.map(({ corners, label, colour, class: id }) =>
    ({ corners, label, colour: hex(colourOf({ id, label, colour })) }));
  const { node, body } = section('boxes', 'Boxes', view.state.open.includes('boxes'), session.fold('boxes'));
  node.hidden = !boxes.length;
  const hidden = new Set();
  const classes = [...new Set(boxes.map(({ label }) => label))].sort();
  body.append(el('ul', { class: 'legend' }, ...classes.slice(0, LISTED).map((name) => {
    const own = boxes.filter(({ label }) => label === name);
    const box = el('input', { type: 'checkbox', onchange: () => {
      if (box.checked) hidden.delete(name); else hidden.add(name);
      session.picture.draw();
    } });
    box.checked = true;
    return el('li', {}, el('label', { class: 'check' }, box, swatch(own[0].colour), el('span', { class: 'text' }, name)),
      el('span', { class: 'muted small number' }, count(own.length)));
  }), ...(classes.length > LISTED ? [el('li', { class: 'muted' }, `and ${count(classes.length - LISTED)} more`)] : [])));
  return { node, shown: () => boxes.filter(({ label }) => !hidden.has(label)) };
}
