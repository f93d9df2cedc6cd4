#pragma once
// The weights of a warp on their way through its ring: in which order they come, and who asks when.
#include "fused_layout.cuh"

struct Ring {
  int pieces;               // of a layer
  u32 next;                 // what will be copied next: the layer, and 16 bits of a piece in it
  int stage, parity, used;  // where the next piece arrives; stages before it to be filled again
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

// How many groups of rows a warp multiplies at a time: they share what is loaded of the input.
// While their stages are in use, as many others must be on their way, but for a phase that fits
// into the ring.
constexpr int MOST_AT_ONCE = ENCODING == 2 ? 4 : 8;  // rows
template <int PHASE>
__device__ constexpr bool fits() {
  return PHASE != HEAD && most_groups(PHASE) * chunks_of(PHASE) < STAGES;
}
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

// Fill stages, from `stage` on, with what comes next in this warp's list, a lane each; after all
// layers, that is the head. Returns what comes then.
__device__ NOT_INLINED u32 fill(Shared& shared, const u16* head, u32 next, int pieces, int stage,
                                int stages, int warp) {
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
  ring.next = fill(shared, step.head, ring.next, ring.pieces, first < 0 ? first + STAGES : first,
                   stages, warp);
  ring.used -= stages;
}

// Where in a layer a warp may ask for weights, and how many stages it refills there at most: a
// packet that travels while the memory is busy waits behind all that was asked for before.
enum Point {
  BEFORE_QKV, AFTER_QKV, AMID_ATTENTION, BEFORE_O, AFTER_O, BEFORE_FFN_IN, AFTER_FFN_IN,
  BEFORE_DOWN, AFTER_DOWN
};
__device__ constexpr int most_at(Point point) { return (int)((u64)REFILLS >> 4 * point & 15); }

template <Point POINT>
__device__ void refill_at(const Step& step, Shared& shared, Ring& ring, int warp) {
  constexpr int MOST = most_at(POINT);
  if (MOST && ring.used) refill(step, shared, ring, warp, ring.used < MOST ? ring.used : MOST);
}
