// The pictures of a cube: fetches and paints what is on screen.

import * as api from './api.js';
import { Field, shownMap } from './maps.js';
import { viridis } from './palette.js';
import { colourOf, classOf, comparedMasks, hiddenClasses, isTarget, shownBands, shownMask } from './shown.js';
import { paintAgreement, paintBands, paintMap, paintMask, percentiles } from './stretch.js';
import { Tile } from './tiles.js';

/** @typedef {import('./api.js').Region} Region */

/** Pixels along the longer edge of the picture of a whole cube, and of a close-up. */
const WHOLE = 1024;
const CLOSE = 2048;

export class CubeImage {
  #asks = new api.Latest();
  #asksClose = new api.Latest();
  #asksMap = new api.Latest();
  #limits = new Map();
  /** The number of close-ups requested so far. */
  #looks = 0;

  /** @param {any} session @param {() => void} onchange  called after something has been painted */
  constructor(session, onchange) {
    this.session = session;
    this.onchange = onchange;
    const [rows, columns] = session.cube.shape;
    /** @type {Region} */
    this.region = { rows: [0, rows], columns: [0, columns] };
    this.whole = new Tile(session.cube, this.region, WHOLE);
    /** @type {Tile | null} */
    this.close = null;
    /** @type {Tile | null} the tile that is loading and will become `close` */
    this.coming = null;
    /** @type {{tile: Tile, canvas: HTMLCanvasElement}[]} painted tiles, in the order in which to draw them */
    this.painted = [];
    /** @type {{field: Field, key: string, limit: number} | null} the values of a map */
    this.found = null;
    /** @type {import('./maps.js').Shown | null} the map to show */
    this.map = null;
    /** @type {CubeImage | null} the picture beside this one, with the same stretch */
    this.partner = null;
    this.busy = 0;
    this.failed = false;
  }

  /** Fetches missing data of the picture of the whole cube, and paints it. */
  async update() {
    await this.#guard(async () => {
      const done = await this.#asks.run(async (signal) => {
        await this.whole.fetch(...this.#wanted(), signal);
        return true;
      });
      if (!done) return;
      this.paint();
      // This aborts requests for other bands.
      const close = this.coming ?? this.close;
      if (close) await this.#lookAt(close);
    });
  }

  /** The bands and masks that each tile needs. @returns {[number[], string[]]} */
  #wanted() {
    const { cube, view } = this.session;
    const pair = this.agreement();
    const masks = [shownMask(cube, view.state), pair?.truth, pair?.prediction];
    return [shownBands(cube, view.state), masks.flatMap((mask) => (mask ? [mask.name] : []))];
  }

  /** The masks whose agreement to show. */
  agreement() {
    const { cube, view, beside } = this.session;
    return view.state.map === 'agreement' && !beside ? comparedMasks(cube, view.state) : null;
  }

  /** Fetches the map to show, if there is one. */
  async updateMap() {
    const map = this.session.beside ? null : shownMap(this.session);
    this.map = map;
    if (!map || this.found?.key === map.key) {
      this.#asksMap.stop();
      this.paint();
      return;
    }
    await this.#guard(async () => {
      try {
        const values = await this.#asksMap.run(map.load);
        if (!values) return;
        // Otherwise the few largest values would make all other values look the same.
        const sizes = values.data.map(Math.abs);
        const [most, all] = percentiles(sizes, [98, 100]);
        this.found = { field: new Field(this.session.cube.shape, values), key: map.key, limit: most || all || 0.1 };
        this.paint();
      } catch (error) {
        if (!map.fail) throw error;
        map.fail(error);
      }
    });
  }

  /** The values of the map, once they have arrived. @returns {Field | null} */
  shownField() { return this.map && this.found?.key === this.map.key ? this.found.field : null; }

  /** Values at the ends of the map's colours. */
  mapLimits() {
    const high = this.session.view.state.limit ?? this.found?.limit ?? 0.1;
    return { low: this.map?.signed ? -high : 0, high };
  }

  /** Loads the visible part at full resolution if the picture of the whole cube is too coarse. */
  async look(region, density) {
    // There is no more detail than one pixel per pixel of the cube.
    const needed = Math.min(1, density);
    const coarse = this.whole.height && needed > (this.whole.height / this.whole.rows) * 1.05;
    if (!coarse) {
      this.#asksClose.stop();
      this.coming = null;
      if (this.close) { this.close = null; this.paint(); }
      return;
    }
    const fine = (tile) => tile.full || (tile.height || tile.side) / Math.max(tile.rows, tile.height ? 0 : tile.columns) >= needed * 0.95;
    // Do not abort a request to make the same one again.
    if ([this.close, this.coming].some((tile) => tile?.covers(region) && fine(tile))) return;
    const wide = around(region, this.region);
    const longer = Math.max(wide.rows[1] - wide.rows[0], wide.columns[1] - wide.columns[0]);
    const side = longer <= CLOSE ? longer : Math.min(CLOSE, Math.ceil(longer * needed));
    await this.#guard(() => this.#lookAt(new Tile(this.session.cube, wide, side)));
  }

  async #lookAt(tile) {
    this.coming = tile;
    const looks = ++this.#looks;
    const done = await this.#asksClose.run(async (signal) => {
      // The shown bands and masks may change meanwhile.
      while (!tile.has(...this.#wanted())) await tile.fetch(...this.#wanted(), signal);
      return true;
    }).finally(() => { if (looks === this.#looks) this.coming = null; });
    if (!done) return;
    this.close = tile;
    this.paint();
  }

  /** A picture of a region, with one pixel per pixel of the cube unless the region is too large. */
  async export(region) {
    const tile = new Tile(this.session.cube, region, CLOSE);
    const [bands, masks] = this.#wanted();
    // Use the stretch of the whole cube.
    await Promise.all([tile.fetch(bands, masks), this.whole.fetch(bands, [])]);
    return { tile, canvas: this.#canvas(tile) };
  }

  /** Whether the bands to show have arrived. */
  get ready() {
    return this.whole.has(shownBands(this.session.cube, this.session.view.state), []);
  }

  /**
   * For each shown band that has arrived, the values that become black and full colour, or the ends of a target's colours; from
   * both samples if two are shown.
   */
  limits() {
    const { cube, view } = this.session;
    const { range } = view.state;
    if (isTarget(cube) && range) return [{ low: range[0], high: range[1] }];
    return shownBands(cube, view.state).map((band) => {
      const planes = [this, this.partner].flatMap((image) => image?.whole.planes.get(band) ?? []);
      const key = [band, planes.length, ...view.state.stretch].join();
      if (!this.#limits.has(key)) {
        const [low, high] = percentiles(joined(planes), view.state.stretch);
        if (this.#limits.size > 200) this.#limits.clear();
        this.#limits.set(key, { low, high });
      }
      return this.#limits.get(key);
    });
  }

  /** Paints the data that has arrived with the current settings. */
  paint() {
    const wanted = this.#wanted();
    // Until the new bands arrive, keep the old picture.
    if (!this.whole.has(...wanted)) return;
    const tiles = [this.whole, this.close].filter((tile) => tile?.has(...wanted));
    this.painted = tiles.map((tile) => ({ tile, canvas: this.#canvas(tile) }));
    this.onchange();
  }

  /** @param {Tile} tile */
  #canvas(tile) {
    const { cube, view } = this.session;
    const canvas = document.createElement('canvas');
    Object.assign(canvas, { width: tile.width, height: tile.height });
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    const picture = context.createImageData(tile.width, tile.height);
    const field = this.shownField();
    if (field && this.map) {
      const valueOf = (pixel) => field.nearest(tile.row(Math.floor(pixel / tile.width)), tile.column(pixel % tile.width));
      paintMap(picture.data, valueOf, this.mapLimits(), this.map.colour);
      context.putImageData(picture, 0, 0);
      // Draw no mask over a map: it would change the colours of values.
      return canvas;
    }
    const planes = shownBands(cube, view.state).map((band) => tile.planes.get(band));
    if (isTarget(cube)) {
      paintMap(picture.data, (pixel) => planes[0][pixel], this.limits()[0], viridis);
      context.putImageData(picture, 0, 0);
      return canvas;
    }
    paintBands(picture.data, planes, this.limits());
    const pair = this.agreement();
    const mask = shownMask(cube, view.state);
    const ids = mask && tile.masks.get(mask.name);
    if (pair) {
      const { ignore, cell } = view.state;
      const [truth, prediction] = [pair.truth, pair.prediction].map(({ name }) => tile.masks.get(name));
      paintAgreement(picture.data, truth, prediction, ignore, cell);
    } else if (mask && ids) {
      const hidden = hiddenClasses(mask, view.state);
      const colour = (id) => (hidden.has(id) ? null : colourOf(classOf(mask, id)));
      paintMask(picture.data, ids, colour, view.state.opacity);
    }
    context.putImageData(picture, 0, 0);
    return canvas;
  }

  /** The data of a pixel: values of the shown bands, class ids, and the value of the map. */
  pixel(row, column) {
    const { cube, view } = this.session;
    const bands = shownBands(cube, view.state);
    const pair = this.agreement();
    const masks = pair ? [pair.truth, pair.prediction] : [shownMask(cube, view.state)].filter((mask) => mask !== null);
    const field = this.shownField();
    const value = field?.exact(row, column) ?? null;
    const found = { bands, values: /** @type {number[] | null} */ (null),
      ids: /** @type {{mask: import('./shown.js').Mask, value: number | bigint}[]} */ ([]),
      map: field && this.map && value !== null ? this.map.text(value) : null };
    for (const tile of [this.close, this.whole]) {
      const place = tile?.has(...this.#wanted()) ? tile.place(row, column) : -1;
      if (!tile || place < 0) continue;
      found.values = bands.map((band) => /** @type {Float32Array} */ (tile.planes.get(band))[place]);
      found.ids = masks.map((mask) => ({ mask, value: /** @type {import('./shown.js').MaskValues} */ (tile.masks.get(mask.name))[place] }));
      break;
    }
    return found;
  }

  async #guard(act) {
    this.busy += 1;
    this.onchange();
    try {
      await act();
      if (this.failed && this.ready) this.session.page.clear();
      this.failed = !this.ready;
    } catch (error) {
      this.failed = true;
      this.session.fail(error, () => this.update());
    } finally {
      this.busy -= 1;
      this.onchange();
    }
  }

  /** Aborts all requests. */
  stop() { [this.#asks, this.#asksClose, this.#asksMap].forEach((ask) => ask.stop()); }
}

/** @param {Float32Array[]} planes */
function joined(planes) {
  if (planes.length === 1) return planes[0];
  const all = new Float32Array(planes.reduce((length, plane) => length + plane.length, 0));
  planes.reduce((at, plane) => { all.set(plane, at); return at + plane.length; }, 0);
  return all;
}

/** A region with a margin around it, for the next pan. @param {Region} region @param {Region} all */
function around({ rows, columns }, all) {
  const widen = ([start, end], [first, last]) => {
    const more = Math.ceil((end - start) / 4);
    return /** @type {[number, number]} */ ([Math.max(first, start - more), Math.min(last, end + more)]);
  };
  return { rows: widen(rows, all.rows), columns: widen(columns, all.columns) };
}
