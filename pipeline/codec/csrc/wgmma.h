// Products of a warpgroup (four warps) with operands in shared memory (WGMMA), and other instructions that only the
// codec's kernel uses. With ON_CPU, implemented for the tests on a CPU.
//
// Matrices are float16, stored as core matrices of 8 lines of 8 numbers, 128 bytes each.

#pragma once
#include "device.h"

constexpr int CORE_MATRIX_BYTES = 128;
// Accumulators of a thread, of a product of 64 lines by CHANNELS columns: of the lines `thread / 4` and `thread / 4 +
// 8` of its warp's 16, two neighbours in every 8 columns.
constexpr int ACCUMULATORS = CHANNELS / 2;
// Columns of a product that is computed one block of columns at a time.
constexpr int COLUMN_BLOCK = 96;

template <int COUNT> DEVICE void clear(float (&sum)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum[i] = 0;
}

#ifdef ON_CPU
DEVICE void setmaxnreg_inc_232() {}
DEVICE void setmaxnreg_dec_40() {}
struct Matrix {
    const unsigned char *at;
    u32 depth_stride, line_stride;
};
DEVICE Matrix describe(const void *at, u32 depth_stride, u32 line_stride) {
    return {(const unsigned char *)at, depth_stride, line_stride};
}
DEVICE Matrix advance(Matrix from, u32 bytes) { return {from.at + bytes, from.depth_stride, from.line_stride}; }

namespace cpu {
inline float number(Matrix of, int line, int depth) {
    u16 half;
    const unsigned char *core_matrix = of.at + depth / 8 * of.depth_stride + line / 8 * of.line_stride;
    std::memcpy(&half, core_matrix + line % 8 * 16 + depth % 8 * 2, 2);
    return f16_to_float(half);
}
template <int COUNT, class Factor> inline void product(float (&sum)[COUNT], Matrix b, Factor a) {
    const int lane = current->thread % 32;
    for (int i = 0; i < COUNT; ++i) {
        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float total = sum[i];
        for (int k = 0; k < 16; ++k) total += a(i / 2 % 2, k) * number(b, column, k);
        sum[i] = total;
    }
}
} // namespace cpu

DEVICE float fast_sine(float x) { return std::sin(x); }
DEVICE void wgmma_fence() {}
DEVICE void wgmma_commit() {}
template <int PENDING> DEVICE void wgmma_wait() {}
template <int COUNT> DEVICE void fence_accumulators(float (&)[COUNT]) {}
DEVICE void wgmma(float (&sum)[ACCUMULATORS], Matrix a, Matrix b) {
    const int thread = cpu::current->thread % 128, first = thread / 32 * 16 + thread % 32 / 4;
    cpu::product(sum, b, [&](int half, int k) { return cpu::number(a, first + half * 8, k); });
}
DEVICE void wgmma(float (&sum)[COLUMN_BLOCK / 2], const u32 (&a)[4], Matrix b) {
    const cpu::Words *all = cpu::exchange({{a[0], a[1], a[2], a[3]}});
    const int lane = cpu::current->thread % 32;
    cpu::product(sum, b, [&](int half, int k) {
        const u32 pair = all[lane / 4 * 4 + k % 8 / 2].of[k / 8 * 2 + half];
        return f16_to_float(k % 2 ? pair >> 16 : pair & 0xffff);
    });
}
DEVICE void cp_async_16(void *to, const void *from, bool real) {
    if (real) std::memcpy(to, from, 16);
    else std::memset(to, 0, 16);
}
DEVICE void cp_async_wait_all() {}
#else
// In a block of 384 threads, which start with equal shares: the first 256 take the registers that the others release.
DEVICE void setmaxnreg_inc_232() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
DEVICE void setmaxnreg_dec_40() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
// A matrix descriptor. Bytes between core matrices: `depth_stride` along the depth of the product, `line_stride` across
// its lines.
typedef u64 Matrix;
DEVICE Matrix describe(const void *at, u32 depth_stride, u32 line_stride) {
    return (u64)((shared_address(at) & 0x3ffff) >> 4) | (u64)(depth_stride >> 4) << 16 | (u64)(line_stride >> 4) << 32;
}
DEVICE Matrix advance(Matrix from, u32 bytes) { return from + (bytes >> 4); }
DEVICE float fast_sine(float x) {
    float sine;
    asm("sin.approx.f32 %0, %1;" : "=f"(sine) : "f"(x));
    return sine;
}
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until all but the last PENDING committed groups have finished.
template <int PENDING> DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from reading accumulators before this point.
template <int COUNT> DEVICE void fence_accumulators(float (&sum)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}
#define FOUR(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define BLOCK_REGISTERS \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
    "%42, %43, %44, %45, %46, %47}"
#define BLOCK_VALUES \
    FOUR(0), FOUR(4), FOUR(8), FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28), FOUR(32), FOUR(36), FOUR(40), FOUR(44)
#if CHANNELS == 96
#define SHAPE "m64n96k16"
#define ALL_REGISTERS BLOCK_REGISTERS
#define ALL_VALUES BLOCK_VALUES
#define OPERAND_A "%48"
#define OPERAND_B "%49"
#else
static_assert(CHANNELS == 192, "the instructions below are for so many columns");
#define SHAPE "m64n192k16"
#define ALL_REGISTERS \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
    "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
    "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}"
#define ALL_VALUES \
    FOUR(0), FOUR(4), FOUR(8), FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28), FOUR(32), FOUR(36), FOUR(40), FOUR(44), \
    FOUR(48), FOUR(52), FOUR(56), FOUR(60), FOUR(64), FOUR(68), FOUR(72), FOUR(76), FOUR(80), FOUR(84), FOUR(88), FOUR(92)
#define OPERAND_A "%96"
#define OPERAND_B "%97"
#endif
// sum += a * b, with `a` 64 lines by 16 and `b` 16 by CHANNELS, whose lines are the columns of the product.
DEVICE void wgmma(float (&sum)[ACCUMULATORS], Matrix a, Matrix b) {
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE ".f32.f16.f16 " ALL_REGISTERS ", " OPERAND_A ", " OPERAND_B
                 ", 1, 1, 1, 0, 0;" : ALL_VALUES : "l"(a), "l"(b));
}
// The same for COLUMN_BLOCK columns with `a` in registers: a thread has pairs of two columns in each half of the 16, of
// both of its lines.
DEVICE void wgmma(float (&sum)[COLUMN_BLOCK / 2], const u32 (&a)[4], Matrix b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 " BLOCK_REGISTERS
                 ", {%48, %49, %50, %51}, %52, 1, 1, 1, 0;"
                 : BLOCK_VALUES : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// Copies 16 bytes, or writes zeros.
DEVICE void cp_async_16(void *to, const void *from, bool real) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(shared_address(to)), "l"(from), "r"(real ? 16 : 0) : "memory");
}
// Waits for the copies of this thread, and makes them visible to WGMMA.
DEVICE void cp_async_wait_all() {
    asm volatile("cp.async.wait_all;\nfence.proxy.async.shared::cta;" ::: "memory");
}
#endif
