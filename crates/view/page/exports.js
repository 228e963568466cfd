// Exports: tables as CSV, pictures as PNG, links.

import { bandNumber } from './axes.js';
import { el, say } from './dom.js';

/** A cell of a CSV file. If a spreadsheet would read the text as a formula, an apostrophe is added before it. */
export function cell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return Number.isFinite(value) ? String(value) : '';
  const text = /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : value;
  return /[",\r\n;]/.test(text) || text !== text.trim() ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Spectra as CSV, with one row per band. @param {import('./chart.js').Line[]} lines */
export function spectraCsv(cube, lines) {
  const head = ['band', 'wavelength_nm',
    ...lines.flatMap(({ name, spread }) => (spread ? [name, `${name} std`] : [name]))];
  const rows = Array.from({ length: cube.shape[2] }, (_, band) => [bandNumber(cube, band), cube.wavelength?.[band] ?? null,
    ...lines.flatMap(({ values, spread }) => (spread ? [values[band], spread[band]] : [values[band]]))]);
  return csvText([head, ...rows]);
}

/** Rows of cells as the text of a CSV file. @param {(string | number | null)[][]} rows */
export const csvText = (rows) => rows.map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n';

/** A file name from the name of a sample: only letters, digits and characters that all systems accept. */
export const fileName = (...parts) =>
  parts.join('_').normalize('NFKC').replace(/[^\p{L}\p{N}._-]+/gu, '_').replace(/^[._]+|_+(?=\.\w+$)/g, '').slice(-120);

/** Downloads a file. @param {Blob} blob */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = el('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  say(`Saved ${name}`);
}

export const saveCsv = (text, name) => save(new Blob([text], { type: 'text/csv;charset=utf-8' }), name);

/** @param {HTMLCanvasElement} canvas */
export function savePng(canvas, name) {
  canvas.toBlob((blob) => { if (blob) save(blob, name); }, 'image/png');
}

/** Copies the address of the current view. */
export async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    say('Link copied. It works while this server runs.');
  } catch {
    // Some browsers refuse this; then the user copies the link by hand.
    prompt('Copy this link:', location.href);
  }
}
