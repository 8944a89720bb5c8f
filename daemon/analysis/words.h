/* What the terminal and profile.html both say of a profile: its rows, its sentences, and numbers as people
 * read them. Pure; any thread. */
#ifndef NP_WORDS_H
#define NP_WORDS_H

#include "daemon/analysis/profile.h"

struct np_words_row {
    enum np_stage stage;
    const char *name;
    bool limiter;    /* of a limited profile */
    bool shares;     /* of reader stages all but one: that one's bar is theirs too */
    double ceiling;  /* images a second; INFINITY: this row has no bar */
    double could_do; /* the same, also where the bar is another row's */
    double busy;     /* share of what it runs on */
    double queue;    /* how full; < 0: it has none */
};

/* The stages that the run has, in the pipeline's order: at most NP_NR_STAGES. The CPU stages of the
 * readers have one ceiling: it is the row's of the one named, or else of the busiest; the others share. */
int np_words_rows(const struct np_profile *profile, struct np_words_row ret_rows[NP_NR_STAGES]);
/* What a bar from end to end stands for: a round number, at most 5 times the rate, so that bars beyond
 * it are cut. */
double np_words_scale(
    const struct np_profile *profile, const struct np_words_row *rows, int nr_rows);

/* Where the trainer's time went, the largest first: computing, waiting for a stage, checkpoints, else. */
enum np_words_where { NP_WHERE_COMPUTE, NP_WHERE_WAIT, NP_WHERE_CHECKPOINT, NP_WHERE_ELSE };
struct np_words_part {
    enum np_words_where where;
    enum np_stage stage; /* of a wait */
    double share;
};
#define NP_WORDS_PARTS (NP_NR_STAGES + 3)
int np_words_parts(
    const struct np_profile *profile, struct np_words_part ret_parts[NP_WORDS_PARTS]);

/* Of what a change costs: "+1.3 cores, +96 MiB; 4.0 cores are idle"; "": nothing. */
void np_words_cost(const struct np_profile *profile, char *text, size_t bytes);
/* Of a stage without a rate of its own: "1.1 s every 500 steps = 0.4% of the time", "hand-over costs 3.1%",
 * "in the same 4 readers"; else "". */
void np_words_note(
    const struct np_profile *profile, const struct np_words_row *row, char *text, size_t bytes);
/* "noise ±1.8% (A/A) · profiler 0.3% · other tenants 0.1 cores". */
void np_words_trust(const struct np_profile *profile, char *text, size_t bytes);

/* A number or a name as text; `np_words_rate(rate).text` lasts to the end of the full expression. "1,730", "48.2",
 * "no limit"; "148 ms"; "0.4%", "63%"; "96 MiB"; "1.65x"; " ±0.03", what noise makes of a gain, or "" where it is not
 * known; a stage's name in capitals. */
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
