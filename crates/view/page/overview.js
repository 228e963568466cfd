// The page of all samples: filters, sorting, and the grid of thumbnails.

import * as api from './api.js';
import { debounced, el, unique } from './dom.js';
import { counted, Grid } from './grid.js';
import { count } from './shown.js';
import { cubeView, store, trainingView, write } from './state.js';

const SORTS = [['id', 'dataset order'], ['name', 'name'], ['split', 'split'], ['group', 'group'], ['label', 'label'], ['nan', 'missing values']];

/**
 * Opens the overview.
 * @param {import('./state.js').Overview} state
 * @param {{about: any, main: HTMLElement, fail: (error: any, again?: () => void) => void,
 *   clear: () => void, save: (state: any) => void, focused: number | null}} page  focused: the sample that was last opened
 */
export function openOverview(state, page) {
  const { about, main } = page;
  document.title = `${about.title} – hsipack view`;
  const view = store(state);
  const total = el('p', { class: 'total', role: 'status' });
  const where = condition(view, about);
  const empty = el('p', { class: 'muted empty', hidden: true },
    about.samples ? 'No sample meets these filters.' : 'There are no samples.');
  const grid = new Grid({
    ask: (offset, limit, signal) => api.samples(query(view.state, offset, limit), signal),
    link: (id) => write(cubeView(id)),
    packed: about.kind === 'dataset',
    onFirst: (first) => view.set({ first }),
    onTotal: (shown) => {
      total.textContent = counted(shown, about.samples);
      empty.hidden = shown > 0;
      where.fail('');
      page.clear();
    },
    fail: (error, again) => {
      // Show an error in the condition beside its box.
      if (error.status === 400 && view.state.where) {
        where.fail([error.message, error.remedy].filter(Boolean).join(' – '));
        total.textContent = '';
        return;
      }
      page.fail(error, again);
    },
  });
  const reset = el('button', { type: 'button', onclick: () => {
    view.set({ split: null, group: null, label: null, where: '', sort: 'id', descending: false });
  } }, 'Reset');
  const more = [['split', 'Split', about.splits], ['group', 'Group', about.groups], ['label', 'Label', about.labels]]
    .filter(([, , values]) => values.length > 1 || (values.length === 1 && values[0].value !== null))
    .map(([name, title, values]) => choice(view, name, title, values));
  const chosen = ['split', 'group', 'label', 'where'].some((name) => state[name]);
  const filters = el('details', { class: 'filters', open: chosen || matchMedia('(min-width: 48rem)').matches },
    el('summary', {}, 'Filters and order'),
    el('div', { class: 'row', role: 'search', 'aria-label': 'Samples' }, more, sorting(view, about), where.node, reset));
  main.className = 'overview-page';
  main.replaceChildren(el('div', { class: 'overview' }, filters,
    el('div', { class: 'row counts' }, el('h2', { class: 'hidden' }, 'Samples'), total, el('span', { class: 'gap' }),
      about.kind === 'dataset' && about.samples ? el('a', { href: write(trainingView()) }, 'What training is given') : null), empty, grid.node));

  view.on(['*'], () => page.save(view.state));
  view.on(['split', 'group', 'label', 'where', 'sort', 'descending'], () => {
    where.fail('');
    empty.hidden = true;
    grid.reset();
    view.set({ first: 0 });
  });
  grid.reset(state.first, page.focused);
  return {
    keys(event) {
      if (event.key !== '/' || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      filters.open = true;
      where.focus();
    },
    /** The place of the sample that has or had the focus. */
    active: () => grid.active,
    stop: () => grid.stop(),
  };
}

/** The query for the server. */
export function query({ split, group, label, where, sort, descending }, offset, limit) {
  return {
    offset, limit, sort, descending: descending ? 1 : undefined,
    split: split ?? undefined, group: group ?? undefined, label: label ?? undefined, where: where || undefined,
  };
}

/** A list of the values of a column, with the number of samples of each. */
function choice(view, name, title, values) {
  const id = unique(name);
  // A label can be any JSON value, so it is sent as JSON.
  const given = (value) => (value === null ? '' : name === 'label' ? JSON.stringify(value) : value);
  const text = (value) => (value === null ? `without ${name}` : String(value));
  const select = el('select', { id, onchange: () =>
    view.set({ [name]: select.value === 'all' ? null : given(values[Number(select.value)].value) }) },
  el('option', { value: 'all' }, `All`),
  values.map(({ value, count: samples }, at) => el('option', { value: String(at) }, `${text(value)} (${count(samples)})`)));
  const show = () => {
    const at = values.findIndex(({ value }) => given(value) === view.state[name]);
    // A link can name a value that is not in the list.
    select.value = view.state[name] === null ? 'all' : String(at);
  };
  view.on([name], show);
  show();
  return el('div', { class: 'field' }, el('label', { for: id }, title), select);
}

function sorting(view, about) {
  const id = unique('sort');
  const columns = about.columns.filter((column) => !SORTS.some(([known]) => known === column));
  const select = el('select', { id, onchange: () => view.set({ sort: select.value }) },
    SORTS.map(([value, text]) => el('option', { value }, text)),
    columns.length ? el('optgroup', { label: 'Columns' }, columns.map((column) => el('option', { value: column }, column))) : null);
  const button = el('button', { type: 'button', onclick: () => view.set({ descending: !view.state.descending }) });
  const show = () => {
    select.value = view.state.sort;
    button.textContent = view.state.descending ? '↓' : '↑';
    button.setAttribute('aria-label', view.state.descending ? 'Descending order; change to ascending' : 'Ascending order; change to descending');
    button.title = view.state.descending ? 'Descending' : 'Ascending';
  };
  view.on(['sort', 'descending'], show);
  show();
  return el('div', { class: 'field' }, el('label', { for: id }, 'Sort by'), el('span', { class: 'pair' }, select, button));
}

/** The box for a condition. */
function condition(view, about) {
  const id = unique('where');
  const error = el('p', { class: 'error', id: `${id}-error`, role: 'alert', hidden: true });
  const set = () => view.set({ where: box.value.trim() });
  const later = debounced(set, 500);
  const box = el('input', { id, type: 'search', spellcheck: 'false', autocomplete: 'off', placeholder: 'such as split == "train"',
    'aria-describedby': `${id}-error ${id}-columns`, oninput: later, onchange: () => { later.stop(); set(); } });
  const hint = el('p', { class: 'muted small', id: `${id}-columns` },
    about.columns.length ? `Columns: ${about.columns.slice(0, 30).join(', ')}${about.columns.length > 30 ? ', …' : ''}` : '');
  const node = el('div', { class: 'field wide' }, el('label', { for: id }, 'Condition'), box, error, hint);
  const show = () => { if (box.value.trim() !== view.state.where) box.value = view.state.where; };
  view.on(['where'], show);
  show();
  return {
    node,
    fail(text) {
      error.hidden = !text;
      error.textContent = text;
      box.setAttribute('aria-invalid', String(Boolean(text)));
    },
    focus: () => box.focus(),
  };
}
