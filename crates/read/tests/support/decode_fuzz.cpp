// Decodes damaged frames with the kernel of device/decode, for a build with the address sanitizer, which ends the process at
// the first byte that is read or written outside its memory.
//
// usage: decode_fuzz CORPUS EXECUTIONS SEED
//
// The corpus has frames, each after its length and the length of its chunk (u32, little-endian). Prints how many executions
// gave each status.

#define HSIPACK_ON_HOST
#include "../../src/device/decode/decode.cu"

#include <stdio.h>
#include <stdlib.h>

static u64 state;
static u32 draw(u32 below) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return below ? (u32)((state >> 33) % below) : 0;
}

struct Input {
  u8 *frame;
  u32 frame_bytes, bytes;
};

// Memory of exactly this size, so that the sanitizer sees what is beyond.
static u8 *exactly(u64 bytes) {
  u8 *memory = (u8 *)malloc(bytes ? bytes : 1);
  if (!memory) exit(2);
  return memory;
}

static void damage(u8 *frame, u32 bytes) {
  static const u32 numbers[] = {0, 1, 4, 15, 16, 127, 128, 255, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffc};
  for (u32 times = 1 + draw(4); times > 0; times--) {
    // Half of the time near the header and the tables after it.
    const u32 at = draw(2) ? draw(bytes) : draw(bytes < 64 ? bytes : 64);
    switch (draw(4)) {
      case 0: frame[at] = (u8)draw(256); break;
      case 1: frame[at] ^= 1 << draw(8); break;
      case 2: frame[at] = draw(2) ? 255 : 0; break;
      default:
        if (at + 4 <= bytes) {
          const u32 number = draw(2) ? numbers[draw(sizeof numbers / 4)] : load_u32(frame + at) + draw(9) - 4;
          memcpy(frame + at, &number, 4);
        }
    }
  }
}

int main(int count, char **words) {
  if (count != 4) return 2;
  FILE *file = fopen(words[1], "rb");
  if (!file) return 2;
  Input *inputs = NULL;
  u32 all = 0;
  u8 header[8];
  while (fread(header, 1, 8, file) == 8) {
    inputs = (Input *)realloc(inputs, (all + 1) * sizeof(Input));
    Input *const input = &inputs[all++];
    *input = {exactly(load_u32(header)), load_u32(header), load_u32(header + 4)};
    if (fread(input->frame, 1, input->frame_bytes, file) != input->frame_bytes) return 2;
  }
  if (!all) return 2;
  state = strtoull(words[3], NULL, 10);
  u64 found[3] = {0, 0, 0};
  for (u64 left = strtoull(words[2], NULL, 10); left > 0; left--) {
    const Input &input = inputs[draw(all)];
    // Sometimes its end is missing, which the header then says, too, or not.
    const u32 bytes = draw(8) ? input.frame_bytes : draw(input.frame_bytes + 1);
    u8 *const frame = exactly(bytes);
    memcpy(frame, input.frame, bytes);
    if (bytes >= 16 && bytes < input.frame_bytes && draw(4)) memcpy(frame + 12, &bytes, 4);
    if (bytes > 0) damage(frame, bytes);
    // Any part of any chunk with as many bytes.
    Chunk chunk = {};
    chunk.frame_bytes = bytes;
    // Half of the time, a chunk with some of the bands.
    chunk.pixel = 1 + draw(draw(2) ? input.bytes : 40);
    const u32 columns = 1 + draw(input.bytes / chunk.pixel < 20 ? input.bytes / chunk.pixel : 20);
    chunk.row_bytes = columns * chunk.pixel;
    chunk.kept = draw(2) ? chunk.pixel : 1 + draw(chunk.pixel);
    chunk.pixel_pitch = draw(2) && chunk.kept == chunk.pixel ? chunk.pixel : chunk.kept + draw(9);
    const u32 rows = input.bytes / chunk.row_bytes;
    chunk.bytes = draw(16) ? input.bytes : rows * chunk.row_bytes;
    chunk.first_row = draw(rows);
    chunk.rows = draw(rows - chunk.first_row + 1);
    const u32 first = draw(columns), kept = draw(columns - first + 1);
    chunk.left = first * chunk.pixel;
    chunk.width = kept * chunk.pixel;
    const u64 kept_row = kept ? (u64)(kept - 1) * chunk.pixel_pitch + chunk.kept : 0;
    chunk.pitch = kept_row + draw(8);
    chunk.into = draw(8);
    const u64 batch_bytes = chunk.rows ? chunk.into + (chunk.rows - 1) * chunk.pitch + kept_row : 0;
    u8 *const batch = exactly(batch_bytes);
    Decode what = {1, 1 + draw(5), draw(8) ? input.bytes : draw(input.bytes), {}};
    // A third of the time, integers that become floats.
    if (draw(3) == 0) what.floats = {1e-4, draw(2) ? -0.5 : 0, (double)draw(300), 1 + draw(4), 2u + 2 * draw(2)};
    u8 *const scratch = exactly(what.slots * what.scratch);
    u32 status = 0;
    order_state = state;
    decode_frames(&what, &chunk, frame, batch, scratch, &status);
    if (status > 2) return 3;
    found[status]++;
    free(frame);
    free(batch);
    free(scratch);
  }
  printf("%llu sound, %llu damaged, %llu unsupported\n", found[0], found[1], found[2]);
  return 0;
}
