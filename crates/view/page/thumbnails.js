// Thumbnails: requested when they are on screen, a few at a time, and kept for a while.

import * as api from './api.js';

const SIDE = 160;
const AT_ONCE = 4;
const KEPT = 400;

export class Thumbnails {
  /** @type {Map<number, string | Error>} addresses of thumbnails, the newest last */
  #kept = new Map();
  /** @type {Map<number, {controller: AbortController | null, done: (result: any) => void}>} */
  #wanted = new Map();
  #running = 0;

  /**
   * Requests the thumbnail of a sample. Calls `done` once, with its address or an error, unless the request is cancelled.
   * @param {number} id @param {(result: any) => void} done
   */
  want(id, done) {
    const kept = this.#kept.get(id);
    if (kept) {
      this.#kept.delete(id);
      this.#kept.set(id, kept);
      done(kept);
      return;
    }
    this.#wanted.set(id, { controller: null, done });
    this.#next();
  }

  /** Cancels the request: the thumbnail is no longer on screen. */
  forget(id) {
    const wanted = this.#wanted.get(id);
    this.#wanted.delete(id);
    wanted?.controller?.abort();
  }

  #next() {
    for (const [id, wanted] of this.#wanted) {
      if (this.#running >= AT_ONCE) return;
      if (!wanted.controller) this.#ask(id, wanted);
    }
  }

  async #ask(id, wanted) {
    wanted.controller = new AbortController();
    this.#running += 1;
    let result;
    try {
      result = URL.createObjectURL(await api.thumbnail(id, SIDE, wanted.controller.signal));
    } catch (error) {
      result = error;
    }
    this.#running -= 1;
    const current = this.#wanted.get(id) === wanted;
    if (current) this.#wanted.delete(id);
    if (!api.isAborted(result)) this.#keep(id, result);
    if (current) wanted.done(result);
    this.#next();
  }

  #keep(id, result) {
    // Do not keep this error: the server may be reachable again later.
    if (result instanceof Error && /** @type {any} */ (result).status === 0) return;
    this.#kept.set(id, result);
    for (const [old, address] of this.#kept) {
      if (this.#kept.size <= KEPT) return;
      this.#kept.delete(old);
      if (typeof address === 'string') URL.revokeObjectURL(address);
    }
  }

  stop() {
    for (const id of [...this.#wanted.keys()]) this.forget(id);
    for (const address of this.#kept.values()) if (typeof address === 'string') URL.revokeObjectURL(address);
    this.#kept.clear();
  }
}
