/* Reference activation functions, in double: the function and its slope, as torch defines both at
 * the kinks. Formulas: relu6 arXiv:1801.04381, silu arXiv:1710.05941, hardswish arXiv:1905.02244,
 * gelu arXiv:1606.08415. */
#include <math.h>

#include "trainer/cpu/kernels_ref.h"

struct point { /* of a function: its value and its slope */
    double y, slope;
};

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x; /* a NaN stays */
}

/* x s(f(x)), of which silu and the approximated gelu are two cases; inner: f and its slope. */
static struct point gated(double x, struct point inner)
{
    const double s = 1 / (1 + exp(-inner.y)), rest = 1 / (1 + exp(inner.y));

    return (struct point){x * s, s + x * s * rest * inner.slope};
}

static struct point gelu(double x)
{
    const double below = erfc(-x * M_SQRT1_2) / 2;
    const double density = exp(-x * x / 2) * M_2_SQRTPI * M_SQRT1_2 / 2;

    return (struct point){x * below, below + x * density};
}

static struct point gelu_tanh(double x)
{
    const double scale = 2 * M_2_SQRTPI * M_SQRT1_2, cubic = 0.044715;

    return gated(
        x, (struct point){scale * (x + cubic * x * x * x), scale * (1 + 3 * cubic * x * x)});
}

static struct point point_at(const struct np_attrs *attrs, double x)
{
    const double e = exp(-fabs(x));

    switch (attrs->act) {
    case NP_ACT_RELU6: return (struct point){clamp(x, 0, 6), !(x <= 0 || x >= 6)};
    case NP_ACT_LEAKY_RELU: {
        const double slope = x > 0 ? 1 : (double)(float)attrs->slope;

        return (struct point){x * slope, slope};
    }
    case NP_ACT_SIGMOID: return (struct point){1 / (1 + exp(-x)), e / (1 + e) / (1 + e)};
    case NP_ACT_HARDSIGMOID:
        return (struct point){clamp(x + 3, 0, 6) / 6, x > -3 && x < 3 ? 1.0 / 6 : 0};
    case NP_ACT_TANH: return (struct point){tanh(x), 1 / cosh(x) / cosh(x)};
    case NP_ACT_SILU: return gated(x, (struct point){x, 1});
    case NP_ACT_HARDSWISH:
        return (struct point){x * (clamp(x + 3, 0, 6) / 6), x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5};
    case NP_ACT_GELU: return gelu(x);
    default: return gelu_tanh(x);
    }
}

/* x -> y, or dy, x -> dx. */
void np_ref_act(void *state, const struct np_run *run)
{
    struct np_ref *ref = state;
    const bool back = ref->node->op == NP_OP_ACT_DGRAD;
    const size_t row = np_ref_row(np_ref_shape(ref, ref->node->ins[0]));
    const size_t first = (size_t)run->first_row * row, n = (size_t)run->nr_rows * row;

    for (size_t i = first; i < first + n; i++) {
        const struct point at = point_at(&ref->node->attrs, np_ref_in(ref, run, back, i));

        np_ref_out(ref, run, 0, i, (float)(back ? np_ref_in(ref, run, 0, i) * at.slope : at.y));
    }
}
