// Products by a group of four warps, whose matrices lie in shared memory; and what else the codec's kernel needs of a GPU
// beside the talker's. A CPU has it too, in the tests (ON_CPU).
//
// Matrices are of half precision numbers, in pieces of 8 lines of 8 numbers, 128 bytes each.

#pragma once
#include "device.h"

constexpr int PIECE_BYTES = 128;
// Of 64 lines by CHANNELS columns that a group's product has, what a thread holds: of lines `thread / 4` and 8 further on
// (of its warp's 16), two neighbours in every 8 columns.
constexpr int HELD = CHANNELS / 2;
// Columns of a product that is made a stretch at a time.
constexpr int STRETCH = 96;

template <int COUNT> DEVICE void clear(float (&sum)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum[i] = 0;
}

#ifdef ON_CPU
DEVICE void take_registers() {}
DEVICE void leave_registers() {}
struct Pieces {
    const unsigned char *at;
    u32 along, across;
};
DEVICE Pieces pieces(const void *at, u32 along, u32 across) { return {(const unsigned char *)at, along, across}; }
DEVICE Pieces further(Pieces from, u32 bytes) { return {from.at + bytes, from.along, from.across}; }

namespace cpu {
inline float of_half(u32 half) {
    const u32 exponent = half >> 10 & 31, rest = half & 0x3ff;
    const float size = exponent == 0 ? std::ldexp((float)rest, -24) : std::ldexp((float)(rest | 0x400), (int)exponent - 25);
    return half & 0x8000 ? -size : size;
}
inline u32 to_half(float value) {
    const float size = std::fabs(value);
    const u32 sign = std::signbit(value) ? 0x8000 : 0;
    if (size == 0) return sign;
    int exponent;
    std::frexp(size, &exponent);
    const int unit = (exponent > -13 ? exponent : -13) - 11;
    // Rounding may reach the next power of two, whose bits are the next ones.
    const u32 units = (u32)std::nearbyint(std::ldexp(size, -unit));
    return sign | (units + ((u32)(unit + 24) << 10));
}
inline float number(Pieces of, int line, int depth) {
    u16 half;
    std::memcpy(&half, of.at + depth / 8 * of.along + line / 8 * of.across + line % 8 * 16 + depth % 8 * 2, 2);
    return of_half(half);
}
template <int COUNT, class Factor> inline void product(float (&sum)[COUNT], Pieces b, Factor a) {
    const int lane = running->thread % 32;
    for (int i = 0; i < COUNT; ++i) {
        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float total = sum[i];
        for (int k = 0; k < 16; ++k) total += a(i / 2 % 2, k) * number(b, column, k);
        sum[i] = total;
    }
}
} // namespace cpu

DEVICE u32 pack_half(float low, float high) { return cpu::to_half(low) | cpu::to_half(high) << 16; }
DEVICE float2 unpack_half(u32 pair) { return {cpu::of_half(pair & 0xffff), cpu::of_half(pair >> 16)}; }
DEVICE float fast_sine(float x) { return std::sin(x); }
DEVICE void begin_products() {}
DEVICE void end_products() {}
template <int LAST> DEVICE void await_products() {}
template <int COUNT> DEVICE void settle(float (&)[COUNT]) {}
DEVICE void multiply_group(float (&sum)[HELD], Pieces a, Pieces b) {
    const int thread = cpu::running->thread % 128, first = thread / 32 * 16 + thread % 32 / 4;
    cpu::product(sum, b, [&](int half, int k) { return cpu::number(a, first + half * 8, k); });
}
DEVICE void multiply_group(float (&sum)[STRETCH / 2], const u32 (&a)[4], Pieces b) {
    const cpu::Words *all = cpu::exchange({{a[0], a[1], a[2], a[3]}});
    const int lane = cpu::running->thread % 32;
    cpu::product(sum, b, [&](int half, int k) {
        const u32 pair = all[lane / 4 * 4 + k % 8 / 2].of[k / 8 * 2 + half];
        return cpu::of_half(k % 2 ? pair >> 16 : pair & 0xffff);
    });
}
DEVICE void copy_piece(void *to, const void *from, bool there) {
    if (there) std::memcpy(to, from, 16);
    else std::memset(to, 0, 16);
}
DEVICE void await_pieces() {}
#else
// Of 384 threads, all of whose warps start with as many registers: the first 256 get those that the others give up.
DEVICE void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
DEVICE void leave_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
// How far apart pieces are, in bytes: `along` the depth of the product, `across` its lines.
typedef u64 Pieces;
DEVICE Pieces pieces(const void *at, u32 along, u32 across) {
    return (u64)((shared_address(at) & 0x3ffff) >> 4) | (u64)(along >> 4) << 16 | (u64)(across >> 4) << 32;
}
DEVICE Pieces further(Pieces from, u32 bytes) { return from + (bytes >> 4); }
DEVICE u32 pack_half(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE float2 unpack_half(u32 pair) {
    float2 values;
    asm("{\n"
        ".reg .f16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;\n"
        "}" : "=f"(values.x), "=f"(values.y) : "r"(pair));
    return values;
}
DEVICE float fast_sine(float x) {
    float sine;
    asm("sin.approx.f32 %0, %1;" : "=f"(sine) : "f"(x));
    return sine;
}
DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all but the last few that were ended are over.
template <int LAST> DEVICE void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LAST) : "memory");
}
// Sums are not to be looked at before this.
template <int COUNT> DEVICE void settle(float (&sum)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}
#define FOUR(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define STRETCH_NAMES \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
    "%42, %43, %44, %45, %46, %47}"
#define STRETCH_VALUES \
    FOUR(0), FOUR(4), FOUR(8), FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28), FOUR(32), FOUR(36), FOUR(40), FOUR(44)
#if CHANNELS == 96
#define SHAPE "m64n96k16"
#define HELD_NAMES STRETCH_NAMES
#define HELD_VALUES STRETCH_VALUES
#define BEHIND_1 "%48"
#define BEHIND_2 "%49"
#else
static_assert(CHANNELS == 192, "the instructions below are for so many columns");
#define SHAPE "m64n192k16"
#define HELD_NAMES \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
    "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
    "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}"
#define HELD_VALUES \
    FOUR(0), FOUR(4), FOUR(8), FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28), FOUR(32), FOUR(36), FOUR(40), FOUR(44), \
    FOUR(48), FOUR(52), FOUR(56), FOUR(60), FOUR(64), FOUR(68), FOUR(72), FOUR(76), FOUR(80), FOUR(84), FOUR(88), FOUR(92)
#define BEHIND_1 "%96"
#define BEHIND_2 "%97"
#endif
// 64 lines by 16 of `a` times 16 by CHANNELS of `b`, whose lines are the columns of the product; added to `sum`.
DEVICE void multiply_group(float (&sum)[HELD], Pieces a, Pieces b) {
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE ".f32.f16.f16 " HELD_NAMES ", " BEHIND_1 ", " BEHIND_2
                 ", 1, 1, 1, 0, 0;" : HELD_VALUES : "l"(a), "l"(b));
}
// Likewise of a STRETCH of columns. Of `a` a thread holds the pairs of two columns in each half of the 16, of both of its lines.
DEVICE void multiply_group(float (&sum)[STRETCH / 2], const u32 (&a)[4], Pieces b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 " STRETCH_NAMES
                 ", {%48, %49, %50, %51}, %52, 1, 1, 1, 0;"
                 : STRETCH_VALUES : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// 16 bytes, or as many zeros.
DEVICE void copy_piece(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
// Until all that this thread has copied is there for products.
DEVICE void await_pieces() {
    asm volatile("cp.async.wait_all;\nfence.proxy.async.shared::cta;" ::: "memory");
}
#endif
