// From values to colours. Pure functions: arrays in, arrays out.

import { CHOSEN, NODATA, WRONG } from './palette.js';
import { classesIn } from './shown.js';

/**
 * Percentiles of the finite values, interpolated between neighbours as in `numpy.percentile`; zeros if there are no finite
 * values.
 * @param {Float32Array} values @param {number[]} percentiles
 */
export function percentiles(values, percentiles) {
  const finite = values.filter((value) => Number.isFinite(value));
  if (!finite.length) return percentiles.map(() => 0);
  return percentiles.map((percentile) => {
    const at = (percentile / 100) * (finite.length - 1);
    const below = Math.floor(at);
    const low = select(finite, below);
    if (below === at) return low;
    // All values after this place are at least as large as the one at it.
    let high = Infinity;
    for (let i = below + 1; i < finite.length; i++) if (finite[i] < high) high = finite[i];
    return low + (high - low) * (at - below);
  });
}

/** The k-th smallest value. Reorders the array so that no smaller value comes after place k (Hoare's selection). */
function select(values, k) {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const pivot = values[(low + high) >> 1];
    let i = low;
    let j = high;
    while (i <= j) {
      while (values[i] < pivot) i++;
      while (values[j] > pivot) j--;
      if (i <= j) {
        const value = values[i];
        values[i++] = values[j];
        values[j--] = value;
      }
    }
    if (k <= j) high = j;
    else if (k >= i) low = i;
    else break;
  }
  return values[k];
}

/** @typedef {{low: number, high: number}} Limits */

/**
 * Paints bands into a picture: one band as grey, three as red, green and blue. If a value of a pixel is missing, the pixel
 * gets the colour of missing data. A band in which all values are equal is mid-grey.
 * @param {Uint8ClampedArray} out  RGBA
 * @param {Float32Array[]} planes @param {Limits[]} limits
 */
export function paintBands(out, planes, limits) {
  const channels = [0, 1, 2].map((channel) => Math.min(channel, planes.length - 1));
  const scale = limits.map(({ low, high }) => (high > low ? 255 / (high - low) : 0));
  for (let pixel = 0, at = 0; pixel < planes[0].length; pixel++, at += 4) {
    let whole = true;
    for (let channel = 0; channel < 3; channel++) {
      const from = channels[channel];
      const value = planes[from][pixel];
      if (!Number.isFinite(value)) { whole = false; break; }
      // A clamped array rounds halves to even, so it differs from other rounding by at most one level.
      out[at + channel] = scale[from] ? (value - limits[from].low) * scale[from] : 128;
    }
    if (!whole) out.set(NODATA, at);
    out[at + 3] = 255;
  }
}

/**
 * Paints a map in the colours of a scale. If all values are equal, they get the colour in its middle.
 * @param {(pixel: number) => number} valueOf @param {Limits} limits  values at the scale's ends
 * @param {(part: number) => import('./palette.js').Colour} colour
 */
export function paintMap(out, valueOf, { low, high }, colour) {
  const table = Array.from({ length: 256 }, (_, step) => colour(step / 255));
  for (let pixel = 0, at = 0; at < out.length; pixel++, at += 4) {
    const value = valueOf(pixel);
    const step = high > low ? Math.round(((value - low) / (high - low)) * 255) : 128;
    out.set(Number.isFinite(value) ? table[Math.min(255, Math.max(0, step))] : NODATA, at);
    out[at + 3] = 255;
  }
}

/**
 * Paints over a picture where two masks agree: pixels that agree become muted grey, pixels that differ get a strong colour.
 * @param {Uint16Array} truth @param {Uint16Array} prediction
 * @param {boolean} ignore  whether to skip pixels of class 0 in the truth: they become dark
 * @param {[number, number] | null} cell  highlights pixels of these classes, and mutes other pixels that differ
 */
export function paintAgreement(out, truth, prediction, ignore, cell) {
  for (let pixel = 0, at = 0; pixel < truth.length; pixel++, at += 4) {
    const [is, called] = [truth[pixel], prediction[pixel]];
    const left = ignore && is === 0;
    const wrong = is !== called && !left;
    if (cell && is === cell[0] && called === cell[1] && !left) { out.set(CHOSEN, at); continue; }
    if (wrong && !cell) { out.set(WRONG, at); continue; }
    const grey = 0.2126 * out[at] + 0.7152 * out[at + 1] + 0.0722 * out[at + 2];
    const muted = left ? 0.3 * grey : 70 + 0.5 * grey;
    for (let channel = 0; channel < 3; channel++) {
      out[at + channel] = wrong ? muted + (WRONG[channel] - muted) * 0.35 : muted;
    }
  }
}

/**
 * Draws the colours of classes over a picture.
 * @param {import('./shown.js').MaskValues} values
 * @param {(id: number) => (import('./palette.js').Colour | null)} colourOf  null: the class is switched off
 * @param {number} opacity
 */
export function paintMask(out, values, colourOf, opacity) {
  const colours = new Map();
  const coloursOf = (value) => {
    if (!colours.has(value)) colours.set(value, classesIn(value).map(colourOf));
    return colours.get(value);
  };
  const blend = (at, over) => {
    if (!over) return;
    for (let channel = 0; channel < 3; channel++) {
      out[at + channel] = Math.round(out[at + channel] + (over[channel] - out[at + channel]) * opacity);
    }
  };
  for (let pixel = 0, at = 0; pixel < values.length; pixel++, at += 4) {
    for (const colour of coloursOf(values[pixel])) blend(at, colour);
  }
}

/**
 * Counts of values in equal steps, from the lowest to the highest value, or between given ends.
 * @param {Float32Array} values @param {number} steps @param {[number, number]} [ends]
 */
export function histogram(values, steps, ends) {
  let [low, high] = ends ?? range(values);
  if (low === high) { low -= 0.5; high += 0.5; }
  const counts = new Array(steps).fill(0);
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    counts[Math.min(steps - 1, Math.max(0, Math.floor(((value - low) / (high - low)) * steps)))]++;
  }
  return { low, high, counts };
}

/** The lowest and the highest finite value. @param {Float32Array} values @returns {[number, number]} */
function range(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}
