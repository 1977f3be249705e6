// Attention of the block's rows, two of each tile, for the cluster's key-value head, at one position.

#pragma once
#include "predictor_gemm.h"

struct Attention : PredictorGemm {
    using PredictorGemm::PredictorGemm;
    int pass, qkv_phase = 0;
    float row_scale[2 * TILES]; // 1 / RMS of the block's rows

    DEVICE_MEMBER void unpack4(const u16 *from, float (&to)[4]) { unpack4(*(const uint2 *)from, to); }
    DEVICE_MEMBER void unpack4(uint2 words, float (&to)[4]) {
        to[0] = low_bf16(words.x);
        to[1] = high_bf16(words.x);
        to[2] = low_bf16(words.y);
        to[3] = high_bf16(words.y);
    }
    DEVICE_MEMBER void load4(const float *from, float (&to)[4]) {
        const float4 words = *(const float4 *)from;
        to[0] = words.x;
        to[1] = words.y;
        to[2] = words.z;
        to[3] = words.w;
    }
    // Four warps a row of each tile. Each first computes one of: two queries, the key, the value. Then it attends to four
    // positions.
    DEVICE_MEMBER void attend(int layer) {
        const int half = warp / 4, part = warp % 4, channel = lane * 4;
        // The position whose score this lane computes, and its first channel of 32, in each of four times 32 channels.
        const int position = part * 4 + lane / 8, eighth = lane % 8 * 4;
        // Of the row of tile 0; those of a tile's two rows lie together.
        constexpr int ROW_CACHE = 2 * 16 * DIM;
        u16 *const keys = p.cache + (((size_t)layer * BLOCKS + block_index()) * 2 * TILES + half) * ROW_CACHE;
        u16 *const values = keys + 16 * DIM;
        // Those of positions after this one are not used.
        float past_keys[TILES][4][4], past_values[TILES][4][4];
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int past = 2 * tile * ROW_CACHE;
                unpack4(keys + past + position * DIM + i * 32 + eighth, past_keys[tile][i]);
                unpack4(values + past + (part * 4 + i) * DIM + channel, past_values[tile][i]);
            }
        const int head = part < SHARING ? cluster * SHARING + part : HEADS + cluster;
        const size_t angles = (((size_t)layer * GROUPS + pass) * (HEADS + KV) + head) * DIM + channel;
        float cosine[4], sine[4];
        unpack4(p.rope_cos + angles, cosine);
        unpack4(p.rope_sin + angles, sine);
        spin.until([&] { return mbarrier_try_wait(shared.qkv_ready, qkv_phase); });
        if (thread < QKV_SLOTS) {
            const int column = thread / 4 * 8 + thread % 4 * 2;
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                const float4 sum = shared.qkv_sums[tile][thread];
                const float one = row_scale[2 * tile], two = row_scale[2 * tile + 1];
                *(float2 *)(shared.qkv[2 * tile] + column) = make_float2(sum.x * one, sum.y * one);
                *(float2 *)(shared.qkv[2 * tile + 1] + column) = make_float2(sum.z * two, sum.w * two);
            }
        }
        sync_compute_warps();
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            float *const own = shared.qkv[2 * tile + half] + part * DIM;
            float own4[4];
            load4(own + channel, own4);
            if (part <= SHARING) {
                float swapped[4], sum_sq = 0.0f;
                load4(own + (channel + DIM / 2) % DIM, swapped);
#pragma unroll
                for (int j = 0; j < 4; ++j) sum_sq += own4[j] * own4[j];
                const float inv_rms = rsqrtf(warp_sum(sum_sq) / DIM + (float)p.eps);
#pragma unroll
                for (int j = 0; j < 4; ++j) own4[j] = inv_rms * (own4[j] * cosine[j] + swapped[j] * sine[j]);
            }
            if (part >= SHARING) {
                const uint2 words = make_uint2(pack_bf16(own4[0], own4[1]), pack_bf16(own4[2], own4[3]));
                u16 *const to = (part == SHARING ? keys : values) + 2 * tile * ROW_CACHE;
                *(uint2 *)(to + pass * DIM + channel) = words;
                unpack4(words, own4);
            }
            sync_warp();
            *(float4 *)(own + channel) = make_float4(own4[0], own4[1], own4[2], own4[3]);
        }
        sync_compute_warps();
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
            attend_to_part(2 * tile + half, part, past_keys[tile], past_values[tile]);
        sync_compute_warps();
        store_attended();
    }
    // Scores of a row and weighted values of the four positions of `part`, to shared memory.
    DEVICE_MEMBER void attend_to_part(int row, int part, float (&past_keys)[4][4], float (&past_values)[4][4]) {
        const int channel = lane * 4, position = part * 4 + lane / 8, eighth = lane % 8 * 4;
        float scores[SHARING] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float key[4], value[4];
            load4(shared.qkv[row] + SHARING * DIM + i * 32 + eighth, key);
            load4(shared.qkv[row] + (SHARING + 1) * DIM + channel, value);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (position != pass) key[j] = past_keys[i][j];
                if (part * 4 + i == pass) past_values[i][j] = value[j];
            }
#pragma unroll
            for (int h = 0; h < SHARING; ++h) {
                float query[4];
                load4(shared.qkv[row] + h * DIM + i * 32 + eighth, query);
#pragma unroll
                for (int j = 0; j < 4; ++j) scores[h] += query[j] * key[j];
            }
        }
#pragma unroll
        for (int h = 0; h < SHARING; ++h) {
#pragma unroll
            for (int mask = 1; mask < 8; mask *= 2) scores[h] += shuffle_xor(scores[h], mask);
            float row_max = position <= pass ? scores[h] : -1e30f;
            row_max = fmaxf(row_max, shuffle_xor(row_max, 8));
            row_max = fmaxf(row_max, shuffle_xor(row_max, 16));
            const float weight = position <= pass ? fast_exp(scores[h] - row_max) : 0.0f;
            float row_sum = weight + shuffle_xor(weight, 8);
            row_sum += shuffle_xor(row_sum, 16);
            float partial[4] = {};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float position_weight = shuffle(weight, i * 8);
#pragma unroll
                for (int j = 0; j < 4; ++j) partial[j] += position_weight * past_values[i][j];
            }
            *(float4 *)(shared.partial_attended[row][h][part] + channel) =
                make_float4(partial[0], partial[1], partial[2], partial[3]);
            if (lane == 0) {
                shared.row_max[row][h][part] = row_max;
                shared.row_sum[row][h][part] = row_sum;
            }
        }
    }
    // Adds the four parts of every row, and sends the sums to all blocks.
    DEVICE_MEMBER void store_attended() {
        for (int item = thread; item < 2 * TILES * SHARING * DIM / 2; item += THREADS) {
            const int row = item / (SHARING * DIM / 2), head = item / (DIM / 2) % SHARING, position = item % (DIM / 2);
            float row_max = -1e30f, row_sum = 0.0f, low = 0.0f, high = 0.0f;
#pragma unroll
            for (int i = 0; i < 4; ++i) row_max = fmaxf(row_max, shared.row_max[row][head][i]);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float weight = fast_exp(shared.row_max[row][head][i] - row_max);
                const float2 both = *(const float2 *)(shared.partial_attended[row][head][i] + position * 2);
                row_sum += weight * shared.row_sum[row][head][i];
                low += weight * both.x;
                high += weight * both.y;
            }
            const float inv_sum = 1.0f / row_sum;
            const int depth_block = (cluster * SHARING + head) * (DIM / 16) + position / 8;
            const int word = word_of(depth_block, row / 2, rank * 4 + position % 4) + position % 8 / 4 * 2 + row % 2;
            store_packet(p.attended + word, packet(pack_bf16(low * inv_sum, high * inv_sum)));
        }
    }
};
