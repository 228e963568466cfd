// What is shown of a cube if the state leaves it open, or if a link names something that the cube does not have.

import { classColour, rgb } from './palette.js';

/** @typedef {{id: number, label: string, colour: string}} Class */
/** @typedef {{name: string, layers: boolean, classes: Class[]}} Mask */

/** @typedef {Uint16Array | BigUint64Array} MaskValues  class ids, or sets of layers, of which layer 0 is the lowest bit */

/** The classes of a value of a mask: its class id, or the layers in the set. @returns {number[]} */
export function classesIn(value) {
  if (typeof value === 'number') return [value];
  const layers = [];
  for (let layer = 0; value >> BigInt(layer); layer++) if ((value >> BigInt(layer)) & 1n) layers.push(layer);
  return layers;
}

/** Whether an array is a target: one of its channels is shown in the colours of a scale. */
export const isTarget = (cube) => cube.role === 'target';

/** "Band", or "Channel" of a target. */
export const bandWord = (cube) => (isTarget(cube) ? 'Channel' : 'Band');

/** The shown bands: three, or one. @returns {number[]} */
export function shownBands(cube, view) {
  const count = cube.shape[2];
  const sound = view.bands?.every((band) => band < count) && !(isTarget(cube) && view.bands.length > 1);
  return sound ? view.bands : cube.presets[0]?.bands ?? [0];
}

/** The mask that is drawn over the picture. @returns {Mask | null} */
export function shownMask(cube, view) {
  if (view.mask === '') return null;
  return cube.masks.find(({ name }) => name === view.mask) ?? cube.masks[0] ?? null;
}

/** The two masks to compare; null if fewer than two masks have classes. @returns {{truth: Mask, prediction: Mask} | null} */
export function comparedMasks(cube, view) {
  const masks = cube.masks.filter(({ layers }) => !layers);
  if (masks.length < 2) return null;
  const named = (name) => masks.find((mask) => mask.name === name);
  const truth = named(view.truth) ?? masks.find(({ name }) => name !== view.prediction);
  const prediction = named(view.prediction) ?? masks.find(({ name }) => name !== truth.name);
  return { truth: withNames(truth, prediction), prediction: withNames(prediction, truth) };
}

/** A mask in which classes without a name get the names of another mask. @returns {Mask} */
function withNames(mask, other) {
  const known = ({ id, label }) => label !== String(id);
  const own = mask.classes.filter(known);
  const more = other.classes.filter((one) => known(one) && !own.some(({ id }) => id === one.id));
  const rest = mask.classes.filter(({ id }) => ![...own, ...more].some((one) => one.id === id));
  return { ...mask, classes: [...own, ...more, ...rest] };
}

/** A class of a mask, even if the dataset has no name for it. @param {Mask} mask @returns {Class} */
export const classOf = (mask, id) =>
  mask.classes.find((known) => known.id === id) ?? { id, label: String(id), colour: '' };

/** @param {Class} known @returns {import('./palette.js').Colour} */
export const colourOf = ({ id, colour }) => (/^#[0-9a-f]{6}$/i.test(colour) ? rgb(colour) : classColour(id));

/** The classes that are switched off. Unless the user chooses others, this is the class for "no class". */
export function hiddenClasses(mask, view) {
  if (view.hidden) return new Set(view.hidden);
  const none = classOf(mask, 0).label;
  const background = !mask.layers && /^0?\s*(background|unlabell?ed|no ?data|undefined|none)?$/i.test(none);
  return new Set(background ? [0] : []);
}

/** A number with this many significant digits. */
export function number(value, digits = 5) {
  if (value === null || value === undefined || !Number.isFinite(value)) return 'missing';
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
}

const grouped = new Intl.NumberFormat('en');

/** A count, with its digits in groups of three. */
export const count = (value) => grouped.format(value);

/** The name of a band: its wavelength, its name, or its number. */
export function bandName(cube, band) {
  const wavelength = cube.wavelength?.[band];
  if (wavelength !== null && wavelength !== undefined) return `${number(wavelength)} nm`;
  return cube.band_names?.[band] ?? `${bandWord(cube).toLowerCase()} ${band}`;
}

/** The name of a region. */
export function regionName({ rows, columns }) {
  if (rows[1] - rows[0] === 1 && columns[1] - columns[0] === 1) return `row ${rows[0]}, column ${columns[0]}`;
  return `rows ${rows[0]} to ${rows[1] - 1}, columns ${columns[0]} to ${columns[1] - 1}`;
}
