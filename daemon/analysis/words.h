/* The rows, sentences and formatted numbers of a profile, for the terminal and profile.html.
 * Pure; any thread. */
#ifndef NP_WORDS_H
#define NP_WORDS_H

#include "daemon/analysis/profile.h"

struct np_words_row {
    enum np_stage stage;
    const char *name;
    bool limiter;    /* in a limited profile only */
    bool shares;     /* a reader stage without its own bar: another row's bar is for both */
    double ceiling;  /* images per second; INFINITY: this row has no bar */
    double could_do; /* the same, also if the bar is on another row */
    double busy;     /* np_model_busy() */
    double queue;    /* share that is full; < 0: no queue */
};

/* Fills the rows of the run's stages, in the pipeline's order; returns their number. The
 * readers' CPU stages have one ceiling: the bar is on the limiter's row, else on the busiest
 * one's. */
int np_words_rows(const struct np_profile *profile, struct np_words_row ret_rows[NP_NR_STAGES]);
/* The rate of a full bar: the highest ceiling, at most 5 times the run's rate; longer bars are
 * cut. */
double np_words_scale(
    const struct np_profile *profile, const struct np_words_row *rows, int nr_rows);

/* The parts of the trainer's time, the largest first: computing, waiting for a stage,
 * checkpoints, rest. */
enum np_words_where { NP_WHERE_COMPUTE, NP_WHERE_WAIT, NP_WHERE_CHECKPOINT, NP_WHERE_ELSE };
struct np_words_part {
    enum np_words_where where;
    enum np_stage stage; /* of a wait */
    double share;
};
#define NP_WORDS_PARTS (NP_NR_STAGES + 3)
int np_words_parts(
    const struct np_profile *profile, struct np_words_part ret_parts[NP_WORDS_PARTS]);

/* The cost of the advice: "+1.3 cores, +96 MiB; 4.0 idle"; "": none. */
void np_words_cost(const struct np_profile *profile, char *text, size_t bytes);
/* The note of a stage without a rate of its own: "1.1 s every 500 steps = 0.4% of the time",
 * "hand-over costs 3.1%", "in the same 4 readers"; else "". */
void np_words_note(
    const struct np_profile *profile, const struct np_words_row *row, char *text, size_t bytes);
/* "noise ±1.8% (A/A) · profiler's cost 0.3% · other tenants 0.1 cores". */
void np_words_trust(const struct np_profile *profile, char *text, size_t bytes);

/* A number or a name as text; `np_words_rate(rate).text` is valid to the end of the full
 * expression. Rate: "1,730", "48.2", "no limit"; time: "148 ms"; share: "0.4%", "63%"; size: "96
 * MiB"; gain: "1.65x"; spread, the uncertainty of a gain by noise: " ±0.03", or "" if unknown;
 * loud: a stage's name in capitals. */
struct np_words {
    char text[32];
};
struct np_words np_words_count(double value); /* 1234567: "1,234,567" */
struct np_words np_words_rate(double rate);
struct np_words np_words_time(double seconds);
struct np_words np_words_share(double share);
struct np_words np_words_size(uint64_t bytes);
struct np_words np_words_gain(double gain);
struct np_words np_words_spread(double gain, double noise);
struct np_words np_words_loud(enum np_stage stage);

#endif
