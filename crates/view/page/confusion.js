// Scores of a confusion matrix. Pure functions: counts in, numbers out.

/**
 * @typedef {object} OfClass
 * @property {number} id
 * @property {string} label
 * @property {string} colour
 * @property {number} pixels  in the truth
 * @property {number | null} recall  share of the class's pixels in the truth that are predicted correctly; null: there are none
 * @property {number | null} precision  share of the pixels predicted as this class that are correct
 * @property {number | null} iou  pixels with the class in both masks, divided by pixels with the class in either
 */

const part = (some, all) => (all > 0 ? some / all : null);
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/**
 * @param {{classes: {id: number, label: string, colour: string}[], counts: number[][]}} confusion
 *   counts[i][j] pixels have class i in the truth and j in the prediction
 * @param {boolean} ignore  whether to skip pixels of class 0 in the truth
 * @returns {{rows: number[], classes: OfClass[], pixels: number, accuracy: number | null, meanIou: number | null}}
 *   rows: the classes that are rows of the matrix
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
