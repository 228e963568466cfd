// The positions of pixels on Earth.

/** The centre of a pixel in the cube's reference system. @param {number[]} transform  six numbers in GDAL's order */
export function centre(transform, row, column) {
  const [x0, xColumn, xRow, y0, yColumn, yRow] = transform;
  const [c, r] = [column + 0.5, row + 0.5];
  return [x0 + c * xColumn + r * xRow, y0 + c * yColumn + r * yRow];
}

/** The name of a reference system; for WKT, its first quoted text. */
export function crsName(crs) {
  if (!crs) return 'unknown reference system';
  return /^[A-Z]\w*\s*\[\s*"([^"]*)"/i.exec(crs)?.[1] ?? crs;
}

/** The number of decimals needed to tell neighbouring pixels apart. */
function digits(transform) {
  const steps = [1, 2, 4, 5].map((at) => Math.abs(transform[at])).filter((step) => step > 0);
  const least = Math.min(...steps, 1e6);
  return Math.min(9, Math.max(0, 1 - Math.floor(Math.log10(least))));
}

/** The coordinates of a pixel as text, or null if the cube is not georeferenced. */
export function coordinates(geo, row, column) {
  if (!geo?.transform) return null;
  const [x, y] = centre(geo.transform, row, column);
  const places = digits(geo.transform);
  return `${x.toFixed(places)}, ${y.toFixed(places)} (${crsName(geo.crs)})`;
}
