// The section "Histogram": how often values occur in the bands that are shown.

import { Chart } from './chart.js';
import { el, section } from './dom.js';
import { CHANNELS, GREY } from './palette.js';
import { bandName, bandWord, count, number, shownBands } from './shown.js';
import { histogram } from './stretch.js';

const STEPS = 64;

export function histogramSection(session) {
  const { cube, view, image } = session;
  const chart = new Chart();
  const said = el('p', { class: 'muted hint' });
  const fold = session.fold('histogram');
  const { node, body } = section('histogram', 'Histogram', view.state.open.includes('histogram'), (open) => {
    fold(open);
    show();
  });
  body.append(said, chart.node);
  let drawn = '';

  function show() {
    const bands = shownBands(cube, view.state);
    const planes = bands.map((band) => image.whole.planes.get(band));
    const key = JSON.stringify([bands, view.state.stretch, view.state.range]);
    if (!node.open || key === drawn || planes.some((plane) => !plane)) return;
    drawn = key;
    // All bands use the same steps, from the lowest to the highest value of any band.
    const ends = planes.map((plane) => histogram(plane, 1));
    const low = Math.min(...ends.map((one) => one.low));
    const high = Math.max(...ends.map((one) => one.high));
    const colours = bands.length === 1 ? [GREY] : CHANNELS;
    const lines = bands.map((band, at) => ({
      name: `${bandWord(cube)} ${band}, ${bandName(cube, band)}`, colour: colours[at],
      values: histogram(planes[at], STEPS, [low, high]).counts,
    }));
    const x = Array.from({ length: STEPS + 1 }, (_, step) => low + ((high - low) * step) / STEPS);
    const place = (at) => `${number(x[at], 4)} to ${number(x[at + 1], 4)}`;
    const limits = image.limits();
    const marks = limits.flatMap((one, at) => [one.low, one.high].map((value, end) => ({
      x: value, colour: colours[at],
      text: view.state.range ? ['Lowest', 'Highest'][end] + ' value of the colours' : `${view.state.stretch[end]}th percentile of band ${bands[at]}`,
    })));
    said.textContent = image.whole.full ? '' : 'Computed from evenly spaced pixels, because the cube is large.';
    chart.show({
      x, lines, marks, place, steps: true, zero: true, yTitle: 'Pixels', xTitle: cube.unit ? `Value (${cube.unit})` : 'Value',
      label: `Histogram of ${lines.map(({ name }) => name).join('; ')}`,
      table: {
        head: ['Values', ...lines.map(({ name }) => name)],
        rows: () => Array.from({ length: STEPS }, (_, at) => [place(at), ...lines.map(({ values }) => count(values[at]))]),
      },
    });
  }
  return { node, show };
}
