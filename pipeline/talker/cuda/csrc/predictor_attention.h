// Attention of the block's two rows, for the cluster's key-value head, at one position after the other.

#pragma once
#include "predictor_gemm.h"

struct Attention : Products {
    using Products::Products;
    int pass, totals_turn = 0;
    float begun[2]; // what the norm multiplies our rows by

    DEVICE_MEMBER void four(const u16 *from, float (&to)[4]) { four(*(const uint2 *)from, to); }
    DEVICE_MEMBER void four(uint2 words, float (&to)[4]) {
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
    // Four warps a row. Each makes a query, the key or the value of it first, and then weighs four positions.
    DEVICE_MEMBER void attend(int layer) {
        const int half = warp / 4, part = warp % 4, channel = lane * 4;
        // The position that a lane weighs, and of four times 32 channels its first.
        const int at = part * 4 + lane / 8, eighth = lane % 8 * 4;
        u16 *const keys = p.cache + (((size_t)layer * BLOCKS + block_index()) * 2 + half) * 2 * 16 * DIM;
        u16 *const values = keys + 16 * DIM;
        // Of positions to come they mean nothing.
        float past_keys[4][4], past_values[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            four(keys + at * DIM + i * 32 + eighth, past_keys[i]);
            four(values + (part * 4 + i) * DIM + channel, past_values[i]);
        }
        const int head = part < SHARING ? cluster * SHARING + part : HEADS + cluster;
        const size_t angles = (((size_t)layer * GROUPS + pass) * (HEADS + KV) + head) * DIM + channel;
        float turn[4], cross[4];
        four(p.turn + angles, turn);
        four(p.cross + angles, cross);
        patience.until([&] { return arrived(shared.totals_there, totals_turn); });
        if (thread < QKV_SLOTS) {
            const float4 sum = shared.totals[thread];
            const int column = thread / 4 * 8 + thread % 4 * 2;
            *(float2 *)(shared.qkv[0] + column) = make_float2(sum.x * begun[0], sum.y * begun[0]);
            *(float2 *)(shared.qkv[1] + column) = make_float2(sum.z * begun[1], sum.w * begun[1]);
        }
        sync_workers();
        float *const own = shared.qkv[half] + part * DIM;
        float made[4];
        four_of(own + channel, made);
        if (part <= SHARING) {
            float swapped[4], square = 0.0f;
            four_of(own + (channel + DIM / 2) % DIM, swapped);
#pragma unroll
            for (int j = 0; j < 4; ++j) square += made[j] * made[j];
            const float by = rsqrtf(sum_of_warp(square) / DIM + (float)p.eps);
#pragma unroll
            for (int j = 0; j < 4; ++j) made[j] = by * (made[j] * turn[j] + swapped[j] * cross[j]);
        }
        if (part >= SHARING) {
            const uint2 words = make_uint2(pack_bf16(made[0], made[1]), pack_bf16(made[2], made[3]));
            *(uint2 *)((part == SHARING ? keys : values) + pass * DIM + channel) = words;
            four(words, made);
        }
        sync_warp();
        *(float4 *)(own + channel) = make_float4(made[0], made[1], made[2], made[3]);
        sync_workers();
        float scores[SHARING] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float key[4], value[4];
            four_of(shared.qkv[half] + SHARING * DIM + i * 32 + eighth, key);
            four_of(shared.qkv[half] + (SHARING + 1) * DIM + channel, value);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (at != pass) key[j] = past_keys[i][j];
                if (part * 4 + i == pass) past_values[i][j] = value[j];
            }
#pragma unroll
            for (int h = 0; h < SHARING; ++h) {
                float query[4];
                four_of(shared.qkv[half] + h * DIM + i * 32 + eighth, query);
#pragma unroll
                for (int j = 0; j < 4; ++j) scores[h] += query[j] * key[j];
            }
        }
#pragma unroll
        for (int h = 0; h < SHARING; ++h) {
#pragma unroll
            for (int mask = 1; mask < 8; mask *= 2) scores[h] += shuffle_xor(scores[h], mask);
            float most = at <= pass ? scores[h] : -1e30f;
            most = fmaxf(most, shuffle_xor(most, 8));
            most = fmaxf(most, shuffle_xor(most, 16));
            const float weight = at <= pass ? fast_exp(scores[h] - most) : 0.0f;
            float mass = weight + shuffle_xor(weight, 8);
            mass += shuffle_xor(mass, 16);
            float weighed[4] = {};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float of_it = shuffle(weight, i * 8);
#pragma unroll
                for (int j = 0; j < 4; ++j) weighed[j] += of_it * past_values[i][j];
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
            const float share = 1.0f / mass;
            const int deep = (cluster * SHARING + head) * (DIM / 16) + at / 8;
            put(p.mixed + (deep * 32 + rank * 4 + at % 4) * 4 + at % 8 / 4 * 2 + row,
                packet(pack_bf16(low * share, high * share)));
        }
    }
};
