// The state of the view: as one object, and as the part of the address after '#', so that a link opens the view again.

/**
 * @typedef {object} Overview
 * @property {'overview'} page
 * @property {string | null} split  null: all; '': samples without one
 * @property {string | null} group
 * @property {string | null} label  a JSON scalar as text
 * @property {string} where
 * @property {string} sort
 * @property {boolean} descending
 * @property {number} first  the sample at the top
 */

/**
 * @typedef {object} Pin  a pinned spectrum: of a pixel, or the mean of a rectangle
 * @property {[number, number]} rows
 * @property {[number, number]} columns
 * @property {string} name
 * @property {string} colour  #rrggbb
 */

/**
 * @typedef {object} CubeView
 * @property {'cube'} page
 * @property {number} id
 * @property {number[] | null} bands  three, or one for grey; null: the first preset
 * @property {[number, number]} stretch  percentiles that become black and full colour
 * @property {{row: number, column: number, scale: number} | null} at  the centre, and CSS pixels per pixel; null: the whole cube
 * @property {[number, number] | null} cursor
 * @property {string | null} mask  null: the first mask; '': none
 * @property {number} opacity  of the mask, 0 to 1
 * @property {number[] | null} hidden  classes that are switched off; null: background
 * @property {Pin[]} pins
 * @property {number} chosen  index of the chosen spectrum
 * @property {boolean} angle  whether the map of angles to the chosen spectrum is shown
 * @property {'' | 'deviation' | 'spectrum' | 'agreement' | 'difference'} map  what replaces the picture, before the map of angles
 * @property {number | null} mapband  the band of the map; null: the first shown band
 * @property {number | null} limit  the largest value of the map's colours
 * @property {boolean} relative  whether the chart of precision shows relative deviations
 * @property {string | null} truth  the mask to compare with; null: the first mask that is not the prediction
 * @property {string | null} prediction  the mask to compare; null: the first mask that is not the truth
 * @property {boolean} ignore  whether to skip pixels of class 0 in the truth
 * @property {[number, number] | null} cell  the classes, in truth and prediction, of the pixels to highlight
 * @property {number | null} other  the sample beside this one
 * @property {string | null} array  the array of the sample that is shown; null: the image
 * @property {[number, number] | null} range  the values at the ends of a target's colours; null: the percentiles
 * @property {string | null} beside  the array of the sample that is shown beside this one
 * @property {number[] | null} besidebands  its bands
 * @property {[number, number] | null} besiderange  its range
 * @property {string[]} open  sections that are unfolded
 * @property {string} training  the options of the loader whose windows are drawn, as part of an address
 * @property {number} epoch  the epoch of these windows
 */

/**
 * @typedef {object} TrainingView
 * @property {'training'} page
 * @property {number} epoch
 * @property {number} batch
 * @property {number} first  the item of the batch that is listed first
 * @property {number | null} place  the item that is open
 * @property {[number, number] | null} readAt  a pixel of the item as it is read
 * @property {[number, number] | null} augmentedAt  a pixel of the item as it is augmented
 * @property {string | null} bands  name of a preset; null: the first preset
 * @property {string | null} mask  null: the first mask; '': none
 * @property {import('./api.js').Setup} setup
 */

/** @returns {Overview} */
export const overview = () =>
  ({ page: 'overview', split: null, group: null, label: null, where: '', sort: 'id', descending: false, first: 0 });

/** @returns {CubeView} */
export const cubeView = (id) => ({
  page: 'cube', id, bands: null, stretch: [2, 98], at: null, cursor: null, mask: null, opacity: 0.4, hidden: null,
  pins: [], chosen: 0, angle: false, map: '', mapband: null, limit: null, relative: false,
  truth: null, prediction: null, ignore: false, cell: null, other: null, array: null, range: null, beside: null,
  besidebands: null, besiderange: null, open: ['display', 'spectra', 'masks'],
  training: '', epoch: 0,
});

/** @returns {TrainingView} */
export const trainingView = () => ({ page: 'training', epoch: 0, batch: 0, first: 0, place: null, readAt: null, augmentedAt: null,
  bands: null, mask: null, setup: {} });

/** No item of a batch is open. */
export const NO_ITEM = { place: null, readAt: null, augmentedAt: null };

/** Whether two plain values are equal. */
export const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const round = (value, digits) => Number(value.toFixed(digits));
const whole = (text) => (/^\d{1,12}$/.test(text) ? Number(text) : NaN);
const sound = (numbers) => (numbers.every(Number.isFinite) ? numbers : null);

/** The numbers of a list, or null if one of them is not a number. */
const list = (text, read = whole) => sound(text.split(',').map(read));

function range(text) {
  const ends = sound(text.split(':').map(whole));
  return ends?.length === 2 && ends[0] < ends[1] ? /** @type {[number, number]} */ (ends) : null;
}

/** @returns {Pin | null} */
function pin(text) {
  const [rows, columns, colour, ...name] = text.split('~');
  const found = { rows: range(rows ?? ''), columns: range(columns ?? ''), colour: `#${colour}`, name: name.join('~') };
  if (!found.rows || !found.columns || !/^#[0-9a-f]{6}$/.test(found.colour)) return null;
  return /** @type {Pin} */ (found);
}

function place(text) {
  const [row, column, scale] = text.split(',').map(Number);
  return sound([row, column, scale]) && scale > 0 ? { row, column, scale } : null;
}

const MAPS = ['deviation', 'spectrum', 'agreement', 'difference'];
const yes = [(value) => (value ? '1' : ''), (text) => text === '1'];
const name = [(value) => value, (text) => text];
const index = [String, (text) => sound([whole(text)])?.[0] ?? null];
const two = [(value) => value.join(','), (text) => { const both = list(text); return both?.length === 2 ? both : null; }];
const bands = [(value) => value.join(','), (text) => {
  const found = list(text);
  return found && (found.length === 1 || found.length === 3) ? found : null;
}];
const limits = [(value) => value.map((end) => Number(end.toPrecision(6))).join(','), (text) => {
  const ends = list(text, Number);
  return ends?.length === 2 && ends[0] < ends[1] ? ends : null;
}];

/**
 * How each part of a cube's view is written and read. A part that cannot be read keeps its default.
 * @type {Record<string, [(value: any) => string, (text: string) => any]>}
 */
const CUBE = {
  bands,
  stretch: [(value) => value.join(','), (text) => {
    const ends = list(text, Number);
    return ends?.length === 2 && ends[0] >= 0 && ends[0] < ends[1] && ends[1] <= 100 ? ends : null;
  }],
  at: [({ row, column, scale }) => [round(row, 2), round(column, 2), round(scale, 4)].join(','), place],
  cursor: two,
  mask: name,
  opacity: [String, (text) => Math.min(1, Math.max(0, Number(text) || 0))],
  hidden: [(value) => value.join(','), (text) => (text === '' ? [] : list(text))],
  chosen: [String, (text) => whole(text) || 0],
  angle: yes,
  map: [String, (text) => (MAPS.includes(text) ? text : null)],
  mapband: index,
  limit: [(value) => String(Number(value.toPrecision(4))), (text) => (Number(text) > 0 ? Number(text) : null)],
  relative: yes, truth: name, prediction: name, ignore: yes, cell: two, other: index,
  array: name, range: limits, beside: name, besidebands: bands, besiderange: limits,
  open: [(value) => value.join(','), (text) => text.split(',').filter((name) => name)],
  training: name, epoch: index,
};

/** The same for the view of training. All other parts of the address are options of the loader. */
const TRAINING = { epoch: index, batch: index, first: index, place: index, readAt: two, augmentedAt: two, bands: name, mask: name };
/** The mask that is shown has another name in the address, because `mask` is an option of the loader. */
const SPELT = { mask: 'overlay' };

/** Uses only characters that chat programs keep in a link. */
const text = (parts) => parts.toString().replaceAll('%2C', ',').replaceAll('%3A', ':').replaceAll('%7E', '~');

/** The part of the address after '#'. @param {Overview | CubeView | TrainingView} state */
export function write(state) {
  const parts = new URLSearchParams();
  if (state.page === 'training') {
    const usual = trainingView();
    for (const [name, [show]] of Object.entries(TRAINING)) {
      if (state[name] !== null && !same(state[name], usual[name])) parts.set(SPELT[name] ?? name, show(state[name]));
    }
    for (const [name, value] of Object.entries(state.setup)) parts.set(name, value);
    return `#training${parts.size ? `?${text(parts)}` : ''}`;
  }
  if (state.page === 'cube') {
    const usual = cubeView(state.id);
    for (const [name, [show]] of Object.entries(CUBE)) {
      if (state[name] !== null && !same(state[name], usual[name])) parts.set(name, show(state[name]));
    }
    for (const { rows, columns, colour, name } of state.pins) {
      parts.append('pin', [rows.join(':'), columns.join(':'), colour.slice(1), name].join('~'));
    }
    return `#cube/${state.id}${parts.size ? `?${text(parts)}` : ''}`;
  }
  for (const name of ['split', 'group', 'label']) {
    if (state[name] !== null) parts.set(name, state[name]);
  }
  if (state.where) parts.set('where', state.where);
  if (state.sort !== 'id') parts.set('sort', state.sort);
  if (state.descending) parts.set('descending', '1');
  if (state.first) parts.set('first', String(state.first));
  return parts.size ? `#samples?${text(parts)}` : '#samples';
}

/** @param {URLSearchParams} parts @returns {TrainingView} */
function readTraining(parts) {
  const state = trainingView();
  for (const [name, [, take]] of Object.entries(TRAINING)) {
    const given = parts.get(SPELT[name] ?? name);
    if (given !== null) state[name] = take(given) ?? state[name];
    parts.delete(SPELT[name] ?? name);
  }
  state.setup = Object.fromEntries(parts);
  return state;
}

/** Reads the part of an address after '#'. @returns {Overview | CubeView | TrainingView} */
export function read(hash) {
  const [path, ...rest] = hash.replace(/^#/, '').split('?');
  const parts = new URLSearchParams(rest.join('?'));
  if (path === 'training') return readTraining(parts);
  const [, id] = /^cube\/(\d{1,12})$/.exec(path) ?? [];
  if (id !== undefined) {
    const state = cubeView(Number(id));
    for (const [name, [, take]] of Object.entries(CUBE)) {
      const given = parts.get(name);
      state[name] = given === null ? state[name] : take(given) ?? state[name];
    }
    state.pins = parts.getAll('pin').map(pin).filter((found) => found !== null);
    return state;
  }
  const state = overview();
  for (const name of ['split', 'group', 'label']) state[name] = parts.get(name);
  state.where = parts.get('where') ?? '';
  state.sort = parts.get('sort') ?? 'id';
  state.descending = parts.get('descending') === '1';
  state.first = whole(parts.get('first') ?? '') || 0;
  return state;
}

/**
 * A state that informs its listeners about changes.
 * @template {object} T
 * @param {T} state
 */
export function store(state) {
  /** @type {{names: string[], act: () => void}[]} */
  const listeners = [];
  return {
    state,
    /** Calls `act` after one of these properties has changed. */
    on(names, act) { listeners.push({ names, act }); },
    /** @param {Partial<T>} patch */
    set(patch) {
      const changed = Object.keys(patch).filter((name) => !same(state[name], patch[name]));
      if (!changed.length) return;
      Object.assign(state, patch);
      for (const { names, act } of listeners) {
        if (names.includes('*') || names.some((name) => changed.includes(name))) act();
      }
    },
  };
}
