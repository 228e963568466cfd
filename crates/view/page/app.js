// Starts the page: what is open, which address shows what, errors, and keys that work everywhere.

import * as api from './api.js';
import { debounced, el } from './dom.js';
import { openCube } from './cube.js';
import { help, isTyping } from './keyboard.js';
import { openOverview, query } from './overview.js';
import { count } from './shown.js';
import { overview, read, write } from './state.js';
import { startTheme, toggleTheme } from './theme.js';
import { openTraining } from './training.js';

const main = /** @type {HTMLElement} */ (document.getElementById('main'));
const alert = /** @type {HTMLElement} */ (document.getElementById('alert'));

/** Shows an error with its remedy, until something works again or the user closes it. */
function fail(error, again) {
  if (api.isAborted(error)) return;
  // A bug of this page: print the error for a bug report.
  const known = error instanceof api.ApiError;
  if (!known) console.error(error);
  const text = known ? error.message : `An error in this page: ${error.message}`;
  alert.replaceChildren(el('div', { class: 'alert' },
    el('div', {}, el('p', {}, el('b', {}, text)), el('p', {}, known ? error.remedy ?? '' : 'Load the page again.')),
    el('span', { class: 'gap' }),
    again ? el('button', { type: 'button', onclick: () => { clear(); again(); } }, 'Try again') : null,
    el('button', { type: 'button', 'aria-label': 'Close the message', onclick: clear }, '×')));
}

function clear() { alert.replaceChildren(); }

/** The state that the address shows. It is written with a delay, because browsers allow only a few writes per second. */
/** @type {import('./state.js').Overview | import('./state.js').CubeView | import('./state.js').TrainingView} */
let state = overview();
/** The address that belongs to the state. If the browser has another one, that is opened next, and must not be overwritten. */
let address = '';
const write_ = debounced(() => {
  if (location.hash !== address) return;
  history.replaceState(null, '', write(state));
  address = location.hash;
}, 150);
const save = Object.assign((next) => { state = next; write_(); }, { now: () => write_.now() });

/** What the server says about the dataset or the cubes. @type {any} */
let about = null;
/** What is open. @type {any} */
let open = null;
let asked = new AbortController();
/** What has the focus after the next view has opened. @type {string | null} */
let focus = null;
let overviewHash = write(overview());
/** The sample that was last opened from the overview, and the address of that overview. @type {{hash: string, place: number} | null} */
let visited = null;

/**
 * The samples before and after one in the filtered and sorted list from which it was opened. Undefined if the sample is
 * not near the place where the list was left; then the order of the dataset applies.
 */
async function neighbours(id, signal) {
  const list = read(overviewHash);
  if (!visited || visited.hash !== overviewHash || list.page !== 'overview') return undefined;
  const first = Math.max(0, visited.place - 2);
  const { samples } = await api.samples(query(list, first, 5), signal);
  const at = samples.findIndex((one) => one.id === id);
  if (at < 0) return undefined;
  // The overview returns to this sample.
  visited.place = first + at;
  return { previous: samples[at - 1]?.id ?? null, next: samples[at + 1]?.id ?? null };
}

/** Opens the view that the address names. */
async function route() {
  write_.stop();
  asked.abort();
  asked = new AbortController();
  const { signal } = asked;
  if (open?.active) visited = { hash: overviewHash, place: open.active() };
  const first = open === null;
  open?.stop();
  open = null;
  clear();
  address = location.hash;
  state = read(address);
  const page = { about, main, fail: (error, again) => { if (!signal.aborted) fail(error, again); }, clear, save, signal,
    focused: null, overviewHash: () => overviewHash, refocus: (selector) => { focus = selector; }, neighbours };
  try {
    if (state.page === 'overview') {
      page.save = Object.assign((next) => { overviewHash = write(next); save(next); }, { now: save.now });
      overviewHash = write(state);
      page.focused = visited?.hash === overviewHash ? visited.place : null;
      open = openOverview(state, page);
    } else if (state.page === 'training') {
      open = openTraining(state, page);
      if (!first) main.focus({ preventScroll: true });
    } else {
      main.setAttribute('aria-busy', 'true');
      const opened = await openCube(state, page);
      if (signal.aborted) { opened?.stop(); return; }
      open = opened;
      // Keyboard users continue in the cube.
      const held = focus ? main.querySelector(focus) : null;
      focus = null;
      if (!first) (held ?? main).focus({ preventScroll: true });
    }
  } catch (error) {
    if (signal.aborted) return;
    main.className = '';
    main.replaceChildren(el('p', { class: 'loading' }, el('a', { href: overviewHash }, '← All samples')));
    fail(error, route);
  } finally {
    if (!signal.aborted) main.removeAttribute('aria-busy');
  }
}

function keys(event) {
  if (event.defaultPrevented || isTyping(event) || event.ctrlKey || event.altKey || event.metaKey) return;
  if (document.querySelector('dialog[open]')) return;
  if (event.key === '?') help();
  else if (event.key === 't') toggleTheme();
  else { open?.keys(event); return; }
  event.preventDefault();
}

/** Tells the server that the page is still open, so that it keeps running. */
function pings() {
  let failed = false;
  const ping = async () => {
    try {
      await api.ping();
      if (failed) clear();
      failed = false;
    } catch (error) {
      failed = true;
      fail(error, ping);
    }
  };
  setInterval(ping, 10_000);
}

async function start() {
  const actions = /** @type {HTMLElement} */ (document.getElementById('top-actions'));
  actions.replaceChildren(el('button', { type: 'button', class: 'quiet', 'aria-label': 'Keys', title: 'Keys (?)', onclick: help }, '?'), startTheme());
  try {
    about = await api.about();
  } catch (error) {
    main.replaceChildren();
    fail(error, start);
    return;
  }
  const title = /** @type {HTMLElement} */ (document.getElementById('title'));
  title.textContent = about.title;
  title.title = about.path;
  const what = about.kind === 'cubes' ? 'not packed' : 'dataset';
  // The shapes of raw cubes are known only after they were opened.
  const shapes = about.stacks.length > 1 ? `${about.stacks.length} shapes` : about.stacks[0]?.name;
  /** @type {HTMLElement} */ (document.getElementById('about')).textContent =
    [what, `${count(about.samples)} ${about.samples === 1 ? 'cube' : 'cubes'}`, shapes].filter(Boolean).join(', ');
  // Open what the viewer was started for, or the only cube.
  if (!location.hash && about.training) history.replaceState(null, '', '#training');
  else if (!location.hash && about.samples === 1) history.replaceState(null, '', '#cube/0');
  addEventListener('hashchange', route);
  addEventListener('keydown', keys);
  // Write the state before a link is followed.
  addEventListener('click', () => write_.now(), true);
  addEventListener('pagehide', () => write_.now());
  pings();
  await route();
}

start();
