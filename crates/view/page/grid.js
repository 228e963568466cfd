// A grid of any number of samples. Only the samples on screen are elements of the page.

import * as api from './api.js';
import { debounced, el } from './dom.js';
import { badge } from './facts.js';
import { count } from './shown.js';
import { Thumbnails } from './thumbnails.js';

/** The number of samples in a block, which is requested at once, and the maximum number of blocks to keep. */
const BLOCK = 100;
const BLOCKS = 40;
/** Milliseconds after the last thumbnail until marks are requested again: making thumbnails finds new ones. */
const LATER = 1500;
/** Browsers cannot lay out higher elements. In a higher grid, one pixel of the scroll bar is several pixels of the grid. */
const HIGHEST = 15_000_000;
const CARD = { width: 176, height: 232, gap: 10 };

export class Grid {
  /**
   * @param {object} of
   * @param {(offset: number, limit: number, signal: AbortSignal) => Promise<{total: number, samples: any[]}>} of.ask
   * @param {(total: number) => void} of.onTotal
   * @param {(first: number) => void} of.onFirst  called when another sample is at the top
   * @param {(error: any, again: () => void) => void} of.fail
   * @param {(id: number) => string} of.link
   * @param {boolean} of.packed  whether the cubes are packed: then a cube that cannot be read is damaged
   */
  constructor(of) {
    this.of = of;
    this.height = 0;
    this.rowHeight = 0;
    this.cardWidth = 1;
    /** @type {number | undefined} */
    this.wantedFirst = undefined;
    /** @type {number | null} */
    this.wantedFocus = null;
    this.total = 0;
    this.active = 0;
    /** @type {Map<number, any[] | AbortController>} */
    this.blocks = new Map();
    /** @type {Map<number, any>} cards by the places of their samples */
    this.cards = new Map();
    this.thumbnails = new Thumbnails();
    this.list = el('ul', { class: 'cards', role: 'list', 'aria-label': 'Samples' });
    this.node = el('div', { class: 'grid', onscroll: () => this.#scrolled(), onkeydown: (event) => this.#key(event) }, this.list);
    this.settled = debounced(() => this.#settle(), 90);
    this.seen = debounced(() => this.#marks(), LATER);
    this.observer = new ResizeObserver(() => { const first = this.first; this.#layout(); this.scrollTo(first); });
    this.observer.observe(this.node);
    this.first = 0;
    this.columns = 1;
    /** @type {AbortController | null} */
    this.remarks = null;
  }

  /** Shows other samples, starting at `first`, and moves the focus to the sample at `focused`. @param {number | null} focused */
  reset(first = 0, focused = null) {
    // The samples requested below are not on screen yet, so settling now would abort the request.
    this.settled.stop();
    this.#forget();
    this.active = focused ?? first;
    this.wantedFocus = focused;
    this.wantedFirst = first;
    this.total = 0;
    this.#fetch(Math.floor(first / BLOCK));
  }

  #forget() {
    this.seen.stop();
    this.remarks?.abort();
    for (const block of this.blocks.values()) if (block instanceof AbortController) block.abort();
    this.blocks.clear();
    for (const place of [...this.cards.keys()]) this.#drop(place);
  }

  #layout() {
    const inner = Math.max(1, this.node.clientWidth - CARD.gap);
    // Show two cards side by side on a phone, and wider cards if there is space left.
    this.columns = Math.max(1, Math.floor(inner / (Math.min(CARD.width, inner / 2 - CARD.gap) + CARD.gap)));
    this.cardWidth = inner / this.columns - CARD.gap;
    this.rowHeight = Math.round(Math.min(CARD.height, this.cardWidth + 68)) + CARD.gap;
    this.height = Math.ceil(this.total / this.columns) * this.rowHeight + CARD.gap;
    this.list.style.height = `${Math.min(this.height, HIGHEST)}px`;
    this.#show();
  }

  /** How many pixels of the grid one pixel of the scroll bar stands for. */
  get #ratio() {
    const view = this.node.clientHeight;
    return this.height > HIGHEST ? (this.height - view) / (HIGHEST - view) : 1;
  }

  scrollTo(place) {
    const top = Math.floor(place / this.columns) * this.rowHeight;
    this.node.scrollTop = top / this.#ratio;
    this.#show();
  }

  #scrolled() {
    this.#show();
    const first = Math.floor((this.node.scrollTop * this.#ratio + CARD.gap) / this.rowHeight) * this.columns;
    if (first !== this.first && this.total) {
      this.first = first;
      this.of.onFirst(first);
    }
  }

  /** Makes the cards on screen, and removes the others. */
  #show() {
    if (!this.total || !this.rowHeight) return;
    const top = this.node.scrollTop * this.#ratio;
    const shift = this.node.scrollTop - top;
    const from = Math.max(0, Math.floor(top / this.rowHeight) - 1) * this.columns;
    const to = Math.min(this.total, (Math.ceil((top + this.node.clientHeight) / this.rowHeight) + 1) * this.columns);
    const focused = this.cards.get(this.active)?.node.contains(document.activeElement);
    for (const place of [...this.cards.keys()]) {
      if ((place < from || place >= to) && !(focused && place === this.active)) this.#drop(place);
    }
    // The Tab key must reach one of the cards.
    if (!focused && (this.active < from || this.active >= to)) this.active = Math.min(this.total - 1, from + this.columns);
    let before = null;
    for (let place = to - 1; place >= from; place--) {
      const card = this.cards.get(place) ?? this.#make(place);
      if (!card.node.isConnected) this.list.insertBefore(card.node, before);
      before = card.node;
      const row = Math.floor(place / this.columns);
      Object.assign(card.node.style, {
        transform: `translate(${(place % this.columns) * (this.cardWidth + CARD.gap) + CARD.gap}px, ${row * this.rowHeight + CARD.gap + shift}px)`,
        width: `${this.cardWidth}px`, height: `${this.rowHeight - CARD.gap}px`,
      });
      card.link.tabIndex = place === this.active ? 0 : -1;
    }
    this.settled();
  }

  #make(place) {
    const link = el('a', { href: '#', onfocus: () => { this.active = place; } });
    const node = el('li', { class: 'card', 'aria-posinset': place + 1, 'aria-setsize': this.total }, link);
    const card = { node, link, id: null };
    this.cards.set(place, card);
    const block = this.blocks.get(Math.floor(place / BLOCK));
    if (Array.isArray(block)) this.#fill(card, block[place % BLOCK]);
    return card;
  }

  #drop(place) {
    const card = this.cards.get(place);
    if (card.id !== null) this.thumbnails.forget(card.id);
    card.node.remove();
    this.cards.delete(place);
  }

  /** When scrolling pauses, requests missing data of the samples on screen. */
  #settle() {
    const wanted = new Set([...this.cards.keys()].map((place) => Math.floor(place / BLOCK)));
    for (const [number, block] of this.blocks) {
      if (wanted.has(number)) continue;
      if (block instanceof AbortController) { block.abort(); this.blocks.delete(number); }
      else if (this.blocks.size > BLOCKS) this.blocks.delete(number);
    }
    for (const number of wanted) if (!this.blocks.has(number)) this.#fetch(number);
    // From the top down.
    for (const place of [...this.cards.keys()].sort((a, b) => a - b)) this.#picture(this.cards.get(place));
  }

  async #fetch(number) {
    const controller = new AbortController();
    this.blocks.set(number, controller);
    try {
      const { total, samples } = await this.of.ask(number * BLOCK, BLOCK, controller.signal);
      if (controller.signal.aborted) return;
      this.blocks.set(number, samples);
      if (total !== this.total) {
        this.total = total;
        this.#layout();
      }
      this.of.onTotal(total);
      if (this.wantedFirst !== undefined) {
        this.scrollTo(Math.min(this.wantedFirst, Math.max(0, total - 1)));
        this.wantedFirst = undefined;
        if (this.wantedFocus !== null) this.focus(this.wantedFocus);
      }
      for (const [place, card] of this.cards) {
        if (Math.floor(place / BLOCK) === number && card.id === null) this.#fill(card, samples[place % BLOCK]);
      }
      this.settled();
    } catch (error) {
      if (controller.signal.aborted) return;
      this.blocks.delete(number);
      this.of.fail(error, () => this.#fetch(number));
    }
  }

  #fill(card, sample) {
    if (!sample) return;
    card.id = sample.id;
    card.picture = el('div', { class: 'thumb' });
    const facts = [sample.split, sample.group, sample.label].filter((value) => value !== null && value !== undefined && value !== '');
    card.link.href = this.of.link(sample.id);
    card.link.replaceChildren(card.picture,
      el('span', { class: 'name', title: sample.name }, sample.name),
      el('span', { class: 'muted small text' }, // The shape of a raw cube is known only after it was opened.
        sample.shape?.join(' × ') ?? ''),
      el('span', { class: 'small text', title: facts.map(String).join(' · ') }, facts.map(String).join(' · ')),
      el('span', { class: 'badges' }, sample.marks.map(badge)));
  }

  #picture(card) {
    if (card.id === null || card.asked) return;
    card.asked = true;
    this.thumbnails.want(card.id, (result) => {
      if (typeof result === 'string') {
        card.picture.replaceChildren(el('img', { src: result, alt: '', draggable: 'false' }));
        this.seen();
      } else if (!api.isAborted(result)) {
        card.failed = true;
        // The message begins with a path, so it is too long for a card.
        card.picture.replaceChildren(el('span', { class: 'small' }, 'Cannot be read'));
        card.picture.title = [result.message, result.remedy].filter(Boolean).join(' ');
        const badges = card.link.querySelector('.badges');
        if (this.of.packed && result.status === 422 && !badges.querySelector('.damaged')) badges.append(badge({ kind: 'damaged', text: result.message }));
      }
    });
  }

  /** Requests the samples on screen again, with the marks that were found when their thumbnails were made. */
  async #marks() {
    const places = [...this.cards].filter(([, { id }]) => id !== null).map(([place]) => place);
    if (!places.length) return;
    const first = Math.min(...places);
    this.remarks?.abort();
    const { signal } = this.remarks = new AbortController();
    try {
      const { samples } = await this.of.ask(first, Math.max(...places) - first + 1, signal);
      if (signal.aborted) return;
      samples.forEach((sample, at) => {
        const block = this.blocks.get(Math.floor((first + at) / BLOCK));
        // The order or the filter may have changed meanwhile.
        if (!Array.isArray(block) || block[(first + at) % BLOCK]?.id !== sample.id) return;
        block[(first + at) % BLOCK] = sample;
        const card = this.cards.get(first + at);
        if (card?.id !== sample.id || card.failed) return;
        card.link.querySelector('.badges').replaceChildren(...sample.marks.map(badge));
      });
    } catch {
      // Marks are optional. If the server is gone, other requests report it.
    }
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.rowHeight)) * this.columns;
    const to = { ArrowLeft: this.active - 1, ArrowRight: this.active + 1, ArrowUp: this.active - this.columns,
      ArrowDown: this.active + this.columns, Home: 0, End: this.total - 1, PageUp: this.active - page, PageDown: this.active + page }[event.key];
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey || !this.total) return;
    event.preventDefault();
    this.focus(to);
  }

  /** Moves the focus to a sample, and scrolls to it. */
  focus(place) {
    this.active = Math.min(this.total - 1, Math.max(0, place));
    const top = Math.floor(this.active / this.columns) * this.rowHeight;
    const view = this.node.clientHeight;
    const now = this.node.scrollTop * this.#ratio;
    if (top < now) this.node.scrollTop = top / this.#ratio;
    else if (top + this.rowHeight + CARD.gap > now + view) this.node.scrollTop = (top + this.rowHeight + CARD.gap - view) / this.#ratio;
    this.#show();
    this.cards.get(this.active)?.link.focus({ preventScroll: true });
  }

  stop() {
    this.observer.disconnect();
    this.settled.stop();
    this.#forget();
    this.thumbnails.stop();
  }
}

/** "1,234 of 10,000 samples". */
export const counted = (shown, all) => (shown === all ? `${count(all)} ${all === 1 ? 'sample' : 'samples'}` : `${count(shown)} of ${count(all)} samples`);
