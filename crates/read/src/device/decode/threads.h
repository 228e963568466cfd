// Types, and the threads of a kernel, on a GPU and in loops on the host.
//
// Kernels are compiled for GPUs by scripts/dev/make_kernels.py, and as C++ by tests (HSIPACK_ON_HOST): a loop over the lanes of a
// warp, in random order, takes the place of the GPU. So nothing else is included, and work that lanes or threads do between two
// synchronisations is the body of EACH_LANE, EACH_WARP or EACH_THREAD.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// Lanes of a warp, and warps of a block of threads. Rust says the same.
#define LANES 32
#define WARPS 2
#define THREADS (WARPS * LANES)

#ifdef HSIPACK_ON_HOST

#include <string.h>
#define ON_DEVICE static inline

// Random numbers for the order of lanes, warps, and threads; one series for each thread of a test.
static thread_local u64 order_state = 1;
static inline u32 order() {
  order_state = order_state * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(order_state >> 33);
}
// Every number below `count`, a power of two, in a random order.
struct Shuffled {
  u32 done, count, factor, first;
  explicit Shuffled(u32 all) : done(0), count(all), factor(order() | 1), first(order()) {}
  bool more() const { return done < count; }
  u32 at() const { return (done * factor + first) & (count - 1); }
};
#define EACH(NAME, COUNT) \
  for (Shuffled NAME##s(COUNT); NAME##s.more(); NAME##s.done++) \
    if (const u32 NAME = NAME##s.at(); true)
#define EACH_LANE(NAME) EACH(NAME, LANES)
#define EACH_WARP(NAME) EACH(NAME, WARPS)
#define EACH_THREAD(NAME) EACH(NAME, THREADS)
#define SYNC_WARP
#define SYNC_BLOCK

#else

#define ON_DEVICE static __device__ __forceinline__
#define EACH_LANE(NAME) if (const u32 NAME = threadIdx.x % LANES; true)
#define EACH_WARP(NAME) if (const u32 NAME = threadIdx.x / LANES; true)
#define EACH_THREAD(NAME) if (const u32 NAME = threadIdx.x; true)
#define SYNC_WARP __syncwarp();
#define SYNC_BLOCK __syncthreads();

#endif
