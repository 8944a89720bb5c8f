/* Shared by the parts of a run: messages, names, position. */
#include "daemon/run/run_parts.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

void np_run_say(struct np_run *run, const char *format, ...)
{
    char text[1400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    np_ui_say(&run->ui, "%s", text);
    pthread_mutex_lock(&run->say_lock);
    np_log_text(&run->log, text);
    pthread_mutex_unlock(&run->say_lock);
}

void np_run_warn(void *context, const char *text)
{
    struct np_run *run = context;
    char of_rank[1400];

    if (run->rank > 0 && strncmp(text, "SIG", 3) == 0)
        return; /* rank 0 was told the same, or ends with the others */
    if (run->rank > 0) {
        snprintf(of_rank, sizeof(of_rank), "rank %d: %s", run->rank, text);
        text = of_rank;
    }
    np_ui_warn(&run->ui, text);
    pthread_mutex_lock(&run->say_lock);
    np_log_text(&run->log, text);
    pthread_mutex_unlock(&run->say_lock);
}

void np_run_note(void *context, const char *text)
{
    np_run_say(context, "%s", text);
}

const char *np_run_name(const struct np_run *run, const char *dir)
{
    const struct np_run_options *options = run->options;

    return options->into_name && strcmp(dir, options->into) == 0 ? options->into_name : dir;
}

void np_run_at(struct np_run *run, const char *doing)
{
    const struct np_run_follower *follower = run->options->follower;

    run->nr_done++;
    if (follower)
        follower->at(follower->context, run, doing);
}

bool np_run_stopping(void *context)
{
    const struct np_run *run = context;

    return run->comm ? run->all_stop : np_watch_stopping(run->watch) != 0;
}

const char *np_run_set_name(const struct np_run *run)
{
    return np_run_has_val(run) && !run->testing ? "val" : "test";
}

double np_run_epoch_at(const struct np_run *run, uint64_t step)
{
    return (double)step * (double)run->config->loader.batch / (double)run->nr_train;
}

bool np_run_has_val(const struct np_run *run)
{
    return run->setup.sets.val || run->config->data.split > 0;
}

double np_eval_accuracy(const struct np_eval_report *eval)
{
    return eval->images && !eval->numbers ? (double)eval->correct / (double)eval->images : NAN;
}

void np_run_eval_text(
    const struct np_run *run, const struct np_eval_report *eval, char text[NP_EVAL_TEXT])
{
    const enum np_label_type type = (enum np_label_type)run->config->data.train.label_type;
    char figures[NP_FIGURES_TEXT];

    if (type == NP_LABEL_CLASS)
        snprintf(figures, sizeof(figures), ", accuracy %.2f%%", 100 * np_eval_accuracy(eval));
    else
        np_figures_text(type, eval == &run->test ? &run->test_figures : &run->figures, figures);
    snprintf(text, NP_EVAL_TEXT, "loss %.4f%s", eval->loss, figures);
}

void np_run_put_of_set(struct np_json *line, const char *set, const char *what, double value)
{
    char key[40];

    snprintf(key, sizeof(key), "%s_%s", set, what);
    np_json_real(line, key, value);
}

void np_run_put_eval(struct np_run *run, const char *set, const struct np_eval_report *eval)
{
    const enum np_label_type type = (enum np_label_type)run->config->data.train.label_type;
    const bool made = eval && eval->images;
    char prefix[16];

    np_run_put_of_set(&run->line, set, "loss", made ? eval->loss : NAN);
    if (type != NP_LABEL_VALUE)
        np_run_put_of_set(&run->line, set, "accuracy", made ? np_eval_accuracy(eval) : NAN);
    snprintf(prefix, sizeof(prefix), "%.8s_", set);
    if (type != NP_LABEL_CLASS && made)
        np_figures_put(
            &run->line, prefix, type, eval == &run->test ? &run->test_figures : &run->figures);
}

void np_run_put_evals(
    struct np_run *run, const struct np_eval_report *eval, const struct np_eval_report *test)
{
    const bool val = np_run_has_val(run);

    if (val)
        np_run_put_eval(run, "val", eval);
    np_run_put_eval(run, "test", val ? test : eval);
}
