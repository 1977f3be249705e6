// Attention of one row and one key-value head a block, over its request's pages, where its key and value are put.
//
// A warp takes every WARPS-th 16 positions. What earlier steps have left in the cache comes through its own ring of
// shared memory, and begins to before the kernels ahead have ended. Rows of the same request, a prompt's, see one
// another's keys as they are in `qkv`, so nobody waits for the cache. Scores are matrix instructions of 16 keys and 8
// queries, of which SHARING are there; values are summed a lane four channels.

#include "device.h"

constexpr int HEADS = SHARING * KV, WIDTH = (HEADS + 2 * KV) * DIM;
constexpr int LINE = 2 * DIM + 32; // key and value of a position, so that lanes meet no bank twice
constexpr int GROUPS = DIM / 32;
constexpr int NEAR = 4; // rows of its own step that a warp weighs at once
constexpr int SOON = 4; // turns whose keys and values are asked for ahead
static_assert(DIM == 128 && SHARING == 2, "a lane has two pairs of channels, and the first of four both heads");

struct Params {
    const u16 *qkv;             // [rows, WIDTH]
    const u16 *q_norm, *k_norm; // [DIM]
    const float *angles;        // [positions, DIM], cosines and sines
    u16 *cache;                 // keys and values behind one another, at (page, place in it, head) by the strides
    const int *pages;           // [requests, pages_line]
    const int *starts;          // [requests + 1], where rows of a request begin
    const i64 *positions, *places; // [rows]; `places` where a row's key goes, below zero for rows of nobody's
    u16 *out;                   // [rows, HEADS * DIM]
    i64 requests, page;          // `page`: places of one
    i64 page_stride, place_stride, head_stride, pages_line;
    double eps;
};

struct Shared {
    // Of what is not there a matrix instruction reads what lies behind, and nothing comes of it.
    u16 near[WARPS][NEAR][LINE];
    u16 ring[WARPS][SLOTS][16][LINE];
    u16 queries[WARPS][SHARING][DIM];
    float weights[WARPS][16][SHARING];
    float mixed[WARPS][SHARING][DIM], most[WARPS][SHARING], total[WARPS][SHARING];
    Arrival full[WARPS][SLOTS];
};
static_assert(sizeof(Shared) <= SHARED);

// What a lane has of 128 channels: two neighbours, and the two that rotate with them.
struct Channels {
    float low[2], high[2];
};

struct Attention {
    const Params &p;
    Shared &shared;
    const int warp = thread_index() / 32, lane = thread_index() % 32, quad = lane / 4, pair = lane % 4;
    const int row = block_index() / KV, head = block_index() % KV;
    const int page = (int)p.page;
    int request, position, first, cached; // `first` row of the request in this step, behind `cached` positions
    float most[SHARING], total[SHARING], mixed[SHARING][4];

    DEVICE_MEMBER void find() {
        u32 begun = 0;
        for (int at = lane; at <= p.requests; at += 32) begun += p.starts[at] <= row ? 1 : 0;
        begun = add_lanes(begun);
        request = (int)(begun < p.requests ? begun : p.requests) - 1;
        first = p.starts[request];
        position = (int)p.positions[row];
        if (p.places[row] < 0) first = row, position = 0;
        cached = position - (row - first);
    }
    DEVICE_MEMBER u16 *at_place(i64 number, int place) {
        return p.cache + number * p.page_stride + place * p.place_stride + head * p.head_stride;
    }
    DEVICE_MEMBER const u16 *line_at(int at) {
        return at_place(p.pages[request * p.pages_line + at / page], at % page);
    }
    // What comes behind the tiles of the ring, as far as SOON turns go: it is in the way of weights that stream.
    DEVICE_MEMBER void announce() {
        for (int at = 16 * WARPS * SLOTS + thread_index(); at < cached && at < 16 * WARPS * (SLOTS + SOON); at += THREADS)
            expect_soon(line_at(at), 2 * DIM * 2);
    }
    // The 16 positions that this warp takes in its `turn`.
    DEVICE_MEMBER void fetch(int turn) {
        const int begin = (turn * WARPS + warp) * 16, slot = turn % SLOTS;
        if (begin >= cached) return;
        const int count = cached - begin < 16 ? cached - begin : 16;
        if (lane == 0) expect(shared.full[warp][slot], count * 2 * DIM * 2);
        sync_warp();
        if (lane < count) {
            copy_kept(shared.ring[warp][slot][lane], line_at(begin + lane), 2 * DIM * 2, shared.full[warp][slot]);
        }
        sync_warp();
    }
    DEVICE_MEMBER Channels pairs(const u16 *from) {
        const u32 low = ((const u32 *)from)[lane], high = ((const u32 *)from)[lane + 32];
        return {{low_half(low), high_half(low)}, {low_half(high), high_half(high)}};
    }
    DEVICE_MEMBER Channels pairs_of_last(const u16 *from) {
        const u32 low = load_word((const u32 *)from + lane), high = load_word((const u32 *)from + lane + 32);
        return {{low_half(low), high_half(low)}, {low_half(high), high_half(high)}};
    }
    DEVICE_MEMBER Channels angles_at(int place) {
        const float2 *at = (const float2 *)(p.angles + (size_t)(place > 0 ? place : 0) * DIM);
        const float2 cosine = at[lane], sine = at[lane + 32];
        return {{cosine.x, cosine.y}, {sine.x, sine.y}};
    }
    // A head behind its norm and rotary embedding, into `to`.
    DEVICE_MEMBER void turn(Channels x, const Channels &weight, const Channels &angle, float scale, u16 *to) {
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
    // 16 positions more, of which `count` are there.
    DEVICE_MEMBER void weigh(const u16 (*lines)[LINE], int count, const uint4 (&queries)[GROUPS]) {
        float score[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            // What is not there may be anything, but meets no other's sum.
            const uint4 low = *(const uint4 *)(lines[quad] + group * 32 + pair * 8);
            const uint4 high = *(const uint4 *)(lines[quad + 8] + group * 32 + pair * 8);
            multiply(score, {low.x, high.x, low.y, high.y}, queries[group].x, queries[group].y);
            multiply(score, {low.z, high.z, low.w, high.w}, queries[group].z, queries[group].w);
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
            // Known to the first of four only; there is one position at least.
            const float other = shuffle_xor(best, 1), nearer = best > other ? best : other;
            const float far = shuffle_xor(nearer, 2), top = nearer > far ? nearer : far;
            const float now = most[query] > top ? most[query] : top, fading = fast_exp(most[query] - now);
            most[query] = now;
            const float a = fast_exp(low - now), b = fast_exp(high - now);
            if (pair == 0) shared.weights[warp][quad][query] = a, shared.weights[warp][quad + 8][query] = b;
            float sum = a + b;
            for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
            total[query] = total[query] * fading + sum;
#pragma unroll
            for (int i = 0; i < 4; ++i) mixed[query][i] *= fading;
        }
        sync_warp();
#pragma unroll 4
        for (int at = 0; at < count; ++at) {
            const uint2 value = *(const uint2 *)(lines[at] + DIM + lane * 4);
            const float2 weight = *(const float2 *)shared.weights[warp][at];
            const float values[4] = {low_half(value.x), high_half(value.x), low_half(value.y), high_half(value.y)};
#pragma unroll
            for (int i = 0; i < 4; ++i) mixed[0][i] += weight.x * values[i], mixed[1][i] += weight.y * values[i];
        }
        sync_warp();
    }
    DEVICE_MEMBER void run() {
        find();
        if (lane == 0)
            for (int slot = 0; slot < SLOTS; ++slot) prepare(shared.full[warp][slot], 1);
        publish_arrivals();
        sync_warp();
        for (int slot = 0; slot < SLOTS; ++slot) fetch(slot);
        announce();
        const Channels q_norm = pairs(p.q_norm), k_norm = pairs(p.k_norm);
        const Channels angle = angles_at(position);
        const i64 place = p.places[row];
        await_last();
        const u16 *own = p.qkv + (size_t)row * WIDTH;
        Channels heads[SHARING];
#pragma unroll
        for (int query = 0; query < SHARING; ++query) {
            heads[query] = pairs_of_last(own + (head * SHARING + query) * DIM);
            most[query] = -1e30f;
            total[query] = 0.0f;
            for (int i = 0; i < 4; ++i) mixed[query][i] = 0.0f;
        }
        // This warp's share of the rows of its own step.
        const int rows = row - first + 1;
        uint4 queries[GROUPS];
        bool known = false;
        for (int begin = 0; begin < rows || !known; begin += NEAR * WARPS) {
            int count = 0;
            for (int at = begin + warp; at < rows && count < NEAR; at += WARPS, ++count) {
                const int other = first + at;
                const u16 *line = p.qkv + (size_t)other * WIDTH + (HEADS + head) * DIM;
                const Channels key = pairs_of_last(line);
                const u32 *values = (const u32 *)(line + KV * DIM) + 2 * lane;
                const uint2 value = make_uint2(load_word(values), load_word(values + 1));
                Channels turned = angle;
                if (other != row) turned = angles_at(position - (row - other));
                turn(key, k_norm, turned, 1.0f, shared.near[warp][count]);
                *(uint2 *)(shared.near[warp][count] + DIM + lane * 4) = value;
                if (other == row && place >= 0) {
                    u16 *to = at_place(place / page, (int)place % page);
                    ((u32 *)to)[lane] = ((const u32 *)shared.near[warp][count])[lane];
                    ((u32 *)to)[lane + 32] = ((const u32 *)shared.near[warp][count])[lane + 32];
                    *(uint2 *)(to + DIM + lane * 4) = value;
                }
            }
            if (!known) {
                known = true;
#pragma unroll
                for (int query = 0; query < SHARING; ++query)
                    turn(heads[query], q_norm, angle, rsqrtf((float)DIM), shared.queries[warp][query]);
                sync_warp();
#pragma unroll
                for (int group = 0; group < GROUPS; ++group)
                    queries[group] = quad < SHARING
                        ? *(const uint4 *)(shared.queries[warp][quad] + group * 32 + pair * 8) : make_uint4(0, 0, 0, 0);
            }
            sync_warp();
            if (count > 0) weigh(shared.near[warp], count, queries);
        }
        for (int turn = 0; (turn * WARPS + warp) * 16 < cached; ++turn) {
            const int left = cached - (turn * WARPS + warp) * 16;
            while (!all_lanes(arrived_here(shared.full[warp][turn % SLOTS], turn / SLOTS))) {}
            weigh(shared.ring[warp][turn % SLOTS], left < 16 ? left : 16, queries);
            done_reading();
            sync_warp();
            fetch(turn + SLOTS);
        }
#pragma unroll
        for (int query = 0; query < SHARING; ++query) {
            *(float4 *)(shared.mixed[warp][query] + lane * 4) =
                make_float4(mixed[query][0], mixed[query][1], mixed[query][2], mixed[query][3]);
            if (lane == 0) shared.most[warp][query] = most[query], shared.total[warp][query] = total[query];
        }
        sync_block();
        for (int at = thread_index(); at < SHARING * DIM; at += THREADS) {
            const int query = at / DIM, channel = at % DIM;
            float top = shared.most[0][query], sum = 0.0f, mass = 0.0f;
            for (int from = 1; from < WARPS; ++from) top = top > shared.most[from][query] ? top : shared.most[from][query];
            for (int from = 0; from < WARPS; ++from) {
                const float weight = fast_exp(shared.most[from][query] - top);
                sum += weight * shared.mixed[from][query][channel];
                mass += weight * shared.total[from][query];
            }
            p.out[(size_t)row * HEADS * DIM + (head * SHARING + query) * DIM + channel] = (u16)pack_bf16(sum / mass, 0.0f);
        }
    }
};

KERNEL(streamed_attention, THREADS) {
    let_next_begin();
    Attention{p, *(Shared *)shared_memory()}.run();
}
