// Enough of CUDA for our kernels to run on a CPU: every thread of every block is a fiber of one thread, and what a warp
// or a block does together waits until all its fibers have come there.

#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#define CLUSTER_KERNEL(name, threads, blocks) KERNEL(name, threads)
#define SHARING_KERNEL(name, blocks, registers) KERNEL(name, threads)
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
constexpr int ALL = (WARPS + LOAD_WARPS) * 32;
#else
constexpr int ALL = (WARPS + (CLUSTER > 1 ? 4 : 0)) * 32;
#endif
constexpr size_t STACK = 256 << 10;

struct Meeting {
    int come = 0, round = 0;
};
struct Words {
    u32 of[6];
};
struct Warp {
    Meeting meeting;
    Words given[32], seen[32];
};
struct Block {
    Meeting all, workers, cluster;
    Warp warps[ALL / 32];
    alignas(128) unsigned char shared[SHARED];
};
struct Fiber {
    ucontext_t context;
    int block, thread;
    bool done = false;
};

inline ucontext_t scheduler;
inline Fiber *running;
inline std::vector<std::unique_ptr<Block>> blocks;
// What a copy engine or the way to another block has not delivered yet.
inline std::vector<std::function<void()>> on_their_way;

inline void yield() { swapcontext(&running->context, &scheduler); }
inline void meet(Meeting &meeting, int wanted) {
    const int round = meeting.round;
    if (++meeting.come == wanted) {
        meeting.come = 0;
        ++meeting.round;
    }
    while (meeting.round == round) yield();
}
inline Block &block() { return *blocks[running->block]; }
// What all lanes of the warp have given.
inline const Words *exchange(Words words) {
    Warp &warp = block().warps[running->thread / 32];
    const int round = warp.meeting.round;
    warp.given[running->thread % 32] = words;
    if (++warp.meeting.come == 32) {
        std::memcpy(warp.seen, warp.given, sizeof warp.seen);
        warp.meeting.come = 0;
        ++warp.meeting.round;
    }
    while (warp.meeting.round == round) yield();
    return warp.seen;
}
template <class T> u32 raw(T value) {
    u32 bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
template <class T> T cooked(u32 bits) {
    T value;
    std::memcpy(&value, &bits, 4);
    return value;
}
inline float wide(u32 pair, int at) { return cooked<float>(at ? pair & 0xffff0000u : pair << 16); }
inline u32 narrow(float value) {
    const u32 bits = raw(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

} // namespace cpu

DEVICE int thread_index() { return cpu::running->thread; }
DEVICE int block_index() { return cpu::running->block; }
DEVICE void *shared_memory() { return cpu::block().shared; }
DEVICE void sync_block() { cpu::meet(cpu::block().all, cpu::ALL); }
DEVICE void sync_workers() { cpu::meet(cpu::block().workers, WARPS * 32); }
DEVICE void sync_warp() { cpu::exchange({}); }
DEVICE void sync_cluster() {
    cpu::Block &first = *cpu::blocks[cpu::running->block / cpu::CLUSTER * cpu::CLUSTER];
    cpu::meet(first.cluster, cpu::ALL * cpu::CLUSTER);
}
template <class T> DEVICE T shuffle_xor(T value, int mask) {
    return cpu::cooked<T>(cpu::exchange({cpu::raw(value)})[(thread_index() % 32) ^ mask].of[0]);
}
template <class T> DEVICE T shuffle(T value, int lane) {
    return cpu::cooked<T>(cpu::exchange({cpu::raw(value)})[lane].of[0]);
}
template <class T> DEVICE T shuffle_up(T value, int by) {
    const int lane = thread_index() % 32;
    return cpu::cooked<T>(cpu::exchange({cpu::raw(value)})[lane < by ? lane : lane - by].of[0]);
}
template <class Reduce> DEVICE u32 over_lanes(u32 value, Reduce reduce) {
    const cpu::Words *all = cpu::exchange({value});
    u32 result = all[0].of[0];
    for (int i = 1; i < 32; ++i) result = reduce(result, all[i].of[0]);
    return result;
}
DEVICE u32 add_lanes(u32 value) { return over_lanes(value, [](u32 a, u32 b) { return a + b; }); }
DEVICE u32 max_lanes(u32 value) { return over_lanes(value, [](u32 a, u32 b) { return a > b ? a : b; }); }
DEVICE u32 min_lanes(u32 value) { return over_lanes(value, [](u32 a, u32 b) { return a < b ? a : b; }); }
DEVICE bool all_lanes(bool value) { return min_lanes(value) != 0; }
DEVICE u32 bits_of(float value) { return cpu::raw(value); }
DEVICE float float_of(u32 value) { return cpu::cooked<float>(value); }
DEVICE float load_float(const float *from) { return *from; }
DEVICE uint4 load_words(const void *from) { return *(const uint4 *)from; }
DEVICE u32 load_word(const u32 *from) { return *from; }
DEVICE float fast_exp(float x) { return std::exp(x); }
DEVICE float quotient(float over, float under) { return over / under; }
DEVICE float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
struct Packets {
    u64 first, second;
};
DEVICE void put(u64 *to, Packets packets) { *(Packets *)to = packets; }
DEVICE void put(u64 *to, u64 packet) { *to = packet; }
DEVICE Packets look(const u64 *from) {
    cpu::yield();
    return *(const Packets *)from;
}
DEVICE u32 look_at(const u32 *from) {
    cpu::yield();
    return *from;
}
DEVICE void count_up(u32 *count) { ++*count; }
DEVICE u64 look_at_one(const u64 *from) {
    cpu::yield();
    return *from;
}
struct Arrival {
    int count, awaited, bytes, turns;
    void settle() {
        if (awaited > 0 || bytes != 0) return;
        ++turns;
        awaited = count;
    }
};
DEVICE void prepare(Arrival &arrival, int count) { arrival = {count, count, 0, 0}; }
DEVICE void publish_arrivals() {}
DEVICE void arrive(Arrival &arrival) {
    --arrival.awaited;
    arrival.settle();
}
DEVICE void expect(Arrival &arrival, u32 bytes) {
    arrival.bytes += bytes;
    arrive(arrival);
}
DEVICE bool arrived(Arrival &arrival, int turn) {
    cpu::yield();
    return (arrival.turns & 1) != (turn & 1);
}
DEVICE bool arrived_here(Arrival &arrival, int turn) { return arrived(arrival, turn); }
DEVICE void more_registers() {}
DEVICE void fewer_registers() {}
DEVICE void copy_async(void *to, const void *from, u32 bytes, Arrival &arrival) {
    cpu::on_their_way.push_back([=, &arrival] {
        std::memcpy(to, from, bytes);
        arrival.bytes -= bytes;
        arrival.settle();
    });
}
DEVICE void done_reading() {}
DEVICE void expect_soon(const void *, u32) {}
DEVICE void copy_kept(void *to, const void *from, u32 bytes, Arrival &arrival) { copy_async(to, from, bytes, arrival); }
using Distance = std::ptrdiff_t;
DEVICE Distance distance_to(const void *, int rank) {
    return cpu::blocks[cpu::running->block / cpu::CLUSTER * cpu::CLUSTER + rank]->shared - cpu::block().shared;
}
DEVICE void send(float4 *own, Distance distance, float4 value, Arrival &arrival) {
    Arrival &there = *(Arrival *)((char *)&arrival + distance);
    cpu::on_their_way.push_back([=, &there] {
        *(float4 *)((char *)own + distance) = value;
        there.bytes -= 16;
        there.settle();
    });
}
DEVICE void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    const cpu::Words *all = cpu::exchange({{a[0], a[1], a[2], a[3], b0, b1}});
    const int lane = thread_index() % 32;
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            const int quarter = k % 8 / 2;
            const float factor = cpu::wide(all[row % 8 * 4 + quarter].of[k / 8 * 2 + row / 8], k % 2);
            sum[i] += factor * cpu::wide(all[column * 4 + quarter].of[4 + k / 8], k % 2);
        }
    }
}
DEVICE u32 pack_bf16(float low, float high) { return cpu::narrow(low) | cpu::narrow(high) << 16; }
DEVICE void give_up() { std::abort(); }
DEVICE void let_next_begin() {}
DEVICE void await_last() {}

struct Params;

namespace cpu {

inline const Params *launched;
static void kernel(const Params &);
inline void begin() {
    kernel(*launched);
    running->done = true;
    yield();
}

} // namespace cpu

// `order` says how blocks, warps and what is on its way take turns: 0 all of them in each round, else by chance.
extern "C" inline __attribute__((used, visibility("default"))) void launch(const Params *params, unsigned order) {
    using namespace cpu;
    launched = params;
    std::vector<std::unique_ptr<Fiber>> fibers;
    const std::unique_ptr<char[]> stacks(new char[STACK * ALL * BLOCKS]);
    blocks.clear();
    for (int at = 0; at < BLOCKS; ++at) {
        blocks.push_back(std::make_unique<Block>());
        for (int thread = 0; thread < ALL; ++thread) {
            auto fiber = std::make_unique<Fiber>();
            getcontext(&fiber->context);
            fiber->context.uc_stack.ss_sp = stacks.get() + STACK * fibers.size();
            fiber->context.uc_stack.ss_size = STACK;
            fiber->block = at;
            fiber->thread = thread;
            makecontext(&fiber->context, (void (*)())begin, 0);
            fibers.push_back(std::move(fiber));
        }
    }
    std::mt19937 chance(order);
    std::vector<unsigned> pause(BLOCKS * (ALL / 32 + 1));
    for (bool busy = true; busy;) {
        busy = false;
        for (unsigned &rounds : pause)
            if (rounds > 0) --rounds;
            else if (order > 0 && chance() % 64 == 0) rounds = chance() % 32;
        for (size_t i = on_their_way.size(); i-- > 0;) {
            if (order > 0 && chance() % 4 > 0) continue;
            on_their_way[i]();
            on_their_way[i] = std::move(on_their_way.back());
            on_their_way.pop_back();
        }
        for (auto &fiber : fibers) {
            if (fiber->done) continue;
            busy = true;
            const unsigned *own = &pause[fiber->block * (ALL / 32 + 1)];
            if (own[0] > 0 || own[1 + fiber->thread / 32] > 0) continue;
            running = fiber.get();
            swapcontext(&scheduler, &fiber->context);
        }
    }
}
