// The few instructions that fused_persistent.cu needs from the device, each under a name of its
// own. They are here so that the program above them also runs in an emulation without a GPU.
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef u32 WholeAddress;  // in shared memory

#define NOT_INLINED __noinline__
#define KERNEL extern "C" __global__ __launch_bounds__(256, 1)

__device__ __forceinline__ int thread_id() { return threadIdx.x; }
__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }
__device__ __forceinline__ int block_id() { return blockIdx.x; }
__device__ __forceinline__ i64 cycles() { return clock64(); }
__device__ __forceinline__ void sync_block() { __syncthreads(); }
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
__device__ __forceinline__ char* shared_memory() {
  extern __shared__ __align__(128) char memory[];
  return memory;
}
__device__ __forceinline__ float shuffle_xor(float v, int lanes) {
  return __shfl_xor_sync(0xffffffffu, v, lanes);
}
__device__ __forceinline__ float shuffle(float v, int lane) {
  return __shfl_sync(0xffffffffu, v, lane);
}
__device__ __forceinline__ u32 shuffle_int(u32 v, int lane) {
  return __shfl_sync(0xffffffffu, v, lane);
}
__device__ __forceinline__ u32 float_bits(float v) { return __float_as_uint(v); }
__device__ __forceinline__ float bits_float(u32 v) { return __uint_as_float(v); }
__device__ __forceinline__ float reciprocal_root(float v) { return rsqrtf(v); }
__device__ __forceinline__ float exponential(float v) { return __expf(v); }
__device__ __forceinline__ float quotient(float a, float b) { return __fdividef(a, b); }
__device__ __forceinline__ float logarithm(float v) { return __logf(v); }

__device__ __forceinline__ float half_float(u16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v));
  return f;
}
__device__ __forceinline__ u16 float_half(float v) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
  return h;
}
__device__ __forceinline__ float2 two_halves(u32 v) {
  float2 f;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
      : "=f"(f.x), "=f"(f.y) : "r"(v));
  return f;
}
__device__ __forceinline__ u32 low_halves(u32 a, u32 b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ u32 high_halves(u32 a, u32 b) { return __byte_perm(a, b, 0x7632); }
template <int N>
__device__ __forceinline__ void load_halves(const u16* from, float* to) {
  struct alignas(2 * N) Pairs { u32 at[N / 2]; } const pairs = *(const Pairs*)from;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    const float2 pair = two_halves(pairs.at[i]);
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}
__device__ __forceinline__ u32 subtract_halves(u32 a, u32 b) {
  u32 d;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
// Four signed bytes to halves: a byte, made unsigned, becomes the last digits of 1024.
__device__ __forceinline__ void bytes_to_halves(u32 v, u32& first, u32& second) {
  const u32 u = v ^ 0x80808080u;
  first = subtract_halves(__byte_perm(u, 0x64646464u, 0x4140), 0x64806480u);
  second = subtract_halves(__byte_perm(u, 0x64646464u, 0x4342), 0x64806480u);
}
// Byte I of `word` as an index of rows of 128 bytes in shared memory, `at` an address in row 0. The
// compiler would need six instructions for these three.
template <int I>
__device__ __forceinline__ u32 row_of_byte(u32 word, WholeAddress at) {
  u32 byte, found;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(byte) : "r"(word), "n"(0x4440 | I));
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(found) : "r"(byte * 128 + at));
  return found;
}
// sums += a times b: a has 16 rows of 16 halves, b 8 columns of 16. Lane 4 g + t gives columns 2 t
// and 2 t + 8 of row g (a0, a2) and row g + 8 (a1, a3), rows as many of column g (b0, b1), and gets
// columns 2 t and 2 t + 1 of both rows.
__device__ __forceinline__ void multiply_add(float* sums, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                             u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// The same where there are no sums yet.
__device__ __forceinline__ void multiply_first(float* sums, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                               u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
               : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
}

// Each 64-bit word is read and written whole; that is all the order that passing words needs. Two
// of them are not one: an H200 gave a reader the second of a 128-bit store with what was there
// before as the first.
__device__ __forceinline__ void store_word(u64* to, u64 word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ void store_two(void* to, u64 a, u64 b) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
}
__device__ __forceinline__ void load_two(const void* from, u64& a, u64& b) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(a), "=l"(b) : "l"(from) : "memory");
}
__device__ __forceinline__ u32 read_volatile(const u32* from) { return *(const volatile u32*)from; }
__device__ __forceinline__ u32 read_counter(const u32* from) {
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ u32 atomic_increment(u32* at) { return atomicAdd(at, 1u); }
__device__ __forceinline__ void fence_device() { __threadfence(); }

__device__ __forceinline__ u32 shared_address(const void* at) {
  return (u32)__cvta_generic_to_shared(at);
}
// The same, but not taken apart again: to add an index then costs one instruction.
__device__ __forceinline__ WholeAddress whole_address(const void* at) {
  WholeAddress whole;
  asm("mov.u32 %0, %1;" : "=r"(whole) : "r"(shared_address(at)));
  return whole;
}
__device__ __forceinline__ void start_barrier(u64* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect_bytes(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_bulk(void* to, const void* from, u32 bytes, u64* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void wait_full(u64* barrier, int parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;}" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}
