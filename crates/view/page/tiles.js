// Pieces of a cube at some resolution: the whole cube, thinned out if it is large, and a close-up. A tile keeps its bands
// and masks, so that only missing ones are requested.

import * as api from './api.js';

/** @typedef {import('./api.js').Region} Region */

/** The number of bands that a tile keeps. Shown bands always stay. */
const KEPT = 12;

export class Tile {
  /** @param {api.OfArray} of @param {Region} where @param {number} side  at most this many pixels per edge */
  constructor(of, where, side) {
    this.of = of;
    this.where = where;
    this.side = side;
    this.height = 0;
    this.width = 0;
    /** @type {Map<number, Float32Array>} */
    this.planes = new Map();
    /** @type {Map<string, import('./shown.js').MaskValues>} */
    this.masks = new Map();
  }

  get rows() { return this.where.rows[1] - this.where.rows[0]; }
  get columns() { return this.where.columns[1] - this.where.columns[0]; }
  /** Whether the tile has every pixel of the region. */
  get full() { return this.height === this.rows && this.width === this.columns; }

  /** @param {number[]} bands @param {string[]} masks */
  has(bands, masks) {
    return bands.every((band) => this.planes.has(band)) && masks.every((mask) => this.masks.has(mask));
  }

  /** Requests missing bands and masks. @param {number[]} bands @param {string[]} masks @param {AbortSignal} [signal] */
  async fetch(bands, masks, signal) {
    const missing = [...new Set(bands)].filter((band) => !this.planes.has(band));
    const unknown = [...new Set(masks)].filter((mask) => !this.masks.has(mask));
    const [values, ...ids] = await Promise.all([
      missing.length ? api.planes(this.of, missing, this.where, this.side, signal) : null,
      ...unknown.map((mask) => api.mask(this.of, mask, this.where, this.side, signal)),
    ]);
    if (values) {
      const [, height, width] = values.shape;
      Object.assign(this, { height, width });
      missing.forEach((band, at) =>
        this.planes.set(band, values.data.subarray(at * height * width, (at + 1) * height * width)));
      this.#forget(bands);
    }
    unknown.forEach((mask, at) => this.masks.set(mask, ids[at].data));
  }

  #forget(bands) {
    for (const band of this.planes.keys()) {
      if (this.planes.size <= KEPT) return;
      if (!bands.includes(band)) this.planes.delete(band);
    }
  }

  /** The row of the cube that row `i` of the tile shows. */
  row(i) { return this.where.rows[0] + Math.floor(((2 * i + 1) * this.rows) / (2 * this.height)); }
  column(i) { return this.where.columns[0] + Math.floor(((2 * i + 1) * this.columns) / (2 * this.width)); }

  /** The place of a pixel of the cube in the arrays of the tile, or -1 if the tile does not hold the pixel. */
  place(row, column) {
    const i = Math.floor(((row - this.where.rows[0]) * this.height) / this.rows);
    const j = Math.floor(((column - this.where.columns[0]) * this.width) / this.columns);
    const inside = i >= 0 && j >= 0 && i < this.height && j < this.width;
    return inside && this.row(i) === row && this.column(j) === column ? i * this.width + j : -1;
  }

  /** Whether the tile covers a region. @param {Region} where */
  covers({ rows, columns }) {
    const [a, b] = [this.where.rows, this.where.columns];
    return a[0] <= rows[0] && rows[1] <= a[1] && b[0] <= columns[0] && columns[1] <= b[1];
  }
}
