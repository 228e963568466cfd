// The colour scale of the map of angles, laid over the picture.

import { el } from './dom.js';
import { hex, viridis } from './palette.js';

const degrees = (radians) => `${Number(((radians * 180) / Math.PI).toPrecision(3))}°`;

export function angleScale(session) {
  const { view } = session;
  const steps = Array.from({ length: 16 }, (_, step) => hex(viridis(1 - step / 15)));
  const bar = el('div', { class: 'bar', 'aria-hidden': 'true',
    style: { backgroundImage: `linear-gradient(to right, ${steps.join(', ')})` } });
  const title = el('p', { class: 'small' });
  const low = el('span', {}, '0');
  const high = el('span', { class: 'number' });
  const limit = el('input', { type: 'number', min: 0.001, max: 3.2, step: 0.01, 'aria-label': 'Largest angle of the colours, in radians',
    onchange: () => view.set({ limit: Number(limit.value) > 0 ? Number(limit.value) : null }) });
  const node = el('div', { class: 'scale' }, title, bar, el('div', { class: 'row small' }, low, el('span', { class: 'gap' }), high),
    el('label', { class: 'row small' }, 'up to', limit, 'rad'),
    session.cube.masks.length ? el('p', { class: 'muted small' }, 'The mask is not laid over this map.') : null);
  return {
    node,
    show() {
      const pin = session.image.pinOfAngles();
      node.hidden = !pin;
      if (!pin) return;
      const largest = session.image.angleLimit();
      title.textContent = `Angle to ${pin.name}`;
      high.textContent = `${Number(largest.toPrecision(3))} rad (${degrees(largest)})`;
      if (document.activeElement !== limit) limit.value = String(Number(largest.toPrecision(3)));
    },
  };
}
