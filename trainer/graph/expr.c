/* A recursive-descent calculator, one function per level of precedence. The depth is bounded
 * because the text comes from a file. */
#include "trainer/graph/expr.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loader/base/text.h"

#define MAX_DEPTH 32
#define MAX_VALUE (1ll << 53)

struct reader {
    const char *text, *at;
    np_param_fn param;
    void *context;
    struct np_err *err;
    int depth;
    int code; /* of the first mistake; after it values mean nothing */
};

static int64_t any_of(struct reader *r);

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static size_t name_length(const char *name)
{
    size_t n = 0;

    while (name_char(name[n]))
        n++;
    return n;
}

static int64_t fail(struct reader *r, const char *what)
{
    if (r->code == 0)
        r->code = np_err_set(r->err, -EINVAL, "'%.80s': %s", r->text, what);
    return 0;
}

static void skip_spaces(struct reader *r)
{
    while (*r->at == ' ')
        r->at++;
}

/* Consumes the word if it comes next; a word of letters must end there. */
static bool take(struct reader *r, const char *word)
{
    size_t n = strlen(word);

    skip_spaces(r);
    if (strncmp(r->at, word, n) != 0 || (isalpha((unsigned char)*word) && name_char(r->at[n])))
        return false;
    r->at += n;
    return true;
}

static int64_t in_range(struct reader *r, double exact, int64_t value)
{
    return exact > (double)MAX_VALUE || exact < -(double)MAX_VALUE ? fail(r, "too large a number")
                                                                   : value;
}

/* --- values -------------------------------------------------------------------------------- */

static int64_t number_of(struct reader *r)
{
    const char *end;
    int64_t value;

    end = np_text_int_end(r->at, &value);
    if (!end || value > MAX_VALUE)
        return fail(r, "too large a number");
    if (name_char(*end) || *end == '.')
        return fail(r, "not a whole number");
    r->at = end;
    return value;
}

static int64_t param_of(struct reader *r)
{
    const char *name = r->at, *text;
    char what[160];
    size_t length = name_length(name);
    int64_t value;

    r->at += length;
    if (length == 0)
        return fail(r, "expected a parameter: $ and a name");
    text = r->param(r->context, name, length);
    if (text && np_text_int(text, -MAX_VALUE, MAX_VALUE, &value))
        return value;
    length = length > 64 ? 64 : length;
    if (text)
        snprintf(
            what, sizeof(what), "$%.*s is '%.40s', not a whole number", (int)length, name, text);
    else
        snprintf(what, sizeof(what), "there is no parameter $%.*s here", (int)length, name);
    return fail(r, what);
}

static int64_t deeper(struct reader *r, int64_t (*of)(struct reader *r))
{
    int64_t value = ++r->depth == MAX_DEPTH ? fail(r, "nested too deeply") : of(r);

    r->depth--;
    return value;
}

static int64_t value_of(struct reader *r)
{
    if (take(r, "-"))
        return -deeper(r, value_of);
    if (take(r, "not"))
        return !deeper(r, value_of);
    if (take(r, "(")) {
        int64_t value = deeper(r, any_of);

        return take(r, ")") ? value : fail(r, "missing )");
    }
    if (take(r, "$"))
        return param_of(r);
    if (isdigit((unsigned char)*r->at))
        return number_of(r);
    if (take(r, "true"))
        return 1;
    if (take(r, "false"))
        return 0;
    return fail(r, *r->at ? "expected a number or a $parameter before the rest"
                          : "expected a number or a $parameter at the end");
}

/* --- operators, strongest first ------------------------------------------------------------ */

static int64_t product_of(struct reader *r)
{
    int64_t value = value_of(r), right;

    while (r->code == 0) {
        if (take(r, "*")) {
            right = value_of(r);
            value = in_range(
                r, (double)value * (double)right, (int64_t)((uint64_t)value * (uint64_t)right));
        } else if (take(r, "/")) {
            right = value_of(r);
            value = right ? value / right : fail(r, "a division by 0");
        } else if (take(r, "%")) {
            right = value_of(r);
            value = right ? value % right : fail(r, "a division by 0");
        } else {
            break;
        }
    }
    return value;
}

static int64_t sum_of(struct reader *r)
{
    int64_t value = product_of(r);

    while (r->code == 0) {
        if (take(r, "+"))
            value += product_of(r);
        else if (take(r, "-"))
            value -= product_of(r);
        else
            break;
        value = in_range(r, (double)value, value);
    }
    return value;
}

static int64_t comparison_of(struct reader *r)
{
    int64_t value = sum_of(r);

    if (take(r, "=="))
        return value == sum_of(r);
    if (take(r, "!="))
        return value != sum_of(r);
    if (take(r, "<="))
        return value <= sum_of(r);
    if (take(r, ">="))
        return value >= sum_of(r);
    if (take(r, "<"))
        return value < sum_of(r);
    if (take(r, ">"))
        return value > sum_of(r);
    return value;
}

static int64_t all_of(struct reader *r)
{
    int64_t value = comparison_of(r);

    while (r->code == 0 && take(r, "and")) {
        int64_t right = comparison_of(r);

        value = value && right;
    }
    return value;
}

static int64_t any_of(struct reader *r)
{
    int64_t value = all_of(r);

    while (r->code == 0 && take(r, "or")) {
        int64_t right = all_of(r);

        value = value || right;
    }
    return value;
}

int np_expr_eval(
    const char *text, np_param_fn param, void *context, int64_t *ret_value, struct np_err *err)
{
    struct reader r = {.text = text, .at = text, .param = param, .context = context, .err = err};
    int64_t value = any_of(&r);

    skip_spaces(&r);
    if (r.code == 0 && *r.at)
        fail(&r, "expected an operator");
    if (r.code == 0)
        *ret_value = value;
    return r.code;
}

bool np_expr_is_param(const char *text)
{
    return text[0] == '$' && text[1] && text[1 + name_length(text + 1)] == '\0';
}

void np_expr_params(
    const char *text, void (*found)(void *context, const char *name, size_t length), void *context)
{
    while ((text = strchr(text, '$'))) {
        size_t length = name_length(++text);

        if (length)
            found(context, text, length);
    }
}
