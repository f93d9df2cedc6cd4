#pragma once
// What passes between blocks: words of {value, tag} and packets of twice {three halves, tag}.
// Whoever needs one asks for it until its tags are the one that is due.
#include "fused_layout.cuh"

// Whether to stop asking: somebody is missing, and the step ends with a wrong result.
__device__ NOT_INLINED bool long_since(u32* control, u32 asked) {
  if (asked > SPIN_LIMIT) control[2] = 1;
  return read_volatile(control + 2);
}
__device__ bool lost(const Step& step, u32& asked) {
  return (++asked & 1023) == 0 && long_since(step.control, asked);
}

__device__ void put(u64* word, float value, u32 tag) {
  store_word(word, (u64)tag << 32 | float_bits(value));
}
__device__ void put_two(u64* words, float a, float b, u32 tag) {
  store_two(words, (u64)tag << 32 | float_bits(a), (u64)tag << 32 | float_bits(b));
}
__device__ u32 pack_halves(float a, float b) { return (u32)float_half(b) << 16 | float_half(a); }
__device__ void put_halves(u64* word, float a, float b, u32 tag) {
  store_word(word, (u64)tag << 32 | pack_halves(a, b));
}

// N pairs of neighbouring words per thread, all asked for before the first is waited for.
template <int N>
__device__ void take_pairs(const Step& step, const u64* words, const int* at, u32 tag,
                           float2* out) {
  u64 got[N][2];
  u32 asked = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) if (at[i] >= 0) load_two(words + at[i], got[i][0], got[i][1]);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (at[i] < 0) continue;
    while ((u32)(got[i][0] >> 32) != tag || (u32)(got[i][1] >> 32) != tag) {
      if (lost(step, asked)) break;
      load_two(words + at[i], got[i][0], got[i][1]);
    }
    out[i] = {bits_float((u32)got[i][0]), bits_float((u32)got[i][1])};
  }
}

__device__ void await_word(const Step& step, const u64* word, u32 tag) {
  u32 asked = 0;
  while (read_counter((const u32*)word + 1) != tag)
    if (lost(step, asked)) break;
}

// Of a tag's 32 bits a packet has 16: what was there before it has the tag of the layer before.
__device__ Packet packed(u32 first, u32 middle, u32 last, u32 tag) {
  return {first, low_halves(middle, tag), last, middle >> 16 | tag << 16};
}
__device__ bool there(const Packet& packet, u32 tag) {
  return high_halves(packet.y, packet.w) == low_halves(tag, tag);
}
__device__ u32 pair_of(const Packet& packet, int i) {
  return i == 0 ? packet.x : i == 1 ? low_halves(packet.y, packet.w) : packet.z;
}
__device__ void send(Packet* to, u32 first, u32 middle, u32 last, u32 tag) {
  const Packet packet = packed(first, middle, last, tag);
  store_two(to, packet.x | (u64)packet.y << 32, packet.z | (u64)packet.w << 32);
}
__device__ Packet look(const Packet* from) {
  u64 a, b;
  load_two(from, a, b);
  return {(u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32)};
}
__device__ void await(const Step& step, const Packet* from, u32 tag, Packet& packet, u32& asked) {
  while (!there(packet, tag)) {
    if (lost(step, asked)) break;
    packet = look(from);
  }
}

// All threads that keep asking for all packets slow everything down. So where a bit of HINTED says
// so, senders count themselves in, and one thread of who waits looks at the counter before the
// others ask at all. It orders nothing: what counts is still each packet's tag.
enum Hint { X1_SENT, X2_SENT, INNER_SENT, ATTENDED_SENT, PARTS_SENT, HINTS };

__device__ constexpr bool hinted(Hint hint) { return HINTED >> hint & 1; }

__device__ void count_in(const Step& step, Hint hint) {
  if (hinted(hint)) atomic_increment(step.control + 32 * (hint + 1));
}
// All lanes of a warp look, at one word: lanes that go apart here would stay apart, and every
// shuffle after that would be one for each of them.
__device__ void await_count(const Step& step, Hint hint, u32 target) {
  u32 asked = 0;
  while (read_counter(step.control + 32 * (hint + 1)) < target)
    if (lost(step, asked)) break;
}
__device__ void await_hint(const Step& step, Hint hint, u32 target) {
  if (!hinted(hint) || !target) return;
  if (thread_id() < 32) await_count(step, hint, target);
  sync_block();
}

// The rows in the outbox, when all warps have put theirs there.
template <int RUN>
__device__ void send_rows(const Step& step, const Shared& shared, Packet* base, u32 tag,
                          Hint hint) {
  static_assert(packets_of(RUN) <= THREADS, "a thread sends one packet at most");
  sync_block();
  const int mine = thread_id();
  if (mine >= packets_of(RUN)) return;
  const float* from = shared.outbox + mine * PER_PACKET;
  send(base + block_id() * packets_of(RUN) + mine, pack_halves(from[0], from[1]),
       pack_halves(from[2], from[3]), pack_halves(from[4], from[5]), tag);
  if (mine == 0) count_in(step, hint);
}
