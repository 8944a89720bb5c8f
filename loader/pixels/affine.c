/* See affine.h. The operations are in Python's order, so that the matrices are equal to the last
 * bit. */
#include "loader/pixels/affine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PI 3.14159265358979323846

static double radians(double degrees)
{
    return degrees * (PI / 180.0);
}

static void add_step(
    struct np_fold *fold, const double matrix[6], const struct np_affine_look *look)
{
    const int fill = look->fill[0] | look->fill[1] << 8 | look->fill[2] << 16;
    double values[8];

    for (int i = 0; i < 6; i++)
        values[i] = matrix[i];
    values[6] = look->filter;
    values[7] = fill;
    np_fold_pixels(fold, &np_pixel_affine, values, 8);
}

/* transforms/functional.py */
static void matrix_1(const struct np_affine *affine, double m[6])
{
    const double angle = radians(affine->angle), scale = affine->scale;
    const double sx = radians(affine->shear_x), sy = radians(affine->shear_y);
    const double back_x = -affine->centre_x - affine->tx, back_y = -affine->centre_y - affine->ty;

    m[0] = -sin(angle - sy) * tan(sx) / cos(sy) + cos(angle);
    m[1] = -(-cos(angle - sy) * tan(sx) / cos(sy) - sin(angle));
    m[3] = -(sin(angle - sy) / cos(sy));
    m[4] = cos(angle - sy) / cos(sy);
    m[0] /= scale;
    m[1] /= scale;
    m[3] /= scale;
    m[4] /= scale;
    m[2] = m[0] * back_x + m[1] * back_y + affine->centre_x;
    m[5] = m[3] * back_x + m[4] * back_y + affine->centre_y;
}

/* transforms/v2/functional/_geometry.py */
static void matrix_2(const struct np_affine *affine, double m[6])
{
    const double angle = radians(affine->angle), scale = affine->scale;
    const double sx = radians(affine->shear_x), sy = radians(affine->shear_y);
    const double from_x = affine->centre_x + affine->tx, from_y = affine->centre_y + affine->ty;
    const double a = cos(angle - sy) / cos(sy), c = sin(angle - sy) / cos(sy);

    m[0] = (cos(angle) - c * tan(sx)) / scale;
    m[1] = (a * tan(sx) + sin(angle)) / scale;
    m[3] = -c / scale;
    m[4] = a / scale;
    m[2] = affine->centre_x - m[0] * from_x - m[1] * from_y;
    m[5] = affine->centre_y - m[3] * from_x - m[4] * from_y;
}

void np_affine_step(
    struct np_fold *fold, const struct np_affine *affine, const struct np_affine_look *look)
{
    double matrix[6];

    if (affine->version == 1)
        matrix_1(affine, matrix);
    else
        matrix_2(affine, matrix);
    add_step(fold, matrix, look);
}

/* Python's round(x, 15). */
static double round15(double x)
{
    char text[40];

    snprintf(text, sizeof(text), "%.15f", x);
    return strtod(text, NULL);
}

void np_rotation_step(struct np_fold *fold, double angle, const struct np_affine_look *look)
{
    const double cx = fold->width / 2.0, cy = fold->height / 2.0;
    double turn = fmod(angle, 360.0), m[6] = {0};

    if (turn < 0)
        turn += 360.0;
    turn = -radians(turn);
    m[0] = m[4] = round15(cos(turn));
    m[1] = round15(sin(turn));
    m[3] = round15(-sin(turn));
    m[2] = m[0] * -cx + m[1] * -cy + 0.0 + cx;
    m[5] = m[3] * -cx + m[4] * -cy + 0.0 + cy;
    add_step(fold, m, look);
}
