/* The arithmetic of blocks: `$out*4`, `$in != $out and $stride > 1`. Whole numbers; comparisons
 * give 1 or 0. Pure. */
#ifndef NP_EXPR_H
#define NP_EXPR_H

#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

/* Returns the text of parameter `name` (length bytes, no NUL), or NULL if there is none. */
typedef const char *(*np_param_fn)(void *context, const char *name, size_t length);

/* Strongest first: - not, * / %, + -, == != < <= > >=, and, or; parentheses. -EINVAL: not an
 * expression, a parameter that is unknown or not a whole number, a division by 0, a number past
 * 2^53. */
int np_expr_eval(
    const char *text, np_param_fn param, void *context, int64_t *ret_value, struct np_err *err);
/* True: text is one parameter alone ("$out"); its name is text + 1. */
bool np_expr_is_param(const char *text);
/* Calls found for every `$name` in text. */
void np_expr_params(
    const char *text, void (*found)(void *context, const char *name, size_t length), void *context);

#endif
