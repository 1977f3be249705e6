// What the kernels here need of CUDA, by names of their own: a CPU has them too, in the tests (ON_CPU).

#pragma once
#ifdef ON_CPU
#include "cuda_on_cpu.h"
#else
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ Params p)
typedef unsigned int u32;
typedef unsigned short u16;
typedef long long i64;

DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_index() { return blockIdx.x; }
DEVICE void *shared_memory() {
    extern __shared__ __align__(16) unsigned char shared[];
    return shared;
}
DEVICE void sync_block() { __syncthreads(); }
template <class T> DEVICE T shuffle_xor(T value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
template <class T> DEVICE T shuffle_up(T value, int by) { return __shfl_up_sync(0xffffffffu, value, by); }
DEVICE u32 add_lanes(u32 value) { return __reduce_add_sync(0xffffffffu, value); }
DEVICE u32 max_lanes(u32 value) { return __reduce_max_sync(0xffffffffu, value); }
DEVICE u32 min_lanes(u32 value) { return __reduce_min_sync(0xffffffffu, value); }
DEVICE u32 bits_of(float value) { return __float_as_uint(value); }
DEVICE float float_of(u32 value) { return __uint_as_float(value); }
// From the second level cache: what kernels before this one have written.
DEVICE float load_float(const float *from) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from));
    return value;
}
// A kernel may begin before the one ahead of it has ended, and must then wait before it reads what that one writes.
DEVICE void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEVICE void await_last() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#endif

constexpr int THREADS = WARPS * 32;

DEVICE float widen(u32 bits) { return float_of(bits << 16); }
