// Runs fused_persistent.cu on a CPU: every GPU thread is a coroutine of one operating system
// thread. A coroutine gives way where a GPU thread may wait: at barriers, at shuffles, for words
// and copies. Slow, deterministic, and without most of the races that hardware has; a program that
// deadlocks here would deadlock there. Two words that are stored together arrive apart. With a
// CHAOS other than 0 blocks and warps fall asleep for a while, and bulk copies arrive late and in
// any order; all chance comes from it.
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef const char* WholeAddress;
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { u32 x, y; };
struct alignas(16) uint4 { u32 x, y, z, w; };

#define EMULATED
#define NOT_INLINED
#define __device__
#define KERNEL extern "C"

struct Meeting { int arrived = 0; long round = 0; };
struct Thread { ucontext_t context; jmp_buf place; int id, block; bool begun, done; };
struct Block {
  Meeting all, warp[32];
  float lanes[32][32];
  u32 operands[32][32][6];
  char* memory;
};
static std::vector<Thread> threads;
static std::vector<Block> blocks;
static Thread* self;
static jmp_buf scheduler;
static int block_size;
static bool complained;  // the program asked for what a GPU does not do
#ifndef CHAOS
#define CHAOS 0
#endif
#ifndef UNMET
#define UNMET 0  // a planted fault: the threads of a block do not wait for each other
#endif
static const int MOST_SWEEPS = 300000;  // over all threads; without CHAOS a step takes thousands

inline void complain(const char* what, int number = 0) {
  fprintf(stderr, what, number);
  fputs("\n", stderr);
  complained = true;
}
// Jumps, because to change contexts asks the operating system for the mask of signals each time.
inline void give_way() { if (!_setjmp(self->place)) _longjmp(scheduler, 1); }
inline void go_on(Thread& t) {
  self = &t;
  if (_setjmp(scheduler)) return;
  if (t.begun) _longjmp(t.place, 1);
  t.begun = true;
  setcontext(&t.context);
}
inline int thread_id() { return self->id; }
inline int lane_id() { return self->id % 32; }
inline int block_id() { return self->block; }
inline Block& my_block() { return blocks[self->block]; }
inline char* shared_memory() { return my_block().memory; }
inline void meet(Meeting& at, int size) {
  const long round = at.round;
  if (++at.arrived == size) {
    at.arrived = 0;
    ++at.round;
    return;
  }
  while (at.round == round) give_way();
}
inline void sync_block() {
  if (UNMET) give_way();
  else meet(my_block().all, block_size);
}
inline void sync_warp() { meet(my_block().warp[self->id / 32], 32); }
inline float exchange(float v, int from) {
  float* lanes = my_block().lanes[self->id / 32];
  lanes[lane_id()] = v;
  sync_warp();
  const float got = lanes[from];
  sync_warp();
  return got;
}
inline float shuffle_xor(float v, int lanes) { return exchange(v, lane_id() ^ lanes); }
inline float shuffle(float v, int lane) { return exchange(v, lane); }
inline u32 float_bits(float v) { u32 b; memcpy(&b, &v, 4); return b; }
inline float bits_float(u32 v) { float f; memcpy(&f, &v, 4); return f; }
inline u32 shuffle_int(u32 v, int lane) { return float_bits(exchange(bits_float(v), lane)); }
inline float reciprocal_root(float v) { return 1 / std::sqrt(v); }
inline float exponential(float v) { return std::exp(v); }
inline float quotient(float a, float b) { return a / b; }
inline float logarithm(float v) { return std::log(v); }
inline float half_float(u16 v) { _Float16 h; memcpy(&h, &v, 2); return (float)h; }
inline u16 float_half(float v) { _Float16 h = (_Float16)v; u16 b; memcpy(&b, &h, 2); return b; }
inline float2 two_halves(u32 v) { return {half_float(v & 0xffff), half_float(v >> 16)}; }
inline u32 low_halves(u32 a, u32 b) { return b << 16 | (a & 0xffff); }
#ifndef ONE_TAG
#define ONE_TAG 0  // a planted fault: nobody looks at the tag of a packet's first half
#endif
inline u32 high_halves(u32 a, u32 b) { return (b & 0xffff0000) | (ONE_TAG ? b : a) >> 16; }
template <int N>
inline void load_halves(const u16* from, float* to) {
  for (int i = 0; i < N; ++i) to[i] = half_float(from[i]);
}
inline u32 halves(float a, float b) { return (u32)float_half(b) << 16 | float_half(a); }
inline void bytes_to_halves(u32 v, u32& first, u32& second) {
  first = halves((int8_t)v, (int8_t)(v >> 8));
  second = halves((int8_t)(v >> 16), (int8_t)(v >> 24));
}
template <int I>
inline u32 row_of_byte(u32 word, WholeAddress at) {
  return *(const u32*)(at + (word >> 8 * I & 255) * 128);
}
inline void multiply_add(float* sums, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  u32 (*given)[6] = my_block().operands[self->id / 32];
  const u32 mine[6] = {a0, a1, a2, a3, b0, b1};
  memcpy(given[lane_id()], mine, sizeof mine);
  sync_warp();
  for (int i = 0; i < 4; ++i)
    for (int t = 0; t < 4; ++t)
      for (int k = 0; k < 2; ++k) {
        const u32* row = given[lane_id() / 4 * 4 + t];
        const u32* column = given[(lane_id() % 4 * 2 + i % 2) * 4 + t];
        const float2 x = two_halves(row[2 * k + i / 2]), y = two_halves(column[4 + k]);
        sums[i] += x.x * y.x + x.y * y.y;
      }
  sync_warp();
}
inline void multiply_first(float* sums, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  for (int i = 0; i < 4; ++i) sums[i] = 0;
  multiply_add(sums, a0, a1, a2, a3, b0, b1);
}
inline void aligned(const void* at, const char* what) {
  if ((uintptr_t)at % 16) complain(what);
}
static u64 chance = CHAOS;
inline u32 up_to(u32 most) {
  chance = chance * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(chance >> 33) % most;
}
// Sixteen bytes travel as two halves of eight that may arrive apart, either first.
inline void store_word(u64* to, u64 word) { *to = word; }
inline void store_two(void* to, u64 a, u64 b) {
  const u64 words[2] = {a, b};
  const u32 first = up_to(2);
  ((u64*)to)[first] = words[first];
  give_way();
  ((u64*)to)[1 - first] = words[1 - first];
}
inline void load_two(const void* from, u64& a, u64& b) {
  aligned(from, "a pair of words that is not aligned");
  give_way();
  a = ((const u64*)from)[0];
  give_way();
  b = ((const u64*)from)[1];
}
inline u32 read_volatile(const u32* from) { return *from; }
inline i64 cycles() { return 0; }
inline u32 read_counter(const u32* from) { give_way(); return *from; }
inline u32 atomic_increment(u32* at) { return (*at)++; }
inline void fence_device() {}
// A barrier counts bytes that are still to come (low half) and rounds that are over (high half).
inline void start_barrier(u64* barrier) { *barrier = 0; }
inline void fence_barriers() {}
inline void expect_bytes(u64* barrier, u32 bytes) {
  if (*barrier & 0xffffffff) complain("a barrier is used before its round is over");
  *barrier += bytes;
  if (!bytes) *barrier += 1ull << 32;
}
struct Copy { void* to; const void* from; u32 bytes; u64* barrier; int due; };
static std::vector<Copy> copies;  // on their way
inline void arrive(const Copy& copy) {
  memcpy(copy.to, copy.from, copy.bytes);
  *copy.barrier -= copy.bytes;
  if (!(*copy.barrier & 0xffffffff)) *copy.barrier += 1ull << 32;
}
inline void some_copies_arrive() {
  for (size_t i = 0; i < copies.size();)
    if (--copies[i].due > 0) ++i;
    else { arrive(copies[i]); copies[i] = copies.back(); copies.pop_back(); }
}
inline void copy_bulk(void* to, const void* from, u32 bytes, u64* barrier) {
  aligned(to, "the target of a bulk copy is not aligned");
  aligned(from, "the source of a bulk copy is not aligned");
  if (bytes % 16 || bytes > (*barrier & 0xffffffff)) {
    complain("a bulk copy of %d bytes, which are not expected", (int)bytes);
    return;
  }
  const Copy copy = {to, from, bytes, barrier, CHAOS ? 1 + (int)up_to(up_to(8) ? 20 : 200) : 0};
  if (CHAOS) copies.push_back(copy);
  else arrive(copy);
}
inline WholeAddress whole_address(const void* at) { return (const char*)at; }
inline void wait_full(u64* barrier, int parity) {
  while ((int)(*barrier >> 32 & 1) == parity) give_way();
}

#include "fused_persistent.cu"

static const Step* given;
static void run_thread() {
  fused_step(*given);
  self->done = true;
  give_way();
}

extern "C" int shared_bytes() { return sizeof(Shared); }
// The pairs of rows of the head, warp after warp.
extern "C" void head_pairs(int* to) {
  for (int warp = 0; warp < ALL_WARPS; ++warp)
    for (int i = 0; i < begin_of(HEAD, warp + 1) - begin_of(HEAD, warp); ++i)
      *to++ = head_pair(warp, i);
}
extern "C" int run_step(const Step* step) {
  given = step;
  block_size = THREADS;
  blocks.assign(GRID, Block());
  threads.assign(GRID * THREADS, Thread());
  std::vector<char> stacks((size_t)GRID * THREADS << 16);
  const size_t bytes = (sizeof(Shared) + 127) / 128 * 128;
  for (Block& block : blocks)  // whoever reads what nobody wrote finds numbers that are none
    block.memory = (char*)memset(aligned_alloc(128, bytes), 0xff, bytes);
  for (size_t i = 0; i < threads.size(); ++i) {
    Thread& t = threads[i];
    t.id = i % THREADS;
    t.block = i / THREADS;
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = &stacks[i << 16];
    t.context.uc_stack.ss_size = 1 << 16;
    t.context.uc_link = nullptr;  // nobody returns: who is done gives way for good
    makecontext(&t.context, run_thread, 0);
  }
  int sweeps = 0;
  std::vector<int> asleep(threads.size() / 32);  // warps, for so many sweeps
  for (bool busy = true; busy;) {
    busy = false;
    if (++sweeps > MOST_SWEEPS) return -1;  // the threads wait for each other
    some_copies_arrive();
    if (CHAOS && !up_to(10)) {  // a whole block
      const size_t first = up_to(GRID) * WARPS;
      for (size_t warp = first; warp < first + WARPS; ++warp) asleep[warp] = 1 + up_to(300);
    }
    for (size_t i = 0; i < threads.size(); ++i) {
      Thread& t = threads[i];
      int& sleeps = asleep[i / 32];
      if (i % 32 == 0 && CHAOS) sleeps = sleeps ? sleeps - 1 : up_to(50) ? 0 : 1 + up_to(60);
      if (t.done) continue;
      busy = true;
      if (sleeps) continue;
      go_on(t);
    }
  }
  for (Block& block : blocks) free(block.memory);
  return complained ? -2 : (int)step->control[2];
}
