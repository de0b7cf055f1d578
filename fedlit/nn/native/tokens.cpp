// The token side of Global Layers, from columns to tokens, forward and backward, for the CPU.
//
// Embedding, normalisation over tokens, then transformer blocks (see fedlit/nn/blocks.py, which is the reference).
// Tokens and heads are a few numbers wide: too short to vectorise, and each operation of its own passes over all of
// them. Here a vector holds LANES rows of the batch, and whatever lies between two batch statistics is done for one
// tile of LANES rows while that is in the first-level cache. Backward computes again what is cheaper to compute than
// to fetch: only the input of each half block is kept.
//
// Needs GCC or Clang (vector extensions). Compiled with -DWIDTH -DHEADS -DHIDDEN -DGATED by fedlit/nn/native/build.py.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float V __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t I __attribute__((vector_size(4 * LANES)));

#define INLINE static inline __attribute__((always_inline))

namespace {

constexpr int SIZE = WIDTH / HEADS;  // of a head
constexpr int MAX_TOKENS = 128;      // checked by the caller

// Parameters of the network, then of each block, in this order.
enum { EMBED_WEIGHT, EMBED_BIAS, TOKEN_NORM_WEIGHT, TOKEN_NORM_BIAS, NETWORK_PARAMETERS };
enum { NORM1_WEIGHT, NORM1_BIAS, QKV, OUT, NORM2_WEIGHT, NORM2_BIAS, W1, W2, W3, BLOCK_PARAMETERS };

INLINE V splat(float x) { return V{} + x; }

// exp for x <= 88, to 2e-7; what is below -86 counts as -86, NaN stays NaN.
INLINE V exp(V x) {
    x = x < -86.0f ? splat(-86.0f) : x;
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits
    V shifted = x * 1.44269504088896341f + magic;
    V n = shifted - magic;
    V r = x - n * 0.693359375f + n * 2.12194440e-4f;
    V p = splat(8.297654957e-3f);  // least relative error on |r| <= ln(2) / 2
    p = p * r + 4.191538199e-2f;
    p = p * r + 1.666757473e-1f;
    p = p * r + 4.999889485e-1f;
    p = p * r + 9.999996920e-1f;
    p = p * r + 1.000000072f;
    return (V)((I)p + ((I)shifted << 23));  // times 2^n
}

constexpr float ALPHA = 1.6732632423543772f, SCALE = 1.0507009873554805f;

INLINE V selu(V x) { return x > 0.0f ? SCALE * x : SCALE * ALPHA * (exp(x) - 1.0f); }
INLINE V selu_slope(V x) { return x > 0.0f ? splat(SCALE) : SCALE * ALPHA * exp(x); }

INLINE float sum(V x) {
    double total = 0;
    for (int i = 0; i < LANES; ++i) total += x[i];
    return (float)total;
}

// out[t][o] = sum_i in[t][i] * w[o * OUT_STRIDE + i * IN_STRIDE]
template <int OUTS, int INS, int OUT_STRIDE, int IN_STRIDE>
INLINE void product(const V* __restrict in, const float* __restrict w, V* __restrict out, int tokens) {
    constexpr int O = OUTS % 8 == 0 ? 8 : OUTS % 4 == 0 ? 4 : 1;
    for (int t = 0; t < tokens; ++t)
        for (int o = 0; o < OUTS; o += O) {
            V total[O];
            for (int k = 0; k < O; ++k) total[k] = V{};
#pragma GCC unroll 16
            for (int i = 0; i < INS; ++i) {
                V x = in[t * INS + i];
#pragma GCC unroll 8
                for (int k = 0; k < O; ++k) total[k] += x * w[(o + k) * OUT_STRIDE + i * IN_STRIDE];
            }
            for (int k = 0; k < O; ++k) out[t * OUTS + o + k] = total[k];
        }
}

// total[o][i] += sum_t dout[t][o] * in[t][i], row by row of the batch (a vector each)
template <int OUTS, int INS>
INLINE void outer(const V* __restrict dout, const V* __restrict in, V* __restrict total, int tokens) {
    constexpr int O = OUTS % 4 == 0 ? 4 : 1, N = INS % 4 == 0 ? 4 : 1;
    for (int o = 0; o < OUTS; o += O)
        for (int i = 0; i < INS; i += N) {
            V part[O][N];
#pragma GCC unroll 4
            for (int a = 0; a < O; ++a)
#pragma GCC unroll 4
                for (int b = 0; b < N; ++b) part[a][b] = total[(o + a) * INS + i + b];
            for (int t = 0; t < tokens; ++t)
#pragma GCC unroll 4
                for (int a = 0; a < O; ++a)
#pragma GCC unroll 4
                    for (int b = 0; b < N; ++b) part[a][b] += dout[t * OUTS + o + a] * in[t * INS + i + b];
#pragma GCC unroll 4
            for (int a = 0; a < O; ++a)
#pragma GCC unroll 4
                for (int b = 0; b < N; ++b) total[(o + a) * INS + i + b] = part[a][b];
        }
}

// Normalisation over tokens. `mean` and `rstd` are of the batch in training, running ones otherwise.
struct Norm {
    const float *weight, *bias;
    float *mean, *rstd;
};

INLINE void normalise(const V* __restrict x, const Norm& norm, V* __restrict out, int tokens) {
    for (int t = 0; t < tokens; ++t) {
        float scale = norm.weight[t] * norm.rstd[t], shift = norm.bias[t] - norm.mean[t] * scale;
        for (int c = 0; c < WIDTH; ++c) out[t * WIDTH + c] = x[t * WIDTH + c] * scale + shift;
    }
}

INLINE void normalise(V* x, const Norm& norm, int tokens) {  // in place
    for (int t = 0; t < tokens; ++t) {
        float scale = norm.weight[t] * norm.rstd[t], shift = norm.bias[t] - norm.mean[t] * scale;
        for (int c = 0; c < WIDTH; ++c) x[t * WIDTH + c] = x[t * WIDTH + c] * scale + shift;
    }
}

// What backward needs of a normalisation: sums over the batch of dn and dn * (x - mean) * rstd.
struct Sums {
    V first[MAX_TOKENS], second[MAX_TOKENS];
    float dbias[MAX_TOKENS], dweight[MAX_TOKENS];

    void clear(int tokens) {
        for (int t = 0; t < tokens; ++t) first[t] = second[t] = V{};
    }
    INLINE void add(Sums& sums, const V* __restrict dn, const V* __restrict x, const Norm& norm, int tokens) {
        for (int t = 0; t < tokens; ++t) {
            V one = sums.first[t], two = V{};
            for (int c = 0; c < WIDTH; ++c) {
                one += dn[t * WIDTH + c];
                two += dn[t * WIDTH + c] * (x[t * WIDTH + c] - norm.mean[t]);
            }
            sums.first[t] = one;
            sums.second[t] += two * norm.rstd[t];
        }
    }
    void finish(int tokens) {
        for (int t = 0; t < tokens; ++t) dbias[t] = sum(first[t]), dweight[t] = sum(second[t]);
    }
};

// d (+)= the gradient with respect to the normalisation's input; share is 1 / numbers per token, 0 if frozen.
template <bool ADD>
INLINE void normalise_backward(
    V* __restrict d, const V* __restrict dn, const V* __restrict x, const Norm& norm, const Sums& sums, float share,
    V mask, int tokens
) {
    for (int t = 0; t < tokens; ++t) {
        float scale = norm.weight[t] * norm.rstd[t], one = sums.dbias[t] * share;
        float two = sums.dweight[t] * share * norm.rstd[t];
        for (int c = 0; c < WIDTH; ++c) {
            int k = t * WIDTH + c;
            V g = mask * (scale * (dn[k] - one - (x[k] - norm.mean[t]) * two));
            d[k] = ADD ? d[k] + g : g;
        }
    }
}

struct Block {
    Norm norm1, norm2;
    const float *qkv, *out, *w1, *w2, *w3;
};

// Attention of one head of one tile: probabilities of each key for one query.
INLINE void attend(const V* __restrict qkv, int head, int query, int tokens, V* __restrict p) {
    const float scale = 1.0f / std::sqrt((float)SIZE);
    V q[SIZE];
    for (int c = 0; c < SIZE; ++c) q[c] = qkv[query * 3 * WIDTH + head * SIZE + c] * scale;
    V top = splat(-INFINITY);
    for (int u = 0; u < tokens; ++u) {
        V s = V{};
        for (int c = 0; c < SIZE; ++c) s += q[c] * qkv[u * 3 * WIDTH + WIDTH + head * SIZE + c];
        p[u] = s;
        top = top < s ? s : top;
    }
    V total = V{};
    for (int u = 0; u < tokens; ++u) total += p[u] = exp(p[u] - top);
    total = 1.0f / total;
    for (int u = 0; u < tokens; ++u) p[u] *= total;
}

// x1 = x + attention(norm(x)) of one tile; n, qkv and attended are left for backward.
INLINE void attention(
    const V* __restrict x, const Block& block, int tokens, V* __restrict n, V* __restrict qkv, V* __restrict attended
) {
    normalise(x, block.norm1, n, tokens);
    product<3 * WIDTH, WIDTH, WIDTH, 1>(n, block.qkv, qkv, tokens);
    V p[MAX_TOKENS];
    for (int h = 0; h < HEADS; ++h)
        for (int t = 0; t < tokens; ++t) {
            attend(qkv, h, t, tokens, p);
            V mixed[SIZE];
            for (int c = 0; c < SIZE; ++c) mixed[c] = V{};
            for (int u = 0; u < tokens; ++u)
                for (int c = 0; c < SIZE; ++c) mixed[c] += p[u] * qkv[u * 3 * WIDTH + 2 * WIDTH + h * SIZE + c];
            for (int c = 0; c < SIZE; ++c) attended[t * WIDTH + h * SIZE + c] = mixed[c];
        }
}

// h1 = w1 n, h3 = w3 n, u = selu(h1) * h3, f = w2 u with n = norm(x) of one tile.
INLINE void feed_forward(
    const V* __restrict x, const Block& block, int tokens, V* __restrict n, V* __restrict h1, V* __restrict h3,
    V* __restrict u, V* __restrict f
) {
    normalise(x, block.norm2, n, tokens);
    product<HIDDEN, WIDTH, WIDTH, 1>(n, block.w1, h1, tokens);
    if (GATED) product<HIDDEN, WIDTH, WIDTH, 1>(n, block.w3, h3, tokens);
    for (int k = 0; k < tokens * HIDDEN; ++k) u[k] = GATED ? selu(h1[k]) * h3[k] : selu(h1[k]);
    product<WIDTH, HIDDEN, HIDDEN, 1>(u, block.w2, f, tokens);
}

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

// Aligned scratch of a thread; grows, is never returned before the thread ends (fresh pages cost more than the work).
V* scratch(size_t vectors) {
    thread_local std::unique_ptr<void, Free> memory;
    thread_local size_t size = 0;
    if (vectors > size) {
        memory.reset(std::aligned_alloc(64, (vectors * sizeof(V) + 63) / 64 * 64));
        size = vectors;
    }
    return (V*)memory.get();
}

V lanes_of(int rows, int tile) {
    V mask;
    for (int i = 0; i < LANES; ++i) mask[i] = tile * LANES + i < rows ? 1.0f : 0.0f;
    return mask;
}

// Mean and 1 / standard deviation of each token over rows and width; running statistics follow.
void batch_statistics(
    const V* x, int rows, int tokens, const Norm& norm, float* running_mean, float* running_var, float momentum,
    float eps
) {
    const int tiles = (rows + LANES - 1) / LANES;
    const double count = (double)rows * WIDTH;
    V total[MAX_TOKENS];
    for (int pass = 0; pass < 2; ++pass) {
        for (int t = 0; t < tokens; ++t) total[t] = V{};
        for (int b = 0; b < tiles; ++b) {
            const V mask = lanes_of(rows, b), *tile = x + (size_t)b * tokens * WIDTH;
            for (int t = 0; t < tokens; ++t) {
                V part = V{};
                float mean = norm.mean[t];
                if (pass == 0)
                    for (int c = 0; c < WIDTH; ++c) part += tile[t * WIDTH + c];
                else
                    for (int c = 0; c < WIDTH; ++c) {
                        V d = tile[t * WIDTH + c] - mean;
                        part += d * d;
                    }
                total[t] += part * mask;
            }
        }
        for (int t = 0; t < tokens; ++t) {
            double all = 0;
            for (int i = 0; i < LANES; ++i) all += total[t][i];
            if (pass == 0) {
                norm.mean[t] = (float)(all / count);
            } else {
                norm.rstd[t] = (float)(1.0 / std::sqrt(all / count + eps));
                running_mean[t] += momentum * (norm.mean[t] - running_mean[t]);
                running_var[t] += momentum * ((float)(all / (count - 1)) - running_var[t]);
            }
        }
    }
}

struct Network {
    const float* const* parameters;
    float* const* running;  // mean and variance of each normalisation, in the order of computation
    float* statistics;      // mean and rstd of each normalisation: (norms, 2, tokens)
    int rows, tokens, blocks, training;
    float momentum, eps;
    size_t network;  // position in a stack of networks

    const float* parameter(int k, size_t size) const { return parameters[k] + network * size; }
    Norm norm(int k, int weight) const {
        float* own = statistics + (network * (1 + 2 * blocks) + k) * 2 * tokens;
        return {parameter(weight, tokens), parameter(weight + 1, tokens), own, own + tokens};
    }
    int first(int block) const { return NETWORK_PARAMETERS + block * BLOCK_PARAMETERS; }
    Norm token_norm() const { return norm(0, TOKEN_NORM_WEIGHT); }
    Block block(int l) const {
        int k = first(l);
        return {norm(1 + 2 * l, k + NORM1_WEIGHT), norm(2 + 2 * l, k + NORM2_WEIGHT),
                parameter(k + QKV, 3 * WIDTH * WIDTH), parameter(k + OUT, WIDTH * WIDTH),
                parameter(k + W1, HIDDEN * WIDTH), parameter(k + W2, WIDTH * HIDDEN),
                GATED ? parameter(k + W3, HIDDEN * WIDTH) : nullptr};
    }
    void statistics_of(const V* x, int k, const Norm& own) const {
        float *mean = running[2 * k] + network * tokens, *var = running[2 * k + 1] + network * tokens;
        if (training) batch_statistics(x, rows, tokens, own, mean, var, momentum, eps);
    }
    void use_running() const {
        for (int k = 0; k < 1 + 2 * blocks; ++k) {
            float* own = statistics + (network * (1 + 2 * blocks) + k) * 2 * tokens;
            for (int t = 0; t < tokens; ++t) {
                own[t] = running[2 * k][network * tokens + t];
                own[tokens + t] = 1.0f / std::sqrt(running[2 * k + 1][network * tokens + t] + eps);
            }
        }
    }
    // One tile of the embedding's output.
    void embed(const float* x, int tile, V* out) const {
        const float *w = parameter(EMBED_WEIGHT, tokens * WIDTH), *b = parameter(EMBED_BIAS, tokens * WIDTH);
        for (int t = 0; t < tokens; ++t) {
            V column = V{};
            for (int i = 0; i < LANES && tile * LANES + i < rows; ++i) column[i] = x[(tile * LANES + i) * tokens + t];
            for (int c = 0; c < WIDTH; ++c) out[t * WIDTH + c] = column * w[t * WIDTH + c] + b[t * WIDTH + c];
        }
    }
};

// (tiles, tokens * width, lanes) <-> (rows, tokens * width)
void to_rows(const V* tile, int b, int rows, int numbers, float* out) {
    for (int i = 0; i < LANES && b * LANES + i < rows; ++i)
        for (int k = 0; k < numbers; ++k) out[(size_t)(b * LANES + i) * numbers + k] = ((const float*)tile)[k * LANES + i];
}
void from_rows(const float* in, int b, int rows, int numbers, V* tile) {
    for (int k = 0; k < numbers; ++k) tile[k] = V{};
    for (int i = 0; i < LANES && b * LANES + i < rows; ++i)
        for (int k = 0; k < numbers; ++k) ((float*)tile)[k * LANES + i] = in[(size_t)(b * LANES + i) * numbers + k];
}

void forward(const Network& net, const float* x, float* out, V* saved) {
    const int rows = net.rows, tokens = net.tokens, numbers = tokens * WIDTH;
    const int tiles = (rows + LANES - 1) / LANES;
    const size_t whole = (size_t)tiles * numbers;
    V* work = scratch((size_t)numbers * 7);
    V *n = work, *qkv = n + numbers, *attended = qkv + 3 * numbers, *mixed = attended + numbers, *last = mixed + numbers;
    V *h1 = qkv, *h3 = qkv + numbers, *u = qkv + 2 * numbers, *f = mixed;
    if (!net.training) net.use_running();

    auto half1 = [&](const Block& block, const V* in, V* to) {
        attention(in, block, tokens, n, qkv, attended);
        product<WIDTH, WIDTH, WIDTH, 1>(attended, block.out, mixed, tokens);
        for (int k = 0; k < numbers; ++k) to[k] = in[k] + mixed[k];
    };
    auto half2 = [&](const Block& block, const V* in, V* to) {
        feed_forward(in, block, tokens, n, h1, h3, u, f);
        for (int k = 0; k < numbers; ++k) to[k] = in[k] + selu(f[k]);
    };
    if (!saved) {  // not in training: nothing depends on the other rows: a tile goes through all blocks
        for (int b = 0; b < tiles; ++b) {
            net.embed(x, b, last);
            normalise(last, net.token_norm(), tokens);
            for (int l = 0; l < net.blocks; ++l) {
                Block block = net.block(l);
                half1(block, last, last);
                half2(block, last, last);
            }
            to_rows(last, b, rows, numbers, out);
        }
        return;
    }
    auto kept = [&](int k) { return saved + k * whole; };
    Norm token_norm = net.token_norm();
    for (int b = 0; b < tiles; ++b) net.embed(x, b, kept(0) + (size_t)b * numbers);
    net.statistics_of(kept(0), 0, token_norm);
    for (int b = 0; b < tiles; ++b) normalise(kept(0) + (size_t)b * numbers, token_norm, tokens);
    for (int l = 0; l < net.blocks; ++l) {
        Block block = net.block(l);
        net.statistics_of(kept(2 * l), 1 + 2 * l, block.norm1);
        for (int b = 0; b < tiles; ++b) half1(block, kept(2 * l) + (size_t)b * numbers, kept(2 * l + 1) + (size_t)b * numbers);
        net.statistics_of(kept(2 * l + 1), 2 + 2 * l, block.norm2);
        bool end = l + 1 == net.blocks;
        for (int b = 0; b < tiles; ++b) {
            V* to = end ? attended : kept(2 * l + 2) + (size_t)b * numbers;
            half2(block, kept(2 * l + 1) + (size_t)b * numbers, to);
            if (end) to_rows(to, b, rows, numbers, out);
        }
    }
}

void reduce(const V* total, float* out, int numbers) {
    for (int k = 0; k < numbers; ++k) out[k] = sum(total[k]);
}

void backward(const Network& net, const float* x, const float* dout, const V* saved, float* dx, float* const* gradients) {
    const int rows = net.rows, tokens = net.tokens, numbers = tokens * WIDTH, hidden = tokens * HIDDEN;
    const int tiles = (rows + LANES - 1) / LANES;
    const size_t whole = (size_t)tiles * numbers;
    constexpr int weights = 4 * WIDTH * WIDTH;
    V* work = scratch(2 * whole + (size_t)numbers * 12 + hidden * 6 + weights + 3 * HIDDEN * WIDTH + 2 * numbers);
    V *d = work, *dn = d + whole, *n = dn + whole, *qkv = n + numbers, *attended = qkv + 3 * numbers;
    V *dqkv = attended + numbers, *dattended = dqkv + 3 * numbers, *f = dattended + numbers, *df = f + numbers;
    V *h1 = df + 2 * numbers, *h3 = h1 + hidden, *u = h3 + hidden, *du = u + hidden, *dh1 = du + hidden, *dh3 = dh1 + hidden;
    V *dw_qkv = dh3 + hidden, *dw_out = dw_qkv + 3 * WIDTH * WIDTH, *dw1 = dw_out + WIDTH * WIDTH;
    V *dw3 = dw1 + HIDDEN * WIDTH, *dw2 = dw3 + HIDDEN * WIDTH, *de_weight = dw2 + HIDDEN * WIDTH, *de_bias = de_weight + numbers;
    const float share = net.training ? 1.0f / ((float)rows * WIDTH) : 0.0f;
    static thread_local Sums one, two;  // too large for the stack of a thread
    auto tile = [&](const V* all, int b) { return all + (size_t)b * numbers; };
    auto own = [&](int k, size_t size) { return gradients[k] + net.network * size; };
    auto kept = [&](int k) { return saved + k * whole; };

    for (int l = net.blocks - 1; l >= 0; --l) {
        const Block block = net.block(l);
        const int first = net.first(l);
        const V *in = kept(2 * l), *middle = kept(2 * l + 1);
        // x + selu(f): d is the gradient of the block's output; `two` holds the sums of the block above.
        std::memset((void*)dw1, 0, 3 * HIDDEN * WIDTH * sizeof(V));
        one.clear(tokens);
        Norm above = l + 1 < net.blocks ? net.block(l + 1).norm1 : Norm{};
        for (int b = 0; b < tiles; ++b) {
            V *dy = d + (size_t)b * numbers, *dn_tile = dn + (size_t)b * numbers;
            if (l + 1 == net.blocks)
                from_rows(dout, b, rows, numbers, dy);
            else
                normalise_backward<true>(dy, dn_tile, tile(kept(2 * l + 2), b), above, two, share, lanes_of(rows, b), tokens);
            feed_forward(tile(middle, b), block, tokens, n, h1, h3, u, f);
            for (int k = 0; k < numbers; ++k) df[k] = dy[k] * selu_slope(f[k]);
            product<HIDDEN, WIDTH, 1, HIDDEN>(df, block.w2, du, tokens);
            outer<WIDTH, HIDDEN>(df, u, dw2, tokens);
            for (int k = 0; k < hidden; ++k) {
                dh1[k] = (GATED ? du[k] * h3[k] : du[k]) * selu_slope(h1[k]);
                if (GATED) dh3[k] = du[k] * selu(h1[k]);
            }
            product<WIDTH, HIDDEN, 1, WIDTH>(dh1, block.w1, dn_tile, tokens);
            outer<HIDDEN, WIDTH>(dh1, n, dw1, tokens);
            if (GATED) {
                product<WIDTH, HIDDEN, 1, WIDTH>(dh3, block.w3, f, tokens);
                for (int k = 0; k < numbers; ++k) dn_tile[k] += f[k];
                outer<HIDDEN, WIDTH>(dh3, n, dw3, tokens);
            }
            Sums::add(one, dn_tile, tile(middle, b), block.norm2, tokens);
        }
        one.finish(tokens);
        reduce(dw1, own(first + W1, HIDDEN * WIDTH), HIDDEN * WIDTH);
        reduce(dw2, own(first + W2, HIDDEN * WIDTH), HIDDEN * WIDTH);
        if (GATED) reduce(dw3, own(first + W3, HIDDEN * WIDTH), HIDDEN * WIDTH);
        std::memcpy(own(first + NORM2_WEIGHT, tokens), one.dweight, tokens * sizeof(float));
        std::memcpy(own(first + NORM2_BIAS, tokens), one.dbias, tokens * sizeof(float));

        // x + attention(n)
        std::memset((void*)dw_qkv, 0, weights * sizeof(V));
        two.clear(tokens);
        const float scale = 1.0f / std::sqrt((float)SIZE);
        for (int b = 0; b < tiles; ++b) {
            V *dy = d + (size_t)b * numbers, *dn_tile = dn + (size_t)b * numbers;
            normalise_backward<true>(dy, dn_tile, tile(middle, b), block.norm2, one, share, lanes_of(rows, b), tokens);
            normalise(tile(in, b), block.norm1, n, tokens);
            product<3 * WIDTH, WIDTH, WIDTH, 1>(n, block.qkv, qkv, tokens);
            product<WIDTH, WIDTH, 1, WIDTH>(dy, block.out, dattended, tokens);
            for (int h = 0; h < HEADS; ++h) {
                const int q0 = h * SIZE, k0 = WIDTH + h * SIZE, v0 = 2 * WIDTH + h * SIZE;
                for (int t = 0; t < tokens; ++t)
                    for (int c = 0; c < SIZE; ++c) dqkv[t * 3 * WIDTH + k0 + c] = dqkv[t * 3 * WIDTH + v0 + c] = V{};
                V p[MAX_TOKENS], dp[MAX_TOKENS];
                for (int t = 0; t < tokens; ++t) {
                    attend(qkv, h, t, tokens, p);
                    V inner = V{}, mixed[SIZE], dq[SIZE], da[SIZE], q[SIZE];
                    for (int c = 0; c < SIZE; ++c) {
                        mixed[c] = dq[c] = V{};
                        da[c] = dattended[t * WIDTH + q0 + c];
                        q[c] = qkv[t * 3 * WIDTH + q0 + c] * scale;
                    }
                    for (int s = 0; s < tokens; ++s) {
                        V total = V{};
                        for (int c = 0; c < SIZE; ++c) {
                            V v = qkv[s * 3 * WIDTH + v0 + c];
                            total += da[c] * v;
                            mixed[c] += p[s] * v;
                            dqkv[s * 3 * WIDTH + v0 + c] += p[s] * da[c];
                        }
                        dp[s] = total;
                        inner += p[s] * total;
                    }
                    for (int s = 0; s < tokens; ++s) {
                        V ds = p[s] * (dp[s] - inner);
                        for (int c = 0; c < SIZE; ++c) {
                            dq[c] += ds * qkv[s * 3 * WIDTH + k0 + c];
                            dqkv[s * 3 * WIDTH + k0 + c] += ds * q[c];
                        }
                    }
                    for (int c = 0; c < SIZE; ++c) {
                        attended[t * WIDTH + q0 + c] = mixed[c];
                        dqkv[t * 3 * WIDTH + q0 + c] = dq[c] * scale;
                    }
                }
            }
            outer<WIDTH, WIDTH>(dy, attended, dw_out, tokens);
            outer<3 * WIDTH, WIDTH>(dqkv, n, dw_qkv, tokens);
            product<WIDTH, 3 * WIDTH, 1, WIDTH>(dqkv, block.qkv, dn_tile, tokens);
            Sums::add(two, dn_tile, tile(in, b), block.norm1, tokens);
        }
        two.finish(tokens);
        reduce(dw_qkv, own(first + QKV, 3 * WIDTH * WIDTH), 3 * WIDTH * WIDTH);
        reduce(dw_out, own(first + OUT, WIDTH * WIDTH), WIDTH * WIDTH);
        std::memcpy(own(first + NORM1_WEIGHT, tokens), two.dweight, tokens * sizeof(float));
        std::memcpy(own(first + NORM1_BIAS, tokens), two.dbias, tokens * sizeof(float));
    }

    // Token normalisation and embedding.
    const Norm token_norm = net.token_norm(), bottom = net.block(0).norm1;
    const float* embed_weight = net.parameter(EMBED_WEIGHT, numbers);
    one.clear(tokens);
    for (int b = 0; b < tiles; ++b) {
        V* dy = d + (size_t)b * numbers;
        normalise_backward<true>(dy, dn + (size_t)b * numbers, tile(kept(0), b), bottom, two, share, lanes_of(rows, b), tokens);
        net.embed(x, b, f);
        Sums::add(one, dy, f, token_norm, tokens);
    }
    one.finish(tokens);
    std::memset((void*)de_weight, 0, 2 * numbers * sizeof(V));
    for (int b = 0; b < tiles; ++b) {
        V* dy = d + (size_t)b * numbers;
        net.embed(x, b, f);
        normalise_backward<false>(df, dy, f, token_norm, one, share, lanes_of(rows, b), tokens);
        for (int t = 0; t < tokens; ++t) {
            V column = V{}, dcolumn = V{};
            for (int i = 0; i < LANES && b * LANES + i < rows; ++i) column[i] = x[(b * LANES + i) * tokens + t];
            for (int c = 0; c < WIDTH; ++c) {
                int k = t * WIDTH + c;
                de_weight[k] += df[k] * column;
                de_bias[k] += df[k];
                dcolumn += df[k] * embed_weight[k];
            }
            for (int i = 0; i < LANES && b * LANES + i < rows; ++i) dx[(b * LANES + i) * tokens + t] = dcolumn[i];
        }
    }
    reduce(de_weight, own(EMBED_WEIGHT, numbers), numbers);
    reduce(de_bias, own(EMBED_BIAS, numbers), numbers);
    std::memcpy(own(TOKEN_NORM_WEIGHT, tokens), one.dweight, tokens * sizeof(float));
    std::memcpy(own(TOKEN_NORM_BIAS, tokens), one.dbias, tokens * sizeof(float));
}

}  // namespace

extern "C" {

int tokens_lanes() { return LANES; }

// A stack of networks, each with rows of its own: x (stack, rows, tokens), out (stack, rows, tokens * width),
// statistics (stack, 1 + 2 * blocks, 2, tokens), parameters and running statistics (stack, ...) each.
// saved: (stack, 2 * blocks, tiles * tokens * width * lanes), or null where no backward follows.
void tokens_forward(
    int stack, int rows, int tokens, int blocks, int training, float momentum, float eps, const float* x, float* out,
    const float* const* parameters, float* const* running, float* statistics, float* saved
) {
    const size_t tiles = (rows + LANES - 1) / LANES, numbers = tokens * WIDTH;
    for (int s = 0; s < stack; ++s) {
        Network net{parameters, running, statistics, rows, tokens, blocks, training, momentum, eps, (size_t)s};
        forward(net, x + (size_t)s * rows * tokens, out + s * rows * numbers,
                saved ? (V*)saved + s * 2 * blocks * tiles * numbers : nullptr);
    }
}

void tokens_backward(
    int stack, int rows, int tokens, int blocks, int training, const float* x, const float* dout,
    const float* const* parameters, float* statistics, const float* saved, float* dx, float* const* gradients
) {
    const size_t tiles = (rows + LANES - 1) / LANES, numbers = tokens * WIDTH;
    for (int s = 0; s < stack; ++s) {
        Network net{parameters, nullptr, statistics, rows, tokens, blocks, training, 0, 0, (size_t)s};
        backward(net, x + (size_t)s * rows * tokens, dout + s * rows * numbers,
                 (const V*)saved + s * 2 * blocks * tiles * numbers, dx + (size_t)s * rows * tokens, gradients);
    }
}
}
