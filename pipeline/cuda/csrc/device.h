// What the kernels here need of CUDA, by names of their own: a CPU has them too, in the tests (ON_CPU).

#pragma once
#ifdef ON_CPU
#include "cuda_on_cpu.h"
#else
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ Params p)
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
// Of threads that have so many registers each, so that blocks of other kernels fit beside its own.
#define SHARING_KERNEL(name, blocks, registers) \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __maxnreg__(registers) \
        name(const __grid_constant__ Params p)

DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_index() { return blockIdx.x; }
DEVICE void *shared_memory() {
    extern __shared__ __align__(128) unsigned char shared[];
    return shared;
}
DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __syncwarp(); }
// Of the first WARPS warps of a block. Lanes that have waited for something come here one after the other; unless they
// are brought together first, the barrier takes each group of them for a whole warp, and opens too early.
DEVICE void sync_workers() {
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
DEVICE u32 add_lanes(u32 value) { return __reduce_add_sync(0xffffffffu, value); }
DEVICE u32 max_lanes(u32 value) { return __reduce_max_sync(0xffffffffu, value); }
DEVICE u32 min_lanes(u32 value) { return __reduce_min_sync(0xffffffffu, value); }
// Where a warp waits, it goes on as one.
DEVICE bool all_lanes(bool value) { return __all_sync(0xffffffffu, value); }
DEVICE u32 bits_of(float value) { return __float_as_uint(value); }
DEVICE float float_of(u32 value) { return __uint_as_float(value); }
// From the second level cache: what kernels before this one have written.
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
DEVICE u32 load_word(const u32 *from) {
    u32 word;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(from));
    return word;
}
DEVICE float fast_exp(float value) { return __expf(value); }
// Off by some of the last bits.
DEVICE float quotient(float over, float under) { return __fdividef(over, under); }
DEVICE float load_once(const float *from) { return __ldg(from); }

// A packet is a number and, above it, the epoch it belongs to, which says that it is there: nothing else has to be
// waited for. Two travel together; each is read whole.
struct Packets {
    u64 first, second;
};
DEVICE void put(u64 *to, Packets packets) {
    asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(packets.first), "l"(packets.second)
                 : "memory");
}
DEVICE void put(u64 *to, u64 packet) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(packet) : "memory");
}
DEVICE Packets look(const u64 *from) {
    Packets packets;
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(packets.first), "=l"(packets.second) : "l"(from) : "memory");
    return packets;
}
// A count that other blocks raise when what they have written is there.
DEVICE u32 look_at(const u32 *from) {
    u32 count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(from) : "memory");
    return count;
}
DEVICE void count_up(u32 *count) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count) : "memory"); }
DEVICE u64 look_at_one(const u64 *from) {
    u64 packet;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(packet) : "l"(from) : "memory");
    return packet;
}

// Where something may be waited for in shared memory: `count` arrivals and as many bytes as were said to come.
typedef u64 Arrival;
DEVICE u32 shared_address(const void *at) { return (u32)__cvta_generic_to_shared(at); }
DEVICE void prepare(Arrival &arrival, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&arrival)), "r"(count) : "memory");
}
DEVICE void publish_arrivals() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void arrive(Arrival &arrival) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&arrival)) : "memory");
}
DEVICE void expect(Arrival &arrival, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&arrival)), "r"(bytes)
                 : "memory");
}
DEVICE bool arrived(Arrival &arrival, int turn) {
    u32 there;
    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 there, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, there;\n"
                 "}" : "=r"(there) : "r"(shared_address(&arrival)), "r"(turn & 1) : "memory");
    return there;
}
// Likewise, where nothing came from another block; it keeps what the first level cache has.
DEVICE bool arrived_here(Arrival &arrival, int turn) {
    u32 there;
    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 there, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, there;\n"
                 "}" : "=r"(there) : "r"(shared_address(&arrival)), "r"(turn & 1) : "memory");
    return there;
}
// Of 384 threads, all of whose warps start with as many registers: the first 256 get those that the others give up.
DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); }
DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
// By the copy engine.
DEVICE void copy_kept(void *to, const void *from, u32 bytes, Arrival &arrival) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(&arrival)) : "memory");
}
// Into the second level cache, for who comes for it later.
DEVICE void expect_soon(const void *from, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// What has been asked of shared memory has come. Without it the copy engine can be told that there is room again, and
// write there, before that.
DEVICE void done_reading() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// By the copy engine. What is read once a pass would only push other things out of the cache.
DEVICE void copy_async(void *to, const void *from, u32 bytes, Arrival &arrival) {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                 "[%3], %4;"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(&arrival)), "l"(policy)
                 : "memory");
}
// How far the shared memory of the cluster's block `rank` is from our own.
typedef u32 Distance;
DEVICE Distance distance_to(const void *own, int rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(own)), "r"(rank));
    return there - shared_address(own);
}
DEVICE void send(float4 *own, Distance distance, float4 value, Arrival &arrival) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                 ::"r"(shared_address(own) + distance), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w),
                 "r"(shared_address(&arrival) + distance) : "memory");
}
// 16 rows by 16 of `a` times 16 by 8 of `b`.
DEVICE void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
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
DEVICE void give_up() { __trap(); }
// A kernel may begin before the one ahead of it has ended, and must then wait before it reads what that one writes.
DEVICE void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEVICE void await_last() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#endif

constexpr int THREADS = WARPS * 32;

DEVICE float widen(u32 bits) { return float_of(bits << 16); }
DEVICE float low_half(u32 pair) { return widen(pair & 0xffffu); }
DEVICE float high_half(u32 pair) { return float_of(pair & 0xffff0000u); }
