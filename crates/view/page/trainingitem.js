// One item of a batch in detail: its pictures, its spectra before and after augmentation, and what was drawn for it.

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

  /** The shown item, its place, and its spectra, which are kept while it is shown. @type {any} */
  let shown = null;
  /** @type {import('./chart.js').Line[]} */
  let lines = [];
  /** Identifies what the pictures show. */
  let pictured = '';

  const titleText = () => {
    const { epoch, batch, place } = shown.where;
    return `${shown.item.name} epoch ${epoch} batch ${batch} place ${place}`;
  };
  /** The properties of a cube that charts need. */
  const cubeOf = () => ({ shape: session.batch.before, bands: session.batch.bands, wavelength: session.batch.wavelength, good_bands: session.batch.good_bands, unit: null });
  const kinds = () => KINDS.filter(([what]) => what === 'read' || session.about.ops);

  function leave() {
    const { place } = view.state;
    view.set(NO_ITEM);
    session.cards.focus(place);
  }

  function show() {
    // Until the requested batch arrives, nothing changes.
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

  /** Starts to show an item, and clears everything of the previous item. */
  function begin(item, where) {
    // On a phone, this panel is below the items.
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

/** A picture in which the user can choose a pixel, by a click or by its numbers. */
function picture(view, at, text) {
  const frame = el('div', { class: 'close-look', onclick: choose });
  const mark = el('span', { class: 'pixel-mark', hidden: true });
  const edge = (axis) => el('input', { type: 'number', min: 0, step: 1, 'aria-label': `${text}: ${axis} of a pixel`, onchange: take });
  const row = edge('row');
  const column = edge('column');
  function take() {
    // Wait until both row and column are typed.
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

  /** Prepares for a picture of this size. */
  function begin([rows, columns]) {
    size = [rows, columns];
    [row, column].forEach((box, edge) => { box.max = String(size[edge] - 1); });
    frame.style.setProperty('--aspect', `${columns} / ${rows}`);
    say('Loading…');
  }

  /** Shows a text instead of the picture. */
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

/** Facts about the item, and a link to its window on the cube. */
function factsOf(session, item) {
  const { epoch, setup } = session.batch.of;
  const words = new URLSearchParams(setup).toString();
  const cube = { ...cubeView(item.sample), training: words, epoch, open: ['display', 'spectra', 'masks', 'windows'] };
  const [row, column, rows, columns] = item.window;
  return [el('p', {}, `Sample ${item.sample}, ${windowText(item.window)}${item.repeat ? `, repeat ${item.repeat}` : ''}${item.padding ? ', padding' : ''}${item.label === null ? '' : `, label ${item.label}`}.`),
    el('p', {}, el('a', { href: write({ ...cube, at: lookAt(row, column, rows, columns) }) }, 'Its window on the cube'))];
}

/** A view of the cube that shows a window and its surroundings. */
const lookAt = (row, column, rows, columns) =>
  ({ row: row + rows / 2, column: column + columns / 2, scale: Math.min(24, Math.max(0.05, 200 / Math.max(rows, columns))) });

/** What was drawn: one row per augmentation. */
function drawnOf(session, item) {
  const steps = item.steps;
  if (!steps.length) return [el('p', { class: 'muted' }, 'There are no augmentations.')];
  const given = applied(item).length;
  const donor = (place) => el('button', { type: 'button', onclick: () => session.goTo({ batch: session.batch.of.batch, place }) }, `item ${place}`);
  const told = (drawn, place) => (place === null ? [words(drawn)] : [words(drawn), ' with ', donor(place)]);
  const rows = steps.map(({ op, drawn, donor: place }) => el('tr', {}, el('th', { scope: 'row' }, op),
    el('td', {}, drawn === null ? el('span', { class: 'muted' }, 'not applied') : told(drawn, place))));
  const id = unique('drawn');
  return [el('p', { class: 'muted small', id }, `${given} of ${steps.length} applied. The same seed, epoch and sample always draw the same.`),
    el('table', { class: 'facts', 'aria-labelledby': id }, el('tbody', {}, rows))];
}

/** Longer lists are cut to this many numbers. */
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
