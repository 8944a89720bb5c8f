/* Figures of an evaluation against scikit-learn 1.9's, for outputs that both compute. */
#include <math.h>

#include "daemon/run/outcomes.h"
#include "loader/base/mem.h"
#include "tests/test.h"

#define ROWS    40
#define CLASSES 6

/* Class 5 never occurs; class 4 only as an answer. */
static void made_row(int i, float logits[CLASSES], int32_t *ret_label)
{
    for (int j = 0; j < CLASSES; j++)
        logits[j] =
            j == 5 ? -20 : (float)(((i * 37 + j * 101 + i * j * 13) % 29 - 14) / 4.0 + j * 0.01);
    *ret_label = (i * i + i / 3) % 4;
}

static struct np_outcomes made_outcomes(void)
{
    struct np_outcomes outcomes = {.nr_classes = CLASSES};

    for (int i = 0; i < ROWS; i++) {
        float logits[CLASSES];
        int32_t label;

        made_row(i, logits, &label);
        cr_assert(np_outcomes_add(&outcomes, 1000 + (uint64_t)i, label, logits, NULL) == 0);
    }
    return outcomes;
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

static bool same(const struct np_class_figures *a, const struct np_class_figures *b)
{
    return a->support == b->support && a->predicted == b->predicted && a->correct == b->correct &&
           near(a->precision, b->precision) && near(a->recall, b->recall) && near(a->f1, b->f1);
}

Test(outcomes, classes_have_scikit_learns_figures)
{
    static const struct np_class_figures want[CLASSES] = {
        {14, 10, 2, 0.200000000000, 0.142857142857, 0.166666666667},
        {7, 7, 1, 0.142857142857, 0.142857142857, 0.142857142857},
        {13, 9, 3, 0.333333333333, 0.230769230769, 0.272727272727},
        {6, 4, 0, 0.000000000000, 0.000000000000, 0.000000000000},
        {0, 10, 0, 0.000000000000, 0.000000000000, 0.000000000000},
        {0, 0, 0, 0.000000000000, 0.000000000000, 0.000000000000},
    };
    static const struct np_class_figures macro = {0, 0, 0, 0.135238095238, 0.103296703297,
                                             0.116450216450},
                                         weighted = {0, 0, 0, 0.203333333333, 0.150000000000,
                                             0.171969696970};
    struct np_outcomes outcomes = made_outcomes();
    struct np_class_figures classes[CLASSES];
    struct np_class_means means;

    np_outcomes_classes(&outcomes, classes, &means);
    for (int c = 0; c < CLASSES; c++)
        cr_assert(same(&classes[c], &want[c]));
    cr_assert(means.nr_classes == 5);
    cr_assert(same(&means.macro, &macro) && same(&means.weighted, &weighted));
    np_outcomes_fini(&outcomes);
}

Test(outcomes, loss_ranks_and_calibration_are_those_of_numpy)
{
    struct np_outcomes outcomes = made_outcomes();
    struct np_calibration calibration;
    double loss = 0;

    for (int i = 0; i < ROWS; i++)
        loss += outcomes.rows[i].loss / ROWS;
    cr_assert(near(loss, 2.804887949756));
    cr_assert(near(np_outcomes_top(&outcomes, 1), 0.150000000000));
    cr_assert(near(np_outcomes_top(&outcomes, 2), 0.375000000000));
    cr_assert(near(np_outcomes_top(&outcomes, 3), 0.650000000000));
    cr_assert(np_outcomes_top(&outcomes, CLASSES) == 1);
    np_outcomes_calibration(&outcomes, &calibration);
    cr_assert(fabs(calibration.error - 0.511712463) < 1e-7);
    cr_assert(fabs(calibration.max_error - 0.886057258) < 1e-7);
    np_outcomes_fini(&outcomes);
}

Test(outcomes, of_equal_outputs_the_first_class_ranks_higher)
{
    static const float equal[] = {1, 2, 2, 2};
    struct np_outcomes outcomes = {.nr_classes = 4};

    cr_assert(np_outcomes_add(&outcomes, 0, 1, equal, NULL) == 0);
    cr_assert(np_outcomes_add(&outcomes, 1, 3, equal, NULL) == 0);
    cr_assert(outcomes.rows[0].predicted == 1 && outcomes.rows[0].rank == 0);
    cr_assert(outcomes.rows[1].predicted == 1 && outcomes.rows[1].rank == 2);
    np_outcomes_fini(&outcomes);
}

Test(outcomes, a_sure_mistake_has_its_loss_though_its_probability_is_zero)
{
    static const float sure[] = {400, -400};
    struct np_outcomes outcomes = {.nr_classes = 2};

    cr_assert(np_outcomes_add(&outcomes, 0, 1, sure, NULL) == 0);
    cr_assert(outcomes.rows[0].own == 0 && outcomes.rows[0].probability == 1);
    cr_assert(outcomes.rows[0].loss == 800);
    np_outcomes_fini(&outcomes);
}

Test(outcomes, the_confusion_matrix_has_every_image_once)
{
    struct np_outcomes outcomes = made_outcomes();
    uint64_t nr, all = 0, diagonal = 0;
    struct np_confusion *cells;

    cr_assert(np_outcomes_confusions(&outcomes, &cells, &nr, NULL) == 0);
    for (uint64_t i = 0; i < nr; i++) {
        uint64_t images = 0;

        for (int r = 0; r < ROWS; r++)
            images += outcomes.rows[r].label == cells[i].label &&
                      outcomes.rows[r].predicted == cells[i].predicted;
        cr_assert(images > 0 && images == cells[i].images);
        all += images;
        diagonal += cells[i].label == cells[i].predicted ? images : 0;
        if (i > 0)
            cr_assert(cells[i - 1].label * CLASSES + cells[i - 1].predicted <
                      cells[i].label * CLASSES + cells[i].predicted);
    }
    cr_assert(all == ROWS);
    cr_assert(near((double)diagonal / ROWS, np_outcomes_top(&outcomes, 1)));
    np_free(cells);
    np_outcomes_fini(&outcomes);
}

Test(outcomes, the_worst_come_in_order_and_earlier_ones_first)
{
    static const float even[] = {1, 1}, wrong[] = {3, 0};
    struct np_outcomes outcomes = made_outcomes(), few = {.nr_classes = 2};
    uint64_t places[10];

    cr_assert(np_outcomes_worst(&outcomes, 10, places) == 10);
    for (int i = 0; i < ROWS; i++) {
        int before = 0, place = -1;

        for (int k = 0; k < 10; k++)
            place = places[k] == (uint64_t)i ? k : place;
        for (int r = 0; r < ROWS; r++)
            before += outcomes.rows[r].loss > outcomes.rows[i].loss ||
                      (outcomes.rows[r].loss == outcomes.rows[i].loss && r < i);
        cr_assert(place == (before < 10 ? before : -1));
    }
    np_outcomes_fini(&outcomes);

    np_outcomes_add(&few, 0, 0, even, NULL);
    np_outcomes_add(&few, 1, 1, wrong, NULL);
    np_outcomes_add(&few, 2, 1, even, NULL);
    cr_assert(np_outcomes_worst(&few, 10, places) == 3);
    cr_assert(places[0] == 1 && places[1] == 0 && places[2] == 2);
    np_outcomes_fini(&few);
}

Test(outcomes, without_images_nothing_is_divided_by_zero)
{
    struct np_outcomes none = {.nr_classes = 3};
    struct np_class_figures classes[3];
    struct np_class_means means;
    struct np_calibration calibration;
    struct np_confusion *cells;
    uint64_t nr, places[1];

    np_outcomes_classes(&none, classes, &means);
    np_outcomes_calibration(&none, &calibration);
    cr_assert(means.nr_classes == 0 && means.macro.f1 == 0 && means.weighted.f1 == 0);
    cr_assert(calibration.error == 0 && np_outcomes_top(&none, 1) == 0);
    cr_assert(np_outcomes_worst(&none, 1, places) == 0);
    cr_assert(np_outcomes_confusions(&none, &cells, &nr, NULL) == 0 && nr == 0);
    np_free(cells);
}

Test(outcomes, of_a_binary_cross_entropy_are_sigmoids)
{
    const float logits[3] = {-2, 1.5f, -40};
    struct np_outcomes outcomes = {.nr_classes = 3, .sigmoids = true};

    np_outcomes_add(&outcomes, 0, 0, logits, NULL);
    np_outcomes_add(&outcomes, 1, 2, logits, NULL);
    cr_assert(outcomes.rows[0].predicted == 1);
    cr_assert(fabs((double)outcomes.rows[0].probability - 0.817574476194) < 1e-7);
    cr_assert(fabs((double)outcomes.rows[0].own - 0.119202922022) < 1e-7);
    cr_assert(near(outcomes.rows[0].loss, 2.126928011043));
    cr_assert(near(outcomes.rows[1].loss, 40));
    np_outcomes_fini(&outcomes);
}
