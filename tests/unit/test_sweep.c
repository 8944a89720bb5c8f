/* The jobs of a sweep: values, combinations and names. */
#include <errno.h>
#include <string.h>

#include "daemon/client/sweep.h"
#include "tests/test.h"

static char names[NP_SWEEP_MAX_JOBS][NP_SWEEP_NAME];

/* The code of adding an axis to an empty sweep; the error's text in err. */
static int refused(const char *text, struct np_err *err)
{
    struct np_sweep sweep = {0};

    *err = (struct np_err){0};
    const int code = np_sweep_add(&sweep, text, err);
    np_sweep_fini(&sweep);
    return code;
}

Test(sweep, jobs_are_the_product_and_the_last_axis_changes_fastest)
{
    struct np_sweep sweep = {0};
    struct np_err err = {0};

    cr_assert_eq(np_sweep_add(&sweep, "optimizer.sgd.lr=0.1,0.05", &err), 0);
    cr_assert_eq(np_sweep_add(&sweep, "seed=1..3", &err), 0);
    cr_assert_eq(sweep.nr_jobs, 6);
    cr_assert_str_eq(np_sweep_text(&sweep, 0, 0), "optimizer.sgd.lr=0.1");
    cr_assert_str_eq(np_sweep_text(&sweep, 2, 0), "optimizer.sgd.lr=0.1");
    cr_assert_str_eq(np_sweep_text(&sweep, 2, 1), "seed=3");
    cr_assert_str_eq(np_sweep_text(&sweep, 3, 0), "optimizer.sgd.lr=0.05");
    cr_assert_str_eq(np_sweep_text(&sweep, 3, 1), "seed=1");
    np_sweep_names(&sweep, "net", names);
    cr_assert_str_eq(names[0], "net-lr0.1-seed1");
    cr_assert_str_eq(names[5], "net-lr0.05-seed3");
    np_sweep_fini(&sweep);
}

Test(sweep, a_comma_in_brackets_or_quotes_is_part_of_a_value)
{
    struct np_sweep sweep = {0};
    struct np_err err = {0};

    cr_assert_eq(np_sweep_add(&sweep, "a=[x, {y: 1, z: 2}],\"p,q\",-2..-1,1..x", &err), 0);
    cr_assert_eq(sweep.nr_jobs, 5);
    cr_assert_str_eq(np_sweep_text(&sweep, 0, 0), "a=[x, {y: 1, z: 2}]");
    cr_assert_str_eq(np_sweep_text(&sweep, 1, 0), "a=\"p,q\"");
    cr_assert_str_eq(np_sweep_text(&sweep, 2, 0), "a=-2");
    cr_assert_str_eq(np_sweep_text(&sweep, 3, 0), "a=-1");
    cr_assert_str_eq(np_sweep_text(&sweep, 4, 0), "a=1..x");
    np_sweep_fini(&sweep);
}

Test(sweep, names_have_only_allowed_characters_and_are_unique)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    struct np_sweep sweep = {0};
    struct np_err err = {0};
    char base[64];

    cr_assert_eq(np_sweep_add(&sweep, "path=/a/b,a b,a:b,-1,\xc3\xa4", &err), 0);
    np_sweep_names(&sweep, "n", names);
    cr_assert_str_eq(names[0], "n-path-a-b");
    cr_assert_str_eq(names[1], "n-patha-b");
    cr_assert_str_eq(names[2], "n-patha-b-2");
    cr_assert_str_eq(names[3], "n-path-1");
    cr_assert_str_eq(names[4], "n-path");
    memset(base, 'x', 63);
    base[63] = '\0';
    np_sweep_names(&sweep, base, names);
    for (int i = 0; i < sweep.nr_jobs; i++) {
        cr_assert(
            strlen(names[i]) < NP_SWEEP_NAME && strspn(names[i], allowed) == strlen(names[i]));
        for (int k = 0; k < i; k++)
            cr_assert_str_neq(names[i], names[k]);
    }
    np_sweep_fini(&sweep);
    cr_assert_eq(np_sweep_add(&sweep, "averyverylongkeywithoutanydotinit=1..256", &err), 0);
    np_sweep_names(&sweep, base, names);
    for (int i = 0; i < sweep.nr_jobs; i++)
        for (int k = 0; k < i; k++)
            cr_assert(strlen(names[i]) < NP_SWEEP_NAME && strcmp(names[i], names[k]) != 0);
    np_sweep_fini(&sweep);
}

Test(sweep, mistakes_are_named)
{
    struct np_sweep sweep = {0};
    struct np_err err;

    cr_assert(refused("lr", &err) == -EINVAL && strstr(err.text, "KEY=VALUE"));
    cr_assert(refused("=1", &err) == -EINVAL && strstr(err.text, "KEY=VALUE"));
    cr_assert(refused("lr=", &err) == -EINVAL && strstr(err.text, "lr: a value is empty"));
    cr_assert(refused("lr=1,", &err) == -EINVAL && strstr(err.text, "empty"));
    cr_assert(
        refused("lr=1,2,1", &err) == -EINVAL && strstr(err.text, "the value 1 is there twice"));
    cr_assert(refused("seed=5..1", &err) == -EINVAL && strstr(err.text, "write 1..5"));
    cr_assert(refused("seed=1..257", &err) == -E2BIG && strstr(err.text, "256"));
    cr_assert(refused("seed=1..2000000000", &err) == -E2BIG);
    cr_assert(refused("name=a,b", &err) == -EINVAL && strstr(err.text, "names its runs itself"));
    cr_assert_eq(np_sweep_add(&sweep, "a=1..20", &err), 0);
    err = (struct np_err){0};
    cr_assert(np_sweep_add(&sweep, "a=1", &err) == -EINVAL && strstr(err.text, "there twice"));
    np_sweep_fini(&sweep);
    cr_assert_eq(np_sweep_add(&sweep, "a=1..20", &err), 0);
    err = (struct np_err){0};
    cr_assert(np_sweep_add(&sweep, "b=1..20", &err) == -E2BIG && strstr(err.text, "400 runs"));
    np_sweep_fini(&sweep);
}
