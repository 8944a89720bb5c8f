/* Optimizers against torch's own numbers, as tests/golden/torch_optim.py made them. */
#include <math.h>
#include <string.h>

#include "loader/base/yaml.h"
#include "tests/test.h"
#include "tests/unit/golden_optim.h"
#include "trainer/muon.h"
#include "trainer/optim.h"

/* The script's numbers(): 24 bits between -0.5 and 0.5. */
static float draw(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return (float)((double)(*state >> 8) / 16777216 - 0.5);
}

static void parse(const char *config, struct np_optim_options *options)
{
    struct np_node *node = NULL;
    struct np_report report;

    np_report_init(&report, "x.yaml");
    cr_assert(np_yaml_parse(config, strlen(config), &node, &report) == 0);
    cr_assert(np_optim_parse(node, options, &report) == 0, "%s", config);
    np_report_fini(&report);
    np_node_free(node);
}

/* Largest difference, in units of the rounding of a parameter in that many updates. */
static double error_of(const float *params, const double *want, int nr_updates)
{
    double error = 0;

    for (int i = 0; i < GOLDEN_N; i++) {
        const double roundings = nr_updates * 0x1p-23 * fmax(1, fabs(want[i]));

        error = fmax(error, fabs(params[i] - want[i]) / roundings);
    }
    return error;
}

Test(optim_torch, updates_1_and_100_equal_torch)
{
    for (size_t c = 0; c < sizeof(golden_optim) / sizeof(*golden_optim); c++) {
        struct np_optim_options options;
        float params[GOLDEN_N], states[2][GOLDEN_N] = {{0}}, grads[GOLDEN_N];
        float scratch[4 * GOLDEN_N + 2 * GOLDEN_N];
        uint32_t state = 7;
        double first = 0;

        parse(golden_optim[c].config, &options);
        for (int i = 0; i < GOLDEN_N; i++)
            params[i] = 2 * draw(&state);
        for (int u = 0; u < GOLDEN_UPDATES; u++) {
            const struct np_update update = {.params = params,
                .state = {states[0], states[1]},
                .grads = grads,
                .n = GOLDEN_N,
                .grad_scale = 1,
                .rule = {1, golden_optim[c].decay, 0},
                .rows = (uint64_t)golden_optim[c].rows,
                .scratch = scratch,
                .means = &np_muon_plain};
            struct np_hyper hyper;

            for (int i = 0; i < GOLDEN_N; i++)
                grads[i] = ldexpf(draw(&state), -(i % 8));
            np_optim_hyper(&options, 1, (uint64_t)u, &hyper);
            np_optim_update(&hyper, &update);
            if (u == 0)
                first = error_of(params, golden_optim[c].first, 1);
        }
        const double last = error_of(params, golden_optim[c].last, GOLDEN_UPDATES);
        cr_expect(first <= 2, "%s: update 1 is off by %g roundings", golden_optim[c].config, first);
        cr_expect(last <= 1, "%s: update %d is off by %g roundings each", golden_optim[c].config,
            GOLDEN_UPDATES, last);
    }
}
