// The code predictor for a few rows as one kernel: all passes of a frame, with their draws.
//
// A cluster of RANKS blocks makes some columns of every product; each of its blocks takes a RANKS-th of the inner
// width, for all of the cluster's columns. So a block reads few activations, and what it streams through its ring of
// shared memory are weights, in an order known long before: their copies run ahead of all waiting. The parts of a
// product are sent to the block of the cluster that owns the row, straight from registers into its shared memory. The
// owner of a row adds them up, keeps its residual stream, attends for it, and tells those of all clusters that need
// it next.
//
// Nobody waits at a barrier of all blocks. Activations travel as packets that carry their epoch with them, so one trip
// through the second level cache is all there is. No buffer can be overwritten too early: who sends the message after
// next has seen messages that exist only because everybody has read the ones before.
//
// Rows: a matrix instruction has 16; rank r of a cluster owns rows r and r + 8.

#include "draw.h"

constexpr int CLUSTERS = KV, DIM = 128;
constexpr int SHARING = HEADS / KV;           // queries of a key
constexpr int SLICE = HIDDEN / RANKS;          // of the inner width: what one unit of weights covers
constexpr int UNIT_COLUMNS = WARPS * 8;        // and so many columns
constexpr int UNIT = UNIT_COLUMNS * SLICE;
constexpr int STEPS = SLICE / 16;              // matrix instructions deep
constexpr int QKV_N = (SHARING + 2) * DIM / UNIT_COLUMNS, NARROW_N = HIDDEN / CLUSTERS / UNIT_COLUMNS;
constexpr int GATE_N = 2 * INNER / CLUSTERS / UNIT_COLUMNS, HEAD_N = VOCAB / CLUSTERS / UNIT_COLUMNS;
constexpr int OUT_PARTS = HEADS * DIM / RANKS / SLICE, DOWN_PARTS = INNER / RANKS / SLICE;
constexpr int OUT_UNITS = NARROW_N * OUT_PARTS, DOWN_UNITS = NARROW_N * DOWN_PARTS;
// Float4s of a row pair, by which parts of products travel.
constexpr int SLOTS_A_UNIT = WARPS * 4;
constexpr int QKV_SLOTS = QKV_N * SLOTS_A_UNIT, GATE_SLOTS = GATE_N * SLOTS_A_UNIT, HEAD_SLOTS = HEAD_N * SLOTS_A_UNIT;
constexpr int NARROW_SLOTS = NARROW_N * SLOTS_A_UNIT, NARROW_WARPS = NARROW_SLOTS / 32;
constexpr int SUMS = CLUSTERS * NARROW_WARPS; // parts of a row's squares
constexpr int WIDE_SLOTS = QKV_SLOTS > GATE_SLOTS ? QKV_SLOTS : GATE_SLOTS;
// Words of two bfloat16 in the order of matrix instructions: [depth / 16][lane][4].
constexpr int X_WORDS = HIDDEN / 16 * 128, MIXED_WORDS = HEADS * DIM / 16 * 128, INNER_WORDS = INNER / 16 * 128;
static_assert(RANKS == 8 && BLOCKS == CLUSTERS * RANKS, "a rank has two rows of a matrix instruction");
static_assert(WARPS == 8 && SLICE % 32 == 0 && NARROW_SLOTS <= THREADS && SUMS <= 32);
static_assert(GATE_N % 4 == 0 && QKV_SLOTS <= THREADS && HEAD_SLOTS <= THREADS && SHARING == 2);
static_assert(OUT_PARTS * SLICE * RANKS == HEADS * DIM && DOWN_PARTS * SLICE * RANKS == INNER);
static_assert(GROUPS <= 16 && PER_THREAD % 2 == 0 && 16 <= BLOCKS);

struct Params {
    // Weights as `packed` makes them.
    const u16 *qkv, *out, *gate_up, *down, *heads;
    const u16 *turn, *cross;        // [LAYERS, GROUPS, HEADS + KV, DIM]
    const u16 *inputs[GROUPS - 1];  // [ids, HIDDEN] each
    const float *squares[GROUPS - 1]; // of each row of `inputs`, [ids]
    const u16 *start;               // [rows, HIDDEN]
    const float *start_squares;     // [rows]
    const i64 *first;               // [rows]
    i64 *codes;                     // [rows, GROUPS - 1]
    const float *noise;             // [rows, GROUPS - 1]
    const float *inverse_temperature, *top_p; // [rows]
    const i64 *limit;               // [rows]
    u16 *cache;                     // [LAYERS, BLOCKS, row, key or value, 16, DIM]
    // Packets; zero at first.
    u64 *x;                         // [2, X_WORDS], behind attention and behind the MLP
    u64 *mixed, *inner;             // [words]
    u64 *sums;                      // [2, RANKS, SUMS, 2], squares of x
    u64 *logits;                    // [16, VOCAB]
    u64 *drawn;                     // [16]
    u32 *epoch;                     // of the launch before
    i64 rows;
    double eps;
};

struct Shared {
    u16 ring[RING][UNIT];
    float4 wide[RANKS][WIDE_SLOTS];
    float4 narrow[RANKS][NARROW_SLOTS];
    float4 vocab[RANKS][HEAD_SLOTS];
    u32 x[X_WORDS / RANKS], mixed[MIXED_WORDS / RANKS], inner[INNER_WORDS / RANKS];
    float qkv[2][(SHARING + 2) * DIM];
    float weighed[2][SHARING][4][DIM];
    float most[2][SHARING][4], mass[2][SHARING][4];
    DrawShared draw;
    Arrival full[RING], empty[RING], wide_there, narrow_there, vocab_there;
};

static_assert(sizeof(Shared) <= SHARED);

// Waiting, with an end to it.
struct Patience {
    template <class Ready> DEVICE_MEMBER void until(Ready ready) {
        for (int spins = 0; !ready(); ++spins)
            if (spins > SPINS) give_up();
    }
};

// One unit after the other, as they are multiplied.
struct Fetcher {
    const Params &p;
    Shared &shared;
    Patience patience;
    int slot = 0, turn = 0;

    DEVICE_MEMBER void fetch(const u16 *from) {
        // The first time round all slots are empty.
        patience.until([&] { return arrived(shared.empty[slot], turn + 1); });
        expect(shared.full[slot], UNIT * 2);
        copy_async(shared.ring[slot], from, UNIT * 2, shared.full[slot]);
        if (++slot == RING) {
            slot = 0;
            ++turn;
        }
    }
    DEVICE_MEMBER void fetch(const u16 *matrix, int block, int count) {
        for (int unit = 0; unit < count; ++unit) fetch(matrix + ((size_t)block * count + unit) * UNIT);
    }
    DEVICE_MEMBER void run() {
        const int cluster = block_index() / RANKS, rank = block_index() % RANKS;
        for (int pass = 0; pass < GROUPS; ++pass) {
            for (int layer = 0; layer < LAYERS; ++layer) {
                const int own = (layer * CLUSTERS + cluster) * RANKS + rank;
                fetch(p.qkv, own, QKV_N);
                fetch(p.out, own, OUT_UNITS);
                fetch(p.gate_up, own, GATE_N);
                fetch(p.down, own, DOWN_UNITS);
            }
            if (pass > 0) fetch(p.heads, ((pass - 1) * CLUSTERS + cluster) * RANKS + rank, HEAD_N);
        }
    }
};

struct Worker {
    const Params &p;
    Shared &shared;
    const int thread, warp, lane, cluster, rank;
    const int quad, pair; // of the lane: the row of a matrix instruction, and the pair of columns
    Patience patience;
    const Distance owner;
    u32 epoch;
    int slot = 0, turn = 0, wide_turn = 0, narrow_turn = 0, vocab_turn = 0;
    float4 residual; // of rows rank and rank + 8, of the first warps only, by slot

    DEVICE_MEMBER Worker(const Params &params, Shared &memory)
        : p(params), shared(memory), thread(thread_index()), warp(thread / 32), lane(thread % 32),
          cluster(block_index() / RANKS), rank(block_index() % RANKS), quad(lane / 4), pair(lane % 4),
          owner(distance_to(&memory, lane / 4)), epoch(*(volatile u32 *)params.epoch + 1) {}

    DEVICE_MEMBER u64 packet(u32 word) { return (u64)epoch << 32 | word; }
    DEVICE_MEMBER int row_of(int half) { return half * 8 + rank; }

    // Wait for COUNT words of this epoch, and leave them in shared memory.
    template <int COUNT> DEVICE_MEMBER void gather(const u64 *from, u32 *to, u32 wanted) {
        constexpr int LOADS = (COUNT / 2 + THREADS - 1) / THREADS;
        Packets packets[LOADS];
        patience.until([&] {
            bool there = true;
#pragma unroll
            for (int i = 0; i < LOADS; ++i)
                if (i * THREADS + thread < COUNT / 2) packets[i] = look(from + 2 * (i * THREADS + thread));
#pragma unroll
            for (int i = 0; i < LOADS; ++i)
                if (i * THREADS + thread < COUNT / 2)
                    there &= packets[i].first >> 32 == wanted && packets[i].second >> 32 == wanted;
            return there;
        });
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            if (i * THREADS + thread < COUNT / 2)
                *(uint2 *)(to + 2 * (i * THREADS + thread)) = make_uint2((u32)packets[i].first, (u32)packets[i].second);
    }

    // A product's weights, in registers before its activations are there.
    template <int UNITS> DEVICE_MEMBER void take(uint4 (&weights)[UNITS][STEPS / 2]) {
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
            patience.until([&] { return arrived(shared.full[slot], turn); });
            const uint4 *from = (const uint4 *)shared.ring[slot] + warp * (STEPS / 2) * 32 + lane;
#pragma unroll
            for (int i = 0; i < STEPS / 2; ++i) weights[unit][i] = from[i * 32];
            sync_warp();
            if (lane == 0) arrive(shared.empty[slot]);
            if (++slot == RING) {
                slot = 0;
                ++turn;
            }
        }
    }

    DEVICE_MEMBER void step(float (&sum)[4], const u32 (&a)[4], const uint4 &b, int odd) {
        if (odd) multiply(sum, a, b.z, b.w);
        else multiply(sum, a, b.x, b.y);
    }
    DEVICE_MEMBER void load(u32 (&a)[4], const u32 *staged, int at) {
        const uint4 words = *(const uint4 *)(staged + (at * 32 + lane) * 4);
        a[0] = words.x;
        a[1] = words.y;
        a[2] = words.z;
        a[3] = words.w;
    }

    // N units of columns, each of one slice deep. Sent to their owners, by `place`.
    template <int N, class Place>
    DEVICE_MEMBER void wide_product(
        const uint4 (&weights)[N][STEPS / 2], const u32 *staged, Arrival &there, Place place
    ) {
        float sums[N][4] = {};
#pragma unroll
        for (int at = 0; at < STEPS; ++at) {
            u32 a[4];
            load(a, staged, at);
#pragma unroll
            for (int n = 0; n < N; ++n) step(sums[n], a, weights[n][at / 2], at % 2);
        }
#pragma unroll
        for (int n = 0; n < N; ++n)
            send(place(n), owner, make_float4(sums[n][0], sums[n][1], sums[n][2], sums[n][3]), there);
    }
    // NARROW_N units of columns, PARTS slices deep.
    template <int PARTS>
    DEVICE_MEMBER void deep_product(
        const uint4 (&weights)[NARROW_N * PARTS][STEPS / 2], const u32 *staged, float4 (&to)[NARROW_SLOTS]
    ) {
        float sums[NARROW_N][2][4] = {};
#pragma unroll
        for (int at = 0; at < PARTS * STEPS; ++at) {
            u32 a[4];
            load(a, staged, at);
#pragma unroll
            for (int n = 0; n < NARROW_N; ++n)
                step(sums[n][at % 2], a, weights[n * PARTS + at / STEPS][at % STEPS / 2], at % 2);
        }
#pragma unroll
        for (int n = 0; n < NARROW_N; ++n) {
            const float (&one)[4] = sums[n][0], (&two)[4] = sums[n][1];
            send(&to[(n * WARPS + warp) * 4 + pair], owner,
                 make_float4(one[0] + two[0], one[1] + two[1], one[2] + two[2], one[3] + two[3]), shared.narrow_there);
        }
    }
    DEVICE_MEMBER float4 add(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
    template <int SLOTS> DEVICE_MEMBER float4 total(const float4 (&parts)[RANKS][SLOTS], int at) {
        float4 sum = parts[0][at];
#pragma unroll
        for (int i = 1; i < RANKS; ++i) sum = add(sum, parts[i][at]);
        return sum;
    }
    DEVICE_MEMBER float sum_of_warp(float value) {
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) value += shuffle_xor(value, mask);
        return value;
    }

    DEVICE_MEMBER float scale(float square) { return rsqrtf(square / HIDDEN + (float)p.eps); }
    // What the norm multiplies our two rows by, from the squares that came with x.
    DEVICE_MEMBER void norm(int kind, u32 wanted, float (&scales)[2]) {
        Packets packets{};
        if (lane < SUMS) {
            const u64 *from = p.sums + ((kind * RANKS + rank) * SUMS + lane) * 2;
            patience.until([&] {
                packets = look(from);
                return packets.first >> 32 == wanted && packets.second >> 32 == wanted;
            });
        }
        sync_warp();
        scales[0] = scale(sum_of_warp(float_of((u32)packets.first)));
        scales[1] = scale(sum_of_warp(float_of((u32)packets.second)));
    }

    // --- a pass's beginning
    int pass;
    DEVICE_MEMBER int real(int row) { return row < (int)p.rows ? row : (int)p.rows - 1; }
    DEVICE_MEMBER i64 id_of(int row) {
        if (pass == 0) return row;
        if (pass == 1) return p.first[row];
        u64 packet;
        const u32 wanted = epoch - 1;
        patience.until([&] {
            packet = look_at_one(p.drawn + row);
            return packet >> 32 == wanted;
        });
        return (u32)packet;
    }
    DEVICE_MEMBER const u16 *entry(int row, float &square) {
        const i64 id = id_of(real(row));
        square = pass == 0 ? p.start_squares[id] : p.squares[pass - 1][id];
        return (pass == 0 ? p.start : p.inputs[pass - 1]) + id * HIDDEN;
    }
    float begun[2]; // the norm's factors of our rows
    DEVICE_MEMBER void begin_pass() {
        float square;
        for (int item = thread; item < 16 * SLICE / 8; item += THREADS) {
            const int row = item / (SLICE / 8), eight = item % (SLICE / 8);
            const uint4 words = *(const uint4 *)(entry(row, square) + rank * SLICE + eight * 8);
            u32 *to = shared.x + (eight / 2 * 32 + row % 8 * 4) * 4 + eight % 2 * 2 + row / 8;
            to[0] = words.x;
            to[4] = words.y;
            to[8] = words.z;
            to[12] = words.w;
        }
        const int column = cluster * (HIDDEN / CLUSTERS) + thread % NARROW_SLOTS / 4 * 8 + pair * 2;
        float squares[2];
        const u32 one = *(const u32 *)(entry(row_of(0), squares[0]) + column);
        const u32 two = *(const u32 *)(entry(row_of(1), squares[1]) + column);
        begun[0] = scale(squares[0]);
        begun[1] = scale(squares[1]);
        residual = make_float4(low_half(one), high_half(one), low_half(two), high_half(two));
    }

    // --- QKV and attention
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
        patience.until([&] { return arrived(shared.wide_there, wide_turn); });
        if (thread < QKV_SLOTS) {
            const float4 sum = total(shared.wide, thread);
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

    // --- ends of products
    // Adds to the residual stream, and tells everybody.
    DEVICE_MEMBER void add_and_tell(int kind) {
        if (warp >= NARROW_WARPS) return;
        patience.until([&] { return arrived(shared.narrow_there, narrow_turn); });
        const float4 x = residual = add(residual, total(shared.narrow, thread));
        const int block = thread / 4;
        u64 *to = p.x + kind * X_WORDS
            + ((cluster * (HIDDEN / CLUSTERS / 16) + block / 2) * 32 + rank * 4 + pair) * 4 + block % 2 * 2;
        put(to, Packets{packet(pack_bf16(x.x, x.y)), packet(pack_bf16(x.z, x.w))});
        const float one = sum_of_warp(x.x * x.x + x.y * x.y), two = sum_of_warp(x.z * x.z + x.w * x.w);
        if (lane == 0)
            put(p.sums + ((kind * RANKS + rank) * SUMS + cluster * NARROW_WARPS + warp) * 2,
                Packets{packet(bits_of(one)), packet(bits_of(two))});
    }
    DEVICE_MEMBER void gate_and_tell(u32 wanted) {
        if (warp * 32 >= GATE_SLOTS) return;
        float scales[2];
        norm(0, wanted, scales);
        patience.until([&] { return arrived(shared.wide_there, wide_turn); });
#pragma unroll
        for (int item = thread; item < GATE_SLOTS; item += THREADS) {
            const float4 sum = total(shared.wide, item);
            float own[4] = {sum.x * scales[0], sum.y * scales[0], sum.z * scales[1], sum.w * scales[1]};
#pragma unroll
            for (int i = 0; i < 4; ++i) own[i] = own[i] / (1.0f + fast_exp(-own[i])) * shuffle_xor(own[i], 1);
            const int block = item / 8, at = item / 2 % 4;
            u64 *to = p.inner
                + ((cluster * (GATE_N * UNIT_COLUMNS / 32) + block / 2) * 32 + rank * 4 + at) * 4 + block % 2 * 2;
            if (item % 2 == 0) put(to, Packets{packet(pack_bf16(own[0], own[1])), packet(pack_bf16(own[2], own[3]))});
        }
    }
    DEVICE_MEMBER void tell_logits(u32 wanted) {
        if (warp * 32 >= HEAD_SLOTS) return;
        float scales[2];
        norm(1, wanted, scales);
        patience.until([&] { return arrived(shared.vocab_there, vocab_turn); });
        const float4 sum = total(shared.vocab, thread);
        const int id = cluster * (VOCAB / CLUSTERS) + thread / 4 * 8 + thread % 4 * 2;
        // Where the thread that draws looks for ids i and i + THREADS.
        u64 *to = p.logits + (size_t)row_of(0) * VOCAB + (id / THREADS / 2 * THREADS + id % THREADS) * 2
            + id / THREADS % 2;
        if (row_of(0) < p.rows) {
            put(to, packet(bits_of(sum.x * scales[0])));
            put(to + 2, packet(bits_of(sum.y * scales[0])));
        }
        to += (size_t)8 * VOCAB;
        if (row_of(1) < p.rows) {
            put(to, packet(bits_of(sum.z * scales[1])));
            put(to + 2, packet(bits_of(sum.w * scales[1])));
        }
    }
    DEVICE_MEMBER void draw() {
        // One row a block, on different clusters first.
        const int row = rank * CLUSTERS + cluster;
        if (row >= p.rows) return;
        const size_t at = (size_t)row * (GROUPS - 1) + pass - 1;
        const float heat = p.inverse_temperature[row], top_p = p.top_p[row], uniform = p.noise[at];
        const i64 limit = p.limit[row];
        Packets packets[PER_THREAD / 2];
        const u64 *from = p.logits + (size_t)row * VOCAB;
        patience.until([&] {
            bool there = true;
#pragma unroll
            for (int i = 0; i < PER_THREAD / 2; ++i) packets[i] = look(from + (i * THREADS + thread) * 2);
#pragma unroll
            for (int i = 0; i < PER_THREAD / 2; ++i)
                there &= packets[i].first >> 32 == epoch && packets[i].second >> 32 == epoch;
            return there;
        });
        float logits[PER_THREAD];
#pragma unroll
        for (int i = 0; i < PER_THREAD / 2; ++i) {
            logits[2 * i] = float_of((u32)packets[i].first);
            logits[2 * i + 1] = float_of((u32)packets[i].second);
        }
        Draw draw(shared.draw);
        const int code = draw.of(logits, heat, limit, top_p, uniform);
        if (thread > 0) return;
        put(p.drawn + row, packet(code));
        p.codes[at] = code;
    }

    // --- the whole of it. In each part weights come into registers first, then activations into shared memory.
    DEVICE_MEMBER void query_keys(int layer) {
        uint4 weights[QKV_N][STEPS / 2];
        if (thread == 0) expect(shared.wide_there, RANKS * QKV_SLOTS * 16);
        take(weights);
        if (layer == 0) begin_pass();
        else gather<X_WORDS / RANKS>(p.x + X_WORDS + rank * (X_WORDS / RANKS), shared.x, epoch - 1);
        sync_workers();
        wide_product(weights, shared.x, shared.wide_there, [&](int n) {
            return &shared.wide[rank][(n * WARPS + warp) * 4 + pair];
        });
        if (layer > 0) norm(1, epoch - 1, begun);
    }
    DEVICE_MEMBER void add_attention() {
        uint4 weights[OUT_UNITS][STEPS / 2];
        if (thread == 0) expect(shared.narrow_there, RANKS * NARROW_SLOTS * 16);
        take(weights);
        gather<MIXED_WORDS / RANKS>(p.mixed + rank * (MIXED_WORDS / RANKS), shared.mixed, epoch);
        sync_workers();
        deep_product<OUT_PARTS>(weights, shared.mixed, shared.narrow[rank]);
        add_and_tell(0);
        ++narrow_turn;
    }
    DEVICE_MEMBER void gates() {
        // Half of its weights at a time: all would be more than a thread has registers.
        uint4 weights[GATE_N / 2][STEPS / 2];
        if (thread == 0) expect(shared.wide_there, RANKS * GATE_SLOTS * 16);
        take(weights);
        gather<X_WORDS / RANKS>(p.x + rank * (X_WORDS / RANKS), shared.x, epoch);
        sync_workers();
        for (int half = 0; half < 2; ++half) {
            if (half) take(weights);
            // A gate and the number it is for lie side by side.
            wide_product(weights, shared.x, shared.wide_there, [&](int n) {
                return &shared.wide[rank][(((n / 2 + half * (GATE_N / 4)) * WARPS + warp) * 4 + pair) * 2 + n % 2];
            });
        }
        gate_and_tell(epoch);
        ++wide_turn;
    }
    DEVICE_MEMBER void add_gated() {
        uint4 weights[DOWN_UNITS][STEPS / 2];
        if (thread == 0) expect(shared.narrow_there, RANKS * NARROW_SLOTS * 16);
        take(weights);
        gather<INNER_WORDS / RANKS>(p.inner + rank * (INNER_WORDS / RANKS), shared.inner, epoch);
        sync_workers();
        deep_product<DOWN_PARTS>(weights, shared.inner, shared.narrow[rank]);
        add_and_tell(1);
        ++narrow_turn;
    }
    DEVICE_MEMBER void end_pass() {
        const u64 *const from = p.x + X_WORDS + rank * (X_WORDS / RANKS);
        if (pass == 0) {
            // There is nothing to draw, but nobody may be a pass ahead.
            gather<X_WORDS / RANKS>(from, shared.x, epoch - 1);
            sync_workers();
            return;
        }
        uint4 weights[HEAD_N][STEPS / 2];
        if (thread == 0) expect(shared.vocab_there, RANKS * HEAD_SLOTS * 16);
        take(weights);
        gather<X_WORDS / RANKS>(from, shared.x, epoch - 1);
        sync_workers();
        wide_product(weights, shared.x, shared.vocab_there, [&](int n) {
            return &shared.vocab[rank][(n * WARPS + warp) * 4 + pair];
        });
        tell_logits(epoch - 1);
        ++vocab_turn;
        draw();
    }
    DEVICE_MEMBER void run() {
        for (pass = 0; pass < GROUPS; ++pass) {
            for (int layer = 0; layer < LAYERS; ++layer, ++epoch) {
                query_keys(layer);
                attend(layer);
                ++wide_turn;
                add_attention();
                gates();
                add_gated();
            }
            end_pass();
            ++epoch;
        }
    }
};

CLUSTER_KERNEL(persistent_predictor, THREADS + 128, RANKS) {
    Shared &shared = *(Shared *)shared_memory();
    if (thread_index() == 0) {
        for (Arrival &arrival : shared.full) prepare(arrival, 1);
        for (Arrival &arrival : shared.empty) prepare(arrival, WARPS);
        prepare(shared.wide_there, 1);
        prepare(shared.narrow_there, 1);
        prepare(shared.vocab_there, 1);
        publish_arrivals();
    }
    sync_cluster();
    if (thread_index() < THREADS) {
        more_registers();
        Worker worker(p, shared);
        worker.run();
        if (block_index() == 0 && thread_index() == 0) *p.epoch = worker.epoch;
    } else {
        fewer_registers();
        if (thread_index() == THREADS) Fetcher{p, shared}.run();
    }
    sync_warp();
    // Nobody leaves while parts of products may still come.
    sync_cluster();
}
