// Numbers of the cache of keys and values, bfloat16 or, with FP8, float8 (e4m3), and how they are multiplied.

#pragma once
#include "device.h"

constexpr int CHUNK = 8, PAIRS = CHUNK / 2; // channels that a lane loads at a time, and their pairs

DEVICE u32 word_of(uint4 words, int at) { return at < 2 ? at ? words.y : words.x : at > 2 ? words.w : words.z; }
DEVICE u32 word_of(uint2 words, int at) { return at ? words.y : words.x; }
// A chunk in bfloat16.
DEVICE void unpack(uint4 words, float (&to)[CHUNK]) {
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        to[2 * i] = low_bf16(word_of(words, i));
        to[2 * i + 1] = high_bf16(word_of(words, i));
    }
}

#if FP8
// A number of the cache, and a chunk of them. They are multiplied in float16, which holds all numbers of float8.
typedef unsigned char Cached;
typedef uint2 CachedChunk;
DEVICE u32 pack_half(float low, float high) { return pack_f16(low, high); }
DEVICE float low_half(u32 pair) { return unpack_f16(pair).x; }
DEVICE float high_half(u32 pair) { return unpack_f16(pair).y; }
DEVICE void mma_halves(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) { mma_16x8x16_f16(sum, a, b0, b1); }
#else
typedef u16 Cached;
typedef uint4 CachedChunk;
DEVICE u32 pack_half(float low, float high) { return pack_bf16(low, high); }
DEVICE float low_half(u32 pair) { return low_bf16(pair); }
DEVICE float high_half(u32 pair) { return high_bf16(pair); }
DEVICE void mma_halves(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) { mma_16x8x16(sum, a, b0, b1); }
#endif

DEVICE uint4 pack_halves(const float (&from)[CHUNK]) {
    return make_uint4(
        pack_half(from[0], from[1]), pack_half(from[2], from[3]), pack_half(from[4], from[5]),
        pack_half(from[6], from[7])
    );
}

#if FP8
DEVICE uint2 pack_cached(const float (&from)[CHUNK]) {
    return make_uint2(
        pack_e4m3(from[0], from[1]) | pack_e4m3(from[2], from[3]) << 16,
        pack_e4m3(from[4], from[5]) | pack_e4m3(from[6], from[7]) << 16
    );
}
// The pairs of a chunk, as they are multiplied.
DEVICE uint4 halves_of(uint2 words) {
    return make_uint4(
        e4m3_to_f16(words.x & 0xffffu), e4m3_to_f16(words.x >> 16), e4m3_to_f16(words.y & 0xffffu),
        e4m3_to_f16(words.y >> 16)
    );
}
DEVICE uint2 cached_of(uint4 words) {
    float x[CHUNK];
    unpack(words, x);
    return pack_cached(x);
}
// Of a pair of channels of two positions: the first channel of both, and the second.
DEVICE void transpose(uint2 one, uint2 two, int pair, u32 &first, u32 &second) {
    const u32 bytes = interleave_bytes(word_of(one, pair / 2), word_of(two, pair / 2), pair % 2);
    first = e4m3_to_f16(bytes & 0xffffu);
    second = e4m3_to_f16(bytes >> 16);
}
DEVICE uint2 load_cached(const Cached *from) { return load_pair(from); }
#else
DEVICE uint4 pack_cached(const float (&from)[CHUNK]) { return pack_halves(from); }
DEVICE uint4 halves_of(uint4 words) { return words; }
DEVICE uint4 cached_of(uint4 words) { return words; }
DEVICE void transpose(uint4 one, uint4 two, int pair, u32 &first, u32 &second) {
    const u32 left = word_of(one, pair), right = word_of(two, pair);
    first = (left & 0xffffu) | right << 16;
    second = left >> 16 | (right & 0xffff0000u);
}
DEVICE uint4 load_cached(const Cached *from) { return load_words(from); }
#endif
