// A grid of any number of samples of which only those on screen are elements.

import * as api from './api.js';
import { debounced, el } from './dom.js';
import { badge } from './facts.js';
import { count } from './shown.js';
import { Thumbnails } from './thumbnails.js';

/** Samples asked for at once, and the most of such blocks that are kept. */
const BLOCK = 100;
const BLOCKS = 40;
/** Milliseconds after the last picture, when what was found while it was made is asked for. */
const LATER = 1500;
/** Browsers lay out no higher elements: in a larger grid, a pixel of the scroll bar is more than one of the grid. */
const HIGHEST = 15_000_000;
const CARD = { width: 176, height: 232, gap: 10 };

export class Grid {
  /**
   * @param {object} of
   * @param {(offset: number, limit: number, signal: AbortSignal) => Promise<{total: number, samples: any[]}>} of.ask
   * @param {(total: number) => void} of.onTotal
   * @param {(first: number) => void} of.onFirst  another sample is at the top
   * @param {(error: any, again: () => void) => void} of.fail
   * @param {(id: number) => string} of.link
   * @param {boolean} of.packed  whether a cube that cannot be read is a damaged one, and not one of another kind
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
    /** @type {Map<number, any>} cards by the samples' places */
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

  /** Shows other samples, from `first` on; the focus goes to the sample at `focused`. @param {number | null} focused */
  reset(first = 0, focused = null) {
    // What is asked for now is not on screen yet, and would be given up.
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
    // Two beside one another on a phone, and wider ones where room is left.
    this.columns = Math.max(1, Math.floor(inner / (Math.min(CARD.width, inner / 2 - CARD.gap) + CARD.gap)));
    this.cardWidth = inner / this.columns - CARD.gap;
    this.rowHeight = Math.round(Math.min(CARD.height, this.cardWidth + 68)) + CARD.gap;
    this.height = Math.ceil(this.total / this.columns) * this.rowHeight + CARD.gap;
    this.list.style.height = `${Math.min(this.height, HIGHEST)}px`;
    this.#show();
  }

  /** Pixels of the grid a pixel of the scroll bar, beyond what fits. */
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

  /** Makes cards of what is on screen, and takes away the others. */
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
    // Somebody has to be reached by the Tab key.
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

  /** When scrolling pauses: asks for what is on screen and not known yet. */
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
      el('span', { class: 'muted small text' }, // Of a raw cube it is known once it was opened.
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
        // The message begins with a path: it is too long for a card.
        card.picture.replaceChildren(el('span', { class: 'small' }, 'Cannot be read'));
        card.picture.title = [result.message, result.remedy].filter(Boolean).join(' ');
        const badges = card.link.querySelector('.badges');
        if (this.of.packed && result.status === 422 && !badges.querySelector('.damaged')) badges.append(badge({ kind: 'damaged', text: result.message }));
      }
    });
  }

  /** Asks again for the samples on screen, of which marks were found when their pictures were made. */
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
        // Another order or filter may be there by now.
        if (!Array.isArray(block) || block[(first + at) % BLOCK]?.id !== sample.id) return;
        block[(first + at) % BLOCK] = sample;
        const card = this.cards.get(first + at);
        if (card?.id !== sample.id || card.failed) return;
        card.link.querySelector('.badges').replaceChildren(...sample.marks.map(badge));
      });
    } catch {
      // These are there only as an aid: what is needed says itself when the server is gone.
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

  /** Puts the focus on a sample, and scrolls to it. */
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
