#pragma once
// Sizes and addresses of the persistent step; what a warp owns, and in which order its weights come.

constexpr int WARPS = 8, THREADS = 32 * WARPS, ALL_WARPS = GRID * WARPS;
constexpr int QUERY = HEADS * HEAD_DIM, KEY = KV_HEADS * HEAD_DIM, GROUP = HEADS / KV_HEADS;
constexpr int CODES = 4096, STAGE = CODES + (ENCODING == 2 ? 512 : 0);
constexpr int PADDED_HEADS = (HEADS + 1) / 2 * 2, PART = QUERY / 2 + PADDED_HEADS;
constexpr int PER_LANE = HEAD_DIM / 32;
struct alignas(4 * PER_LANE) OfLane { float at[PER_LANE]; };  // a lane's share of a head, loaded at once
constexpr int PER_PACKET = 6;                  // halves
constexpr int X_RUN = HIDDEN / GRID, INNER_RUN = FFN / GRID, UNIT = 16, UNITS = QUERY / UNIT;
constexpr int LONGEST_RUN = INNER_RUN > X_RUN ? INNER_RUN : X_RUN;
constexpr int SCRATCH = GROUP * HEAD_DIM * (WARPS + 1) + 2 * WARPS * GROUP + HEAD_DIM;
__device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
constexpr int PLANE_GAP = 32;  // halves between the four planes of inputs for four-bit codes: two in turn share banks
constexpr int INPUT = larger((larger(HIDDEN, larger(QUERY, FFN)) + (ENCODING == 2 ? 3 * PLANE_GAP : 0)) / 2, SCRATCH);
constexpr float NEGATIVE_INFINITY = -3e38f;  // NVRTC knows no constant for the real one

enum Phase { QKV, O, FFN_IN, DOWN, HEAD };

struct Layer {  // 7 matrices: q k v o gate up down
  const char* codes[7];
  const char* scales[7];
  const u16 *attention_norm, *ffn_norm, *query_norm, *key_norm;
  u16 *keys, *values;
};

// What passes between blocks: six halves that say themselves whether they are there. They travel as two
// words of 64 bits, so each has a tag: of three pairs, `x` and `z` are the first and the last, and the middle
// one is the lower halves of `y` and `w`; the upper halves are the tag, twice.
struct alignas(16) Packet { u32 x, y, z, w; };

// A vector travels in runs of columns, each as so many packets.
__device__ constexpr int packets_of(int run) { return (run + PER_PACKET - 1) / PER_PACKET; }
constexpr int X_PACKETS = GRID * packets_of(X_RUN), INNER_PACKETS = GRID * packets_of(INNER_RUN);

struct Step {
  const Layer* layers;
  const u16 *embedding, *head, *norm;
  const float *cosines, *sines, *levels;
  i64 *tokens, *positions, *active, *history;
  u64* words;      // qkv [QUERY + 2 KEY]; parts of the attention [MOST_SPLITS, PART]: averages as pairs
                   // of halves, then the logs of the softmax sums
  Packet* packets; // x1, x2, inner, and what was attended
  u32* control;    // steps done, blocks done, error; and on lines of their own, HINTS counters
  float* best;     // [GRID, 2]: logit, row
  i64* laps;       // [GRID, LAPS]: clock cycles by part, where TIMED
};

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

// The pairs of rows of the head are dealt out one by one: all warps read neighbouring ones at a time, which
// the memory gives faster than a stretch of its own for each warp.
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
  alignas(128) u16 past[2][2][TILE * HEAD_DIM];  // two tiles of keys and values; bulk copies to elsewhere are slow
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

struct Ring {
  int pieces;                    // of a layer
  u32 next;                      // what will be copied next: the layer, and 16 bits of a piece in it
  int stage, parity, used;       // where the next piece arrives; stages before it to be filled again
};

template <int PHASE>
__device__ Piece piece_at(int group, int chunk) {
  const int start = chunk * piece(PHASE), left = row_bytes(PHASE) - start;
  const int bytes = left < piece(PHASE) ? left : piece(PHASE);
  constexpr bool WHOLE = row_bytes(PHASE) == piece(PHASE) && PHASE != FFN_IN;  // both rows at once
  Piece made = {{0, 0}, {(u16)bytes, 0}, {0, 0}};
#pragma unroll
  for (int r = 0; r < rows_of(PHASE); ++r) {
    const Row row = row_at(PHASE, group, r);
    made.from[r] = (u32)(((i64)row.row * row_bytes(PHASE) + start) / 16);
    made.matrix[r] = (u16)row.matrix;
    if (r) made.bytes[WHOLE ? 0 : 1] = (u16)(WHOLE ? 2 * bytes : bytes);
  }
  return made;
}

// How many groups of rows a warp multiplies at a time: they share what is loaded of the input. While their
// stages are in use, as many others must be on their way, but for a phase that fits into the ring.
constexpr int MOST_AT_ONCE = ENCODING == 2 ? 4 : 8;  // rows
template <int PHASE>
__device__ constexpr bool fits() { return PHASE != HEAD && most_groups(PHASE) * chunks_of(PHASE) < STAGES; }
template <int PHASE>
__device__ constexpr int at_once() {
  if (PHASE == HEAD) return chunks_of(HEAD) == 1 ? 2 : 1;
  int most = 1;
  for (int n = 2; n <= MOST_AT_ONCE / rows_of(PHASE) && (fits<PHASE>() || 2 * n <= STAGES); ++n)
    if (groups_of(PHASE) % (ALL_WARPS * n) == 0) most = n;
  return most;
}

// The pieces of a phase, a lane each; returns how many there are now.
template <int PHASE>
__device__ int list_phase(Piece* pieces, int warp, int listed) {
  constexpr int N = at_once<PHASE>(), CHUNKS = chunks_of(PHASE);
  const int begin = begin_of(PHASE, warp), count = (begin_of(PHASE, warp + 1) - begin) * CHUNKS;
  for (int i = lane_id(); i < count; i += 32)
    pieces[listed + i] = piece_at<PHASE>(begin + i / (N * CHUNKS) * N + i % N, i / N % CHUNKS);
  return listed + count;
}

// Returns how many there are.
__device__ int list_pieces(Shared& shared, int warp) {
  Piece* pieces = shared.pieces[warp % WARPS];
  int listed = list_phase<QKV>(pieces, warp, 0);
  listed = list_phase<O>(pieces, warp, listed);
  listed = list_phase<FFN_IN>(pieces, warp, listed);
  listed = list_phase<DOWN>(pieces, warp, listed);
  sync_warp();
  return listed;
}

// Everything is read before the barrier is told, so that it is read at once.
__device__ void copy_piece(const Layer& layer, const Piece made, char* to, u64* full) {
  const bool blocks = ENCODING == 2;
  const char* codes[2];
  const char* scales[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    codes[r] = layer.codes[made.matrix[r]] + (i64)made.from[r] * 16;
    if (blocks) scales[r] = layer.scales[made.matrix[r]] + (i64)made.from[r] * 2;
  }
  const int both = made.bytes[0] + made.bytes[1];
  expect_bytes(full, both + (blocks ? both / 8 : 0));
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (!made.bytes[r]) continue;
    copy_bulk(to + r * (CODES / 2), codes[r], made.bytes[r], full);
    if (blocks) copy_bulk(to + CODES + r * (CODES / 16), scales[r], made.bytes[r] / 8, full);
  }
}

__device__ void copy_head(const u16* head, int group, int chunk, char* to, u64* full) {
  const int start = chunk * piece(HEAD), left = row_bytes(HEAD) - start;
  const int bytes = left < piece(HEAD) ? left : piece(HEAD);
  const char* from = (const char*)head + 2 * (i64)group * row_bytes(HEAD) + start;
  expect_bytes(full, 2 * bytes);
  copy_bulk(to, from, bytes, full);
  copy_bulk(to + piece(HEAD), from + row_bytes(HEAD), bytes, full);
}

// Fill stages, from `stage` on, with what comes next in this warp's list, a lane each; after all layers,
// that is the head. Returns what comes then.
__device__ NOT_INLINED u32 fill(Shared& shared, const u16* head, u32 next, int pieces, int stage, int stages,
                                int warp) {
  const int local = warp % WARPS;
  int layer = next >> 16, piece = (next & 0xffff) + lane_id();
  sync_warp();
  if (lane_id() < stages) {
    int l = layer, p = piece;
    while (p >= pieces) { p -= pieces; ++l; }
    stage += lane_id();
    if (stage >= STAGES) stage -= STAGES;
    char* to = shared.ring[local][stage];
    u64* full = &shared.full[local][stage];
    if (l < LAYERS) {
      copy_piece(shared.layers[l], shared.pieces[local][p], to, full);
    } else {
      const int beyond = (l - LAYERS) * pieces + p;
      const int i = beyond / chunks_of(HEAD);
      if (i < begin_of(HEAD, warp + 1) - begin_of(HEAD, warp))
        copy_head(head, head_pair(warp, i), beyond % chunks_of(HEAD), to, full);
    }
  }
  piece += stages - lane_id();
  while (piece >= pieces) { piece -= pieces; ++layer; }
  return (u32)layer << 16 | piece;
}
__device__ void refill(const Step& step, Shared& shared, Ring& ring, int warp, int stages) {
  const int first = ring.stage - ring.used;
  ring.next = fill(shared, step.head, ring.next, ring.pieces, first < 0 ? first + STAGES : first, stages, warp);
  ring.used -= stages;
}

// Where in a layer a warp may ask for weights, and how many stages it refills there at most: a packet that
// travels while the memory is busy waits behind all that was asked for before.
enum Point {
  BEFORE_QKV, AFTER_QKV, AMID_ATTENTION, BEFORE_O, AFTER_O, BEFORE_FFN_IN, AFTER_FFN_IN, BEFORE_DOWN, AFTER_DOWN
};
__device__ constexpr int most_at(Point point) { return (int)((u64)REFILLS >> 4 * point & 15); }

template <Point POINT>
__device__ void refill_at(const Step& step, Shared& shared, Ring& ring, int warp) {
  constexpr int MOST = most_at(POINT);
  if (MOST && ring.used) refill(step, shared, ring, warp, ring.used < MOST ? ring.used : MOST);
}
