// One decode step at batch 1 as ONE kernel that never lets the memory idle (sm_90 and newer).
//
// A step as a chain of kernels stops the memory at every boundary: the last block drains, the next
// kernel starts, its first loads travel. But weights do not depend on data. Here every warp knows
// the list of weight rows it will need in the whole step and streams them through its own ring in
// shared memory (bulk copies that complete on a barrier), always a ring ahead. What does depend on
// data, a few thousand numbers per phase, passes between multiprocessors as packets of six halves
// with tags: a packet says itself whether it is there, so that no fence has to order anything, and
// a hop costs one store and one load. A tag is new in every layer of every step. Each block owns as
// many rows as any other in every phase, so nobody can overwrite a packet that a slower block still
// has to read.
//
// Phases of a layer: QKV, attention (a slice of the context per block), its parts put together, O,
// gate and up, down; after the last, the head. ENCODING: 0 fp16, 1 int8 with a scale per row, 2 nf4
// with a scale per 64 columns.
#ifndef EMULATED
#include "fused_device.cuh"
#endif
#include "fused_attention.cuh"
#include "fused_products.cuh"

struct Best { float logit; int row; };

__device__ Best better(const Best& a, const Best& b) {
  return b.logit > a.logit || (b.logit == a.logit && b.row < a.row) ? b : a;
}
__device__ Best best_of_warp(Best best) {
  sync_warp();
  for (int lanes = 16; lanes; lanes /= 2) {
    const float row = shuffle_xor(bits_float((u32)best.row), lanes);
    best = better(best, {shuffle_xor(best.logit, lanes), (int)float_bits(row)});
  }
  return best;
}

__device__ void pick(const Step& step, Shared& shared, Best best) {
  best = best_of_warp(best);
  if (lane_id() == 0) {
    shared.best[thread_id() / 32][0] = best.logit;
    shared.best[thread_id() / 32][1] = bits_float((u32)best.row);
  }
  sync_block();
  if (thread_id() >= 32) return;
  u32 arrived = 0;
  if (lane_id() == 0) {
    for (int w = 1; w < WARPS; ++w)
      best = better(best, {shared.best[w][0], (int)float_bits(shared.best[w][1])});
    step.best[2 * block_id()] = best.logit;
    step.best[2 * block_id() + 1] = bits_float((u32)best.row);
    fence_device();
    arrived = atomic_increment(&step.control[1]);
  }
  if (shuffle_int(arrived, 0) != GRID - 1) return;
  fence_device();  // the last block to arrive sees what all others found
  best = {NEGATIVE_INFINITY, VOCAB};
  for (int b = lane_id(); b < GRID; b += 32) {
    const u32* found = (const u32*)step.best + 2 * b;
    best = better(best, {bits_float(read_volatile(found)), (int)read_volatile(found + 1)});
  }
  best = best_of_warp(best);
  if (lane_id() != 0) return;
  const i64 moves = step.active[0], position = step.positions[0] + moves;
  step.history[moves ? position : CAPACITY] = best.row;
  step.tokens[0] = best.row;
  step.positions[0] = position;
  step.control[1] = 0;
  for (int i = 0; i < HINTS; ++i) step.control[32 * (i + 1)] = 0;
  step.control[0] += 1;
}

#ifndef EMULATED
extern "C" __device__ int shared_bytes = sizeof(Shared);
#endif

// Cycles of a block's first thread since the lap before, added to part `i`.
#if TIMED
#define LAP(i)                     \
  if (thread_id() == 0) {          \
    const i64 now = cycles();      \
    laps[i] += now - last;         \
    last = now;                    \
  }
#else
#define LAP(i)
#endif
constexpr int LAPS = 13;

KERNEL void fused_step(const Step step) {
#if TIMED
  i64 laps[LAPS] = {}, last = cycles();
#endif
  Shared& shared = *(Shared*)shared_memory();
  const int warp = block_id() * WARPS + thread_id() / 32;
  const i64 token = step.tokens[0];
  const int position = (int)step.positions[0], splits = splits_for(position + 1);
  const u32 before = step.control[0] * LAYERS;
  u64 *qkv = step.words, *parts = qkv + QUERY + 2 * KEY;
  Packet *x1 = step.packets, *x2 = x1 + X_PACKETS, *inner = x2 + X_PACKETS;
  Packet* attended = inner + INNER_PACKETS;
  for (int i = thread_id(); i < (int)(sizeof(Layer) / 8) * LAYERS; i += THREADS)
    ((u64*)shared.layers)[i] = ((const u64*)step.layers)[i];
  fill_levels(step, shared);
  if (thread_id() == 0) {
    for (int i = 0; i < WARPS * STAGES; ++i) start_barrier(&shared.full[0][0] + i);
    start_barrier(&shared.past_full[0]);
    start_barrier(&shared.past_full[1]);
    fence_barriers();
  }
  Ring ring = {};
  ring.pieces = list_pieces(shared, warp);
  sync_block();  // first what the first phase needs; the rest when its input has arrived
  constexpr int FIRST = most_at(BEFORE_QKV) ? 2 : STAGES;
  ring.stage = ring.used = FIRST;
  refill(step, shared, ring, warp, FIRST);
  ring.used = STAGES - FIRST;
  ring.stage = 0;

  const u16* embedded = step.embedding + token * HIDDEN;
  const int own = block_id() * X_RUN;
  for (int i = thread_id(); i < X_RUN; i += THREADS)
    shared.residual[i] = half_float(embedded[own + i]);
  for (int i = thread_id(); i < HEAD_DIM; i += THREADS) {
    const int angle = i % (HEAD_DIM / 2);
    const float* table = i < HEAD_DIM / 2 ? step.cosines : step.sines;
    shared.turns[i / (HEAD_DIM / 2)][angle] = table[(i64)position * (HEAD_DIM / 2) + angle];
  }
  const Slice slice = slice_of(block_id(), position + 1);
  NormGains gains_in = norm_gains(shared.layers[0].attention_norm);
  int parity = 0;  // of the two tiles of the past
  const u16* input = (const u16*)shared.input;
  LAP(0);

#pragma unroll 1
  for (int l = 0; l < LAYERS; ++l) {
    const Layer& layer = shared.layers[l];
    const u32 tag = before + l + 1;
    if (slice.head >= 0 && thread_id() == 0)
      for (int tile = 0; tile < 2; ++tile) copy_past(shared, layer, slice, tile, position);
    Gains gains;
    if (slice.head >= 0) gains = load_gains(layer);
    float scale = row_scale<QKV>(shared, l, warp);
    take_normed<ENCODING>(step, shared, x2, l ? nullptr : embedded, gains_in, tag - 1, X2_SENT,
                          GRID * (u32)l);
    LAP(1);
    refill_at<BEFORE_QKV>(step, shared, ring, warp);
    multiply<QKV>(step, shared, ring, warp, input, scale, [&](int group, float a, float b) {
      put_two(qkv + 2 * group, a, b, tag);
    });
    refill_at<AFTER_QKV>(step, shared, ring, warp);
    sync_block();  // what comes next takes the place of the input
    LAP(2);
    if (slice.head >= 0)
      attend(step, shared, layer, gains, slice, position, qkv, parts, tag, parity);
    else if (most_at(AMID_ATTENTION))  // by then the others attend, and nothing travels
      await_word(step, qkv + 2 * begin_of(QKV, (warp + ALL_WARPS / 2) % ALL_WARPS), tag);
    refill_at<AMID_ATTENTION>(step, shared, ring, warp);
    LAP(3);
    join_parts(step, parts, splits, attended, tag, KV_HEADS * splits * (l + 1));
    LAP(4);

    const auto add_rows = [&](int group, float a, float b) {
      const float sums[2] = {a, b};
#pragma unroll
      for (int r = 0; r < ROWS_HIDDEN; ++r) {
        const int row = group * ROWS_HIDDEN + r - own;
        shared.outbox[row] = shared.residual[row] += sums[r];
      }
    };
    scale = row_scale<O>(shared, l, warp);
    const NormGains gains_ffn = norm_gains(layer.ffn_norm);
    take<ENCODING, QUERY, UNIT>(step, shared, attended, tag, ATTENDED_SENT, UNITS * (l + 1));
    LAP(5);
    refill_at<BEFORE_O>(step, shared, ring, warp);
    multiply<O>(step, shared, ring, warp, input, scale, add_rows);
    send_rows<X_RUN>(step, shared, x1, tag, X1_SENT);
    refill_at<AFTER_O>(step, shared, ring, warp);
    LAP(6);

    scale = row_scale<FFN_IN>(shared, l, warp);
    take_normed<ENCODING>(step, shared, x1, nullptr, gains_ffn, tag, X1_SENT,
                          GRID * (u32)(l + 1));
    LAP(7);
    refill_at<BEFORE_FFN_IN>(step, shared, ring, warp);
    multiply<FFN_IN>(step, shared, ring, warp, input, scale, [&](int group, float gate, float up) {
      shared.outbox[group - block_id() * INNER_RUN] = quotient(gate, 1 + exponential(-gate)) * up;
    });
    send_rows<INNER_RUN>(step, shared, inner, tag, INNER_SENT);
    refill_at<AFTER_FFN_IN>(step, shared, ring, warp);
    LAP(8);

    scale = row_scale<DOWN>(shared, l, warp);
    gains_in = norm_gains(l + 1 < LAYERS ? shared.layers[l + 1].attention_norm : step.norm);
    take<ENCODING, FFN, INNER_RUN>(step, shared, inner, tag, INNER_SENT, GRID * (l + 1));
    LAP(9);
    refill_at<BEFORE_DOWN>(step, shared, ring, warp);
    multiply<DOWN>(step, shared, ring, warp, input, scale, add_rows);
    send_rows<X_RUN>(step, shared, x2, tag, X2_SENT);
    refill_at<AFTER_DOWN>(step, shared, ring, warp);
    LAP(10);
  }

  take_normed<0>(step, shared, x2, nullptr, gains_in, before + LAYERS, X2_SENT,
                 GRID * LAYERS);
  LAP(11);
  if (ring.used) refill(step, shared, ring, warp, ring.used);
  Best best = {NEGATIVE_INFINITY, VOCAB};
  multiply<HEAD>(step, shared, ring, warp, input, 1, [&](int group, float a, float b) {
    const int row = 2 * head_pair(warp, group - begin_of(HEAD, warp));
    best = better(best, {a, row});
    best = better(best, {b, row + 1});
  });
  LAP(12);
  pick(step, shared, best);
#if TIMED
  if (thread_id() == 0)
    for (int i = 0; i < LAPS; ++i) step.laps[block_id() * LAPS + i] = laps[i];
#endif
}
