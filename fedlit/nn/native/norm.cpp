// Batch normalisation of a stack of networks: every tensor is (stack, rows, channels) or (stack, channels), row-major
// float32. A network's few rows stay in the first-level cache between the passes; under vmap torch would move the
// stack into the channels and back.
//
// Needs GCC or Clang (vector extensions).

#include <cmath>
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

namespace {

// Channels are treated LANES at a time as V, and the rest one by one as float.
template <class T>
T load(const float* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}
template <class T>
void store(float* p, T value) {
    std::memcpy(p, &value, sizeof value);
}
float inverse_root(float x) { return 1.0f / std::sqrt(x); }
V inverse_root(V x) {
    V root;
    for (int k = 0; k < LANES; ++k) root[k] = std::sqrt(x[k]);
    return 1.0f / root;
}

struct Norm {
    const float *weight, *bias;
    float *running_mean, *running_var, *mean, *rstd;
    int rows, channels, training;
    float momentum, eps;

    template <class T>
    void forward(int c, const float* x, float* out) const {
        T center, scale;
        if (training) {
            T total = T{}, squares = T{};
            for (int r = 0; r < rows; ++r) total += load<T>(x + (size_t)r * channels + c);
            center = total / (float)rows;
            for (int r = 0; r < rows; ++r) {
                T d = load<T>(x + (size_t)r * channels + c) - center;
                squares += d * d;
            }
            T old_mean = load<T>(running_mean + c), old_var = load<T>(running_var + c);
            store(running_mean + c, old_mean + momentum * (center - old_mean));
            store(running_var + c, old_var + momentum * (squares / (float)(rows - 1) - old_var));
            scale = inverse_root(squares / (float)rows + eps);
        } else {
            center = load<T>(running_mean + c);
            scale = inverse_root(load<T>(running_var + c) + eps);
        }
        store(mean + c, center);
        store(rstd + c, scale);
        T slope = scale * load<T>(weight + c), shift = load<T>(bias + c);
        for (int r = 0; r < rows; ++r) {
            size_t k = (size_t)r * channels + c;
            store(out + k, (load<T>(x + k) - center) * slope + shift);
        }
    }

    template <class T>
    void backward(int c, const float* x, const float* d, float* dx, float* dweight, float* dbias) const {
        T center = load<T>(mean + c), scale = load<T>(rstd + c), one = T{}, two = T{};
        for (int r = 0; r < rows; ++r) {
            size_t k = (size_t)r * channels + c;
            T gradient = load<T>(d + k);
            one += gradient;
            two += gradient * (load<T>(x + k) - center);
        }
        two *= scale;
        store(dbias + c, one);
        store(dweight + c, two);
        T slope = scale * load<T>(weight + c);
        float share = training ? 1.0f / (float)rows : 0.0f;
        one *= share;
        two *= share * scale;
        for (int r = 0; r < rows; ++r) {
            size_t k = (size_t)r * channels + c;
            store(dx + k, slope * (load<T>(d + k) - one - (load<T>(x + k) - center) * two));
        }
    }
};

}  // namespace

extern "C" {

// mean and rstd are written; running statistics are updated in training and used otherwise.
void norm_forward(
    int stack, int rows, int channels, int training, float momentum, float eps, const float* x, const float* weight,
    const float* bias, float* running_mean, float* running_var, float* mean, float* rstd, float* out
) {
    for (size_t s = 0; s < (size_t)stack; ++s) {
        size_t at = s * channels, all = s * rows * channels;
        Norm norm{weight + at, bias + at, running_mean + at, running_var + at, mean + at, rstd + at,
                  rows, channels, training, momentum, eps};
        int c = 0;
        for (; c + LANES <= channels; c += LANES) norm.forward<V>(c, x + all, out + all);
        for (; c < channels; ++c) norm.forward<float>(c, x + all, out + all);
    }
}

void norm_backward(
    int stack, int rows, int channels, int training, const float* x, const float* weight, float* mean, float* rstd,
    const float* d, float* dx, float* dweight, float* dbias
) {
    for (size_t s = 0; s < (size_t)stack; ++s) {
        size_t at = s * channels, all = s * rows * channels;
        Norm norm{weight + at, nullptr, nullptr, nullptr, mean + at, rstd + at, rows, channels, training, 0, 0};
        int c = 0;
        for (; c + LANES <= channels; c += LANES)
            norm.backward<V>(c, x + all, d + all, dx + all, dweight + at, dbias + at);
        for (; c < channels; ++c) norm.backward<float>(c, x + all, d + all, dx + all, dweight + at, dbias + at);
    }
}
}
