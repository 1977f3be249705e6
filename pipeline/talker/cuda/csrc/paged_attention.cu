// Attention of one row and one key-value head over its request's positions; stores the row's key and value.
//
// The same as `paged_attention` in Triton (`backbone_kernels.py`), for heads of 64 or 128 channels in bfloat16. Which
// channel has which place in a product does not matter as long as both factors agree, so that every lane loads a chunk
// of channels at a time into the registers in which they are multiplied: nothing passes through shared memory until the
// warps of a head add their sums. Copies to shared memory that run ahead of the products were slower on an H200: 87
// instead of 74 us for 512 rows with 120 positions.

#include "cache_format.h"

// `qkv`: [rows, HEADS + 2 * KV, DIM]; `q_norm`, `k_norm`: [DIM]; `angles`: [positions, DIM], cosines and then sines;
// `cache`: DIM of key and DIM of value at (page, place in the page, head) by the strides; `pages`, `starts`,
// `positions`, `cache_slots`: as of `BatchRows`; `out`: [rows, HEADS, DIM].
struct Params {
    const u16 *qkv, *q_norm, *k_norm, *angles;
    Cached *cache;
    const int *pages, *starts;
    const i64 *positions, *cache_slots;
    u16 *out;
    i64 requests;
    double eps, scale;
    i64 page_stride, place_stride, head_stride, pages_stride;
};

constexpr int TILE = 16, HEADS = SHARING * KV, WIDTH = (HEADS + 2 * KV) * DIM;
// A block has the heads of one row, or some of them; SPLIT warps divide the cached positions of a head among them.
constexpr int BLOCK_HEADS = WARPS / SPLIT, ROW_BLOCKS = KV / BLOCK_HEADS;
// Chunks that a lane has of a key or query, from channels `key_channel(chunk)` on, and of a value, from channels
// `value_channel(half)` on.
constexpr int CHUNKS = DIM / (4 * CHUNK), HALVES = DIM / (8 * CHUNK);
static_assert(SHARING <= 8 && DIM % 64 == 0 && PAGE % TILE == 0, "");
static_assert(WARPS % SPLIT == 0 && KV % BLOCK_HEADS == 0, "");

struct Shared {
    float row_max[WARPS][SHARING], row_sum[WARPS][SHARING], attended[WARPS][SHARING][DIM];
};
static_assert(sizeof(Shared) <= SHARED, "");

DEVICE uint4 load_if(bool known, const u16 *from) { return known ? load_words(from) : make_uint4(0, 0, 0, 0); }
DEVICE CachedChunk load_cached_if(bool known, const Cached *from) { return known ? load_cached(from) : CachedChunk{}; }

// The keys and values of 16 positions. A lane has its quarter of the channels of the keys of positions `octet` and
// `octet + 8`, and its eighth of those of the values of the four positions `value_position`.
struct Tile {
    CachedChunk keys[2][CHUNKS], values[4][HALVES];
};

struct Attention {
    const Params &p;
    const int lane = thread_index() % 32, warp = thread_index() / 32, part = warp % SPLIT;
    const int row = block_index() / ROW_BLOCKS;
    const int head = block_index() % ROW_BLOCKS * BLOCK_HEADS + warp / SPLIT;
    // A lane's place in a product: one of eight columns or rows, and one of four pairs of the others.
    const int octet = lane / 4, quarter = lane % 4;
    int position, request, rows_before, cached;
    i64 place;
    Tile tile; // in flight
    int pages; // of the warp's tile with this lane's number
    uint4 queries[CHUNKS];                     // the quarter of query `octet`, in pairs as they are multiplied
    float row_max = -INFINITY, row_sum = 0.0f; // of query `octet`; the sum over this lane's positions
    float attended[HALVES * PAIRS][4] = {};    // of queries 2 * quarter and the next, over this warp's positions

    DEVICE_MEMBER explicit Attention(const Params &p) : p(p) {
        place = p.cache_slots[row];
        position = (int)p.positions[row];
        request = request_of_row();
        rows_before = row - p.starts[request];
        if (place < 0) rows_before = position = 0;
        cached = position - rows_before;
    }
    DEVICE_MEMBER int request_of_row() const {
        const int requests = (int)p.requests;
        // Every request has one row, in most steps.
        if (row < requests && p.starts[row] == row && p.starts[row + 1] > row) return row;
        int count = 0;
        for (int i = lane; i <= requests; i += 32) count += p.starts[i] <= row;
        count = (int)reduce_add((u32)count);
        return (count < requests ? count : requests) - 1;
    }
    DEVICE_MEMBER int key_channel(int chunk) const { return (chunk * 4 + quarter) * CHUNK; }
    DEVICE_MEMBER int value_channel(int half) const { return (half * 8 + octet) * CHUNK; }
    // Of the four values of this lane, and of its four scores: pairs of neighbours, eight apart.
    DEVICE_MEMBER int value_position(int i) const { return i / 2 * 8 + quarter * 2 + i % 2; }
    DEVICE_MEMBER int tile_count() const { return (cached + TILE - 1) / TILE; }

    DEVICE_MEMBER Cached *cached_at(i64 page, int at) const {
        return p.cache + page * p.page_stride + at * p.place_stride + head * p.head_stride;
    }
    // The pages of the warp's next 32 tiles.
    DEVICE_MEMBER void load_pages(int number) {
        const int tile = part + (number + lane) * SPLIT;
        pages = tile < tile_count() ? p.pages[request * p.pages_stride + tile * TILE / PAGE] : 0;
    }
    DEVICE_MEMBER void load_keys(int number) {
        const int first = (part + number * SPLIT) * TILE, at = first % PAGE, page = shuffle(pages, number % 32);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const Cached *const key = cached_at(page, at + octet + i * 8);
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk)
                tile.keys[i][chunk] = load_cached_if(first + octet + i * 8 < cached, key + key_channel(chunk));
        }
    }
    DEVICE_MEMBER void load_values(int number) {
        const int first = (part + number * SPLIT) * TILE, at = first % PAGE, page = shuffle(pages, number % 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Cached *const value = cached_at(page, at + value_position(i)) + DIM;
#pragma unroll
            for (int half = 0; half < HALVES; ++half)
                tile.values[i][half] =
                    load_cached_if(first + value_position(i) < cached, value + value_channel(half));
        }
    }
    // `store(chunk, channels)` of a query or key after its norm and its rotary embedding, times `scale`.
    template <class Store>
    DEVICE_MEMBER void norm_rope(
        const uint4 (&line)[CHUNKS], const u16 *norm, int at, float scale, Store store
    ) const {
        float sum_sq = 0.0f;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            float x[CHUNK];
            unpack(line[chunk], x);
#pragma unroll
            for (int i = 0; i < CHUNK; ++i) sum_sq += x[i] * x[i];
        }
        sum_sq = quarters_sum(sum_sq);
        scale *= rsqrtf(sum_sq / DIM + (float)p.eps);
        const u16 *const angles = p.angles + (i64)at * DIM;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS / 2; ++chunk) {
            const int far_chunk = chunk + CHUNKS / 2;
            float near[CHUNK], far[CHUNK], cosine[CHUNK], sine[CHUNK], low[CHUNK], high[CHUNK];
            unpack(line[chunk], near);
            unpack(line[far_chunk], far);
            scale_by(norm + key_channel(chunk), scale, near);
            scale_by(norm + key_channel(far_chunk), scale, far);
            unpack(*(const uint4 *)(angles + key_channel(chunk)), cosine);
            unpack(*(const uint4 *)(angles + DIM / 2 + key_channel(chunk)), sine);
#pragma unroll
            for (int i = 0; i < CHUNK; ++i) {
                low[i] = near[i] * cosine[i] - far[i] * sine[i];
                high[i] = far[i] * cosine[i] + near[i] * sine[i];
            }
            store(chunk, low);
            store(far_chunk, high);
        }
    }
    DEVICE_MEMBER void scale_by(const u16 *weights, float scale, float (&x)[CHUNK]) const {
        float weight[CHUNK];
        unpack(*(const uint4 *)weights, weight);
#pragma unroll
        for (int i = 0; i < CHUNK; ++i) x[i] *= scale * weight[i];
    }
    // The sum over the four quarters of the lanes of an octet.
    DEVICE_MEMBER float quarters_sum(float value) const {
        value += shuffle_xor(value, 1);
        return value + shuffle_xor(value, 2);
    }
    DEVICE_MEMBER const u16 *line_of(int other) const { return p.qkv + (i64)other * WIDTH + head * DIM; }
    DEVICE_MEMBER void load_line(const u16 *from, bool known, uint4 (&line)[CHUNKS]) const {
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) line[chunk] = load_if(known, from + key_channel(chunk));
    }
    DEVICE_MEMBER CachedChunk new_value(int other, bool known, int half) const {
        return cached_of(load_if(known, line_of(other) + (HEADS + KV) * DIM + value_channel(half)));
    }
    // What a row reads of its own: the query and, in the first warp of a head, key and value.
    struct Own {
        uint4 query[CHUNKS], key[CHUNKS];
        CachedChunk value[HALVES];
    };
    DEVICE_MEMBER void load_own(Own &own) const {
        load_line(p.qkv + (i64)row * WIDTH + (head * SHARING + octet) * DIM, octet < SHARING, own.query);
        load_line(line_of(row) + HEADS * DIM, part == 0, own.key);
#pragma unroll
        for (int half = 0; half < HALVES; ++half) own.value[half] = new_value(row, part == 0, half);
    }
    // Begins the softmax with the row's own position, in the first warp of a head; stores its key and value.
    DEVICE_MEMBER void attend_to_own(const Own &own) {
        norm_rope(own.query, p.q_norm, position, (float)p.scale, [&](int chunk, const float(&x)[CHUNK]) {
            queries[chunk] = pack_halves(x);
        });
        if (part > 0) return;
        Cached *const to = cached_at(place / PAGE, (int)(place % PAGE));
        float score = 0.0f;
        norm_rope(own.key, p.k_norm, position, 1.0f, [&](int chunk, const float(&x)[CHUNK]) {
            const CachedChunk rounded = pack_cached(x);
            if (place >= 0 && octet == 0) *(CachedChunk *)(to + key_channel(chunk)) = rounded;
            const uint4 key = halves_of(rounded);
#pragma unroll
            for (int i = 0; i < PAIRS; ++i) {
                const u32 left = word_of(queries[chunk], i), right = word_of(key, i);
                score += low_half(left) * low_half(right) + high_half(left) * high_half(right);
            }
        });
        row_max = quarters_sum(score);
        row_sum = quarter == 0 ? 1.0f : 0.0f;
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            if (place >= 0 && quarter == 0) *(CachedChunk *)(to + DIM + value_channel(half)) = own.value[half];
            const uint4 value = halves_of(own.value[half]);
#pragma unroll
            for (int pair = 0; pair < PAIRS; ++pair) {
                float(&sums)[4] = attended[half * PAIRS + pair];
                sums[0] = sums[1] = low_half(word_of(value, pair));
                sums[2] = sums[3] = high_half(word_of(value, pair));
            }
        }
    }
    // Sets the tile to the keys and values of this step's rows from `first` on, all of them before this row.
    DEVICE_MEMBER void compute_tile(int first) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int other = first + octet + i * 8;
            uint4 line[CHUNKS];
            load_line(line_of(other) + HEADS * DIM, other < row, line);
            norm_rope(
                line, p.k_norm, other < row ? position - (row - other) : 0, 1.0f,
                [&](int chunk, const float(&x)[CHUNK]) { tile.keys[i][chunk] = pack_cached(x); }
            );
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int other = first + value_position(i);
#pragma unroll
            for (int half = 0; half < HALVES; ++half) tile.values[i][half] = new_value(other, other < row, half);
        }
    }
    // Adds the first `known` positions of the tile, at least one, to the running softmax. `keys_used` is called when
    // the keys have been read.
    template <class Used> DEVICE_MEMBER void attend(int known, Used keys_used) {
        float scores[2][4] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                const uint4 query = queries[chunk], key = halves_of(tile.keys[i][chunk]);
                mma_halves(scores[i], {query.x, 0, query.y, 0}, key.x, key.y);
                mma_halves(scores[i], {query.z, 0, query.w, 0}, key.z, key.w);
            }
        keys_used();
        float weights[4], new_max = row_max;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            weights[i] = value_position(i) < known ? scores[i / 2][i % 2] : -INFINITY;
            new_max = fmaxf(new_max, weights[i]);
        }
        new_max = fmaxf(new_max, shuffle_xor(new_max, 1));
        new_max = fmaxf(new_max, shuffle_xor(new_max, 2));
        const float rescale = fast_exp(row_max - new_max);
        row_max = new_max;
        row_sum *= rescale;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            weights[i] = fast_exp(weights[i] - new_max);
            row_sum += weights[i];
        }
        const u32 near = pack_half(weights[0], weights[1]), far = pack_half(weights[2], weights[3]);
        const float even = shuffle(rescale, quarter * 8), odd = shuffle(rescale, quarter * 8 + 4);
#pragma unroll
        for (int half = 0; half < HALVES; ++half)
#pragma unroll
            for (int pair = 0; pair < PAIRS; ++pair) {
                u32 channels[4];
                transpose(tile.values[0][half], tile.values[1][half], pair, channels[0], channels[1]);
                transpose(tile.values[2][half], tile.values[3][half], pair, channels[2], channels[3]);
                float(&sums)[4] = attended[half * PAIRS + pair];
                sums[0] *= even;
                sums[1] *= odd;
                sums[2] *= even;
                sums[3] *= odd;
                mma_halves(sums, channels, near, far);
            }
    }
    // The warp's tiles of cached positions, of which the first is loaded. What has been used of one is loaded for the
    // next at once.
    DEVICE_MEMBER void attend_to_cached() {
        const int count = (tile_count() - part + SPLIT - 1) / SPLIT;
        for (int number = 0; number < count; ++number) {
            const int next = number + 1;
            if (next % 32 == 0) load_pages(next);
            attend(cached - (part + number * SPLIT) * TILE, [&] {
                if (next < count) load_keys(next);
            });
            if (next < count) load_values(next);
        }
    }
    DEVICE_MEMBER void attend_to_new() {
        for (int first = row - rows_before + part * TILE; first < row; first += SPLIT * TILE) {
            compute_tile(first);
            attend(row - first, [] {});
        }
    }
    // Adds the sums of the warps of a head; `out` has the channels of each query together.
    DEVICE_MEMBER void store_attended(Shared &shared) {
        row_sum = quarters_sum(row_sum);
        if (quarter == 0 && octet < SHARING) {
            shared.row_max[warp][octet] = row_max;
            shared.row_sum[warp][octet] = row_sum;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int query = quarter * 2 + i;
            if (query >= SHARING) break;
#pragma unroll
            for (int at = 0; at < HALVES * PAIRS; ++at)
                *(float2 *)(shared.attended[warp][query] + value_channel(at / PAIRS) + at % PAIRS * 2) =
                    make_float2(attended[at][i], attended[at][2 + i]);
        }
        if (SPLIT > 1) sync_block();
        else sync_warp();
        const int first = warp - part;
        for (int pair = part * 32 + lane; pair < SHARING * DIM / 2; pair += SPLIT * 32) {
            const int query = pair / (DIM / 2), channel = pair % (DIM / 2) * 2;
            float most = -INFINITY, sum = 0.0f, low = 0.0f, high = 0.0f;
#pragma unroll
            for (int i = first; i < first + SPLIT; ++i) most = fmaxf(most, shared.row_max[i][query]);
#pragma unroll
            for (int i = first; i < first + SPLIT; ++i) {
                const float weight = fast_exp(shared.row_max[i][query] - most);
                const float2 both = *(const float2 *)(shared.attended[i][query] + channel);
                sum += weight * shared.row_sum[i][query];
                low += weight * both.x;
                high += weight * both.y;
            }
            *(u32 *)(p.out + ((i64)row * HEADS + head * SHARING + query) * DIM + channel) =
                pack_bf16(low / sum, high / sum);
        }
    }
};

RESIDENT_KERNEL(paged_attention, THREADS, RESIDENT) {
    pdl_launch();
    Attention attention(p);
    attention.load_pages(0);
    // The cached positions are from earlier steps, which have ended. Of few rows they are requested before the wait:
    // there are multiprocessors enough to start these blocks early.
    constexpr bool EARLY = SPLIT >= 8;
    if (EARLY) attention.load_keys(0);
    if (EARLY) attention.load_values(0);
    pdl_wait();
    Attention::Own own;
    attention.load_own(own);
    if (!EARLY) attention.load_keys(0);
    attention.attend_to_own(own);
    if (!EARLY) attention.load_values(0);
    attention.attend_to_cached();
    attention.attend_to_new();
    attention.store_attended(*(Shared *)shared_memory());
}
