#include "daemon/service/checker.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/service/as_user.h"
#include "daemon/service/environment.h"
#include "loader/base/mem.h"

#define MAX_S     60.0
#define MAX_WORDS 160

void np_problem_write(struct np_json *json, const char *file, int line, int column,
    const char *place, const char *text)
{
    np_json_open(json, NULL, '{');
    np_json_text(json, "file", file);
    np_json_int(json, "line", line);
    np_json_int(json, "column", column);
    np_json_text(json, "place", place);
    np_json_text(json, "text", text);
    np_json_close(json, '}');
}

static int print_failure(const struct np_check *check, int out_fd, int code)
{
    struct np_json json = {0};

    np_json_begin(&json, NULL);
    np_json_bool(&json, "ok", false);
    np_json_open(&json, "problems", '[');
    np_problem_write(&json, check->path, 0, 0, check->path,
        code == -EACCES || code == -ENOENT ? "the submitter cannot enter its folder"
                                           : "cannot check it: no process could be started");
    np_json_close(&json, ']');
    const char *text = np_json_end(&json);
    return text ? np_child_write(out_fd, text, strlen(text)) : -ENOMEM;
}

static int be_checker(const void *context, int out_fd)
{
    const struct np_check *check = context;
    const char *words[MAX_WORDS] = {
        "nnpipe", "check", "-", "--json", "--as", check->path, "--whole"};
    const int config_fd = np_text_fd(check->config);
    char *folder = np_strdup(check->path);
    char processes[16];
    int n = 7, code = 0;

    for (int i = 0; check->overrides && i < check->overrides->nr_items && n + 6 < MAX_WORDS; i++) {
        words[n++] = "-o";
        words[n++] = check->overrides->items[i]->text;
    }
    if (*check->device) {
        words[n++] = "--device";
        words[n++] = check->device;
    }
    if (check->processes > 1) {
        snprintf(processes, sizeof(processes), "%d", check->processes);
        words[n++] = "--processes";
        words[n++] = processes;
    }
    if (check->environment)
        np_environment_set(check->environment);
    if (config_fd < 0 || chdir(dirname(folder)) < 0)
        code = config_fd < 0 ? config_fd : -errno;
    else if (dup2(config_fd, STDIN_FILENO) < 0 || dup2(out_fd, STDOUT_FILENO) < 0 ||
             execv("/proc/self/exe", (char *const *)words) < 0)
        code = -errno;
    return print_failure(check, out_fd, code) < 0;
}

int np_checker_start(
    const struct np_check *check, int epoll_fd, struct np_child *ret_child, struct np_err *err)
{
    const struct np_child_start start = {.uid = check->uid,
        .gid = check->gid,
        .work = be_checker,
        .context = check,
        .epoll_fd = epoll_fd,
        .max_s = MAX_S,
        .max_bytes = check->max_bytes};

    return np_child_start(&start, ret_child, err);
}

int np_checker_turn(struct np_child *child, struct np_node **ret_answer)
{
    struct np_node *answer = NULL;
    const int code = np_child_turn(child);

    if (code <= 0)
        return code == 0 || code == -ETIMEDOUT ? code : -EBADMSG;
    if (np_json_parse(child->text, child->used, &answer, NULL) < 0)
        return -EBADMSG;
    if (answer->kind != NP_NODE_MAP) {
        np_node_free(answer);
        return -EBADMSG;
    }
    *ret_answer = answer;
    return 1;
}
