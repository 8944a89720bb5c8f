/* See format_fit.h. mean and std follow from the first and the last value to within a few units in
 * the last place (ulps); the neighbours are tried until all 256 values are equal. */
#include "loader/pixels/format_fit.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ULPS 8

enum unit { DIVIDED, MULTIPLIED, UNCHANGED, NR_UNITS };

static float unit_of(enum unit unit, int pixel)
{
    switch (unit) {
    case DIVIDED: return (float)pixel / 255.0f;
    case MULTIPLIED: return (float)pixel * (1.0f / 255.0f);
    default: return (float)pixel;
    }
}

static float moved(float x, int ulps)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    bits += (uint32_t)ulps;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* 0, 1, -1, 2, -2, ... */
static int nth(int i)
{
    return i % 2 ? (i + 1) / 2 : -i / 2;
}

static bool is_equal(const float *values, enum unit unit, float mean, float std)
{
    for (int pixel = 255; pixel >= 0; pixel--) {
        const float value = (unit_of(unit, pixel) - mean) / std;

        if (memcmp(&value, &values[pixel], sizeof(value)) != 0)
            return false;
    }
    return true;
}

static bool find(const float *values, enum unit unit, float *ret_mean, float *ret_std)
{
    const double range = (double)values[255] - (double)values[0];
    const double std = (double)unit_of(unit, 255) / range;
    const double mean = -(double)values[0] * std;

    if (!(fabs(range) > 1e-6) || !(fabs(range) < 1e6) || !(fabs(mean) < 1e6))
        return false;
    for (int i = 0; i <= 2 * ULPS; i++)
        for (int k = 0; k <= 2 * ULPS; k++) {
            *ret_std = moved((float)std, nth(i));
            *ret_mean = mean == 0 ? 0 : moved((float)mean, nth(k));
            if (is_equal(values, unit, *ret_mean, *ret_std))
                return true;
        }
    return false;
}

static bool fit_unit(
    const float values[][256], int channels, enum unit unit, struct np_format_fit *fit)
{
    for (int c = 0; c < channels; c++) {
        float std;

        if (!find(values[c], unit, &fit->mean[c], &std))
            return false;
        fit->inverse[c] = 1.0f / std;
        fit->inverse_low[c] = (float)(1.0 / (double)std - (double)fit->inverse[c]);
    }
    fit->unit = unit == UNCHANGED ? 1.0f : 1.0f / 255.0f;
    fit->unit_low = unit == DIVIDED ? (float)(1.0 / 255.0 - (double)fit->unit) : 0.0f;
    return true;
}

bool np_format_fit(const float values[][256], int channels, struct np_format_fit *ret_fit)
{
    struct np_format_fit fit;

    for (int unit = 0; unit < NR_UNITS; unit++)
        if (fit_unit(values, channels, (enum unit)unit, &fit)) {
            *ret_fit = fit;
            return true;
        }
    return false;
}
