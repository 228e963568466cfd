// Maps that replace the picture: angles to a spectrum, what packing did to values, differences of two samples.
// Each map knows where its values come from, and which colours stand for them.

import * as api from './api.js';
import { blueRed, viridis } from './palette.js';
import { bandName, bandWord, number, shownBands } from './shown.js';

/** Pixels along the longer edge of a map. */
const SIDE = 2048;

/** Values of all pixels of a cube, thinned out if the cube is large. */
export class Field {
  /** @param {number[]} cube  its shape @param {{shape: number[], data: Float32Array}} values */
  constructor([rows, columns], { shape: [height, width], data }) {
    Object.assign(this, { rows, columns, height, width, data });
  }

  /** The value of a pixel, or of the nearest pixel that has one. */
  nearest(row, column) {
    return this.data[Math.floor((row * this.height) / this.rows) * this.width + Math.floor((column * this.width) / this.columns)];
  }

  /** The value of a pixel; null if the thinned-out values do not include the pixel. @returns {number | null} */
  exact(row, column) {
    const there = (at, length, shown) => Math.floor(((2 * Math.floor((at * shown) / length) + 1) * length) / (2 * shown)) === at;
    return there(row, this.rows, this.height) && there(column, this.columns, this.width) ? this.nearest(row, column) : null;
  }
}

/**
 * @typedef {object} Shown  a map
 * @property {string} key  identifies the values to fetch
 * @property {string} title
 * @property {boolean} signed  whether values lie on both sides of 0
 * @property {(part: number) => import('./palette.js').Colour} colour
 * @property {(signal: AbortSignal) => Promise<{shape: number[], data: Float32Array}>} load
 * @property {(value: number) => string} text  the text for the value of a pixel
 * @property {(value: number) => string} end  the text at an end of the scale
 * @property {string} limit  the name of the box for the end of the scale
 * @property {string} unit  the unit of the number in that box
 * @property {((error: any) => void) | null} fail  shows an error; null: the page shows it
 */

/** The band that maps show. */
export function mapBand(cube, view) {
  const { mapband } = view;
  return mapband !== null && mapband < cube.shape[2] ? mapband : shownBands(cube, view)[0];
}

const degrees = (radians) => `${Number(((radians * 180) / Math.PI).toPrecision(3))}°`;
const short = (value) => number(value, 3);
const percent = (value) => `${number(value * 100, 3)} %`;
const sign = (value) => (value > 0 ? `+${number(value, 4)}` : number(value, 4).replace('-', '−'));

/** The map to show. @returns {Shown | null} */
export function shownMap(session) {
  const { cube, view } = session;
  const { map, angle, pins, chosen } = view.state;
  const where = { rows: [0, cube.shape[0]], columns: [0, cube.shape[1]] };
  const band = mapBand(cube, view.state);
  const inUnit = cube.unit ? ` ${cube.unit}` : '';
  const signed = { signed: true, colour: blueRed, unit: cube.unit ?? '', limit: 'Largest value of the colours',
    end: (value) => `${short(value)}${inUnit}` };
  const isImage = cube.array === null;
  if (map === 'deviation' && isImage) {
    return { ...signed, key: `deviation ${band}`, title: `Packed − source, band ${band}, ${bandName(cube, band)}`,
      load: (signal) => api.deviation(cube.id, band, where, SIDE, signal),
      text: (value) => `packed − source: ${sign(value)}${inUnit}`, fail: (error) => session.precision.fail(error) };
  }
  if (map === 'spectrum' && isImage) {
    return { key: 'spectrum', title: 'Deviation of the whole spectrum', signed: false, colour: viridis, unit: 'as a fraction',
      limit: 'Largest value of the colours', end: percent, text: (value) => `deviation of the spectrum: ${percent(value)}`,
      load: (signal) => api.deviation(cube.id, undefined, where, SIDE, signal), fail: (error) => session.precision.fail(error) };
  }
  if (map === 'difference' && session.side && !session.side.differs) {
    const other = session.side.cube;
    return { ...signed, key: `difference ${other.id} ${band}`, title: `This − ${other.name}, ${bandWord(cube).toLowerCase()} ${band}, ${bandName(cube, band)}`,
      async load(signal) {
        const [own, its] = await Promise.all([cube, other].map((of) => api.planes(of, [band], where, SIDE, signal)));
        const [, height, width] = own.shape;
        return { shape: [height, width], data: own.data.map((value, at) => value - its.data[at]) };
      },
      text: (value) => `difference: ${sign(value)}${inUnit}`, fail: null };
  }
  const pin = angle && !map && cube.shape[2] > 1 ? pins[Math.min(chosen, pins.length - 1)] : null;
  if (!pin) return null;
  return { key: JSON.stringify([pin.rows, pin.columns]), title: `Angle to ${pin.name}`, signed: false,
    // Smaller angles are brighter.
    colour: (part) => viridis(1 - part), unit: 'rad', limit: 'Largest angle of the colours, in radians',
    end: (value) => (value ? `${short(value)} rad (${degrees(value)})` : '0'), text: (value) => `angle ${number(value, 4)} rad`,
    load: (signal) => api.angles(cube, pin, SIDE, signal), fail: null };
}
