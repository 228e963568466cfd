// Colours of classes (as in hsipack's previews), pinned spectra, scales and missing data.

/** @typedef {[number, number, number]} Colour  sRGB */

/** Pixels without data: a pale violet that cannot be mistaken for a grey of the picture. @type {Colour} */
export const NODATA = [206, 190, 220];

/** Colours of lines: visible on light and dark pages, and as distinct for colour-blind people as eight colours can be. */
export const LINES = ['#0072b2', '#d55e00', '#00916a', '#c4669b', '#8a63d2', '#8f7d00', '#1a8fa8', '#a5673f'];

/** Colours of the lines of the red, green and blue band, and of a grey band. */
export const CHANNELS = ['#d0443c', '#2f8f46', '#3f74d8'];
export const GREY = '#7a7f8a';

const OKABE_ITO = [
  [0, 114, 178], [213, 94, 0], [0, 158, 115], [204, 121, 167], [230, 159, 0], [86, 180, 233], [188, 172, 20],
];

/** The colour of a class if the server gives none. @returns {Colour} */
export function classColour(id) {
  if (id === 0) return [120, 120, 120];
  if (id <= OKABE_ITO.length) return /** @type {Colour} */ (OKABE_ITO[id - 1]);
  const step = id - OKABE_ITO.length;
  return hsl((step * 137.508 + 25) % 360, 0.65, [0.38, 0.55, 0.28][step % 3]);
}

/** @returns {Colour} */
function hsl(hue, saturation, lightness) {
  const reach = saturation * Math.min(lightness, 1 - lightness);
  const part = (offset) => {
    const k = (offset + hue / 30) % 12;
    return Math.round((lightness - reach * Math.max(-1, Math.min(k - 3, 9 - k, 1))) * 255);
  };
  return [part(0), part(8), part(4)];
}

/** @returns {Colour} */
export const rgb = (hex) =>
  /** @type {Colour} */ ([1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16)));

/** @param {Colour} colour */
export const hex = (colour) => `#${colour.map((part) => part.toString(16).padStart(2, '0')).join('')}`;

// Viridis at 16 evenly spaced places: equal steps of a value look equally large, also in grey.
const VIRIDIS = [
  '#440154', '#481a6c', '#472f7d', '#414487', '#39568c', '#31688e', '#2a788e', '#23888e', '#1f988b',
  '#22a884', '#35b779', '#54c568', '#7ad151', '#a5db36', '#d2e21b', '#fde725',
].map(rgb);

// ColorBrewer's RdBu: blue below 0, red above, white in the middle; also distinct for colour-blind people.
const BLUE_RED = ['#2166ac', '#67a9cf', '#d1e5f0', '#f7f7f7', '#fddbc7', '#ef8a62', '#b2182b'].map(rgb);

/** The colour at a position of a scale, from 0 to 1. @param {Colour[]} scale @returns {Colour} */
function along(scale, part) {
  const at = Math.min(1, Math.max(0, part)) * (scale.length - 1);
  const below = Math.min(Math.floor(at), scale.length - 2);
  const share = at - below;
  return /** @type {Colour} */ (scale[below].map((from, channel) =>
    Math.round(from + (scale[below + 1][channel] - from) * share)));
}

/** For values that are 0 or greater. @param {number} part */
export const viridis = (part) => along(VIRIDIS, part);

/** For values on both sides of 0; 0 is in the middle. @param {number} part */
export const blueRed = (part) => along(BLUE_RED, part);

/** Pixels in which two masks disagree, and pixels of a chosen cell. @type {Colour} */
export const WRONG = [204, 0, 92];
/** @type {Colour} */
export const CHOSEN = [255, 200, 0];
