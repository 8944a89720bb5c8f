/* f32, bf16 and f16 in memory, and as f32: for the emulated libraries. */
#ifndef NP_FAKE_NUMBERS_H
#define NP_FAKE_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum number { F32, BF16, F16 };

static inline float fake_load(const void *from, enum number type, int64_t i)
{
    uint32_t bits;
    _Float16 half;
    float x;

    if (type == F32)
        return ((const float *)from)[i];
    if (type == F16) {
        memcpy(&half, (const uint16_t *)from + i, 2);
        return (float)half;
    }
    bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    memcpy(&x, &bits, 4);
    return x;
}

/* To the nearest, ties to even. */
static inline void fake_store(void *to, enum number type, int64_t i, float x)
{
    _Float16 half = (_Float16)x;
    uint32_t bits;

    if (type == F32) {
        ((float *)to)[i] = x;
    } else if (type == F16) {
        memcpy((uint16_t *)to + i, &half, 2);
    } else {
        memcpy(&bits, &x, 4);
        if (!isnan(x))
            bits += 0x7fff + (bits >> 16 & 1);
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    }
}

#endif
