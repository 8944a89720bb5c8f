/* The draws of mixup and cutmix. */
#include "trainer/graph/mix.h"

#include <math.h>

#include "loader/base/rng.h"

/* The logarithm of a draw from Gamma(alpha, 1). Marsaglia and Tsang, "A simple method for
 * generating gamma variables", 2000; below 1 by Gamma(alpha + 1) * U^(1 / alpha). As a logarithm,
 * because a small alpha's draw is less than any double. */
static double log_gamma_draw(struct np_draws *draws, double alpha)
{
    const double least = alpha < 1 ? alpha + 1 : alpha, d = least - 1.0 / 3;
    const double boost = alpha < 1 ? log(1 - np_draw_uniform(draws)) / alpha : 0;

    for (;;) {
        const double x = np_draw_normal(draws), root = 1 + x / sqrt(9 * d);
        const double v = root * root * root, u = 1 - np_draw_uniform(draws);

        if (v > 0 && log(u) < x * x / 2 + d - d * v + d * log(v))
            return boost + log(d * v);
    }
}

static double beta_draw(struct np_draws *draws, double alpha)
{
    const double a = log_gamma_draw(draws, alpha), b = log_gamma_draw(draws, alpha);

    return 1 / (1 + exp(b - a));
}

void np_mix_box(double keep, int x, int y, int height, int width, struct np_mixed *ret_mixed)
{
    const double half = 0.5 * sqrt(1 - keep);
    const int across = (int)(half * width), down = (int)(half * height);
    struct np_mixed box = {.box = 1,
        .top = y - down > 0 ? y - down : 0,
        .left = x - across > 0 ? x - across : 0,
        .bottom = y + down < height ? y + down : height,
        .right = x + across < width ? x + across : width};

    box.keep = (float)(1 - (double)(box.bottom - box.top) * (box.right - box.left) /
                               ((double)height * width));
    *ret_mixed = box;
}

void np_mix_draw(const struct np_mix *mix, uint64_t step, struct np_mixed *ret_mixed)
{
    struct np_draws draws;
    bool cut;
    double keep;

    *ret_mixed = (struct np_mixed){.keep = 1};
    if (!np_mix_on(mix))
        return;
    np_draws_init(&draws, mix->seed, NP_STREAM_MIX, (uint32_t)(step >> 32), (uint32_t)step, 0);
    if (np_draw_uniform(&draws) >= mix->share)
        return;
    cut = np_draw_uniform(&draws) < (mix->mixup > 0 ? 0.5 : 1) && mix->cutmix > 0;
    keep = beta_draw(&draws, cut ? mix->cutmix : mix->mixup);
    if (cut) {
        const int x = (int)np_draw_below(&draws, (uint32_t)mix->width);
        const int y = (int)np_draw_below(&draws, (uint32_t)mix->height);

        np_mix_box(keep, x, y, mix->height, mix->width, ret_mixed);
    } else {
        ret_mixed->keep = (float)keep;
    }
}
