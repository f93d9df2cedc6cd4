// The few instructions that fused_persistent.cu needs from the device, each under a name of its own.
// They are here so that the program above them also runs in an emulation without a GPU.
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;

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
template <int N>
__device__ __forceinline__ void load_halves(const u16* from, float* to) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    const float2 pair = two_halves(((const u32*)from)[i]);
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}
// Signed bytes to floats: the byte, made unsigned, becomes the last digits of 2^23.
__device__ __forceinline__ float4 four_bytes(u32 v) {
  const u32 u = v ^ 0x80808080u;
  const float offset = 8388608.0f + 128.0f;
  return {__uint_as_float(__byte_perm(u, 0x4B000000u, 0x7650)) - offset,
          __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7651)) - offset,
          __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7652)) - offset,
          __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7653)) - offset};
}

// Each 64-bit word is read and written whole; that is all the order that passing words needs.
__device__ __forceinline__ void store_word(u64* to, u64 word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ void load_words(const u64* from, u64& a, u64& b) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(a), "=l"(b) : "l"(from) : "memory");
}
// A packet is read and written whole, too.
__device__ __forceinline__ void store_whole(void* to, u64 a, u64 b) {
  asm volatile("{.reg .b128 v; mov.b128 v, {%1, %2}; st.relaxed.gpu.global.b128 [%0], v;}"
               ::"l"(to), "l"(a), "l"(b) : "memory");
}
__device__ __forceinline__ void load_whole(const void* from, u64& a, u64& b) {
  asm volatile("{.reg .b128 v; ld.relaxed.gpu.global.b128 v, [%2]; mov.b128 {%0, %1}, v;}"
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
