// Light or dark: follows the system until the user chooses.

import { el } from './dom.js';

const KEY = 'hsipack-view-theme';
const system = matchMedia('(prefers-color-scheme: dark)');

// Some browsers refuse storage with an error; then the choice lasts as long as the page.
function kept() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

function keep(theme) {
  try { localStorage.setItem(KEY, theme); } catch { /* as above */ }
}

let chosen = kept();
const current = () => (chosen === 'light' || chosen === 'dark' ? chosen : system.matches ? 'dark' : 'light');

const button = el('button', { type: 'button', class: 'quiet', onclick: toggleTheme });

function apply() {
  const theme = current();
  document.documentElement.dataset.theme = theme;
  const other = theme === 'dark' ? 'light' : 'dark';
  button.textContent = theme === 'dark' ? '☀' : '☾';
  button.setAttribute('aria-label', `Change to ${other} colours`);
  button.title = `${other[0].toUpperCase()}${other.slice(1)} colours (t)`;
  dispatchEvent(new Event('themechange'));
}

export function toggleTheme() {
  chosen = current() === 'dark' ? 'light' : 'dark';
  keep(chosen);
  apply();
}

/** Applies the theme, and returns the button that changes it. */
export function startTheme() {
  system.addEventListener('change', apply);
  apply();
  return button;
}
