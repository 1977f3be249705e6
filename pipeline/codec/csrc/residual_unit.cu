// A residual unit of the codec's last vocoder blocks: a dilated convolution of seven taps, a snake, a pointwise
// product, the residual sum, and the snake of the next layer.
//
// A block loads its inputs once instead of once a tap: a tile is some steps of eight streams, `dilation` apart, so that
// the inputs of the next tap are those of the next step. Weights stay in shared memory where all of them fit (RING
// equals their number of blocks); otherwise they are loaded again for every tile. Four warps load while two groups of
// four warps multiply; one group may compute sines while the other multiplies.

#include "wgmma.h"

// float16 but for `constants`. `source`: [(TAPS - 1) * dilation + steps, rows, CHANNELS]; `weights`: core matrices of
// the taps and of the pointwise product, columns in the order of `Worker::channel`; `constants`: float32 [6, CHANNELS],
// in the order of `Constant`; `residual`: [steps, rows, CHANNELS], added to; `output`: [history_steps + steps, rows,
// CHANNELS].
struct Params {
    const u16 *source, *weights;
    const float *constants;
    u16 *residual, *output;
    i64 steps, rows, dilation, history_steps, tiles, blocks;
};

constexpr int TAPS = 7, STREAMS = 8, GROUPS = 2, STEPS = GROUPS * 8, WINDOW = STEPS + TAPS - 1;
constexpr int STEP_BYTES = CHANNELS / 8 * CORE_MATRIX_BYTES;
// Weights are loaded in blocks of DEPTH inputs.
constexpr int BLOCK_DEPTHS = DEPTH / 16, BLOCK_BYTES = DEPTH / 8 * STEP_BYTES, TAP_BLOCKS = CHANNELS / DEPTH;
constexpr int UNIT_BLOCKS = (TAPS + 1) * TAP_BLOCKS;
// The residual is prefetched where the registers suffice.
constexpr bool PREFETCHED = CHANNELS == COLUMN_BLOCK;
constexpr bool RESIDENT = RING == UNIT_BLOCKS;
constexpr int CHANNEL_GROUPS = COLUMN_BLOCK / 32;
// The last loading warp loads weights, the others load windows of inputs.
constexpr int WINDOW_THREADS = (LOAD_WARPS - 1) * 32;
enum Constant { TAPS_BIAS, TAPS_FREQUENCY, TAPS_GAIN, POINT_BIAS, NEXT_FREQUENCY, NEXT_GAIN, CONSTANTS };

struct Shared {
    alignas(128) unsigned char weights[RING][BLOCK_BYTES];
    alignas(128) unsigned char windows[BUFFERS][WINDOW * STEP_BYTES];
    alignas(16) float constants[CONSTANTS * CHANNELS];
    Mbarrier weights_full[RING], weights_empty[RING], window_full[BUFFERS], window_empty[BUFFERS];
};
static_assert(sizeof(Shared) <= SHARED, "");
static_assert(WARPS == 4 * GROUPS && CHANNELS % 32 == 0 && DEPTH % 16 == 0 && CHANNELS % DEPTH == 0, "");
// All blocks of the pointwise product are in the ring at the same time.
static_assert(RING > TAP_BLOCKS, "");

DEVICE void wait(Mbarrier &barrier, int round) {
    for (int spins = 0; !all_lanes(mbarrier_try_wait_cta(barrier, round)); ++spins)
        if (spins > SPINS) trap();
}

// Streams and steps of a tile.
struct Tile {
    int stream, step;
    const Params &p;

    DEVICE_MEMBER Tile(const Params &p, int number) : p(p) {
        const int groups = (int)p.rows / STREAMS, rest = number / groups, dilation = (int)p.dilation;
        stream = number % groups * STREAMS;
        step = rest / dilation * (STEPS * dilation) + rest % dilation;
    }
    // In the source and in the output.
    DEVICE_MEMBER int step_at(int i) const { return step + i * (int)p.dilation; }
    DEVICE_MEMBER size_t line(i64 step, int row) const { return (size_t)(step * p.rows + stream + row) * CHANNELS; }
};

// Position in a ring, and the number of rounds.
template <int SIZE> struct RingCursor {
    int at = 0, round = 0;
    DEVICE_MEMBER void advance() {
        if (++at == SIZE) {
            at = 0;
            ++round;
        }
    }
};

DEVICE void load_windows(const Params &p, Shared &shared, int thread) {
    // Neighbouring threads load the same channels of neighbouring streams, which are adjacent in a core matrix.
    constexpr int CHUNKS = WINDOW_THREADS / STREAMS;
    static_assert(CHANNELS / 8 % CHUNKS == 0, "");
    const int row = thread % STREAMS, chunk = thread / STREAMS;
    const int inputs = (int)p.steps + (TAPS - 1) * (int)p.dilation;
    const size_t tap_stride = (size_t)(p.dilation * p.rows) * CHANNELS;
    RingCursor<BUFFERS> buffer;
    for (int number = block_index(); number < p.tiles; number += (int)p.blocks) {
        const Tile tile(p, number);
        const u16 *from = p.source + tile.line(tile.step, row) + chunk * 8;
        unsigned char *to = shared.windows[buffer.at] + chunk * CORE_MATRIX_BYTES + row * 16;
        // The first round does not wait.
        wait(shared.window_empty[buffer.at], buffer.round + 1);
#pragma unroll 4
        for (int at = 0; at < WINDOW; ++at) {
            const bool real = tile.step_at(at) < inputs;
#pragma unroll
            for (int more = 0; more < CHANNELS / 8; more += CHUNKS)
                cp_async_16(to + more * CORE_MATRIX_BYTES, real ? from + more * 8 : p.source, real);
            from += tap_stride;
            to += STEP_BYTES;
        }
        cp_async_wait_all();
        mbarrier_arrive(shared.window_full[buffer.at]);
        buffer.advance();
    }
}

DEVICE void load_weights(const Params &p, Shared &shared) {
    RingCursor<RING> slot;
    for (int number = block_index(); number < p.tiles; number += (int)p.blocks) {
        for (int weight_block = 0; weight_block < UNIT_BLOCKS; ++weight_block) {
            wait(shared.weights_empty[slot.at], slot.round + 1);
            if (thread_index() % 32 == 0) {
                mbarrier_expect_tx(shared.weights_full[slot.at], BLOCK_BYTES);
                tma_load_keep(
                    shared.weights[slot.at], p.weights + (size_t)weight_block * (BLOCK_BYTES / 2), BLOCK_BYTES,
                    shared.weights_full[slot.at]
                );
            }
            sync_warp();
            slot.advance();
        }
        if (RESIDENT) return;
    }
}

// The hardware's sine loses accuracy with the number of turns; at a thousand turns the error is still below the
// rounding of float16.
DEVICE float snake(float x, float frequency, float gain) {
    const float sine = fast_sine(x * frequency);
    return x + gain * sine * sine;
}

// A constant of four neighbouring channels.
DEVICE float4 constant4(const Shared &shared, Constant which, int channel) {
    return *(const float4 *)&shared.constants[which * CHANNELS + channel];
}

struct Worker {
    const Params &p;
    Shared &shared;
    const int group, warp, lane;
    RingCursor<RING> slot{};
    RingCursor<BUFFERS> buffer{};

    DEVICE_MEMBER void run() {
        for (int number = block_index(); number < p.tiles; number += (int)p.blocks) {
            run_tile(Tile(p, number));
            buffer.advance();
        }
    }

  private:
    // A thread owns eight neighbouring channels from here on: column 8 * (4 * block + i / 2) + lane % 4 * 2 + i % 2 of
    // a product is channel(block) + i.
    DEVICE_MEMBER int channel(int block) const { return block * 32 + lane % 4 * 8; }
    // The 64 lines of a group are eight steps of eight streams, of which a warp has two steps; a thread's stream is
    // lane / 4 in both.
    DEVICE_MEMBER int step_of(int half) const { return group * 8 + warp * 2 + half; }

    // Waits for the next block of weights.
    DEVICE_MEMBER Matrix weights() {
        wait(shared.weights_full[slot.at], RESIDENT ? 0 : slot.round);
        const Matrix at = describe(shared.weights[slot.at], STEP_BYTES, CORE_MATRIX_BYTES);
        slot.advance();
        return at;
    }
    // Releases a block of weights after its product: the one before the last `age`.
    DEVICE_MEMBER void release_weights(int age) {
        if (!RESIDENT && lane == 0) mbarrier_arrive(shared.weights_empty[(slot.at + RING - 1 - age) % RING]);
    }

    DEVICE_MEMBER void run_tile(const Tile &tile) {
        uint4 own_residual[2][CHANNEL_GROUPS];
        if (PREFETCHED) load_residual(own_residual, tile, 0);
        float sum[ACCUMULATORS];
        wait(shared.window_full[buffer.at], buffer.round);
        clear(sum);
        const Matrix window =
            describe(shared.windows[buffer.at] + group * 8 * STEP_BYTES, CORE_MATRIX_BYTES, STEP_BYTES);
#pragma unroll 1
        for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
            for (int from = 0; from < TAP_BLOCKS; ++from) {
                const Matrix tap_weights = weights();
                wgmma_fence();
#pragma unroll
                for (int depth = 0; depth < BLOCK_DEPTHS; ++depth)
                    wgmma(
                        sum, advance(window, tap * STEP_BYTES + (from * BLOCK_DEPTHS + depth) * 2 * CORE_MATRIX_BYTES),
                        advance(tap_weights, depth * 2 * STEP_BYTES)
                    );
                wgmma_commit();
                if (!RESIDENT) wgmma_wait<1>();
                if (tap + from > 0) release_weights(1);
            }
        wgmma_wait<0>();
        release_weights(0);
        if (lane == 0) mbarrier_arrive(shared.window_empty[buffer.at]);

        fence_accumulators(sum);
        Matrix point[TAP_BLOCKS];
#pragma unroll
        for (int from = 0; from < TAP_BLOCKS; ++from) point[from] = weights();
        u32 inner[CHANNELS / 16][4];
#pragma unroll
        for (int block = 0; block < CHANNELS / 32; ++block) snake_tile(&inner[block * 2], &sum[block * 16], block);
#pragma unroll
        for (int column_block = 0; column_block < CHANNELS / COLUMN_BLOCK; ++column_block) {
            if (!PREFETCHED) load_residual(own_residual, tile, column_block);
            float out[COLUMN_BLOCK / 2];
            clear(out);
            wgmma_fence();
#pragma unroll
            for (int depth = 0; depth < CHANNELS / 16; ++depth)
                wgmma(
                    out, inner[depth],
                    advance(
                        point[depth / BLOCK_DEPTHS],
                        depth % BLOCK_DEPTHS * 2 * STEP_BYTES + column_block * (COLUMN_BLOCK / 8) * CORE_MATRIX_BYTES
                    )
                );
            wgmma_commit();
            wgmma_wait<0>();
            fence_accumulators(out);
            store_output(out, own_residual, tile, column_block);
        }
#pragma unroll
        for (int from = 0; from < TAP_BLOCKS; ++from) release_weights(from);
    }
    // The pointwise product's left operand for 32 channels: sums through the snake.
    DEVICE_MEMBER void snake_tile(u32 (*inner)[4], const float *sums, int block) const {
#pragma unroll
        for (int quarter = 0; quarter < 2; ++quarter) {
            const int from = channel(block) + quarter * 4;
            const float4 bias = constant4(shared, TAPS_BIAS, from), frequency = constant4(shared, TAPS_FREQUENCY, from),
                         gain = constant4(shared, TAPS_GAIN, from);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float *own = sums + quarter * 8 + half * 2;
                inner[quarter][half] = pack_f16(
                    snake(own[0] + bias.x, frequency.x, gain.x), snake(own[1] + bias.y, frequency.y, gain.y)
                );
                inner[quarter][2 + half] = pack_f16(
                    snake(own[4] + bias.z, frequency.z, gain.z), snake(own[5] + bias.w, frequency.w, gain.w)
                );
            }
        }
    }
    DEVICE_MEMBER void load_residual(
        uint4 (&own_residual)[2][CHANNEL_GROUPS], const Tile &tile, int column_block
    ) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int step = tile.step_at(step_of(half));
            const u16 *from = p.residual + tile.line(step, lane / 4);
#pragma unroll
            for (int block = 0; block < CHANNEL_GROUPS; ++block)
                if (step < p.steps)
                    own_residual[half][block] = load_words(from + channel(column_block * CHANNEL_GROUPS + block));
        }
    }
    DEVICE_MEMBER void store_output(
        const float *out, uint4 (&own_residual)[2][CHANNEL_GROUPS], const Tile &tile, int column_block
    ) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int step = tile.step_at(step_of(half));
#pragma unroll
            for (int block = 0; block < CHANNEL_GROUPS; ++block) {
                const int from = channel(column_block * CHANNEL_GROUPS + block);
                const float *own = out + block * 16 + half * 2;
                uint4 sum = own_residual[half][block], next;
                add_residual(&sum.x, &next.x, own, from);
                add_residual(&sum.z, &next.z, own + 8, from + 4);
                if (step < p.steps) {
                    *(uint4 *)(p.residual + tile.line(step, lane / 4) + from) = sum;
                    *(uint4 *)(p.output + tile.line(p.history_steps + step, lane / 4) + from) = next;
                }
            }
        }
    }
    // For four channels: the residual sum, and the input of the next layer.
    DEVICE_MEMBER void add_residual(u32 *residual, u32 *next, const float *out, int from) const {
        const float4 bias = constant4(shared, POINT_BIAS, from), frequency = constant4(shared, NEXT_FREQUENCY, from),
                     gain = constant4(shared, NEXT_GAIN, from);
        const float2 low = unpack_f16(residual[0]), high = unpack_f16(residual[1]);
        const float a = out[0] + bias.x + low.x, b = out[1] + bias.y + low.y, c = out[4] + bias.z + high.x,
                    d = out[5] + bias.w + high.y;
        residual[0] = pack_f16(a, b);
        residual[1] = pack_f16(c, d);
        next[0] = pack_f16(snake(a, frequency.x, gain.x), snake(b, frequency.y, gain.y));
        next[1] = pack_f16(snake(c, frequency.z, gain.z), snake(d, frequency.w, gain.w));
    }
};

KERNEL(residual_unit, THREADS + LOAD_WARPS * 32) {
    Shared &shared = *(Shared *)shared_memory();
    const int thread = thread_index();
    if (thread == 0) {
        for (int i = 0; i < RING; ++i) {
            mbarrier_init(shared.weights_full[i], 1);
            mbarrier_init(shared.weights_empty[i], WARPS);
        }
        for (int i = 0; i < BUFFERS; ++i) {
            mbarrier_init(shared.window_full[i], WINDOW_THREADS);
            mbarrier_init(shared.window_empty[i], WARPS);
        }
        fence_mbarrier_init();
    }
    for (int i = thread; i < CONSTANTS * CHANNELS; i += THREADS + LOAD_WARPS * 32) shared.constants[i] = p.constants[i];
    sync_block();
    if (thread < THREADS) {
        if (CHANNELS > 96) setmaxnreg_inc_232();
        // Equal in all lanes, which the compiler cannot infer.
        const int warp = shuffle(thread / 32, 0);
        Worker{p, shared, warp / 4, warp % 4, thread % 32}.run();
    } else {
        if (CHANNELS > 96) setmaxnreg_dec_40();
        if (thread < THREADS + WINDOW_THREADS) load_windows(p, shared, thread - THREADS);
        else load_weights(p, shared);
    }
}
