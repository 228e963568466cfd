// The section "Compare masks": where a prediction agrees with the truth, and which classes it confuses.

import * as api from './api.js';
import { swatch } from './chart.js';
import { scores } from './confusion.js';
import { toggle } from './display.js';
import { el, section, unique } from './dom.js';
import { csvText, fileName, saveCsv } from './exports.js';
import { hex } from './palette.js';
import { colourOf, comparedMasks, count } from './shown.js';

const percent = (value) => (value === null ? '–' : `${(value * 100).toFixed(1)} %`);

export function compareSection(session) {
  const { cube, view } = session;
  const asks = new api.Latest();
  const fold = session.fold('compare');
  const masks = cube.masks.filter(({ layers }) => !layers);
  const two = masks.length > 1;
  const { node, body } = section('compare', 'Compare masks', view.state.open.includes('compare'), (open) => {
    fold(open);
    if (two) update();
  });
  if (!two) {
    body.append(el('p', { class: 'muted hint' }, `This cube has ${masks.length ? 'one mask' : 'no mask'} with classes; two are needed. ` +
      'Add masks in files with ', el('code', {}, "hsipack view … --mask-file 'predicted=predictions/{name}.npy'"), '.'));
    return { node, stop() {} };
  }
  const choice = (name) => {
    const select = el('select', { id: unique(name), onchange: () => choose(name, select.value) },
      masks.map((mask) => el('option', { value: mask.name }, mask.name)));
    return select;
  };
  const [truth, prediction] = [choice('truth'), choice('prediction')];
  const agreement = toggle('Show where they differ', 'Mute pixels that agree, and colour pixels that differ', () => session.toggleMap('agreement'));
  const ignore = el('input', { type: 'checkbox', onchange: () => view.set({ ignore: ignore.checked, cell: null }) });
  const csv = el('button', { type: 'button', onclick: exportCsv }, 'Save CSV');
  const said = el('p', { class: 'hint', role: 'status' });
  const matrix = el('div', { class: 'scroll matrix', tabindex: 0, role: 'region', 'aria-label': 'Confusion matrix' });
  const byClass = el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Scores by class' });
  const field = (text, select) => el('div', { class: 'row' }, el('label', { for: select.id, class: 'label' }, text), select);
  body.append(field('Truth', truth), field('Prediction', prediction),
    el('label', { class: 'check', title: 'Pixels with class 0 in the truth are not counted' }, ignore, 'Leave out class 0 of the truth'),
    said, matrix, byClass, el('div', { class: 'row' }, agreement, el('span', { class: 'gap' }), csv));

  /** @type {{key: string, classes: any[], counts: number[][]} | null} */
  let found = null;

  /** Chooses a mask. If the other choice is the same mask, the two are swapped. */
  function choose(name, value) {
    const pair = /** @type {any} */ (comparedMasks(cube, view.state));
    const other = name === 'truth' ? 'prediction' : 'truth';
    const patch = pair[other].name === value ? { [other]: pair[name].name } : { [other]: pair[other].name };
    view.set({ ...patch, [name]: value, cell: null });
  }

  async function update() {
    show();
    if (!node.open) return;
    const pair = /** @type {NonNullable<ReturnType<typeof comparedMasks>>} */ (comparedMasks(cube, view.state));
    const key = JSON.stringify([pair.truth.name, pair.prediction.name]);
    if (found?.key === key) return;
    found = null;
    say('Counting…');
    try {
      const answer = await asks.run((signal) => api.confusion(cube.id, pair.truth.name, pair.prediction.name, signal));
      if (!answer) return;
      found = { key, ...answer };
      show();
    } catch (error) {
      // Show the error in this section; the rest of the page still works.
      say([error.message, error.remedy].filter(Boolean).join(' – '));
    }
  }

  function say(text) {
    said.textContent = text;
    matrix.hidden = byClass.hidden = csv.hidden = true;
  }

  const named = (one) => [swatch(hex(colourOf(one))), ` ${one.label}`];

  function cellOf(row, column) {
    const number = found.counts[row][column];
    const [is, called] = [found.classes[row], found.classes[column]];
    const all = found.counts[row].reduce((total, one) => total + one, 0);
    const chosen = String(view.state.cell) === String([is.id, called.id]);
    const button = el('button', { type: 'button', 'aria-pressed': String(chosen), 'data-cell': `${is.id},${called.id}`,
      title: 'Show these pixels', onclick: () => pick(chosen ? null : [is.id, called.id]) },
    el('span', { class: 'number' }, count(number)), el('span', { class: 'small number' }, all ? percent(number / all) : '–'));
    // The larger the share of the row, the darker the cell.
    const share = all ? number / all : 0;
    const kind = row === column ? 'right' : number ? 'wrong' : '';
    const node = el('td', { class: kind }, button);
    node.style.setProperty('--share', `${Math.round(Math.sqrt(share) * 30)}%`);
    return node;
  }

  /** Highlights the pixels of a cell. */
  function pick(cell) {
    view.set(cell && view.state.map !== 'agreement' ? { cell, map: 'agreement', angle: false, limit: null } : { cell });
    matrix.querySelector(`[data-cell="${cell ?? ''}"]`)?.focus();
  }

  function show() {
    const pair = /** @type {NonNullable<ReturnType<typeof comparedMasks>>} */ (comparedMasks(cube, view.state));
    truth.value = pair.truth.name;
    prediction.value = pair.prediction.name;
    ignore.checked = view.state.ignore;
    agreement.setAttribute('aria-pressed', String(view.state.map === 'agreement'));
    if (!found) return;
    const { rows, classes, pixels, accuracy, meanIou } = scores(found, view.state.ignore);
    matrix.hidden = byClass.hidden = csv.hidden = false;
    said.replaceChildren(el('b', {}, `Overall accuracy ${percent(accuracy)}, mean IoU ${percent(meanIou)}`), ` of ${count(pixels)} pixels`);
    const focused = /** @type {any} */ (document.activeElement)?.dataset?.cell;
    matrix.replaceChildren(el('table', {},
      el('caption', { class: 'muted small' }, `Rows: ${pair.truth.name}. Columns: ${pair.prediction.name}. Click a cell to see its pixels.`),
      el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Truth'), found.classes.map((one) => el('th', { scope: 'col' }, named(one))))),
      el('tbody', {}, rows.map((row) => el('tr', {}, el('th', { scope: 'row' }, named(found.classes[row])),
        found.classes.map((_, column) => cellOf(row, column)))))));
    if (focused) matrix.querySelector(`[data-cell="${focused}"]`)?.focus();
    byClass.replaceChildren(el('table', {},
      el('thead', {}, el('tr', {}, ['Class', 'Pixels', 'Recall', 'Precision', 'IoU'].map((text) => el('th', { scope: 'col' }, text)))),
      el('tbody', {}, classes.map((one) => el('tr', {}, el('th', { scope: 'row' }, named(one)),
        [count(one.pixels), percent(one.recall), percent(one.precision), percent(one.iou)].map((text) => el('td', {}, text)))))));
  }

  function exportCsv() {
    const { rows, classes, accuracy, meanIou } = scores(found, view.state.ignore);
    const head = ['truth', ...found.classes.map(({ label }) => `predicted ${label}`), 'pixels', 'recall', 'precision', 'iou'];
    const lines = classes.map((one, at) => [one.label, ...found.counts[rows[at]], one.pixels, one.recall, one.precision, one.iou]);
    const empty = found.classes.map(() => null);
    saveCsv(csvText([head, ...lines, ['overall accuracy', ...empty, null, accuracy, null, null],
      ['mean IoU', ...empty, null, null, null, meanIou]]), fileName(cube.name, truth.value, prediction.value, 'confusion.csv'));
  }

  view.on(['truth', 'prediction', 'ignore', 'cell', 'map'], update);
  update();
  return { node, stop: () => asks.stop() };
}
