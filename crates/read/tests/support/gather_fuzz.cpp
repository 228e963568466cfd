// Gathers random windows with the kernel of device/decode, for a build with the address sanitizer, which ends the process at
// the first byte that is read or written outside its memory.
//
// usage: gather_fuzz EXECUTIONS SEED
//
// Windows begin anywhere, also far outside their cube. Every allocation has exactly the size that Rust would have checked.

#define HSIPACK_ON_HOST
#include "../../src/device/decode/gather.cu"

#include <stdio.h>
#include <stdlib.h>

static u64 state;
static u32 draw(u32 below) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return below ? (u32)((state >> 33) % below) : 0;
}

static u8 *exactly(u64 bytes) {
  u8 *memory = (u8 *)malloc(bytes ? bytes : 1);
  if (!memory) exit(2);
  return memory;
}

static i32 begin(u32 size) {
  static const i32 far[] = {-2147483647 - 1, -1000000007, -65536, 65535, 1000000007, 2147483647};
  return draw(8) ? (i32)draw(4 * size + 8) - (i32)(2 * size + 4) : far[draw(6)];
}

int main(int count, char **words) {
  if (count != 3) return 2;
  const u32 executions = (u32)atoi(words[1]);
  state = (u64)atoi(words[2]);
  u64 sum = 0;
  for (u32 execution = 0; execution < executions; execution++) {
    static const u32 elements[] = {1, 2, 4, 8};
    Window window = {};
    window.element = elements[draw(4)];
    const u32 bands = 1 + draw(20), chosen = draw(3) ? 0 : 1 + draw(24);
    window.pixel = bands * window.element;
    window.bands = chosen;
    window.cube_rows = 1 + draw(9);
    window.cube_columns = 1 + draw(9);
    window.rows = 1 + draw(20);
    window.columns = 1 + draw(20);
    window.row = begin(window.cube_rows);
    window.column = begin(window.cube_columns);
    window.pad = draw(3);
    window.fill = ((u64)draw(1u << 31) << 32) | draw(1u << 31);
    window.from = draw(20);
    window.into = draw(20);
    const u64 kept = (u64)(chosen ? chosen : bands) * window.element;
    const u64 cube_bytes = window.from + (u64)window.cube_rows * window.cube_columns * window.pixel;
    const u64 batch_bytes = window.into + (u64)window.rows * window.columns * kept;
    u8 *const cube = exactly(cube_bytes), *const batch = exactly(batch_bytes);
    u32 *const list = (u32 *)exactly(chosen * sizeof(u32));
    for (u64 place = 0; place < cube_bytes; place++) cube[place] = (u8)draw(256);
    for (u32 place = 0; place < chosen; place++) list[place] = draw(bands);
    const Gather what = {1, 1 + draw(5)};
    gather_order(draw(1u << 31));
    gather_windows(&what, &window, list, cube, batch);
    for (u64 place = window.into; place < batch_bytes; place++) sum += batch[place];
    free(cube);
    free(batch);
    free(list);
  }
  printf("%u executions, sum %llu\n", executions, sum);
  return 0;
}
