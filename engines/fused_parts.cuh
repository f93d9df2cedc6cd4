#pragma once
// The parts of the attention put together: a warp takes 16 columns of all slices and sends the
// result.
#include "fused_inputs.cuh"

// One lane's share of a softmax: four columns of some slices.
struct Average { float top, below, above[4]; };

__device__ void weigh(Average& a, float top) {
  const float share = a.top > NEGATIVE_INFINITY ? exponential(a.top - top) : 0;
  a.below *= share;
#pragma unroll
  for (int i = 0; i < 4; ++i) a.above[i] *= share;
  a.top = top;
}

__device__ Average some_slices(const Step& step, const u64* parts, int column, int first,
                               int splits, u32 tag) {
  constexpr int AT_ONCE = 2, LANES = 32 / (UNIT / 4);  // that share the slices of four columns
  const int head = column / HEAD_DIM;
  Average all = {NEGATIVE_INFINITY, 0, {0, 0, 0, 0}};
#pragma unroll 1
  for (int begin = first; begin < splits; begin += AT_ONCE * LANES) {
    int at[2 * AT_ONCE];
    float2 got[2 * AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int split = begin + i * LANES;
      at[2 * i] = split < splits ? split * PART + column / 2 : -1;
      at[2 * i + 1] = split < splits ? split * PART + QUERY / 2 + head / 2 * 2 : -1;
    }
    take_pairs<2 * AT_ONCE>(step, parts, at, tag, got);
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      if (at[2 * i] < 0) continue;
      const float log = head % 2 ? got[2 * i + 1].y : got[2 * i + 1].x;
      weigh(all, log > all.top ? log : all.top);
      const float share = log > NEGATIVE_INFINITY ? exponential(log - all.top) : 0;
      const float2 a = two_halves(float_bits(got[2 * i].x)),
                   b = two_halves(float_bits(got[2 * i].y));
      all.below += share;
      all.above[0] += share * a.x;
      all.above[1] += share * a.y;
      all.above[2] += share * b.x;
      all.above[3] += share * b.y;
    }
  }
  return all;
}

__device__ void join_parts(const Step& step, const u64* parts, int splits, Packet* attended,
                           u32 tag, u32 target) {
  constexpr int LANES = UNIT / 4;
  const int lane = lane_id();
#pragma unroll 1
  for (int unit = block_id() + GRID * (thread_id() / 32); unit < UNITS; unit += GRID * WARPS) {
    const int column = unit * UNIT + lane % LANES * 4;
    if (hinted(PARTS_SENT)) await_count(step, PARTS_SENT, target);
    Average mine = some_slices(step, parts, column, lane / LANES, splits, tag);
    sync_warp();
    float top = mine.top;
#pragma unroll
    for (int lanes = 16; lanes >= LANES; lanes /= 2) {
      const float other = shuffle_xor(top, lanes);
      top = other > top ? other : top;
    }
    weigh(mine, top);
#pragma unroll
    for (int lanes = 16; lanes >= LANES; lanes /= 2) {
      mine.below += shuffle_xor(mine.below, lanes);
#pragma unroll
      for (int i = 0; i < 4; ++i) mine.above[i] += shuffle_xor(mine.above[i], lanes);
    }
    const float share = quotient(1, mine.below);
    const u32 first = pack_halves(mine.above[0] * share, mine.above[1] * share);
    const u32 second = pack_halves(mine.above[2] * share, mine.above[3] * share);
    u32 word[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) {  // the pairs of this lane's packet, from lanes that have them
      const int pair = (3 * lane + i) % (UNIT / 2);
      const u32 even = shuffle_int(first, pair / 2), odd = shuffle_int(second, pair / 2);
      word[i] = pair % 2 ? odd : even;
    }
    if (lane < packets_of(UNIT))
      send(attended + unit * packets_of(UNIT) + lane, word[0], word[1], word[2], tag);
    if (lane == 0) count_in(step, ATTENDED_SENT);
  }
}
