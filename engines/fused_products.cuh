#pragma once
// Rows of weights, decoded in registers, times an input in shared memory.
#include "fused_inputs.cuh"
#include "fused_ring.cuh"

// The two levels of every byte of four-bit codes: the low half's and the high half's.
__device__ void fill_levels(const Step& step, Shared& shared) {
  if (ENCODING != 2) return;
  for (int code = thread_id() / 32; code < 256; code += WARPS)
    shared.levels[code][lane_id()] = pack_halves(step.levels[code & 15], step.levels[code >> 4]);
}
// A lane's codes of a row as pairs of halves.
template <int E>
__device__ void decode(const char* row, int segment, WholeAddress levels, u32* to) {
  if (E < 2) {
    const uint4 codes = *(const uint4*)(row + segment * 16);
    const u32 word[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (E == 0) to[i] = word[i];
      else bytes_to_halves(word[i], to[2 * i], to[2 * i + 1]);
    return;
  }
  const int start = segment / 4 * 64 + block_turn(segment) * 32 + segment % 4 * 8;
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    const uint2 codes = *(const uint2*)(row + (start ^ block * 32));
    const u32 word[2] = {codes.x, codes.y};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      u32* four = to + 8 * block + 4 * i;
      four[0] = row_of_byte<0>(word[i], levels);
      four[1] = row_of_byte<1>(word[i], levels);
      four[2] = row_of_byte<2>(word[i], levels);
      four[3] = row_of_byte<3>(word[i], levels);
    }
  }
}

// Sums of two rows, from a matrix instruction that is meant for 16 rows and 8 columns: to it, what
// lanes 4 g to 4 g + 3 have of the two rows are rows g and g + 8, and what they have of the input
// is column g. What it finds where g meets g are the products; the rest is nobody's.
struct Products { float found[4]; };

__device__ void own_products(const Products& all, float* values) {
  const int lane = lane_id(), g = lane / 4;
  const bool mine = lane % 4 == g / 2;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    values[i] = mine ? (g % 2 ? all.found[2 * i + 1] : all.found[2 * i]) : 0;
}

// One segment per lane of all rows of N stages. Each two rows have SETS of sums, used in turn.
template <int PHASE, int N, int SETS>
__device__ void add_segment(const Shared& shared, const char* const* stages, const u16* x,
                            int first, int s, bool there, Products* sums) {
  constexpr int R = rows_of(PHASE), E = encoding_of(PHASE), WORDS = per_segment(E) / 2;
  constexpr int PLANE = plane<E, columns_of(PHASE)>(), BLOCKS = E == 2 ? 2 : 1;
  const WholeAddress levels = whole_address(&shared.levels[0][lane_id()]);
  u32 columns[WORDS];
#pragma unroll
  for (int i = 0; i < WORDS / 4; ++i) {
    const uint4 v = there ? *(const uint4*)(x + i * PLANE + (first + s) * 8) : uint4{0, 0, 0, 0};
    columns[4 * i] = v.x;
    columns[4 * i + 1] = v.y;
    columns[4 * i + 2] = v.z;
    columns[4 * i + 3] = v.w;
  }
#pragma unroll
  for (int row = 0; row < N * R; row += 2) {
    u32 codes[2][WORDS] = {};
    float scales[2][BLOCKS] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (row + i >= N * R || !there) continue;
      const char* stage = stages[(row + i) / R];
      const int r = (row + i) % R;
      decode<E>(stage + r * piece(PHASE), s, levels, codes[i]);
      if constexpr (E == 2) {  // of both blocks at once
        const float2 from = *(const float2*)(stage + CODES + r * (piece(PHASE) / 8) + s / 4 * 8);
        scales[i][0] = block_turn(s) ? from.y : from.x;
        scales[i][1] = block_turn(s) ? from.x : from.y;
      }
    }
    if constexpr (E == 2) {
#pragma unroll
      for (int block = 0; block < BLOCKS; ++block) {
        float found[4];
        multiply_first(found, codes[0][8 * block], codes[1][8 * block], codes[0][8 * block + 1],
                       codes[1][8 * block + 1], columns[8 * block], columns[8 * block + 1]);
#pragma unroll
        for (int w = 8 * block + 2; w < 8 * block + 8; w += 2)
          multiply_add(found, codes[0][w], codes[1][w], codes[0][w + 1], codes[1][w + 1],
                       columns[w], columns[w + 1]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[row / 2 * SETS].found[i] += found[i] * scales[i / 2][block];
      }
      continue;
    }
#pragma unroll
    for (int w = 0; w < WORDS; w += 2)
      multiply_add(sums[row / 2 * SETS + w / 2 % SETS].found, codes[0][w], codes[1][w],
                   codes[0][w + 1], codes[1][w + 1], columns[w], columns[w + 1]);
  }
}

// The next N stages of the ring, all of the same columns, added to the sums of their rows.
template <int PHASE, int N, int SETS>
__device__ void add_stages(Shared& shared, Ring& ring, const u16* x, int chunk, Products* sums) {
  constexpr int MOST = piece(PHASE) / 16, SEGMENTS = row_bytes(PHASE) / 16;
  constexpr bool EVEN = MOST % 32 == 0 && SEGMENTS % 32 == 0;
  constexpr int UNROLL = encoding_of(PHASE) == 2 ? 1 : 2;
  const int local = thread_id() / 32, first = chunk * MOST;
  const char* stages[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    stages[i] = shared.ring[local][ring.stage];
    wait_full(&shared.full[local][ring.stage], ring.parity);
    if (++ring.stage == STAGES) { ring.stage = 0; ring.parity ^= 1; }
  }
  sync_warp();  // the matrix instruction wants all lanes together
  ring.used += N;
  const int left = SEGMENTS - first, count = left < MOST ? left : MOST;
#pragma unroll UNROLL
  for (int s = lane_id(); s - lane_id() < count; s += 32)
    add_segment<PHASE, N, SETS>(shared, stages, x, first, s, EVEN || s < count, sums);
}

// All rows of this warp in a phase. For each group, `store(group, first, second)` is called by one
// lane with the sums of its rows. The stages used last are left to be refilled by the caller.
template <int PHASE, class Store>
__device__ void multiply(const Step& step, Shared& shared, Ring& ring, int warp, const u16* x,
                         float scale, const Store& store) {
  constexpr int R = rows_of(PHASE), N = at_once<PHASE>(), VALUES = power_of_two(N * R);
  constexpr int SETS = N * R > 2 ? 1 : 2, PAIRS = (N * R + 1) / 2;
  constexpr bool FITS = fits<PHASE>();
  const int begin = begin_of(PHASE, warp), end = begin_of(PHASE, warp + 1), lane = lane_id();
  const int value = lane_of(lane) & VALUES - 1;
  if (FITS && ring.used > STAGES - most_groups(PHASE) * chunks_of(PHASE))
    refill(step, shared, ring, warp, ring.used);
#pragma unroll 1
  for (int group = begin; group < end; group += N) {
    Products sums[PAIRS * SETS] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < chunks_of(PHASE); ++chunk) {
      if (!FITS && ring.used) refill(step, shared, ring, warp, ring.used);
      if (PHASE == HEAD && group + 1 == end)
        add_stages<PHASE, 1, SETS>(shared, ring, x, chunk, sums);
      else add_stages<PHASE, N, SETS>(shared, ring, x, chunk, sums);
    }
    float values[2 * PAIRS > VALUES ? 2 * PAIRS : VALUES] = {};
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
      if (SETS == 2)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[2 * pair].found[i] += sums[2 * pair + 1].found[i];
      own_products(sums[pair * SETS], values + 2 * pair);
    }
    float total = lane_sums<VALUES>(values);
    if (encoding_of(PHASE) == 1) total *= shuffle(scale, (group - begin) * R + value & 31);
    const float second = R > 1 ? shuffle_xor(total, 16) : 0;
    const int mine = group + value / R;
    if ((lane & 31 / VALUES) == 0 && value % R == 0 && value < N * R && mine < end)
      store(mine, total, second);
  }
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
