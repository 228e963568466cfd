// The section "Spectra": pinned spectra, their chart, and the map of angles to the chosen one.

import * as api from './api.js';
import { regionIn } from './arrays.js';
import { bandAxis, bandMarks, bandTable } from './axes.js';
import { Chart } from './chart.js';
import { el, say, section, unique } from './dom.js';
import { fileName, saveCsv, spectraCsv } from './exports.js';
import { count, number, regionName } from './shown.js';

/** @typedef {import('./state.js').Pin} Pin */
/** @typedef {{pixels: number, mean: (number | null)[], std: (number | null)[] | null}} Found */

const keyOf = ({ id, array }, { rows, columns }) => JSON.stringify([id, array, rows, columns]);

export function spectraSection(session) {
  const { cube, view } = session;
  /** @type {Map<string, Found | Error | null>} null: asked for */
  const found = new Map();
  const stop = new AbortController();
  const chart = new Chart((band) => view.set({ bands: [band] }));
  const hint = el('p', { class: 'muted hint' },
    'Click a pixel to pin its spectrum. To pin a mean, drag with Shift held, or choose Rectangle.');
  // Another array beside this one has other bands, and a chart of its own.
  const besideChart = new Chart((band) => session.side?.view.set({ bands: [band] }));
  const besideName = el('h3', { class: 'small' });
  const beside = el('div', { class: 'body-part' }, besideName, besideChart.node);
  const list = el('ol', { class: 'pins' });
  /** @type {{node: any, update: (pin: Pin) => void}[]} the entries of the list */
  const entries = [];
  const dashed = el('p', { class: 'muted small' });
  const group = unique('chosen');
  const angle = el('input', { type: 'checkbox', onchange: () => session.showAngle(angle.checked) });
  const csv = el('button', { type: 'button', onclick: exportCsv }, 'Save CSV');
  const clear = el('button', { type: 'button',
    onclick: () => { view.set({ pins: [], chosen: 0, angle: false }); say('All spectra removed'); } }, 'Remove all');
  const actions = el('div', { class: 'row' },
    cube.shape[2] > 1 ? el('label', { class: 'check', title: 'Angle of each pixel to the chosen spectrum (a)' }, angle, 'Angle map') : null,
    el('span', { class: 'gap' }), csv, clear);
  const { node, body } = section('spectra', 'Spectra', view.state.open.includes('spectra'), session.fold('spectra'));
  body.append(hint, chart.node, dashed, list, actions);

  /** The spectrum of an array on the ground of a pin, if it has arrived. @returns {Found | null} */
  function spectrumOf(one, pin) {
    const spectrum = found.get(keyOf(one.cube, regionIn(pin, one.factor)));
    return spectrum instanceof Error ? null : spectrum ?? null;
  }

  /** The spectrum of a pin as a line, if it has arrived. @returns {import('./chart.js').Line[]} */
  function lineOf(one, pin, name, dashed) {
    const spectrum = spectrumOf(one, pin);
    return spectrum ? [{ name, colour: pin.colour, values: spectrum.mean, spread: spectrum.std, dashed }] : [];
  }

  /** The spectra of this array, and those of another sample. */
  const lines = () => view.state.pins.flatMap((pin) => {
    const other = session.side?.differs ? null : session.side;
    return [...lineOf(session, pin, pin.name, false), ...(other ? lineOf(other, pin, `${pin.name}, ${other.cube.name}`, true) : [])];
  });

  /** The spectra of another array beside this one. */
  const besideLines = () => view.state.pins.flatMap((pin) => lineOf(session.side, pin, pin.name, false));

  /** The value of an array of one band or channel, as text. */
  function valueText(one, pin) {
    const spectrum = one && one.cube.shape[2] === 1 ? spectrumOf(one, pin) : null;
    if (!spectrum) return '';
    const spread = spectrum.std ? ` ± ${number(spectrum.std[0], 3)}` : '';
    return `${one.cube.array ?? 'image'}: ${number(spectrum.mean[0])}${spread}${one.cube.unit ? ` ${one.cube.unit}` : ''}`;
  }

  function exportCsv() {
    saveCsv(spectraCsv(cube, lines()), fileName(cube.name, 'spectra.csv'));
  }

  async function fetchMissing() {
    const arrays = [session, ...(session.side ? [session.side] : [])];
    const wanted = arrays.flatMap((one) => view.state.pins.map((pin) => ({ of: one.cube, region: regionIn(pin, one.factor) })));
    await Promise.all(wanted.map(async ({ of, region }) => {
      const key = keyOf(of, region);
      if (found.has(key)) return;
      found.set(key, null);
      try {
        found.set(key, await api.spectrum(of, region, stop.signal));
      } catch (error) {
        if (api.isAborted(error)) return;
        found.set(key, error);
        session.fail(error, () => { found.delete(key); fetchMissing(); });
      }
      show();
    }));
  }

  function remove(index) {
    const { pins, chosen } = view.state;
    say(`Removed ${pins[index].name}`);
    const left = pins.filter((_, at) => at !== index);
    const next = Math.max(0, index < chosen ? chosen - 1 : Math.min(chosen, left.length - 1));
    view.set({ pins: left, chosen: next, angle: view.state.angle && left.length > 0 });
    // The focus stays in the list.
    (list.querySelectorAll('.remove')[Math.min(index, left.length - 1)] ?? session.picture.canvas).focus();
  }

  /**
   * An entry of the list, and how it shows another pin. Entries stay while spectra arrive: a box that is taken away loses
   * what the user is typing.
   */
  function entry(index) {
    const change = (patch) =>
      view.set({ pins: view.state.pins.map((pin, at) => (at === index ? { ...pin, ...patch } : pin)) });
    const radio = el('input', { type: 'radio', name: group, onchange: () => view.set({ chosen: index }) });
    const colour = el('input', { type: 'color', onchange: () => change({ colour: colour.value }) });
    const name = el('input', { class: 'name', maxlength: 80, 'aria-label': `Name of spectrum ${index + 1}`,
      onchange: () => {
        const pin = view.state.pins[index];
        // Its pin may be gone already: a box that is taken away still tells what was typed.
        if (pin) change({ name: name.value = name.value.trim() || regionName(pin) });
      } });
    const of = el('span', { class: 'muted small' });
    const gone = el('button', { type: 'button', class: 'quiet remove', title: 'Remove', onclick: () => remove(index) }, '×');
    let shown = null;
    const update = (pin) => {
      const spectrum = found.get(keyOf(cube, pin));
      const note = spectrum instanceof Error ? 'failed' : !spectrum ? 'loading…'
        : spectrum.pixels > 1 ? `mean ± std of ${count(spectrum.pixels)} pixels` : '';
      radio.checked = index === view.state.chosen;
      radio.setAttribute('aria-label', `Choose ${pin.name}`);
      colour.value = pin.colour;
      colour.setAttribute('aria-label', `Colour of ${pin.name}`);
      if (shown !== pin.name) name.value = shown = pin.name;
      of.textContent = [pin.name === regionName(pin) ? '' : regionName(pin), note, valueText(session, pin),
        session.side?.differs ? valueText(session.side, pin) : ''].filter(Boolean).join('; ');
      gone.setAttribute('aria-label', `Remove ${pin.name}`);
    };
    const node = el('li', {}, radio, colour, el('b', { class: 'index', 'aria-hidden': 'true' }, String(index + 1)),
      el('div', { class: 'what' }, name, of), gone);
    return { node, update };
  }

  function show() {
    const { pins } = view.state;
    const shown = lines();
    hint.hidden = pins.length > 0;
    actions.hidden = pins.length === 0;
    chart.node.hidden = pins.length === 0 || cube.shape[2] === 1;
    const { side } = session;
    dashed.textContent = side ? `Dashed: ${side.cube.name}` : '';
    dashed.hidden = !side || side.differs || pins.length === 0;
    if (!side?.differs || side.cube.shape[2] === 1 || pins.length === 0) beside.remove();
    else {
      if (!beside.isConnected) dashed.after(beside);
      const drawn = besideLines();
      besideName.textContent = side.cube.name;
      besideChart.show({ ...bandAxis(side.cube), lines: drawn, marks: bandMarks(side.cube, side.view.state), table: bandTable(side.cube, drawn),
        label: `Spectra of ${side.cube.name}: ${drawn.map(({ name }) => name).join(', ')}` });
    }
    csv.disabled = shown.length === 0;
    angle.checked = view.state.angle && !view.state.map;
    for (const { node } of entries.splice(pins.length)) node.remove();
    while (entries.length < pins.length) {
      entries.push(entry(entries.length));
      list.append(entries[entries.length - 1].node);
    }
    pins.forEach((pin, index) => entries[index].update(pin));
    if (!shown.length && !chart.data) return;
    chart.show({
      ...bandAxis(cube), lines: shown, marks: bandMarks(cube, view.state), table: bandTable(cube, shown),
      label: `Spectra: ${shown.map(({ name }) => name).join(', ')}`,
    });
  }

  const update = () => { fetchMissing(); show(); };
  view.on(['pins', 'chosen', 'angle', 'map'], update);
  view.on(['bands', 'besidebands'], show);
  update();
  return { node, update, stop: () => stop.abort() };
}
