// The items of a batch: one card per item, with its pictures and the augmentations applied to it.

import * as api from './api.js';
import { el } from './dom.js';
import { count } from './shown.js';
import { NO_ITEM } from './state.js';

/** Pixels along the longer edge of a card's pictures. */
const SIDE = 192;
const AT_ONCE = 2;

/** "rows 3 to 66, columns 0 to 63". @param {[number, number, number, number]} window */
export const windowText = ([row, column, rows, columns]) => (rows === 1 && columns === 1 ? `row ${row}, column ${column}`
  : `rows ${row} to ${row + rows - 1}, columns ${column} to ${column + columns - 1}`);

/** The augmentations that were applied to an item. */
export const applied = (item) => item.steps.filter(({ drawn }) => drawn !== null);

/** The place of the item whose card contains this node. */
const placeOf = (node) => Number(node.closest('[data-place]').dataset.place);

export class Cards {
  constructor(session) {
    this.session = session;
    this.list = el('ol', { class: 'items' });
    this.more = el('div', { class: 'row', hidden: true });
    this.node = el('div', {}, this.list, this.more);
    /** @type {Map<Element, number>} cards on screen without pictures, and their places */
    this.wanted = new Map();
    this.running = 0;
    this.asked = new AbortController();
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) this.wanted.set(target, placeOf(target));
        else this.wanted.delete(target);
      }
      this.#next();
    });
    session.view.on(['place'], () => this.#choose());
    session.view.on(['bands', 'mask'], () => { if (session.batch) this.show(); });
  }

  show() {
    const { session } = this;
    this.asked.abort();
    this.asked = new AbortController();
    this.observer.disconnect();
    this.wanted.clear();
    const items = session.batch?.items ?? [];
    const first = session.batch?.of.first ?? 0;
    const cards = items.map((item, at) => this.#card(item, first + at));
    // Keyboard users continue at their card, or at the card that they chose.
    const focused = this.list.contains(document.activeElement) ? session.view.state.place ?? placeOf(document.activeElement) : null;
    this.list.replaceChildren(...cards);
    cards.forEach((card) => this.observer.observe(card));
    this.#pages();
    this.#choose();
    if (focused !== null) this.focus(focused);
  }

  /** Moves the focus to the card of the item at this place; if there is none, to the first card. @param {number | null} place */
  focus(place) {
    const chosen = this.list.querySelector(`[data-place="${place}"] button`) ?? this.list.querySelector('button');
    /** @type {HTMLElement | null} */ (chosen)?.focus();
  }

  #card(item, place) {
    const { view } = this.session;
    const names = applied(item).map(({ op }) => op);
    const name = el('span', { class: 'name' }, item.name);
    const button = el('button', { type: 'button', class: 'item', 'aria-pressed': 'false',
      onclick: () => view.set({ ...NO_ITEM, place: view.state.place === place ? null : place }),
      onkeydown: (event) => this.#move(event) },
    el('span', { class: 'pictures' }, el('span', { class: 'muted small' }, 'Loading…')),
    el('span', { class: 'row' }, name, item.repeat ? el('span', { class: 'muted small' }, `repeat ${item.repeat}`) : null,
      item.padding ? el('span', { class: 'badge' }, 'padding') : null),
    el('span', { class: 'muted small' }, `sample ${item.sample}, ${windowText(item.window)}`),
    item.label === null ? null : el('span', { class: 'small' }, item.label),
    this.session.about.ops ? el('span', { class: 'small ops' }, names.length ? names.join(', ') : 'none applied') : null);
    return el('li', { 'data-place': place }, button);
  }

  /** Moves from card to card with the arrow keys. */
  #move(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    const buttons = [...this.list.querySelectorAll('button')];
    buttons[buttons.indexOf(event.currentTarget) + step]?.focus();
    event.preventDefault();
  }

  #choose() {
    const { place } = this.session.view.state;
    for (const card of this.list.children) {
      card.firstElementChild?.setAttribute('aria-pressed', String(placeOf(card) === place));
    }
  }

  #pages() {
    const { batch, view } = this.session;
    const first = batch?.of.first ?? 0;
    const total = batch?.total ?? 0;
    this.more.hidden = total <= api.LISTED;
    const go = (to) => view.set({ ...NO_ITEM, first: to });
    const button = (text, to) => el('button', { type: 'button', disabled: to < 0 || to >= total, onclick: () => go(to) }, text);
    this.more.replaceChildren(button('‹ Items before', first - api.LISTED),
      el('span', { class: 'muted number' }, `${count(first)} to ${count(Math.min(total, first + api.LISTED) - 1)} of ${count(total)}`),
      button('Items after ›', first + api.LISTED));
  }

  #next() {
    for (const [card, place] of this.wanted) {
      if (this.running >= AT_ONCE) return;
      this.wanted.delete(card);
      this.observer.unobserve(card);
      this.#load(card, place);
    }
  }

  async #load(card, place) {
    const { signal } = this.asked;
    const pictures = card.querySelector('.pictures');
    this.running += 1;
    try {
      const { read, augmented } = await this.session.looks.pictures(place, SIDE, signal);
      if (signal.aborted) return;
      pictures.replaceChildren(...(augmented ? [read, augmented] : [read]));
    } catch (error) {
      if (signal.aborted || api.isAborted(error)) return;
      pictures.replaceChildren(el('span', { class: 'error small' }, error.message));
    } finally {
      this.running -= 1;
      this.#next();
    }
  }

  stop() {
    this.asked.abort();
    this.observer.disconnect();
  }
}
