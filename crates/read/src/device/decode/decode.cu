// Decodes the Blosc-1 frames of a batch's chunks on a GPU, each chunk to its place in the batch.
//
// scripts/dev/make_kernels.py compiles this to decode.ptx, which the driver compiles for its GPU. threads.h says how tests run it.
//
// A block of threads decodes one block of a frame at a time: each warp decodes one of its streams (LZ4, or stored as it is)
// into scratch memory; then all threads undo the shuffle filter, convert integers to floats, and write to the batch what is
// kept of the chunk. Blocks of frames are small enough for the second-level cache.
//
// Frames are not trusted: every position is compared with the end of its memory before it is read or written. What C-Blosc
// refuses is refused here. Frames that only C-Blosc can decode are reported as such.

#include "threads.h"

// Elements whose bytes are put together by one thread.
#define GROUP 8

// The last bytes that a warp has decoded, which most matches repeat, are also in shared memory: reading them from global memory
// would take the time of a second-level cache, and every match waits for the one before. A power of two.
#define RECENT 4096

// Memory that the threads of a block share.
struct Shared {
  int failed;
  u8 recent[WARPS][RECENT];
};

#ifdef HSIPACK_ON_HOST
#define UNROLL
#else
#define UNROLL _Pragma("unroll")
#endif

// The state of a chunk afterwards. Rust says the same.
enum Status { SOUND = 0, DAMAGED = 1, UNSUPPORTED = 2 };

// A chunk: where its frame is, and where the kept part of it belongs.
struct Chunk {
  // Its frame: first byte among the compressed bytes.
  u64 frame;
  // First byte of the batch that is written.
  u64 into;
  // Bytes from a row in the batch to the next one.
  u64 pitch;
  u32 frame_bytes;
  // Bytes of the decoded chunk, and, converted like everything below, of one of its rows.
  u32 bytes, row_bytes;
  // The kept rows, and the kept bytes of each row.
  u32 first_row, rows, left, width;
  // Bytes of a pixel, those of them that are kept, and bytes from a pixel in the batch to the next one. All are equal if the
  // chunk has all bands; then nothing else depends on them.
  u32 pixel, kept, pixel_pitch;
};

// Types of integers that become floats. Rust says the same.
enum Number { AS_STORED = 0, UNSIGNED_8 = 1, SIGNED_8 = 2, UNSIGNED_16 = 3, SIGNED_16 = 4 };

// How the integers of chunks become floats: number * factor + offset, or NaN for a number that marks a missing value.
struct Floats {
  double factor, offset;
  // NaN if no number marks one.
  double missing;
  // The type of integers; values stay as they are if it is AS_STORED.
  u32 number;
  // Bytes of a float.
  u32 bytes;
};

struct Decode {
  u32 chunks;
  // Blocks of threads for each chunk.
  u32 slots;
  // Scratch memory of one block of threads, in bytes: the largest block of a frame that it can decode.
  u64 scratch;
  Floats floats;
};

// A frame's header.
struct Frame {
  const u8 *start;
  u32 bytes, chunk_bytes, block_bytes, blocks, typesize;
  bool copied, shuffled, bitshuffled, whole;
};

ON_DEVICE u32 load_u32(const u8 *from) {
  return (u32)from[0] | (u32)from[1] << 8 | (u32)from[2] << 16 | (u32)from[3] << 24;
}

// Reads the header of a frame. All limits of C-Blosc apply.
ON_DEVICE Status read_header(const Chunk &chunk, const u8 *start, Frame *frame) {
  const u32 header = 16, most = 0x7fffffff, largest_block = (most - 255 * 4) / 3;
  if (chunk.frame_bytes < header || chunk.frame_bytes > most || chunk.bytes > most - header) return DAMAGED;
  const u32 flags = start[2];
  frame->start = start;
  frame->bytes = load_u32(start + 12);
  frame->chunk_bytes = load_u32(start + 4);
  frame->block_bytes = load_u32(start + 8);
  frame->typesize = start[3];
  if (start[0] != 2 || flags & 0x08 || frame->bytes != chunk.frame_bytes || frame->chunk_bytes != chunk.bytes ||
      frame->block_bytes == 0 || frame->block_bytes > chunk.bytes || frame->block_bytes > largest_block ||
      frame->typesize == 0)
    return DAMAGED;
  frame->blocks = (chunk.bytes - 1) / frame->block_bytes + 1;
  frame->copied = flags & 0x02;
  frame->shuffled = (flags & 0x01) && frame->typesize > 1;
  frame->bitshuffled = flags & 0x04;
  frame->whole = flags & 0x10;
  if (frame->copied) return frame->bytes == chunk.bytes + header ? SOUND : DAMAGED;
  // LZ4, in the only version of its format.
  if (flags >> 5 != 1) return UNSUPPORTED;
  if (start[1] != 1 || frame->blocks > (frame->bytes - header) / 4) return DAMAGED;
  const bool known = frame->typesize == 1 || frame->typesize == 2 || frame->typesize == 4;
  return known ? SOUND : UNSUPPORTED;
}

// The bytes of a length beyond those of its token. False if they do not end at least `after` bytes before the end of the block,
// or if the length is more than `most`.
ON_DEVICE bool read_length(const u8 *in, u32 in_bytes, u32 after, u32 most, u32 *at, u32 *length) {
  u32 byte;
  do {
    if (*at + after >= in_bytes) return false;
    byte = in[(*at)++];
    *length += byte;
    if (*length > most) return false;
  } while (byte == 255);
  return true;
}

// Writes byte `place` of `length` bytes that belong at `to`, to `recent` only if no later one takes its place there.
ON_DEVICE void put(u8 byte, u32 place, u32 length, u32 to, u8 *out, u8 *recent) {
  out[to + place] = byte;
  if (length - place <= RECENT) recent[(to + place) % RECENT] = byte;
}

// Decodes an LZ4 block of `in_bytes` bytes with one warp. It must have exactly `size` bytes; false if it has not, or if it is
// damaged. The conditions are those of LZ4_decompress_safe. Offsets of 0, for which the format has no meaning, are damage.
// Both sizes are below 2^31 and no length exceeds `size`, so that no sum overflows.
ON_DEVICE bool decode_lz4(const u8 *in, u32 in_bytes, u8 *out, u32 size, u8 *recent) {
  // The last sequence has literals only; the last match begins this far before the end, and ends before the last literals.
  const u32 last_literals = 5, match_limit = 12;
  u32 at = 0, to = 0;
  while (at < in_bytes) {
    const u32 token = in[at++];
    u32 literals = token >> 4;
    if (literals == 15 && !read_length(in, in_bytes, 15, size, &at, &literals)) return false;
    const bool last = to + literals + match_limit > size || at + literals + 3 + last_literals > in_bytes;
    if (last && (at + literals != in_bytes || to + literals > size)) return false;
    if (literals) {
      EACH_LANE(lane) {
        for (u32 place = lane; place < literals; place += LANES) put(in[at + place], place, literals, to, out, recent);
      }
      SYNC_WARP
      at += literals;
      to += literals;
    }
    if (last) return to == size;
    const u32 offset = (u32)in[at] | (u32)in[at + 1] << 8;
    at += 2;
    u32 length = token & 15;
    if (length == 15 && !read_length(in, in_bytes, last_literals - 1, size, &at, &length)) return false;
    length += 4;
    if (offset == 0 || offset > to || to + length + last_literals > size) return false;
    const u32 from = to - offset;
    // Otherwise bytes would be overwritten there before they are read.
    const bool is_recent = offset + length <= RECENT;
    EACH_LANE(lane) {
      for (u32 place = lane; place < length; place += LANES) {
        // A match that reaches into itself repeats the bytes before it.
        const u32 source = from + (place < offset ? place : place % offset);
        put(is_recent ? recent[source % RECENT] : out[source], place, length, to, out, recent);
      }
    }
    SYNC_WARP
    to += length;
  }
  return false;
}

// Decodes stream `number` of the `streams` of a block with one warp.
ON_DEVICE bool decode_stream(const Frame &frame, u32 block, u32 number, u32 size, u8 *out, u8 *recent) {
  // Streams follow one another; each begins with its length.
  u32 at = load_u32(frame.start + 16 + 4 * (u64)block), length = 0;
  for (u32 stream = 0; stream <= number; stream++) {
    if (at > frame.bytes - 4) return false;
    length = load_u32(frame.start + at);
    at += 4;
    if (length > frame.bytes - at) return false;
    if (stream < number) at += length;
  }
  const u8 *const in = frame.start + at;
  u8 *const into = out + (u64)number * size;
  if (length != size) return decode_lz4(in, length, into, size, recent);
  EACH_LANE(lane) {
    for (u32 place = lane; place < size; place += LANES) into[place] = in[place];
  }
  SYNC_WARP
  return true;
}

enum Filter { NONE, BYTES, BITS };

// Up to 8 bytes, the first one lowest; 0 beyond `count`.
ON_DEVICE u64 load_bytes(const u8 *from, u32 count) {
  u64 bytes = 0;
#ifdef HSIPACK_ON_HOST
  memcpy(&bytes, from, count);
#else
  if (count == 8 && ((u64)from & 7) == 0) return *(const u64 *)from;
  for (u32 place = 0; place < count; place++) bytes |= (u64)from[place] << 8 * place;
#endif
  return bytes;
}

// Transposes 8 × 8 bits: bit `column` of byte `row` becomes bit `row` of byte `column`.
ON_DEVICE u64 transposed(u64 bits) {
  u64 swapped = (bits ^ bits >> 7) & 0x00aa00aa00aa00aaull;
  bits ^= swapped ^ swapped << 7;
  swapped = (bits ^ bits >> 14) & 0x0000cccc0000ccccull;
  bits ^= swapped ^ swapped << 14;
  swapped = (bits ^ bits >> 28) & 0x00000000f0f0f0f0ull;
  return bits ^ swapped ^ swapped << 28;
}

struct alignas(8) Word {
  u32 half[2];
};

// Byte `place` of some words. The words stay in registers, because no index depends on data. A mask selects among them: behind a
// comparison, compilers use the compared number as the index.
template <int WORDS>
ON_DEVICE u8 byte_of(const u64 (&words)[WORDS], u32 place) {
  u64 word = 0;
  UNROLL for (u32 at = 0; at < WORDS; at++) word |= words[at] & (0 - (u64)(place / 8 == at));
  return (u8)(word >> 8 * (place % 8));
}

// Writes the first `count` bytes of some words, if they are whole words there; otherwise nothing, and returns false.
template <int WORDS>
ON_DEVICE bool store_words(const u64 (&words)[WORDS], u32 count, u8 *into) {
  if (count % 8 != 0 || ((u64)into & 7) != 0) return false;
  UNROLL for (u32 at = 0; at < WORDS; at++) {
    if (8 * at < count) ((Word *)into)[at] = {{(u32)words[at], (u32)(words[at] >> 32)}};
  }
  return true;
}

// Writes some decoded bytes of one pixel, which begin with byte `place` of `bytes`.
template <int WORDS>
ON_DEVICE void store_pixel(const u64 (&bytes)[WORDS], u32 place, u32 count, u8 *into) {
  if (place == 0 && store_words(bytes, count, into)) return;
  for (u32 byte = 0; byte < count; byte++) into[byte] = byte_of(bytes, place + byte);
}

// `store` for a chunk with some of the bands, whose pixels are not next to one another in the batch.
template <int WORDS>
ON_DEVICE void store_bands(const Chunk &chunk, u32 at, const u64 (&bytes)[WORDS], u32 count, u8 *batch) {
  u32 row = at / chunk.row_bytes, column = at % chunk.row_bytes;
  u32 byte = column % chunk.pixel;
  for (u32 place = 0; place < count;) {
    const u32 rest = chunk.pixel - byte, some = rest < count - place ? rest : count - place;
    if (row >= chunk.first_row && row - chunk.first_row < chunk.rows && column >= chunk.left &&
        column - chunk.left < chunk.width && byte < chunk.kept) {
      const u64 pixel = (column - chunk.left) / chunk.pixel;
      u8 *const into = batch + chunk.into + (row - chunk.first_row) * chunk.pitch + pixel * chunk.pixel_pitch + byte;
      store_pixel(bytes, place, byte + some > chunk.kept ? chunk.kept - byte : some, into);
    }
    place += some;
    column += some;
    byte = 0;
    if (column >= chunk.row_bytes) {
      column = 0;
      row++;
    }
  }
}

// Writes those of `count` decoded bytes that are kept. `at` is the place of the first one in the chunk.
template <int WORDS>
ON_DEVICE void store(const Chunk &chunk, u32 at, const u64 (&bytes)[WORDS], u32 count, u8 *batch) {
  if (chunk.kept != chunk.pixel || chunk.pixel != chunk.pixel_pitch) {
    store_bands(chunk, at, bytes, count, batch);
    return;
  }
  u32 row = at / chunk.row_bytes, column = at % chunk.row_bytes;
  const bool inside = row >= chunk.first_row && row - chunk.first_row < chunk.rows && column >= chunk.left &&
                      column + count <= chunk.left + chunk.width;
  if (inside) {
    u8 *const into = batch + chunk.into + (row - chunk.first_row) * chunk.pitch + (column - chunk.left);
    if (store_words(bytes, count, into)) return;
  }
  for (u32 place = 0; place < count; place++) {
    if (row >= chunk.first_row && row - chunk.first_row < chunk.rows && column >= chunk.left &&
        column - chunk.left < chunk.width) {
      const u64 into = chunk.into + (row - chunk.first_row) * chunk.pitch + (column - chunk.left);
      batch[into] = byte_of(bytes, place);
    }
    if (++column == chunk.row_bytes) {
      column = 0;
      row++;
    }
  }
}

// The bits of a float16 number, rounded to nearest, or to even between two.
ON_DEVICE u32 half_bits(float value) {
  if (value != value) return 0x7e00;
#ifdef HSIPACK_ON_HOST
  u32 bits;
  memcpy(&bits, &value, 4);
  const u32 sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits >= 0x47800000) return sign | 0x7c00;
  if (bits < 0x38800000) {
    // Below 2^-14, the sum with 0.5 has as many fractional bits as a float16 number.
    float magnitude;
    memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    memcpy(&bits, &magnitude, 4);
    return sign | (bits - 0x3f000000);
  }
  return sign | (bits + 0xc8000fff + (bits >> 13 & 1)) >> 13;
#else
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#endif
}

// The bits of the float16 value of an integer: computed in single precision, with one rounding of the sum.
ON_DEVICE u32 half_of(const Floats &floats, i32 number) {
  const float factor = (float)floats.factor, offset = (float)floats.offset;
  if ((float)number == (float)floats.missing) return 0x7e00;
#ifdef HSIPACK_ON_HOST
  return half_bits(__builtin_fmaf((float)number, factor, offset));
#else
  return half_bits(__fmaf_rn((float)number, factor, offset));
#endif
}

// The bits of the float32 value of an integer: computed in double precision.
ON_DEVICE u32 single_of(const Floats &floats, i32 number) {
  if ((double)number == floats.missing) return 0x7fc00000;
#ifdef HSIPACK_ON_HOST
  // So that the compiler does not join product and sum.
  const volatile double product = (double)number * floats.factor;
  const float value = (float)(product + floats.offset);
  u32 bits;
  memcpy(&bits, &value, 4);
  return bits;
#else
  return __float_as_uint(__double2float_rn(__dadd_rn(__dmul_rn((double)number, floats.factor), floats.offset)));
#endif
}

// Bytes of an integer that becomes a float.
ON_DEVICE u32 number_bytes(const Floats &floats) { return floats.number <= SIGNED_8 ? 1 : 2; }

// Converts WORDS words of integers of BYTES bytes to floats of FLOAT bytes. Arrays stay in registers if all loops are unrolled.
template <int WORDS, int BYTES, int FLOAT>
ON_DEVICE void convert(const Floats &floats, const u64 *stored, u64 *converted) {
  const bool is_signed = floats.number == SIGNED_8 || floats.number == SIGNED_16;
  UNROLL for (int word = 0; word < WORDS * FLOAT / BYTES; word++) {
    u64 bits = 0;
    UNROLL for (int place = 0; place < 8 / FLOAT; place++) {
      const int at = (word * 8 / FLOAT + place) * BYTES;
      const u32 number = (u32)(stored[at / 8] >> 8 * (at % 8)) << (32 - 8 * BYTES);
      const i32 value = is_signed ? (i32)number >> (32 - 8 * BYTES) : (i32)(number >> (32 - 8 * BYTES));
      bits |= (u64)(FLOAT == 2 ? half_of(floats, value) : single_of(floats, value)) << 8 * FLOAT * place;
    }
    converted[word] = bits;
  }
}

// Converts WORDS words of integers to floats, and returns how many bytes `bytes` of them become. Two words have integers of two
// bytes.
template <int WORDS>
ON_DEVICE u32 convert(const Floats &floats, const u64 *stored, u32 bytes, u64 *converted) {
  const bool is_half = floats.bytes == 2;
  if (WORDS == 2 || number_bytes(floats) == 2) {
    if (is_half) convert<WORDS, 2, 2>(floats, stored, converted);
    if (!is_half) convert<WORDS, 2, 4>(floats, stored, converted);
  } else {
    if (is_half) convert<WORDS, 1, 2>(floats, stored, converted);
    if (!is_half) convert<WORDS, 1, 4>(floats, stored, converted);
  }
  return bytes / number_bytes(floats) * floats.bytes;
}

// Undoes a filter, and writes what is kept. `from` has `bytes` bytes, whose place in the chunk is `first`. SIZE is that of
// an element, 1 without a filter.
template <int FILTER, int SIZE>
ON_DEVICE void unfilter(const Floats &floats, const Chunk &chunk, const u8 *from, u32 bytes, u32 first, u32 thread,
                        u8 *batch) {
  const u32 elements = bytes / SIZE;
  for (u32 element = thread * GROUP; element < elements; element += THREADS * GROUP) {
    const u32 count = elements - element < GROUP ? elements - element : GROUP;
    u64 planes[SIZE], values[SIZE];
    UNROLL for (int plane = 0; plane < SIZE; plane++) {
      if (FILTER == BITS) {
        u64 rows = 0;
        for (int row = 0; row < 8; row++) {
          const u64 line = (u64)(8 * plane + row) * (elements / 8);
          rows |= (u64)from[line + element / 8] << 8 * row;
        }
        planes[plane] = transposed(rows);
      } else {
        planes[plane] = load_bytes(from + (u64)plane * elements + element, count);
      }
      values[plane] = 0;
    }
    // Byte `plane` of every element.
    UNROLL for (int place = 0; place < GROUP * SIZE; place++) {
      const u64 byte = planes[place % SIZE] >> 8 * (place / SIZE) & 0xff;
      values[place / 8] |= byte << 8 * (place % 8);
    }
    if constexpr (SIZE <= 2) {
      if (floats.number != AS_STORED) {
        // These are whole integers, as `decode_block` has seen.
        u64 converted[4 * SIZE];
        const u32 converted_bytes = convert<SIZE>(floats, values, count * SIZE, converted);
        const u32 at = (first + element * SIZE) / number_bytes(floats) * floats.bytes;
        store(chunk, at, converted, converted_bytes, batch);
        continue;
      }
    }
    store(chunk, first + element * SIZE, values, count * SIZE, batch);
  }
  // Bytes that do not make an element are not filtered.
  for (u32 place = elements * SIZE + thread; place < bytes; place += THREADS) {
    const u64 byte[1] = {from[place]};
    store(chunk, first + place, byte, 1, batch);
  }
}

template <int FILTER>
ON_DEVICE void unfilter(const Floats &floats, const Chunk &chunk, const u8 *from, u32 bytes, u32 first, u32 size,
                        u32 thread, u8 *batch) {
  if (size == 1) unfilter<FILTER, 1>(floats, chunk, from, bytes, first, thread, batch);
  if (size == 2) unfilter<FILTER, 2>(floats, chunk, from, bytes, first, thread, batch);
  if (size == 4) unfilter<FILTER, 4>(floats, chunk, from, bytes, first, thread, batch);
}

// Decodes one block of a frame with one block of threads.
ON_DEVICE Status decode_block(const Floats &floats, const Chunk &chunk, const Frame &frame, u32 block, u8 *scratch,
                              u64 scratch_bytes, u8 *batch, Shared *shared) {
  const u32 first = block * frame.block_bytes, left = frame.chunk_bytes - first;
  const u32 bytes = left < frame.block_bytes ? left : frame.block_bytes;
  const u8 *from = frame.start + 16 + (u64)first;
  if (floats.number != AS_STORED) {
    // Blocks of whole integers, whose bytes are those that a filter took apart.
    const u32 size = number_bytes(floats);
    if (frame.chunk_bytes % size != 0 || frame.block_bytes % size != 0) return UNSUPPORTED;
    if (!frame.copied && frame.typesize != size) return UNSUPPORTED;
  }
  Filter filter = NONE;
  if (!frame.copied) {
    const bool splits = !frame.whole && bytes / frame.typesize >= 128 && bytes == frame.block_bytes;
    const u32 streams = splits ? frame.typesize : 1;
    if (bytes % streams != 0) return DAMAGED;
    if (bytes > scratch_bytes) return UNSUPPORTED;
    EACH_THREAD(thread) {
      if (thread == 0) shared->failed = 0;
    }
    SYNC_BLOCK
    EACH_WARP(warp) {
      for (u32 stream = warp; stream < streams; stream += WARPS) {
        if (!decode_stream(frame, block, stream, bytes / streams, scratch, shared->recent[warp])) shared->failed = 1;
      }
    }
    SYNC_BLOCK
    if (shared->failed) return DAMAGED;
    from = scratch;
    const u32 elements = bytes / frame.typesize;
    if (frame.shuffled) {
      filter = BYTES;
    } else if (frame.bitshuffled && elements > 0 && elements % 8 == 0) {
      filter = BITS;
    }
  }
  EACH_THREAD(thread) {
    if (filter == BYTES) unfilter<BYTES>(floats, chunk, from, bytes, first, frame.typesize, thread, batch);
    if (filter == BITS) unfilter<BITS>(floats, chunk, from, bytes, first, frame.typesize, thread, batch);
    if (filter == NONE) unfilter<NONE>(floats, chunk, from, bytes, first, 1, thread, batch);
  }
  return SOUND;
}

// The work of one block of threads: every `slots`th block of a chunk's frame.
ON_DEVICE void decode_blocks(const Decode &what, u32 number, const Chunk *chunks, const u8 *compressed, u8 *batch,
                             u8 *scratch, u32 *statuses, Shared *shared) {
  const u32 place = number / what.slots;
  if (place >= what.chunks) return;
  const Chunk chunk = chunks[place];
  Frame frame = {};
  Status status = read_header(chunk, compressed + chunk.frame, &frame);
  u8 *const own = scratch + number * what.scratch;
  for (u32 block = number % what.slots; status == SOUND && block < frame.blocks; block += what.slots) {
    status = decode_block(what.floats, chunk, frame, block, own, what.scratch, batch, shared);
    // The next block is decoded into the same memory.
    SYNC_BLOCK
  }
  if (status == SOUND) return;
  // Several blocks of threads may find something; each of their answers is true.
  EACH_THREAD(thread) {
    if (thread == 0) statuses[place] = status;
  }
}

#ifdef HSIPACK_ON_HOST

extern "C" void decode_order(u64 seed) { order_state = seed; }

extern "C" void decode_frames(const Decode *what, const Chunk *chunks, const u8 *compressed, u8 *batch, u8 *scratch,
                              u32 *statuses) {
  Shared shared = {};
  const u32 all = what->chunks * what->slots;
  // Blocks of threads run in any order, too: from one of them on, round and round.
  const u32 first = all ? order() % all : 0;
  for (u32 number = 0; number < all; number++) {
    decode_blocks(*what, (number + first) % all, chunks, compressed, batch, scratch, statuses, &shared);
  }
}

#else

extern "C" __global__ void __launch_bounds__(THREADS)
    decode_frames(const Decode what, const Chunk *chunks, const u8 *compressed, u8 *batch, u8 *scratch, u32 *statuses) {
  __shared__ Shared shared;
  decode_blocks(what, blockIdx.x, chunks, compressed, batch, scratch, statuses, &shared);
}

#endif
