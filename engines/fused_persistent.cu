// One decode step at batch 1 as ONE kernel that never lets the memory idle (sm_90 and newer).
//
// A step as a chain of kernels stops the memory at every boundary: the last block drains, the next
// kernel starts, its first loads travel. But weights do not depend on data. Here every warp knows
// the list of weight rows it will need in the whole step and streams them through its own ring in
// shared memory (bulk copies that complete on a barrier), always a ring ahead. What does depend on
// data, a few thousand floats per phase, passes between multiprocessors as words of {value, tag}:
// a word says itself whether it is there, so that no fence has to order anything, and a hop costs
// one store and one load. A word's tag is new in every layer of every step. Each block owns rows in
// every phase, so nobody can overwrite a word that a slower block still has to read.
//
// Phases of a layer: QKV, attention (a few blocks), O, gate and up, down; after the last, the head.
// ENCODING: 0 fp16, 1 int8 with a scale per row, 2 nf4 with a scale per 64 columns.
#ifndef EMULATED
#include "fused_device.cuh"
#endif
#include "fused_attention.cuh"
#include "fused_products.cuh"

__device__ void pick(const Step& step, Shared& shared, float logit, int row) {
  if (lane_id() == 0) {
    shared.best[thread_id() / 32][0] = logit;
    shared.best[thread_id() / 32][1] = bits_float((u32)row);
  }
  sync_block();
  if (thread_id() >= 32) return;
  u32 arrived = 0;
  if (lane_id() == 0) {
    for (int w = 1; w < WARPS; ++w) {
      const int other = (int)float_bits(shared.best[w][1]);
      if (shared.best[w][0] > logit || (shared.best[w][0] == logit && other < row)) {
        logit = shared.best[w][0];
        row = other;
      }
    }
    step.best[2 * block_id()] = logit;
    step.best[2 * block_id() + 1] = bits_float((u32)row);
    fence_device();
    arrived = atomic_increment(&step.control[1]);
  }
  if (shuffle_int(arrived, 0) != GRID - 1) return;
  fence_device();  // the last block to arrive sees what all others found
  logit = NEGATIVE_INFINITY;
  row = VOCAB;
  for (int b = lane_id(); b < GRID; b += 32) {
    const float l = bits_float(read_volatile((const u32*)step.best + 2 * b));
    const int r = (int)read_volatile((const u32*)step.best + 2 * b + 1);
    if (l > logit || (l == logit && r < row)) { logit = l; row = r; }
  }
  for (int lanes = 16; lanes; lanes /= 2) {
    const float l = shuffle_xor(logit, lanes);
    const int r = (int)float_bits(shuffle_xor(bits_float((u32)row), lanes));
    if (l > logit || (l == logit && r < row)) { logit = l; row = r; }
  }
  if (lane_id() != 0) return;
  const i64 moves = step.active[0], position = step.positions[0] + moves;
  step.history[moves ? position : CAPACITY] = row;
  step.tokens[0] = row;
  step.positions[0] = position;
  step.control[1] = 0;
  for (int i = 0; i < ARRIVALS; ++i) step.control[32 * (i + 1)] = 0;
  step.control[0] += 1;
}

#ifndef EMULATED
extern "C" __device__ int shared_bytes = sizeof(Shared);
#endif

// Cycles of a block's first thread since the lap before, added to part `i`.
#if TIMED
#define LAP(i) if (thread_id() == 0) { const i64 now = cycles(); laps[i] += now - last; last = now; }
#else
#define LAP(i)
#endif
constexpr int LAPS = 12;

KERNEL void fused_step(const Step step) {
#if TIMED
  i64 laps[LAPS] = {}, last = cycles();
#endif
  Shared& shared = *(Shared*)shared_memory();
  const int local = thread_id() / 32, warp = block_id() * WARPS + local, lane = lane_id();
  u64 *x1 = step.words, *x2 = x1 + HIDDEN, *inner = x2 + HIDDEN, *qkv = inner + FFN;
  u64* parts = qkv + QUERY + 2 * KEY;
  for (int i = thread_id(); i < (int)(sizeof(Layer) / 8) * LAYERS; i += THREADS)
    ((u64*)shared.layers)[i] = ((const u64*)step.layers)[i];
  if (thread_id() < 16) shared.levels[thread_id()] = step.levels[thread_id()];
  if (thread_id() == 0) {
    for (int i = 0; i < WARPS * STAGES; ++i) start_barrier(&shared.full[0][0] + i);
    start_barrier(&shared.past_full);
    fence_barriers();
  }
  sync_block();
  Ring ring = {};
  ring.pieces = list_pieces(shared, local, warp);
  ring.group = begin_of(HEAD, warp);
  ring.end = begin_of(HEAD, warp + 1);
  sync_warp();
#pragma unroll 1
  for (int stage = 0; stage < STAGES; ++stage) refill(step, shared, ring, stage, local);

  const i64 token = step.tokens[0];
  const int position = (int)step.positions[0], splits = splits_for(position + 1);
  const Slice slice = slice_of(block_id(), position + 1);
  const u32 before = step.control[0] * LAYERS;
  const int own = begin_of(O, warp);
  for (int i = lane; i < (begin_of(O, warp + 1) - own) * ROWS_HIDDEN; i += 32)
    shared.residual[local][i] = half_float(step.embedding[token * HIDDEN + own * ROWS_HIDDEN + i]);
  for (int i = thread_id(); i < HEAD_DIM; i += THREADS) {
    const int angle = i % (HEAD_DIM / 2);
    const float* table = i < HEAD_DIM / 2 ? step.cosines : step.sines;
    shared.turns[i / (HEAD_DIM / 2)][angle] = table[(i64)position * (HEAD_DIM / 2) + angle];
  }
  sync_warp();
  int parity = 0;
  float sums[2];
  LAP(0);

#pragma unroll 1
  for (int l = 0; l < LAYERS; ++l) {
    const Layer& layer = shared.layers[l];
    const u32 tag = before + l + 1;
    if (slice.head >= 0 && thread_id() == 0) copy_past(shared, layer, slice, slice.begin, position);

    Gains gains;
    if (slice.head >= 0) gains = load_gains(layer);
    float scale = row_scale<QKV>(shared, l, warp);
    take_normed<ENCODING>(step, shared.first, shared.squares[0], x2,
                          l ? nullptr : step.embedding + token * HIDDEN, layer.attention_norm,
                          tag - 1, hop(step, AFTER_DOWN, GRID * l));
    LAP(1);
    float norm = inverse_rms(shared.squares[0]);
    for (int g = begin_of(QKV, warp); g < begin_of(QKV, warp + 1); ++g) {
      scaled_sums<QKV>(step, shared, ring, warp, g, shared.first, scale, sums);
      if (lane < 2) put(qkv + 2 * g + lane, (lane ? sums[1] : sums[0]) * norm, tag);
    }
    arrive(step, AFTER_QKV);
    LAP(2);
    if (slice.head >= 0) {
      attend(step, shared, layer, gains, slice, position, qkv, parts, tag,
             hop(step, AFTER_QKV, GRID * (l + 1)), parity);
      arrive(step, AFTER_ATTENTION);
    }

    LAP(3);
    scale = row_scale<O>(shared, l, warp);
    take_attention<ENCODING>(step, shared.second, parts, splits, tag,
                             hop(step, AFTER_ATTENTION, KV_HEADS * splits * (l + 1)));
    LAP(4);
    for (int g = own; g < begin_of(O, warp + 1); ++g) {
      scaled_sums<O>(step, shared, ring, warp, g, shared.second, scale, sums);
      if (lane < ROWS_HIDDEN) {
        float& residual = shared.residual[local][(g - own) * ROWS_HIDDEN + lane];
        residual += lane ? sums[ROWS_HIDDEN - 1] : sums[0];
        put(x1 + g * ROWS_HIDDEN + lane, residual, tag);
      }
    }

    arrive(step, AFTER_O);
    LAP(5);
    scale = row_scale<FFN_IN>(shared, l, warp);
    take_normed<ENCODING>(step, shared.first, shared.squares[1], x1, nullptr, layer.ffn_norm, tag,
                          hop(step, AFTER_O, GRID * (l + 1)));
    LAP(6);
    norm = inverse_rms(shared.squares[1]);
    for (int g = begin_of(FFN_IN, warp); g < begin_of(FFN_IN, warp + 1); ++g) {
      scaled_sums<FFN_IN>(step, shared, ring, warp, g, shared.first, scale, sums);
      const float gate = sums[0] * norm;
      if (lane == 0) put(inner + g, gate / (1 + exponential(-gate)) * (sums[1] * norm), tag);
    }

    arrive(step, AFTER_FFN_IN);
    LAP(7);
    scale = row_scale<DOWN>(shared, l, warp);
    take_inner<ENCODING>(step, shared.second, inner, tag, hop(step, AFTER_FFN_IN, GRID * (l + 1)));
    LAP(8);
    for (int g = own; g < begin_of(O, warp + 1); ++g) {
      scaled_sums<DOWN>(step, shared, ring, warp, g, shared.second, scale, sums);
      if (lane < ROWS_HIDDEN) {
        float& residual = shared.residual[local][(g - own) * ROWS_HIDDEN + lane];
        residual += lane ? sums[ROWS_HIDDEN - 1] : sums[0];
        put(x2 + g * ROWS_HIDDEN + lane, residual, tag);
      }
    }
    arrive(step, AFTER_DOWN);
    LAP(9);
  }

  take_normed<0>(step, shared.first, shared.squares[0], x2, nullptr, step.norm, before + LAYERS,
                 hop(step, AFTER_DOWN, GRID * LAYERS));
  LAP(10);
  const float norm = inverse_rms(shared.squares[0]);
  float logit = NEGATIVE_INFINITY;
  int row = VOCAB;
  for (int g = begin_of(HEAD, warp); g < begin_of(HEAD, warp + 1); ++g) {
    group_sums<HEAD>(step, shared, ring, shared.first, sums);
    for (int r = 0; r < 2; ++r)
      if (sums[r] * norm > logit) { logit = sums[r] * norm; row = 2 * g + r; }
  }
  LAP(11);
  pick(step, shared, logit, row);
#if TIMED
  if (thread_id() == 0)
    for (int i = 0; i < LAPS; ++i) step.laps[block_id() * LAPS + i] = laps[i];
#endif
}
