#pragma once
// Rows of weights, decoded in registers, times an input in shared memory.
#include "fused_words.cuh"

template <int E, int COLUMNS>
__device__ float segment(const uint4 codes, const float* x, int at, const float* levels,
                         const float* scales) {
  const u32 word[4] = {codes.x, codes.y, codes.z, codes.w};
  float sum = 0;
  if (E == 0) {
#pragma unroll
    for (int plane = 0; plane < 2; ++plane) {
      const float4 v = *(const float4*)(x + plane * (COLUMNS / 2) + at * 4);
      const float2 a = two_halves(word[2 * plane]), b = two_halves(word[2 * plane + 1]);
      sum += a.x * v.x + a.y * v.y + b.x * v.z + b.y * v.w;
    }
    return sum;
  }
  if (E == 1) {
#pragma unroll
    for (int plane = 0; plane < 4; ++plane) {
      const float4 v = *(const float4*)(x + plane * (COLUMNS / 4) + at * 4);
      const float4 w = four_bytes(word[plane]);
      sum += w.x * v.x + w.y * v.y + w.z * v.z + w.w * v.w;
    }
    return sum;
  }
#pragma unroll
  for (int plane = 0; plane < 8; ++plane) {
    const float4 v = *(const float4*)(x + plane * (COLUMNS / 8) + at * 4);
    const u32 bits = word[plane % 4] >> (plane / 4 * 4);
    sum += levels[bits & 15] * v.x + levels[bits >> 8 & 15] * v.y + levels[bits >> 16 & 15] * v.z +
           levels[bits >> 24 & 15] * v.w;
  }
  return sum * scales[0];
}

// The sums of one group of rows, on every lane; its chunks leave the ring and new ones are asked for.
template <int PHASE>
__device__ void group_sums(const Step& step, Shared& shared, Ring& ring, const float* x,
                           float* sums) {
  constexpr int R = rows_of(PHASE), E = encoding_of(PHASE), C = columns_of(PHASE);
  const int warp_in_block = thread_id() / 32, lane = lane_id();
#pragma unroll
  for (int r = 0; r < R; ++r) sums[r] = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks_of(PHASE); ++chunk) {
    wait_full(&shared.full[warp_in_block][ring.stage], ring.parity);
    const char* stage = shared.ring[warp_in_block][ring.stage];
    const int first = chunk * (piece(PHASE) / 16);
    const int left = row_bytes(PHASE) / 16 - first;
    const int count = left < piece(PHASE) / 16 ? left : piece(PHASE) / 16;
#pragma unroll 4
    for (int s = lane; s < count; s += 32) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const uint4 codes = *(const uint4*)(stage + r * piece(PHASE) + s * 16);
        const float* scales = (const float*)(stage + CODES + r * (piece(PHASE) / 8)) + s / 2;
        sums[r] += segment<E, C>(codes, x, first + s, shared.levels, scales);
      }
    }
    sync_warp();
    refill(step, shared, ring, ring.stage, warp_in_block);
    if (++ring.stage == STAGES) { ring.stage = 0; ring.parity ^= 1; }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) sums[r] = warp_sum(sums[r]);
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

template <int PHASE>
__device__ void scaled_sums(const Step& step, Shared& shared, Ring& ring, int warp, int group,
                            const float* x, float scale, float* sums) {
  group_sums<PHASE>(step, shared, ring, x, sums);
  if (ENCODING != 1) return;
  constexpr int R = rows_of(PHASE);
#pragma unroll
  for (int r = 0; r < R; ++r) sums[r] *= shuffle(scale, (group - begin_of(PHASE, warp)) * R + r);
}
