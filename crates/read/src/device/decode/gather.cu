// Gathers the windows of a batch from cubes in the memory of a GPU.
//
// A window is a rectangle of pixels of a cube (row, column, band), which may reach beyond the cube's edge: the cube is then
// mirrored, its outermost pixels are repeated, or a value is used. Some bands may be chosen. A block of threads copies rows of
// one window. threads.h says how tests run this without a GPU.
//
// Rust checks that cubes and windows lie in their memory, and that bands are those of the cube, before it launches the kernel.

#include "threads.h"

// The pixels beyond the edge. Rust says the same.
enum Pad { REFLECT = 0, EDGE = 1, VALUE = 2 };

struct Window {
  // First byte of the cube.
  u64 from;
  // First byte of the batch that is written.
  u64 into;
  // The value beyond the edge; an element has its first bytes.
  u64 fill;
  // The pixel of the cube that the window begins with.
  i32 row, column;
  u32 rows, columns;
  u32 cube_rows, cube_columns;
  // Bytes of a pixel of the cube, and of one of its elements.
  u32 pixel, element;
  // How many bands of the list are copied; all bands of the cube if 0.
  u32 bands;
  u32 pad;
};

struct Gather {
  u32 windows;
  // Blocks of threads for each window.
  u32 slots;
};

// The pixel of an axis that is used at `place`; `length` if it is padded with a value.
ON_DEVICE u32 pixel_at(i64 place, u32 length, u32 pad) {
  if (place >= 0 && place < length) return (u32)place;
  if (pad == VALUE) return length;
  if (pad == EDGE) return place < 0 ? 0 : length - 1;
  if (length == 1) return 0;
  const i64 there_and_back = 2 * ((i64)length - 1);
  i64 mirrored = place % there_and_back;
  if (mirrored < 0) mirrored += there_and_back;
  return (u32)(mirrored < length ? mirrored : there_and_back - mirrored);
}

struct alignas(16) Sixteen {
  u64 half[2];
};

template <typename WORD>
ON_DEVICE void copy_word(u8 *into, const u8 *from) {
#ifdef HSIPACK_ON_HOST
  memcpy(into, from, sizeof(WORD));
#else
  *(WORD *)into = *(const WORD *)from;
#endif
}

template <typename WORD>
ON_DEVICE void copy_words(u8 *into, const u8 *from, u64 bytes, u32 thread) {
  for (u64 place = thread * sizeof(WORD); place < bytes; place += THREADS * sizeof(WORD)) {
    copy_word<WORD>(into + place, from + place);
  }
}

// Copies bytes that lie side by side, in the largest words that fit both addresses.
ON_DEVICE void copy(u8 *into, const u8 *from, u64 bytes, u32 thread) {
  const u64 apart = (u64)into - (u64)from;
  const u32 word = apart & 1 ? 1 : apart & 2 ? 2 : apart & 4 ? 4 : apart & 8 ? 8 : 16;
  u64 head = (word - (u64)into % word) % word;
  if (head > bytes) head = bytes;
  const u64 body = (bytes - head) / word * word;
  for (u64 place = thread; place < head; place += THREADS) into[place] = from[place];
  for (u64 place = head + body + thread; place < bytes; place += THREADS) into[place] = from[place];
  into += head;
  from += head;
  if (word == 16) copy_words<Sixteen>(into, from, body, thread);
  if (word == 8) copy_words<u64>(into, from, body, thread);
  if (word == 4) copy_words<u32>(into, from, body, thread);
  if (word == 2) copy_words<unsigned short>(into, from, body, thread);
  if (word == 1) copy_words<u8>(into, from, body, thread);
}

// The work of one thread on one row of a window. `into` is the first byte of the row in the batch.
ON_DEVICE void gather_row(const Window &window, u32 row, const u32 *bands, const u8 *cube, u8 *into, u32 thread) {
  const u32 y = pixel_at((i64)window.row + row, window.cube_rows, window.pad);
  const u8 *const line = cube + (u64)y * window.cube_columns * window.pixel;
  // The columns inside the cube lie side by side.
  u32 first = 0, end = 0;
  if (y < window.cube_rows && window.bands == 0) {
    const i64 begins = -(i64)window.column, ends = (i64)window.cube_columns - window.column;
    first = (u32)(begins < 0 ? 0 : begins < window.columns ? begins : window.columns);
    end = (u32)(ends < first ? first : ends < window.columns ? ends : window.columns);
    copy(into + (u64)first * window.pixel, line + (i64)(window.column + (i64)first) * window.pixel,
         (u64)(end - first) * window.pixel, thread);
    if (end - first == window.columns) return;
  }
  const u32 elements = window.bands ? window.bands : window.pixel / window.element;
  for (u64 number = thread; number < (u64)window.columns * elements; number += THREADS) {
    const u32 column = (u32)(number / elements), band = (u32)(number % elements);
    if (column >= first && column < end) continue;
    const u32 x = pixel_at((i64)window.column + column, window.cube_columns, window.pad);
    u8 *const to = into + number * window.element;
    if (y == window.cube_rows || x == window.cube_columns) {
      for (u32 byte = 0; byte < window.element; byte++) to[byte] = (u8)(window.fill >> 8 * byte);
      continue;
    }
    const u32 chosen = window.bands ? bands[band] : band;
    const u8 *const from = line + (u64)x * window.pixel + (u64)chosen * window.element;
    for (u32 byte = 0; byte < window.element; byte++) to[byte] = from[byte];
  }
}

// The work of one block of threads: every `slots`th row of a window.
ON_DEVICE void gather_rows(const Gather &what, u32 number, const Window *windows, const u32 *bands, const u8 *cubes,
                           u8 *batch) {
  const u32 place = number / what.slots;
  if (place >= what.windows) return;
  const Window window = windows[place];
  const u64 pixel = window.bands ? (u64)window.bands * window.element : window.pixel;
  EACH_THREAD(thread) {
    for (u32 row = number % what.slots; row < window.rows; row += what.slots) {
      u8 *const into = batch + window.into + (u64)row * window.columns * pixel;
      gather_row(window, row, bands, cubes + window.from, into, thread);
    }
  }
}

#ifdef HSIPACK_ON_HOST

extern "C" void gather_order(u64 seed) { order_state = seed; }

extern "C" void gather_windows(const Gather *what, const Window *windows, const u32 *bands, const u8 *cubes,
                               u8 *batch) {
  const u32 all = what->windows * what->slots;
  const u32 first = all ? order() % all : 0;
  for (u32 number = 0; number < all; number++) {
    gather_rows(*what, (number + first) % all, windows, bands, cubes, batch);
  }
}

#else

extern "C" __global__ void __launch_bounds__(THREADS)
    gather_windows(const Gather what, const Window *windows, const u32 *bands, const u8 *cubes, u8 *batch) {
  gather_rows(what, blockIdx.x, windows, bands, cubes, batch);
}

#endif
