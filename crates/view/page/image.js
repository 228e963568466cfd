// The pictures of a cube: what is to be fetched for what is on screen, and painted.

import * as api from './api.js';
import { colourOf, classOf, hiddenClasses, shownBands, shownMask } from './shown.js';
import { paintAngles, paintBands, paintMask, percentiles } from './stretch.js';
import { Tile } from './tiles.js';

/** @typedef {import('./api.js').Region} Region */

/** Pixels along the longer edge of the picture of a whole cube, and of what is looked at closely. */
const WHOLE = 1024;
const CLOSE = 2048;

export class CubeImage {
  #asks = new api.Latest();
  #asksClose = new api.Latest();
  #asksAngles = new api.Latest();
  #limits = new Map();

  /** @param {any} session @param {() => void} onchange  after something has been painted */
  constructor(session, onchange) {
    this.session = session;
    this.onchange = onchange;
    const [rows, columns] = session.cube.shape;
    /** @type {Region} */
    this.region = { rows: [0, rows], columns: [0, columns] };
    this.whole = new Tile(session.cube.id, this.region, WHOLE);
    /** @type {Tile | null} */
    this.close = null;
    /** @type {{tile: Tile, canvas: HTMLCanvasElement}[]} what is painted, to be drawn in this order */
    this.painted = [];
    /** @type {{height: number, width: number, data: Float32Array, key: string, limit: number} | null} */
    this.angles = null;
    this.busy = 0;
    this.failed = false;
  }

  /** Fetches what is missing of the picture of the whole cube, and paints it. */
  async update() {
    const { cube, view } = this.session;
    const bands = shownBands(cube, view.state);
    const mask = shownMask(cube, view.state)?.name ?? '';
    await this.#guard(async () => {
      const done = await this.#asks.run(async (signal) => {
        await this.whole.fetch(bands, mask, signal);
        return true;
      });
      if (!done) return;
      this.paint();
      if (this.close) await this.#lookAt(this.close);
    });
  }

  /** Fetches the map of angles if it is to be shown. */
  async updateAngles() {
    const pin = this.pinOfAngles();
    if (!pin) {
      this.#asksAngles.stop();
      this.paint();
      return;
    }
    const key = JSON.stringify([pin.rows, pin.columns]);
    if (this.angles?.key === key) { this.paint(); return; }
    await this.#guard(async () => {
      const found = await this.#asksAngles.run((signal) => api.angles(this.session.cube.id, pin, CLOSE, signal));
      if (!found) return;
      const [height, width] = found.shape;
      const limit = percentiles(found.data, [98])[0] || 0.1;
      this.angles = { height, width, data: found.data, key, limit };
      this.paint();
    });
  }

  /** The spectrum that the map of angles is about, if it is shown. */
  pinOfAngles() {
    const { angle, pins, chosen } = this.session.view.state;
    return angle ? pins[Math.min(chosen, pins.length - 1)] ?? null : null;
  }

  /** Whether the map of angles is there, and to be shown. */
  showsAngles() {
    const pin = this.pinOfAngles();
    return Boolean(pin && this.angles?.key === JSON.stringify([pin.rows, pin.columns]));
  }

  /** The angle that is the darkest colour. */
  angleLimit() { return this.session.view.state.limit ?? this.angles?.limit ?? 0.1; }

  /** Has what is on screen at full resolution if the picture of the whole cube is too coarse for it. */
  async look(region, density) {
    const coarse = this.whole.height && density > (this.whole.height / this.whole.rows) * 1.05;
    if (!coarse) {
      this.#asksClose.stop();
      if (this.close) { this.close = null; this.paint(); }
      return;
    }
    const needed = Math.min(1, density);
    const enough = this.close?.covers(region) &&
      (this.close.full || this.close.height / this.close.rows >= needed * 0.95);
    if (enough) return;
    const wide = around(region, this.region);
    const longer = Math.max(wide.rows[1] - wide.rows[0], wide.columns[1] - wide.columns[0]);
    const side = longer <= CLOSE ? longer : Math.min(CLOSE, Math.ceil(longer * needed));
    await this.#guard(() => this.#lookAt(new Tile(this.session.cube.id, wide, side)));
  }

  async #lookAt(tile) {
    const { cube, view } = this.session;
    const done = await this.#asksClose.run(async (signal) => {
      const wanted = () => /** @type {[number[], string]} */ (
        [shownBands(cube, view.state), shownMask(cube, view.state)?.name ?? '']);
      // What is shown may change meanwhile.
      while (!tile.has(...wanted())) await tile.fetch(...wanted(), signal);
      return true;
    });
    if (!done) return;
    this.close = tile;
    this.paint();
  }

  /** A picture of a region with a pixel a pixel of the cube, as far as that goes. */
  async export(region) {
    const { cube, view } = this.session;
    const tile = new Tile(cube.id, region, CLOSE);
    const bands = shownBands(cube, view.state);
    // The stretch is that of the whole cube.
    await Promise.all([tile.fetch(bands, shownMask(cube, view.state)?.name ?? ''), this.whole.fetch(bands, '')]);
    return { tile, canvas: this.#canvas(tile) };
  }

  /** Whether the bands that are to be shown are there. */
  get ready() {
    return this.whole.has(shownBands(this.session.cube, this.session.view.state), '');
  }

  /** Values that become black and full colour, for each band that is shown, once these are there. */
  limits() {
    const { cube, view } = this.session;
    return shownBands(cube, view.state).map((band) => {
      const key = [band, ...view.state.stretch].join();
      if (!this.#limits.has(key)) {
        const [low, high] = percentiles(/** @type {Float32Array} */ (this.whole.planes.get(band)), view.state.stretch);
        if (this.#limits.size > 200) this.#limits.clear();
        this.#limits.set(key, { low, high });
      }
      return this.#limits.get(key);
    });
  }

  /** Paints what there is, as it is to be shown now. */
  paint() {
    const { cube, view } = this.session;
    const bands = shownBands(cube, view.state);
    const mask = shownMask(cube, view.state)?.name ?? '';
    // Until the new bands are there, the old picture stays.
    if (!this.whole.has(bands, mask)) return;
    const tiles = [this.whole, this.close].filter((tile) => tile?.has(bands, mask));
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
    if (this.showsAngles()) {
      paintAngles(picture.data, this.#angleOf(tile), this.angleLimit());
      context.putImageData(picture, 0, 0);
      // A mask laid over would change the colours that stand for angles.
      return canvas;
    }
    const planes = shownBands(cube, view.state).map((band) => tile.planes.get(band));
    paintBands(picture.data, planes, this.limits());
    const mask = shownMask(cube, view.state);
    const ids = mask && tile.masks.get(mask.name);
    if (mask && ids) {
      const hidden = hiddenClasses(mask, view.state);
      const colour = (id) => (hidden.has(id) ? null : colourOf(classOf(mask, id)));
      paintMask(picture.data, ids, mask.layers, colour, view.state.opacity);
    }
    context.putImageData(picture, 0, 0);
    return canvas;
  }

  /** The angle of a pixel of a tile. The map is of the whole cube, which may be thinned out. */
  #angleOf(tile) {
    return (pixel) => this.#angle(tile.row(Math.floor(pixel / tile.width)), tile.column(pixel % tile.width));
  }

  #angle(row, column) {
    const { height, width, data } = /** @type {any} */ (this.angles);
    const [rows, columns] = this.session.cube.shape;
    return data[Math.floor((row * height) / rows) * width + Math.floor((column * width) / columns)];
  }

  /** What is known of a pixel: its values of the bands that are shown, its class ids, its angle. */
  pixel(row, column) {
    const { cube, view } = this.session;
    const bands = shownBands(cube, view.state);
    const mask = shownMask(cube, view.state);
    const found = {
      bands, values: /** @type {number[] | null} */ (null), mask, id: /** @type {number | null} */ (null),
      angle: this.showsAngles() ? this.#angle(row, column) : null,
    };
    for (const tile of [this.close, this.whole]) {
      const place = tile?.has(bands, mask?.name ?? '') ? tile.place(row, column) : -1;
      if (!tile || place < 0) continue;
      found.values = bands.map((band) => /** @type {Float32Array} */ (tile.planes.get(band))[place]);
      found.id = mask ? tile.masks.get(mask.name)?.[place] ?? null : null;
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

  /** Gives up what is under way. */
  stop() { [this.#asks, this.#asksClose, this.#asksAngles].forEach((ask) => ask.stop()); }
}

/** A region and some of what lies around it, for the next pan. @param {Region} region @param {Region} all */
function around({ rows, columns }, all) {
  const widen = ([start, end], [first, last]) => {
    const more = Math.ceil((end - start) / 4);
    return /** @type {[number, number]} */ ([Math.max(first, start - more), Math.min(last, end + more)]);
  };
  return { rows: widen(rows, all.rows), columns: widen(columns, all.columns) };
}
