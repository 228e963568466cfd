// The dialog that lists the keyboard shortcuts.

import { el } from './dom.js';

/** @type {[string, [string, string][]][]} */
const KEYS = [
  ['Everywhere', [['?', 'This list'], ['t', 'Light or dark colours'], ['Esc', 'Close a dialog; from a cube back to all samples']]],
  ['All samples', [['Arrows, Home, End, Page up, Page down', 'Move among the samples'], ['Enter', 'Open the sample'], ['/', 'Type a condition']]],
  ['A cube', [
    ['n, p', 'Next, previous cube'], ['v', 'Next array of the sample: images and targets'], ['g', 'Colour or one band as grey'], ['1 2 3', 'Presets of bands'],
    ['[ ]', 'With one band in grey, or a target: previous, next band or channel'],
    ['m', 'Show or hide the mask'], ['a', 'Angle map to the chosen spectrum'], ['s', 'Save the picture as PNG'], ['l', 'Copy the link']]],
  ['Training', [['n, p', 'Next, previous batch'], ['Arrows', 'Move among the items of a batch'], ['Enter', 'Open an item; again: close it'], ['Esc', 'Close the item; back to all samples']]],
  ['The picture', [
    ['Arrows', 'Move the pixel cursor; with Shift by ten'], ['Enter', 'Pin the spectrum of the pixel, or the mean of the rectangle'],
    ['r', 'Start a rectangle at the cursor'], ['Delete', 'Remove the chosen spectrum'], ['+ −', 'Zoom'], ['0', 'Show the whole cube'],
    ['Mouse', 'Click pins a spectrum; drag moves; Shift and drag pins a rectangle’s mean; wheel zooms']]],
  ['Charts', [['← →', 'Read values band by band'], ['Enter', 'Show the band in grey']]],
];

let dialog = null;

export function help() {
  if (!dialog) {
    const close = el('button', { type: 'button', onclick: () => dialog.close() }, 'Close');
    dialog = el('dialog', { class: 'help', 'aria-labelledby': 'help-title' },
      el('div', { class: 'row' }, el('h2', { id: 'help-title' }, 'Keys'), el('span', { class: 'gap' }), close),
      el('div', { class: 'groups' }, KEYS.map(([title, keys]) => el('section', {}, el('h3', {}, title),
        el('dl', {}, keys.flatMap(([key, what]) => [el('dt', {}, el('kbd', {}, key)), el('dd', {}, what)]))))));
    document.body.append(dialog);
  }
  if (!dialog.open) dialog.showModal();
}

/** Whether the key press belongs to an input field. */
export function isTyping({ target }) {
  return target instanceof Element && target.matches('input:not([type=checkbox], [type=radio]), select, textarea');
}
