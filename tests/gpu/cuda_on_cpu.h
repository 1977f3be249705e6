// Enough of CUDA to run the kernels on a CPU for the tests: every thread of every block is a fiber of one thread, and
// an operation of a warp, block or cluster switches fibers until all of them have reached it.

#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#define CLUSTER_KERNEL(name, threads, blocks) KERNEL(name, threads)
#define RESIDENT_KERNEL(name, threads, blocks) KERNEL(name, threads)
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define KERNEL(name, threads) \
    static void name(const Params &); \
    namespace cpu { static void kernel(const Params &p) { name(p); } } \
    static void name(const Params &p)
using u32 = uint32_t;
using u16 = uint16_t;
using i64 = long long;
using u64 = unsigned long long;
struct uint2 {
    u32 x, y;
};
struct uint4 {
    u32 x, y, z, w;
};
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace cpu {

#ifdef RANKS
constexpr int CLUSTER = RANKS;
#else
constexpr int CLUSTER = 1;
#endif
#ifdef LOAD_WARPS
constexpr int BLOCK_THREADS = (WARPS + LOAD_WARPS) * 32;
#else
constexpr int BLOCK_THREADS = (WARPS + (CLUSTER > 1 ? 4 : 0)) * 32;
#endif
constexpr size_t STACK = 256 << 10;

struct Rendezvous {
    int arrivals = 0, round = 0;
};
struct Words {
    u32 of[6];
};
struct Warp {
    Rendezvous rendezvous;
    Words sent[32], received[32];
};
struct Block {
    Rendezvous threads, compute_threads, cluster_threads;
    Warp warps[BLOCK_THREADS / 32];
    alignas(128) unsigned char shared[SHARED];
};
struct Fiber {
    ucontext_t context;
    int block, thread;
    bool done = false;
    std::deque<std::vector<std::pair<void *, const void *>>> copies{1}; // of a lane, by group
};

inline ucontext_t scheduler;
inline Fiber *current;
inline std::vector<std::unique_ptr<Block>> blocks;
// Asynchronous copies and remote stores that have not completed yet.
inline std::vector<std::function<void()>> in_flight;
inline bool copies_at_once; // a lane's copies, not when it waits for them
// What the kernels before write: `launch` has it as bytes of ones, which are NaN, until the kernel has waited.
struct Late {
    void *at;
    std::vector<unsigned char> content;
};
inline std::vector<Late> late;
inline int rounds_since_wait; // of the first thread; 0 before it

inline void yield() { swapcontext(&current->context, &scheduler); }
inline void join(Rendezvous &rendezvous, int wanted) {
    const int round = rendezvous.round;
    if (++rendezvous.arrivals == wanted) {
        rendezvous.arrivals = 0;
        ++rendezvous.round;
    }
    while (rendezvous.round == round) yield();
}
inline Block &block() { return *blocks[current->block]; }
// The words that all lanes of the warp have passed.
inline const Words *exchange(Words words) {
    Warp &warp = block().warps[current->thread / 32];
    const int round = warp.rendezvous.round;
    warp.sent[current->thread % 32] = words;
    if (++warp.rendezvous.arrivals == 32) {
        std::memcpy(warp.received, warp.sent, sizeof warp.received);
        warp.rendezvous.arrivals = 0;
        ++warp.rendezvous.round;
    }
    while (warp.rendezvous.round == round) yield();
    return warp.received;
}
template <class T> u32 to_bits(T value) {
    u32 bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
template <class T> T from_bits(u32 bits) {
    T value;
    std::memcpy(&value, &bits, 4);
    return value;
}
inline float bf16_at(u32 pair, int at) { return from_bits<float>(at ? pair & 0xffff0000u : pair << 16); }
inline u32 to_bf16(float value) {
    const u32 bits = to_bits(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

} // namespace cpu

DEVICE int thread_index() { return cpu::current->thread; }
DEVICE int block_index() { return cpu::current->block; }
DEVICE void *shared_memory() { return cpu::block().shared; }
DEVICE void sync_block() { cpu::join(cpu::block().threads, cpu::BLOCK_THREADS); }
DEVICE void sync_compute_warps() { cpu::join(cpu::block().compute_threads, WARPS * 32); }
DEVICE void sync_warp() { cpu::exchange({}); }
DEVICE void sync_cluster() {
    cpu::Block &first = *cpu::blocks[cpu::current->block / cpu::CLUSTER * cpu::CLUSTER];
    cpu::join(first.cluster_threads, cpu::BLOCK_THREADS * cpu::CLUSTER);
}
template <class T> DEVICE T shuffle_xor(T value, int mask) {
    return cpu::from_bits<T>(cpu::exchange({cpu::to_bits(value)})[(thread_index() % 32) ^ mask].of[0]);
}
template <class T> DEVICE T shuffle(T value, int lane) {
    return cpu::from_bits<T>(cpu::exchange({cpu::to_bits(value)})[lane].of[0]);
}
template <class T> DEVICE T shuffle_up(T value, int by) {
    const int lane = thread_index() % 32;
    return cpu::from_bits<T>(cpu::exchange({cpu::to_bits(value)})[lane < by ? lane : lane - by].of[0]);
}
template <class Reduce> DEVICE u32 reduce_lanes(u32 value, Reduce reduce) {
    const cpu::Words *lanes = cpu::exchange({value});
    u32 result = lanes[0].of[0];
    for (int i = 1; i < 32; ++i) result = reduce(result, lanes[i].of[0]);
    return result;
}
DEVICE u32 reduce_add(u32 value) { return reduce_lanes(value, [](u32 a, u32 b) { return a + b; }); }
DEVICE u32 reduce_max(u32 value) { return reduce_lanes(value, [](u32 a, u32 b) { return a > b ? a : b; }); }
DEVICE u32 reduce_min(u32 value) { return reduce_lanes(value, [](u32 a, u32 b) { return a < b ? a : b; }); }
DEVICE bool all_lanes(bool value) { return reduce_min(value) != 0; }
DEVICE u32 bits_of(float value) { return cpu::to_bits(value); }
DEVICE float float_of(u32 value) { return cpu::from_bits<float>(value); }
DEVICE float load_float(const float *from) { return *from; }
DEVICE uint4 load_words(const void *from) { return *(const uint4 *)from; }
DEVICE uint2 load_pair(const void *from) { return *(const uint2 *)from; }
DEVICE float fast_exp(float x) { return std::exp(x); }
DEVICE float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
struct Packets {
    u64 first, second;
};
DEVICE void store_packet(u64 *to, Packets packets) { *(Packets *)to = packets; }
DEVICE void store_packet(u64 *to, u64 packet) { *to = packet; }
DEVICE Packets load_packets(const u64 *from) {
    cpu::yield();
    return *(const Packets *)from;
}
DEVICE u64 load_packet(const u64 *from) {
    cpu::yield();
    return *from;
}
struct Mbarrier {
    int count, pending, bytes, phases;
    void complete_if_ready() {
        if (pending > 0 || bytes != 0) return;
        ++phases;
        pending = count;
    }
};
DEVICE void mbarrier_init(Mbarrier &barrier, int count) { barrier = {count, count, 0, 0}; }
DEVICE void fence_mbarrier_init() {}
DEVICE void mbarrier_arrive(Mbarrier &barrier) {
    --barrier.pending;
    barrier.complete_if_ready();
}
DEVICE void mbarrier_expect_tx(Mbarrier &barrier, u32 bytes) {
    barrier.bytes += bytes;
    mbarrier_arrive(barrier);
}
DEVICE bool mbarrier_try_wait(Mbarrier &barrier, int phase) {
    cpu::yield();
    return (barrier.phases & 1) != (phase & 1);
}
DEVICE bool mbarrier_try_wait_cta(Mbarrier &barrier, int phase) { return mbarrier_try_wait(barrier, phase); }
DEVICE void setmaxnreg_inc_240() {}
DEVICE void setmaxnreg_dec_24() {}
DEVICE void tma_load(void *to, const void *from, u32 bytes, Mbarrier &barrier) {
    cpu::in_flight.push_back([=, &barrier] {
        std::memcpy(to, from, bytes);
        barrier.bytes -= bytes;
        barrier.complete_if_ready();
    });
}
DEVICE void tma_load_keep(void *to, const void *from, u32 bytes, Mbarrier &barrier) {
    tma_load(to, from, bytes, barrier);
}
DEVICE void copy_words(void *to, const void *from) {
    // The earliest moment at which it may happen, or the latest.
    if (cpu::copies_at_once) std::memcpy(to, from, 16);
    else cpu::current->copies.back().push_back({to, from});
}
DEVICE void commit_copies() { cpu::current->copies.emplace_back(); }
template <int LATER> DEVICE void wait_copies() {
    auto &copies = cpu::current->copies; // ends with the group that is not committed
    for (; copies.size() > LATER + 1; copies.pop_front())
        for (const auto &[to, from] : copies.front()) std::memcpy(to, from, 16);
}
using ClusterOffset = std::ptrdiff_t;
DEVICE ClusterOffset cluster_offset(const void *, int rank) {
    return cpu::blocks[cpu::current->block / cpu::CLUSTER * cpu::CLUSTER + rank]->shared - cpu::block().shared;
}
DEVICE void store_async(float4 *local, ClusterOffset offset, float4 value, Mbarrier &barrier) {
    Mbarrier &remote = *(Mbarrier *)((char *)&barrier + offset);
    cpu::in_flight.push_back([=, &remote] {
        *(float4 *)((char *)local + offset) = value;
        remote.bytes -= 16;
        remote.complete_if_ready();
    });
}
// Numbers with `exponent` and `mantissa` bits behind the sign, such as float16: 5 and 10.
DEVICE float small_float(u32 bits, int exponent, int mantissa) {
    const int bias = (1 << (exponent - 1)) - 1, power = bits >> mantissa & ((1 << exponent) - 1);
    const float fraction = bits & ((1 << mantissa) - 1);
    const float size = power ? std::ldexp(fraction + (1 << mantissa), power - bias - mantissa)
                             : std::ldexp(fraction, 1 - bias - mantissa);
    return bits >> (exponent + mantissa) & 1 ? -size : size;
}
// The nearest of them, of neighbours equally near the even one, and at most `largest`.
DEVICE u32 to_small_float(float value, int exponent, int mantissa, float largest) {
    const int bias = (1 << (exponent - 1)) - 1;
    const float size = std::fmin(std::fabs(value), largest);
    int power = size > 0 ? std::ilogb(size) : -bias;
    if (power < 1 - bias) power = 1 - bias;
    // Subnormal numbers have no leading one; a fraction that is rounded up to two raises the exponent.
    const int fraction = (int)std::nearbyint(std::ldexp(size, mantissa - power));
    const u32 bits = ((power + bias - 1) << mantissa) + fraction;
    return bits | (u32)std::signbit(value) << (exponent + mantissa);
}
DEVICE float f16_to_float(u32 bits) { return small_float(bits & 0xffffu, 5, 10); }
DEVICE u32 pack_f16(float low, float high) {
    return to_small_float(low, 5, 10, 65504) | to_small_float(high, 5, 10, 65504) << 16;
}
DEVICE float2 unpack_f16(u32 pair) { return {f16_to_float(pair), f16_to_float(pair >> 16)}; }
DEVICE u32 pack_e4m3(float low, float high) {
    return to_small_float(low, 4, 3, 448) | to_small_float(high, 4, 3, 448) << 8;
}
DEVICE u32 e4m3_to_f16(u32 pair) {
    return pack_f16(small_float(pair & 0xff, 4, 3), small_float(pair >> 8 & 0xff, 4, 3));
}
DEVICE u32 interleave_bytes(u32 one, u32 two, int upper) {
    if (upper) one >>= 16, two >>= 16;
    return (one & 0xff) | (two & 0xff) << 8 | (one & 0xff00) << 8 | (two & 0xff00) << 16;
}
template <class At> DEVICE void mma(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1, At at) {
    const cpu::Words *lanes = cpu::exchange({{a[0], a[1], a[2], a[3], b0, b1}});
    const int lane = thread_index() % 32;
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            const int quarter = k % 8 / 2;
            const float factor = at(lanes[row % 8 * 4 + quarter].of[k / 8 * 2 + row / 8], k % 2);
            sum[i] += factor * at(lanes[column * 4 + quarter].of[4 + k / 8], k % 2);
        }
    }
}
DEVICE void mma_16x8x16(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) { mma(sum, a, b0, b1, cpu::bf16_at); }
DEVICE void mma_16x8x16_f16(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    mma(sum, a, b0, b1, [](u32 pair, int at) { return f16_to_float(at ? pair >> 16 : pair); });
}
DEVICE u32 pack_bf16(float low, float high) { return cpu::to_bf16(low) | cpu::to_bf16(high) << 16; }
DEVICE void trap() { std::abort(); }
DEVICE void pdl_launch() {}
DEVICE void pdl_wait() {
    if (cpu::rounds_since_wait == 0) cpu::rounds_since_wait = 1;
    while (!cpu::late.empty()) cpu::yield();
}

struct Params;

namespace cpu {

inline const Params *params_of_launch;
static void kernel(const Params &);
inline void run_fiber() {
    kernel(*params_of_launch);
    current->done = true;
    yield();
}

} // namespace cpu

// `order`: how blocks, warps and copies in flight take turns: 0 for all of them in each round, else the seed of a
// random order. With odd seeds a lane's copies happen at once, otherwise when it waits for them. `count` places, of as
// many bytes as in `sizes`, are what the kernels before write: what this one reads there before `pdl_wait` is NaN, and
// what it writes is lost.
extern "C" inline __attribute__((used, visibility("default"))) void
launch(const Params *params, unsigned order, void *const *places, const size_t *sizes, int count) {
    using namespace cpu;
    constexpr int MOST_PAUSE = 32;
    rounds_since_wait = 0;
    late.clear();
    for (int i = 0; i < count; ++i) {
        const auto *from = (const unsigned char *)places[i];
        late.push_back({places[i], {from, from + sizes[i]}});
        std::memset(places[i], 0xff, sizes[i]);
    }
    params_of_launch = params;
    copies_at_once = order % 2;
    std::vector<std::unique_ptr<Fiber>> fibers;
    const std::unique_ptr<char[]> stacks(new char[STACK * BLOCK_THREADS * BLOCKS]);
    blocks.clear();
    for (int at = 0; at < BLOCKS; ++at) {
        blocks.push_back(std::make_unique<Block>());
        for (int thread = 0; thread < BLOCK_THREADS; ++thread) {
            auto fiber = std::make_unique<Fiber>();
            getcontext(&fiber->context);
            fiber->context.uc_stack.ss_sp = stacks.get() + STACK * fibers.size();
            fiber->context.uc_stack.ss_size = STACK;
            fiber->block = at;
            fiber->thread = thread;
            makecontext(&fiber->context, (void (*)())run_fiber, 0);
            fibers.push_back(std::move(fiber));
        }
    }
    std::mt19937 random(order);
    std::vector<unsigned> pauses(BLOCKS * (BLOCK_THREADS / 32 + 1));
    for (bool busy = true; busy;) {
        busy = false;
        // By then a thread has reached the wait, unless it waits for one that has, or was paused again and again.
        if (rounds_since_wait > 0 && rounds_since_wait++ == 2 * MOST_PAUSE) {
            for (const Late &each : late) std::memcpy(each.at, each.content.data(), each.content.size());
            late.clear();
        }
        for (unsigned &rounds : pauses)
            if (rounds > 0) --rounds;
            else if (order > 0 && random() % 64 == 0) rounds = random() % MOST_PAUSE;
        for (size_t i = in_flight.size(); i-- > 0;) {
            if (order > 0 && random() % 4 > 0) continue;
            in_flight[i]();
            in_flight[i] = std::move(in_flight.back());
            in_flight.pop_back();
        }
        for (auto &fiber : fibers) {
            if (fiber->done) continue;
            busy = true;
            const unsigned *local = &pauses[fiber->block * (BLOCK_THREADS / 32 + 1)];
            if (local[0] > 0 || local[1 + fiber->thread / 32] > 0) continue;
            current = fiber.get();
            swapcontext(&scheduler, &fiber->context);
        }
    }
}
