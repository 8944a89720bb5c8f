#include "daemon/profile/range_test.h"

#include <math.h>
#include <string.h>

#define FADES    0.98
#define DIVERGES 4
#define LAST     5 /* points of a test that diverged which are not judged */
#define LINES    12
#define LEFT     9 /* columns of the axis */
#define MAX_WIDE 160

bool np_range_add(struct np_range_test *test, double lr, double loss)
{
    if (test->diverged || test->nr_points == test->room)
        return true;
    if (!isfinite(loss)) {
        test->diverged = true;
        return true;
    }
    test->mean = FADES * test->mean + (1 - FADES) * loss;
    const double smooth = test->mean / (1 - pow(FADES, test->nr_points + 1));
    if (test->nr_points == 0 || smooth < test->best)
        test->best = smooth;
    test->points[test->nr_points++] = (struct np_range_point){lr, loss, smooth};
    test->diverged = smooth > DIVERGES * test->best;
    return test->diverged || test->nr_points == test->room;
}

void np_range_judge(struct np_range_test *test)
{
    const int first = test->room / 10, last = test->nr_points - (test->diverged ? LAST : 0);
    const int window = test->room / 10 + 1;
    const struct np_range_point *p = test->points;
    double slope = 0;
    int lowest = first;

    test->steep = test->minimum = (double)NAN;
    for (int i = first; i + window < last; i++) {
        const double way = (p[i + window].smooth - p[i].smooth) / log(p[i + window].lr / p[i].lr);

        if (way < slope) {
            slope = way;
            test->steep = sqrt(p[i].lr * p[i + window].lr);
        }
    }
    for (int i = first; i < last; i++)
        if (p[i].smooth < p[lowest].smooth)
            lowest = i;
    if (last - first > 1)
        test->minimum = p[lowest].lr / 10;
}

/* --- the plot ------------------------------------------------------------------------------ */

/* Dots of braille: 2 columns and 4 lines a character (Unicode 16, table 26-1). */
struct dots {
    unsigned char cells[LINES][MAX_WIDE];
    int wide;
    double low, high; /* of the axis */
};

static void set_dot(struct dots *dots, int x, int y)
{
    static const unsigned char bits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

    if (x >= 0 && x < 2 * dots->wide && y >= 0 && y < 4 * LINES)
        dots->cells[y / 4][x / 2] |= bits[y % 4][x % 2];
}

static int height_of(const struct dots *dots, double loss)
{
    const double share = (loss - dots->low) / (dots->high - dots->low);

    return (int)lround((1 - fmin(fmax(share, 0), 1)) * (4 * LINES - 1));
}

/* Connects neighbours, so that a steep part is no row of single dots. */
static void draw(struct dots *dots, const struct np_range_test *test)
{
    const struct np_range_point *p = test->points;
    const double from = log(p[0].lr), way = log(p[test->nr_points - 1].lr) - from;
    int before = -1, x_before = 0;

    for (int i = 0; i < test->nr_points; i++) {
        const double share = way > 0 ? (log(p[i].lr) - from) / way : 0;
        const int x = (int)lround(share * (2 * dots->wide - 1)), y = height_of(dots, p[i].smooth);
        const int nr = i ? x - x_before + (y > before ? y - before : before - y) : 0;

        for (int k = 0; k <= nr; k++)
            set_dot(dots, nr ? x_before + (x - x_before) * k / nr : x,
                nr ? before + (y - before) * k / nr : y);
        before = y;
        x_before = x;
    }
}

static void scale(struct dots *dots, const struct np_range_test *test)
{
    dots->low = dots->high = test->points[0].smooth;
    for (int i = 0; i < test->nr_points; i++) {
        dots->low = fmin(dots->low, test->points[i].smooth);
        dots->high = fmax(dots->high, test->points[i].smooth);
    }
    dots->high = fmin(dots->high, dots->low + 2 * fmax(test->points[0].smooth - dots->low, 0.1));
}

void np_range_plot(const struct np_range_test *test, int columns, FILE *out)
{
    struct dots dots = {.wide = columns - LEFT - 2};
    char left[32], right[32];

    if (test->nr_points == 0)
        return;
    if (dots.wide > MAX_WIDE)
        dots.wide = MAX_WIDE;
    if (dots.wide < 40 - LEFT)
        dots.wide = 40 - LEFT;
    scale(&dots, test);
    draw(&dots, test);
    for (int y = 0; y < LINES; y++) {
        if (y == 0 || y == LINES - 1)
            fprintf(out, "%*.4g │", LEFT - 2, y ? dots.low : dots.high);
        else
            fprintf(out, "%*s │", LEFT - 2, "");
        for (int x = 0; x < dots.wide; x++) /* U+2800 and its dots, in UTF-8 */
            fprintf(
                out, "\xe2%c%c", 0xa0 + (dots.cells[y][x] >> 6), 0x80 + (dots.cells[y][x] & 63));
        fputc('\n', out);
    }
    snprintf(left, sizeof(left), "%.2g", test->points[0].lr);
    snprintf(right, sizeof(right), "%.2g", test->points[test->nr_points - 1].lr);
    fprintf(out, "%*s%s%*s\n", LEFT, "", left, dots.wide - (int)strlen(left), right);
}
