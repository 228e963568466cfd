// The buttons above the picture, and the files that they save.

import { toggle } from './display.js';
import { el, say } from './dom.js';
import { copyLink, fileName, savePng } from './exports.js';

export function toolbar(session) {
  const { picture } = session;
  const move = toggle('Move', 'Drag moves the picture; Shift and drag draws a rectangle', () => draws(false));
  const rectangle = toggle('Rectangle', 'Drag draws a rectangle and pins its mean ± std', () => draws(true));
  const scale = el('span', { class: 'muted number zoom' });
  const button = (text, name, onclick) => el('button', { type: 'button', 'aria-label': name, title: name, onclick }, text);

  function draws(on) {
    picture.drawing = on;
    picture.canvas.classList.toggle('drawing', on);
    move.setAttribute('aria-pressed', String(!on));
    rectangle.setAttribute('aria-pressed', String(on));
  }
  draws(false);

  const node = el('div', { class: 'toolbar', role: 'toolbar', 'aria-label': 'Picture' },
    el('span', { class: 'group' }, move, rectangle),
    el('span', { class: 'group' },
      button('−', 'Zoom out (−)', () => picture.zoom(1 / 1.5)), button('+', 'Zoom in (+)', () => picture.zoom(1.5)),
      button('Fit', 'Show the whole cube (0)', () => picture.fit()),
      button('1:1', 'One pixel of the cube per pixel of the screen', () => picture.actualSize())),
    scale, el('span', { class: 'gap' }),
    el('span', { class: 'group' },
      button('Save PNG', 'Save the visible part as PNG, in the cube’s pixels (s)', () => exportPng(session)),
      button('Copy link', 'Copy a link that opens this view again (l)', () => copyView(session))));
  return {
    node,
    show() {
      const at = session.picture.at().scale;
      scale.textContent = `${Number((at * 100).toPrecision(3))} %`;
    },
  };
}

export function copyView(session) {
  session.page.save.now();
  return copyLink();
}

/** Saves the visible part with one pixel per pixel of the cube, with the mask or the map. */
export async function exportPng(session) {
  const { cube, image, picture } = session;
  try {
    const region = picture.visible();
    const { tile, canvas } = await image.export(region);
    const part = tile.rows < cube.shape[0] || tile.columns < cube.shape[1]
      ? [`rows_${region.rows[0]}-${region.rows[1] - 1}_columns_${region.columns[0]}-${region.columns[1] - 1}`] : [];
    savePng(canvas, fileName(cube.name, ...part) + '.png');
    if (!tile.full) say(`Saved ${tile.height} × ${tile.width} of ${tile.rows} × ${tile.columns} pixels; zoom in to save all of them`);
  } catch (error) {
    session.fail(error, () => exportPng(session));
  }
}
