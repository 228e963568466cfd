// The section "Class means": mean ± standard deviation of the spectra of each class of the mask.

import * as api from './api.js';
import { bandAxis, bandMarks, bandTable } from './axes.js';
import { Chart, swatch } from './chart.js';
import { el, section } from './dom.js';
import { fileName, saveCsv, spectraCsv } from './exports.js';
import { hex } from './palette.js';
import { colourOf, count, hiddenClasses, shownMask } from './shown.js';

export function classesSection(session) {
  const { cube, view } = session;
  const asks = new api.Latest();
  const chart = new Chart((band) => view.set({ bands: [band] }));
  const said = el('p', { class: 'muted hint' });
  const list = el('ul', { class: 'legend' });
  const csv = el('button', { type: 'button', onclick: () =>
    saveCsv(spectraCsv(cube, lines()), fileName(cube.name, found?.mask.name ?? 'mask', 'classes.csv')) }, 'Save CSV');
  const fold = session.fold('classes');
  const { node, body } = section('classes', 'Class means', view.state.open.includes('classes'), (open) => {
    fold(open);
    update();
  });
  body.append(said, chart.node, list, el('div', { class: 'row' }, el('span', { class: 'gap' }), csv));

  /** @type {{mask: import('./shown.js').Mask, classes: any[], thinned: boolean} | null} */
  let found = null;

  /** The classes that are shown. */
  const shown = () => (found?.classes ?? []).filter(({ id }) => !hiddenClasses(found?.mask, view.state).has(id));
  const lines = () => shown().map((one) =>
    ({ name: one.label, colour: hex(colourOf(one)), values: one.mean, spread: one.std }));

  async function update() {
    const mask = shownMask(cube, view.state);
    if (!node.open) return;
    if (!mask) {
      asks.stop();
      found = null;
      show(cube.masks.length ? 'Choose a mask to see the means of its classes.' : 'This cube has no mask.');
      return;
    }
    if (found?.mask.name === mask.name) { show(''); return; }
    show('Loading…');
    try {
      const answer = await asks.run((signal) => api.classes(cube.id, mask.name, signal));
      if (!answer) return;
      found = { mask, ...answer };
      show('');
    } catch (error) {
      show('The means could not be computed.');
      session.fail(error, update);
    }
  }

  function show(text) {
    const drawn = text ? [] : lines();
    const thinned = found?.thinned ? 'Computed from evenly spaced pixels, because the cube is large.' : '';
    said.textContent = text || (drawn.length ? thinned : 'All classes are switched off in the legend of the mask.');
    chart.node.hidden = csv.hidden = list.hidden = drawn.length === 0;
    if (!drawn.length) return;
    list.replaceChildren(...shown().map((one) => el('li', {}, swatch(hex(colourOf(one))),
      el('span', { class: 'text' }, one.label), el('span', { class: 'muted small number' }, `${count(one.pixels)} pixels`))));
    chart.show({ ...bandAxis(cube), lines: drawn, marks: bandMarks(cube, view.state), table: bandTable(cube, drawn),
      label: `Mean ± standard deviation by class: ${drawn.map(({ name }) => name).join(', ')}` });
  }

  view.on(['mask', 'hidden', 'bands'], update);
  update();
  return { node, stop: () => asks.stop() };
}
