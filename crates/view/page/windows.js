// The section "Training windows": the windows of this cube that a loader delivers in an epoch, drawn on the picture.

import * as api from './api.js';
import { el, section, unique } from './dom.js';
import { count } from './shown.js';
import { trainingView, write } from './state.js';
import { windowText } from './trainingcards.js';

/** The number of windows to list; all windows are drawn. */
const LISTED = 100;
const COLOUR = '#ffd400';

export function windowsSection(session) {
  const { cube, view } = session;
  const asks = new api.Latest();
  const packed = session.page.about.kind === 'dataset';
  const fold = session.fold('windows');
  const { node, body } = section('windows', 'Training windows', view.state.open.includes('windows'), (open) => {
    fold(open);
    if (packed) update();
  });
  if (!packed) {
    body.append(el('p', { class: 'muted hint' }, 'This cube is not packed, and loaders read packed datasets.'));
    return { node, regions: () => [], stop() {} };
  }
  const id = unique('epoch');
  const epoch = el('input', { type: 'number', id, min: 0, step: 1, onchange: () => {
    const value = Number(epoch.value);
    if (epoch.value !== '' && Number.isInteger(value) && value >= 0) view.set({ epoch: value });
    else epoch.value = String(view.state.epoch);
  } });
  const said = el('p', { class: 'hint', role: 'status' });
  const list = el('ol', { class: 'choices' });
  const open = el('a', {}, 'What training is given');
  body.append(el('div', { class: 'row' }, el('label', { for: id, class: 'label' }, 'Epoch'), epoch, el('span', { class: 'gap' }), open), said, list);

  /** @type {any[]} */
  let places = [];
  /** The regions to draw. @type {any[]} */
  let regions = [];
  /** Identifies the last request. */
  let found = '';

  /** The options of the loader. */
  const setup = () => Object.fromEntries(new URLSearchParams(view.state.training));
  const link = (place) => write({ ...trainingView(), setup: setup(), epoch: view.state.epoch,
    ...(place ? { batch: place.batch, place: place.place, first: place.place - (place.place % api.LISTED) } : {}) });

  async function update() {
    const { epoch: wanted, training } = view.state;
    if (document.activeElement !== epoch) epoch.value = String(wanted);
    open.href = link(null);
    const key = JSON.stringify([wanted, training]);
    if (!node.open || key === found) { session.picture.draw(); return; }
    // Request each combination only once.
    found = key;
    said.textContent = 'Planning…';
    try {
      const answer = await asks.run((signal) => api.trainingPlaces(setup(), wanted, cube.id, signal));
      if (!answer) return;
      places = answer.places;
      regions = places.map(({ window: [row, column, rows, columns] }) =>
        ({ rows: [row, row + rows], columns: [column, column + columns], colour: COLOUR }));
      const total = `${count(places.length)}${answer.more ? ' or more' : ''} ${places.length === 1 ? 'window' : 'windows'} in epoch ${wanted}.`;
      said.textContent = places.length ? total : `No window of this cube in epoch ${wanted}.`;
      const shown = places.slice(0, LISTED).map((place) => el('li', {},
        el('a', { href: link(place) }, `Batch ${place.batch}, item ${place.place}`), ` ${windowText(place.window)}`));
      list.replaceChildren(...shown);
      if (places.length > LISTED) list.append(el('li', { class: 'muted' }, `and ${count(places.length - LISTED)} more, drawn on the picture`));
    } catch (error) {
      [places, regions, found] = [[], [], ''];
      list.replaceChildren();
      said.textContent = [error.message, error.remedy].filter(Boolean).join(' – ');
    }
    session.picture.draw();
  }

  view.on(['epoch', 'training'], update);
  update();
  return {
    node,
    /** The regions to draw on the picture. */
    regions: () => (node.open ? regions : []),
    stop: () => asks.stop(),
  };
}
