// What of one item of a batch is seen closely: its pictures, spectra before and after, and what was drawn for it.

import * as api from './api.js';
import { bandAxis, bandTable } from './axes.js';
import { Chart, swatch } from './chart.js';
import { el, section, unique } from './dom.js';
import { fileName, saveCsv, spectraCsv } from './exports.js';
import { LINES } from './palette.js';
import { number } from './shown.js';
import { cubeView, NO_ITEM, same, write } from './state.js';
import { applied, windowText } from './trainingcards.js';

const SIDE = 1024;
const KINDS = /** @type {const} */ ([['read', 'readAt', 'As it is read'], ['augmented', 'augmentedAt', 'Augmented']]);

export function itemPanel(session) {
  const { view } = session;
  const asks = new api.Latest();
  const asksSpectra = new api.Latest();
  const title = el('h2', { class: 'cube-name' });
  const close = el('button', { type: 'button', class: 'quiet', 'aria-label': 'Close the item (Esc)', title: 'Close (Esc)', onclick: leave }, '×');
  const pictures = Object.fromEntries(KINDS.map(([what, at, text]) => [what, picture(view, at, text)]));
  const chart = new Chart();
  const said = el('p', { class: 'hint', role: 'status' });
  const legend = el('ul', { class: 'row' });
  const csv = el('button', { type: 'button', onclick: () => saveCsv(spectraCsv(cubeOf(), lines), fileName(titleText(), 'spectra.csv')) }, 'Save CSV');
  const spectra = section('spectra', 'Spectra', true, () => {}, el('p', { class: 'muted hint' }, 'Lines are means of all pixels. Click a pixel of a picture to add its spectrum.'), legend, chart.node, said,
    el('div', { class: 'row' }, el('span', { class: 'gap' }), csv));
  const drawn = el('div', {});
  const steps = section('drawn', 'What was drawn', true, () => {}, drawn);
  const facts = el('div', { class: 'body-part' });
  const node = el('div', { class: 'panel item-panel', role: 'region', 'aria-label': 'Item', tabindex: 0, hidden: true },
    el('div', { class: 'head' }, title, el('span', { class: 'gap' }), close),
    el('div', { class: 'both' }, KINDS.map(([what]) => pictures[what].node)), facts, steps.node, spectra.node);

  /** What is shown: an item, where it stands, and its spectra, which stay as long as it does. @type {any} */
  let shown = null;
  /** @type {import('./chart.js').Line[]} */
  let lines = [];
  /** Of what the pictures are. */
  let pictured = '';

  const titleText = () => {
    const { epoch, batch, place } = shown.where;
    return `${shown.item.name} epoch ${epoch} batch ${batch} place ${place}`;
  };
  /** What charts ask of a cube. */
  const cubeOf = () => ({ shape: session.batch.before, bands: session.batch.bands, wavelength: session.batch.wavelength, good_bands: session.batch.good_bands, unit: null });
  const kinds = () => KINDS.filter(([what]) => what === 'read' || session.about.ops);

  function leave() {
    const { place } = view.state;
    view.set(NO_ITEM);
    session.cards.focus(place);
  }

  function show() {
    // Until the batch is there that is asked for, what is shown stays as it is.
    if (session.batch && session.isAsking) return;
    const { place } = view.state;
    const item = place === null ? null : session.batch?.items[place - session.batch.of.first] ?? null;
    node.hidden = !item;
    session.node.classList.toggle('with-item', Boolean(item));
    if (!item) {
      asks.stop();
      asksSpectra.stop();
      [shown, pictured] = [null, ''];
      return;
    }
    const where = session.where(place);
    if (!same(where, shown?.where)) begin(item, where);
    KINDS.forEach(([what]) => pictures[what].mark());
    showPictures();
    showSpectra();
  }

  /** Nothing of the item that was shown before is to be taken for one of this. */
  function begin(item, where) {
    // On a phone it lies below the items.
    const isNew = shown === null;
    shown = { item, where, spectra: new Map() };
    title.textContent = item.name;
    facts.replaceChildren(...factsOf(session, item));
    drawn.replaceChildren(...drawnOf(session, item));
    steps.node.hidden = pictures.augmented.node.hidden = !session.about.ops;
    for (const [what] of KINDS) pictures[what].begin(what === 'read' ? session.batch.before : session.batch.after);
    lines = [];
    legend.replaceChildren();
    chart.node.hidden = csv.disabled = true;
    said.textContent = 'Loading…';
    if (isNew && node.offsetTop > innerHeight) node.scrollIntoView({ block: 'start' });
  }

  async function showPictures() {
    const { where } = shown;
    const as = JSON.stringify([where, view.state.bands, view.state.mask]);
    if (as === pictured) return;
    pictured = as;
    try {
      const found = await asks.run((signal) => session.looks.pictures(where.place, SIDE, signal));
      if (!found) return;
      for (const [what] of kinds()) pictures[what].show(found[what]);
    } catch (error) {
      pictured = '';
      for (const [what] of kinds()) pictures[what].say(error.message);
    }
  }

  async function showSpectra() {
    const { where, spectra } = shown;
    const { readAt, augmentedAt } = view.state;
    const at = { read: readAt, augmented: augmentedAt };
    const wanted = kinds().flatMap(([what, , text], index) => [
      { name: `${text}, mean`, colour: LINES[index], what, pixel: null },
      ...(at[what] ? [{ name: `${text}, row ${at[what][0]}, column ${at[what][1]}`, colour: LINES[index + 2], what, pixel: at[what] }] : [])]);
    const spectrumOf = async ({ what, pixel }, signal) => {
      const key = `${what} ${pixel}`;
      if (!spectra.has(key)) spectra.set(key, await api.trainingSpectrum(where, what, pixel, signal));
      return spectra.get(key);
    };
    try {
      const found = await asksSpectra.run((signal) => Promise.all(wanted.map((one) => spectrumOf(one, signal))));
      if (!found) return;
      lines = wanted.map(({ name, colour }, index) => ({ name, colour, values: found[index].mean, spread: found[index].std }));
      legend.replaceChildren(...lines.map((line) => el('li', { class: 'small' }, swatch(line.colour), ` ${line.name}`)));
      const cube = cubeOf();
      chart.node.hidden = csv.disabled = false;
      said.textContent = '';
      chart.show({ ...bandAxis(cube), lines, table: bandTable(cube, lines), label: `Spectra: ${lines.map(({ name }) => name).join(', ')}` });
    } catch (error) {
      said.textContent = [error.message, error.remedy].filter(Boolean).join(' – ');
    }
  }

  view.on(['place', 'bands', 'mask', 'readAt', 'augmentedAt'], show);
  return { node, show, close: leave, stop() { asks.stop(); asksSpectra.stop(); } };
}

/** A picture whose pixels can be chosen, by a click or by their numbers. */
function picture(view, at, text) {
  const frame = el('div', { class: 'close-look', onclick: choose });
  const mark = el('span', { class: 'pixel-mark', hidden: true });
  const edge = (axis) => el('input', { type: 'number', min: 0, step: 1, 'aria-label': `${text}: ${axis} of a pixel`, onchange: take });
  const row = edge('row');
  const column = edge('column');
  function take() {
    // Whoever types the row goes on with the column.
    if (row.value === '' || column.value === '') return;
    const values = [row, column].map((box) => Number(box.value));
    if (values.every((value, axis) => Number.isInteger(value) && value >= 0 && value < size[axis])) view.set({ [at]: values });
    else showMark();
  }
  const node = el('figure', {}, el('figcaption', { class: 'muted small' }, text), frame,
    el('div', { class: 'pixel small' }, el('span', { class: 'muted' }, 'Row'), row, el('span', { class: 'muted' }, 'Column'), column));
  let size = [1, 1];

  function choose(event) {
    const canvas = frame.querySelector('canvas');
    if (!canvas) return;
    const box = canvas.getBoundingClientRect();
    const part = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
    if (part.some((one) => one < 0 || one >= 1)) return;
    view.set({ [at]: part.map((one, edge) => Math.min(size[edge] - 1, Math.floor(one * size[edge]))) });
  }

  /** A picture of this size is to come. */
  function begin([rows, columns]) {
    size = [rows, columns];
    [row, column].forEach((box, edge) => { box.max = String(size[edge] - 1); });
    frame.style.setProperty('--aspect', `${columns} / ${rows}`);
    say('Loading…');
  }

  /** Words in place of the picture. */
  function say(words) { frame.replaceChildren(el('span', { class: 'words small' }, words)); }

  function show(canvas) {
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', `${text}, ${size[0]} rows, ${size[1]} columns`);
    frame.replaceChildren(canvas, mark);
  }

  function showMark() {
    const pixel = view.state[at];
    const inside = pixel?.every((value, edge) => value < size[edge]);
    mark.hidden = !inside;
    [row, column].forEach((box, edge) => { box.value = inside ? String(pixel[edge]) : ''; });
    if (!inside) return;
    const [top, left] = pixel.map((value, edge) => ((value + 0.5) / size[edge]) * 100);
    Object.assign(mark.style, { top: `${top}%`, left: `${left}%` });
  }
  return { node, begin, say, show, mark: showMark };
}

/** What of the item is known, and where it can be seen. */
function factsOf(session, item) {
  const { epoch, setup } = session.batch.of;
  const words = new URLSearchParams(setup).toString();
  const cube = { ...cubeView(item.sample), training: words, epoch, open: ['display', 'spectra', 'masks', 'windows'] };
  const [row, column, rows, columns] = item.window;
  return [el('p', {}, `Sample ${item.sample}, ${windowText(item.window)}${item.repeat ? `, repeat ${item.repeat}` : ''}${item.padding ? ', padding' : ''}${item.label === null ? '' : `, label ${item.label}`}.`),
    el('p', {}, el('a', { href: write({ ...cube, at: lookAt(row, column, rows, columns) }) }, 'Its window on the cube'))];
}

/** Where the cube is looked at so that a window is seen with what is around it. */
const lookAt = (row, column, rows, columns) =>
  ({ row: row + rows / 2, column: column + columns / 2, scale: Math.min(24, Math.max(0.05, 200 / Math.max(rows, columns))) });

/** What was drawn: a row an augmentation. */
function drawnOf(session, item) {
  const steps = item.steps;
  if (!steps.length) return [el('p', { class: 'muted' }, 'There are no augmentations.')];
  const given = applied(item).length;
  const donor = (place) => el('button', { type: 'button', onclick: () => session.goTo({ batch: session.batch.of.batch, place }) }, `item ${place}`);
  const told = (drawn, place) => (place === null ? [words(drawn)] : [words(drawn), ' with ', donor(place)]);
  const rows = steps.map(({ op, drawn, donor: place }) => el('tr', {}, el('th', { scope: 'row' }, op),
    el('td', {}, drawn === null ? el('span', { class: 'muted' }, 'not applied') : told(drawn, place))));
  const id = unique('drawn');
  return [el('p', { class: 'muted small', id }, `${given} of ${steps.length} applied. The same seed, epoch and sample draw the same again.`),
    el('table', { class: 'facts', 'aria-labelledby': id }, el('tbody', {}, rows))];
}

/** Longer lists are cut. */
const NUMBERS = 12;

/** "angle 12.3, scale 1, 1". */
function words(drawn) {
  const one = (value) => {
    if (Array.isArray(value)) {
      const shown = value.slice(0, NUMBERS).map(one).join(', ');
      return value.length > NUMBERS ? `${shown}, … (${value.length})` : shown;
    }
    return typeof value === 'number' && !Number.isInteger(value) ? number(value, 4) : String(value);
  };
  const parts = Object.entries(drawn).filter(([name, value]) => name !== 'drawn' && name !== 'donor' && value !== null);
  return parts.length ? parts.map(([name, value]) => `${name} ${one(value)}`).join('; ') : 'applied';
}
