// Enough of CUDA for our kernels to run on a CPU: every thread of every block is a fiber of one thread, and what a warp
// or a block does together waits until all its fibers have come there.

#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#define DEVICE static inline
#define DEVICE_MEMBER inline
#define KERNEL(name, threads) \
    static void name(const Params &); \
    namespace cpu { static void kernel(const Params &p) { name(p); } } \
    static void name(const Params &p)
using u32 = uint32_t;
using u16 = uint16_t;
using i64 = long long;

namespace cpu {

constexpr int ALL = WARPS * 32;
constexpr size_t STACK = 256 << 10;

struct Meeting {
    int come = 0, round = 0;
};
struct Warp {
    Meeting meeting;
    u32 given[32], seen[32];
};
struct Block {
    Meeting all;
    Warp warps[WARPS];
    unsigned char shared[SHARED];
};
struct Fiber {
    ucontext_t context;
    int block, thread;
    bool done = false;
};

inline ucontext_t scheduler;
inline Fiber *running;
inline std::vector<std::unique_ptr<Block>> blocks;

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
inline const u32 *exchange(u32 word) {
    Warp &warp = block().warps[running->thread / 32];
    const int round = warp.meeting.round;
    warp.given[running->thread % 32] = word;
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

} // namespace cpu

DEVICE int thread_index() { return cpu::running->thread; }
DEVICE int block_index() { return cpu::running->block; }
DEVICE void *shared_memory() { return cpu::block().shared; }
DEVICE void sync_block() { cpu::meet(cpu::block().all, cpu::ALL); }
template <class T> DEVICE T shuffle_xor(T value, int mask) {
    return cpu::cooked<T>(cpu::exchange(cpu::raw(value))[(thread_index() % 32) ^ mask]);
}
template <class T> DEVICE T shuffle_up(T value, int by) {
    const int lane = thread_index() % 32;
    return cpu::cooked<T>(cpu::exchange(cpu::raw(value))[lane < by ? lane : lane - by]);
}
template <class Reduce> DEVICE u32 over_lanes(u32 value, Reduce reduce) {
    const u32 *all = cpu::exchange(value);
    u32 result = all[0];
    for (int i = 1; i < 32; ++i) result = reduce(result, all[i]);
    return result;
}
DEVICE u32 add_lanes(u32 value) { return over_lanes(value, [](u32 a, u32 b) { return a + b; }); }
DEVICE u32 max_lanes(u32 value) { return over_lanes(value, [](u32 a, u32 b) { return a > b ? a : b; }); }
DEVICE u32 min_lanes(u32 value) { return over_lanes(value, [](u32 a, u32 b) { return a < b ? a : b; }); }
DEVICE u32 bits_of(float value) { return cpu::raw(value); }
DEVICE float float_of(u32 value) { return cpu::cooked<float>(value); }
DEVICE float load_float(const float *from) { return *from; }
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

extern "C" inline __attribute__((used, visibility("default"))) void launch(const Params *params) {
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
    for (bool busy = true; busy;) {
        busy = false;
        for (auto &fiber : fibers) {
            if (fiber->done) continue;
            busy = true;
            running = fiber.get();
            swapcontext(&scheduler, &fiber->context);
        }
    }
}
