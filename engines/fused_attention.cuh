#pragma once
// Attention of the newest token: a block takes one key head and one slice of the context.
#include "fused_parts.cuh"

__device__ int splits_for(int tokens) {
  const int wanted = (tokens + SPLIT_TOKENS - 1) / SPLIT_TOKENS;
  return wanted < MOST_SPLITS ? wanted : MOST_SPLITS;
}

struct Slice { int head, split, begin, end; };  // of the context; head -1: no work for this block

__device__ Slice slice_of(int block, int tokens) {
  const int splits = splits_for(tokens), each = (tokens + splits - 1) / splits;
  if (block >= KV_HEADS * splits) return {-1, 0, 0, 0};
  const int split = block / KV_HEADS, begin = split * each, end = begin + each;
  return {block % KV_HEADS, split, begin < tokens ? begin : tokens, end < tokens ? end : tokens};
}

// Past keys and values of a tile; the newest token is not among them, it arrives as words.
__device__ void copy_past(Shared& shared, const Layer& layer, const Slice& slice, int tile,
                          int position) {
  const int begin = slice.begin + tile * TILE;
  if (begin >= slice.end) return;
  int end = begin + TILE < slice.end ? begin + TILE : slice.end;
  end = end < position ? end : position;
  const int bytes = end > begin ? (end - begin) * HEAD_DIM * 2 : 0;
  const i64 from = ((i64)slice.head * CAPACITY + begin) * HEAD_DIM;
  u64* full = &shared.past_full[tile % 2];
  expect_bytes(full, 2 * bytes);
  if (!bytes) return;
  copy_bulk(shared.past[tile % 2][0], layer.keys + from, bytes, full);
  copy_bulk(shared.past[tile % 2][1], layer.values + from, bytes, full);
}

// This lane's gains of the query and the key norm, asked for a phase before they are used.
struct Gains { float query[PER_LANE], key[PER_LANE]; };

__device__ Gains load_gains(const Layer& layer) {
  Gains gains;
  if (NORMED) {
    load_halves<PER_LANE>(layer.query_norm + lane_id() * PER_LANE, gains.query);
    load_halves<PER_LANE>(layer.key_norm + lane_id() * PER_LANE, gains.key);
  }
  return gains;
}

// Queries of the group, and where it is wanted the new key and value, normed and rotated: one
// vector per warp.
__device__ void take_heads(const Step& step, const Shared& shared, const Gains& gains,
                           const Slice& slice, bool newest, const u64* qkv, u32 tag,
                           float* queries, u16* fresh) {
  for (int item = thread_id() / 32; item < (newest ? GROUP + 2 : GROUP); item += WARPS) {
    const int kind = item < GROUP ? 0 : item - GROUP + 1, lane = lane_id();
    const int start = kind == 0 ? (slice.head * GROUP + item) * HEAD_DIM
                                : QUERY + (kind - 1) * KEY + slice.head * HEAD_DIM;
    OfLane turned, vector;
    float* value = vector.at;
    int at[PER_LANE / 2];
#pragma unroll
    for (int i = 0; i < PER_LANE / 2; ++i) at[i] = start + lane * PER_LANE + 2 * i;
    take_pairs<PER_LANE / 2>(step, qkv, at, tag, (float2*)value);
    if (NORMED && kind < 2) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < PER_LANE; ++i) squares += value[i] * value[i];
      const float scale = reciprocal_root(warp_sum(squares) / HEAD_DIM + EPSILON);
#pragma unroll
      for (int i = 0; i < PER_LANE; ++i) value[i] *= scale * (kind ? gains.key[i] : gains.query[i]);
    }
    const int column = lane * PER_LANE, angle = column % (HEAD_DIM / 2);
    const OfLane cosines = *(const OfLane*)&shared.turns[0][angle],
                 sines = *(const OfLane*)&shared.turns[1][angle];
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
      const float other = shuffle_xor(value[i], 16), sine = lane < 16 ? -sines.at[i] : sines.at[i];
      turned.at[i] = kind < 2 ? value[i] * cosines.at[i] + other * sine : value[i];
      if (kind == 0) turned.at[i] *= SCORE_SCALE;
      else fresh[(kind - 1) * HEAD_DIM + column + i] = float_half(turned.at[i]);
    }
    if (kind == 0) *(OfLane*)(queries + item * HEAD_DIM + column) = turned;
  }
  sync_block();
}

constexpr int TOKENS = TILE / WARPS;  // of a tile, per warp
constexpr int SCORES = power_of_two(TOKENS * GROUP);

// This warp's part of a slice: lane `lane_of(token + TOKENS * head)` looks after one of its scores.
// `left`: how many of the tokens, WARPS apart, there are.
__device__ void attend_tile(const u16* const* keys, const u16* const* values, int left,
                            const OfLane* query, bool fresh, float& top, float& total,
                            OfLane* average) {
  float scores[SCORES] = {};
#pragma unroll
  for (int u = 0; u < TOKENS; ++u) {
    float k[PER_LANE];
    load_halves<PER_LANE>(keys[u] + lane_id() * PER_LANE, k);
#pragma unroll
    for (int g = 0; g < GROUP; ++g)
#pragma unroll
      for (int i = 0; i < PER_LANE; ++i) scores[u + TOKENS * g] += k[i] * query[g].at[i];
  }
  const int mine = lane_of(lane_id()) % SCORES;
  const bool counts = mine % TOKENS < left;
  const float sum = lane_sums<SCORES>(scores), score = counts ? sum : NEGATIVE_INFINITY;
  float higher = top > score ? top : score;
#pragma unroll
  for (int lanes = 16; lanes > 16 / TOKENS; lanes /= 2) {
    const float other = shuffle_xor(higher, lanes);
    higher = other > higher ? other : higher;
  }
  const float shrink = exponential(top - higher), weight = counts ? exponential(score - higher) : 0;
  float weights = weight;
#pragma unroll
  for (int lanes = 16; lanes > 16 / TOKENS; lanes /= 2) weights += shuffle_xor(weights, lanes);
  total = total * shrink + weights;
  top = higher;
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    const float kept = fresh ? 0 : shuffle(shrink, lane_of(TOKENS * g));
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) average[g].at[i] *= kept;
  }
#pragma unroll
  for (int u = 0; u < TOKENS; ++u) {
    float v[PER_LANE] = {};  // of no token: nothing, for what lies there may be no number
    if (u < left) load_halves<PER_LANE>(values[u] + lane_id() * PER_LANE, v);
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      const float share = shuffle(weight, lane_of(u + TOKENS * g));
#pragma unroll
      for (int i = 0; i < PER_LANE; ++i) average[g].at[i] += share * v[i];
    }
  }
}

// A warp's softmax over its tokens, for one head: the highest score, and the sum of what is left of
// all.
struct Softmax { float top, total; };
struct alignas(16) OfWarps { Softmax at[WARPS]; };

// What the warps of this block found, put together and sent.
__device__ void send_part(const float* averages, const OfWarps* found, const Slice& slice,
                          u64* parts, u32 tag) {
  for (int pair = thread_id(); pair < GROUP * HEAD_DIM / 2; pair += THREADS) {
    const int g = 2 * pair / HEAD_DIM, head = slice.head * GROUP + g, column = 2 * pair % HEAD_DIM;
    const OfWarps all = found[g];
    float top = NEGATIVE_INFINITY, sum = 0, a = 0, b = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) top = all.at[w].top > top ? all.at[w].top : top;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float share = exponential(all.at[w].top - top);  // of a warp without tokens: 0
      const float2 from = *(const float2*)(averages + (w * GROUP + g) * HEAD_DIM + column);
      sum += share * all.at[w].total;
      a += share * from.x;
      b += share * from.y;
    }
    u64* to = parts + slice.split * PART;
    const float scale = sum > 0 ? quotient(1, sum) : 0;
    put_halves(to + (head * HEAD_DIM + column) / 2, a * scale, b * scale, tag);
    if (column) continue;
    put(to + QUERY / 2 + head, sum > 0 ? top + logarithm(sum) : NEGATIVE_INFINITY, tag);
    if (HEADS % 2 && head == HEADS - 1) put(to + QUERY / 2 + HEADS, 0, tag);  // pairs are read
  }
}

__device__ void attend(const Step& step, Shared& shared, const Layer& layer, const Gains& gains,
                       const Slice& slice, int position, const u64* qkv, u64* parts, u32 tag,
                       int& parity) {
  const int warp = thread_id() / 32, lane = lane_id();
  float* queries = shared.input;
  float* averages = queries + GROUP * HEAD_DIM;        // [WARPS, GROUP, HEAD_DIM]
  OfWarps* found = (OfWarps*)(averages + WARPS * GROUP * HEAD_DIM);  // [GROUP]
  u16* fresh = (u16*)(found + GROUP);                  // key, value
  const bool newest = slice.end == position + 1;
  take_heads(step, shared, gains, slice, newest, qkv, tag, queries, fresh);
  OfLane query[GROUP], average[GROUP] = {};
  float top = NEGATIVE_INFINITY, total = 0;
#pragma unroll
  for (int g = 0; g < GROUP; ++g)
    query[g] = *(const OfLane*)(queries + g * HEAD_DIM + lane * PER_LANE);
#pragma unroll 1
  for (int tile = 0, begin = slice.begin; begin < slice.end; ++tile, begin += TILE) {
    if (tile) {
      sync_block();
      if (thread_id() == 0) copy_past(shared, layer, slice, tile + 1, position);
    }
    wait_full(&shared.past_full[tile % 2], parity >> tile % 2 & 1);
    parity ^= 1 << tile % 2;
    const u16 *keys[TOKENS], *values[TOKENS];
    const int left = (slice.end - begin - warp + WARPS - 1) / WARPS;
#pragma unroll
    for (int u = 0; u < TOKENS; ++u) {
      const int inside = warp + u * WARPS;
      const bool past = begin + inside != position;
      keys[u] = past ? shared.past[tile % 2][0] + inside * HEAD_DIM : fresh;
      values[u] = past ? shared.past[tile % 2][1] + inside * HEAD_DIM : fresh + HEAD_DIM;
    }
    attend_tile(keys, values, left, query, tile == 0, top, total, average);
  }
  const int mine = lane_of(lane) % SCORES, head = mine / TOKENS;
  if (mine % TOKENS == 0 && head < GROUP) found[head].at[warp] = {top, total};
#pragma unroll
  for (int g = 0; g < GROUP; ++g)
    *(OfLane*)(averages + (warp * GROUP + g) * HEAD_DIM + lane * PER_LANE) = average[g];
  sync_block();
  send_part(averages, found, slice, parts, tag);
  sync_block();
  if (thread_id() == 0) count_in(step, PARTS_SENT);
  if (newest) {  // who holds the newest token stores it for the steps to come
    for (int column = thread_id(); column < HEAD_DIM; column += THREADS) {
      const i64 to = ((i64)slice.head * CAPACITY + position) * HEAD_DIM + column;
      layer.keys[to] = fresh[column];
      layer.values[to] = fresh[HEAD_DIM + column];
    }
    sync_block();
  }
}
