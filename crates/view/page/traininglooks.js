// How items of a batch are painted: bands, mask and stretch.

import * as api from './api.js';
import { el, unique } from './dom.js';
import { classOf, colourOf, hiddenClasses } from './shown.js';
import { paintBands, paintMask, percentiles } from './stretch.js';

const OPACITY = 0.4;
const STRETCH = [2, 98];

export class Looks {
  constructor(session) {
    this.session = session;
    const { view } = session;
    const [bands, mask] = [unique('bands'), unique('mask')];
    this.bands = el('select', { id: bands, onchange: () => view.set({ bands: this.bands.value }) });
    this.mask = el('select', { id: mask, onchange: () => view.set({ mask: this.mask.value }) });
    this.maskField = [el('label', { for: mask, class: 'muted' }, 'Mask'), this.mask];
    this.sides = el('span', { class: 'muted small' }, 'Left: as the loader reads it. Right: augmented.');
    this.node = el('div', { class: 'row looks' }, el('label', { for: bands, class: 'muted' }, 'Colours'), this.bands, this.maskField,
      this.sides);
  }

  /** The shown bands. @returns {number[]} */
  get shownBands() {
    const { presets } = this.session.batch;
    return (presets.find(({ name }) => name === this.session.view.state.bands) ?? presets[0]).bands;
  }

  /** The mask that is drawn over the pictures. @returns {import('./shown.js').Mask | null} */
  get shownMask() {
    const { masks } = this.session.batch;
    const { mask } = this.session.view.state;
    return mask === '' ? null : masks.find(({ name }) => name === mask) ?? masks[0] ?? null;
  }

  show() {
    const { presets, masks } = this.session.batch;
    this.bands.replaceChildren(...presets.map(({ name, caption }) => el('option', { value: name }, `${name}: ${caption}`)));
    this.bands.value = (presets.find(({ name }) => name === this.session.view.state.bands) ?? presets[0]).name;
    this.mask.replaceChildren(...masks.map(({ name }) => el('option', { value: name }, name)), el('option', { value: '' }, 'No mask'));
    this.mask.value = this.shownMask?.name ?? '';
    this.sides.hidden = !this.session.about.ops;
    this.maskField.forEach((part) => { part.hidden = masks.length === 0; });
  }

  /**
   * The pictures of an item: as it is read and, if there are augmentations, augmented.
   * @param {number} place @param {number} side  at most this many pixels per edge @param {AbortSignal} signal
   */
  async pictures(place, side, signal) {
    const { session } = this;
    const where = session.where(place);
    const [bands, mask] = [this.shownBands, this.shownMask];
    const different = [...new Set(bands)];
    const one = async (what) => {
      // One request after the other: the server makes an item once, and other requests for it would have to wait.
      const values = await api.trainingPlanes(where, what, different, side, signal);
      const ids = mask ? await api.trainingMask(where, what, mask.name, side, signal) : null;
      const [, height, width] = values.shape;
      const planes = bands.map((band) => {
        const at = different.indexOf(band);
        return values.data.subarray(at * height * width, (at + 1) * height * width);
      });
      return { height, width, planes, ids: ids?.data ?? null };
    };
    const read = await one('read');
    const limits = (of) => of.planes.map((plane) => {
      const [low, high] = percentiles(plane, STRETCH);
      return { low, high };
    });
    const usual = limits(read);
    const pictures = { read: this.#canvas(read, usual, mask) };
    if (!session.about.ops) return pictures;
    const augmented = await one('augmented');
    // Otherwise both pictures share a stretch, so that a brighter one looks brighter.
    const own = session.batch.own_stretch ? limits(augmented) : usual;
    return { ...pictures, augmented: this.#canvas(augmented, own, mask) };
  }

  #canvas({ height, width, planes, ids }, limits, mask) {
    const canvas = document.createElement('canvas');
    Object.assign(canvas, { width, height });
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    const picture = context.createImageData(width, height);
    paintBands(picture.data, planes, limits);
    if (mask && ids) {
      const hidden = hiddenClasses(mask, { hidden: null });
      const colour = (id) => (hidden.has(id) ? null : colourOf(classOf(mask, id)));
      paintMask(picture.data, ids, colour, OPACITY);
    }
    context.putImageData(picture, 0, 0);
    return canvas;
  }
}
