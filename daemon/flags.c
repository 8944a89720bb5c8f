#include "daemon/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/base/clock.h"
#include "loader/base/nearest.h"

#define LISTING_NS 5000000000ull

#define MAX_FLAGS 64

/* next: the word after it, or NULL. */
static void print_unknown(const char *command, const char *word, const char *next,
    const struct np_flag *flags, bool overrides)
{
    const char *names[MAX_FLAGS] = {0}, *equals = strchr(word, '=');
    const int name_bytes = (int)strcspn(word, "=");
    const char *value = equals ? equals + 1 : next && *next != '-' ? next : "VALUE";
    char name[64];
    int n = 0;

    for (const struct np_flag *flag = flags; flag->name && n + 1 < MAX_FLAGS; flag++)
        names[n++] = flag->name;
    snprintf(name, sizeof(name), "%.*s", name_bytes, word);
    const char *nearest = np_meant(name, names), *key = np_alias_key(name);
    fprintf(stderr, "nnpipe %s: there is no flag %.*s", command, name_bytes, word);
    if (key && overrides && !nearest) {
        fprintf(stderr, "; it is a key of the config: -o %s=%s\n", key, value);
        return;
    }
    if (nearest) {
        fprintf(stderr, "; did you mean %s?\n", nearest);
        return;
    }
    fputs("; it takes ", stderr);
    for (int i = 0; i < n; i++)
        fprintf(stderr, "%s%s", i ? ", " : "", names[i]);
    fprintf(stderr, "%s: `nnpipe help %s`\n", overrides ? ", -o KEY=VALUE" : "", command);
}

static const struct np_flag *find_flag(
    const struct np_flag *flags, const char *word, size_t name_bytes)
{
    for (; flags->name; flags++)
        if (strlen(flags->name) == name_bytes && strncmp(flags->name, word, name_bytes) == 0)
            return flags;
    return NULL;
}

bool np_flag_repeats(const char *word)
{
    return true;
}

/* Where the flag's next value belongs; NULL after a message. */
static const char **place_of(const char *command, const struct np_flag *flag)
{
    const char **place = flag->text;

    if (flag->maybe != np_flag_repeats)
        return place;
    while (*place)
        place++;
    if (place - flag->text < NP_MAX_REPEATS)
        return place;
    fprintf(stderr, "nnpipe %s: at most %d %s are possible\n", command, NP_MAX_REPEATS, flag->name);
    return NULL;
}

/* Returns how many words after argv[i] it used, or -1 after a message. */
static int take_flag(int argc, char **argv, int i, const struct np_flag *flags, bool overrides)
{
    const char *word = argv[i], *equals = strchr(word, '=');
    size_t name_bytes = equals ? (size_t)(equals - word) : strlen(word);
    const struct np_flag *flag = find_flag(flags, word, name_bytes);
    const char *next = i + 1 < argc ? argv[i + 1] : NULL;

    if (!flag) {
        print_unknown(argv[0], word, next, flags, overrides);
        return -1;
    }
    if (flag->set)
        *flag->set = true;
    if (equals && !flag->text) {
        fprintf(stderr, "nnpipe %s: %s takes no value\n", argv[0], flag->name);
        return -1;
    }
    const char **place = flag->text ? place_of(argv[0], flag) : NULL;
    if (flag->text && !place)
        return -1;
    if (equals) {
        *place = equals + 1;
        return 0;
    }
    if (!flag->text || (flag->set && (!next || *next == '-' || !flag->maybe(next))))
        return 0;
    if (!next) {
        fprintf(stderr, "nnpipe %s: %s needs a value\n", argv[0], flag->name);
        return -1;
    }
    *place = next;
    return 1;
}

static int take_override(int argc, char **argv, int i, struct np_overrides *overrides)
{
    const char *text = argv[i][2] ? argv[i] + 2 : i + 1 < argc ? argv[i + 1] : NULL;

    if (!text) {
        fprintf(stderr, "nnpipe %s: -o needs KEY=VALUE\n", argv[0]);
        return -1;
    }
    if (overrides->nr_texts == NP_MAX_OVERRIDES) {
        fprintf(stderr, "nnpipe %s: at most %d -o are possible\n", argv[0], NP_MAX_OVERRIDES);
        return -1;
    }
    overrides->texts[overrides->nr_texts++] = text;
    return argv[i][2] ? 0 : 1;
}

/* Is it KEY=VALUE, and not the name of a file? */
static bool is_override(const char *word)
{
    const size_t key_bytes = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_.");

    return key_bytes > 0 && word[key_bytes] == '=' && access(word, F_OK) < 0;
}

int np_flags_parse(
    int argc, char **argv, const struct np_flag *flags, struct np_overrides *overrides, int *ret_nr)
{
    int nr = 0;
    bool ended = false;

    for (int i = 1; i < argc; i++) {
        int took = 0;

        if (ended || argv[i][0] != '-' || argv[i][1] == '\0')
            argv[++nr] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            ended = true;
        else if (overrides && strncmp(argv[i], "-o", 2) == 0)
            took = take_override(argc, argv, i, overrides);
        else
            took = take_flag(argc, argv, i, flags, overrides != NULL);
        if (took < 0)
            return NP_EXIT_USAGE;
        i += took;
    }
    for (int i = 1; overrides && i <= nr; i++)
        if (is_override(argv[i])) {
            fprintf(stderr, "nnpipe %s: -o is missing before %s\n", argv[0], argv[i]);
            return NP_EXIT_USAGE;
        }
    *ret_nr = nr;
    return 0;
}

int np_usage(const char *command, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "nnpipe %s: ", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return NP_EXIT_USAGE;
}

void np_note(void *context, const char *text)
{
    fprintf(stderr, "%s\n", text);
}

void np_note_listing(void *context, const char *path, uint64_t samples)
{
    uint64_t *last_ns = context, now_ns = np_now_ns();
    char text[1024];

    if (now_ns - *last_ns < LISTING_NS)
        return;
    *last_ns = now_ns;
    snprintf(text, sizeof(text), "%s", path);
    np_text_clean(text);
    fprintf(stderr, "listing %s: %llu files\n", text, (unsigned long long)samples);
}

void np_complain(const struct np_err *err)
{
    char text[1100];

    np_err_format(err, text, sizeof(text));
    fprintf(stderr, "nnpipe: %s\n", text);
}
