// The section "Display": which bands are shown, and how they are stretched.

import { IMAGE, namesOf } from './arrays.js';
import { debounced, el, section, unique } from './dom.js';
import { CHANNELS, GREY } from './palette.js';
import { bandName, isTarget, number, shownBands } from './shown.js';

const NAMES = ['Red', 'Green', 'Blue'];

/** A toggle button. */
export const toggle = (text, title, onclick) =>
  el('button', { type: 'button', 'aria-pressed': 'false', title, onclick }, text);

const press = (button, on) => button.setAttribute('aria-pressed', String(on));

export function displaySection(session) {
  const { cube, view } = session;
  const presets = cube.presets.map((preset) => ({ preset, button: toggle(preset.name, preset.caption,
    () => view.set({ bands: preset.bands })) }));
  const grey = toggle('Grey', 'One band (g)', () => session.toggleGrey());
  const rows = el('div', { class: 'channels' });
  const limits = el('p', { class: 'muted small limits' });
  const stretch = stretchInputs(view);
  const channelChoice = isTarget(cube) ? channelSelect(cube, view) : null;
  const { node, body } = section('display', 'Display', view.state.open.includes('display'), session.fold('display'));
  body.append(...(session.sample.arrays.length ? [arraySelect(session)] : []),
    ...(channelChoice ? [channelChoice.node]
      : [el('div', { class: 'row', role: 'group', 'aria-label': 'Bands shown' }, presets.map(({ button }) => button), grey), rows]),
    stretch.node, limits);

  /** @type {ReturnType<typeof channel>[]} */
  let channels = [];
  function show() {
    const bands = shownBands(cube, view.state);
    stretch.show();
    if (channelChoice) { channelChoice.show(); return; }
    if (channels.length !== bands.length) {
      channels = bands.map((_, at) => channel(session, at, bands.length));
      rows.replaceChildren(...channels.map((one) => one.node));
    }
    bands.forEach((band, at) => channels[at].show(band));
    for (const { preset, button } of presets) press(button, String(preset.bands) === String(bands));
    press(grey, bands.length === 1);
  }

  /** Shows the values at the ends of the stretch. */
  function showLimits() {
    if (!session.image.ready) return;
    const unit = cube.unit ? ` ${cube.unit}` : '';
    limits.textContent = `${isTarget(cube) ? 'Colours from' : 'Black to full:'} ${session.image.limits()
      .map(({ low, high }) => `${number(low, 3)} to ${number(high, 3)}`).join('; ')}${unit}`;
  }
  view.on(['bands', 'stretch'], show);
  show();
  return { node, showLimits };
}

/** The choice of the array of the sample. */
function arraySelect(session) {
  const id = unique('array');
  const choice = el('select', { id, class: 'array', onchange: () => session.showArray(choice.value, 'select.array') },
    namesOf(session.sample).map(({ name, text }) => el('option', { value: name }, text)));
  choice.value = session.cube.array ?? IMAGE;
  return el('div', { class: 'row' }, el('label', { for: id, class: 'label' }, 'Array'), choice);
}

/** The choice of a channel of a target. */
export function channelSelect(cube, view) {
  const id = unique('channel');
  const names = Array.from({ length: cube.shape[2] }, (_, at) => bandName(cube, at));
  const choice = el('select', { id, onchange: () => view.set({ bands: [Number(choice.value)], range: null }) },
    names.map((name, at) => el('option', { value: at }, name)));
  const node = el('div', { class: 'row' }, el('label', { for: id, class: 'label' }, 'Channel'), choice);
  node.hidden = names.length === 1;
  return { node, show() { choice.value = String(shownBands(cube, view.state)[0]); } };
}

/** The slider and the number box of one band. */
function channel(session, at, count) {
  const { cube, view } = session;
  const name = count === 1 ? 'Grey' : NAMES[at];
  const last = cube.shape[2] - 1;
  const id = unique('band');
  const wavelength = el('span', { class: 'number' });
  const wanted = { band: 0 };
  const set = () => {
    const bands = [...shownBands(cube, view.state)];
    bands[at] = wanted.band;
    view.set({ bands });
  };
  // While a slider is dragged, do not load every band that it passes.
  const later = debounced(set, 60);
  const take = (text) => {
    const band = Math.round(Number(text));
    if (text === '' || !Number.isFinite(band)) return false;
    wanted.band = Math.min(last, Math.max(0, band));
    return true;
  };
  const box = el('input', { type: 'number', min: 0, max: last, step: 1, 'aria-label': `${name} band number`,
    onchange: () => { if (take(box.value)) set(); else show(wanted.band); } });
  const slider = el('input', { type: 'range', min: 0, max: last, step: 1, id,
    oninput: () => { take(slider.value); show(wanted.band); later(); } });
  function show(band) {
    wanted.band = band;
    slider.value = String(band);
    box.value = String(band);
    wavelength.textContent = bandName(cube, band);
    slider.setAttribute('aria-valuetext', `Band ${band}, ${bandName(cube, band)}`);
  }
  const colour = count === 1 ? GREY : CHANNELS[at];
  const node = el('div', { class: 'channel', style: { accentColor: colour } },
    el('label', { for: id }, name), slider, box, wavelength);
  return { node, show };
}

/** Number boxes for the percentiles that become black and full colour. */
function stretchInputs(view) {
  const input = (label, at) => {
    const box = el('input', { type: 'number', min: 0, max: 100, step: 0.5, 'aria-label': label, onchange: () => {
      const ends = [...view.state.stretch];
      ends[at] = Number(box.value);
      const sound = box.value !== '' && ends[0] >= 0 && ends[0] < ends[1] && ends[1] <= 100;
      if (sound) view.set({ stretch: ends, range: null });
      else box.value = String(view.state.stretch[at]);
    } });
    return box;
  };
  const low = input('Low percentile, black', 0);
  const high = input('High percentile, full colour', 1);
  const usual = el('button', { type: 'button', onclick: () => view.set({ stretch: [2, 98], range: null }) }, '2–98');
  const all = el('button', { type: 'button', onclick: () => view.set({ stretch: [0, 100], range: null }) }, 'All');
  const node = el('div', { class: 'row', role: 'group', 'aria-label': 'Stretch, in percentiles' },
    el('span', { class: 'label' }, 'Percentiles'), low, 'to', high, usual, all);
  return { node, show() { [low.value, high.value] = view.state.stretch.map(String); } };
}
