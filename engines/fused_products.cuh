#pragma once
// Rows of weights, decoded in registers, times an input in shared memory.
#include "fused_inputs.cuh"

// The two levels of every byte of four-bit codes: the low half's and the high half's.
__device__ void fill_levels(const Step& step, Shared& shared) {
  if (ENCODING != 2) return;
  for (int code = thread_id() / 32; code < 256; code += WARPS)
    shared.levels[code][lane_id()] = pack_halves(step.levels[code & 15], step.levels[code >> 4]);
}

// A segment's columns of the input, in the order of its codes.
template <int E, int COLUMNS>
__device__ void load_columns(const float* x, int segment, float* to) {
  constexpr int PLANES = per_segment(E) / 4;
#pragma unroll
  for (int plane = 0; plane < PLANES; ++plane) {
    const float4 v = *(const float4*)(x + plane * (COLUMNS / PLANES) + segment * 4);
    to[4 * plane] = v.x;
    to[4 * plane + 1] = v.y;
    to[4 * plane + 2] = v.z;
    to[4 * plane + 3] = v.w;
  }
}
template <int E, int COLUMNS>
__device__ void load_columns(const u16* x, int segment, float* to) {
  constexpr int PLANES = per_segment(E) / 8;
#pragma unroll
  for (int plane = 0; plane < PLANES; ++plane) {
    const uint4 v = *(const uint4*)(x + plane * (COLUMNS / PLANES) + segment * 8);
    const u32 word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = two_halves(word[i]);
      to[8 * plane + 2 * i] = pair.x;
      to[8 * plane + 2 * i + 1] = pair.y;
    }
  }
}

template <int E>
__device__ void multiply_segment(const uint4& codes, const float* x, const u32 (*levels)[32], float* sums) {
  const u32 word[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (E == 0) {
      const float2 w = two_halves(word[i]);
      sums[0] += w.x * x[2 * i];
      sums[1] += w.y * x[2 * i + 1];
    } else if (E == 1) {
      const float4 w = four_bytes(word[i]);
      sums[0] += w.x * x[4 * i];
      sums[1] += w.y * x[4 * i + 1];
      sums[0] += w.z * x[4 * i + 2];
      sums[1] += w.w * x[4 * i + 3];
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 w = two_halves(levels[word[i] >> 8 * j & 255][lane_id()]);
        sums[0] += w.x * x[4 * i + j];
        sums[1] += w.y * x[16 + 4 * i + j];
      }
    }
  }
}

constexpr int MOST_AT_ONCE = ENCODING == 2 ? 4 : 8;  // rows

// How many groups of rows a warp multiplies at a time: they share what is loaded of the input.
template <int PHASE>
__device__ constexpr int at_once() {
  int most = PHASE == HEAD && chunks_of(HEAD) == 1 ? 2 : 1;
  if (PHASE == HEAD) return most;
  for (int n = 2; n <= MOST_AT_ONCE / rows_of(PHASE) && n < STAGES; ++n)
    if (chunks_of(PHASE) == 1 && groups_of(PHASE) % (ALL_WARPS * n) == 0) most = n;
  return most;
}

// One segment of all rows of N stages, added to the rows' sums.
template <int PHASE, int N, class X>
__device__ void add_segment(const Shared& shared, const char* const* stages, const X* x, int first, int s,
                            float (*sums)[2]) {
  constexpr int R = rows_of(PHASE), E = encoding_of(PHASE);
  float columns[per_segment(E)];
  load_columns<E, columns_of(PHASE)>(x, first + s, columns);
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const uint4 codes = *(const uint4*)(stages[i] + r * piece(PHASE) + s * 16);
      if (E < 2) {
        multiply_segment<E>(codes, columns, shared.levels, sums[i * R + r]);
        continue;
      }
      const float scale = ((const float*)(stages[i] + CODES + r * (piece(PHASE) / 8)))[s / 2];
      float both[2] = {};
      multiply_segment<E>(codes, columns, shared.levels, both);
      sums[i * R + r][0] += both[0] * scale;
      sums[i * R + r][1] += both[1] * scale;
    }
}

// The next N stages of the ring, all of the same columns, added to the sums of their rows.
template <int PHASE, int N, class X>
__device__ void add_stages(Shared& shared, Ring& ring, const X* x, int chunk, float (*sums)[2]) {
  constexpr int MOST = piece(PHASE) / 16, SEGMENTS = row_bytes(PHASE) / 16;
  constexpr int UNROLL = encoding_of(PHASE) == 2 || N * rows_of(PHASE) > 2 ? 1 : 4 / rows_of(PHASE);
  const int local = thread_id() / 32, first = chunk * MOST;
  const char* stages[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    stages[i] = shared.ring[local][ring.stage];
    wait_full(&shared.full[local][ring.stage], ring.parity);
    if (++ring.stage == STAGES) { ring.stage = 0; ring.parity ^= 1; }
  }
  ring.used += N;
  const int left = SEGMENTS - first, count = left < MOST ? left : MOST;
#pragma unroll UNROLL
  for (int s = lane_id(); s < count; s += 32) add_segment<PHASE, N>(shared, stages, x, first, s, sums);
}

// All rows of this warp in a phase. For each group, `store(group, first, second)` is called by one
// lane with the sums of its rows. The stages used last are left to be refilled by the caller.
template <int PHASE, class X, class Store>
__device__ void multiply(const Step& step, Shared& shared, Ring& ring, int warp, const X* x,
                         float scale, const Store& store) {
  constexpr int R = rows_of(PHASE), N = at_once<PHASE>(), VALUES = power_of_two(N * R);
  constexpr bool FITS = PHASE != HEAD && most_groups(PHASE) * chunks_of(PHASE) < STAGES;
  const int begin = begin_of(PHASE, warp), end = begin_of(PHASE, warp + 1), lane = lane_id();
  const int value = lane_of(lane) % VALUES;
#pragma unroll 1
  for (int group = begin; group < end; group += N) {
    float sums[VALUES][2] = {}, values[VALUES];
#pragma unroll 1
    for (int chunk = 0; chunk < chunks_of(PHASE); ++chunk) {
      if (!FITS && ring.used) refill(step, shared, ring, warp);
      if (PHASE == HEAD && group + 1 == end) add_stages<PHASE, 1>(shared, ring, x, chunk, sums);
      else add_stages<PHASE, N>(shared, ring, x, chunk, sums);
    }
#pragma unroll
    for (int i = 0; i < VALUES; ++i) values[i] = sums[i][0] + sums[i][1];
    float total = lane_sums<VALUES>(values);
    if (encoding_of(PHASE) == 1) total *= shuffle(scale, (group - begin) * R + value & 31);
    const float second = R > 1 ? shuffle_xor(total, 16) : 0;
    const int mine = group + value / R;
    if ((lane & 31 / VALUES) == 0 && value % R == 0 && value < N * R && mine < end)
      store(mine, total, second);
  }
}

// The scale of row i of this warp's rows in a phase, on lane i: asked for long before it is used.
template <int PHASE>
__device__ float row_scale(const Shared& shared, int layer, int warp) {
  if (ENCODING != 1) return 1;
  constexpr int R = rows_of(PHASE);
  const int group = begin_of(PHASE, warp) + lane_id() / R;
  if (group >= begin_of(PHASE, warp + 1)) return 1;
  const Row row = row_at(PHASE, group, lane_id() % R);
  return ((const float*)shared.layers[layer].scales[row.matrix])[row.row];
}
