// The section "About this cube": facts, notes and marks; and the badges of marks.

import { el, section } from './dom.js';
import { bandWord, count, number } from './shown.js';
import { crsName } from './geo.js';

const MARKS = { nan: 'NaN', inf: 'Infinite', saturated: 'Saturated', outlier: 'Outlier', damaged: 'Damaged' };

/** A badge with a word and its explanation. @param {{kind: string, text: string}} mark */
export function badge({ kind, text }) {
  return el('span', { class: `badge ${MARKS[kind] ? kind : 'other'}`, title: text }, MARKS[kind] ?? kind,
    el('span', { class: 'hidden' }, `: ${text}`));
}

/** "400 to 1000", or one number if all are equal. */
function span(values, digits) {
  const [low, high] = [Math.min(...values), Math.max(...values)].map((value) => number(value, digits));
  return low === high ? low : `${low} to ${high}`;
}

/** Rows of the table that are computed here, in addition to the server's fields. */
function own(cube) {
  const [rows, columns, bands] = cube.shape;
  const facts = [['Shape', `${count(rows)} rows × ${count(columns)} columns × ${count(bands)} ${bandWord(cube).toLowerCase()}s`],
    ['Values', [cube.dtype, cube.unit].filter(Boolean).join(', in ')], ['Format', cube.format]];
  const known = (cube.wavelength ?? []).filter((value) => value !== null);
  if (known.length) facts.push(['Wavelengths', `${span(known, 5)} nm`]);
  const widths = (cube.fwhm ?? []).filter((value) => value !== null);
  if (cube.factor !== 1) facts.push(['Pixels', `${cube.factor < 1 ? `1/${Math.round(1 / cube.factor)}` : cube.factor} × the rows and columns of the image`]);
  if (widths.length) facts.push(['Width of bands (FWHM)', `${span(widths, 3)} nm`]);
  const bad = (cube.good_bands ?? []).filter((good) => !good).length;
  if (cube.good_bands) facts.push(['Bad bands', bad ? `${bad}, grey in charts` : 'none']);
  if (cube.geo) facts.push(['Reference system', crsName(cube.geo.crs)]);
  return facts.filter(([, text]) => text);
}

export function factsSection(session) {
  const { cube, view } = session;
  const { node, body } = section('facts', cube.array === null ? 'About this cube' : `About ${cube.array}`, view.state.open.includes('facts'), session.fold('facts'));
  body.append(
    el('ul', { class: 'notes' }, cube.marks.map((mark) => el('li', {}, badge(mark), ` ${mark.text}`)),
      cube.notes.map((text) => el('li', {}, text))),
    el('table', { class: 'facts' }, el('tbody', {}, [...own(cube), ...cube.fields].map(([name, value]) =>
      el('tr', {}, el('th', { scope: 'row' }, name), el('td', {}, value))))));
  return { node };
}
