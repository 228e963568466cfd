// Round numbers along an axis.

/**
 * About `count` numbers from `low` to `high`, none outside, at equal steps of 1, 2 or 5 times a power of ten.
 * @returns {{at: number[], label: (tick: number) => string}}
 */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((part) => part * power).find((size) => size >= rough * 0.999) ?? rough;
  const at = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && at.length < 100; k++) at.push(k * step);
  const digits = Math.min(12, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  const size = Math.max(Math.abs(low), Math.abs(high));
  const powers = size >= 1e6 || size < 1e-3 || (size < 0.1 && digits > 3);
  const label = (tick) => {
    if (Math.abs(tick) < step / 1e6) return '0';
    return powers ? Number(tick.toPrecision(6)).toExponential().replace('e+', 'e') : tick.toFixed(digits);
  };
  return { at, label };
}

/** Powers of ten from 10^low to 10^high, and also 2 and 5 times these if there are few. Places are exponents. */
export function logTicks(low, high) {
  const parts = high - low < 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((high - low) / 6));
  const at = [];
  for (let power = Math.floor(low); power <= high; power++) {
    if (power % every) continue;
    for (const part of parts) {
      const place = power + Math.log10(part);
      if (place >= low && place <= high) at.push(place);
    }
  }
  const label = (place) => {
    const value = Number((10 ** place).toPrecision(2));
    return value < 1e-3 || value >= 1e6 ? value.toExponential().replace('e+', 'e') : String(value);
  };
  return { at, label };
}

/** The ends of an axis for values, with a margin; the range is never empty. @param {Iterable<number>} values */
export function extent(values, margin = 0.05) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return [0, 1];
  const least = Math.max(Math.abs(low), Math.abs(high)) * 1e-6 || 1;
  const more = high - low > least ? (high - low) * margin : least;
  return [low - more, high + more];
}
