// Attention of the block's two rows, for the cluster's key-value head, at one position after the other.

#pragma once
#include "block_products.h"

struct Attention : Products {
    using Products::Products;
    int pass, totals_turn = 0;
    float begun[2]; // what the norm multiplies our rows by

    DEVICE_MEMBER void four(const u16 *from, float (&to)[4]) {
        const uint2 words = *(const uint2 *)from;
        to[0] = low_half(words.x);
        to[1] = high_half(words.x);
        to[2] = low_half(words.y);
        to[3] = high_half(words.y);
    }
    DEVICE_MEMBER void four_of(const float *from, float (&to)[4]) {
        const float4 words = *(const float4 *)from;
        to[0] = words.x;
        to[1] = words.y;
        to[2] = words.z;
        to[3] = words.w;
    }
    DEVICE_MEMBER void attend(int layer) {
        const int half = warp / 4, part = warp % 4, channel = lane * 4;
        u16 *cache = p.cache + (((size_t)layer * BLOCKS + block_index()) * 2 + half) * 2 * 16 * DIM;
        u16 *const keys = cache + part * 4 * DIM + channel, *const values = keys + 16 * DIM;
        float past_keys[4][4], past_values[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (part * 4 + i < pass) {
                four(keys + i * DIM, past_keys[i]);
                four(values + i * DIM, past_values[i]);
            }
        const size_t angles = ((size_t)layer * GROUPS + pass) * (HEADS + KV) * DIM + channel;
        float turn[SHARING + 1][4], cross[SHARING + 1][4];
#pragma unroll
        for (int i = 0; i <= SHARING; ++i) {
            const int head = i < SHARING ? cluster * SHARING + i : HEADS + cluster;
            four(p.turn + angles + head * DIM, turn[i]);
            four(p.cross + angles + head * DIM, cross[i]);
        }
        patience.until([&] { return arrived(shared.totals_there, totals_turn); });
        if (thread < QKV_SLOTS) {
            const float4 sum = shared.totals[thread];
            const int column = thread / 4 * 8 + thread % 4 * 2;
            *(float2 *)(shared.qkv[0] + column) = make_float2(sum.x * begun[0], sum.y * begun[0]);
            *(float2 *)(shared.qkv[1] + column) = make_float2(sum.z * begun[1], sum.w * begun[1]);
        }
        sync_workers();
        // Every warp of a row makes its queries and key, and weighs four positions.
        float normed[SHARING + 1][4], own_value[4];
#pragma unroll
        for (int i = 0; i <= SHARING; ++i) {
            float plain[4], swapped[4], square = 0.0f;
            four_of(shared.qkv[half] + i * DIM + channel, plain);
            four_of(shared.qkv[half] + i * DIM + (channel + DIM / 2) % DIM, swapped);
#pragma unroll
            for (int j = 0; j < 4; ++j) square += plain[j] * plain[j];
            const float by = rsqrtf(sum_of_warp(square) / DIM + (float)p.eps);
#pragma unroll
            for (int j = 0; j < 4; ++j) normed[i][j] = by * (plain[j] * turn[i][j] + swapped[j] * cross[i][j]);
        }
        four_of(shared.qkv[half] + (SHARING + 1) * DIM + channel, own_value);
        const uint2 key = make_uint2(
            pack_bf16(normed[SHARING][0], normed[SHARING][1]), pack_bf16(normed[SHARING][2], normed[SHARING][3])
        );
        const uint2 value = make_uint2(pack_bf16(own_value[0], own_value[1]), pack_bf16(own_value[2], own_value[3]));
        if (part == pass / 4) {
            *(uint2 *)(keys + pass % 4 * DIM) = key;
            *(uint2 *)(values + pass % 4 * DIM) = value;
        }
        float scores[SHARING][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (part * 4 + i == pass) {
                past_keys[i][0] = low_half(key.x);
                past_keys[i][1] = high_half(key.x);
                past_keys[i][2] = low_half(key.y);
                past_keys[i][3] = high_half(key.y);
                past_values[i][0] = low_half(value.x);
                past_values[i][1] = high_half(value.x);
                past_values[i][2] = low_half(value.y);
                past_values[i][3] = high_half(value.y);
            }
#pragma unroll
            for (int h = 0; h < SHARING; ++h) {
                scores[h][i] = 0.0f;
                if (part * 4 + i <= pass)
#pragma unroll
                    for (int j = 0; j < 4; ++j) scores[h][i] += normed[h][j] * past_keys[i][j];
            }
        }
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2)
#pragma unroll
            for (int i = 0; i < 4 * SHARING; ++i) scores[i / 4][i % 4] += shuffle_xor(scores[i / 4][i % 4], mask);
#pragma unroll
        for (int h = 0; h < SHARING; ++h) {
            float most = -1e30f, mass = 0.0f, weighed[4] = {};
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (part * 4 + i <= pass) most = fmaxf(most, scores[h][i]);
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (part * 4 + i <= pass) {
                    const float weight = fast_exp(scores[h][i] - most);
                    mass += weight;
#pragma unroll
                    for (int j = 0; j < 4; ++j) weighed[j] += weight * past_values[i][j];
                }
            *(float4 *)(shared.weighed[half][h][part] + channel) =
                make_float4(weighed[0], weighed[1], weighed[2], weighed[3]);
            if (lane == 0) {
                shared.most[half][h][part] = most;
                shared.mass[half][h][part] = mass;
            }
        }
        sync_workers();
        for (int item = thread; item < 2 * SHARING * DIM / 2; item += THREADS) {
            const int row = item / (SHARING * DIM / 2), head = item / (DIM / 2) % SHARING, at = item % (DIM / 2);
            float most = -1e30f, mass = 0.0f, low = 0.0f, high = 0.0f;
#pragma unroll
            for (int i = 0; i < 4; ++i) most = fmaxf(most, shared.most[row][head][i]);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float weight = fast_exp(shared.most[row][head][i] - most);
                const float2 both = *(const float2 *)(shared.weighed[row][head][i] + at * 2);
                mass += weight * shared.mass[row][head][i];
                low += weight * both.x;
                high += weight * both.y;
            }
            const int deep = (cluster * SHARING + head) * (DIM / 16) + at / 8;
            put(p.mixed + (deep * 32 + rank * 4 + at % 4) * 4 + at % 8 / 4 * 2 + row,
                packet(pack_bf16(low / mass, high / mass)));
        }
    }
};
