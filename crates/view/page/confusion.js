// What a confusion matrix says. Pure: counts in, numbers out.

/**
 * @typedef {object} OfClass
 * @property {number} id
 * @property {string} label
 * @property {string} colour
 * @property {number} pixels  in the truth
 * @property {number | null} recall  of the pixels of the truth, how many are found; null: there are none
 * @property {number | null} precision  of the pixels that are called so, how many are right
 * @property {number | null} iou  of the pixels of either, how many are of both
 */

const part = (some, all) => (all > 0 ? some / all : null);
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/**
 * @param {{classes: {id: number, label: string, colour: string}[], counts: number[][]}} confusion
 *   counts[i][j] pixels have class i in the truth and j in the prediction
 * @param {boolean} ignore  whether pixels of class 0 in the truth are left out
 * @returns {{rows: number[], classes: OfClass[], pixels: number, accuracy: number | null, meanIou: number | null}}
 *   rows: which of the classes are rows of the matrix
 */
export function scores({ classes, counts }, ignore) {
  const rows = classes.flatMap(({ id }, at) => (ignore && id === 0 ? [] : [at]));
  const pixels = sum(rows.map((at) => sum(counts[at])));
  const found = rows.map((at) => {
    const right = counts[at][at];
    const inTruth = sum(counts[at]);
    const called = sum(rows.map((row) => counts[row][at]));
    return { ...classes[at], pixels: inTruth, recall: part(right, inTruth), precision: part(right, called),
      iou: part(right, inTruth + called - right) };
  });
  const ious = found.flatMap(({ iou }) => (iou === null ? [] : [iou]));
  return { rows, classes: found, pixels, accuracy: part(sum(rows.map((at) => counts[at][at])), pixels),
    meanIou: part(sum(ious), ious.length) };
}
