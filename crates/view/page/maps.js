// Maps that take the picture's place: angles to a spectrum, what packing did to values, differences of two samples.
// Each says where its values come from, and which colours stand for them.

import * as api from './api.js';
import { blueRed, viridis } from './palette.js';
import { bandName, number, shownBands } from './shown.js';

/** Pixels along the longer edge of a map. */
const SIDE = 2048;

/** Values all over a cube, thinned out if it is large. */
export class Field {
  /** @param {number[]} cube  its shape @param {{shape: number[], data: Float32Array}} values */
  constructor([rows, columns], { shape: [height, width], data }) {
    Object.assign(this, { rows, columns, height, width, data });
  }

  /** The value of a pixel, or of the nearest one that is there. */
  nearest(row, column) {
    return this.data[Math.floor((row * this.height) / this.rows) * this.width + Math.floor((column * this.width) / this.columns)];
  }

  /** The value of a pixel; null if that pixel is not among those that are there. @returns {number | null} */
  exact(row, column) {
    const there = (at, length, shown) => Math.floor(((2 * Math.floor((at * shown) / length) + 1) * length) / (2 * shown)) === at;
    return there(row, this.rows, this.height) && there(column, this.columns, this.width) ? this.nearest(row, column) : null;
  }
}

/**
 * @typedef {object} Shown  a map
 * @property {string} key  of what is fetched
 * @property {string} title
 * @property {boolean} signed  whether values lie on both sides of 0
 * @property {(part: number) => import('./palette.js').Colour} colour
 * @property {(signal: AbortSignal) => Promise<{shape: number[], data: Float32Array}>} load
 * @property {(value: number) => string} text  what is said of a pixel
 * @property {(value: number) => string} end  what is said of an end of the scale
 * @property {string} limit  what the box for the scale's end is called
 * @property {string} unit  of what is typed into that box
 * @property {((error: any) => void) | null} fail  where an error is said; null: as one of the page
 */

/** The band that maps are about. */
export function mapBand(cube, view) {
  const { mapband } = view;
  return mapband !== null && mapband < cube.shape[2] ? mapband : shownBands(cube, view)[0];
}

const degrees = (radians) => `${Number(((radians * 180) / Math.PI).toPrecision(3))}°`;
const short = (value) => number(value, 3);
const percent = (value) => `${number(value * 100, 3)} %`;
const sign = (value) => (value > 0 ? `+${number(value, 4)}` : number(value, 4).replace('-', '−'));

/** The map that is to be shown. @returns {Shown | null} */
export function shownMap(session) {
  const { cube, view } = session;
  const { map, angle, pins, chosen } = view.state;
  const where = { rows: [0, cube.shape[0]], columns: [0, cube.shape[1]] };
  const band = mapBand(cube, view.state);
  const inUnit = cube.unit ? ` ${cube.unit}` : '';
  const signed = { signed: true, colour: blueRed, unit: cube.unit ?? '', limit: 'Largest value of the colours',
    end: (value) => `${short(value)}${inUnit}` };
  if (map === 'deviation') {
    return { ...signed, key: `deviation ${band}`, title: `Packed − source, band ${band}, ${bandName(cube, band)}`,
      load: (signal) => api.deviation(cube.id, band, where, SIDE, signal),
      text: (value) => `packed − source: ${sign(value)}${inUnit}`, fail: (error) => session.precision.fail(error) };
  }
  if (map === 'spectrum') {
    return { key: 'spectrum', title: 'Deviation of the whole spectrum', signed: false, colour: viridis, unit: 'as a part of 1',
      limit: 'Largest value of the colours', end: percent, text: (value) => `deviation of the spectrum: ${percent(value)}`,
      load: (signal) => api.deviation(cube.id, undefined, where, SIDE, signal), fail: (error) => session.precision.fail(error) };
  }
  if (map === 'difference' && session.side) {
    const other = session.side.cube;
    return { ...signed, key: `difference ${other.id} ${band}`, title: `This − ${other.name}, band ${band}, ${bandName(cube, band)}`,
      async load(signal) {
        const [own, its] = await Promise.all([cube.id, other.id].map((id) => api.planes(id, [band], where, SIDE, signal)));
        const [, height, width] = own.shape;
        return { shape: [height, width], data: own.data.map((value, at) => value - its.data[at]) };
      },
      text: (value) => `difference: ${sign(value)}${inUnit}`, fail: null };
  }
  const pin = angle && !map ? pins[Math.min(chosen, pins.length - 1)] : null;
  if (!pin) return null;
  return { key: JSON.stringify([pin.rows, pin.columns]), title: `Angle to ${pin.name}`, signed: false,
    // The smaller, the brighter.
    colour: (part) => viridis(1 - part), unit: 'rad', limit: 'Largest angle of the colours, in radians',
    end: (value) => (value ? `${short(value)} rad (${degrees(value)})` : '0'), text: (value) => `angle ${number(value, 4)} rad`,
    load: (signal) => api.angles(cube.id, pin, SIDE, signal), fail: null };
}
