// What augmentations do to pixels on a GPU, in one pass over memory each.
//
// scripts/dev/make_kernels.py compiles this to kernels.ptx, which the driver compiles for the GPU at hand. Tests compile it as
// C++ (HSIPACK_ON_HOST), where a loop over blocks and threads takes the place of the GPU. So nothing is included, and
// what threads of a block do before and after they wait for one another stands in functions of its own.
//
// Arrays lie as (samples, rows, columns, values), without gaps. The values of a pixel are read and written in vectors,
// as wide as their number and their address allow. Sums are float32, and rounded once. Finite values stay finite: results
// that are too large become the largest finite value of their type.

#ifdef HSIPACK_ON_HOST
#include <immintrin.h>
#include <math.h>
#include <string.h>
#define ON_DEVICE static inline
#else
#define ON_DEVICE static __device__ __forceinline__
#endif

// Pixels and threads of a block; samples of a call. kernels/ in Rust says the same.
#define PIXELS 64
#define THREADS 256
#define SAMPLES 48
// Samples of a call that draws, pairs of normal numbers drawn together, and values until there is a new key. The host's
// loops (host/random.rs) say the same, because noise is the same there.
#define DRAWN 128
#define PAIRS 64
#define PIECE 65536

// The largest finite values.
#define MOST_F16 65504.0f
#define MOST_BF16 3.38953139e38f
#define MOST 3.40282347e38f

struct F16 {
  unsigned short bits;
};
struct BF16 {
  unsigned short bits;
};

// Infinity and NaN stay.
ON_DEVICE float bounded_if_finite(float value, float most) {
  return fabsf(value) <= MOST ? fminf(fmaxf(value, -most), most) : value;
}

// What was computed from one value: finite if that value is.
ON_DEVICE float settled(float value, float from) {
  return fabsf(from) <= MOST ? fminf(fmaxf(value, -MOST), MOST) : value;
}

#ifdef HSIPACK_ON_HOST
ON_DEVICE float wide(F16 value) { return _cvtsh_ss(value.bits); }
ON_DEVICE unsigned bits_of(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return bits;
}
ON_DEVICE float of_bits(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
ON_DEVICE void narrow(float value, F16 *into) {
  into->bits = _cvtss_sh(bounded_if_finite(value, MOST_F16), _MM_FROUND_TO_NEAREST_INT);
}
#else
ON_DEVICE float wide(F16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
ON_DEVICE unsigned bits_of(float value) { return __float_as_uint(value); }
ON_DEVICE float of_bits(unsigned bits) { return __uint_as_float(bits); }
ON_DEVICE void narrow(float value, F16 *into) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(into->bits) : "f"(bounded_if_finite(value, MOST_F16)));
}
#endif

ON_DEVICE float wide(BF16 value) { return of_bits((unsigned)value.bits << 16); }
ON_DEVICE float wide(float value) { return value; }
ON_DEVICE void narrow(float value, BF16 *into) {
  unsigned bits = bits_of(bounded_if_finite(value, MOST_BF16));
  // To the nearest, half to even; NaN stays one.
  into->bits = value != value ? 0x7fc0 : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
ON_DEVICE void narrow(float value, float *into) { *into = value; }

template <class T, int COUNT>
struct alignas(sizeof(T) * COUNT) Vector {
  T at[COUNT];
};

// Where the pixels of one sample come from. Of a homography all nine numbers count, of an affine map the first six.
struct Sample {
  float map[9];
  // Columns and rows that padding by the outermost pixels stays in.
  float left, right, top, bottom;
  // Its place in the batch, and that of its displacements among all; -1 for none.
  int place, field;
};

enum Padding { ZEROS = 0, BORDER = 1, REFLECTION = 2 };

struct alignas(16) Warp {
  // What lies outside the frame: as the bytes of the widest vector, and as a value.
  int fill_vector[4];
  float fill;
  int rows, columns, to_rows, to_columns;
  // Vectors of a pixel.
  int vectors;
  int padding, align_corners, affine;
  Sample samples[SAMPLES];
};

// The four pixels that each pixel of a block is made of, and their weights; those of weight 0 may lie outside. `some` says
// whether any has a weight.
struct Taps {
  int index[4][PIXELS];
  float weight[4][PIXELS];
  float missing[PIXELS];
  int some[PIXELS];
};

ON_DEVICE float bounded(float value, float least, float most) {
  return fminf(fmaxf(value, least), most);
}

ON_DEVICE float reflected(float p, float size, int align_corners) {
  float last = size - 1;
  if (p >= 0 && p <= last) return p;
  float low = align_corners ? 0.0f : -0.5f, span = align_corners ? last : size;
  p = fabsf(p - low);
  // However often it is mirrored. Places and spans are small enough for products of theirs to be exact.
  int turns = (int)(p / span);
  float rest = p - (float)turns * span;
  float inside = (turns & 1) == 0 ? rest + low : span - rest + low;
  return bounded(inside, 0, last);
}

// A place along an axis of `size` pixels, brought inside if padding does that.
ON_DEVICE float padded(float p, int size, float least, float most, int padding, int align_corners) {
  // A perspective's horizon lies far outside, and every place has to be an index.
  p = p == p ? bounded(p, -1e6f, 1e6f) : -1e6f;
  if (padding == BORDER) return bounded(p, least, most);
  if (padding == REFLECTION) return size == 1 ? 0 : reflected(p, (float)size, align_corners);
  return p;
}

// Where pixel `pixel` of a sample's result comes from.
ON_DEVICE void source(const Warp &warp, const Sample &sample, const float *fields, int pixel, float *px, float *py) {
  int row = pixel / warp.to_columns, column = pixel - row * warp.to_columns;
  float x = (float)column, y = (float)row;
  if (sample.field >= 0) {
    long long plane = (long long)warp.to_rows * warp.to_columns;
    const float *field = fields + 2 * plane * sample.field + pixel;
    x += field[0];
    y += field[plane];
  }
  const float *m = sample.map;
  float u = m[0] * x + m[1] * y + m[2], v = m[3] * x + m[4] * y + m[5];
  if (!warp.affine) {
    float scale = m[6] * x + m[7] * y + m[8];
    u /= scale;
    v /= scale;
  }
  *px = padded(u, warp.columns, sample.left, sample.right, warp.padding, warp.align_corners);
  *py = padded(v, warp.rows, sample.top, sample.bottom, warp.padding, warp.align_corners);
}

// The pixel at or before a place, and how far the place is from it. Places as near to the centre of a pixel as rounding
// can tell are at its centre: else its neighbours would get weights of 1e-6.
ON_DEVICE float split(float p, float near, float *part) {
  float nearest = rintf(p), before = floorf(p);
  bool there = fabsf(p - nearest) <= near;
  *part = there ? 0 : p - before;
  return there ? nearest : before;
}

// Threads 0 to PIXELS - 1: the taps of a block's pixels.
ON_DEVICE void find_taps(
    const Warp &warp, const Sample &sample, const float *fields, int block, int thread, Taps *taps) {
  int pixel = block * PIXELS + thread;
  if (thread >= PIXELS || pixel >= warp.to_rows * warp.to_columns) return;
  float x, y;
  source(warp, sample, fields, pixel, &x, &y);
  int from = warp.rows > warp.columns ? warp.rows : warp.columns;
  int to = warp.to_rows > warp.to_columns ? warp.to_rows : warp.to_columns;
  float near = (float)(from > to ? from : to) * (1.0f / 2097152.0f);
  float part_x, part_y;
  int left = (int)split(x, near, &part_x), top = (int)split(y, near, &part_y);
  float across[2] = {1 - part_x, part_x}, down[2] = {1 - part_y, part_y};
  for (int tap = 0; tap < 2; tap++) {
    if (left + tap < 0 || left + tap >= warp.columns) across[tap] = 0;
    if (top + tap < 0 || top + tap >= warp.rows) down[tap] = 0;
  }
  for (int tap = 0; tap < 4; tap++) {
    taps->index[tap][thread] = (top + (tap >> 1)) * warp.columns + left + (tap & 1);
    taps->weight[tap][thread] = across[tap & 1] * down[tap >> 1];
  }
  // Sums of 1 are exact.
  float all = (across[0] + across[1]) * (down[0] + down[1]);
  taps->missing[thread] = 1 - all;
  taps->some[thread] = all > 0;
}

template <class T, int COUNT>
ON_DEVICE void blend(
    const Warp &warp, const Sample &sample, const Taps &taps, int block, int thread, const void *from, void *into) {
  typedef Vector<T, COUNT> V;
  int pixels = warp.to_rows * warp.to_columns, vectors = warp.vectors;
  const V *source = (const V *)from + (long long)sample.place * warp.rows * warp.columns * vectors;
  V *result = (V *)into + ((long long)sample.place * pixels + (long long)block * PIXELS) * vectors;
  int there = pixels - block * PIXELS < PIXELS ? pixels - block * PIXELS : PIXELS;
  bool filled = warp.padding == ZEROS && warp.fill != 0;
#pragma unroll 1
  for (int item = thread; item < there * vectors; item += THREADS) {
    int pixel = item / vectors, vector = item - pixel * vectors;
    V value[4];
    float weight[4];
    // Taps of weight 0 are not read, because 0 times NaN is NaN. Adding -0 changes nothing, not even -0.
    for (int tap = 0; tap < 4; tap++) {
      weight[tap] = taps.weight[tap][pixel];
      if (weight[tap] != 0) {
        value[tap] = source[(long long)taps.index[tap][pixel] * vectors + vector];
      } else {
        value[tap] = V();
        weight[tap] = -0.0f;
      }
    }
    float missing = taps.missing[pixel], rest = filled && missing != 0 ? warp.fill * missing : -0.0f;
    bool some = taps.some[pixel];
    V out;
    for (int i = 0; i < COUNT; i++) {
      float sum = -0.0f;
      for (int tap = 0; tap < 4; tap++) sum += weight[tap] * wide(value[tap].at[i]);
      sum += rest;
      // Weighted means exceed the largest float32 only by rounding.
      if (sizeof(T) == 4 && fabsf(sum) > MOST) {
        bool finite = true;
        for (int tap = 0; tap < 4; tap++) finite &= fabsf(wide(value[tap].at[i])) <= MOST;
        if (finite && fabsf(rest) <= MOST) sum = settled(sum, 0);
      }
      narrow(some ? sum : warp.fill, &out.at[i]);
    }
    result[item] = out;
  }
}

// Threads 0 to PIXELS - 1: the pixel that each pixel of a block is, or -1.
ON_DEVICE void find_nearest(
    const Warp &warp, const Sample &sample, const float *fields, int block, int thread, int *nearest) {
  int pixel = block * PIXELS + thread;
  if (thread >= PIXELS || pixel >= warp.to_rows * warp.to_columns) return;
  float x, y;
  source(warp, sample, fields, pixel, &x, &y);
  // Half to even.
  int column = (int)rintf(x), row = (int)rintf(y);
  int inside = column >= 0 && row >= 0 && column < warp.columns && row < warp.rows;
  nearest[thread] = inside ? row * warp.columns + column : -1;
}

template <class V>
ON_DEVICE void take(
    const Warp &warp, const Sample &sample, const int *nearest, int block, int thread, const void *from, void *into) {
  int pixels = warp.to_rows * warp.to_columns, vectors = warp.vectors;
  const V *source = (const V *)from + (long long)sample.place * warp.rows * warp.columns * vectors;
  V *result = (V *)into + ((long long)sample.place * pixels + (long long)block * PIXELS) * vectors;
  int there = pixels - block * PIXELS < PIXELS ? pixels - block * PIXELS : PIXELS;
#pragma unroll 1
  for (int item = thread; item < there * vectors; item += THREADS) {
    int pixel = item / vectors, vector = item - pixel * vectors;
    int index = nearest[pixel];
    result[item] = index < 0 ? *(const V *)warp.fill_vector : source[(long long)index * vectors + vector];
  }
}

struct Values {
  // Vectors of a pixel, and of a sample.
  int vectors;
  long long all;
};

// (value - shift)·factor + summand by band; for factors of 0 the summand alone, whatever the value. Values that nothing is
// done to keep their bits. `numbers` are (samples, 3, bands).
template <class T, int COUNT>
ON_DEVICE void by_band(
    const Values &values, int sample, long long item, const void *from, void *into, const float *numbers) {
  typedef Vector<T, COUNT> V;
  if (item >= values.all) return;
  int bands = values.vectors * COUNT, first = (int)(item % values.vectors) * COUNT;
  const float *number = numbers + 3LL * bands * sample + first;
  V value = ((const V *)from)[values.all * sample + item];
  for (int i = 0; i < COUNT; i++) {
    float shift = number[i], factor = number[bands + i], summand = number[2 * bands + i];
    if (shift == 0 && factor == 1 && summand == 0) continue;
    float from = wide(value.at[i]);
    narrow(factor == 0 ? summand : settled((from - shift) * factor + summand, from), &value.at[i]);
  }
  ((V *)into)[values.all * sample + item] = value;
}

struct Blur {
  int rows, columns, vectors;
  // Along rows that lie below one another (0) or along columns (1).
  int axis;
  int taps;
  // Whether there are zeros around the frame; else it is mirrored about its outermost pixels.
  int zeros;
};

// The pixel for a place along an axis, or -1 for zeros.
ON_DEVICE int neighbour(const Blur &blur, int other, int size) {
  if (blur.zeros && (other < 0 || other >= size)) return -1;
  other = other < 0 ? -other : other;
  other = other > size - 1 ? 2 * (size - 1) - other : other;
  return other < 0 ? 0 : other;
}

// Weighted sums of neighbours along one axis. `weights` are (samples, taps).
template <class From, class Into, int COUNT>
ON_DEVICE void blur(
    const Blur &blur, int sample, long long item, const void *from, void *into, const float *weights) {
  typedef Vector<From, COUNT> V;
  typedef Vector<Into, COUNT> W;
  long long all = (long long)blur.rows * blur.columns * blur.vectors;
  if (item >= all) return;
  long long pixel = item / blur.vectors;
  int row = (int)(pixel / blur.columns), column = (int)(pixel - (long long)row * blur.columns);
  int at = blur.axis ? column : row, size = blur.axis ? blur.columns : blur.rows;
  long long step = (blur.axis ? 1LL : blur.columns) * blur.vectors;
  const V *place = (const V *)from + all * sample + item;
  float sum[COUNT];
  for (int i = 0; i < COUNT; i++) sum[i] = -0.0f;
#pragma unroll 1
  for (int tap = 0; tap < blur.taps; tap++) {
    int other = neighbour(blur, at + tap - blur.taps / 2, size);
    if (other < 0) continue;
    float weight = weights[(long long)blur.taps * sample + tap];
    V values = place[(other - at) * step];
    for (int i = 0; i < COUNT; i++) sum[i] += weight * wide(values.at[i]);
  }
  W out;
  for (int i = 0; i < COUNT; i++) {
    // Weighted means exceed the largest float32 only by rounding.
    if (sizeof(From) == 4 && fabsf(sum[i]) > MOST) {
      bool finite = true;
      for (int tap = 0; tap < blur.taps; tap++) {
        int other = neighbour(blur, at + tap - blur.taps / 2, size);
        if (other >= 0) finite &= fabsf(wide(place[(other - at) * step].at[i])) <= MOST;
      }
      if (finite) sum[i] = settled(sum[i], 0);
    }
    narrow(sum[i], &out.at[i]);
  }
  ((W *)into)[all * sample + item] = out;
}

// A sample whose numbers are drawn: its seed, and its place in the batch.
struct Drawn {
  unsigned long long seed;
  long long place;
};

struct Draw {
  // Noise is mean + std·(a normal number).
  float mean, std;
  // Vectors of a sample.
  long long all;
  Drawn samples[DRAWN];
};

#define GAMMA 0x9e3779b97f4a7c15ULL

// SplitMix64.
ON_DEVICE unsigned long long mixed(unsigned long long value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

ON_DEVICE unsigned long long folded(unsigned long long key, unsigned long long part) {
  return mixed((key + GAMMA) ^ part);
}

// Number `number` of the stream of a key.
ON_DEVICE unsigned long long drawn(unsigned long long key, unsigned long long number) {
  return mixed(key + (number + 1) * GAMMA);
}

// The natural logarithm of a number above 0 that is not subnormal.
ON_DEVICE float logarithm(float x) {
  unsigned bits = bits_of(x);
  int exponent = (int)(bits - 0x3f3504f3u) >> 23;
  float m = of_bits(bits - ((unsigned)exponent << 23)) - 1.0f, z = m * m, e = (float)exponent;
  float series = 7.0376836e-2f;
  series = fmaf(series, m, -1.151461e-1f);
  series = fmaf(series, m, 1.1676999e-1f);
  series = fmaf(series, m, -1.2420141e-1f);
  series = fmaf(series, m, 1.4249323e-1f);
  series = fmaf(series, m, -1.6668057e-1f);
  series = fmaf(series, m, 2.0000715e-1f);
  series = fmaf(series, m, -2.4999994e-1f);
  series = fmaf(series, m, 3.333333e-1f);
  float y = fmaf(series * m, z, -2.1219444e-4f * e) - 0.5f * z;
  return fmaf(0.6933594f, e, m + y);
}

// Two normal numbers from 64 random bits, by the formula of Box and Muller, rounded as in host/random.rs.
ON_DEVICE void normal_pair(unsigned long long bits, float *one, float *other) {
  float radius = ((float)(unsigned)(bits >> 32) + 1.0f) * (1.0f / 4294967296.0f);
  float quarters = (float)(unsigned)bits * (1.0f / 4294967296.0f) * 4.0f;
  float length = sqrtf(fmaxf(-2.0f * logarithm(radius), 0.0f));
  float nearest = rintf(quarters);
  float x = (quarters - nearest) * 1.57079637f, z = x * x;
  float sine = fmaf(fmaf(fmaf(-1.9515296e-4f, z, 8.332161e-3f), z, -1.6666655e-1f) * z, x, x);
  float cosine = fmaf(fmaf(fmaf(2.4433157e-5f, z, -1.3887316e-3f), z, 4.1666646e-2f) * z, z, 1.0f - 0.5f * z);
  int quarter = (int)nearest & 3;
  float a = quarter & 1 ? cosine : sine, b = quarter & 1 ? sine : cosine;
  *one = length * ((quarter + 1) & 2 ? -b : b);
  *other = length * (quarter & 2 ? -a : a);
}

template <class T>
ON_DEVICE void add_noise(const Draw &draw, float normal, T *value) {
  float from = wide(*value);
  narrow(settled(from + fmaf(normal, draw.std, draw.mean), from), value);
}

// Adds noise to two vectors of a sample: the numbers of a pair belong to values that are PAIRS apart.
template <class T, int COUNT>
ON_DEVICE void noise(const Draw &draw, int sample, long long item, const void *, void *into, const float *) {
  typedef Vector<T, COUNT> V;
  const int half = PAIRS / COUNT;
  long long block = item / half, lane = item % half, first = 2 * half * block + lane;
  if (first >= draw.all) return;
  long long value = 2LL * PAIRS * block;
  unsigned long long key = folded(folded(0, draw.samples[sample].seed), (unsigned long long)(value / PIECE));
  unsigned long long number = (unsigned long long)(value % PIECE / 2 + lane * COUNT);
  V *place = (V *)into + draw.all * draw.samples[sample].place + first;
  bool both = first + half < draw.all;
  V one = place[0], other = both ? place[half] : one;
  for (int i = 0; i < COUNT; i++) {
    float normal, partner;
    normal_pair(drawn(key, number + i), &normal, &partner);
    add_noise(draw, normal, &one.at[i]);
    add_noise(draw, partner, &other.at[i]);
  }
  place[0] = one;
  if (both) place[half] = other;
}

// Numbers in [-1, 1).
ON_DEVICE void uniform(const Draw &draw, int sample, long long item, const void *, void *into, const float *) {
  if (item >= draw.all) return;
  unsigned long long bits = drawn(draw.samples[sample].seed, (unsigned long long)item);
  float *place = (float *)into + draw.all * draw.samples[sample].place;
  place[item] = (float)(unsigned)(bits >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

// A frame, in which a vector is part of a pixel.
struct Rectangles {
  int rows, columns, vectors;
};

// The numbers of a rectangle: its sample, first row and column, rows and columns, and where its values come from: for pasting a
// sample, row and column, for filling the place of a spectrum.
enum Rectangle { AT_SAMPLE, AT_ROW, AT_COLUMN, HEIGHT, WIDTH, OF_SAMPLE, OF_ROW, OF_COLUMN, NUMBERS };

// The vector at the beginning of a pixel.
ON_DEVICE long long pixel(const Rectangles &frame, int sample, long long row, int column) {
  return (((long long)sample * frame.rows + row) * frame.columns + column) * frame.vectors;
}

// The row of a rectangle in which an item lies, and the vector in this row; false beyond the rectangle, which may have no columns.
ON_DEVICE bool within(const Rectangles &frame, const int *cut, long long item, long long *row, long long *vector) {
  long long width = (long long)cut[WIDTH] * frame.vectors;
  if (item >= width * cut[HEIGHT]) return false;
  *row = item / width;
  *vector = item - *row * width;
  return true;
}

// Copies rectangles from other places. A call's second axis are its rectangles.
template <class V>
ON_DEVICE void paste(const Rectangles &frame, int number, long long item, const void *from, void *into,
                     const float *numbers) {
  const int *cut = (const int *)numbers + (long long)NUMBERS * number;
  long long row, vector;
  if (!within(frame, cut, item, &row, &vector)) return;
  long long source = pixel(frame, cut[OF_SAMPLE], cut[OF_ROW] + row, cut[OF_COLUMN]) + vector;
  long long target = pixel(frame, cut[AT_SAMPLE], cut[AT_ROW] + row, cut[AT_COLUMN]) + vector;
  ((V *)into)[target] = ((const V *)from)[source];
}

// Fills rectangles with spectra.
template <class V>
ON_DEVICE void blank(const Rectangles &frame, int number, long long item, const void *from, void *into,
                     const float *numbers) {
  const int *cut = (const int *)numbers + (long long)NUMBERS * number;
  long long row, vector;
  if (!within(frame, cut, item, &row, &vector)) return;
  long long source = (long long)cut[OF_SAMPLE] * frame.vectors + vector % frame.vectors;
  long long target = pixel(frame, cut[AT_SAMPLE], cut[AT_ROW] + row, cut[AT_COLUMN]) + vector;
  ((V *)into)[target] = ((const V *)from)[source];
}

// The kernels. A call's second axis are its samples.
#ifdef HSIPACK_ON_HOST

#define EACH_BLOCK                                  \
  for (unsigned sample = 0; sample < grid[1]; sample++) \
    for (unsigned block = 0; block < grid[0]; block++)
#define EACH_THREAD for (int thread = 0; thread < THREADS; thread++)
#define WARP(NAME, SHARED, FIND, DO)                                                                                \
  extern "C" void NAME(const unsigned *grid, void **arguments) {                                                    \
    const Warp &warp = *(const Warp *)arguments[0];                                                                 \
    const void *from = *(void **)arguments[1];                                                                      \
    void *into = *(void **)arguments[2];                                                                            \
    const float *fields = *(float **)arguments[3];                                                                  \
    EACH_BLOCK {                                                                                                    \
      SHARED shared;                                                                                                \
      EACH_THREAD FIND(warp, warp.samples[sample], fields, block, thread, &shared SHARED##_START);                   \
      EACH_THREAD DO(warp, warp.samples[sample], shared, block, thread, from, into);                                \
    }                                                                                                               \
  }
#define EACH(NAME, WHAT, DO)                                                                                  \
  extern "C" void NAME(const unsigned *grid, void **arguments) {                                              \
    const WHAT &what = *(const WHAT *)arguments[0];                                                           \
    const void *from = *(void **)arguments[1];                                                                \
    void *into = *(void **)arguments[2];                                                                      \
    const float *numbers = *(float **)arguments[3];                                                           \
    EACH_BLOCK EACH_THREAD DO(what, sample, (long long)block * THREADS + thread, from, into, numbers);        \
  }

#else

#define WARP(NAME, SHARED, FIND, DO)                                                                    \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                 \
      NAME(const Warp warp, const void *from, void *into, const float *fields) {                        \
    __shared__ SHARED shared;                                                                           \
    const Sample &sample = warp.samples[blockIdx.y];                                                    \
    FIND(warp, sample, fields, blockIdx.x, threadIdx.x, &shared SHARED##_START);                        \
    __syncthreads();                                                                                    \
    DO(warp, sample, shared, blockIdx.x, threadIdx.x, from, into);                                      \
  }
#define EACH(NAME, WHAT, DO)                                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                 \
      NAME(const WHAT what, const void *from, void *into, const float *numbers) {                       \
    DO(what, blockIdx.y, (long long)blockIdx.x * THREADS + threadIdx.x, from, into, numbers);           \
  }

#endif

typedef int Nearest[PIXELS];
#define Taps_START
#define Nearest_START [0]

// A kernel for each type and each width of its vectors.
#define EACH_VECTOR(KERNEL) \
  KERNEL(f16, F16, 8)       \
  KERNEL(f16, F16, 4)       \
  KERNEL(f16, F16, 2)       \
  KERNEL(f16, F16, 1)       \
  KERNEL(bf16, BF16, 8)     \
  KERNEL(bf16, BF16, 4)     \
  KERNEL(bf16, BF16, 2)     \
  KERNEL(bf16, BF16, 1)     \
  KERNEL(f32, float, 4)     \
  KERNEL(f32, float, 2)     \
  KERNEL(f32, float, 1)

#define LINEAR(NAME, T, COUNT) WARP(warp_##NAME##_##COUNT, Taps, find_taps, (blend<T, COUNT>))
EACH_VECTOR(LINEAR)

// Whole pixels, by the bytes of their vectors.
#define WHOLE(BYTES, WORD, COUNT) WARP(take_##BYTES, Nearest, find_nearest, (take<Vector<WORD, COUNT> >))
WHOLE(16, unsigned, 4)
WHOLE(8, unsigned, 2)
WHOLE(4, unsigned, 1)
WHOLE(2, unsigned short, 1)
WHOLE(1, unsigned char, 1)

#define RECTANGLES(BYTES, WORD, COUNT)                                  \
  EACH(paste_##BYTES, Rectangles, (paste<Vector<WORD, COUNT> >))        \
  EACH(blank_##BYTES, Rectangles, (blank<Vector<WORD, COUNT> >))
RECTANGLES(16, unsigned, 4)
RECTANGLES(8, unsigned, 2)
RECTANGLES(4, unsigned, 1)
RECTANGLES(2, unsigned short, 1)
RECTANGLES(1, unsigned char, 1)

#define BY_BAND(NAME, T, COUNT) EACH(by_band_##NAME##_##COUNT, Values, (by_band<T, COUNT>))
EACH_VECTOR(BY_BAND)

#define BLUR(NAME, From, Into, COUNT) EACH(blur_##NAME##_##COUNT, Blur, (blur<From, Into, COUNT>))
BLUR(f16_f32, F16, float, 4)
BLUR(f16_f32, F16, float, 2)
BLUR(f16_f32, F16, float, 1)
BLUR(f32_f16, float, F16, 4)
BLUR(f32_f16, float, F16, 2)
BLUR(f32_f16, float, F16, 1)
BLUR(bf16_f32, BF16, float, 4)
BLUR(bf16_f32, BF16, float, 2)
BLUR(bf16_f32, BF16, float, 1)
BLUR(f32_bf16, float, BF16, 4)
BLUR(f32_bf16, float, BF16, 2)
BLUR(f32_bf16, float, BF16, 1)
BLUR(f32_f32, float, float, 4)
BLUR(f32_f32, float, float, 2)
BLUR(f32_f32, float, float, 1)

#define NOISE(NAME, T, COUNT) EACH(noise_##NAME##_##COUNT, Draw, (noise<T, COUNT>))
EACH_VECTOR(NOISE)
EACH(uniform_f32, Draw, uniform)
