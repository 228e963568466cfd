// The section "Side by side": which sample or array is shown beside this one, and the difference of two samples.

import * as api from './api.js';
import { IMAGE, namesOf } from './arrays.js';
import { channelSelect, toggle } from './display.js';
import { debounced, el, section, unique } from './dom.js';
import { mapBand } from './maps.js';
import { bandName, bandWord, count, isTarget, shownBands } from './shown.js';

/** How many samples are searched for a part of a name, and how many are listed. */
const LOOKED_AT = 500;
const LISTED = 8;

/** A text in quotes for a condition; null if it contains both kinds of quotes. */
const quoted = (text) => [`'`, '"'].filter((mark) => !text.includes(mark)).map((mark) => mark + text + mark)[0] ?? null;

export function pairSection(session) {
  const { cube, view } = session;
  const asks = new api.Latest();
  const fold = session.fold('beside');
  const { node, body } = section('beside', session.sample.arrays.length ? 'Side by side' : 'Compare with another sample', view.state.open.includes('beside'), (open) => {
    fold(open);
    if (open) search();
  });
  const id = unique('other');
  const box = el('input', { type: 'search', id, spellcheck: 'false', autocomplete: 'off', placeholder: 'Name or number',
    oninput: debounced(() => search(), 250) });
  const list = el('ul', { class: 'choices', 'aria-label': 'Samples of the same shape' });
  const said = el('p', { class: 'muted hint', role: 'status' });
  // Separate from the messages of the search, which may arrive later.
  const problem = el('p', { class: 'error hint', role: 'status' });
  const name = el('b', { class: 'text' });
  const difference = toggle('Difference', 'This sample minus the other one, in one band', () => session.toggleMap('difference'));
  const bandId = unique('differenceband');
  const last = cube.shape[2] - 1;
  const band = el('input', { type: 'number', id: bandId, min: 0, max: last, step: 1, onchange: () => {
    const wanted = Math.round(Number(band.value));
    if (band.value !== '' && Number.isFinite(wanted)) view.set({ mapband: Math.min(last, Math.max(0, wanted)) });
    show();
  } });
  const wavelength = el('span', { class: 'number muted' });
  const end = el('button', { type: 'button', onclick: () => { choose(null); box.focus(); } }, 'Close');
  const differs = el('div', { class: 'row' }, difference, el('label', { for: bandId }, `in ${bandWord(cube).toLowerCase()}`), band, wavelength);
  const chosen = el('div', { class: 'body-part' },
    el('div', { class: 'row' }, el('span', { class: 'label' }, 'Compared with'), name, el('span', { class: 'gap' }), end), differs);
  const array = arraySelect(session, () => { problem.textContent = ''; });
  body.append(array.node, chosen, el('div', { class: 'row' }, el('label', { for: id, class: 'label' }, 'Sample'), box), problem, said, list);

  function choose(other) {
    problem.textContent = '';
    view.set({ other, beside: null, limit: null, ...(other === null && view.state.map === 'difference' ? { map: '' } : {}) });
  }

  /** Samples that match the typed text: it is a part of their name, their whole name, or their id. */
  async function find(text, signal) {
    const { total, samples } = await api.samples({ offset: 0, limit: LOOKED_AT, sort: 'name' }, signal);
    const lower = text.toLowerCase();
    const found = samples.filter((one) => one.name.toLowerCase().includes(lower) || String(one.id) === text);
    const packed = session.page.about.kind === 'dataset';
    if (text && packed && total > LOOKED_AT && quoted(text)) {
      // Find samples that were not searched, by their exact name or id.
      const number = /^\d{1,12}$/.test(text) ? ` or id == ${text}` : '';
      const more = await api.samples({ offset: 0, limit: LISTED, where: `name == ${quoted(text)}${number}` }, signal);
      found.unshift(...more.samples.filter((one) => !found.some(({ id: known }) => known === one.id)));
    }
    // The shape of a raw cube is known only after it was opened.
    return found.filter((one) => one.id !== cube.id && (!one.shape || String(one.shape) === String(session.sample.shape)));
  }

  async function search() {
    try {
      const found = await asks.run((signal) => find(box.value.trim(), signal));
      if (!found) return;
      said.textContent = found.length > LISTED ? `${count(found.length)} samples of this shape; type more of a name.`
        : found.length ? '' : 'No other sample of this shape has that name or number.';
      list.replaceChildren(...found.slice(0, LISTED).map((one) => el('li', {}, el('button', { type: 'button',
        'aria-pressed': String(one.id === view.state.other), 'data-id': one.id, onclick: () => choose(one.id) },
      el('span', { class: 'text' }, one.name), el('span', { class: 'small number' }, String(one.id))))));
    } catch (error) {
      fail(error);
    }
  }

  /** Shows why no other sample is shown. */
  function fail(error) {
    if (!api.isAborted(error)) problem.textContent = [error.message, error.remedy].filter(Boolean).join(' – ');
  }

  function show() {
    const { side } = session;
    const at = mapBand(cube, view.state);
    array.show();
    chosen.hidden = !side || side.differs;
    name.textContent = side?.cube.name ?? '';
    difference.setAttribute('aria-pressed', String(view.state.map === 'difference'));
    if (document.activeElement !== band) band.value = String(at);
    wavelength.textContent = bandName(cube, at);
    for (const button of list.querySelectorAll('button')) {
      button.setAttribute('aria-pressed', String(Number(button.dataset.id) === view.state.other));
    }
  }
  view.on(['map', 'mapband', 'bands', 'other', 'beside', 'besidebands'], show);
  if (node.open) search();
  return { node, show, fail, stop: () => asks.stop() };
}

/** The choice of another array of the sample, and of its bands or channel. */
function arraySelect(session, onchoose) {
  const { cube, sample, view } = session;
  const others = namesOf(sample).filter(({ name }) => name !== (cube.array ?? IMAGE));
  const id = unique('beside');
  const choice = el('select', { id, onchange: () => {
    onchoose();
    view.set({ beside: choice.value || null, besidebands: null, besiderange: null, other: null, limit: null,
      ...(view.state.map === 'difference' ? { map: '' } : {}) });
  } }, el('option', { value: '' }, 'None'), others.map(({ name, text }) => el('option', { value: name }, text)));
  const bands = el('div', {});
  const node = el('div', { class: 'body-part' }, el('div', { class: 'row' }, el('label', { for: id, class: 'label' }, 'Other array'), choice), bands);
  node.hidden = !others.length;
  /** @type {{of: any, node: HTMLElement, show: () => void} | null} the choice of bands of the array that is shown */
  let shown = null;
  return {
    node,
    show() {
      const side = session.side?.differs ? session.side : null;
      choice.value = side ? side.cube.array ?? IMAGE : '';
      if (shown?.of !== side) {
        shown = side && { of: side, ...(isTarget(side.cube) ? channelSelect : presetButtons)(side.cube, side.view) };
        bands.replaceChildren(...(shown ? [shown.node] : []));
      }
      shown?.show();
    },
  };
}

/** Buttons for the presets of bands of an image. */
function presetButtons(cube, view) {
  const all = cube.presets.map(({ name, caption, bands }) => ({ bands, button: toggle(name, caption, () => view.set({ bands })) }));
  const node = el('div', { class: 'row', role: 'group', 'aria-label': `Bands shown of ${cube.array ?? IMAGE}` }, all.map(({ button }) => button));
  return { node, show() {
    const now = String(shownBands(cube, view.state));
    for (const { bands, button } of all) button.setAttribute('aria-pressed', String(String(bands) === now));
  } };
}
