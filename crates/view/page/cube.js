// The page of one cube: the picture, and the sections beside it.

import * as api from './api.js';
import { arrayOf, IMAGE, markIn, pinIn, pixelIn, placeIn } from './arrays.js';
import { boxesSection } from './boxes.js';
import { classesSection } from './classes.js';
import { compareSection } from './compare.js';
import { cubeKeys } from './cubekeys.js';
import { displaySection } from './display.js';
import { el, say } from './dom.js';
import { badge, factsSection } from './facts.js';
import { coordinates } from './geo.js';
import { histogramSection } from './histogram.js';
import { CubeImage } from './image.js';
import { masksSection } from './masks.js';
import { LINES } from './palette.js';
import { pairSection } from './pair.js';
import { Picture } from './picture.js';
import { precisionSection } from './precision.js';
import { bandName, classOf, classesIn, isTarget, number, regionName, shownBands, shownMask } from './shown.js';
import { mapScale } from './scale.js';
import { Side } from './side.js';
import { spectraSection } from './spectra.js';
import { store, write } from './state.js';
import { toolbar } from './toolbar.js';
import { windowsSection } from './windows.js';

/**
 * Opens a cube.
 * @param {import('./state.js').CubeView} state
 * @param {{about: any, main: HTMLElement, fail: (error: any, again?: () => void) => void,
 *   clear: () => void, save: (state: any) => void, signal: AbortSignal, overviewHash: () => string, refocus: (selector: string) => void,
 *   neighbours: (id: number, signal: AbortSignal) => Promise<{previous: number | null, next: number | null} | undefined>}} page
 * @returns {Promise<{keys: (event: KeyboardEvent) => void, stop: () => void} | undefined>}
 */
export async function openCube(state, page) {
  const [sample, order] = await Promise.all([api.cube(state.id, page.signal),
    // If the order of the list is not known, use the order of the dataset.
    page.neighbours(state.id, page.signal).catch(() => undefined)]);
  Object.assign(sample, order);
  if (page.signal.aborted) return undefined;
  if (!arrayOf(sample, state.array)) state.array = null;
  const cube = arrayOf(sample, state.array);
  document.title = `${cube.name} – ${page.about.title} – hsipack view`;
  const inside = ({ rows, columns }) => rows[1] <= cube.shape[0] && columns[1] <= cube.shape[1];
  state.pins = state.pins.filter(inside);
  if (state.cursor && !inside(spanOf(state.cursor))) state.cursor = null;
  const session = new Session(sample, cube, state, page);
  page.main.replaceChildren(session.node);
  page.main.className = 'cube-page';
  session.start();
  return session;
}

/** @returns {import('./api.js').Region} */
const spanOf = ([row, column]) => ({ rows: [row, row + 1], columns: [column, column + 1] });

class Session {
  /** @param {any} sample  its facts @param {any} cube  the facts of its array that is shown */
  constructor(sample, cube, state, page) {
    this.sample = sample;
    this.cube = cube;
    /** Its pixels for a pixel of the page's array, which it is itself. */
    this.factor = 1;
    this.page = page;
    this.fail = page.fail;
    this.view = store(state);
    this.view.on(['*'], () => page.save(this.view.state));
    this.corner = null;
    /** @type {Side | null} the picture beside this one */
    this.side = null;
    this.asksOther = new api.Latest();
    this.shared = '';
    this.keys = cubeKeys(this);
    this.picture = new Picture(this);
    this.image = new CubeImage(this, () => this.#painted());
    this.display = displaySection(this);
    this.spectra = spectraSection(this);
    this.masks = masksSection(this);
    this.boxes = boxesSection(this);
    // These sections are about the image.
    const ofImage = (section) => (cube.array === null ? section(this) : emptySection());
    this.classes = ofImage(classesSection);
    this.histogram = histogramSection(this);
    this.scale = mapScale(this);
    this.precision = ofImage(precisionSection);
    this.compare = ofImage(compareSection);
    this.pair = pairSection(this);
    this.windows = ofImage(windowsSection);
    this.busy = el('p', { class: 'busy', hidden: true }, 'Loading…');
    this.read = el('p', { class: 'readout', 'aria-live': 'polite' });
    this.whose = el('p', { class: 'whose', hidden: true }, cube.name);
    this.picture.frame.append(this.busy, this.whose);
    this.frames = el('div', { class: 'frames' }, this.picture.frame);
    this.framed = el('div', { class: 'framed' }, this.frames, this.scale.node);
    this.tools = toolbar(this);
    this.node = el('div', { class: 'cube' }, this.#head(),
      el('div', { class: 'stage' }, this.tools.node,
        this.framed, this.read),
      el('div', { class: 'panel', role: 'region', 'aria-label': 'Display, spectra and facts', tabindex: 0 },
        this.display.node, this.spectra.node, this.masks.node, this.boxes.node, this.classes.node, this.histogram.node,
        this.compare.node, this.pair.node, this.precision.node, this.windows.node, factsSection(this).node));
    this.masks.node.hidden = isTarget(cube);
  }

  #head() {
    const { cube, page } = this;
    const step = (id, text, name, key) => (id === null || id === undefined
      ? el('span', { class: 'step off', 'aria-hidden': 'true' }, text)
      : el('a', { class: 'step', href: this.hashOf(id), 'aria-label': `${name} cube`, title: `${name} cube (${key})` }, text));
    return el('div', { class: 'head' },
      el('a', { href: page.overviewHash(), class: 'back' }, '← All samples'),
      el('h2', { class: 'cube-name' }, cube.name), el('span', { class: 'badges' }, cube.marks.map(badge)), el('span', { class: 'gap' }),
      el('span', { class: 'steps' }, step(cube.previous, '‹', 'Previous', 'p'), step(cube.next, '›', 'Next', 'n')));
  }

  /** The address of another cube, shown in the same way. */
  hashOf(id) {
    const { map } = this.view.state;
    return write({ ...this.view.state, id, at: null, cursor: null, pins: [], chosen: 0, angle: false, limit: null,
      map: map === 'difference' ? '' : map, cell: null, other: null });
  }

  /** Shows another array of the sample, of the same ground. @param {string | null} focus  what then has the focus */
  showArray(name, focus = null) {
    const { state } = this.view;
    const next = arrayOf(this.sample, name);
    if (!next || next.array === this.cube.array) return;
    const factor = next.factor / this.cube.factor;
    // If it is beside this one, both change places.
    const swaps = state.beside === name;
    if (focus) this.page.refocus(focus);
    location.hash = write({ ...state, array: next.array, bands: swaps ? state.besidebands : null, range: swaps ? state.besiderange : null,
      beside: swaps ? this.cube.array ?? IMAGE : state.beside, besidebands: swaps ? state.bands : state.besidebands,
      besiderange: swaps ? state.range : state.besiderange, at: placeIn(state.at, factor), cursor: pixelIn(state.cursor, factor),
      pins: state.pins.map((pin) => pinIn(pin, factor)), angle: false, map: '', mapband: null, limit: null });
  }

  start() {
    const { view, image } = this;
    const both = (act) => [this, this.side].forEach((one) => { if (one) act(one); });
    view.on(['bands', 'mask', 'truth', 'prediction'], () => both((one) => one.image.update()));
    view.on(['stretch', 'opacity', 'hidden', 'ignore', 'cell', 'range'], () => both((one) => one.image.paint()));
    view.on(['besidebands'], () => this.side?.image.update());
    view.on(['besiderange'], () => this.side?.image.paint());
    view.on(['other', 'beside'], () => this.showOther());
    view.on(['angle', 'pins', 'chosen', 'limit', 'map', 'mapband', 'bands'], () => image.updateMap());
    view.on(['map'], () => image.update());
    view.on(['at'], () => both((one) => { one.picture.draw(); one.picture.look(); }));
    view.on(['pins', 'chosen', 'cursor'], () => both((one) => one.picture.draw()));
    view.on(['cursor'], () => this.readout(view.state.cursor));
    view.on(['bands', 'stretch', 'mask', 'range'], () => this.histogram.show());
    // Links to other cubes keep the settings of this view.
    view.on(['bands', 'stretch', 'mask', 'opacity', 'hidden', 'open', 'map', 'mapband', 'relative', 'truth', 'prediction', 'ignore', 'training', 'epoch',
      'range', 'beside', 'besidebands', 'besiderange'], () =>
      this.node.querySelector('.head')?.replaceWith(this.#head()));
    image.update();
    image.updateMap();
    this.showOther();
    this.readout(view.state.cursor);
  }

  /** Shows beside this picture what the state names: the same array of another sample, another array of this one, or nothing. */
  async showOther() {
    const { other, beside } = this.view.state;
    const key = other !== null ? `sample ${other}` : beside !== null ? `array ${beside}` : '';
    if (key === (this.side?.key ?? '')) return;
    this.#takeAway();
    try {
      const cube = await this.asksOther.run((signal) => this.#cubeBeside(signal));
      // A newer request has replaced this one.
      if (cube === undefined) return;
      if (cube) this.#putBeside(new Side(this, cube, key));
      this.#besideChanged();
    } catch (error) {
      this.view.set({ other: null, map: this.view.state.map === 'difference' ? '' : this.view.state.map });
      this.#besideChanged();
      this.pair.fail(error);
    }
  }

  /** The facts of the array to show beside this one; null: there is none. */
  async #cubeBeside(signal) {
    const { other, beside } = this.view.state;
    if (other === null) {
      const cube = beside === null ? null : arrayOf(this.sample, beside);
      return cube?.array === this.cube.array ? null : cube;
    }
    const sample = await api.cube(other, signal);
    const cube = arrayOf(sample, this.cube.array);
    if (!cube) throw new api.ApiError(`${sample.name} has no array ${this.cube.array}.`, 'Choose another sample.', 0);
    if (String(cube.shape) !== String(this.cube.shape)) {
      throw new api.ApiError(`${cube.name} is ${cube.shape.join(' × ')}, this one ${this.cube.shape.join(' × ')}.`,
        'Choose a sample of the same shape.', 0);
    }
    return cube;
  }

  /** @param {Side} side */
  #putBeside(side) {
    this.side = side;
    if (!side.differs) {
      this.image.partner = side.image;
      side.image.partner = this.image;
    }
    this.frames.append(side.picture.frame);
    if (isTarget(side.cube)) this.framed.append(side.scale.node);
    side.image.update();
  }

  #takeAway() {
    this.side?.stop();
    this.side = null;
    this.image.partner = null;
  }

  #besideChanged() {
    this.frames.classList.toggle('two', Boolean(this.side));
    this.whose.hidden = !this.side;
    if (!this.side) this.image.paint();
    this.pair.show();
    this.spectra.update();
    this.image.updateMap();
    this.readout(this.view.state.cursor);
  }

  /** Paints the pictures of two samples with the same stretch as soon as the values of both have arrived. */
  share() {
    if (!this.side || this.side.differs) { this.shared = ''; return; }
    const ready = [this.image, this.side.image].map((image) => image.ready);
    const shared = JSON.stringify([shownBands(this.cube, this.view.state), this.side.cube.id, ready]);
    if (this.shared === shared) return;
    this.shared = shared;
    this.image.paint();
    this.side.image.paint();
  }

  /** Marks the pixel under the pointer in the other picture, too. @param {[number, number] | null} at  in the pixels of `from` */
  point(at, from = this) {
    const other = from === this ? this.side : this;
    if (other) {
      other.picture.pointed = markIn(at, other.factor / from.factor);
      other.picture.draw();
    }
    if (from === this) this.readout(at);
    else this.readout(pixelIn(at, 1 / from.factor), at);
  }

  #painted() {
    this.share();
    this.picture.draw();
    this.picture.look();
    this.display.showLimits();
    this.masks.show();
    this.histogram.show();
    this.scale.show();
    this.busy.hidden = this.image.busy === 0;
    this.picture.frame.setAttribute('aria-busy', String(this.image.busy > 0));
    this.readout(this.pointed ?? this.view.state.cursor, this.pointed ? this.there : undefined);
  }

  /** Remembers whether a section is unfolded. */
  fold(name) {
    return (open) => {
      const others = this.view.state.open.filter((one) => one !== name);
      this.view.set({ open: open ? [...others, name].sort() : others });
    };
  }

  /** Pins the spectrum of a region, or chooses it if it is pinned already. @param {import('./api.js').Region} region */
  pin(region) {
    const { pins } = this.view.state;
    this.corner = null;
    const there = pins.findIndex(({ rows, columns }) => String([rows, columns]) === String([region.rows, region.columns]));
    if (there >= 0) {
      this.view.set({ chosen: there });
      return;
    }
    const used = pins.map(({ colour }) => colour);
    const colour = LINES.find((one) => !used.includes(one)) ?? LINES[pins.length % LINES.length];
    const name = regionName(region);
    this.view.set({ pins: [...pins, { rows: region.rows, columns: region.columns, name, colour }], chosen: pins.length });
    say(`Pinned ${name}`);
  }

  toggleGrey() {
    const bands = shownBands(this.cube, this.view.state);
    this.view.set({ bands: bands.length === 3 ? [bands[0]] : this.cube.presets[0]?.bands ?? null });
  }

  toggleMask() {
    const shown = shownMask(this.cube, this.view.state);
    if (shown) this.hiddenMask = shown.name;
    this.view.set({ mask: shown ? '' : this.hiddenMask ?? null });
  }

  toggleAngle() {
    if (this.view.state.pins.length) this.showAngle(!this.view.state.angle);
    else say('Pin a spectrum first: the map shows angles to it.');
  }

  /** Shows the map of angles, or the picture. */
  showAngle(on) { this.view.set(on ? { angle: on, ...this.#without(), map: '' } : { angle: on }); }

  /** Shows a map, or the picture if that map is shown. */
  toggleMap(map) {
    if (this.view.state.map === map) this.view.set({ map: '', limit: null });
    else this.view.set({ map, angle: false, limit: null });
  }

  /** Resets the end of the scale, which means nothing on another scale. */
  #without() { return this.view.state.map ? { limit: null } : {}; }

  /**
   * Shows the values, classes and position of a pixel.
   * @param {[number, number] | null} at @param {[number, number] | null} [there]  the pixel of the picture beside this one
   */
  readout(at, there) {
    this.pointed = at;
    this.there = there;
    const pixel = at ?? this.view.state.cursor;
    if (!pixel) {
      this.read.replaceChildren(el('span', {}, 'Point at the picture to read values. Press ? for keys.'));
      return;
    }
    const [row, column] = pixel;
    const { bands, values, ids, map } = this.image.pixel(row, column);
    const parts = [`row ${row}, column ${column}`];
    if (values) parts.push(`${this.#valueName(bands)}: ${valueText(this.cube, values)}`);
    if (this.side) {
      const beside = this.side.image.pixel(...(there ?? /** @type {[number, number]} */ (pixelIn(pixel, this.side.factor)))).values;
      if (beside) parts.push(`${this.side.differs ? this.side.cube.array ?? IMAGE : this.side.cube.name}: ${valueText(this.side.cube, beside)}`);
    }
    if (ids.length) parts.push(ids.map(({ mask, value }) => `${mask.name}: ${classText(mask, value)}`).join('; '));
    if (map !== null) parts.push(map);
    const place = coordinates(this.cube.geo, row, column);
    if (place) parts.push(place);
    this.read.replaceChildren(...parts.map((text) => el('span', {}, text)));
  }

  /** What the shown values are: the bands, or the target and its channel. */
  #valueName(bands) {
    const { cube } = this;
    if (isTarget(cube)) return cube.shape[2] > 1 ? `${cube.array}, ${bandName(cube, bands[0])}` : cube.array;
    return `${bands.length > 1 ? 'bands' : 'band'} ${bands.join(', ')}`;
  }

  stop() {
    this.image.stop();
    this.picture.stop();
    this.spectra.stop();
    this.classes.stop();
    this.precision.stop();
    this.compare.stop();
    this.pair.stop();
    this.windows.stop();
    this.asksOther.stop();
    this.#takeAway();
  }
}

/** Stands for a section that says nothing about the array that is shown. */
const emptySection = () => ({ node: el('div', { hidden: true }), regions: () => [], show() {}, fail() {}, stop() {} });

/** Values of a pixel; those of a target with their unit. */
function valueText(cube, values) {
  const unit = isTarget(cube) && cube.unit ? ` ${cube.unit}` : '';
  return values.map((value) => number(value, 4)).join(', ') + unit;
}

/** The class of a pixel, or its layers. */
function classText(mask, value) {
  return classesIn(value).map((id) => classOf(mask, id).label).join(' + ') || 'no class';
}
