// The band axis, the marks and the tables that all charts of spectra share.

import { CHANNELS, GREY } from './palette.js';
import { bandName, bandWord, isTarget, number, shownBands } from './shown.js';

/** The number of a band in the file, if only some bands are read. */
export const bandNumber = (cube, band) => cube.bands?.[band] ?? band;

/** Wavelengths if all are known, otherwise the numbers of the bands. */
export function bandAxis(cube) {
  const { wavelength, good_bands: good, shape } = cube;
  const known = wavelength?.every((value) => value !== null);
  const x = known ? wavelength : Array.from({ length: shape[2] }, (_, band) => bandNumber(cube, band));
  return {
    x, good: good ?? undefined, xTitle: known ? 'Wavelength (nm)' : bandWord(cube),
    yTitle: cube.unit ? `Value (${cube.unit})` : 'Value',
    place: (band) => `${bandWord(cube)} ${bandNumber(cube, band)}${known || isTarget(cube) ? `, ${bandName(cube, band)}` : ''}`,
  };
}

/** Marks of the shown bands. */
export function bandMarks(cube, view) {
  const { wavelength } = cube;
  const known = wavelength?.every((value) => value !== null);
  const bands = shownBands(cube, view);
  return bands.map((band, at) => ({ x: known ? wavelength[band] : band, colour: bands.length === 1 ? GREY : CHANNELS[at],
    text: `Shown: ${bandWord(cube).toLowerCase()} ${band}, ${bandName(cube, band)}` }));
}

/** The table beside a chart of spectra. @param {import('./chart.js').Line[]} lines */
export function bandTable(cube, lines) {
  const spreads = lines.map(({ spread }) => Boolean(spread));
  return {
    head: [bandWord(cube), isTarget(cube) ? 'Name' : 'Wavelength (nm)', ...lines.flatMap(({ name }, at) => (spreads[at] ? [name, `${name} ± std`] : [name]))],
    rows: () => Array.from({ length: cube.shape[2] }, (_, band) => [
      `${bandNumber(cube, band)}${cube.good_bands?.[band] === false ? ' (bad)' : ''}`,
      isTarget(cube) ? bandName(cube, band) : number(cube.wavelength?.[band] ?? null, 7).replace('missing', 'unknown'),
      ...lines.flatMap(({ values, spread }) => {
        const value = number(values[band], 7);
        return spread ? [value, number(spread[band], 7)] : [value];
      }),
    ]),
  };
}
