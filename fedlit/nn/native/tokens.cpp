// The token side of Global Layers, from columns to tokens, forward and backward, for the CPU.
//
// Embedding, normalisation over tokens, then transformer blocks (see fedlit/nn/blocks.py, which is the reference).
// Tokens and heads are a few numbers wide: too short to vectorise, and each operation of its own passes over all of
// them. Here a vector holds LANES rows of the batch, and whatever lies between two batch statistics is done for one
// tile of LANES rows while that is in the first-level cache. Backward computes again what is cheaper to compute than
// to fetch: only the input of each half block is kept.
//
// Needs GCC or Clang (vector extensions). Compiled with -DWIDTH -DHEADS -DHIDDEN -DGATED by fedlit/nn/native/build.py.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#if defined(__AVX512F__)
constexpr int LANES = 16, REGISTERS = 32;
#elif defined(__AVX__)
constexpr int LANES = 8, REGISTERS = 16;
#else
constexpr int LANES = 4, REGISTERS = 16;
#endif

typedef float V __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t I __attribute__((vector_size(4 * LANES)));   // of comparisons
typedef uint32_t U __attribute__((vector_size(4 * LANES)));  // bits of numbers: sums may wrap around

#define ALWAYS __attribute__((always_inline))
#define INLINE static inline ALWAYS
// Inlined into a loop, these would have what does not change in it computed before it, and spilled.
#define NOINLINE static __attribute__((noinline))

namespace {

constexpr int SIZE = WIDTH / HEADS;  // of a head
constexpr int MAX_TOKENS = 128;      // checked by the caller

// Parameters of the network, then of each block, in this order.
enum { EMBED_WEIGHT, EMBED_BIAS, TOKEN_NORM_WEIGHT, TOKEN_NORM_BIAS, NETWORK_PARAMETERS };
enum { NORM1_WEIGHT, NORM1_BIAS, QKV, OUT, NORM2_WEIGHT, NORM2_BIAS, W1, W2, W3, BLOCK_PARAMETERS };

INLINE V splat(float x) { return V{} + x; }
INLINE V larger(V a, V b) { return a > b ? a : b; }  // b where one is NaN

// A number that several products share: GCC folds a plain read into each of them, and reads it as often.
INLINE V once(const V* x) { return *(const volatile V*)x; }

// x = n + r, n whole, |r| <= 1 / 2, for -126 <= x <= 127: r, and what added to a number's bits multiplies it by 2^n.
INLINE V split(V x, U& power) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits
    V shifted = x + magic;
    power = (U)shifted << 23;
    return x - (shifted - magic);
}

// (2^r - 1) / r for such an r; the relative error of 2^r is 1.5e-7.
INLINE V growth(V r) {
    V p = splat(1.326468923e-3f);
    p = p * r + 9.671505944e-3f;
    p = p * r + 5.550733774e-2f;
    p = p * r + 2.402224219e-1f;
    return p * r + 6.931469776e-1f;
}

constexpr float LOG2E = 1.4426950408889634f;

INLINE V exp2(V x) {
    U power;
    V r = split(x, power), p = growth(r) * r + 1.0f;
    return (V)((U)p + power);
}

constexpr float ALPHA = 1.6732632423543772f, SCALE = 1.0507009873554805f;

INLINE V selu(V x) {
    U power;
    V r = split(larger(splat(-126.0f), x * LOG2E), power), whole = (V)((U)splat(SCALE * ALPHA) + power);
    V low = growth(r) * r * whole + (whole - SCALE * ALPHA);  // SCALE * ALPHA * (exp(x) - 1): near 0 nothing cancels
    return x > 0.0f ? SCALE * x : low;
}
INLINE V selu_slope(V y) { return y > 0.0f ? splat(SCALE) : y + SCALE * ALPHA; }  // where y = selu(x)

// Sum of a vector's numbers, in halves.
template <int N = LANES>
INLINE float sum(const float* x) {
    if constexpr (N == 1) {
        return *x;
    } else {
        typedef float Half __attribute__((vector_size(2 * N), aligned(4), may_alias));
        Half half = *(const Half*)x + *(const Half*)(x + N / 2);
        return sum<N / 2>((const float*)&half);
    }
}

INLINE bool any(I condition) {
    int64_t parts[LANES / 2], found = 0;
    std::memcpy(parts, &condition, sizeof parts);
    for (int64_t part : parts) found |= part;
    return found != 0;
}

constexpr int divisor(int number, int most) { return number % most == 0 ? most : divisor(number, most - 1); }

template <int T, int O, int INS, class Weight, class Emit>
NOINLINE void product_block(const V* in, int k, int stride, Weight weight, Emit emit) {
    V total[T][O] = {};
#pragma GCC unroll 2
    for (int i = 0; i < INS; ++i)
#pragma GCC unroll 8
        for (int o = 0; o < O; ++o)
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) total[t][o] += in[t * INS + i] * weight(o, i);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 8
        for (int o = 0; o < O; ++o) emit(k + t * stride + o, total[t][o]);
}

// The last tokens, at most T.
template <int T, int O, int INS, class Weight, class Emit>
INLINE void product_rest(const V* in, int k, int stride, int tokens, Weight weight, Emit emit) {
    if constexpr (T > 0) {
        if (tokens == T)
            product_block<T, O, INS>(in, k, stride, weight, emit);
        else
            product_rest<T - 1, O, INS>(in, k, stride, tokens, weight, emit);
    }
}

// emit(t * OUTS + o, sum_i in[t][i] * weight(o, i)) for each token t and output o. Several of both at once, as many as
// there are registers for their sums: each number that is read then serves several products.
template <int OUTS, int INS, class Weight, class Emit>
INLINE void product(const V* in, int tokens, Weight weight, Emit emit) {
    constexpr int O = divisor(OUTS, REGISTERS / 4), T = std::min(4, REGISTERS * 3 / 4 / O);
    for (int o = 0; o < OUTS; o += O) {
        auto own = [=](int k, int i) ALWAYS { return weight(o + k, i); };
        int t = 0;
        for (; t + T <= tokens; t += T) product_block<T, O, INS>(in + t * INS, t * OUTS + o, OUTS, own, emit);
        product_rest<T - 1, O, INS>(in + t * INS, t * OUTS + o, OUTS, tokens - t, own, emit);
    }
}

// For the product: the weight of input i in output o, and what is done with number k of the result.
template <int INS>
INLINE auto straight(const float* w) {
    return [=](int o, int i) ALWAYS { return w[o * INS + i]; };
}
template <int OUTS>
INLINE auto transposed(const float* w) {
    return [=](int o, int i) ALWAYS { return w[i * OUTS + o]; };
}
INLINE auto into(V* out) {
    return [=](int k, V y) ALWAYS { out[k] = y; };
}

// total[o][i] += sum_t dout[t][o] * in[t][i], row by row of the batch (a vector each)
template <int OUTS, int INS>
INLINE void outer(const V* dout, const V* in, V* total, int tokens) {
    constexpr int O = divisor(OUTS, REGISTERS >= 32 ? 6 : 4), N = divisor(INS, REGISTERS >= 32 ? 4 : 2);
    for (int o = 0; o < OUTS; o += O)
        for (int i = 0; i < INS; i += N) {
            V part[O][N] = {};  // not the total, which would have to be read before the first product
            for (int t = 0; t < tokens; ++t) {
                V x[N];
#pragma GCC unroll 8
                for (int b = 0; b < N; ++b) x[b] = once(in + t * INS + i + b);
#pragma GCC unroll 8
                for (int a = 0; a < O; ++a) {
                    V y = once(dout + t * OUTS + o + a);
#pragma GCC unroll 8
                    for (int b = 0; b < N; ++b) part[a][b] += y * x[b];
                }
            }
#pragma GCC unroll 8
            for (int a = 0; a < O; ++a)
#pragma GCC unroll 8
                for (int b = 0; b < N; ++b) total[(o + a) * INS + i + b] += part[a][b];
        }
}

// Normalisation over tokens. `mean` and `rstd` are of the batch in training, running ones otherwise.
struct Norm {
    const float *weight, *bias;
    float *mean, *rstd;
};

INLINE void normalise(const V* x, const Norm& norm, V* out, int tokens) {
    for (int t = 0; t < tokens; ++t) {
        const float scale = norm.weight[t] * norm.rstd[t], mean = norm.mean[t], bias = norm.bias[t];
        for (int c = 0; c < WIDTH; ++c) out[t * WIDTH + c] = (x[t * WIDTH + c] - mean) * scale + bias;
    }
}

// Mean and variance of each token over rows and width, gathered while the tiles are made: each lane has a mean and a
// sum of squares around it (Chan et al. 1979), so that nothing is lost however large the mean is.
struct Moments {
    V means[MAX_TOKENS], squares[MAX_TOKENS];

    void clear(int tokens) {
        for (int t = 0; t < tokens; ++t) means[t] = squares[t] = V{};
    }
    ALWAYS void add(const V* x, int tokens, int tile, V mask) {
        const V share = mask / (tile + 1.0f), both = mask * (WIDTH * tile / (tile + 1.0f));
        for (int t = 0; t < tokens; ++t) {
            V total = V{}, around = V{};
            for (int c = 0; c < WIDTH; ++c) total += x[t * WIDTH + c];
            const V mean = total * (1.0f / WIDTH), step = mean - means[t];
            for (int c = 0; c < WIDTH; ++c) {
                V d = x[t * WIDTH + c] - mean;
                around += d * d;
            }
            means[t] += step * share;
            squares[t] += around * mask + step * step * both;
        }
    }
    // Sets mean and 1 / standard deviation of `norm`; the running statistics follow.
    void finish(const Norm& norm, int rows, int tokens, float* mean, float* var, float momentum, float eps) const {
        for (int t = 0; t < tokens; ++t) {
            double all = 0, total = 0, count = 0;
            for (int i = 0; i < LANES && i < rows; ++i) {
                double own = (double)WIDTH * ((rows - i + LANES - 1) / LANES), step = means[t][i] - all;
                total += squares[t][i] + step * step * own * count / (own + count);
                count += own;
                all += step * own / count;
            }
            norm.mean[t] = (float)all;
            norm.rstd[t] = (float)(1.0 / std::sqrt(total / count + eps));
            mean[t] += momentum * (norm.mean[t] - mean[t]);
            var[t] += momentum * ((float)(total / (count - 1)) - var[t]);
        }
    }
};

// What backward needs of a normalisation: sums over the batch of dn and dn * (x - mean) * rstd.
struct Sums {
    V first[MAX_TOKENS], second[MAX_TOKENS];
    float dbias[MAX_TOKENS], dweight[MAX_TOKENS];

    void clear(int tokens) {
        for (int t = 0; t < tokens; ++t) first[t] = second[t] = V{};
    }
    ALWAYS void add(const V* dn, const V* x, const Norm& norm, int tokens) {
        for (int t = 0; t < tokens; ++t) {
            V one = V{}, two = V{};
            const float mean = norm.mean[t];
            for (int c = 0; c < WIDTH; ++c) {
                one += dn[t * WIDTH + c];
                two += dn[t * WIDTH + c] * (x[t * WIDTH + c] - mean);
            }
            first[t] += one;
            second[t] += two * norm.rstd[t];
        }
    }
    void finish(int tokens, float* weight, float* bias) {
        for (int t = 0; t < tokens; ++t) {
            bias[t] = dbias[t] = sum((const float*)&first[t]);
            weight[t] = dweight[t] = sum((const float*)&second[t]);
        }
    }
};

// d (+)= the gradient with respect to the normalisation's input; share is 1 / numbers per token, 0 if frozen.
template <bool ADD>
INLINE void normalise_backward(
    V* d, const V* dn, const V* x, const Norm& norm, const Sums& sums, float share, V mask, int tokens
) {
    for (int t = 0; t < tokens; ++t) {
        const float mean = norm.mean[t], rstd = norm.rstd[t];
        const V scale = mask * (norm.weight[t] * rstd);
        const V one = share ? scale * (sums.dbias[t] * share) : V{};  // frozen: another row's NaN stays with that row
        const V two = share ? scale * (sums.dweight[t] * share * rstd) : V{};
        for (int c = 0; c < WIDTH; ++c) {
            int k = t * WIDTH + c;
            V g = dn[k] * scale - ((x[k] - mean) * two + one);
            d[k] = ADD ? d[k] + g : g;
        }
    }
}

struct Block {
    Norm norm1, norm2;
    const float *qkv, *out, *w1, *w2, *w3;
};

// Which row of the weights makes number k of a token's queries, keys and values where these are in the order of heads.
INLINE int row_of(int k) { return k / SIZE % 3 * WIDTH + k / (3 * SIZE) * SIZE + k % SIZE; }

// Query, key and value of each token in one head of one tile, next to each other; queries scaled for exp2.
INLINE void head_of(const V* n, const float* qkv, int head, int tokens, V* out) {
    const float scale = LOG2E / std::sqrt((float)SIZE);
    product<3 * SIZE, WIDTH>(
        n, tokens, [=](int o, int i) ALWAYS { return qkv[row_of(head * 3 * SIZE + o) * WIDTH + i]; },
        [=](int k, V y) ALWAYS { out[k] = k % (3 * SIZE) < SIZE ? y * scale : y; }
    );
}

// Whether a score can be so large (above 100) that exp2 needs the largest one subtracted, which costs another pass.
INLINE bool are_far(const V* head, int tokens) {
    U most = U{};
    for (int t = 0; t < tokens; ++t)
        for (int c = 0; c < 2 * SIZE; ++c) {
            U magnitude = (U)head[t * 3 * SIZE + c] & 0x7fffffff;  // floats without sign are in the order of their bits
            most = magnitude > most ? magnitude : most;
        }
    return any((V)most > std::sqrt(100.0f / SIZE));
}

// Attention of one query of a head: powers[u] = 2^(score of key u - what is subtracted), total = their sum, mixed =
// their sum times the values.
template <bool FAR>
INLINE void attend(const V* head, int query, int tokens, V* powers, V& total, V (&mixed)[SIZE]) {
    const V* q = head + query * 3 * SIZE;
    auto score = [=](int u) ALWAYS {
        V s = V{};
#pragma GCC unroll 8
        for (int c = 0; c < SIZE; ++c) s += q[c] * head[(u * 3 + 1) * SIZE + c];
        return s;
    };
    V top = splat(-INFINITY), all = V{}, sums[SIZE] = {};
    if (FAR)
        for (int u = 0; u < tokens; ++u) top = larger(top, score(u));
    for (int u = 0; u < tokens; ++u) {
        V s = score(u), p = exp2(FAR ? larger(splat(-126.0f), s - top) : s);
        if (powers) powers[u] = p;
        all += p;
#pragma GCC unroll 8
        for (int c = 0; c < SIZE; ++c) sums[c] += p * head[(u * 3 + 2) * SIZE + c];
    }
    total = all;
    for (int c = 0; c < SIZE; ++c) mixed[c] = sums[c];
}

// attended[t][0 .. SIZE) of one head, in rows of WIDTH
template <bool FAR>
NOINLINE void attend_all(const V* head, int tokens, V* attended) {
    for (int t = 0; t < tokens; ++t) {
        V total, mixed[SIZE];
        attend<FAR>(head, t, tokens, nullptr, total, mixed);
        total = 1.0f / total;
        for (int c = 0; c < SIZE; ++c) attended[t * WIDTH + c] = mixed[c] * total;
    }
}

// The same, with the gradients of what the head holds: dhead, (tokens, 3 * SIZE), 0 before.
template <bool FAR>
NOINLINE void attend_all_backward(const V* head, const V* dattended, int tokens, V* attended, V* dhead) {
    for (int t = 0; t < tokens; ++t) {
        V powers[MAX_TOKENS], total, mixed[SIZE], inner = V{}, q[SIZE], d[SIZE], dq[SIZE] = {};
        attend<FAR>(head, t, tokens, powers, total, mixed);
        total = 1.0f / total;
        for (int c = 0; c < SIZE; ++c) {
            V y = attended[t * WIDTH + c] = mixed[c] * total;
            q[c] = head[t * 3 * SIZE + c];
            d[c] = dattended[t * WIDTH + c];
            inner += d[c] * y;
        }
        for (int u = 0; u < tokens; ++u) {
            const V *key = head + (u * 3 + 1) * SIZE, *value = key + SIZE;
            V *dkey = dhead + (u * 3 + 1) * SIZE, *dvalue = dkey + SIZE;
            V p = powers[u] * total, ds = V{};
#pragma GCC unroll 8
            for (int c = 0; c < SIZE; ++c) ds += d[c] * value[c];
            ds = p * (ds - inner);
#pragma GCC unroll 8
            for (int c = 0; c < SIZE; ++c) {
                dq[c] += ds * key[c];
                dkey[c] += ds * q[c];
                dvalue[c] += p * d[c];
            }
        }
        for (int c = 0; c < SIZE; ++c) dhead[t * 3 * SIZE + c] = dq[c];
    }
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
    void finish(const Moments& moments, int k, const Norm& own) const {
        float *mean = running[2 * k] + network * tokens, *var = running[2 * k + 1] + network * tokens;
        moments.finish(own, rows, tokens, mean, var, momentum, eps);
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
    for (int i = 0; i < LANES && b * LANES + i < rows; ++i) {
        float* row = out + (b * LANES + (size_t)i) * numbers;
        for (int k = 0; k < numbers; ++k) row[k] = ((const float*)tile)[k * LANES + i];
    }
}
void from_rows(const float* in, int b, int rows, int numbers, V* tile) {
    for (int k = 0; k < numbers; ++k) tile[k] = V{};
    for (int i = 0; i < LANES && b * LANES + i < rows; ++i) {
        const float* row = in + (b * LANES + (size_t)i) * numbers;
        for (int k = 0; k < numbers; ++k) ((float*)tile)[k * LANES + i] = row[k];
    }
}

// Scratch for one tile, and what backward sums over tiles: the gradients of a block's matrices, a vector each.
struct Room {
    V *n, *attended, *last, *head, *u, *h3, *s1;
    V *df, *dattended, *dqkv, *dhead, *dh1, *dh3;
    V *sum_qkv, *sum_out, *sum_w1, *sum_w2, *sum_w3;

    static size_t size(int tokens) {
        return (size_t)tokens * (8 * WIDTH + 6 * SIZE + 5 * HIDDEN) + WIDTH * (4 * WIDTH + 3 * HIDDEN);
    }
    Room(V* next, int tokens) {
        auto take = [&](size_t vectors) { return std::exchange(next, next + vectors); };
        const size_t numbers = tokens * WIDTH, heads = tokens * 3 * SIZE, hidden = tokens * HIDDEN;
        n = take(numbers), attended = take(numbers), last = take(numbers), head = take(heads);
        u = take(hidden), h3 = take(hidden), s1 = take(hidden);
        df = take(numbers), dattended = take(numbers), dqkv = take(3 * numbers), dhead = take(heads);
        dh1 = take(hidden), dh3 = take(hidden);
        sum_qkv = take(3 * WIDTH * WIDTH), sum_out = take(WIDTH * WIDTH);
        sum_w1 = take(HIDDEN * WIDTH), sum_w2 = take(HIDDEN * WIDTH), sum_w3 = take(HIDDEN * WIDTH);
    }
};

// to = x + attention(norm(x)) of one tile.
void first_half(const V* x, const Block& block, int tokens, const Room& room, V* to) {
    normalise(x, block.norm1, room.n, tokens);
    for (int h = 0; h < HEADS; ++h) {
        head_of(room.n, block.qkv, h, tokens, room.head);
        auto attend = are_far(room.head, tokens) ? attend_all<true> : attend_all<false>;
        attend(room.head, tokens, room.attended + h * SIZE);
    }
    product<WIDTH, WIDTH>(room.attended, tokens, straight<WIDTH>(block.out), [=](int k, V y) ALWAYS {
        to[k] = x[k] + y;
    });
}

// The same backward: from d, the gradient of the output, to dn, that of the normalised input.
void first_half_backward(const V* x, const V* d, const Block& block, int tokens, const Room& room, V* dn) {
    const float factor[3] = {1.0f / std::sqrt((float)SIZE), 1.0f / LOG2E, 1.0f};  // of queries, keys, values
    normalise(x, block.norm1, room.n, tokens);
    product<WIDTH, WIDTH>(d, tokens, transposed<WIDTH>(block.out), into(room.dattended));
    for (int h = 0; h < HEADS; ++h) {
        head_of(room.n, block.qkv, h, tokens, room.head);
        std::memset((void*)room.dhead, 0, 3 * SIZE * tokens * sizeof(V));
        auto attend = are_far(room.head, tokens) ? attend_all_backward<true> : attend_all_backward<false>;
        attend(room.head, room.dattended + h * SIZE, tokens, room.attended + h * SIZE, room.dhead);
        for (int t = 0; t < tokens; ++t)
            for (int k = 0; k < 3 * SIZE; ++k)
                room.dqkv[t * 3 * WIDTH + h * 3 * SIZE + k] = room.dhead[t * 3 * SIZE + k] * factor[k / SIZE];
    }
    outer<WIDTH, WIDTH>(d, room.attended, room.sum_out, tokens);
    outer<3 * WIDTH, WIDTH>(room.dqkv, room.n, room.sum_qkv, tokens);
    const float* qkv = block.qkv;
    product<WIDTH, 3 * WIDTH>(
        room.dqkv, tokens, [=](int o, int i) ALWAYS { return qkv[row_of(i) * WIDTH + o]; }, into(dn)
    );
}

// to = x + selu(w2 (selu(w1 n) * w3 n)) with n = norm(x) of one tile.
void second_half(const V* x, const Block& block, int tokens, const Room& room, V* to) {
    V *h3 = room.h3, *u = room.u;
    normalise(x, block.norm2, room.n, tokens);
    if (GATED) product<HIDDEN, WIDTH>(room.n, tokens, straight<WIDTH>(block.w3), into(h3));
    product<HIDDEN, WIDTH>(room.n, tokens, straight<WIDTH>(block.w1), [=](int k, V y) ALWAYS {
        u[k] = GATED ? selu(y) * h3[k] : selu(y);
    });
    product<WIDTH, HIDDEN>(u, tokens, straight<HIDDEN>(block.w2), [=](int k, V y) ALWAYS { to[k] = x[k] + selu(y); });
}

// The same backward: from d, the gradient of the output, to dn, that of the normalised input.
void second_half_backward(const V* x, const V* d, const Block& block, int tokens, const Room& room, V* dn) {
    V *n = room.n, *h3 = room.h3, *s1 = room.s1, *u = room.u, *df = room.df, *dh1 = room.dh1, *dh3 = room.dh3;
    normalise(x, block.norm2, n, tokens);
    if (GATED) product<HIDDEN, WIDTH>(n, tokens, straight<WIDTH>(block.w3), into(h3));
    product<HIDDEN, WIDTH>(n, tokens, straight<WIDTH>(block.w1), [=](int k, V y) ALWAYS {
        s1[k] = y = selu(y);
        u[k] = GATED ? y * h3[k] : y;
    });
    product<WIDTH, HIDDEN>(u, tokens, straight<HIDDEN>(block.w2), [=](int k, V y) ALWAYS {
        df[k] = d[k] * selu_slope(selu(y));
    });
    outer<WIDTH, HIDDEN>(df, u, room.sum_w2, tokens);
    product<HIDDEN, WIDTH>(df, tokens, transposed<HIDDEN>(block.w2), [=](int k, V du) ALWAYS {
        dh1[k] = (GATED ? du * h3[k] : du) * selu_slope(s1[k]);
        if (GATED) dh3[k] = du * s1[k];
    });
    outer<HIDDEN, WIDTH>(dh1, n, room.sum_w1, tokens);
    product<WIDTH, HIDDEN>(dh1, tokens, transposed<WIDTH>(block.w1), into(dn));
    if (!GATED) return;
    outer<HIDDEN, WIDTH>(dh3, n, room.sum_w3, tokens);
    product<WIDTH, HIDDEN>(dh3, tokens, transposed<WIDTH>(block.w3), [=](int k, V y) ALWAYS { dn[k] += y; });
}

void forward(const Network& net, const float* x, float* out, V* saved) {
    const int rows = net.rows, tokens = net.tokens, numbers = tokens * WIDTH, tiles = (rows + LANES - 1) / LANES;
    const Room room(scratch(Room::size(tokens)), tokens);
    const Norm token_norm = net.token_norm();
    if (!net.training) net.use_running();

    if (!saved) {  // not in training: nothing depends on the other rows: a tile goes through all blocks
        for (int b = 0; b < tiles; ++b) {
            net.embed(x, b, room.last);
            normalise(room.last, token_norm, room.last, tokens);
            for (int l = 0; l < net.blocks; ++l) {
                Block block = net.block(l);
                first_half(room.last, block, tokens, room, room.last);
                second_half(room.last, block, tokens, room, room.last);
            }
            to_rows(room.last, b, rows, numbers, out);
        }
        return;
    }
    static thread_local Moments moments;  // too large for the stack of a thread
    auto kept = [&](int k, int b) { return saved + ((size_t)k * tiles + b) * numbers; };
    // Makes what normalisation k takes, tile by tile, and its statistics.
    auto input = [&](int k, const Norm& norm, auto make) {
        moments.clear(tokens);
        for (int b = 0; b < tiles; ++b) {
            V* to = k == 0 ? room.last : kept(k - 1, b);  // of the embedding only the statistics: it is made again
            make(b, to);
            if (net.training) moments.add(to, tokens, b, lanes_of(rows, b));
        }
        if (net.training) net.finish(moments, k, norm);
    };
    input(0, token_norm, [&](int b, V* to) { net.embed(x, b, to); });
    input(1, net.block(0).norm1, [&](int b, V* to) {
        net.embed(x, b, to);
        normalise(to, token_norm, to, tokens);
    });
    for (int l = 0; l < net.blocks; ++l) {
        const Block block = net.block(l);
        input(2 + 2 * l, block.norm2, [&](int b, V* to) { first_half(kept(2 * l, b), block, tokens, room, to); });
        auto second = [&](int b, V* to) { second_half(kept(2 * l + 1, b), block, tokens, room, to); };
        if (l + 1 < net.blocks)
            input(3 + 2 * l, net.block(l + 1).norm1, second);
        else
            for (int b = 0; b < tiles; ++b) second(b, room.last), to_rows(room.last, b, rows, numbers, out);
    }
}

void reduce(const V* total, float* out, int numbers) {
    for (int k = 0; k < numbers; ++k) out[k] = sum((const float*)(total + k));
}

void backward(
    const Network& net, const float* x, const float* dout, const V* saved, float* dx, float* const* gradients
) {
    const int rows = net.rows, tokens = net.tokens, numbers = tokens * WIDTH, tiles = (rows + LANES - 1) / LANES;
    const size_t whole = (size_t)tiles * numbers;
    V *d = scratch(2 * whole + Room::size(tokens)), *dn = d + whole;  // gradients of x and of norm(x) of a half block
    const Room room(dn + whole, tokens);
    const float share = net.training ? 1.0f / ((float)rows * WIDTH) : 0.0f;
    static thread_local Sums one, two;  // of the first and the second half; too large for the stack of a thread
    auto at = [&](auto* all, int b) { return all + (size_t)b * numbers; };
    auto kept = [&](int k, int b) { return at(saved + k * whole, b); };
    auto own = [&](int k, size_t size) { return gradients[k] + net.network * size; };

    for (int b = 0; b < tiles; ++b) from_rows(dout, b, rows, numbers, at(d, b));
    for (int l = net.blocks - 1; l >= 0; --l) {
        const Block block = net.block(l);
        const int first = net.first(l);
        const bool last = l + 1 == net.blocks;
        const Norm above = last ? Norm{} : net.block(l + 1).norm1;
        std::memset((void*)room.sum_qkv, 0, WIDTH * (4 * WIDTH + 3 * HIDDEN) * sizeof(V));  // and all others

        two.clear(tokens);
        for (int b = 0; b < tiles; ++b) {
            if (!last)
                normalise_backward<true>(
                    at(d, b), at(dn, b), kept(2 * l + 2, b), above, one, share, lanes_of(rows, b), tokens
                );
            second_half_backward(kept(2 * l + 1, b), at(d, b), block, tokens, room, at(dn, b));
            two.add(at(dn, b), kept(2 * l + 1, b), block.norm2, tokens);
        }
        two.finish(tokens, own(first + NORM2_WEIGHT, tokens), own(first + NORM2_BIAS, tokens));

        one.clear(tokens);
        for (int b = 0; b < tiles; ++b) {
            normalise_backward<true>(
                at(d, b), at(dn, b), kept(2 * l + 1, b), block.norm2, two, share, lanes_of(rows, b), tokens
            );
            first_half_backward(kept(2 * l, b), at(d, b), block, tokens, room, at(dn, b));
            one.add(at(dn, b), kept(2 * l, b), block.norm1, tokens);
        }
        one.finish(tokens, own(first + NORM1_WEIGHT, tokens), own(first + NORM1_BIAS, tokens));

        float* qkv = own(first + QKV, 3 * WIDTH * WIDTH);
        for (int o = 0; o < 3 * WIDTH; ++o) reduce(room.sum_qkv + o * WIDTH, qkv + row_of(o) * WIDTH, WIDTH);
        reduce(room.sum_out, own(first + OUT, WIDTH * WIDTH), WIDTH * WIDTH);
        reduce(room.sum_w1, own(first + W1, HIDDEN * WIDTH), HIDDEN * WIDTH);
        reduce(room.sum_w2, own(first + W2, HIDDEN * WIDTH), HIDDEN * WIDTH);
        if (GATED) reduce(room.sum_w3, own(first + W3, HIDDEN * WIDTH), HIDDEN * WIDTH);
    }

    // Token normalisation and embedding.
    const Norm token_norm = net.token_norm(), bottom = net.block(0).norm1;
    const float* embed_weight = net.parameter(EMBED_WEIGHT, numbers);
    V *embedded = room.n, *dembedded = room.df, *sum_weight = room.dqkv, *sum_bias = sum_weight + numbers;
    two.clear(tokens);
    for (int b = 0; b < tiles; ++b) {
        normalise_backward<true>(at(d, b), at(dn, b), kept(0, b), bottom, one, share, lanes_of(rows, b), tokens);
        net.embed(x, b, embedded);
        two.add(at(d, b), embedded, token_norm, tokens);
    }
    two.finish(tokens, own(TOKEN_NORM_WEIGHT, tokens), own(TOKEN_NORM_BIAS, tokens));
    std::memset((void*)sum_weight, 0, 2 * numbers * sizeof(V));
    for (int b = 0; b < tiles; ++b) {
        net.embed(x, b, embedded);
        normalise_backward<false>(
            dembedded, at(d, b), embedded, token_norm, two, share, lanes_of(rows, b), tokens
        );
        for (int t = 0; t < tokens; ++t) {
            V column = V{}, dcolumn = V{};
            for (int i = 0; i < LANES && b * LANES + i < rows; ++i) column[i] = x[(b * LANES + i) * tokens + t];
            for (int k = t * WIDTH; k < (t + 1) * WIDTH; ++k) {
                sum_weight[k] += dembedded[k] * column;
                sum_bias[k] += dembedded[k];
                dcolumn += dembedded[k] * embed_weight[k];
            }
            for (int i = 0; i < LANES && b * LANES + i < rows; ++i) dx[(b * LANES + i) * tokens + t] = dcolumn[i];
        }
    }
    reduce(sum_weight, own(EMBED_WEIGHT, numbers), numbers);
    reduce(sum_bias, own(EMBED_BIAS, numbers), numbers);
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
