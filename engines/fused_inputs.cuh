#pragma once
// The input of each phase, in shared memory, made of what all blocks have sent.
#include "fused_exchange.cuh"

// Columns that 16 bytes of codes hold.
__device__ constexpr int per_segment(int encoding) { return 8 << encoding; }

// Where a column's input lies, so that neighbouring lanes read neighbouring 16 bytes of it: a lane
// takes a segment of codes at a time, and of its columns WIDTH from each plane.
template <int E, int COLUMNS, int WIDTH>
__device__ int place(int column) {
  constexpr int SEGMENTS = COLUMNS / per_segment(E);
  int inside = column % per_segment(E), segment = column / per_segment(E);
  if (E == 2) {
    inside = column % 64 / 32 * 16 + column % 16;
    segment = column / 64 * 2 + column % 32 / 16;
  }
  return inside / WIDTH * (SEGMENTS * WIDTH) + segment * WIDTH + inside % WIDTH;
}

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) value += shuffle_xor(value, lanes);
  return value;
}

// N sums over all lanes, N a power of two up to 32: value k ends on the lanes of which bit 4 is k's
// bit 0, bit 3 its bit 1, and so on.
template <int N>
__device__ float lane_sums(float* values) {
  int lanes = 16;
#pragma unroll
  for (int left = N; left > 1; left /= 2, lanes /= 2) {
    const bool upper = lane_id() & lanes;
#pragma unroll
    for (int i = 0; i < left / 2; ++i) {
      const float keep = upper ? values[2 * i + 1] : values[2 * i];
      const float give = upper ? values[2 * i] : values[2 * i + 1];
      values[i] = keep + shuffle_xor(give, lanes);
    }
  }
#pragma unroll
  for (; lanes; lanes /= 2) values[0] += shuffle_xor(values[0], lanes);
  return values[0];
}
// That lane; its own inverse, so it also tells which value a lane has.
__device__ constexpr int lane_of(int k) {
  int lane = 0;
  for (int bit = 0; bit < 5; ++bit) lane |= (k >> bit & 1) << (4 - bit);
  return lane;
}

__device__ constexpr int power_of_two(int n) { return n <= 1 ? 1 : 2 * power_of_two((n + 1) / 2); }

// The columns of packet `i`: `pairs` pairs from `column` on.
struct Columns { int column, pairs; };

template <int RUN>
__device__ Columns columns_of_packet(int i) {
  const int inside = i % packets_of(RUN) * PER_PACKET, left = RUN - inside;
  return {i / packets_of(RUN) * RUN + inside, (left < PER_PACKET ? left : PER_PACKET) / 2};
}
__device__ u32 pair_of(const Packet& packet, int i) {
  return i == 0 ? packet.x : i == 1 ? packet.y : packet.z;
}

// A normed input, times its gains: from packets or from the token's embedding; `sums` gets each
// warp's squares.
template <int E>
__device__ void take_normed(const Step& step, float* to, float* sums, const Packet* packets,
                            const u16* embedded, const u16* gain, u32 tag, Hint hint,
                            u32 target) {
  constexpr int N = (X_PACKETS + THREADS - 1) / THREADS, PAIRS = PER_PACKET / 2;
  Packet got[N];
  u32 gains[N][PAIRS], asked = 0;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int at = i * THREADS + thread_id();
    const Columns mine = columns_of_packet<X_RUN>(at);
    if (at >= X_PACKETS) continue;
#pragma unroll
    for (int j = 0; j < PAIRS; ++j)
      if (j < mine.pairs) gains[i][j] = *(const u32*)(gain + mine.column + 2 * j);
    if (!embedded) continue;
    const u32* pair = (const u32*)(embedded + mine.column);
    got[i] = {pair[0], mine.pairs > 1 ? pair[1] : 0, mine.pairs > 2 ? pair[2] : 0, tag};
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
      const float2 value = two_halves(pair_of(got[i], j)), g = two_halves(gains[i][j]);
      squares += value.x * value.x + value.y * value.y;
      *(float2*)(to + place<E, HIDDEN, 4>(mine.column + 2 * j)) = {value.x * g.x, value.y * g.y};
    }
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

// Any other input, as it was sent.
template <int E, int COLUMNS, int RUN>
__device__ void take(const Step& step, u16* to, const Packet* packets, u32 tag) {
  constexpr int PACKETS = COLUMNS / RUN * packets_of(RUN), EACH = (PACKETS + THREADS - 1) / THREADS;
  constexpr int BATCH = EACH < 4 ? EACH : 4;
  u32 asked = 0;
#pragma unroll 1
  for (int first = thread_id(); first < PACKETS; first += BATCH * THREADS) {
    Packet got[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
      if (first + i * THREADS < PACKETS) got[i] = look(packets + first + i * THREADS);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int at = first + i * THREADS;
      const Columns mine = columns_of_packet<RUN>(at);
      if (at >= PACKETS) continue;
      await(step, packets + at, tag, got[i], asked);
#pragma unroll
      for (int j = 0; j < PER_PACKET / 2; ++j)
        if (j < mine.pairs)
          *(u32*)(to + place<E, COLUMNS, 8>(mine.column + 2 * j)) = pair_of(got[i], j);
    }
  }
  sync_block();
}
