// The section "Precision": how far packed values are from the values of the source, by band and as a map.

import * as api from './api.js';
import { bandAxis, bandMarks } from './axes.js';
import { Chart, swatch } from './chart.js';
import { toggle } from './display.js';
import { el, section, unique } from './dom.js';
import { csvText, fileName, saveCsv } from './exports.js';
import { mapBand } from './maps.js';
import { LINES } from './palette.js';
import { bandName, count, number } from './shown.js';

/** Bits of the mantissa of each type. */
const MANTISSA = { float16: 10, float32: 23, float64: 52 };
/** If the greatest value is more than this many times the least, the axis is logarithmic. */
const WIDE = 20;

/** "float16, 7 of 10 mantissa bits kept". */
function stored({ dtype, keep_bits: kept }) {
  const all = MANTISSA[dtype];
  if (!all) return `Stored as ${dtype}.`;
  return `Stored as ${dtype}, ${kept === null || kept === undefined ? `all ${all}` : `${kept} of ${all}`} mantissa bits kept.`;
}

export function precisionSection(session) {
  const { cube, view } = session;
  const asks = new api.Latest();
  const fold = session.fold('precision');
  const packed = session.page.about.kind === 'dataset';
  const { node, body } = section('precision', 'Precision', view.state.open.includes('precision'), (open) => {
    fold(open);
    if (packed) update();
  });
  if (!packed) {
    body.append(el('p', { class: 'muted hint' },
      'This cube is not packed, so its values are unchanged. Pack it with ', el('code', {}, 'hsipack convert'), ' to see what packing does to them.'));
    return { node, fail() {}, stop() {} };
  }
  const chart = new Chart((band) => view.set({ mapband: band }));
  const said = el('p', { class: 'hint', role: 'status' });
  const changed = el('p', { class: 'warning', hidden: true },
    'The source has changed since it was packed, so these deviations are not only rounding. Pack it again.');
  const retry = el('button', { type: 'button', hidden: true, onclick: () => { failed = ''; update(); session.image.updateMap(); } }, 'Try again');
  const absolute = toggle('Absolute', 'In the unit of the values', () => view.set({ relative: false }));
  const relative = toggle('Relative', 'Relative to the value', () => view.set({ relative: true }));
  const kinds = el('div', { class: 'row', role: 'group', 'aria-label': 'Deviation' }, el('span', { class: 'label' }, 'Deviation'), absolute, relative);
  const id = unique('mapband');
  const last = cube.shape[2] - 1;
  const band = el('input', { type: 'number', id, min: 0, max: last, step: 1, onchange: () => {
    const wanted = Math.round(Number(band.value));
    if (band.value !== '' && Number.isFinite(wanted)) view.set({ mapband: Math.min(last, Math.max(0, wanted)) });
    show();
  } });
  const name = el('span', { class: 'number muted' });
  const ofBand = toggle('Of the band', 'Packed value minus source value of each pixel', () => session.toggleMap('deviation'));
  const ofAll = toggle('Of the spectrum', 'Length of the difference of both spectra, relative to the source spectrum', () => session.toggleMap('spectrum'));
  const csv = el('button', { type: 'button', onclick: exportCsv }, 'Save CSV');
  const legend = el('ul', { class: 'row' });
  const rest = el('div', { class: 'body-part' }, kinds, legend, chart.node,
    el('div', { class: 'row', role: 'group', 'aria-label': 'Map of deviations' }, el('span', { class: 'label' }, 'Map'), ofBand, ofAll),
    el('div', { class: 'row' }, el('label', { for: id, class: 'label' }, 'Map’s band'), band, name, el('span', { class: 'gap' }), csv));
  body.append(said, changed, retry, rest);

  /** @type {any} */
  let found = null;
  let failed = '';

  async function update() {
    show();
    if (!node.open || found || failed) return;
    said.textContent = 'Reading the source…';
    try {
      const answer = await asks.run((signal) => api.precision(cube.id, signal));
      if (!answer) return;
      found = answer;
      show();
    } catch (error) {
      fail(error);
    }
  }

  /** Shows in this section what cannot be compared; the rest of the page still works. */
  function fail(error) {
    failed = [error.message, error.remedy].filter(Boolean).join(' – ');
    if (['deviation', 'spectrum'].includes(view.state.map)) view.set({ map: '', limit: null });
    node.open = true;
    show();
  }

  const column = (key) => found.bands.map((one) => (one.count ? one[key] : null));

  /** The band with the largest deviation. */
  function worst(key) {
    const values = column(key);
    return values.reduce((best, value, at) => (value !== null && (best < 0 || value > values[best]) ? at : best), -1);
  }

  function lines() {
    const line = (name, colour, key) => ({ name, colour, values: column(key) });
    return view.state.relative ? [line('greatest relative deviation', LINES[1], 'max_rel')]
      : [line('greatest deviation', LINES[1], 'max_abs'), line('mean deviation', LINES[0], 'mean_abs')];
  }

  function summary() {
    const compared = found.bands.reduce((total, one) => total + one.count, 0);
    const [at, part] = [worst('max_abs'), worst('max_rel')];
    if (at < 0) return [stored(found), ' There is no value to compare.'];
    if (!found.bands[at].max_abs) return [stored(found), ` All ${count(compared)} values are equal to those of the source.`];
    const where = (band) => `band ${band}, ${bandName(cube, band)}`;
    const unit = cube.unit ? ` ${cube.unit}` : '';
    return [`${stored(found)} The worst band: `, el('b', {}, where(at)), `, off by up to ${number(found.bands[at].max_abs, 3)}${unit}; `,
      `relative: ${where(part)}, ${number(found.bands[part].max_rel * 100, 3)} %. ${count(compared)} values were compared.`];
  }

  function show() {
    const at = mapBand(cube, view.state);
    if (document.activeElement !== band) band.value = String(at);
    name.textContent = bandName(cube, at);
    for (const [button, on] of [[absolute, !view.state.relative], [relative, view.state.relative],
      [ofBand, view.state.map === 'deviation'], [ofAll, view.state.map === 'spectrum']]) button.setAttribute('aria-pressed', String(on));
    retry.hidden = !failed;
    rest.hidden = !found || Boolean(failed);
    changed.hidden = !found?.source_changed;
    if (failed) said.textContent = failed;
    if (!found || failed) return;
    said.replaceChildren(...summary());
    const drawn = lines();
    legend.replaceChildren(...drawn.map((line) => el('li', { class: 'small' }, swatch(line.colour), ` ${line.name}`)));
    const positive = drawn.flatMap(({ values }) => values).filter((value) => value > 0);
    const log = positive.length > 0 && Math.max(...positive) > WIDE * Math.min(...positive);
    const yTitle = view.state.relative ? 'Relative deviation' : cube.unit ? `Deviation (${cube.unit})` : 'Deviation';
    chart.show({ ...bandAxis(cube), yTitle, log, zero: !log, lines: drawn, table, label: `Deviation by band: ${drawn.map((line) => line.name).join(', ')}`,
      marks: bandMarks(cube, view.state) });
  }

  const table = {
    head: ['Band', 'Wavelength (nm)', 'Greatest', 'Mean', 'Greatest relative', 'Values'],
    rows: () => found.bands.map((one, at) => [`${at}${cube.good_bands?.[at] === false ? ' (bad)' : ''}`,
      number(cube.wavelength?.[at] ?? null, 7).replace('missing', 'unknown'),
      ...[one.max_abs, one.mean_abs, one.max_rel].map((value) => (one.count ? number(value, 7) : 'missing')), count(one.count)]),
  };

  function exportCsv() {
    const head = ['band', 'wavelength_nm', 'max_abs', 'mean_abs', 'max_rel', 'count'];
    const rows = found.bands.map((one, at) => [at, cube.wavelength?.[at] ?? null,
      ...(one.count ? [one.max_abs, one.mean_abs, one.max_rel] : [null, null, null]), one.count]);
    saveCsv(csvText([head, ...rows]), fileName(cube.name, 'precision.csv'));
  }

  view.on(['relative', 'map', 'mapband', 'bands'], show);
  update();
  return { node, fail, stop: () => asks.stop() };
}
