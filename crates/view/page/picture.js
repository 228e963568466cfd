// The canvas: the position of the cube on it, zoom and pan, the pixel cursor, and the marks of pinned spectra.

import { debounced, el, unique } from './dom.js';
import { gestures } from './gestures.js';

/** The maximum size of a pixel of the array of the page, in CSS pixels. */
const LARGEST = 80;

export class Picture {
  /** @param {any} session */
  constructor(session) {
    this.session = session;
    /** The size of a pixel of this array for one of the page's array: both pictures have the same limits of zoom. */
    this.unit = 1 / session.factor;
    this.drawing = false;
    /** @type {import('./api.js').Region | null} */
    this.drawn = null;
    this.size = { width: 1, height: 1 };
    /** @type {number[] | null} the pixel under the pointer in the picture beside this one */
    this.pointed = null;
    const id = unique('picture-keys');
    this.canvas = el('canvas', {
      tabindex: 0, role: 'application', 'aria-label': this.label(), 'aria-describedby': id,
      onkeydown: (event) => session.keys(event),
    });
    this.keys = el('p', { id, class: 'hidden' },
      'Arrow keys move the pixel cursor. Enter pins its spectrum. r begins a rectangle at the cursor, Enter pins its ' +
      'mean. Plus and minus zoom, 0 shows the whole cube. Question mark lists all keys.');
    this.frame = el('div', { class: 'frame' }, this.canvas, this.keys);
    const [rows, columns] = session.cube.shape;
    // On a phone, the picture is only as high as needed.
    this.frame.style.setProperty('--aspect', `${columns} / ${rows}`);
    this.look = debounced(() => this.#look(), 120);
    this.#listen();
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.frame);
    this.ondensity = () => this.resize();
    addEventListener('resize', this.ondensity);
  }

  label() {
    const { name, shape } = this.session.cube;
    return `Picture of ${name}, ${shape[0]} rows, ${shape[1]} columns, ${shape[2]} bands`;
  }

  stop() {
    this.observer.disconnect();
    this.look.stop();
    removeEventListener('resize', this.ondensity);
  }

  resize() {
    const box = this.frame.getBoundingClientRect();
    const density = devicePixelRatio || 1;
    this.size = { width: Math.max(1, box.width), height: Math.max(1, box.height) };
    this.canvas.width = Math.round(this.size.width * density);
    this.canvas.height = Math.round(this.size.height * density);
    this.draw();
    this.look();
  }

  /** The scale at which the whole cube is visible. */
  fitScale() {
    const [rows, columns] = this.session.cube.shape;
    const margin = 8;
    return Math.max(1e-3, Math.min(LARGEST * this.unit, (this.size.width - margin) / columns, (this.size.height - margin) / rows));
  }

  /** The centre of the view, and the size of a pixel. */
  at() {
    const [rows, columns] = this.session.cube.shape;
    return this.session.view.state.at ?? { row: rows / 2, column: columns / 2, scale: this.fitScale() };
  }

  #move({ row, column, scale }) {
    const [rows, columns] = this.session.cube.shape;
    const inside = (value, end) => Math.min(end, Math.max(0, value));
    const least = Math.min(this.fitScale(), this.unit);
    this.session.view.set({ at: {
      row: inside(row, rows), column: inside(column, columns), scale: Math.min(LARGEST * this.unit, Math.max(least, scale)),
    } });
  }

  fit() { this.session.view.set({ at: null }); }

  /** Zooms around a place on the canvas, by default its centre. */
  zoom(factor, x = this.size.width / 2, y = this.size.height / 2) {
    const { row, column, scale } = this.at();
    const next = Math.min(LARGEST * this.unit, Math.max(Math.min(this.fitScale(), this.unit), scale * factor));
    const [dx, dy] = [x - this.size.width / 2, y - this.size.height / 2];
    this.#move({ row: row + dy / scale - dy / next, column: column + dx / scale - dx / next, scale: next });
  }

  /** Shows one pixel of the cube per pixel of the screen. */
  actualSize() { this.zoom(1 / (devicePixelRatio || 1) / this.at().scale); }

  pan(dx, dy) {
    const { row, column, scale } = this.at();
    this.#move({ row: row - dy / scale, column: column - dx / scale, scale });
  }

  /** The place of a point of the cube on the canvas. */
  place(row, column) {
    const at = this.at();
    return { x: (column - at.column) * at.scale + this.size.width / 2, y: (row - at.row) * at.scale + this.size.height / 2 };
  }

  /** The pixel at a place on the canvas; with `clamp`, the nearest pixel. @returns {[number, number] | null} */
  pixelAt(x, y, clamp = false) {
    const [rows, columns] = this.session.cube.shape;
    const at = this.at();
    let row = Math.floor((y - this.size.height / 2) / at.scale + at.row);
    let column = Math.floor((x - this.size.width / 2) / at.scale + at.column);
    if (clamp) {
      row = Math.min(rows - 1, Math.max(0, row));
      column = Math.min(columns - 1, Math.max(0, column));
    }
    return row >= 0 && column >= 0 && row < rows && column < columns ? [row, column] : null;
  }

  /** The part of the cube that is on screen. @returns {import('./api.js').Region} */
  visible() {
    const [top, left] = /** @type {[number, number]} */ (this.pixelAt(0, 0, true));
    const [bottom, right] = /** @type {[number, number]} */ (
      this.pixelAt(this.size.width - 0.01, this.size.height - 0.01, true));
    return { rows: [top, bottom + 1], columns: [left, right + 1] };
  }

  #look() {
    // Nothing is on screen before the page is laid out.
    if (this.size.width > 1) this.session.image.look(this.visible(), this.at().scale * (devicePixelRatio || 1));
  }

  /** Moves the cursor, and also the picture if the cursor would leave the screen. */
  moveCursor(down, right) {
    const [rows, columns] = this.session.cube.shape;
    const now = this.session.view.state.cursor ?? [Math.floor(this.at().row), Math.floor(this.at().column)];
    const row = Math.min(rows - 1, Math.max(0, now[0] + down));
    const column = Math.min(columns - 1, Math.max(0, now[1] + right));
    this.session.view.set({ cursor: [row, column] });
    const { x, y } = this.place(row + 0.5, column + 0.5);
    const edge = 24;
    const beyond = (value, end) => (value < edge ? value - edge : value > end - edge ? value - end + edge : 0);
    const [dx, dy] = [beyond(x, this.size.width), beyond(y, this.size.height)];
    if (dx || dy) this.pan(-dx, -dy);
  }

  #region(from, to) {
    const a = /** @type {[number, number]} */ (this.pixelAt(from.x, from.y, true));
    const b = /** @type {[number, number]} */ (this.pixelAt(to.x, to.y, true));
    return spanned(a, b);
  }

  #listen() {
    const { session } = this;
    gestures(this.canvas, {
      draws: () => this.drawing,
      pan: (dx, dy) => this.pan(dx, dy),
      zoom: (factor, x, y) => this.zoom(factor, x, y),
      click: (x, y) => {
        const pixel = this.pixelAt(x, y);
        if (!pixel) return;
        session.view.set({ cursor: pixel });
        session.pin(spanned(pixel, pixel));
      },
      rectangle: (from, to, done) => {
        this.drawn = this.#region(from, to);
        if (done) { session.pin(this.drawn); this.drawn = null; }
        this.draw();
      },
      hover: (at) => session.point(at && this.pixelAt(at.x, at.y)),
      cancel: () => { this.drawn = null; this.draw(); },
    });
  }

  draw() {
    if (this.waits) return;
    this.waits = requestAnimationFrame(() => { this.waits = 0; this.#draw(); });
  }

  #draw() {
    this.session.tools?.show();
    const context = this.canvas.getContext('2d');
    const density = this.canvas.width / this.size.width;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const { scale } = this.at();
    for (const { tile, canvas } of this.session.image?.painted ?? []) {
      const from = this.place(tile.where.rows[0], tile.where.columns[0]);
      const shrinks = scale * density * (tile.rows / tile.height) < 1;
      context.imageSmoothingEnabled = shrinks;
      context.imageSmoothingQuality = 'high';
      context.drawImage(canvas, from.x * density, from.y * density,
        tile.columns * scale * density, tile.rows * scale * density);
    }
    context.setTransform(density, 0, 0, density, 0, 0);
    for (const region of this.session.windows?.regions() ?? []) this.#outline(context, region);
    for (const one of this.session.boxes?.shown() ?? []) this.#object(context, one);
    this.session.view.state.pins.forEach((pin, index) => this.#mark(context, pin, pin.colour, String(index + 1)));
    if (this.drawn) this.#mark(context, this.drawn, '#ffffff', '');
    const { cursor } = this.session.view.state;
    if (cursor) this.#cross(context, cursor);
    if (this.pointed) this.#cross(context, this.pointed);
  }

  #box({ rows, columns }) {
    const from = this.place(rows[0], columns[0]);
    const to = this.place(rows[1], columns[1]);
    // Enlarge the mark of a very small pixel so that it stays visible.
    const grow = Math.max(0, (7 - (to.x - from.x)) / 2);
    return [from.x - grow, from.y - grow, to.x - from.x + 2 * grow, to.y - from.y + 2 * grow];
  }

  /** Draws one of many rectangles: thin, so that they can be told apart. */
  #outline(context, region) {
    const box = this.#box(region);
    const [left, top, wide, high] = box;
    if (left > this.size.width || top > this.size.height || left + wide < 0 || top + high < 0) return;
    for (const [colour, width] of [['#000', 2.5], [region.colour, 1]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.strokeRect(...box);
    }
  }

  /** Draws the bounding box of an object, with its class. @param {import('./boxes.js').Box} one */
  #object(context, { corners: [left, top, right, bottom], label, colour }) {
    const from = this.place(top, left);
    const to = this.place(bottom, right);
    if (from.x > this.size.width || from.y > this.size.height || to.x < 0 || to.y < 0) return;
    for (const [stroke, width] of [['#000', 4], [colour, 2]]) {
      context.strokeStyle = stroke;
      context.lineWidth = width;
      context.strokeRect(from.x, from.y, to.x - from.x, to.y - from.y);
    }
    context.font = '600 11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const wide = context.measureText(label).width + 8;
    // Boxes that are too small for the text are only outlined.
    if (to.x - from.x < wide || to.y - from.y < 16) return;
    context.fillStyle = '#000000b0';
    context.fillRect(from.x + 1, from.y + 1, wide, 15);
    context.fillStyle = '#fff';
    context.fillText(label, from.x + 5, from.y + 9);
  }

  #mark(context, region, colour, text) {
    const box = this.#box(region);
    context.strokeStyle = '#000';
    context.lineWidth = 4;
    context.strokeRect(...box);
    context.strokeStyle = '#fff';
    context.lineWidth = 3;
    context.strokeRect(...box);
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.strokeRect(...box);
    if (!text) return;
    const width = 9 + 7 * text.length;
    const [x, y] = [box[0] + box[2] + 3, box[1] - 15];
    context.fillStyle = colour;
    context.fillRect(x, y, width, 16);
    context.fillStyle = '#fff';
    context.font = '600 12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.fillText(text, x + 4.5, y + 8.5);
  }

  #cross(context, [row, column]) {
    const { x, y } = this.place(row + 0.5, column + 0.5);
    const gap = Math.max(3, this.at().scale / 2 + 1);
    const arms = [[0, -1], [0, 1], [-1, 0], [1, 0]];
    for (const [colour, width] of [['#000', 3.5], ['#fff', 1.5]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      for (const [dx, dy] of arms) {
        context.moveTo(x + dx * gap, y + dy * gap);
        context.lineTo(x + dx * (gap + 7), y + dy * (gap + 7));
      }
      context.stroke();
    }
  }
}

/** The smallest region that contains two pixels. @returns {import('./api.js').Region} */
export function spanned([r0, c0], [r1, c1]) {
  return { rows: [Math.min(r0, r1), Math.max(r0, r1) + 1], columns: [Math.min(c0, c1), Math.max(c0, c1) + 1] };
}
