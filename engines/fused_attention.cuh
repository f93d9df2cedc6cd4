#pragma once
// Attention of the newest token: a block takes one key head and one slice of the context.
#include "fused_words.cuh"

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

// Past keys and values of one tile; the newest token is not among them, it arrives as words.
__device__ void copy_past(Shared& shared, const Layer& layer, const Slice& slice, int begin,
                          int position) {
  int end = begin + TILE < slice.end ? begin + TILE : slice.end;
  end = end < position ? end : position;
  const int bytes = end > begin ? (end - begin) * HEAD_DIM * 2 : 0;
  const i64 from = ((i64)slice.head * CAPACITY + begin) * HEAD_DIM;
  expect_bytes(&shared.past_full, 2 * bytes);
  if (!bytes) return;
  copy_bulk(shared.past[0], layer.keys + from, bytes, &shared.past_full);
  copy_bulk(shared.past[1], layer.values + from, bytes, &shared.past_full);
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

// Queries of the group, and the new key and value, normed and rotated: one vector per warp.
__device__ void take_heads(const Step& step, const Shared& shared, const Gains& gains,
                           const Slice& slice, const u64* qkv, u32 tag, const Hop& from,
                           float* queries, u16* fresh) {
  await(step, from);
  for (int item = thread_id() / 32; item < GROUP + 2; item += WARPS) {
    const int kind = item < GROUP ? 0 : item - GROUP + 1, lane = lane_id();
    const int start = kind == 0 ? (slice.head * GROUP + item) * HEAD_DIM
                                : QUERY + (kind - 1) * KEY + slice.head * HEAD_DIM;
    float value[PER_LANE];
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
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
      const int column = lane * PER_LANE + i, angle = column % (HEAD_DIM / 2);
      const float other = shuffle_xor(value[i], 16);
      if (kind < 2) {
        const float turned = (lane < 16 ? -other : other) * shared.turns[1][angle];
        value[i] = value[i] * shared.turns[0][angle] + turned;
      }
      if (kind == 0) queries[item * HEAD_DIM + column] = value[i] * SCORE_SCALE;
      else fresh[(kind - 1) * HEAD_DIM + column] = float_half(value[i]);
    }
  }
  sync_block();
}

__device__ void attend(const Step& step, Shared& shared, const Layer& layer, const Gains& gains,
                       const Slice& slice, int position, const u64* qkv, u64* parts, u32 tag,
                       const Hop& from, int& parity) {
  const int warp = thread_id() / 32, lane = lane_id();
  float* queries = shared.second;
  float* averages = queries + GROUP * HEAD_DIM;        // [WARPS, GROUP, HEAD_DIM]
  float* tops = averages + WARPS * GROUP * HEAD_DIM;   // [WARPS, GROUP]
  float* totals = tops + WARPS * GROUP;
  u16* fresh = (u16*)(totals + WARPS * GROUP);         // key, value
  take_heads(step, shared, gains, slice, qkv, tag, from, queries, fresh);
  float query[GROUP][PER_LANE], average[GROUP][PER_LANE], top[GROUP], total[GROUP];
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    top[g] = NEGATIVE_INFINITY;
    total[g] = 0;
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
      query[g][i] = queries[g * HEAD_DIM + lane * PER_LANE + i];
      average[g][i] = 0;
    }
  }
  for (int begin = slice.begin; begin < slice.end; begin += TILE) {
    if (begin > slice.begin) {
      sync_block();
      if (thread_id() == 0) copy_past(shared, layer, slice, begin, position);
    }
    wait_full(&shared.past_full, parity);
    parity ^= 1;
    const int end = begin + TILE < slice.end ? begin + TILE : slice.end;
#pragma unroll 1
    for (int first = begin + warp; first < end; first += 4 * WARPS) {
      float score[4][GROUP];
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const int at = first + u * WARPS;
        const u16* key = at < position ? shared.past[0] + (at - begin) * HEAD_DIM : fresh;
        float k[PER_LANE];
        if (at < end) load_halves<PER_LANE>(key + lane * PER_LANE, k);
#pragma unroll
        for (int g = 0; g < GROUP; ++g) {
          float sum = 0;
#pragma unroll
          for (int i = 0; i < PER_LANE; ++i) sum += at < end ? k[i] * query[g][i] : 0;
          score[u][g] = warp_sum(sum);
          if (at >= end) score[u][g] = NEGATIVE_INFINITY;
        }
      }
#pragma unroll
      for (int g = 0; g < GROUP; ++g) {
        float higher = top[g];
#pragma unroll
        for (int u = 0; u < 4; ++u) higher = higher > score[u][g] ? higher : score[u][g];
        const float shrink = exponential(top[g] - higher);
        top[g] = higher;
        total[g] *= shrink;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) average[g][i] *= shrink;
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          score[u][g] = exponential(score[u][g] - higher);
          total[g] += score[u][g];
        }
      }
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const int at = first + u * WARPS;
        if (at >= end) continue;
        const u16* from = at < position ? shared.past[1] + (at - begin) * HEAD_DIM : fresh + HEAD_DIM;
        float v[PER_LANE];
        load_halves<PER_LANE>(from + lane * PER_LANE, v);
#pragma unroll
        for (int g = 0; g < GROUP; ++g)
#pragma unroll
          for (int i = 0; i < PER_LANE; ++i) average[g][i] += score[u][g] * v[i];
      }
    }
  }
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    const int mine = warp * GROUP + g;
    if (lane == 0) { tops[mine] = top[g]; totals[mine] = total[g]; }
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i)
      averages[mine * HEAD_DIM + lane * PER_LANE + i] = average[g][i];
  }
  sync_block();
  for (int pair = thread_id(); pair < GROUP * HEAD_DIM / 2; pair += THREADS) {
    const int g = 2 * pair / HEAD_DIM, head = slice.head * GROUP + g, column = 2 * pair % HEAD_DIM;
    float top_of_all = NEGATIVE_INFINITY, sum = 0, a = 0, b = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float t = tops[w * GROUP + g];
      top_of_all = top_of_all > t ? top_of_all : t;
    }
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float t = tops[w * GROUP + g];
      const float share = t > NEGATIVE_INFINITY ? exponential(t - top_of_all) : 0;
      const float* from = averages + (w * GROUP + g) * HEAD_DIM + column;
      sum += share * totals[w * GROUP + g];
      a += share * from[0];
      b += share * from[1];
    }
    u64* to = parts + slice.split * PART;
    const float scale = sum > 0 ? 1 / sum : 0;
    put_halves(to + (head * HEAD_DIM + column) / 2, a * scale, b * scale, tag);
    if (column) continue;
    put(to + QUERY / 2 + head, sum > 0 ? top_of_all + logarithm(sum) : NEGATIVE_INFINITY, tag);
    if (HEADS % 2 && head == HEADS - 1) put(to + QUERY / 2 + HEADS, 0, tag);  // pairs are read
  }
  if (slice.end == position + 1) {  // who holds the newest token stores it for the steps to come
    for (int column = thread_id(); column < HEAD_DIM; column += THREADS) {
      const i64 to = ((i64)slice.head * CAPACITY + position) * HEAD_DIM + column;
      layer.keys[to] = fresh[column];
      layer.values[to] = fresh[HEAD_DIM + column];
    }
  }
  sync_block();
}
