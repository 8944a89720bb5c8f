/* Figures of labels that are several classes or numbers, against scikit-learn's definitions. */
#include <math.h>

#include "daemon/run/figures.h"
#include "tests/test.h"

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

/* Class 0: outputs 3, 2 (tied) and -1 in this order right, wrong and right, right: the tie is one step,
 * precision 1 at 1/3, 2/3 at 2/3, 3/4 at 3/3. Class 1 never occurs, class 2 is always right. */
Test(figures, of_several_classes)
{
    static const float outputs[4][3] = {{3, -1, 1}, {2, 1, -1}, {2, -1, 2}, {-1, -1, -2}};
    static const float targets[4][3] = {{1, 0, 1}, {0, 0, 0}, {1, 0, 1}, {1, 0, 0}};
    struct np_kept kept = {.type = NP_LABEL_MULTI, .width = 3};
    struct np_multi_figures each[3];
    struct np_figures figures;

    for (uint64_t i = 0; i < 4; i++)
        cr_assert_eq(np_kept_add(&kept, i, outputs[i], targets[i], NULL), 0);
    cr_assert_eq(np_figures_make(&kept, each, &figures, NULL), 0);
    cr_expect(near(each[0].ap, (1 + 2.0 / 3 + 3.0 / 4) / 3), "%g", each[0].ap);
    cr_expect(near(each[0].precision, 2.0 / 3) && near(each[0].recall, 2.0 / 3));
    cr_expect(isnan(each[1].ap) && each[1].f1 == 0 && each[1].predicted == 1);
    cr_expect(each[2].ap == 1 && each[2].f1 == 1);
    cr_expect(near(figures.map, (each[0].ap + 1) / 2));
    cr_expect(near(figures.f1, (2.0 / 3 + 0 + 1) / 3));
    cr_expect(near(figures.f1_micro, 2.0 * 4 / (6 + 5)));
    cr_expect(near(figures.accuracy, 0.5)); /* the first and the third image */
    np_kept_fini(&kept);
}

Test(figures, of_numbers)
{
    static const float outputs[4][2] = {{1, 5}, {2, 5}, {3, 5}, {6, 6}};
    static const float targets[4][2] = {{1, 5}, {2, 5}, {5, 5}, {4, 5}};
    struct np_kept kept = {.type = NP_LABEL_VALUE, .width = 2};
    struct np_value_figures each[2];
    struct np_figures figures;

    for (uint64_t i = 0; i < 4; i++)
        cr_assert_eq(np_kept_add(&kept, i, outputs[i], targets[i], NULL), 0);
    cr_assert_eq(np_figures_make(&kept, each, &figures, NULL), 0);
    cr_expect(near(each[0].mae, 1) && near(each[0].rmse, sqrt(2)) && near(each[0].r2, 0.2));
    cr_expect(near(each[1].mae, 0.25) && near(each[1].rmse, 0.5));
    cr_expect(each[1].r2 == 0); /* all labels alike, an answer wrong */
    cr_expect(near(figures.value.mae, 0.625) && near(figures.value.r2, 0.1));
    cr_expect(near(figures.value.rmse, sqrt(9.0 / 8)));
    np_kept_fini(&kept);
}

Test(figures, without_images_are_zeros)
{
    struct np_kept kept = {.type = NP_LABEL_VALUE, .width = 2};
    struct np_value_figures each[2];
    struct np_figures figures;

    cr_assert_eq(np_figures_make(&kept, each, &figures, NULL), 0);
    cr_expect(each[1].mae == 0 && figures.value.rmse == 0);
}

Test(figures, the_worst_images_and_where_the_errors_lie)
{
    static const float outputs[4][2] = {{0, 10}, {1, 10}, {3, 10}, {3, 10}};
    static const float targets[4][2] = {{0, 8}, {1, 12}, {2, 12}, {3, 8}};
    struct np_kept kept = {.type = NP_LABEL_VALUE, .width = 2};
    struct np_error_bins bins;
    uint64_t places[3];
    double losses[3];
    int nr = 0;

    for (uint64_t i = 0; i < 4; i++)
        cr_assert_eq(np_kept_add(&kept, i, outputs[i], targets[i], NULL), 0);
    cr_assert_eq(np_kept_worst(&kept, 3, places, losses, &nr, NULL), 0);
    /* variances 1.25 and 4 */
    cr_expect(nr == 3 && places[0] == 2 && places[1] == 0 && places[2] == 1);
    cr_expect(near(losses[0], sqrt((1 / 1.25 + 1) / 2)) && near(losses[1], sqrt(0.5)));
    np_kept_errors(&kept, 1, &bins);
    cr_expect(bins.most == 2 && bins.images[0] == 2 && bins.images[NP_ERROR_BINS - 1] == 2);
    np_kept_errors(&kept, 0, &bins);
    cr_expect(bins.most == 1 && bins.images[NP_ERROR_BINS / 2] == 3);
    np_kept_fini(&kept);

    kept = (struct np_kept){.type = NP_LABEL_VALUE, .width = 2};
    np_kept_errors(&kept, 0, &bins);
    cr_expect(bins.most == 0 && bins.images[NP_ERROR_BINS / 2] == 0);
    cr_assert_eq(np_kept_worst(&kept, 3, places, losses, &nr, NULL), 0);
    cr_expect_eq(nr, 0);
}

Test(figures, the_loss_of_several_classes_does_not_overflow)
{
    static const float outputs[2][2] = {{1000, -1000}, {0, 0}}, targets[2] = {0, 1};
    struct np_kept kept = {.type = NP_LABEL_MULTI, .width = 2};
    uint64_t places[2];
    double losses[2];
    int nr = 0;

    for (uint64_t i = 0; i < 2; i++)
        cr_assert_eq(np_kept_add(&kept, i, outputs[i], targets, NULL), 0);
    cr_assert_eq(np_kept_worst(&kept, 2, places, losses, &nr, NULL), 0);
    cr_expect(nr == 2 && places[0] == 0 && near(losses[0], 1000) && near(losses[1], log(2)));
    np_kept_fini(&kept);
}
