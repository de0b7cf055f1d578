// Products of a stack of few-row batches with weights that differ: y_s = x_s W_s^T + b_s, and their gradients.
//
// With a dozen rows a matrix product is limited by reading the weights, and a library that first packs them reads them
// more than once. Here each weight is read once from memory, and used for all rows while it is in registers or the
// first-level cache; asking for the next ones in advance made it half as fast again. All tensors are row-major float32:
// x (stack, rows, ins), w (stack, outs, ins), y (stack, rows, outs).
//
// Needs GCC or Clang (vector extensions).

#include <cstddef>
#include <cstring>

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float V __attribute__((vector_size(4 * LANES), may_alias));
#define INLINE static inline __attribute__((always_inline))

namespace {

INLINE V load(const float* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }
// By halves: a chain of additions would take longer than the product.
typedef float Four __attribute__((vector_size(16)));
typedef float Eight __attribute__((vector_size(32)));
INLINE float sum(Four v) { return (v[0] + v[2]) + (v[1] + v[3]); }
INLINE float sum(Eight v) {
    return sum(__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7));
}
typedef float Sixteen __attribute__((vector_size(64)));
INLINE float sum(Sixteen v) {
    return sum(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
}

// y[r][o] = b[o] + sum_i x[r][i] * w[o][i] for R rows and O outputs
template <int R, int O>
INLINE void forward_tile(const float* x, const float* w, const float* b, float* y, int ins, int outs) {
    V total[R][O];
    float rest[R][O];
    for (int r = 0; r < R; ++r)
        for (int o = 0; o < O; ++o) total[r][o] = V{}, rest[r][o] = b ? b[o] : 0.0f;
    int i = 0;
    for (; i + LANES <= ins; i += LANES) {
        V weight[O];
#pragma GCC unroll 8
        for (int o = 0; o < O; ++o) {
            weight[o] = load(w + (size_t)o * ins + i);
            __builtin_prefetch(w + (size_t)(O + o) * ins + i, 0, 2);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            V value = load(x + (size_t)r * ins + i);
#pragma GCC unroll 8
            for (int o = 0; o < O; ++o) total[r][o] += value * weight[o];
        }
    }
    for (; i < ins; ++i)
        for (int r = 0; r < R; ++r)
            for (int o = 0; o < O; ++o) rest[r][o] += x[(size_t)r * ins + i] * w[(size_t)o * ins + i];
    for (int r = 0; r < R; ++r)
        for (int o = 0; o < O; ++o) y[(size_t)r * outs + o] = rest[r][o] + sum(total[r][o]);
}

// dx[r][i] = sum_o d[r][o] * w[o][i] for R rows and N vectors of inputs
template <int R, int N>
INLINE void input_tile(const float* d, const float* w, float* dx, int ins, int outs) {
    V total[R][N];
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) total[r][n] = V{};
    for (int o = 0; o < outs; ++o) {
        V weight[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            weight[n] = load(w + (size_t)o * ins + n * LANES);
            __builtin_prefetch(w + (size_t)(o + 8) * ins + n * LANES, 0, 2);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) total[r][n] += weight[n] * d[(size_t)r * outs + o];
    }
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) store(dx + (size_t)r * ins + n * LANES, total[r][n]);
}

// dw[o][i] = sum_r d[r][o] * x[r][i] for O outputs and N vectors of inputs
template <int O, int N>
INLINE void weight_tile(const float* d, const float* x, float* dw, int rows, int ins, int outs) {
    V total[O][N];
    for (int o = 0; o < O; ++o)
        for (int n = 0; n < N; ++n) total[o][n] = V{};
    for (int o = 0; o < O; ++o)
        for (int n = 0; n < N; ++n) __builtin_prefetch(dw + (size_t)(o + O) * ins + n * LANES, 1, 2);
    for (int r = 0; r < rows; ++r) {
        V value[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) value[n] = load(x + (size_t)r * ins + n * LANES);
#pragma GCC unroll 8
        for (int o = 0; o < O; ++o)
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) total[o][n] += value[n] * d[(size_t)r * outs + o];
    }
    for (int o = 0; o < O; ++o)
        for (int n = 0; n < N; ++n) store(dw + (size_t)o * ins + n * LANES, total[o][n]);
}

template <int O>
void forward_outputs(const float* x, const float* w, const float* b, float* y, int rows, int ins, int outs) {
    int r = 0;
    for (; r + 6 <= rows; r += 6) forward_tile<6, O>(x + (size_t)r * ins, w, b, y + (size_t)r * outs, ins, outs);
    for (; r + 2 <= rows; r += 2) forward_tile<2, O>(x + (size_t)r * ins, w, b, y + (size_t)r * outs, ins, outs);
    for (; r < rows; ++r) forward_tile<1, O>(x + (size_t)r * ins, w, b, y + (size_t)r * outs, ins, outs);
}

template <int N>
void input_columns(const float* d, const float* w, float* dx, int rows, int ins, int outs) {
    int r = 0;
    for (; r + 6 <= rows; r += 6) input_tile<6, N>(d + (size_t)r * outs, w, dx + (size_t)r * ins, ins, outs);
    for (; r + 2 <= rows; r += 2) input_tile<2, N>(d + (size_t)r * outs, w, dx + (size_t)r * ins, ins, outs);
    for (; r < rows; ++r) input_tile<1, N>(d + (size_t)r * outs, w, dx + (size_t)r * ins, ins, outs);
}

template <int N>
void weight_columns(const float* d, const float* x, float* dw, int rows, int ins, int outs) {
    int o = 0;
    for (; o + 4 <= outs; o += 4) weight_tile<4, N>(d + o, x, dw + (size_t)o * ins, rows, ins, outs);
    for (; o < outs; ++o) weight_tile<1, N>(d + o, x, dw + (size_t)o * ins, rows, ins, outs);
}

void forward(const float* x, const float* w, const float* b, float* y, int rows, int ins, int outs) {
    int o = 0;
    for (; o + 4 <= outs; o += 4)
        forward_outputs<4>(x, w + (size_t)o * ins, b ? b + o : nullptr, y + o, rows, ins, outs);
    for (; o < outs; ++o) forward_outputs<1>(x, w + (size_t)o * ins, b ? b + o : nullptr, y + o, rows, ins, outs);
}

void backward_input(const float* d, const float* w, float* dx, int rows, int ins, int outs) {
    int i = 0;
    for (; i + 4 * LANES <= ins; i += 4 * LANES) input_columns<4>(d, w + i, dx + i, rows, ins, outs);
    for (; i + LANES <= ins; i += LANES) input_columns<1>(d, w + i, dx + i, rows, ins, outs);
    for (; i < ins; ++i)
        for (int r = 0; r < rows; ++r) {
            float total = 0;
            for (int o = 0; o < outs; ++o) total += d[(size_t)r * outs + o] * w[(size_t)o * ins + i];
            dx[(size_t)r * ins + i] = total;
        }
}

void backward_weight(const float* d, const float* x, float* dw, float* db, int rows, int ins, int outs) {
    int i = 0;
    for (; i + 4 * LANES <= ins; i += 4 * LANES) weight_columns<4>(d, x + i, dw + i, rows, ins, outs);
    for (; i + LANES <= ins; i += LANES) weight_columns<1>(d, x + i, dw + i, rows, ins, outs);
    for (; i < ins; ++i)
        for (int o = 0; o < outs; ++o) {
            float total = 0;
            for (int r = 0; r < rows; ++r) total += d[(size_t)r * outs + o] * x[(size_t)r * ins + i];
            dw[(size_t)o * ins + i] = total;
        }
    if (db)
        for (int o = 0; o < outs; ++o) {
            float total = 0;
            for (int r = 0; r < rows; ++r) total += d[(size_t)r * outs + o];
            db[o] = total;
        }
}

}  // namespace

extern "C" {

void linear_forward(
    int stack, int rows, int ins, int outs, const float* x, const float* w, const float* b, float* y
) {
    for (size_t s = 0; s < (size_t)stack; ++s)
        forward(x + s * rows * ins, w + s * outs * ins, b ? b + s * outs : nullptr, y + s * rows * outs, rows, ins, outs);
}

// dx and db may be null.
void linear_backward(
    int stack, int rows, int ins, int outs, const float* x, const float* w, const float* d, float* dx, float* dw, float* db
) {
    for (size_t s = 0; s < (size_t)stack; ++s) {
        const float *own_d = d + s * rows * outs, *own_w = w + s * outs * ins;
        if (dx) backward_input(own_d, own_w, dx + s * rows * ins, rows, ins, outs);
        backward_weight(own_d, x + s * rows * ins, dw + s * outs * ins, db ? db + s * outs : nullptr, rows, ins, outs);
    }
}
}
