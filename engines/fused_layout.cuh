#pragma once
// Sizes and addresses of the persistent step, and which rows a warp owns.

constexpr int WARPS = 8, THREADS = 32 * WARPS, ALL_WARPS = GRID * WARPS;
constexpr int QUERY = HEADS * HEAD_DIM, KEY = KV_HEADS * HEAD_DIM, GROUP = HEADS / KV_HEADS;
constexpr int CODES = 4096, STAGE = CODES + (ENCODING == 2 ? 512 : 0);
constexpr int PADDED_HEADS = (HEADS + 1) / 2 * 2, PART = QUERY / 2 + PADDED_HEADS;
constexpr int PER_LANE = HEAD_DIM / 32;
struct alignas(4 * PER_LANE) OfLane { float at[PER_LANE]; };  // its share of a head, loaded at once
constexpr int PER_PACKET = 6;                  // halves
constexpr int X_RUN = HIDDEN / GRID, INNER_RUN = FFN / GRID, UNIT = 16, UNITS = QUERY / UNIT;
constexpr int LONGEST_RUN = INNER_RUN > X_RUN ? INNER_RUN : X_RUN;
constexpr int SCRATCH = GROUP * HEAD_DIM * (WARPS + 1) + 2 * WARPS * GROUP + HEAD_DIM;
__device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
// Halves between the four planes of inputs for four-bit codes: so only every other two share banks.
constexpr int PLANE_GAP = 32, GAPS = ENCODING == 2 ? 3 * PLANE_GAP : 0;
constexpr int WIDEST = larger(HIDDEN, larger(QUERY, FFN));
constexpr int INPUT = larger((WIDEST + GAPS) / 2, SCRATCH);
constexpr float NEGATIVE_INFINITY = -3e38f;  // NVRTC knows no constant for the real one

enum Phase { QKV, O, FFN_IN, DOWN, HEAD };

struct Layer {  // 7 matrices: q k v o gate up down
  const char* codes[7];
  const char* scales[7];
  const u16 *attention_norm, *ffn_norm, *query_norm, *key_norm;
  u16 *keys, *values;
};

// What passes between blocks: six halves that say themselves whether they are there. They travel as
// two words of 64 bits, so each has a tag: of three pairs, `x` and `z` are the first and the last,
// and the middle one is the lower halves of `y` and `w`; the upper halves are the tag, twice.
struct alignas(16) Packet { u32 x, y, z, w; };

// A vector travels in runs of columns, each as so many packets.
__device__ constexpr int packets_of(int run) { return (run + PER_PACKET - 1) / PER_PACKET; }
constexpr int X_PACKETS = GRID * packets_of(X_RUN), INNER_PACKETS = GRID * packets_of(INNER_RUN);

struct Step {
  const Layer* layers;
  const u16 *embedding, *head, *norm;
  const float *cosines, *sines, *levels;
  i64 *tokens, *positions, *active, *history;
  u64* words;      // qkv [QUERY + 2 KEY]; parts of the attention [MOST_SPLITS, PART]: averages as
                   // pairs of halves, then the logs of the softmax sums
  Packet* packets; // x1, x2, inner, and what was attended
  u32* control;    // steps done, blocks done, error; and on lines of their own, HINTS counters
  float* best;     // [GRID, 2]: logit, row
  i64* laps;       // [GRID, LAPS]: clock cycles by part, where TIMED
};

__device__ constexpr int groups_of(int phase) {
  return phase == QKV ? (QUERY + 2 * KEY) / 2 : phase == FFN_IN ? FFN
         : phase == HEAD ? VOCAB / 2 : HIDDEN / ROWS_HIDDEN;
}
__device__ constexpr int rows_of(int phase) {
  return phase == O || phase == DOWN ? ROWS_HIDDEN : 2;
}
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

// The pairs of rows of the head are dealt out one by one: all warps read neighbouring ones at a
// time, which the memory gives faster than a stretch of its own for each warp.
__device__ int head_pair(int warp, int i) {
  constexpr int EACH = groups_of(HEAD) / ALL_WARPS;
  return i < EACH ? i * ALL_WARPS + warp : EACH * ALL_WARPS + begin_of(HEAD, warp) - EACH * warp;
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

__device__ constexpr int most_groups(int phase) {
  return (groups_of(phase) + ALL_WARPS - 1) / ALL_WARPS;
}
constexpr int MOST_PIECES =
    most_groups(QKV) * chunks_of(QKV) + most_groups(O) * chunks_of(O) +
    most_groups(FFN_IN) * chunks_of(FFN_IN) + most_groups(DOWN) * chunks_of(DOWN);

struct Shared {
  alignas(16) float input[INPUT];  // a phase's input, as halves, or scratch of the attention
  // Bulk copies go to whole lines of 128 bytes: to elsewhere they are slow.
  alignas(128) u16 past[2][2][TILE * HEAD_DIM];  // two tiles of keys and values
  alignas(128) char ring[WARPS][STAGES][STAGE];
  Piece pieces[WARPS][MOST_PIECES];
  alignas(16) Layer layers[LAYERS];
  alignas(8) u64 full[WARPS][STAGES];
  u64 past_full[2];
  float outbox[packets_of(LONGEST_RUN) * PER_PACKET];  // rows that this block has to send
  float residual[X_RUN];        // of the rows that this block owns
  alignas(16) float squares[WARPS];
  u32 levels[ENCODING == 2 ? 256 : 1][32];  // two codes at once, as halves; one copy per lane
  float best[WARPS][2];
  alignas(16) float turns[2][HEAD_DIM / 2];  // cosines and sines of this position
};
