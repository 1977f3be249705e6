// A few rows through all of a layer behind its attention, and the next layer's queries, keys and values.
//
// Weights stream through a ring of shared memory in an order known long before, as `packed` has laid them out: while
// blocks wait for one another, and even before the kernels ahead have ended, the copy engine goes on until the ring is
// full. A cluster of RANKS blocks makes some columns of every product, each block a RANKS-th of the inner width for all
// of them, each of its warps some of that, whose rows it keeps in registers. Parts of sums are added up within the block
// first, and then go to the block that owns the columns.
//
// A matrix instruction takes 16 lines of the matrix and 8 rows. Within 32 of the inner width, a lane's 8 neighbours
// stand for those it is meant to have: of a sum the order does not matter, as long as rows and matrix agree.

#include "device.h"

constexpr int PLAIN = 0, GATE = 1, ADD = 2; // what is done with a product
constexpr int UNIT = 16 * SPAN;             // of the ring: 16 lines of a matrix
constexpr int GROUPS = SPAN / WARPS / 32;   // of 32 of the inner width in a unit, a warp's
constexpr int PARTS = EIGHTS * 32;          // float4s of 16 columns of the product
constexpr int SCALED = (EIGHTS * 8 + WARPS - 1) / WARPS; // rows whose scale a warp finds out
constexpr int SLICED = BLOCKS / RANKS;      // blocks that make a RANKS-th of a product's columns

template <int DEPTH_, int WIDTH_, int END_, int PASSES_> struct Product {
    static constexpr int DEPTH = DEPTH_, WIDTH = WIDTH_, END = END_;
    static constexpr int SLICE = DEPTH / RANKS;               // of the inner width: a block's
    static constexpr int TILES = WIDTH / 16 * RANKS / BLOCKS; // of 16 lines: a cluster's
    static constexpr int OWN = TILES / RANKS;                 // and those whose sums end in one block
    static constexpr int STEPS = SLICE / SPAN, UNITS = TILES * STEPS;
    static constexpr int PASSES = PASSES_, LONG = STEPS / PASSES; // over the inner width, for want of registers
    static_assert(TILES * BLOCKS * 16 == WIDTH * RANKS && OWN * RANKS == TILES && TILES % BATCH == 0);
    static_assert(STEPS * SPAN * RANKS == DEPTH && GROUPS * WARPS * 32 == SPAN);
    static_assert(STEPS % PASSES == 0 && (PASSES == 1 || TILES == BATCH));
    static_assert(END != ADD || OWN == 1, "whose sums stay in registers");
};
using Output = Product<MIXED, HIDDEN, ADD, 1>;
using Gates = Product<HIDDEN, 2 * INNER, GATE, 1>;
using Down = Product<INNER, HIDDEN, ADD, DOWN_PASSES>;
using Next = Product<HIDDEN, QKV, PLAIN, 1>;
static_assert(BLOCKS <= SUMS && SUMS % 32 == 0 && PARTS <= THREADS && BATCH * PARTS <= THREADS * 4);

struct Params {
    const u16 *out, *gate_up, *down; // none of them in front of the first layer
    const u16 *qkv;                  // none behind the last layer
    const u16 *mixed;                // [rows, MIXED]
    u16 *x;                          // [rows, HIDDEN], the residual stream, rounded
    u16 *inner;                      // [rows, INNER]
    u16 *queries;                    // [rows, QKV]
    float *kept;                     // [rows, HIDDEN], the residual stream
    float *squares;                  // [rows, SUMS], of each row of it, to be summed
    u32 *done;                       // [3, RANKS], blocks that are done with a product; zero at first
    i64 rows;
    double eps;
};

struct Shared {
    u16 ring[RING][UNIT];
    float4 parts[WARPS][BATCH][PARTS];
    float4 inbox[RANKS][Gates::OWN > Next::OWN ? Gates::OWN : Next::OWN][PARTS];
    float scale[EIGHTS * 8];
    Arrival full[RING], empty[RING], there;
};
static_assert(sizeof(Shared) <= SHARED);

struct Fetcher {
    const Params &p;
    Shared &shared;
    int unit = 0;

    DEVICE_MEMBER void prepare_arrivals() {
        for (int slot = 0; slot < RING; ++slot) {
            prepare(shared.full[slot], 1);
            prepare(shared.empty[slot], WARPS);
        }
        prepare(shared.there, 1);
        publish_arrivals();
    }
    // Where the unit of a matrix is that is `unit` further than its first, of this block's; else it counts `unit` down.
    template <class P> DEVICE_MEMBER const u16 *find(const u16 *matrix, int &unit) {
        if (matrix == nullptr) return nullptr;
        if (unit < P::UNITS) return matrix + ((size_t)block_index() * P::UNITS + unit) * UNIT;
        unit -= P::UNITS;
        return nullptr;
    }
    // In the order in which they are multiplied.
    DEVICE_MEMBER const u16 *find(int unit) {
        const u16 *at = find<Output>(p.out, unit);
        if (at == nullptr) at = find<Gates>(p.gate_up, unit);
        if (at == nullptr) at = find<Down>(p.down, unit);
        return at != nullptr ? at : find<Next>(p.qkv, unit);
    }
    // What has not been fetched, up to number `end`.
    DEVICE_MEMBER void run(int end) {
        for (; unit < end; ++unit) {
            const u16 *from = find(unit);
            if (from == nullptr) return;
            const int slot = unit % RING;
            if (unit >= RING)
                while (!arrived_here(shared.empty[slot], unit / RING + 1)) {}
            expect(shared.full[slot], UNIT * 2);
            copy_async(shared.ring[slot], from, UNIT * 2, shared.full[slot]);
        }
    }
};

struct Worker {
    const Params &p;
    Shared &shared;
    const int thread = thread_index(), warp = thread / 32, lane = thread % 32;
    const int quad = lane / 4, pair = lane % 4;
    const int cluster = block_index() / RANKS, rank = block_index() % RANKS;
    int slot = 0, turn = 0, letters = 0;
    float4 stream = {0.0f, 0.0f, 0.0f, 0.0f}; // of the residual stream: what this thread adds to

    // Where `stream` is: of two rows the columns quad and quad + 8 of the block's 16.
    DEVICE_MEMBER size_t stream_at(int row, int half) { return (size_t)row * HIDDEN + block_index() * 16 + half * 8 + quad; }
    DEVICE_MEMBER void take_stream() {
        const int row = thread / 32 * 8 + pair * 2;
        if (row < p.rows) stream.x = load_float(p.kept + stream_at(row, 0)), stream.z = load_float(p.kept + stream_at(row, 1));
        if (row + 1 < p.rows)
            stream.y = load_float(p.kept + stream_at(row + 1, 0)), stream.w = load_float(p.kept + stream_at(row + 1, 1));
    }
    // The squares of this warp's rows, and what they come to.
    DEVICE_MEMBER void take_squares(float (&squares)[SCALED]) {
#pragma unroll
        for (int i = 0; i < SCALED; ++i) {
            const int row = warp + i * WARPS;
            squares[i] = 0.0f;
            if (row < p.rows)
#pragma unroll
                for (int part = 0; part < SUMS; part += 32)
                    squares[i] += load_float(p.squares + (size_t)row * SUMS + part + lane);
        }
    }
    DEVICE_MEMBER void keep_scales(float (&squares)[SCALED]) {
#pragma unroll
        for (int i = 0; i < SCALED; ++i) {
            for (int mask = 16; mask > 0; mask /= 2) squares[i] += shuffle_xor(squares[i], mask);
            const int row = warp + i * WARPS;
            if (lane == 0 && row < EIGHTS * 8) shared.scale[row] = rsqrtf(squares[i] / HIDDEN + (float)p.eps);
        }
    }
    // Until all blocks are done with a product.
    DEVICE_MEMBER void await_all(int product) {
        if (warp == 0) {
            const u32 *at = p.done + product * RANKS + lane % RANKS;
            for (int spins = 0; min_lanes(look_at(at)) < SLICED; ++spins)
                if (spins > SPINS) give_up();
        }
        sync_workers();
    }
    DEVICE_MEMBER void tell_all(int product) {
        sync_workers();
        if (thread == 0) count_up(p.done + product * RANKS + block_index() / SLICED);
    }
    template <class P> DEVICE_MEMBER void finish(int tile, int eight, float4 sum, u16 *out, bool last) {
        float4 value = sum;
        if (P::END == ADD) {
            value = make_float4(stream.x + sum.x, stream.y + sum.y, stream.z + sum.z, stream.w + sum.w);
            stream = value;
        }
        const float values[2][2] = {{value.x, value.z}, {value.y, value.w}};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = eight * 8 + pair * 2 + i;
            const float low = values[i][0], high = values[i][1];
            if (row < p.rows) {
                if (P::END == GATE) {
                    const float gate = low * shared.scale[row], up = high * shared.scale[row];
                    out[(size_t)row * (P::WIDTH / 2) + tile * 8 + quad] =
                        (u16)pack_bf16(gate / (1.0f + fast_exp(-gate)) * up, 0.0f);
                } else {
                    const float scale = P::END == PLAIN ? shared.scale[row] : 1.0f;
                    u16 *to = out + (size_t)row * P::WIDTH + tile * 16 + quad;
                    to[0] = (u16)pack_bf16(low * scale, 0.0f);
                    to[8] = (u16)pack_bf16(high * scale, 0.0f);
                    if (P::END == ADD && last) p.kept[stream_at(row, 0)] = low, p.kept[stream_at(row, 1)] = high;
                }
            }
            if (P::END == ADD) {
                float square = low * low + high * high;
                for (int mask = 4; mask < 32; mask *= 2) square += shuffle_xor(square, mask);
                if (quad == 0 && row < p.rows) p.squares[(size_t)row * SUMS + block_index()] = square;
            }
        }
    }
    // Some units more of a tile, `x` for them.
    template <class P>
    DEVICE_MEMBER void multiply_tile(const uint4 (&x)[P::LONG][GROUPS][EIGHTS], float (&sum)[EIGHTS][4]) {
        float other[EIGHTS][4];
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight)
#pragma unroll
            for (int i = 0; i < 4; ++i) other[eight][i] = 0.0f;
#pragma unroll
        for (int step = 0; step < P::LONG; ++step) {
            while (!all_lanes(arrived_here(shared.full[slot], turn))) {}
            const uint4 *from = (const uint4 *)shared.ring[slot] + warp * GROUPS * 64 + lane;
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                const uint4 low = from[group * 64], high = from[group * 64 + 32];
#pragma unroll
                for (int eight = 0; eight < EIGHTS; ++eight) {
                    const uint4 row = x[step][group][eight];
                    multiply(sum[eight], {low.x, high.x, low.y, high.y}, row.x, row.y);
                    multiply(other[eight], {low.z, high.z, low.w, high.w}, row.z, row.w);
                }
            }
            done_reading();
            sync_warp();
            if (lane == 0) arrive(shared.empty[slot]);
            if (++slot == RING) slot = 0, ++turn;
        }
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight)
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[eight][i] += other[eight][i];
    }
    template <class P>
    DEVICE_MEMBER void take_rows(uint4 (&x)[P::LONG][GROUPS][EIGHTS], const u16 *rows, int pass) {
#pragma unroll
        for (int step = 0; step < P::LONG; ++step)
#pragma unroll
            for (int group = 0; group < GROUPS; ++group)
#pragma unroll
                for (int eight = 0; eight < EIGHTS; ++eight) {
                    const int row = eight * 8 + quad, unit = pass * (P::LONG) + step;
                    const int at = rank * P::SLICE + unit * SPAN + (warp * GROUPS + group) * 32 + pair * 8;
                    x[step][group][eight] = make_uint4(0, 0, 0, 0);
                    if (row < p.rows) x[step][group][eight] = load_words(rows + (size_t)row * P::DEPTH + at);
                }
    }
    template <class P> DEVICE_MEMBER void run(const u16 *rows, u16 *out, bool last) {
        uint4 x[P::PASSES][P::LONG][GROUPS][EIGHTS];
        float squares[SCALED];
        take_rows<P>(x[0], rows, 0);
        if (P::END != ADD) take_squares(squares);
        if (thread == 0) expect(shared.there, RANKS * P::OWN * PARTS * 16);
#pragma unroll 1
        for (int tile = 0; tile < P::TILES; tile += BATCH) {
            float sum[BATCH][EIGHTS][4] = {};
#pragma unroll
            for (int pass = 0; pass < P::PASSES; ++pass) {
                // One ahead.
                if (pass + 1 < P::PASSES) take_rows<P>(x[pass + 1], rows, pass + 1);
#pragma unroll
                for (int more = 0; more < BATCH; ++more) multiply_tile<P>(x[pass], sum[more]);
            }
            if (tile > 0)
                sync_workers();
            else if (P::END != ADD)
                keep_scales(squares);
#pragma unroll
            for (int more = 0; more < BATCH; ++more)
#pragma unroll
                for (int eight = 0; eight < EIGHTS; ++eight)
                    shared.parts[warp][more][eight * 32 + lane] =
                        make_float4(sum[more][eight][0], sum[more][eight][1], sum[more][eight][2], sum[more][eight][3]);
            sync_workers();
            for (int at = thread; at < BATCH * PARTS; at += THREADS) {
                const int of = tile + at / PARTS, part = at % PARTS;
                float4 sum = shared.parts[0][at / PARTS][part];
#pragma unroll
                for (int from = 1; from < WARPS; ++from) {
                    const float4 more = shared.parts[from][at / PARTS][part];
                    sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
                }
                send(&shared.inbox[rank][of % P::OWN][part], distance_to(&shared, of / P::OWN), sum, shared.there);
            }
        }
        for (int at = thread; at < P::OWN * PARTS; at += THREADS) {
            while (!all_lanes(arrived(shared.there, letters))) {}
            const int tile = at / PARTS, part = at % PARTS;
            float4 sum = shared.inbox[0][tile][part];
#pragma unroll
            for (int from = 1; from < RANKS; ++from) {
                const float4 more = shared.inbox[from][tile][part];
                sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
            }
            finish<P>(cluster * P::TILES + rank * P::OWN + tile, part / 32, sum, out, last);
        }
        ++letters;
    }
    DEVICE_MEMBER void run() {
        if (p.out != nullptr) {
            if (thread < PARTS) take_stream();
            run<Output>(p.mixed, p.x, false);
            tell_all(0);
            await_all(0);
            run<Gates>(p.x, p.inner, false);
            tell_all(1);
            await_all(1);
            run<Down>(p.inner, p.x, true);
            if (p.qkv == nullptr) return;
            tell_all(2);
            await_all(2);
        }
        run<Next>(p.x, p.queries, false);
    }
};

SHARING_KERNEL(out_mlp_qkv, RANKS, REGISTERS) {
    Shared &shared = *(Shared *)shared_memory();
    const bool fetches = thread_index() == THREADS;
    let_next_begin();
    Fetcher fetcher{p, shared};
    if (fetches) {
        fetcher.prepare_arrivals();
        fetcher.run(RING);
    }
    sync_warp();
    // From here on others of the cluster may send. Nobody leaves before all that is sent to it has come.
    sync_cluster();
    if (fetches) fetcher.run(1 << 30);
    if (thread_index() < THREADS) {
        await_last();
        Worker{p, shared}.run();
    }
}
