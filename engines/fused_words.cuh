#pragma once
// Words of {value, tag} that pass between blocks, and the inputs of each phase made of them.
#include "fused_layout.cuh"

__device__ void patience(const Step& step, u32& spins) {
  if (++spins > SPIN_LIMIT) step.control[2] = 1;  // somebody is missing: end, with a wrong result
}
__device__ bool given_up(const Step& step, u32 spins) {
  return spins > SPIN_LIMIT || ((spins & 1023) == 1023 && read_volatile(&step.control[2]));
}

__device__ void put(u64* word, float value, u32 tag) {
  store_word(word, (u64)tag << 32 | float_bits(value));
}
__device__ void put_halves(u64* word, float a, float b, u32 tag) {
  store_word(word, (u64)tag << 32 | (u32)float_half(b) << 16 | float_half(a));
}

// Words can be polled, but 132 blocks that all look at all words slow each other and the writers
// down. So each block counts itself in when its words are under way, and one thread of a waiting
// block looks at the counter. The counter orders nothing: what counts is still each word's tag.
enum Arrival { AFTER_QKV, AFTER_ATTENTION, AFTER_O, AFTER_FFN_IN, AFTER_DOWN, ARRIVALS };

struct Hop { u32* counter; u32 target; };  // target 0: nothing to wait for

__device__ Hop hop(const Step& step, Arrival which, u32 target) {
  return {step.control + 32 * (which + 1), target};
}
__device__ void arrive(const Step& step, Arrival which) {
  if (!COUNTED) return;
  sync_block();
  if (thread_id() == 0) atomic_increment(step.control + 32 * (which + 1));
}
__device__ void await(const Step& step, const Hop& hop) {
  if (!COUNTED || !hop.target) return;
  u32 spins = 0;
  if (thread_id() == 0)
    while (read_counter(hop.counter) < hop.target) {
      patience(step, spins);
      if (given_up(step, spins)) break;
    }
  sync_block();
}

// N pairs of neighbouring words per thread, all asked for before the first is waited for.
template <int N>
__device__ void take_pairs(const Step& step, const u64* words, const int* at, u32 tag, float2* out) {
  u64 got[N][2];
  u32 spins = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) if (at[i] >= 0) load_words(words + at[i], got[i][0], got[i][1]);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (at[i] < 0) continue;
    while ((u32)(got[i][0] >> 32) != tag || (u32)(got[i][1] >> 32) != tag) {
      patience(step, spins);
      if (given_up(step, spins)) break;
      if (BACKOFF_NS) nap(BACKOFF_NS);
      load_words(words + at[i], got[i][0], got[i][1]);
    }
    out[i] = {bits_float((u32)got[i][0]), bits_float((u32)got[i][1])};
  }
}

// Where a column's input lies, so that neighbouring lanes read neighbouring 16 bytes of it: a lane
// takes 16 bytes of codes at a time, that is 8, 16 or 32 columns, four from each plane.
template <int E, int COLUMNS>
__device__ int place(int column) {
  if (E == 0) return column % 8 / 4 * (COLUMNS / 2) + column / 8 * 4 + column % 4;
  if (E == 1) return column % 16 / 4 * (COLUMNS / 4) + column / 16 * 4 + column % 4;
  const int inside = column % 32, high = column % 64 / 32;
  const int plane = high * 4 + inside % 16 / 4, segment = column / 64 * 2 + inside / 16;
  return plane * (COLUMNS / 8) + segment * 4 + column % 4;
}

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) value += shuffle_xor(value, lanes);
  return value;
}

// A normed input: from words, or from the token's embedding; `sums` gets each warp's squares.
template <int E>
__device__ void take_normed(const Step& step, float* to, float* sums, const u64* words,
                            const u16* embedded, const u16* gain, u32 tag, const Hop& from) {
  constexpr int PAIRS = HIDDEN / 2, N = (PAIRS + THREADS - 1) / THREADS;
  float squares = 0;
  float2 value[N];
  u32 gains[N];
  int at[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int pair = thread_id() + i * THREADS;
    at[i] = pair < PAIRS ? 2 * pair : -1;
    if (at[i] >= 0) gains[i] = *(const u32*)(gain + at[i]);
    if (at[i] >= 0 && embedded) value[i] = two_halves(*(const u32*)(embedded + at[i]));
  }
  await(step, from);
  if (!embedded) take_pairs<N>(step, words, at, tag, value);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (at[i] < 0) continue;
    squares += value[i].x * value[i].x + value[i].y * value[i].y;
    const float2 g = two_halves(gains[i]);
    *(float2*)(to + place<E, HIDDEN>(at[i])) = {value[i].x * g.x, value[i].y * g.y};
  }
  squares = warp_sum(squares);
  if (lane_id() == 0) sums[thread_id() / 32] = squares;
  sync_block();
}

__device__ float inverse_rms(const float* sums) {
  float squares = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) squares += sums[w];
  return reciprocal_root(squares / HIDDEN + EPSILON);
}

template <int E>
__device__ void take_inner(const Step& step, float* to, const u64* words, u32 tag,
                           const Hop& from) {
  constexpr int PAIRS = FFN / 2, BATCH = 8;
  await(step, from);
#pragma unroll 1
  for (int first = 0; first < PAIRS; first += BATCH * THREADS) {
    float2 value[BATCH];
    int at[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int pair = first + thread_id() + i * THREADS;
      at[i] = pair < PAIRS ? 2 * pair : -1;
    }
    take_pairs<BATCH>(step, words, at, tag, value);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) if (at[i] >= 0) *(float2*)(to + place<E, FFN>(at[i])) = value[i];
  }
  sync_block();
}

// The parts of the attention, weighed by the size of their softmax sums. A thread has a few columns
// and asks for several splits of all of them at a time: most contexts need one round trip.
template <int E>
__device__ void take_attention(const Step& step, float* to, const u64* parts, int splits, u32 tag,
                               const Hop& from) {
  constexpr int QUADS = QUERY / 4, WANTED = (QUADS + THREADS - 1) / THREADS;
  constexpr int EACH = WANTED < 4 ? WANTED : 4, SPLITS = 8 / EACH, ALL = EACH * SPLITS;
  await(step, from);
#pragma unroll 1
  for (int first = thread_id(); first < QUADS; first += EACH * THREADS) {
    float top[EACH], below[EACH];
    float4 above[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      top[i] = NEGATIVE_INFINITY;
      below[i] = 0;
      above[i] = {0, 0, 0, 0};
    }
#pragma unroll 1
    for (int split = 0; split < splits; split += SPLITS) {
      float2 value[ALL], sums[ALL];
      int at[ALL], sum_at[ALL];
#pragma unroll
      for (int i = 0; i < ALL; ++i) {
        const int quad = first + i % EACH * THREADS, part = (split + i / EACH) * PART;
        const bool ok = quad < QUADS && split + i / EACH < splits;
        at[i] = ok ? part + 2 * quad : -1;
        sum_at[i] = ok ? part + QUERY / 2 + 4 * quad / HEAD_DIM / 2 * 2 : -1;
      }
      take_pairs<ALL>(step, parts, at, tag, value);
      take_pairs<ALL>(step, parts, sum_at, tag, sums);
#pragma unroll
      for (int i = 0; i < ALL; ++i) {
        if (at[i] < 0) continue;
        const int mine = i % EACH;
        const float sum = 4 * (first + mine * THREADS) / HEAD_DIM % 2 ? sums[i].y : sums[i].x;
        const float higher = top[mine] > sum ? top[mine] : sum;
        const float old = exponential(top[mine] - higher);
        const float fresh = sum > NEGATIVE_INFINITY ? exponential(sum - higher) : 0;
        const float2 a = two_halves(float_bits(value[i].x)), b = two_halves(float_bits(value[i].y));
        above[mine] = {above[mine].x * old + fresh * a.x, above[mine].y * old + fresh * a.y,
                       above[mine].z * old + fresh * b.x, above[mine].w * old + fresh * b.y};
        below[mine] = below[mine] * old + fresh;
        top[mine] = higher;
      }
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int quad = first + i * THREADS;
      const float4 v = above[i];
      const float share = 1 / below[i];
      if (quad < QUADS)
        *(float4*)(to + place<E, QUERY>(4 * quad)) = {v.x * share, v.y * share, v.z * share, v.w * share};
    }
  }
  sync_block();
}
