// Mouse, pen and touch on the picture: one finger moves it or draws a rectangle, two fingers move and zoom it.

/** A pointer that moves at most this many pixels still clicks. */
const STILL = 4;

/**
 * @typedef {object} Acts
 * @property {() => boolean} draws  whether dragging draws a rectangle
 * @property {(dx: number, dy: number) => void} pan
 * @property {(factor: number, x: number, y: number) => void} zoom
 * @property {(x: number, y: number) => void} click
 * @property {(from: {x: number, y: number}, to: {x: number, y: number}, done: boolean) => void} rectangle
 * @property {(at: {x: number, y: number} | null) => void} hover
 * @property {() => void} cancel  drops a rectangle that was started
 */

/** @param {HTMLElement} node @param {Acts} acts */
export function gestures(node, acts) {
  /** @type {Map<number, {x: number, y: number}>} */
  const pointers = new Map();
  /** @type {{x: number, y: number, draw: boolean, moved: boolean} | null} */
  let start = null;

  const place = (event) => {
    const box = node.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const pair = () => {
    const [a, b] = [...pointers.values()];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, apart: Math.hypot(a.x - b.x, a.y - b.y) };
  };

  node.addEventListener('pointerdown', (event) => {
    if (event.button > 0 && event.button !== 1) return;
    node.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    if (pointers.size === 1) {
      start = { ...place(event), draw: event.button === 0 && (event.shiftKey || acts.draws()), moved: false };
    } else if (start) {
      if (start.draw) acts.cancel();
      start = null;
    }
  });

  node.addEventListener('pointermove', (event) => {
    const at = place(event);
    const before = pointers.get(event.pointerId);
    acts.hover(at);
    if (!before) return;
    if (pointers.size === 2) {
      const old = pair();
      pointers.set(event.pointerId, at);
      const now = pair();
      acts.pan(now.x - old.x, now.y - old.y);
      if (old.apart > 0) acts.zoom(now.apart / old.apart, now.x, now.y);
      return;
    }
    if (!start) { pointers.set(event.pointerId, at); return; }
    start.moved ||= Math.hypot(at.x - start.x, at.y - start.y) > STILL;
    if (start.moved && start.draw) acts.rectangle(start, at, false);
    else if (start.moved) acts.pan(at.x - before.x, at.y - before.y);
    // Keep the start until the pointer counts as moved, so that no part of the movement is lost.
    if (start.moved || start.draw) pointers.set(event.pointerId, at);
  });

  node.addEventListener('pointerup', (event) => {
    if (!pointers.delete(event.pointerId)) return;
    const at = place(event);
    if (start && !start.moved && event.button === 0) acts.click(at.x, at.y);
    else if (start?.draw) acts.rectangle(start, at, true);
    start = null;
  });

  node.addEventListener('pointercancel', (event) => {
    pointers.delete(event.pointerId);
    if (start?.draw) acts.cancel();
    start = null;
  });
  node.addEventListener('pointerleave', () => acts.hover(null));

  node.addEventListener('wheel', (event) => {
    event.preventDefault();
    const { x, y } = place(event);
    // Convert lines and pages to pixels. One click of a mouse wheel zooms by a factor of about 1.25.
    const unit = [1, 16, 400][event.deltaMode] ?? 1;
    acts.zoom(Math.exp(-Math.max(-240, Math.min(240, event.deltaY * unit)) * (event.ctrlKey ? 0.01 : 0.0022)), x, y);
  }, { passive: false });
}
