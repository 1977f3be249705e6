// A residual unit of the codec's last blocks, from one layer's input to the next one's: a convolution of seven taps, a snake,
// a pointwise product, the sum of it and what the unit has begun with, and the snake ahead of the next layer.
//
// A block has its inputs brought once, not once a tap: a tile is some steps of eight streams, `dilation` apart, so that taps
// are the same inputs a step further on. Weights stay in shared memory where all of them fit (RING is how many of their
// parts do), else they come by for every tile. Four warps fetch while two groups of four multiply; one group may be at
// the sines when the other is at the products.

#include "wgmma.h"

// All in half precision but `constants`. `source`: [(TAPS - 1) * dilation + steps, rows, CHANNELS]; `weights`: pieces of the
// taps and of the pointwise product, columns in the order of `Multiplier::channel`; `constants`: six for each channel, see
// `Of`; `kept`: [steps, rows, CHANNELS], what the unit has begun with, and then its sum; `onward`: [room + steps, rows,
// CHANNELS].
struct Params {
    const u16 *source, *weights;
    const float *constants;
    u16 *kept, *onward;
    i64 steps, rows, dilation, room, tiles, blocks;
};

constexpr int TAPS = 7, STREAMS = 8, GROUPS = 2, STEPS = GROUPS * 8, WINDOW = STEPS + TAPS - 1;
constexpr int STEP_BYTES = CHANNELS / 8 * PIECE_BYTES;
// Weights come in parts of so many inputs.
constexpr int PART_DEPTHS = DEPTH / 16, PART_BYTES = DEPTH / 8 * STEP_BYTES, TAP_PARTS = CHANNELS / DEPTH;
constexpr int UNIT_PARTS = (TAPS + 1) * TAP_PARTS;
// What a tile has begun with is asked for ahead, where there are registers for it.
constexpr bool PREFETCHED = CHANNELS == STRETCH;
constexpr bool STAYS = RING == UNIT_PARTS;
constexpr int BLOCKS_A_STRETCH = STRETCH / 32;
// Of the fetching warps the last one fetches weights.
constexpr int WINDOW_THREADS = (LOAD_WARPS - 1) * 32;
enum Of { TAPS_BIAS, TAPS_FREQUENCY, TAPS_GAIN, POINT_BIAS, NEXT_FREQUENCY, NEXT_GAIN, CONSTANTS };

struct Shared {
    alignas(128) unsigned char weights[RING][PART_BYTES];
    alignas(128) unsigned char windows[BUFFERS][WINDOW * STEP_BYTES];
    alignas(16) float constants[CONSTANTS * CHANNELS];
    Arrival come[RING], gone[RING], full[BUFFERS], empty[BUFFERS];
};
static_assert(sizeof(Shared) <= SHARED, "");
static_assert(WARPS == 4 * GROUPS && CHANNELS % 32 == 0 && DEPTH % 16 == 0 && CHANNELS % DEPTH == 0, "");
// All parts of the pointwise product are there at once.
static_assert(RING > TAP_PARTS, "");

DEVICE void await(Arrival &arrival, int turn) {
    for (int spins = 0; !all_lanes(arrived_here(arrival, turn)); ++spins)
        if (spins > SPINS) give_up();
}

// Where a tile is.
struct Tile {
    int stream, step;
    const Params &p;

    DEVICE_MEMBER Tile(const Params &p, int number) : p(p) {
        const int groups = (int)p.rows / STREAMS, rest = number / groups, dilation = (int)p.dilation;
        stream = number % groups * STREAMS;
        step = rest / dilation * (STEPS * dilation) + rest % dilation;
    }
    // Of the source, and of the output.
    DEVICE_MEMBER int step_at(int i) const { return step + i * (int)p.dilation; }
    DEVICE_MEMBER size_t line(i64 step, int row) const { return (size_t)(step * p.rows + stream + row) * CHANNELS; }
};

// Where something is that goes round.
template <int SIZE> struct Place {
    int at = 0, turn = 0;
    DEVICE_MEMBER void advance() {
        if (++at == SIZE) {
            at = 0;
            ++turn;
        }
    }
};

DEVICE void fetch_windows(const Params &p, Shared &shared, int thread) {
    // Neighbouring threads fetch the same pieces of neighbouring streams: so they lie in shared memory.
    constexpr int AT_ONCE = WINDOW_THREADS / STREAMS;
    static_assert(CHANNELS / 8 % AT_ONCE == 0, "");
    const int row = thread % STREAMS, chunk = thread / STREAMS;
    const int inputs = (int)p.steps + (TAPS - 1) * (int)p.dilation;
    const size_t apart = (size_t)(p.dilation * p.rows) * CHANNELS;
    Place<BUFFERS> buffer;
    for (int number = block_index(); number < p.tiles; number += (int)p.blocks) {
        const Tile tile(p, number);
        const u16 *from = p.source + tile.line(tile.step, row) + chunk * 8;
        unsigned char *to = shared.windows[buffer.at] + chunk * PIECE_BYTES + row * 16;
        // The first time round all are empty.
        await(shared.empty[buffer.at], buffer.turn + 1);
#pragma unroll 4
        for (int at = 0; at < WINDOW; ++at) {
            const bool there = tile.step_at(at) < inputs;
#pragma unroll
            for (int more = 0; more < CHANNELS / 8; more += AT_ONCE)
                copy_piece(to + more * PIECE_BYTES, there ? from + more * 8 : p.source, there);
            from += apart;
            to += STEP_BYTES;
        }
        await_pieces();
        arrive(shared.full[buffer.at]);
        buffer.advance();
    }
}

DEVICE void fetch_weights(const Params &p, Shared &shared) {
    Place<RING> slot;
    for (int number = block_index(); number < p.tiles; number += (int)p.blocks) {
        for (int part = 0; part < UNIT_PARTS; ++part) {
            await(shared.gone[slot.at], slot.turn + 1);
            if (thread_index() % 32 == 0) {
                expect(shared.come[slot.at], PART_BYTES);
                copy_kept(
                    shared.weights[slot.at], p.weights + (size_t)part * (PART_BYTES / 2), PART_BYTES, shared.come[slot.at]
                );
            }
            sync_warp();
            slot.advance();
        }
        if (STAYS) return;
    }
}

// The hardware's sine is the less exact the more turns there are; a thousand of them are lost in half precision's rounding.
DEVICE float snake(float x, float frequency, float gain) {
    const float wave = fast_sine(x * frequency);
    return x + gain * wave * wave;
}

// Four neighbours of a constant.
DEVICE float4 four(const Shared &shared, Of which, int channel) {
    return *(const float4 *)&shared.constants[which * CHANNELS + channel];
}

struct Multiplier {
    const Params &p;
    Shared &shared;
    const int group, warp, lane;
    Place<RING> slot{};
    Place<BUFFERS> buffer{};

    DEVICE_MEMBER void run() {
        for (int number = block_index(); number < p.tiles; number += (int)p.blocks) {
            work(Tile(p, number));
            buffer.advance();
        }
    }

  private:
    // Eight neighbouring channels from here on belong to this thread: `column` 8 * (4 * block + i / 2) + lane % 4 * 2 + i % 2
    // of a product is channel(block) + i.
    DEVICE_MEMBER int channel(int block) const { return block * 32 + lane % 4 * 8; }
    // Of the tile: a group's 64 lines are eight steps, of which a warp's are two; a thread's stream is lane / 4 at both.
    DEVICE_MEMBER int step_of(int half) const { return group * 8 + warp * 2 + half; }

    // The next part of the weights, once it is there.
    DEVICE_MEMBER Pieces weights() {
        await(shared.come[slot.at], STAYS ? 0 : slot.turn);
        const Pieces at = pieces(shared.weights[slot.at], STEP_BYTES, PIECE_BYTES);
        slot.advance();
        return at;
    }
    // What was multiplied by is read no more, the one before the last `later`.
    DEVICE_MEMBER void let_go(int later) {
        if (!STAYS && lane == 0) arrive(shared.gone[(slot.at + RING - 1 - later) % RING]);
    }

    DEVICE_MEMBER void work(const Tile &tile) {
        uint4 begun[2][BLOCKS_A_STRETCH];
        if (PREFETCHED) recall(begun, tile, 0);
        float sum[HELD];
        await(shared.full[buffer.at], buffer.turn);
        clear(sum);
        const Pieces seen = pieces(shared.windows[buffer.at] + group * 8 * STEP_BYTES, PIECE_BYTES, STEP_BYTES);
#pragma unroll 1
        for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
            for (int from = 0; from < TAP_PARTS; ++from) {
                const Pieces taps = weights();
                begin_products();
#pragma unroll
                for (int depth = 0; depth < PART_DEPTHS; ++depth)
                    multiply_group(
                        sum, further(seen, tap * STEP_BYTES + (from * PART_DEPTHS + depth) * 2 * PIECE_BYTES),
                        further(taps, depth * 2 * STEP_BYTES)
                    );
                end_products();
                if (!STAYS) await_products<1>();
                if (tap + from > 0) let_go(1);
            }
        await_products<0>();
        let_go(0);
        if (lane == 0) arrive(shared.empty[buffer.at]);

        settle(sum);
        Pieces point[TAP_PARTS];
#pragma unroll
        for (int from = 0; from < TAP_PARTS; ++from) point[from] = weights();
        u32 inner[CHANNELS / 16][4];
#pragma unroll
        for (int block = 0; block < CHANNELS / 32; ++block) waves(&inner[block * 2], &sum[block * 16], block);
#pragma unroll
        for (int stretch = 0; stretch < CHANNELS / STRETCH; ++stretch) {
            if (!PREFETCHED) recall(begun, tile, stretch);
            float out[STRETCH / 2];
            clear(out);
            begin_products();
#pragma unroll
            for (int depth = 0; depth < CHANNELS / 16; ++depth)
                multiply_group(
                    out, inner[depth],
                    further(
                        point[depth / PART_DEPTHS],
                        depth % PART_DEPTHS * 2 * STEP_BYTES + stretch * (STRETCH / 8) * PIECE_BYTES
                    )
                );
            end_products();
            await_products<0>();
            settle(out);
            leave(out, begun, tile, stretch);
        }
#pragma unroll
        for (int from = 0; from < TAP_PARTS; ++from) let_go(from);
    }
    // The pointwise product's left side, of 32 channels: sums behind their snake.
    DEVICE_MEMBER void waves(u32 (*inner)[4], const float *sums, int block) const {
#pragma unroll
        for (int quarter = 0; quarter < 2; ++quarter) {
            const int from = channel(block) + quarter * 4;
            const float4 bias = four(shared, TAPS_BIAS, from), frequency = four(shared, TAPS_FREQUENCY, from),
                         gain = four(shared, TAPS_GAIN, from);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float *own = sums + quarter * 8 + half * 2;
                inner[quarter][half] = pack_half(
                    snake(own[0] + bias.x, frequency.x, gain.x), snake(own[1] + bias.y, frequency.y, gain.y)
                );
                inner[quarter][2 + half] = pack_half(
                    snake(own[4] + bias.z, frequency.z, gain.z), snake(own[5] + bias.w, frequency.w, gain.w)
                );
            }
        }
    }
    DEVICE_MEMBER void recall(uint4 (&begun)[2][BLOCKS_A_STRETCH], const Tile &tile, int stretch) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int step = tile.step_at(step_of(half));
            const u16 *from = p.kept + tile.line(step, lane / 4);
#pragma unroll
            for (int block = 0; block < BLOCKS_A_STRETCH; ++block)
                if (step < p.steps) begun[half][block] = load_words(from + channel(stretch * BLOCKS_A_STRETCH + block));
        }
    }
    DEVICE_MEMBER void leave(
        const float *out, uint4 (&begun)[2][BLOCKS_A_STRETCH], const Tile &tile, int stretch
    ) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int step = tile.step_at(step_of(half));
#pragma unroll
            for (int block = 0; block < BLOCKS_A_STRETCH; ++block) {
                const int from = channel(stretch * BLOCKS_A_STRETCH + block);
                const float *own = out + block * 16 + half * 2;
                uint4 sum = begun[half][block], next;
                add(&sum.x, &next.x, own, from);
                add(&sum.z, &next.z, own + 8, from + 4);
                if (step < p.steps) {
                    *(uint4 *)(p.kept + tile.line(step, lane / 4) + from) = sum;
                    *(uint4 *)(p.onward + tile.line(p.room + step, lane / 4) + from) = next;
                }
            }
        }
    }
    // Of four channels: the sum, and what the next layer reads.
    DEVICE_MEMBER void add(u32 *kept, u32 *next, const float *out, int from) const {
        const float4 bias = four(shared, POINT_BIAS, from), frequency = four(shared, NEXT_FREQUENCY, from),
                     gain = four(shared, NEXT_GAIN, from);
        const float2 low = unpack_half(kept[0]), high = unpack_half(kept[1]);
        const float a = out[0] + bias.x + low.x, b = out[1] + bias.y + low.y, c = out[4] + bias.z + high.x,
                    d = out[5] + bias.w + high.y;
        kept[0] = pack_half(a, b);
        kept[1] = pack_half(c, d);
        next[0] = pack_half(snake(a, frequency.x, gain.x), snake(b, frequency.y, gain.y));
        next[1] = pack_half(snake(c, frequency.z, gain.z), snake(d, frequency.w, gain.w));
    }
};

KERNEL(residual_unit, THREADS + LOAD_WARPS * 32) {
    Shared &shared = *(Shared *)shared_memory();
    const int thread = thread_index();
    if (thread == 0) {
        for (int i = 0; i < RING; ++i) {
            prepare(shared.come[i], 1);
            prepare(shared.gone[i], WARPS);
        }
        for (int i = 0; i < BUFFERS; ++i) {
            prepare(shared.full[i], WINDOW_THREADS);
            prepare(shared.empty[i], WARPS);
        }
        publish_arrivals();
    }
    for (int i = thread; i < CONSTANTS * CHANNELS; i += THREADS + LOAD_WARPS * 32) shared.constants[i] = p.constants[i];
    sync_block();
    if (thread < THREADS) {
        if (CHANNELS > 96) take_registers();
        // The same in all lanes, which the compiler cannot know.
        const int warp = shuffle(thread / 32, 0);
        Multiplier{p, shared, warp / 4, warp % 4, thread % 32}.run();
    } else {
        if (CHANNELS > 96) leave_registers();
        if (thread < THREADS + WINDOW_THREADS) fetch_windows(p, shared, thread - THREADS);
        else fetch_weights(p, shared);
    }
}
