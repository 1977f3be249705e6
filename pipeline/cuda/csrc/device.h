// The parts of CUDA that the kernels use, under one set of names. With ON_CPU, `cuda_on_cpu.h` of the tests defines the
// same names for a CPU.

#pragma once
#ifdef ON_CPU
#include "cuda_on_cpu.h"
#else
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define KERNEL(name, threads) RESIDENT_KERNEL(name, threads, 1)
// A kernel of which so many blocks must find room on a multiprocessor at once.
#define RESIDENT_KERNEL(name, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Params p)
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
typedef unsigned int u32;
typedef unsigned short u16;
typedef long long i64;
typedef unsigned long long u64;
#define CLUSTER_KERNEL(name, threads, blocks) \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, 1) \
        name(const __grid_constant__ Params p)

DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_index() { return blockIdx.x; }
DEVICE void *shared_memory() {
    extern __shared__ __align__(128) unsigned char shared[];
    return shared;
}
DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __syncwarp(); }
// Barrier of the first WARPS warps of a block. Lanes that have polled for something arrive one after the other: unless
// they are converged first, the barrier counts each group of them as a whole warp and opens too early.
DEVICE void sync_compute_warps() {
    sync_warp();
    asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
}
DEVICE void sync_cluster() {
    sync_warp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
template <class T> DEVICE T shuffle_xor(T value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
template <class T> DEVICE T shuffle(T value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
template <class T> DEVICE T shuffle_up(T value, int by) { return __shfl_up_sync(0xffffffffu, value, by); }
DEVICE u32 reduce_add(u32 value) { return __reduce_add_sync(0xffffffffu, value); }
DEVICE u32 reduce_max(u32 value) { return __reduce_max_sync(0xffffffffu, value); }
DEVICE u32 reduce_min(u32 value) { return __reduce_min_sync(0xffffffffu, value); }
// Polling loops end with this vote, so that the lanes of a warp stay converged.
DEVICE bool all_lanes(bool value) { return __all_sync(0xffffffffu, value); }
DEVICE u32 bits_of(float value) { return __float_as_uint(value); }
DEVICE float float_of(u32 value) { return __uint_as_float(value); }
// From the second-level cache, past the first-level cache, which may hold stale values: for data written by earlier
// kernels.
DEVICE float load_float(const float *from) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from));
    return value;
}
DEVICE uint4 load_words(const void *from) {
    uint4 words;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "l"(from));
    return words;
}
DEVICE uint2 load_pair(const void *from) {
    uint2 words;
    asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "l"(from));
    return words;
}
DEVICE float fast_exp(float value) { return __expf(value); }

// A packet is 32 bits of data below 32 bits of epoch. The epoch tells a reader that the data has arrived, so no
// separate flag is needed. Two packets are stored and loaded together; each one is read whole.
struct Packets {
    u64 first, second;
};
DEVICE void store_packet(u64 *to, Packets packets) {
    asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(packets.first), "l"(packets.second)
                 : "memory");
}
DEVICE void store_packet(u64 *to, u64 packet) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(packet) : "memory");
}
DEVICE Packets load_packets(const u64 *from) {
    Packets packets;
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(packets.first), "=l"(packets.second) : "l"(from) : "memory");
    return packets;
}
DEVICE u64 load_packet(const u64 *from) {
    u64 packet;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(packet) : "l"(from) : "memory");
    return packet;
}

// A barrier in shared memory. Its phase completes after `count` arrivals and the announced number of bytes.
typedef u64 Mbarrier;
DEVICE u32 shared_address(const void *at) { return (u32)__cvta_generic_to_shared(at); }
DEVICE void mbarrier_init(Mbarrier &barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count) : "memory");
}
DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void mbarrier_arrive(Mbarrier &barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
DEVICE void mbarrier_expect_tx(Mbarrier &barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
}
DEVICE bool mbarrier_try_wait(Mbarrier &barrier, int phase) {
    u32 done;
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n"
                 "}" : "=r"(done) : "r"(shared_address(&barrier)), "r"(phase & 1) : "memory");
    return done;
}
// The same for data of this block alone: no acquire at cluster scope, so the first-level cache keeps its lines.
DEVICE bool mbarrier_try_wait_cta(Mbarrier &barrier, int phase) {
    u32 done;
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n"
                 "}" : "=r"(done) : "r"(shared_address(&barrier)), "r"(phase & 1) : "memory");
    return done;
}
// In a block of 384 threads, which start with equal shares: the first 256 take the registers that the others release.
DEVICE void setmaxnreg_inc_240() { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); }
DEVICE void setmaxnreg_dec_24() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
// Bulk copy from global to shared memory by the copy engine (TMA).
DEVICE void tma_load_keep(void *to, const void *from, u32 bytes, Mbarrier &barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(&barrier)) : "memory");
}
// As `tma_load_keep`, for data that is read once a pass: it is evicted first from the second-level cache.
DEVICE void tma_load(void *to, const void *from, u32 bytes, Mbarrier &barrier) {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                 "[%3], %4;"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(&barrier)), "l"(policy)
                 : "memory");
}
// A lane's copy of 16 bytes from global to shared memory. `commit_copies` ends a group of them; a thread waits until at
// most LATER of its groups are under way.
DEVICE void copy_words(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER> DEVICE void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory"); }
// Distance from an address in this block's shared memory to the same address in block `rank` of the cluster.
typedef u32 ClusterOffset;
DEVICE ClusterOffset cluster_offset(const void *own, int rank) {
    u32 address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(rank));
    return address - shared_address(own);
}
DEVICE void store_async(float4 *own, ClusterOffset offset, float4 value, Mbarrier &barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                 ::"r"(shared_address(own) + offset), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w),
                 "r"(shared_address(&barrier) + offset) : "memory");
}
// sum += a * b, with `a` 16 by 16 and `b` 16 by 8, bfloat16.
DEVICE void mma_16x8x16(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE u32 pack_bf16(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
// The same in float16.
DEVICE void mma_16x8x16_f16(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE u32 pack_f16(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE float2 unpack_f16(u32 pair) {
    float2 values;
    asm("{\n"
        ".reg .f16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;\n"
        "}" : "=f"(values.x), "=f"(values.y) : "r"(pair));
    return values;
}
// Two numbers in float8 (e4m3), the largest of which is 448, to which larger ones are set; and the two in float16.
DEVICE u32 pack_e4m3(float low, float high) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE u32 e4m3_to_f16(u32 pair) {
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)pair));
    return halves;
}
// Of the lower or the upper two bytes of two words, by turns one of each word.
DEVICE u32 interleave_bytes(u32 one, u32 two, int upper) { return __byte_perm(one, two, upper ? 0x7362 : 0x5140); }
DEVICE void trap() { __trap(); }
// Programmatic dependent launch: lets the next kernel start; waits until the previous kernels have ended and their
// writes are visible.
DEVICE void pdl_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEVICE void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#endif

constexpr int THREADS = WARPS * 32;

DEVICE float bf16_to_float(u32 bits) { return float_of(bits << 16); }
DEVICE float low_bf16(u32 pair) { return bf16_to_float(pair & 0xffffu); }
DEVICE float high_bf16(u32 pair) { return float_of(pair & 0xffff0000u); }
