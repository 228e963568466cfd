// A line chart as SVG: spectra, means of classes, histograms. A table shows the same values.

import { el, svg, unique } from './dom.js';
import { number } from './shown.js';
import { extent, logTicks, ticks } from './ticks.js';

/**
 * @typedef {object} Line
 * @property {string} name
 * @property {string} colour
 * @property {(number | null)[]} values  null: missing
 * @property {(number | null)[] | null} [spread]  half the height of the band around the line
 * @property {boolean} [dashed]
 */

/**
 * @typedef {object} Data
 * @property {string} label  what the chart shows, for screen readers
 * @property {number[]} x
 * @property {string} xTitle
 * @property {string} yTitle
 * @property {Line[]} lines
 * @property {boolean[]} [good]  false: nothing is drawn there
 * @property {{x: number, colour: string, text: string}[]} [marks]  vertical lines
 * @property {boolean} [steps]  values are steps, each from its x to the next x
 * @property {boolean} [zero]  the y axis begins at 0
 * @property {boolean} [log]  the y axis is logarithmic; values that are not greater than 0 are not drawn
 * @property {(at: number) => string} place  the text for the x of a value
 * @property {{head: string[], rows: () => string[][]}} table
 */

const HEIGHT = 230;
const MARGIN = { top: 10, right: 12, bottom: 38, left: 58 };

export class Chart {
  /** @param {((at: number) => void) | null} [onpick]  called if a value is double-clicked, or Enter is pressed on it */
  constructor(onpick = null) {
    this.onpick = onpick;
    /** @type {Data | null} */
    this.data = null;
    this.at = -1;
    this.clip = unique('clip');
    this.picture = svg('svg', { class: 'chart', role: 'img', tabindex: 0, height: HEIGHT });
    this.told = el('p', { class: 'told', 'aria-live': 'polite' });
    this.values = el('div', { class: 'scroll', tabindex: 0, role: 'region' });
    this.table = el('details', { class: 'values', ontoggle: () => this.#fillTable() },
      el('summary', {}, 'Values as a table'), this.values);
    this.node = el('div', { class: 'chart-box' }, this.picture, this.told, this.table);
    this.width = 0;
    new ResizeObserver(() => {
      if (this.node.clientWidth !== this.width) this.#draw();
    }).observe(this.node);
    this.#listen();
  }

  /** @param {Data} data */
  show(data) {
    this.data = data;
    if (this.at >= data.x.length) this.at = -1;
    this.picture.setAttribute('aria-label', data.label);
    this.values.setAttribute('aria-label', `Values: ${data.label}`);
    this.#draw();
    this.#fillTable();
  }

  #fillTable() {
    if (!this.table.open || !this.data) return;
    const { head, rows } = this.data.table;
    this.values.replaceChildren(el('table', {},
      el('thead', {}, el('tr', {}, head.map((text) => el('th', { scope: 'col' }, text)))),
      el('tbody', {}, rows().map(([first, ...cells]) =>
        el('tr', {}, el('th', { scope: 'row' }, first), cells.map((text) => el('td', {}, text)))))));
  }

  #scales() {
    const { data } = this;
    const shown = (at) => data.good?.[at] !== false;
    const height = data.log ? Math.log10 : (value) => value;
    const drawn = (value) => this.#isDrawn(value);
    const heights = function* () {
      for (const { values, spread } of data.lines) {
        for (let at = 0; at < values.length; at++) {
          if (!shown(at) || !drawn(values[at])) continue;
          const reach = spread?.[at] ?? 0;
          yield height(values[at] - reach);
          yield height(values[at] + reach);
        }
      }
    };
    const [x0, x1] = extent(data.x, data.steps ? 0 : 0.01);
    const [y0, y1] = extent(heights());
    const bottom = data.zero ? 0 : y0;
    const inner = { width: this.width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
    return {
      x: (value) => MARGIN.left + ((value - x0) / (x1 - x0)) * inner.width,
      y: (value) => MARGIN.top + (1 - (height(value) - bottom) / (y1 - bottom)) * inner.height,
      xTicks: ticks(x0, x1, Math.max(2, inner.width / 75)), yTicks: data.log ? logTicks(bottom, y1) : ticks(bottom, y1, 5), shown,
      yTick: (tick) => MARGIN.top + (1 - (tick - bottom) / (y1 - bottom)) * inner.height,
    };
  }

  #draw() {
    this.width = this.node.clientWidth;
    const { data, width } = this;
    if (!data || width < 120) return;
    const scales = this.#scales();
    const [left, right, bottom] = [MARGIN.left, width - MARGIN.right, HEIGHT - MARGIN.bottom];
    this.picture.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
    this.picture.setAttribute('width', width);
    const frame = { x: left, y: MARGIN.top, width: right - left, height: bottom - MARGIN.top };
    this.overlay = svg('g', {});
    this.picture.replaceChildren(
      svg('clipPath', { id: this.clip }, svg('rect', frame)),
      svg('g', { class: 'bad' }, this.#gaps(scales)),
      svg('g', { class: 'grid' },
        scales.yTicks.at.map((tick) => svg('path', { d: `M${left} ${scales.yTick(tick)}H${right}` })),
        scales.xTicks.at.map((tick) => svg('path', { d: `M${scales.x(tick)} ${bottom}v4` }))),
      svg('g', { class: 'axis' },
        svg('path', { d: `M${left} ${bottom}H${right}` }),
        scales.yTicks.at.map((tick) => svg('text', { x: left - 6, y: scales.yTick(tick) + 4, 'text-anchor': 'end' },
          scales.yTicks.label(tick))),
        scales.xTicks.at.map((tick) => svg('text', { x: scales.x(tick), y: bottom + 18, 'text-anchor': 'middle' },
          scales.xTicks.label(tick))),
        svg('text', { class: 'title', x: (left + right) / 2, y: HEIGHT - 5, 'text-anchor': 'middle' }, data.xTitle),
        svg('text', { class: 'title', 'text-anchor': 'middle',
          transform: `translate(12 ${(MARGIN.top + bottom) / 2}) rotate(-90)` }, data.yTitle)),
      svg('g', { 'clip-path': `url(#${this.clip})` },
        (data.marks ?? []).map(({ x, colour, text }) => svg('path', { class: 'mark', stroke: colour,
          d: `M${scales.x(x)} ${MARGIN.top}V${bottom}` }, svg('title', {}, text))),
        data.lines.map((line) => this.#line(line, scales))),
      this.overlay);
    this.#point(this.at);
  }

  /** Grey areas for bad bands. */
  #gaps({ x, shown }) {
    const { data } = this;
    const middle = (a, b) => (data.x[a] + (data.x[b] ?? data.x[a])) / 2;
    /** @type {[number, number][]} */
    const runs = [];
    data.x.forEach((_, at) => {
      if (shown(at)) return;
      if (runs.at(-1)?.[1] === at - 1) runs[runs.length - 1][1] = at;
      else runs.push([at, at]);
    });
    return runs.map(([first, last]) => {
      const ends = [x(middle(first, first - 1)), x(middle(last, last + 1))].sort((a, b) => a - b);
      return svg('rect', { x: ends[0], y: MARGIN.top, width: Math.max(1, ends[1] - ends[0]),
        height: HEIGHT - MARGIN.top - MARGIN.bottom });
    });
  }

  /** Whether a value has a place in the chart. */
  #isDrawn(value) { return value !== null && value !== undefined && (!this.data.log || value > 0); }

  /** @param {Line} line */
  #line({ values, spread, colour, dashed }, { x, y, shown }) {
    const { data } = this;
    /** @type {number[][]} */
    const runs = [];
    let run = [];
    values.forEach((value, at) => {
      if (this.#isDrawn(value) && shown(at)) run.push(at);
      else if (run.length) { runs.push(run); run = []; }
    });
    if (run.length) runs.push(run);
    const point = (at, value) => `${x(data.x[at]).toFixed(1)} ${y(value).toFixed(1)}`;
    const step = (at) => (data.steps ? `H${x(data.x[at + 1] ?? data.x[at]).toFixed(1)}` : '');
    const parts = [];
    for (const part of runs) {
      if (spread) {
        const up = part.map((at) => point(at, values[at] + (spread[at] ?? 0)));
        const down = part.map((at) => point(at, values[at] - (spread[at] ?? 0))).reverse();
        parts.push(svg('path', { class: 'spread', fill: colour, d: `M${[...up, ...down].join('L')}Z` }));
      }
      const alone = part.length === 1 && !data.steps;
      parts.push(alone
        ? svg('circle', { fill: colour, r: 2, cx: x(data.x[part[0]]), cy: y(values[part[0]]) })
        : svg('path', { class: dashed ? 'line dashed' : 'line', stroke: colour,
          d: `M${part.map((at) => point(at, values[at]) + step(at)).join('L')}` }));
    }
    return svg('g', {}, parts);
  }

  /** Shows the values at one x, in the chart and as text. */
  #point(at) {
    this.at = at;
    const { data } = this;
    if (!data || !this.overlay) return;
    if (at < 0 || !data.lines.length) {
      this.overlay.replaceChildren();
      this.told.replaceChildren(data.lines.length ? 'Point at the chart to read values.' : '');
      return;
    }
    const { x, y } = this.#scales();
    const place = x(data.x[at]);
    const bad = data.good?.[at] === false;
    this.overlay.replaceChildren(
      svg('path', { class: 'cursor', d: `M${place} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` }),
      ...data.lines.filter(({ values }) => this.#isDrawn(values[at]) && !bad && !data.steps)
        .map(({ values, colour }) => svg('circle', { class: 'dot', fill: colour, r: 3.5, cx: place, cy: y(values[at]) })));
    this.told.replaceChildren(el('b', {}, data.place(at), bad ? ' (bad band)' : ''),
      ...data.lines.map(({ name, colour, values, spread }) => {
        const reach = spread?.[at];
        const value = number(values[at]) + (reach !== null && reach !== undefined ? ` ± ${number(reach, 3)}` : '');
        return el('span', {}, swatch(colour), `${name} `, el('span', { class: 'number' }, value));
      }));
  }

  #nearest(event) {
    const box = this.picture.getBoundingClientRect();
    const { x } = this.#scales();
    const place = event.clientX - box.left;
    const centre = (at) => (this.data.steps ? (x(this.data.x[at]) + x(this.data.x[at + 1] ?? Infinity)) / 2 : x(this.data.x[at]));
    return this.data.x.reduce((best, _, at) =>
      (Math.abs(centre(at) - place) < Math.abs(centre(best) - place) ? at : best), 0);
  }

  #listen() {
    const { picture } = this;
    picture.addEventListener('pointermove', (event) => { if (this.data) this.#point(this.#nearest(event)); });
    picture.addEventListener('pointerleave', () => this.#point(-1));
    picture.addEventListener('dblclick', (event) => { if (this.data) this.onpick?.(this.#nearest(event)); });
    picture.addEventListener('keydown', (event) => {
      if (!this.data || event.ctrlKey || event.altKey || event.metaKey) return;
      const last = this.data.x.length - (this.data.steps ? 2 : 1);
      const to = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: 0, End: last,
        PageUp: this.at - 10, PageDown: this.at + 10 }[event.key];
      if (event.key === 'Enter' && this.at >= 0) this.onpick?.(this.at);
      else if (to === undefined) return;
      else this.#point(Math.min(last, Math.max(0, to)));
      event.preventDefault();
      event.stopPropagation();
    });
  }
}

/** A small coloured square. */
export function swatch(colour) {
  return el('span', { class: 'swatch', 'aria-hidden': 'true', style: { backgroundColor: colour } });
}
