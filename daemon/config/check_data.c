/* A child lists the data and writes messages; the parent waits for them. */
#include "daemon/config/check_data.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/setup.h"
#include "daemon/service/child.h"
#include "loader/base/clock.h"

#define MAX_MESSAGES 1000
#define MAX_THREADS  10 /* threads that list a set */

struct message {
    bool is_end; /* else a note, with only a text */
    int code;    /* of np_sets_open() */
    struct np_row_sizes size;
    int nr_classes;
    uint64_t samples;
    char text[800];
};

/* --- the child ----------------------------------------------------------------------------- */

static void send_note(void *context, const char *text)
{
    const int *out_fd = context;
    struct message message = {.is_end = false};

    snprintf(message.text, sizeof(message.text), "%s", text);
    np_child_write(*out_fd, &message, sizeof(message));
}

static uint64_t samples(const struct np_index *index)
{
    return index ? np_index_samples(index) : 0;
}

static int list_data(const void *context, int out_fd)
{
    const struct np_config *config = context;
    const struct np_source_progress progress = {
        .note = send_note, .context = &out_fd, .no_unpack = true};
    struct message message = {.is_end = true};
    struct np_setup setup = {0};
    struct np_err err = {0};

    message.code = np_sets_open(&config->sets, &progress, &setup.sets, &err);
    if (message.code == 0 && config->data.split > 0)
        message.code = np_sets_split(&config->sets, &setup.sets, &err);
    snprintf(message.text, sizeof(message.text), "%s", err.text);
    message.size = setup.sets.size;
    message.nr_classes = setup.sets.classes ? setup.sets.classes->nr_items : 0;
    message.samples =
        samples(setup.sets.train) + samples(setup.sets.val) + samples(setup.sets.test);
    return np_child_write(out_fd, &message, sizeof(message)) < 0;
}

/* --- the parent ---------------------------------------------------------------------------- */

/* The place of the key with which a message of np_sets_open() begins: "data.test: ...". */
static void place_of(const struct np_config *config, const char *text, int *line, int *column)
{
    static const char *const sets[] = {"test", "val", "split", "fold", "classes", "train"};
    const struct np_node *node = np_node_get(config->root, "data"), *below = NULL;

    *line = *column = 0;
    for (size_t i = 0; node && node->kind == NP_NODE_MAP && i < sizeof(sets) / sizeof(*sets); i++)
        if (strncmp(text, "data.", 5) == 0 && strncmp(text + 5, sets[i], strlen(sets[i])) == 0)
            below = np_node_get(node, sets[i]);
    if (below && below->kind == NP_NODE_MAP && np_node_get(below, "path"))
        below = np_node_get(below, "path");
    node = below ? below : node;
    if (node) {
        *line = node->key_line > 0 ? node->key_line : node->line;
        *column = node->key_line > 0 ? node->key_column : node->column;
    }
}

/* Receives the last message, and passes notes to the caller. 1: *ret_message is the last one;
 * -ETIMEDOUT; another -errno: the child has died. */
static int receive(struct np_child *child, uint64_t until_ns,
    void (*notes)(void *context, const char *text), struct message *ret_message)
{
    size_t at = 0;
    int code;

    do {
        struct pollfd poll_fd = {child->fd, POLLIN, 0};

        poll(&poll_fd, 1, 100);
        code = np_child_turn(child);
        for (; at + sizeof(*ret_message) <= child->used; at += sizeof(*ret_message)) {
            memcpy(ret_message, child->text + at, sizeof(*ret_message));
            if (!ret_message->is_end && notes)
                notes(NULL, ret_message->text);
        }
        if (code == 0 && np_now_ns() >= until_ns)
            code = -ETIMEDOUT;
    } while (code == 0);
    return code == 1 && !ret_message->is_end ? -EPIPE : code;
}

static void fill_check(const struct np_config *config, const struct message *message,
    struct np_data_check *check, struct np_report *report)
{
    int line, column;

    check->complete = true;
    check->size = message->size;
    check->nr_classes = message->nr_classes;
    snprintf(check->note, sizeof(check->note),
        "the data: %" PRIu64 " samples in %d %s are listed; images were not decoded "
        "(`nnpipe data verify` does that)",
        message->samples, message->nr_classes, np_classes_word(config));
    if (message->code < 0) {
        place_of(config, message->text, &line, &column);
        np_report_add(report, line, column, "%s", message->text);
    }
}

void np_check_data(const struct np_config *config, double seconds,
    void (*notes)(void *context, const char *text), struct np_data_check *ret_check,
    struct np_report *report)
{
    const struct np_child_start start = {.uid = geteuid(),
        .gid = getegid(),
        .work = list_data,
        .context = config,
        .epoll_fd = -1,
        .max_s = MAX_THREADS * seconds, /* limits its CPU time too, which its threads share */
        .max_bytes = MAX_MESSAGES * sizeof(struct message),
        .keeps_environment = true}; /* of a service's child it is reduced already */
    const uint64_t until_ns = np_now_ns() + (uint64_t)(seconds * 1e9);
    struct np_data_check check = {0};
    struct np_child child = NP_NO_CHILD;
    struct message message = {0};
    struct np_err err = {0};
    char why[800];
    int code;

    fflush(NULL); /* else the child would print buffered text again */
    code = np_child_start(&start, &child, &err);
    if (code == 0)
        code = receive(&child, until_ns, notes, &message);
    np_child_stop(&child);
    if (code == 1 && message.code != -EAGAIN)
        fill_check(config, &message, &check, report);
    else if (code == -ETIMEDOUT)
        snprintf(why, sizeof(why), "listing them takes longer than %g s", seconds);
    else
        snprintf(why, sizeof(why), "%s",
            code == 1  ? message.text
            : err.code ? err.text
                       : "the process that checks them has died");
    if (!check.complete)
        snprintf(check.note, sizeof(check.note), "the data were not checked: %.700s", why);
    *ret_check = check;
}
