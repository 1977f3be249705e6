// Attention of one row and one key-value head a block over its request's pages; stores its key and value in the cache.
//
// A warp takes every WARPS-th tile of 16 positions. Cached keys and values come through a ring of shared memory of each
// warp, starting before the previous kernels have ended. The keys of other rows of the same request, a prompt, are
// recomputed from `qkv`, so no block waits for another's cache write. Scores are matrix instructions of 16 keys and 8
// queries, of which SHARING are used; for the weighted values each lane sums four channels.

#include "device.h"

constexpr int HEADS = SHARING * KV, WIDTH = (HEADS + 2 * KV) * DIM;
constexpr int LINE = 2 * DIM + 32; // key and value of a position; padded to avoid bank conflicts
constexpr int GROUPS = DIM / 32;
constexpr int STEP_ROWS = 4; // rows of this step that a warp attends to at a time
constexpr int PREFETCH_ROUNDS = 4; // rounds whose keys and values are prefetched
static_assert(DIM == 128 && SHARING == 2, "a lane has two pairs of channels, and the first of four both heads");

struct Params {
    const u16 *qkv;             // [rows, WIDTH]
    const u16 *q_norm, *k_norm; // [DIM]
    const float *angles;        // [positions, DIM], cosines and then sines
    u16 *cache;                 // key and value, DIM each, at (page, place in it, head) by the strides
    const int *pages;           // [requests, pages_stride]
    const int *starts;          // [requests + 1], first row of each request
    const i64 *positions, *cache_slots; // [rows]; `cache_slots`: where a key is stored, below zero for padding rows
    u16 *out;                   // [rows, HEADS * DIM]
    i64 requests, page_size;          // `page_size`: positions of a page
    i64 page_stride, place_stride, head_stride, pages_stride;
    double eps;
};

struct Shared {
    // For missing rows a matrix instruction reads the memory behind them; those results are not used.
    u16 step_lines[WARPS][STEP_ROWS][LINE];
    u16 ring[WARPS][TILES][16][LINE];
    u16 queries[WARPS][SHARING][DIM];
    float weights[WARPS][16][SHARING];
    float attended[WARPS][SHARING][DIM], row_max[WARPS][SHARING], row_sum[WARPS][SHARING];
    Mbarrier full[WARPS][TILES];
};
static_assert(sizeof(Shared) <= SHARED);

// The channels of a lane, of 128: two neighbours, and the two that rotate with them.
struct Channels {
    float low[2], high[2];
};

struct Attention {
    const Params &p;
    Shared &shared;
    const int warp = thread_index() / 32, lane = thread_index() % 32, quad = lane / 4, pair = lane % 4;
    const int row = block_index() / KV, head = block_index() % KV;
    const int page_size = (int)p.page_size;
    int request, position, first, cached; // `first` row of the request in this step, after `cached` positions
    float row_max[SHARING], row_sum[SHARING], attended[SHARING][4];

    DEVICE_MEMBER void locate() {
        u32 started = 0;
        for (int at = lane; at <= p.requests; at += 32) started += p.starts[at] <= row ? 1 : 0;
        started = reduce_add(started);
        request = (int)(started < p.requests ? started : p.requests) - 1;
        first = p.starts[request];
        position = (int)p.positions[row];
        if (p.cache_slots[row] < 0) first = row, position = 0;
        cached = position - (row - first);
    }
    DEVICE_MEMBER u16 *at_place(i64 page_number, int place) {
        return p.cache + page_number * p.page_stride + place * p.place_stride + head * p.head_stride;
    }
    DEVICE_MEMBER const u16 *line_at(int at) {
        return at_place(p.pages[request * p.pages_stride + at / page_size], at % page_size);
    }
    // Prefetches PREFETCH_ROUNDS rounds behind the ring; not more, because they delay the weights that other kernels
    // stream.
    DEVICE_MEMBER void prefetch_tiles() {
        const int end = 16 * WARPS * (TILES + PREFETCH_ROUNDS);
        for (int at = 16 * WARPS * TILES + thread_index(); at < cached && at < end; at += THREADS)
            prefetch_l2(line_at(at), 2 * DIM * 2);
    }
    // Loads the 16 positions that this warp takes in a round.
    DEVICE_MEMBER void load_tile(int round) {
        const int begin = (round * WARPS + warp) * 16, slot = round % TILES;
        if (begin >= cached) return;
        const int count = cached - begin < 16 ? cached - begin : 16;
        if (lane == 0) mbarrier_expect_tx(shared.full[warp][slot], count * 2 * DIM * 2);
        sync_warp();
        if (lane < count) {
            tma_load_keep(shared.ring[warp][slot][lane], line_at(begin + lane), 2 * DIM * 2, shared.full[warp][slot]);
        }
        sync_warp();
    }
    DEVICE_MEMBER Channels pairs(const u16 *from) {
        const u32 low = ((const u32 *)from)[lane], high = ((const u32 *)from)[lane + 32];
        return {{low_bf16(low), high_bf16(low)}, {low_bf16(high), high_bf16(high)}};
    }
    DEVICE_MEMBER Channels fresh_pairs(const u16 *from) {
        const u32 low = load_word((const u32 *)from + lane), high = load_word((const u32 *)from + lane + 32);
        return {{low_bf16(low), high_bf16(low)}, {low_bf16(high), high_bf16(high)}};
    }
    DEVICE_MEMBER Channels angles_at(int at_position) {
        const float2 *from = (const float2 *)(p.angles + (size_t)(at_position > 0 ? at_position : 0) * DIM);
        const float2 cosine = from[lane], sine = from[lane + 32];
        return {{cosine.x, cosine.y}, {sine.x, sine.y}};
    }
    // Writes norm and rotary embedding of a head to `to`.
    DEVICE_MEMBER void norm_rope(Channels x, const Channels &weight, const Channels &angle, float scale, u16 *to) {
        float square = 0.0f;
#pragma unroll
        for (int i = 0; i < 2; ++i) square += x.low[i] * x.low[i] + x.high[i] * x.high[i];
        for (int mask = 16; mask > 0; mask /= 2) square += shuffle_xor(square, mask);
        scale *= rsqrtf(square / DIM + (float)p.eps);
        float low[2], high[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float a = x.low[i] * weight.low[i] * scale, b = x.high[i] * weight.high[i] * scale;
            low[i] = a * angle.low[i] - b * angle.high[i];
            high[i] = b * angle.low[i] + a * angle.high[i];
        }
        ((u32 *)to)[lane] = pack_bf16(low[0], low[1]);
        ((u32 *)to)[lane + 32] = pack_bf16(high[0], high[1]);
    }
    // Adds 16 positions, of which `count` exist, to the running softmax.
    DEVICE_MEMBER void attend_tile(const u16 (*lines)[LINE], int count, const uint4 (&queries)[GROUPS]) {
        float score[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            // Missing positions may hold anything; their scores are masked below.
            const uint4 low = *(const uint4 *)(lines[quad] + group * 32 + pair * 8);
            const uint4 high = *(const uint4 *)(lines[quad + 8] + group * 32 + pair * 8);
            mma_16x8x16(score, {low.x, high.x, low.y, high.y}, queries[group].x, queries[group].y);
            mma_16x8x16(score, {low.z, high.z, low.w, high.w}, queries[group].z, queries[group].w);
        }
#pragma unroll
        for (int query = 0; query < SHARING; ++query) {
            const float low = pair == 0 && quad < count ? score[query] : -INFINITY;
            const float high = pair == 0 && quad + 8 < count ? score[2 + query] : -INFINITY;
            float best = low > high ? low : high;
            for (int mask = 4; mask < 32; mask *= 2) {
                const float other = shuffle_xor(best, mask);
                best = best > other ? best : other;
            }
            // Only the first of four lanes has scores; at least one position exists.
            const float other = shuffle_xor(best, 1), pair_max = best > other ? best : other;
            const float other_pair_max = shuffle_xor(pair_max, 2);
            const float tile_max = pair_max > other_pair_max ? pair_max : other_pair_max;
            const float new_max = row_max[query] > tile_max ? row_max[query] : tile_max;
            const float rescale = fast_exp(row_max[query] - new_max);
            row_max[query] = new_max;
            const float a = fast_exp(low - new_max), b = fast_exp(high - new_max);
            if (pair == 0) shared.weights[warp][quad][query] = a, shared.weights[warp][quad + 8][query] = b;
            float sum = a + b;
            for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
            row_sum[query] = row_sum[query] * rescale + sum;
#pragma unroll
            for (int i = 0; i < 4; ++i) attended[query][i] *= rescale;
        }
        sync_warp();
#pragma unroll 4
        for (int at = 0; at < count; ++at) {
            const uint2 value = *(const uint2 *)(lines[at] + DIM + lane * 4);
            const float2 weight = *(const float2 *)shared.weights[warp][at];
            const float values[4] = {low_bf16(value.x), high_bf16(value.x), low_bf16(value.y), high_bf16(value.y)};
#pragma unroll
            for (int i = 0; i < 4; ++i) attended[0][i] += weight.x * values[i], attended[1][i] += weight.y * values[i];
        }
        sync_warp();
    }
    DEVICE_MEMBER void run() {
        locate();
        if (lane == 0)
            for (int slot = 0; slot < TILES; ++slot) mbarrier_init(shared.full[warp][slot], 1);
        fence_mbarrier_init();
        sync_warp();
        for (int slot = 0; slot < TILES; ++slot) load_tile(slot);
        prefetch_tiles();
        const Channels q_norm = pairs(p.q_norm), k_norm = pairs(p.k_norm);
        const Channels angle = angles_at(position);
        const i64 cache_slot = p.cache_slots[row];
        pdl_wait();
        const u16 *own = p.qkv + (size_t)row * WIDTH;
        Channels heads[SHARING];
#pragma unroll
        for (int query = 0; query < SHARING; ++query) {
            heads[query] = fresh_pairs(own + (head * SHARING + query) * DIM);
            row_max[query] = -1e30f;
            row_sum[query] = 0.0f;
            for (int i = 0; i < 4; ++i) attended[query][i] = 0.0f;
        }
        // This warp's share of the rows of this step.
        const int rows = row - first + 1;
        uint4 queries[GROUPS];
        bool prepared = false;
        for (int begin = 0; begin < rows || !prepared; begin += STEP_ROWS * WARPS) {
            int count = 0;
            for (int at = begin + warp; at < rows && count < STEP_ROWS; at += WARPS, ++count) {
                const int other = first + at;
                const u16 *line = p.qkv + (size_t)other * WIDTH + (HEADS + head) * DIM;
                const Channels key = fresh_pairs(line);
                const u32 *values = (const u32 *)(line + KV * DIM) + 2 * lane;
                const uint2 value = make_uint2(load_word(values), load_word(values + 1));
                Channels key_angle = angle;
                if (other != row) key_angle = angles_at(position - (row - other));
                norm_rope(key, k_norm, key_angle, 1.0f, shared.step_lines[warp][count]);
                *(uint2 *)(shared.step_lines[warp][count] + DIM + lane * 4) = value;
                if (other == row && cache_slot >= 0) {
                    u16 *to = at_place(cache_slot / page_size, (int)cache_slot % page_size);
                    ((u32 *)to)[lane] = ((const u32 *)shared.step_lines[warp][count])[lane];
                    ((u32 *)to)[lane + 32] = ((const u32 *)shared.step_lines[warp][count])[lane + 32];
                    *(uint2 *)(to + DIM + lane * 4) = value;
                }
            }
            if (!prepared) {
                prepared = true;
#pragma unroll
                for (int query = 0; query < SHARING; ++query)
                    norm_rope(heads[query], q_norm, angle, rsqrtf((float)DIM), shared.queries[warp][query]);
                sync_warp();
#pragma unroll
                for (int group = 0; group < GROUPS; ++group)
                    queries[group] = quad < SHARING
                        ? *(const uint4 *)(shared.queries[warp][quad] + group * 32 + pair * 8) : make_uint4(0, 0, 0, 0);
            }
            sync_warp();
            if (count > 0) attend_tile(shared.step_lines[warp], count, queries);
        }
        for (int round = 0; (round * WARPS + warp) * 16 < cached; ++round) {
            const int left = cached - (round * WARPS + warp) * 16;
            while (!all_lanes(mbarrier_try_wait_cta(shared.full[warp][round % TILES], round / TILES))) {}
            attend_tile(shared.ring[warp][round % TILES], left < 16 ? left : 16, queries);
            fence_async_proxy();
            sync_warp();
            load_tile(round + TILES);
        }
#pragma unroll
        for (int query = 0; query < SHARING; ++query) {
            *(float4 *)(shared.attended[warp][query] + lane * 4) =
                make_float4(attended[query][0], attended[query][1], attended[query][2], attended[query][3]);
            if (lane == 0) shared.row_max[warp][query] = row_max[query], shared.row_sum[warp][query] = row_sum[query];
        }
        sync_block();
        for (int at = thread_index(); at < SHARING * DIM; at += THREADS) {
            const int query = at / DIM, channel = at % DIM;
            float top = shared.row_max[0][query], sum = 0.0f, sum_of_sums = 0.0f;
            for (int from = 1; from < WARPS; ++from)
                top = top > shared.row_max[from][query] ? top : shared.row_max[from][query];
            for (int from = 0; from < WARPS; ++from) {
                const float weight = fast_exp(shared.row_max[from][query] - top);
                sum += weight * shared.attended[from][query][channel];
                sum_of_sums += weight * shared.row_sum[from][query];
            }
            p.out[(size_t)row * HEADS * DIM + (head * SHARING + query) * DIM + channel] =
                (u16)pack_bf16(sum / sum_of_sums, 0.0f);
        }
    }
};

KERNEL(streamed_attention, THREADS) {
    pdl_launch();
    Attention{p, *(Shared *)shared_memory()}.run();
}
