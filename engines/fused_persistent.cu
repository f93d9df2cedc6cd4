// One decode step at batch 1 as ONE kernel that never lets the memory idle (sm_90 and newer).
//
// A step as a chain of kernels stops the memory at every boundary: the last block drains, the next
// kernel starts, its first loads travel. But weights do not depend on data. Here every warp knows
// the list of weight rows it will need in the whole step and streams them through its own ring in
// shared memory (bulk copies that complete on a barrier), always a ring ahead. What does depend on
// data, a few thousand floats per phase, passes between multiprocessors as words of {value, tag}:
// the reader polls the words themselves, so that no grid barrier, fence or counter is needed, and
// a hop costs one store and one load. A word's tag is new in every layer of every step. Each block
// owns rows in every phase, so nobody can overwrite a word that a slower block still has to read.
//
// Phases of a layer: QKV, attention (a few blocks), O, gate and up, down; after the last, the head.
// ENCODING: 0 fp16, 1 int8 with a scale per row, 2 nf4 with a scale per 64 columns.
#ifndef EMULATED
#include "fused_device.cuh"
#endif

constexpr int WARPS = 8, THREADS = 32 * WARPS, ALL_WARPS = GRID * WARPS;
constexpr int QUERY = HEADS * HEAD_DIM, KEY = KV_HEADS * HEAD_DIM, GROUP = HEADS / KV_HEADS;
constexpr int CODES = 4096, STAGE = CODES + (ENCODING == 2 ? 512 : 0);
constexpr int PADDED_HEADS = (HEADS + 1) / 2 * 2, PART = QUERY / 2 + PADDED_HEADS;
constexpr int PER_LANE = HEAD_DIM / 32;
constexpr int MOST_ROWS = (HIDDEN / ROWS_HIDDEN + ALL_WARPS - 1) / ALL_WARPS * ROWS_HIDDEN;
constexpr int SCRATCH = GROUP * HEAD_DIM * (WARPS + 1) + 2 * WARPS * GROUP + HEAD_DIM;
constexpr int WIDE = QUERY > FFN ? QUERY : FFN, SECOND = WIDE > SCRATCH ? WIDE : SCRATCH;
constexpr float NEGATIVE_INFINITY = -3e38f;  // NVRTC knows no constant for the real one

enum Phase { QKV, O, FFN_IN, DOWN, HEAD, DONE };

struct Layer {  // 7 matrices: q k v o gate up down
  const char* codes[7];
  const char* scales[7];
  const u16 *attention_norm, *ffn_norm, *query_norm, *key_norm;
  u16 *keys, *values;
};

struct Step {
  const Layer* layers;
  const u16 *embedding, *head, *norm;
  const float *cosines, *sines, *levels;
  i64 *tokens, *positions, *active, *history;
  u64* words;      // x1, x2 [HIDDEN]; inner [FFN]; qkv [QUERY + 2 KEY]; parts [SPLITS, PART]: the
                   // averages as pairs of halves, then the logs of the softmax sums
  u32* control;    // steps done, blocks done, error; and on lines of their own, ARRIVALS counters
  float* best;     // [GRID, 2]: logit, row
  i64* laps;       // [GRID, LAPS]: clock cycles by part, where TIMED
};

// ---- what a warp owns, and in which order its weights come -------------------------------------

__device__ constexpr int groups_of(int phase) {
  return phase == QKV ? (QUERY + 2 * KEY) / 2 : phase == FFN_IN ? FFN
         : phase == HEAD ? VOCAB / 2 : HIDDEN / ROWS_HIDDEN;
}
__device__ constexpr int rows_of(int phase) { return phase == O || phase == DOWN ? ROWS_HIDDEN : 2; }
__device__ constexpr int columns_of(int phase) {
  return phase == O ? QUERY : phase == DOWN ? FFN : HIDDEN;
}
__device__ constexpr int encoding_of(int phase) { return phase == HEAD ? 0 : ENCODING; }
__device__ constexpr int row_bytes(int phase) {
  return encoding_of(phase) == 0 ? 2 * columns_of(phase)
         : encoding_of(phase) == 1 ? columns_of(phase) : columns_of(phase) / 2;
}
__device__ constexpr int piece(int phase) { return CODES / rows_of(phase); }  // bytes of one row
__device__ constexpr int chunks_of(int phase) {
  return (row_bytes(phase) + piece(phase) - 1) / piece(phase);
}
__device__ int begin_of(int phase, int warp) {
  return (int)((i64)warp * groups_of(phase) / ALL_WARPS);
}

struct Row { int matrix, row; };

__device__ Row row_at(int phase, int group, int r) {
  if (phase == QKV) {
    int row = 2 * group + r;
    if (row < QUERY) return {0, row};
    return row < QUERY + KEY ? Row{1, row - QUERY} : Row{2, row - QUERY - KEY};
  }
  if (phase == FFN_IN) return {4 + r, group};
  return {phase == O ? 3 : 6, group * ROWS_HIDDEN + r};
}

// One copy into a stage: part of one row or two. The list is the same in every layer, so it is
// made once, and asking for the next copy takes a few instructions.
struct alignas(16) Piece {
  u32 from[2];     // offsets into the matrices, in units of 16 bytes
  u16 bytes[2];
  u16 matrix[2];
};

constexpr int most_groups(int phase) { return (groups_of(phase) + ALL_WARPS - 1) / ALL_WARPS; }
constexpr int MOST_PIECES =
    most_groups(QKV) * chunks_of(QKV) + most_groups(O) * chunks_of(O) +
    most_groups(FFN_IN) * chunks_of(FFN_IN) + most_groups(DOWN) * chunks_of(DOWN);

struct Shared {
  alignas(16) float first[HIDDEN];
  alignas(16) float second[SECOND];
  alignas(16) u16 past[2][TILE * HEAD_DIM];  // keys and values of one slice of the context
  alignas(16) char ring[WARPS][STAGES][STAGE];
  Piece pieces[WARPS][MOST_PIECES];
  alignas(16) Layer layers[LAYERS];
  alignas(8) u64 full[WARPS][STAGES];
  u64 past_full;
  float residual[WARPS][MOST_ROWS];
  float squares[2][WARPS];
  float levels[16];
  float best[WARPS][2];
  float turns[2][HEAD_DIM / 2];  // cosines and sines of this position
};

struct Ring {
  int layer, piece, pieces;      // what will be copied next, of how many a layer
  int group, end, chunk;         // and in the head, after all layers
  int stage, parity;             // where the next piece to be used arrives
};

__device__ Piece piece_at(int phase, int group, int chunk) {
  const int start = chunk * piece(phase), left = row_bytes(phase) - start;
  const int bytes = left < piece(phase) ? left : piece(phase);
  const bool whole = row_bytes(phase) == piece(phase) && phase != FFN_IN;  // both rows at once
  Piece made = {{0, 0}, {(u16)bytes, 0}, {0, 0}};
  for (int r = 0; r < rows_of(phase); ++r) {
    const Row row = row_at(phase, group, r);
    made.from[r] = (u32)(((i64)row.row * row_bytes(phase) + start) / 16);
    made.matrix[r] = (u16)row.matrix;
    if (r) made.bytes[whole ? 0 : 1] = (u16)(whole ? 2 * bytes : bytes);
  }
  return made;
}

__device__ int list_pieces(Shared& shared, int warp_in_block, int warp) {
  int listed = 0;
#pragma unroll 1
  for (int phase = QKV; phase <= DOWN; ++phase) {
    const int begin = begin_of(phase, warp), chunks = chunks_of(phase);
    const int count = (begin_of(phase, warp + 1) - begin) * chunks;
    for (int i = lane_id(); i < count; i += 32)
      shared.pieces[warp_in_block][listed + i] = piece_at(phase, begin + i / chunks, i % chunks);
    listed += count;
  }
  return listed;
}

__device__ void copy_piece(const Layer& layer, const Piece& made, int second, char* to, u64* full) {
  const bool blocks = ENCODING == 2;
  const int both = made.bytes[0] + made.bytes[1];
  expect_bytes(full, both + (blocks ? both / 8 : 0));
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (!made.bytes[r]) continue;
    copy_bulk(to + r * second, layer.codes[made.matrix[r]] + (i64)made.from[r] * 16, made.bytes[r], full);
    if (blocks)
      copy_bulk(to + CODES + r * (second / 8), layer.scales[made.matrix[r]] + (i64)made.from[r] * 2,
                made.bytes[r] / 8, full);
  }
}

__device__ void copy_head(const u16* head, int group, int chunk, char* to, u64* full) {
  const int start = chunk * piece(HEAD), left = row_bytes(HEAD) - start;
  const int bytes = left < piece(HEAD) ? left : piece(HEAD);
  const char* from = (const char*)head + (i64)(2 * group) * row_bytes(HEAD) + start;
  expect_bytes(full, 2 * bytes);
  copy_bulk(to, from, bytes, full);
  copy_bulk(to + piece(HEAD), from + row_bytes(HEAD), bytes, full);
}

// Ask for the next piece of this warp's list.
__device__ void refill(const Step& step, Shared& shared, Ring& ring, int stage, int warp_in_block) {
  char* to = shared.ring[warp_in_block][stage];
  u64* full = &shared.full[warp_in_block][stage];
  if (ring.layer < LAYERS) {
    if (lane_id() == 0)
      copy_piece(shared.layers[ring.layer], shared.pieces[warp_in_block][ring.piece], CODES / 2, to, full);
    if (++ring.piece == ring.pieces) { ring.piece = 0; ++ring.layer; }
  } else if (ring.group < ring.end) {
    if (lane_id() == 0) copy_head(step.head, ring.group, ring.chunk, to, full);
    if (++ring.chunk == chunks_of(HEAD)) { ring.chunk = 0; ++ring.group; }
  }
}

// ---- words that pass between blocks ------------------------------------------------------------

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

// ---- products ----------------------------------------------------------------------------------

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

// ---- attention ---------------------------------------------------------------------------------

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

// ---- the step ----------------------------------------------------------------------------------

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
