/* Eight floats at a time, for the CPU kernels: gcc's vector types, which become AVX2 where the CPU
 * has it and plain code elsewhere. A loop is written once; NP_LOOP compiles it for both. */
#ifndef NP_SIMD_H
#define NP_SIMD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "loader/base/vectors.h"

typedef float np_v8 __attribute__((vector_size(32)));
typedef uint32_t np_v8u __attribute__((vector_size(32)));
typedef int32_t np_v8i __attribute__((vector_size(32)));
typedef uint16_t np_v8h __attribute__((vector_size(16)));
typedef int16_t np_v8s __attribute__((vector_size(16)));
typedef uint8_t np_v8b __attribute__((vector_size(8)));

#define NP_INLINE  static inline __attribute__((always_inline, unused))
#define NP_AS_AVX2 __attribute__((target("avx2,fma"), optimize("O3")))

/* NP_LOOP(name, (parameters), (arguments)) { body }: a static function `name` that runs the
 * fastest version of the body for this CPU. The versions differ only in speed: none may use
 * fused multiply-adds. */
#define NP_LOOP(name, parameters, arguments)                                                       \
    NP_INLINE void name##_body parameters;                                                         \
    static NP_AS_AVX2 void name##_avx2 parameters                                                  \
    {                                                                                              \
        name##_body arguments;                                                                     \
    }                                                                                              \
    static void name##_plain parameters                                                            \
    {                                                                                              \
        name##_body arguments;                                                                     \
    }                                                                                              \
    static void name parameters                                                                    \
    {                                                                                              \
        (np_has_avx2() ? name##_avx2 : name##_plain) arguments;                                    \
    }                                                                                              \
    NP_INLINE void name##_body parameters

/* NP_LOOP_HALF: the same for loops over activations of either dtype; the body's first parameter is
 * the constant `half`: bf16, not f32. */
#define NP_UNWRAP(...) __VA_ARGS__
#define NP_LOOP_HALF(name, parameters, arguments)                                                  \
    NP_INLINE void name##_body(bool half, NP_UNWRAP parameters);                                   \
    NP_LOOP(name##_f32, parameters, arguments)                                                     \
    {                                                                                              \
        name##_body(false, NP_UNWRAP arguments);                                                   \
    }                                                                                              \
    NP_LOOP(name##_bf16, parameters, arguments)                                                    \
    {                                                                                              \
        name##_body(true, NP_UNWRAP arguments);                                                    \
    }                                                                                              \
    static void name(bool half, NP_UNWRAP parameters)                                              \
    {                                                                                              \
        (half ? name##_bf16 : name##_f32) arguments;                                               \
    }                                                                                              \
    NP_INLINE void name##_body(bool half, NP_UNWRAP parameters)

NP_INLINE bool np_has_avx2(void)
{
    return np_vectors_used() >= NP_AVX2;
}

/* Unaligned. Macros, because a vector by value has another ABI without AVX2. */
#define np_load(p)                                                                                 \
    __extension__({                                                                                \
        np_v8 v_;                                                                                  \
        memcpy(&v_, (p), sizeof(v_));                                                              \
        v_;                                                                                        \
    })
#define np_store(p, v)                                                                             \
    __extension__({                                                                                \
        np_v8 s_ = (v);                                                                            \
        memcpy((p), &s_, sizeof(s_));                                                              \
    })
#define np_set(x) ((np_v8){(x), (x), (x), (x), (x), (x), (x), (x)})
#define np_zero() ((np_v8){0})
/* condition (np_v8i, 0 or -1) ? v : 0 */
#define np_mask(condition, v) ((np_v8)((np_v8i)(v) & (condition)))
#define np_relu(v)                                                                                 \
    __extension__({                                                                                \
        np_v8 r_ = (v);                                                                            \
        np_mask(~(r_ < np_zero()), r_); /* a NaN stays */                                          \
    })

/* condition ? a : b; condition is evaluated twice. */
#define np_pick(condition, a, b)                                                                   \
    ((np_v8)(((np_v8i)(a) & (condition)) | ((np_v8i)(b) & ~(condition))))
#define np_abs(v) ((np_v8)((np_v8i)(v)&INT32_MAX))

/* e^x for x <= 0, within 2 units in the last place; 0 below f32's normal numbers. A NaN stays. x
 * = n log 2 + r, |r| <= log 2 / 2; 2^n by its exponent, e^r by a polynomial (S. Moshier's
 * Cephes, expf). */
#define np_exp(value)                                                                              \
    __extension__({                                                                                \
        np_v8 x_ = (value), r_, p_;                                                                \
        np_v8 t_ = x_ * np_set(1.44269504f) + np_set(0x1.8p23f); /* n in its lowest bits */        \
        np_v8 n_ = t_ - np_set(0x1.8p23f);                                                         \
        r_ = x_ - n_ * np_set(0.693359375f) - n_ * np_set(-2.12194440e-4f);                        \
        p_ = np_set(1.9875691500e-4f);                                                             \
        p_ = p_ * r_ + np_set(1.3981999507e-3f);                                                   \
        p_ = p_ * r_ + np_set(8.3334519073e-3f);                                                   \
        p_ = p_ * r_ + np_set(4.1665795894e-2f);                                                   \
        p_ = p_ * r_ + np_set(1.6666665459e-1f);                                                   \
        p_ = p_ * r_ + np_set(5.0000001201e-1f);                                                   \
        p_ = p_ * r_ * r_ + r_ + np_set(1);                                                        \
        p_ *= (np_v8)(((np_v8u)t_ + 127) << 23);                                                   \
        np_mask(~(x_ < np_set(-87)), p_);                                                          \
    })

#define np_load_bf16(p)                                                                            \
    __extension__({                                                                                \
        np_v8h h_;                                                                                 \
        memcpy(&h_, (p), sizeof(h_));                                                              \
        (np_v8)(__builtin_convertvector(h_, np_v8u) << 16);                                        \
    })
/* Round to nearest even; a NaN stays one (its quiet bit is set). */
#define np_store_bf16(p, v)                                                                        \
    __extension__({                                                                                \
        np_v8 g_ = (v);                                                                            \
        np_v8u t_ = (np_v8u)g_;                                                                    \
        np_v8u up_ = (t_ + 0x7fff + (t_ >> 16 & 1)) >> 16;                                         \
        np_v8u nan_ = (np_v8u)(g_ != g_);                                                          \
        np_v8h k_ = __builtin_convertvector((up_ & ~nan_) | ((t_ >> 16 | 0x40) & nan_), np_v8h);   \
        memcpy((p), &k_, sizeof(k_));                                                              \
    })

NP_INLINE float np_from_bf16(uint16_t half)
{
    uint32_t word = (uint32_t)half << 16;
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}

NP_INLINE uint16_t np_to_bf16(float value)
{
    uint32_t word;

    memcpy(&word, &value, sizeof(word));
    if (value != value)
        return (uint16_t)(word >> 16 | 0x40);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

/* An activation of either dtype; `half` is a constant where it matters. */
#define np_get(p, i, half)                                                                         \
    ((half) ? np_load_bf16((const uint16_t *)(p) + (i)) : np_load((const float *)(p) + (i)))
#define np_put(p, i, half, v)                                                                      \
    __extension__({                                                                                \
        if (half)                                                                                  \
            np_store_bf16((uint16_t *)(p) + (i), (v));                                             \
        else                                                                                       \
            np_store((float *)(p) + (i), (v));                                                     \
    })
#define np_get1(p, i, half)                                                                        \
    ((half) ? np_from_bf16(((const uint16_t *)(p))[i]) : ((const float *)(p))[i])
#define np_put1(p, i, half, v)                                                                     \
    __extension__({                                                                                \
        if (half)                                                                                  \
            ((uint16_t *)(p))[i] = np_to_bf16(v);                                                  \
        else                                                                                       \
            ((float *)(p))[i] = (v);                                                               \
    })

#endif
