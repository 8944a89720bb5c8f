/* See random_box.h. */
#include "loader/pixels/random_box.h"

#include <math.h>

void np_box_of(double area, double ratio, int *ret_w, int *ret_h)
{
    *ret_w = (int)nearbyint(sqrt(area * ratio));
    *ret_h = (int)nearbyint(sqrt(area / ratio));
}

/* torch's exp() is not always rounded right, and differs by CPU; it is asked only where two
 * units in the last place decide the box. */
void np_box_of_log(
    const struct np_torch_draws *draws, double area, float log_ratio, int *ret_w, int *ret_h)
{
    const float ratio = (float)exp(log_ratio);
    const float low = nextafterf(nextafterf(ratio, 0), 0);
    const float high = nextafterf(nextafterf(ratio, INFINITY), INFINITY);
    int other_w, other_h;

    np_box_of(area, low, ret_w, ret_h);
    np_box_of(area, high, &other_w, &other_h);
    if (other_w != *ret_w || other_h != *ret_h)
        np_box_of(area, draws->exp(draws->context, log_ratio), ret_w, ret_h);
}
