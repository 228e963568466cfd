// The page of training: the batches of a loader, before and after augmentation.

import * as api from './api.js';
import { el, unique } from './dom.js';
import { count } from './shown.js';
import { NO_ITEM, same, store } from './state.js';
import { Cards } from './trainingcards.js';
import { formOf } from './trainingform.js';
import { itemPanel } from './trainingitem.js';
import { Looks } from './traininglooks.js';

/** No item of a batch is chosen. */
const NOTHING = { ...NO_ITEM, first: 0 };

/**
 * @param {import('./state.js').TrainingView} state
 * @param {{about: any, main: HTMLElement, fail: (error: any, again?: () => void) => void, clear: () => void,
 *   save: (state: any) => void, overviewHash: () => string}} page
 */
export function openTraining(state, page) {
  document.title = `Training – ${page.about.title} – hsipack view`;
  if (page.about.kind !== 'dataset') {
    page.main.className = 'overview-page';
    page.main.replaceChildren(el('p', { class: 'loading' }, el('a', { href: page.overviewHash() }, '← All samples'), ' ',
      'These cubes are not packed, and loaders read packed datasets. Pack them with ', el('code', {}, 'hsipack convert'), ' to see what training is given.'));
    return { keys() {}, stop() {} };
  }
  return new Session(state, page);
}

class Session {
  constructor(state, page) {
    this.page = page;
    this.view = store(state);
    this.view.on(['*'], () => page.save(this.view.state));
    this.asksSetup = new api.Latest();
    this.asksBatch = new api.Latest();
    this.asksPlace = new api.Latest();
    /** The requested options of the loader (`asked`), and how many batches it delivers. @type {any} */
    this.about = null;
    /** The shown batch, and the request for it (`of`). @type {any} */
    this.batch = null;
    this.looks = new Looks(this);
    this.form = formOf(this);
    this.steps = stepsOf(this);
    this.cards = new Cards(this);
    this.item = itemPanel(this);
    this.said = el('p', { class: 'hint', role: 'status' });
    this.node = el('div', { class: 'training' },
      el('div', { class: 'head' }, el('a', { href: page.overviewHash(), class: 'back' }, '← All samples'),
        el('h2', { class: 'cube-name' }, 'Training'), this.steps.node),
      el('div', { class: 'setup', role: 'region', 'aria-label': 'Loader', tabindex: 0 }, this.form.node),
      el('div', { class: 'batch', role: 'region', 'aria-label': 'Batch', tabindex: 0 }, this.looks.node, this.said, this.cards.node),
      this.item.node);
    page.main.className = 'training-page';
    page.main.replaceChildren(this.node);
    this.view.on(['setup', 'epoch', 'batch', 'first'], () => {
      const { setup, epoch } = this.view.state;
      if (same(this.about?.asked, { setup, epoch })) this.loadBatch();
      else this.load();
    });
    this.load();
  }

  /** Requests the setup of the loader, and then the batch. */
  async load() {
    const { setup, epoch } = this.view.state;
    // Requests for another setup are out of date.
    [this.asksBatch, this.asksPlace].forEach((asks) => asks.stop());
    this.said.textContent = 'Planning…';
    try {
      const about = await this.asksSetup.run((signal) => api.training(setup, epoch, signal));
      if (!about) return;
      this.#know({ ...about, asked: { setup, epoch } });
      this.form.fail('');
      this.page.clear();
      const batch = Math.min(this.view.state.batch, Math.max(0, about.batches - 1));
      if (batch === this.view.state.batch) await this.loadBatch();
      else this.view.set({ batch });
    } catch (error) {
      this.#failed(error, () => this.load());
      if (this.about === null) this.#knowUsual();
    }
  }

  #know(about) {
    const before = this.about?.setup;
    this.about = about;
    // Keep what the user is typing, unless the loader has changed.
    if (!same(about.setup, before)) this.form.show();
  }

  /** If a link asks for an impossible setup, the form starts with the setup that the viewer was started with. */
  async #knowUsual() {
    try {
      const about = await api.training({}, 0, this.page.signal);
      if (this.about === null) this.#know({ ...about, asked: { setup: {}, epoch: 0 } });
    } catch {
      // The error is already shown.
    }
  }

  /** Requests another setup, or the same setup again. @param {api.Setup} setup */
  ask(setup) {
    const asks = !same(setup, this.view.state.setup);
    this.view.set({ ...NOTHING, setup, batch: 0 });
    if (!asks) this.load();
  }

  /** Requests the items of the batch. Until they arrive, the old ones stay. */
  async loadBatch() {
    const { setup, epoch, batch, first } = this.view.state;
    this.steps.show();
    try {
      const found = await this.asksBatch.run((signal) => api.trainingBatch({ setup, epoch, batch }, first, signal));
      if (!found) return;
      this.batch = { ...found, of: { setup, epoch, batch, first } };
      this.page.clear();
      const { place } = this.view.state;
      if (place !== null && !found.items[place - first]) this.view.set(NO_ITEM);
      this.steps.show();
      this.looks.show();
      this.said.replaceChildren(...summary(this.about, found));
      this.cards.show();
      this.item.show();
    } catch (error) {
      this.#failed(error, () => this.loadBatch());
    }
  }

  /** Shows an error; an error in the setup is shown beside the form. */
  #failed(error, again) {
    this.batch = null;
    this.said.textContent = '';
    this.cards.show();
    this.item.show();
    if (error.status === 400 || error.status === 422) this.form.fail([error.message, error.remedy].filter(Boolean).join(' – '));
    else this.page.fail(error, again);
  }

  /** Goes to the batch that contains a sample. @param {number} sample */
  async find(sample) {
    const { setup, epoch } = this.view.state;
    this.steps.say('Searching…');
    try {
      const answer = await this.asksPlace.run((signal) => api.trainingPlaces(setup, epoch, sample, signal));
      if (!answer) return;
      const [found] = answer.places;
      this.steps.say(found ? '' : `Epoch ${epoch} has no window of sample ${sample}.`);
      if (found) this.goTo(found);
    } catch (error) {
      this.steps.say([error.message, error.remedy].filter(Boolean).join(' – '));
    }
  }

  /** @param {{batch: number, place: number}} where */
  goTo({ batch, place }) {
    this.view.set({ ...NO_ITEM, batch, place, first: place - (place % api.LISTED) });
    this.cards.focus(place);
  }

  /** Goes to another batch or epoch. The item at the same place stays chosen if it is on the first page of the list. */
  goToBatch(patch) {
    const { place } = this.view.state;
    this.view.set({ ...NOTHING, ...patch, place: place !== null && place < api.LISTED ? place : null });
  }

  /** Whether the requested batch is not the shown one. */
  get isAsking() {
    const { setup, epoch, batch, first } = this.view.state;
    return !same(this.batch?.of, { setup, epoch, batch, first });
  }

  /** Names an item of the shown batch for the server. @param {number} place */
  where(place) {
    const { setup, epoch, batch } = this.batch.of;
    return { setup, epoch, batch, place };
  }

  step(by) {
    const batch = this.view.state.batch + by;
    if (this.about && batch >= 0 && batch < this.about.batches) this.goToBatch({ batch });
  }

  keys(event) {
    const place = this.view.state.place;
    if (event.key === 'n') this.step(1);
    else if (event.key === 'p') this.step(-1);
    else if (event.key === 'Escape' && place !== null) this.item.close();
    else if (event.key === 'Escape') location.hash = this.page.overviewHash();
    else return;
    event.preventDefault();
  }

  stop() {
    [this.asksSetup, this.asksBatch, this.asksPlace].forEach((asks) => asks.stop());
    this.cards.stop();
    this.item.stop();
  }
}

/** The controls for the epoch, the batch, and finding a sample. */
function stepsOf(session) {
  const { view } = session;
  const last = session.page.about.samples - 1;
  const whole = (box, most) => {
    const value = Number(box.value);
    return box.value !== '' && Number.isInteger(value) && value >= 0 && value <= most ? value : null;
  };
  const labelled = (text, box) => [el('label', { for: box.id, class: 'muted' }, text), box];
  const number = (stem, max, onchange) => el('input', { type: 'number', id: unique(stem), min: 0, max, step: 1, onchange });
  const epoch = number('epoch', 1e9, () => {
    const value = whole(epoch, 1e9);
    if (value !== null) session.goToBatch({ epoch: value });
    show();
  });
  const batch = number('batch', 1e9, () => {
    const value = whole(batch, (session.about?.batches ?? 1) - 1);
    if (value !== null) session.goToBatch({ batch: value });
    show();
  });
  const sample = number('sample', last, () => {});
  sample.placeholder = `0–${last}`;
  sample.addEventListener('keydown', (event) => { if (event.key === 'Enter') go(); });
  const go = () => {
    const value = whole(sample, last);
    if (value === null) say(`Samples are numbered from 0 to ${last}.`);
    else session.find(value);
  };
  const found = el('span', { class: 'small', role: 'status' });
  const say = (text) => { found.textContent = text; };
  const of = el('span', { class: 'muted number' });
  const move = (text, name, by) => el('button', { type: 'button', class: 'step', 'aria-label': name, title: name, onclick: () => session.step(by) }, text);
  const back = move('‹', 'Previous batch (p)', -1);
  const on = move('›', 'Next batch (n)', 1);
  const node = el('div', { class: 'row steps-of-training' }, labelled('Epoch', epoch), labelled('Batch', batch), of,
    el('span', { class: 'steps' }, back, on), labelled('Find sample', sample),
    el('button', { type: 'button', onclick: go }, 'Find'), found);
  function show() {
    if (document.activeElement !== epoch) epoch.value = String(view.state.epoch);
    if (document.activeElement !== batch) batch.value = String(view.state.batch);
    const batches = session.about?.batches ?? 0;
    of.textContent = session.about ? `of ${count(batches)}` : '';
    batch.max = String(Math.max(0, batches - 1));
    back.disabled = view.state.batch <= 0;
    on.disabled = view.state.batch + 1 >= batches;
  }
  view.on(['epoch', 'batch'], () => { say(''); show(); });
  return { node, show, say };
}

/** A summary of the epoch and the batch. */
function summary(about, batch) {
  const size = (shape) => shape.join(' × ');
  const same = size(batch.before) === size(batch.after);
  const parts = [`${count(about.items)} ${about.items === 1 ? 'item' : 'items'} per epoch, from ${count(about.samples)} ${about.samples === 1 ? 'sample' : 'samples'}.`,
    ` This batch: ${count(batch.total)} of ${size(batch.before)}${same ? '' : `, augmented to ${size(batch.after)}`} (rows × columns × bands), as ${about.setup.dtype}.`];
  if (about.blocks) parts.push(` Windows are shuffled among those of ${count(about.blocks[0])} of ${count(about.blocks[1])} blocks of cubes, because not all fit into the memory of this machine.`);
  if (!about.ops) parts.push(' There are no augmentations. You can add some as JSON.');
  return parts;
}
