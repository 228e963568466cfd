// The band axis and the tables that all charts of spectra share.

import { bandName, number } from './shown.js';

/** The number of a band in the file, if only some bands are read. */
export const bandNumber = (cube, band) => cube.bands?.[band] ?? band;

/** Wavelengths if all are known, otherwise the numbers of the bands. */
export function bandAxis(cube) {
  const { wavelength, good_bands: good, shape } = cube;
  const known = wavelength?.every((value) => value !== null);
  const x = known ? wavelength : Array.from({ length: shape[2] }, (_, band) => bandNumber(cube, band));
  return {
    x, good: good ?? undefined, xTitle: known ? 'Wavelength (nm)' : 'Band',
    yTitle: cube.unit ? `Value (${cube.unit})` : 'Value',
    place: (band) => `Band ${bandNumber(cube, band)}${known ? `, ${bandName(cube, band)}` : ''}`,
  };
}

/** The table beside a chart of spectra. @param {import('./chart.js').Line[]} lines */
export function bandTable(cube, lines) {
  const spreads = lines.map(({ spread }) => Boolean(spread));
  return {
    head: ['Band', 'Wavelength (nm)', ...lines.flatMap(({ name }, at) => (spreads[at] ? [name, `${name} ± std`] : [name]))],
    rows: () => Array.from({ length: cube.shape[2] }, (_, band) => [
      `${bandNumber(cube, band)}${cube.good_bands?.[band] === false ? ' (bad)' : ''}`,
      number(cube.wavelength?.[band] ?? null, 7).replace('missing', 'unknown'),
      ...lines.flatMap(({ values, spread }) => {
        const value = number(values[band], 7);
        return spread ? [value, number(spread[band], 7)] : [value];
      }),
    ]),
  };
}
