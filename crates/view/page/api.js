// Requests to the server: one function per question. All addresses are relative to the page, whose
// own address contains the token.

/** An error to show to the user: what is wrong and what to do. */
export class ApiError extends Error {
  /** @param {string} message @param {string | null} remedy @param {number} status 0: no answer */
  constructor(message, remedy, status) {
    super(message);
    this.remedy = remedy;
    this.status = status;
  }
}

/** Whether an error only means that the request was aborted. */
export const isAborted = (error) => error?.name === 'AbortError';

async function request(path, signal) {
  let answer;
  try {
    answer = await fetch(path, { signal, cache: 'no-store', credentials: 'omit' });
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ApiError('The server does not answer; it may have ended.',
      'Start `hsipack view` again, and open the address that it prints.', 0);
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let told = {};
  try {
    told = JSON.parse(text) ?? {};
  } catch {
    // Not an error that the server describes: only its status is known.
  }
  throw new ApiError(told.error ?? `The server answered ${answer.status}.`, told.remedy ?? null, answer.status);
}

const json = async (path, signal) => (await request(path, signal)).json();

/** The numbers of a binary answer, of one of these kinds, and their shape. */
async function numbers(path, signal, ...kinds) {
  const answer = await request(path, signal);
  const shape = (answer.headers.get('X-Shape') ?? '').split(',').map(Number);
  const bytes = await answer.arrayBuffer();
  const length = shape.reduce((product, edge) => product * edge, 1);
  const Kind = kinds.find((kind) => length * kind.BYTES_PER_ELEMENT === bytes.byteLength);
  if (!Kind) {
    throw new ApiError('The server sent a picture of the wrong size.', 'Load the page again.', 0);
  }
  // The server sends little-endian numbers, as all browsers use.
  return { shape, data: new Kind(bytes) };
}

/** @param {Record<string, any>} options  values that are undefined or null are skipped */
function query(options) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && value !== null) parts.set(name, String(value));
  }
  // Commas and colons need no escapes.
  return parts.toString().replaceAll('%2C', ',').replaceAll('%3A', ':');
}

/** The values of a mask are class ids, or sets of layers, of which layer 0 is the lowest bit. */
const MASKS = [Uint16Array, BigUint64Array];

/** @typedef {{rows: [number, number], columns: [number, number]}} Region  ends are exclusive */

const range = ([start, end]) => `${start}:${end}`;
const region = ({ rows, columns }) => ({ rows: range(rows), columns: range(columns) });

export const about = (signal) => json('api/about', signal);
export const samples = (options, signal) => json(`api/samples?${query(options)}`, signal);
export const cube = (id, signal) => json(`api/cube/${id}`, signal);
export const ping = () => json('api/ping');

/** A small picture of a sample. @returns {Promise<Blob>} */
export const thumbnail = async (id, side, signal) =>
  (await request(`api/thumbnail/${id}?side=${side}`, signal)).blob();

/** @typedef {{id: number, array: string | null}} OfArray  an array of a sample; null: its image */

/** Values of some bands in a region, thinned out to at most `side` pixels along the longer edge. @param {OfArray} of */
export const planes = ({ id, array }, bands, where, side, signal) =>
  numbers(`api/cube/${id}/planes?${query({ bands: bands.join(','), ...region(where), side, array })}`, signal, Float32Array);

/** A mask of the sample in the pixels of one of its arrays. @param {OfArray} of */
export const mask = ({ id, array }, name, where, side, signal) =>
  numbers(`api/cube/${id}/mask/${encodeURIComponent(name)}?${query({ ...region(where), side, array })}`, signal, ...MASKS);

/** @param {OfArray} of */
export const spectrum = ({ id, array }, where, signal) =>
  json(`api/cube/${id}/spectrum?${query({ ...region(where), array })}`, signal);

export const classes = (id, name, signal) =>
  json(`api/cube/${id}/classes/${encodeURIComponent(name)}`, signal);

/** Angles of all pixels to the mean spectrum of a region. @param {OfArray} of */
export const angles = ({ id, array }, where, side, signal) =>
  numbers(`api/cube/${id}/angles?${query({ ...region(where), side, array })}`, signal, Float32Array);

/** How far the packed values are from those of the source, band by band. */
export const precision = (id, signal) => json(`api/cube/${id}/precision`, signal);

/** The deviation of each pixel: of a band, with its sign; or, if `band` is undefined, of the whole spectrum, relative to it. */
export const deviation = (id, band, where, side, signal) =>
  numbers(`api/cube/${id}/deviation?${query({ band, ...region(where), side })}`, signal, Float32Array);

/** How many items of a batch are listed at once. */
export const LISTED = 64;

/** @typedef {Record<string, string>} Setup  the loader's options that differ from those the viewer was started with */
/** @typedef {{setup: Setup, epoch: number, batch: number, place?: number | null}} Where  a batch, or an item of it */

/** The loader's options, and what it delivers in an epoch. @param {Setup} setup */
export const training = (setup, epoch, signal) => json(`api/training?${query({ ...setup, epoch })}`, signal);

const item = ({ setup, epoch, batch, place }) => ({ ...setup, epoch, batch, place });

/** The items of a batch. @param {Where} where */
export const trainingBatch = (where, first, signal) =>
  json(`api/training/batch?${query({ ...item(where), first, limit: LISTED })}`, signal);

/** Values of some bands of an item, as it is read or augmented. @param {Where} where */
export const trainingPlanes = (where, what, bands, side, signal) =>
  numbers(`api/training/planes?${query({ ...item(where), what, bands: bands.join(','), side })}`, signal, Float32Array);

/** @param {Where} where */
export const trainingMask = (where, what, name, side, signal) =>
  numbers(`api/training/mask?${query({ ...item(where), what, name, side })}`, signal, ...MASKS);

/** The spectrum of a pixel of an item, or the mean of all. @param {Where} where @param {[number, number] | null} pixel */
export const trainingSpectrum = (where, what, pixel, signal) =>
  json(`api/training/spectrum?${query({ ...item(where), what, row: pixel?.[0], column: pixel?.[1] })}`, signal);

/** The batches that contain windows of a sample. @param {Setup} setup */
export const trainingPlaces = (setup, epoch, sample, signal) =>
  json(`api/training/places?${query({ ...setup, epoch, sample })}`, signal);

/** The number of pixels for each pair of classes in two masks. */
export const confusion = (id, truth, prediction, signal) =>
  json(`api/cube/${id}/confusion?${query({ truth, prediction })}`, signal);

/** Keeps only the newest of several requests: a new request aborts the previous one, and late answers are dropped. */
export class Latest {
  #controller = null;

  /**
   * @template T
   * @param {(signal: AbortSignal) => Promise<T>} ask
   * @returns {Promise<T | undefined>} undefined: a newer request has replaced this one
   */
  async run(ask) {
    this.stop();
    const mine = new AbortController();
    this.#controller = mine;
    try {
      const answer = await ask(mine.signal);
      return mine.signal.aborted ? undefined : answer;
    } catch (error) {
      if (mine.signal.aborted) return undefined;
      throw error;
    }
  }

  stop() {
    this.#controller?.abort();
    this.#controller = null;
  }
}
