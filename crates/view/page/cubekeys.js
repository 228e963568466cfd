// Keyboard shortcuts of a cube's page.

import { IMAGE, namesOf } from './arrays.js';
import { say } from './dom.js';
import { spanned } from './picture.js';
import { regionName, shownBands } from './shown.js';
import { copyView, exportPng } from './toolbar.js';

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** The handler of key presses on the page of a cube. */
export function cubeKeys(session) {
  /** Shows the previous or next band in grey. */
  function step(by) {
    const [band, ...others] = shownBands(session.cube, session.view.state);
    const next = band + by;
    if (!others.length && next >= 0 && next < session.cube.shape[2]) session.view.set({ bands: [next], range: null });
  }

  /** Shows the next array of the sample. */
  function nextArray({ currentTarget }) {
    const names = namesOf(session.sample).map(({ name }) => name);
    const next = names[(names.indexOf(session.cube.array ?? IMAGE) + 1) % names.length];
    if (names.length > 1) session.showArray(next, currentTarget instanceof HTMLCanvasElement ? '.frame:not(.other) canvas' : null);
    else say('This sample has no other array.');
  }

  function begin() {
    const { picture, view } = session;
    if (!view.state.cursor) picture.moveCursor(0, 0);
    session.corner = view.state.cursor;
    say('Rectangle started. Move the cursor to its other corner, then press Enter.');
    showCorner();
  }

  function showCorner() {
    const { picture, view, corner } = session;
    picture.drawn = corner && spanned(corner, view.state.cursor);
    picture.draw();
  }

  function enter() {
    const { picture, view, corner } = session;
    if (!view.state.cursor) picture.moveCursor(0, 0);
    const cursor = view.state.cursor;
    session.pin(spanned(corner ?? cursor, cursor));
    showCorner();
  }

  function remove() {
    const { pins, chosen } = session.view.state;
    if (!pins.length) return;
    say(`Removed ${pins[chosen]?.name ?? regionName(pins[0])}`);
    const left = pins.filter((_, at) => at !== chosen);
    session.view.set({ pins: left, chosen: Math.max(0, Math.min(chosen, left.length - 1)), angle: session.view.state.angle && left.length > 0 });
  }

  /** Keys that work only on the picture. */
  function onPicture(event) {
    const { picture } = session;
    const arrow = ARROWS[event.key];
    const by = event.shiftKey ? 10 : 1;
    if (arrow) { picture.moveCursor(arrow[0] * by, arrow[1] * by); if (session.corner) showCorner(); }
    else if (event.key === 'Enter') enter();
    else if (event.key === 'r') begin();
    else if (event.key === 'Delete' || event.key === 'Backspace') remove();
    else if (event.key === 'Escape' && session.corner) { session.corner = null; showCorner(); }
    else return false;
    return true;
  }

  /** Keys that work on the whole page. */
  function onPage(event) {
    const { picture, cube } = session;
    const go = (id) => { if (id !== null && id !== undefined) location.hash = session.hashOf(id); };
    const preset = cube.presets[Number(event.key) - 1];
    const acts = {
      '+': () => picture.zoom(1.5), '=': () => picture.zoom(1.5), '-': () => picture.zoom(1 / 1.5), 0: () => picture.fit(),
      g: () => session.toggleGrey(), m: () => session.toggleMask(), a: () => session.toggleAngle(),
      n: () => go(cube.next), p: () => go(cube.previous), '[': () => step(-1), ']': () => step(1),
      s: () => exportPng(session), l: () => copyView(session), v: () => nextArray(event),
      Escape: () => { location.hash = session.page.overviewHash(); },
    };
    const act = acts[event.key] ?? (preset && (() => session.view.set({ bands: preset.bands })));
    act?.();
    return Boolean(act);
  }

  return (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    const taken = ([session.picture, session.side?.picture].some((picture) => picture?.canvas === event.currentTarget) && onPicture(event)) || onPage(event);
    if (!taken) return;
    event.preventDefault();
    event.stopPropagation();
  };
}
