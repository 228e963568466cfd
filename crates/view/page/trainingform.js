// The form with the options of the loader.

import { el, unique } from './dom.js';
import { count } from './shown.js';

const CROPS = [['whole', 'Whole cubes'], ['random', 'Random windows'], ['centre', 'The middle of each cube'], ['grid', 'All windows of a grid'],
  ['patches', 'Patches around labelled pixels']];
const ORDERS = [['shuffled', 'shuffled'], ['sequential', 'as in the dataset'], ['weighted', 'drawn by weight'], ['class_balanced', 'classes balanced'],
  ['groups_spread', 'groups spread'], ['groups_together', 'groups together']];
const NORMALS = [['none', 'not at all'], ['standardize', 'standardize bands'], ['l1', 'L1 of spectra'], ['l2', 'L2 of spectra'], ['snv', 'SNV of spectra']];
const EXAMPLE = '[{"op": "hflip", "p": 0.5},\n {"op": "gain", "range": [0.9, 1.1]}]';

/** Chosen if the loader has a setting that no option of the form can express. It cannot be the name of a split. */
const GIVEN = '\u0000given';
const GIVEN_TEXT = 'As the loader was set up';

/** Maximum number of characters of augmentations; the server accepts no longer addresses. */
const MOST = 16384;

const options = (pairs) => pairs.map(([value, text]) => el('option', { value }, text));

export function formOf(session) {
  const { about } = session.page;
  const masks = [...new Set(about.stacks.flatMap((stack) => stack.masks))];
  const splits = about.splits.filter(({ value }) => value !== null);
  const field = (text, box, broad = '') => {
    box.id = unique('setup');
    return el('div', { class: `field ${broad}` }, el('label', { for: box.id }, text), box);
  };
  const number = (min, max) => el('input', { type: 'number', min, max, step: 1 });
  const seedBox = () => el('input', { type: 'text', class: 'seed', inputmode: 'numeric', pattern: '[0-9]*', spellcheck: 'false', autocomplete: 'off' });
  const given = (value) => el('option', { value, hidden: true }, GIVEN_TEXT);
  const boxes = {
    batch_size: number(1, 65536),
    crop: el('select', { onchange: () => sizes() }, options(CROPS.filter(([kind]) => kind !== 'patches' || masks.length)),
      given('given')),
    rows: number(1, 1 << 20), columns: number(1, 1 << 20), per_cube: number(1, 65536),
    mask: el('select', {}, options(masks.map((name) => [name, name]))),
    order: el('select', {}, options(ORDERS)),
    seed: seedBox(),
    split: el('select', {}, el('option', { value: '' }, 'All samples'),
      splits.map(({ value, count: samples }) => el('option', { value }, `${value} (${count(samples)})`)), given(GIVEN)),
    normalize: el('select', {}, options(NORMALS), given(GIVEN)),
    physical: el('input', { type: 'checkbox' }),
    augment: el('textarea', { rows: 12, spellcheck: 'false', autocomplete: 'off', placeholder: EXAMPLE }),
    augment_seed: seedBox(),
  };
  const error = el('p', { class: 'error', role: 'alert', hidden: true });
  const fields = {
    rows: field('Rows', boxes.rows), columns: field('Columns', boxes.columns), per_cube: field('Windows a cube', boxes.per_cube),
    mask: field('Labels in mask', boxes.mask, 'broad'),
  };
  const physical = el('label', { class: 'check' }, boxes.physical, 'Physical values');
  const reset = el('button', { type: 'button', onclick: () => { show(); fail(''); session.ask({}); } }, 'As started');
  const form = el('form', { onsubmit: (event) => { event.preventDefault(); apply(); } },
    el('fieldset', {}, el('legend', {}, 'Loader'),
      el('div', { class: 'fields' }, field('Batch size', boxes.batch_size), field('Order', boxes.order), field('Seed', boxes.seed),
        splits.length ? field('Split', boxes.split) : null)),
    el('fieldset', {}, el('legend', {}, 'Windows'),
      el('div', { class: 'fields' }, field('Crop', boxes.crop, 'broad'), fields.rows, fields.columns, fields.per_cube, fields.mask)),
    el('fieldset', {}, el('legend', {}, 'Values'), el('div', { class: 'fields' }, field('Normalize', boxes.normalize, 'broad'), physical)),
    el('fieldset', {}, el('legend', {}, 'Augmentations'), field('As JSON', boxes.augment),
      el('div', { class: 'fields' }, field('Their seed', boxes.augment_seed))),
    error, el('div', { class: 'row' }, el('button', { type: 'submit', class: 'apply' }, 'Apply'), reset));
  const node = el('details', { class: 'section', open: matchMedia('(min-width: 48rem)').matches }, el('summary', {}, el('h2', {}, 'Options of the loader')),
    el('div', { class: 'body' }, form));

  /** Shows the size boxes that a kind of crop needs. */
  function sizes() {
    const kind = boxes.crop.value;
    const sized = !['whole', 'given'].includes(kind);
    fields.rows.hidden = fields.columns.hidden = !sized;
    fields.per_cube.hidden = kind !== 'random';
    fields.mask.hidden = kind !== 'patches';
  }

  /** The contents of the boxes, in the form that the server expects. */
  function said() {
    const kind = boxes.crop.value;
    const of = (name) => (boxes[name].type === 'checkbox' ? (boxes[name].checked ? '1' : '0') : boxes[name].value.trim());
    const names = ['batch_size', 'order', 'seed', 'split', 'normalize', 'physical', 'augment', 'crop',
      ...(['whole', 'given'].includes(kind) ? [] : ['rows', 'columns']),
      ...(kind === 'random' ? ['per_cube'] : []), ...(kind === 'patches' ? ['mask'] : []), ...(of('augment') ? ['augment_seed'] : [])];
    // An empty number box means the default.
    const numeric = ['batch_size', 'seed', 'rows', 'columns', 'per_cube', 'augment_seed'];
    return Object.fromEntries(names.map((name) => [name, of(name)]).filter(([name, text]) => text || !numeric.includes(name)));
  }

  let before = /** @type {Record<string, string>} */ ({});
  const CROP = ['crop', 'rows', 'columns', 'per_cube', 'mask'];

  /** Requests the changed options; the others stay as they were. */
  function apply() {
    if (!session.about) return;
    const now = said();
    const changed = [...new Set([...Object.keys(now), ...Object.keys(before)])].filter((name) => now[name] !== before[name]);
    if (changed.includes('augment') && now.augment.length > MOST) {
      fail(`These augmentations are longer than the ${count(MOST)} characters that fit into an address. Give them to the command instead: hsipack view PATH --augment FILE`);
      return;
    }
    // Start from the setup that was answered, not from one that was refused since.
    const setup = { ...session.about.asked.setup };
    const crop = changed.some((name) => CROP.includes(name));
    if (crop) for (const name of CROP) delete setup[name];
    for (const name of Object.keys(now)) {
      if (changed.includes(name) || (crop && CROP.includes(name))) setup[name] = now[name];
    }
    for (const name of changed) if (!(name in now)) delete setup[name];
    // New augmentations have their own seed, or use that of the loader.
    if (changed.includes('augment') && !changed.includes('augment_seed')) delete setup.augment_seed;
    fail('');
    session.ask(setup);
  }

  function show() {
    const { setup } = session.about;
    const [rows, columns] = setup.size ?? [64, 64];
    const values = { ...setup, rows, columns, split: setup.split ?? GIVEN, normalize: setup.normalize ?? GIVEN, augment: setup.augment ?? '', augment_seed: setup.augment_seed ?? '' };
    for (const [name, box] of Object.entries(boxes)) {
      if (box.type === 'checkbox') box.checked = Boolean(values[name]);
      else if (values[name] !== null && values[name] !== undefined) box.value = String(values[name]);
    }
    for (const box of [boxes.split, boxes.normalize]) if (box.selectedIndex < 0) box.value = GIVEN;
    for (const box of [boxes.crop, boxes.split, boxes.normalize]) box.lastElementChild.hidden = !box.lastElementChild.selected;
    sizes();
    before = said();
  }

  function fail(text) {
    error.hidden = !text;
    error.textContent = text;
    if (text) node.open = true;
  }

  return { node, show, fail };
}
