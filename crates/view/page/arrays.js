// The arrays of a sample: the image, further images, and targets. Each has pixels of its own on the same ground.

import { regionName } from './shown.js';

/** The name of the image. */
export const IMAGE = 'image';

/**
 * The facts of an array of a sample, in the form of the facts of a cube; null if the sample has no array of that name.
 * @param {any} sample  its facts @param {string | null} name  null: the image
 */
export function arrayOf(sample, name) {
  if (name === null || name === IMAGE) return { ...sample, array: null, role: null, factor: 1 };
  const found = sample.arrays.find((one) => one.name === name);
  if (!found) return null;
  const { factor } = found;
  return { ...sample, ...found, name: `${sample.name}, ${name}`, array: name, good_bands: null, format: '',
    // The range of stored values is that of the image.
    fields: sample.fields.filter(([field]) => field !== 'stored values'),
    masks: found.role === 'target' ? [] : sample.masks, geo: sample.geo && { ...sample.geo, transform: finer(sample.geo.transform, factor) },
    boxes: sample.boxes.map((box) => ({ ...box, corners: box.corners.map((corner) => corner * factor) })) };
}

/** The names of all arrays of a sample, each with what distinguishes it. @returns {{name: string, text: string}[]} */
export function namesOf(sample) {
  const further = sample.arrays.map(({ name, role, factor, shape: [rows, columns] }) =>
    ({ name, text: `${name} (${role === 'target' ? 'target' : 'further image'}${factor === 1 ? '' : `, ${rows} × ${columns}`})` }));
  return [{ name: IMAGE, text: IMAGE }, ...further];
}

/** The position of pixels `factor` times as fine, in GDAL's order. */
const finer = (transform, factor) => transform.map((number, at) => (at % 3 === 0 ? number : number / factor));

// From the pixels of an array to the pixels of another one with `factor` times as many rows and columns.

/** @param {{row: number, column: number, scale: number} | null} at */
export const placeIn = (at, factor) => at && { row: at.row * factor, column: at.column * factor, scale: at.scale / factor };

/** The pixel in which the centre of a pixel is. @param {[number, number] | null} pixel @returns {[number, number] | null} */
export const pixelIn = (pixel, factor) =>
  pixel && /** @type {[number, number]} */ (pixel.map((at) => Math.floor((at + 0.5) * factor)));

/** The place to mark for a pixel: its centre among finer pixels, otherwise the pixel that it is in. */
export const markIn = (pixel, factor) =>
  (factor > 1 && pixel ? pixel.map((at) => (at + 0.5) * factor - 0.5) : pixelIn(pixel, factor));

/** The pixels that a region touches. @param {import('./api.js').Region} region @returns {import('./api.js').Region} */
export function regionIn({ rows, columns }, factor) {
  // Without rounding up what only rounding has made larger than a whole number.
  const cover = ([start, end]) => /** @type {[number, number]} */ ([Math.floor(start * factor + 1e-6), Math.ceil(end * factor - 1e-6)]);
  return { rows: cover(rows), columns: cover(columns) };
}

/** A pinned spectrum of the same ground. @param {import('./state.js').Pin} pin */
export function pinIn(pin, factor) {
  const region = regionIn(pin, factor);
  return { ...pin, ...region, name: pin.name === regionName(pin) ? regionName(region) : pin.name };
}

/** The view of another array of the same sample, with a state of its own in the state of the page: bands and range. */
export class ArrayView {
  /** @param {any} view  of the page @param {number} factor  its pixels for a pixel of the page's array */
  constructor(view, factor) {
    this.view = view;
    this.factor = factor;
  }

  get state() {
    const { view: { state }, factor } = this;
    return { ...state, at: placeIn(state.at, factor), cursor: markIn(state.cursor, factor), bands: state.besidebands, range: state.besiderange,
      pins: state.pins.map((pin) => ({ ...pin, rows: pin.rows.map((at) => at * factor), columns: pin.columns.map((at) => at * factor) })) };
  }

  set({ at, cursor, bands, range }) {
    const { factor } = this;
    this.view.set({
      ...(at === undefined ? {} : { at: placeIn(at, 1 / factor) }), ...(cursor === undefined ? {} : { cursor: pixelIn(cursor, 1 / factor) }),
      ...(bands === undefined ? {} : { besidebands: bands }), ...(range === undefined ? {} : { besiderange: range }),
    });
  }
}
