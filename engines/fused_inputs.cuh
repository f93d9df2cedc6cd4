#pragma once
// The input of each phase, in shared memory, made of what all blocks have sent.
#include "fused_exchange.cuh"

// Columns that 16 bytes of codes hold.
__device__ constexpr int per_segment(int encoding) { return 8 << encoding; }
// Halves from one plane of inputs to the next.
template <int E, int COLUMNS>
__device__ constexpr int plane() { return COLUMNS / per_segment(E) * 8 + (E == 2 ? PLANE_GAP : 0); }

// Four lanes share two blocks of 64 four-bit codes, a quarter of each per lane, every other pair of
// blocks in reverse: that spreads what a warp reads at once over all banks.
__device__ int block_turn(int segment) { return segment / 8 & 1; }

// Where a column's input lies, so that neighbouring lanes read neighbouring 16 bytes of it: a lane
// takes a segment of codes at a time, and of its columns eight from each plane.
template <int E, int COLUMNS>
__device__ int place(int column) {
  int inside = column % per_segment(E), segment = column / per_segment(E);
  if (E == 2) {
    segment = column / 128 * 4 + column % 64 / 16;
    inside = (column / 64 % 2 ^ block_turn(segment)) * 16 + column % 16;
  }
  return inside / 8 * plane<E, COLUMNS>() + segment * 8 + inside % 8;
}
template <int E, int COLUMNS>
__device__ void place_pair(u16* to, int column, u32 pair) {
  *(u32*)(to + place<E, COLUMNS>(column)) = pair;
}

__device__ float warp_sum(float value) {
  sync_warp();
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) value += shuffle_xor(value, lanes);
  return value;
}

// N sums over all lanes, N a power of two up to 32: value k ends on the lanes of which bit 4 is k's
// bit 0, bit 3 its bit 1, and so on.
template <int N, int LANES = 16>
__device__ float lane_sums(float* values) {
  if (LANES == 16) sync_warp();
  if constexpr (N == 1) {
#pragma unroll
    for (int lanes = LANES; lanes; lanes /= 2) values[0] += shuffle_xor(values[0], lanes);
    return values[0];
  } else {
    const bool upper = lane_id() & LANES;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float keep = upper ? values[2 * i + 1] : values[2 * i];
      const float give = upper ? values[2 * i] : values[2 * i + 1];
      values[i] = keep + shuffle_xor(give, LANES);
    }
    return lane_sums<N / 2, LANES / 2>(values);
  }
}
// Where `lane_sums` leaves value k.
__device__ constexpr int lane_of(int k) {
  int lane = 0;
  for (int bit = 0; bit < 5; ++bit) lane |= (k >> bit & 1) << (4 - bit);
  return lane;
}

__device__ constexpr int power_of_two(int n) { return n <= 1 ? 1 : 2 * power_of_two((n + 1) / 2); }

__device__ float inverse_rms(const float* sums) {
  float squares = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) squares += sums[w];
  return reciprocal_root(squares / HIDDEN + EPSILON);
}

// The columns of packet `i`: `pairs` pairs from `column` on.
struct Columns { int column, pairs; };

template <int RUN>
__device__ Columns columns_of_packet(int i) {
  const int inside = i % packets_of(RUN) * PER_PACKET, left = RUN - inside;
  return {i / packets_of(RUN) * RUN + inside, (left < PER_PACKET ? left : PER_PACKET) / 2};
}

// A norm's gains for the columns that this thread will take, asked for before they are needed.
constexpr int X_EACH = (X_PACKETS + THREADS - 1) / THREADS;
struct NormGains { u32 pair[X_EACH][PER_PACKET / 2]; };

__device__ NormGains norm_gains(const u16* gain) {
  NormGains gains;
#pragma unroll
  for (int i = 0; i < X_EACH; ++i) {
    const int at = i * THREADS + thread_id();
    const Columns mine = columns_of_packet<X_RUN>(at);
#pragma unroll
    for (int j = 0; j < PER_PACKET / 2; ++j)
      if (at < X_PACKETS && j < mine.pairs)
        gains.pair[i][j] = *(const u32*)(gain + mine.column + 2 * j);
  }
  return gains;
}

// A normed input, times its gains: from packets or from the token's embedding.
template <int E>
__device__ void take_normed(const Step& step, Shared& shared, const Packet* packets,
                            const u16* embedded, const NormGains& gains, u32 tag, Hint hint,
                            u32 target) {
  constexpr int N = X_EACH, PAIRS = PER_PACKET / 2;
  Packet got[N];
  u32 asked = 0;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int at = i * THREADS + thread_id();
    const Columns mine = columns_of_packet<X_RUN>(at);
    if (at >= X_PACKETS || !embedded) continue;
    const u32* pair = (const u32*)(embedded + mine.column);
    got[i] = packed(pair[0], mine.pairs > 1 ? pair[1] : 0, mine.pairs > 2 ? pair[2] : 0, tag);
  }
  if (!embedded) {
    await_hint(step, hint, target);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i * THREADS + thread_id() < X_PACKETS) got[i] = look(packets + i * THREADS + thread_id());
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int at = i * THREADS + thread_id();
    const Columns mine = columns_of_packet<X_RUN>(at);
    if (at >= X_PACKETS) continue;
    if (!embedded) await(step, packets + at, tag, got[i], asked);
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) {
      if (j >= mine.pairs) continue;
      const float2 value = two_halves(pair_of(got[i], j));
      squares += value.x * value.x + value.y * value.y;
    }
  }
  squares = warp_sum(squares);
  if (lane_id() == 0) shared.squares[thread_id() / 32] = squares;
  sync_block();
  const float norm = inverse_rms(shared.squares);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int at = i * THREADS + thread_id();
    const Columns mine = columns_of_packet<X_RUN>(at);
    if (at >= X_PACKETS) continue;
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) {
      if (j >= mine.pairs) continue;
      const float2 value = two_halves(pair_of(got[i], j)), g = two_halves(gains.pair[i][j]);
      place_pair<E, HIDDEN>((u16*)shared.input, mine.column + 2 * j,
                            pack_halves(value.x * norm * g.x, value.y * norm * g.y));
    }
  }
  sync_block();
}

// Any other input than a normed one, as it was sent.
template <int E, int COLUMNS, int RUN>
__device__ void take(const Step& step, Shared& shared, const Packet* packets, u32 tag, Hint hint,
                     u32 target) {
  constexpr int ALL = COLUMNS / RUN * packets_of(RUN), EACH = (ALL + THREADS - 1) / THREADS;
  constexpr int BATCH = EACH < 4 ? EACH : 4;
  u32 asked = 0;
  await_hint(step, hint, target);
#pragma unroll 1
  for (int first = thread_id(); first < ALL; first += BATCH * THREADS) {
    Packet got[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
      if (first + i * THREADS < ALL) got[i] = look(packets + first + i * THREADS);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int at = first + i * THREADS;
      const Columns mine = columns_of_packet<RUN>(at);
      if (at >= ALL) continue;
      await(step, packets + at, tag, got[i], asked);
#pragma unroll
      for (int j = 0; j < PER_PACKET / 2; ++j)
        if (j < mine.pairs)
          place_pair<E, COLUMNS>((u16*)shared.input, mine.column + 2 * j, pair_of(got[i], j));
    }
  }
  sync_block();
}
