#include "daemon/ui/reference.h"

static const char *const type_texts[] = {
    [NP_OPT_BOOL] = "true or false",
    [NP_OPT_INT] = "whole number",
    [NP_OPT_BYTES] = "bytes (64M, 2G)",
    [NP_OPT_FLOAT] = "number",
    [NP_OPT_SHARE] = "share (10% or 0.1)",
    [NP_OPT_STRING] = "text",
    [NP_OPT_WORD] = "word",
    [NP_OPT_FLOATS] = "list of numbers",
    [NP_OPT_PAIR] = "whole number or [height, width]",
    [NP_OPT_NODE] = "",
};

/* Escapes `|`, which would end the cell. */
static void print_words(FILE *out, const char *words)
{
    for (; *words; words++)
        fputs(*words == '|' ? ", " : (char[]){*words, '\0'}, out);
}

static void print_type(FILE *out, const struct np_option *option)
{
    fputs(option->type == NP_OPT_WORD ? "" : type_texts[option->type], out);
    if (option->words) {
        fputs(option->type == NP_OPT_WORD ? "" : " or ", out);
        print_words(out, option->words);
    }
    bool range = (option->min != 0 || option->max != 0) && option->type != NP_OPT_SHARE;
    if (range && option->max < 1e9)
        fprintf(out, ", %.10g to %.10g", option->min, option->max);
    else if (range && option->min != 0)
        fprintf(out, ", at least %.10g", option->min);
}

void np_reference_table(FILE *out, const struct np_option *table)
{
    if (!table || !table->key)
        return;
    fputs("\n| key | default | value | what it is |\n|---|---|---|---|\n", out);
    for (; table->key; table++) {
        const char *fallback = table->fallback;
        fprintf(out, "| `%s` | ", table->key);
        if (!fallback)
            fputs(table->type == NP_OPT_NODE ? "" : "required", out);
        else
            fprintf(out, "%s%s%s", *fallback ? "`" : "", fallback, *fallback ? "`" : "");
        fputs(" | ", out);
        print_type(out, table);
        fputs(" | ", out);
        for (const char *at = table->help ? table->help : ""; *at; at++)
            fprintf(out, "%s%c", *at == '|' ? "\\" : "", *at); /* else it would end the cell */
        fputs(" |\n", out);
    }
}
