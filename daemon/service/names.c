/* The child writes "+NAME"; "-": the number has no user; nothing: unknown. */
#include "daemon/service/names.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/service/as_user.h"
#include "daemon/service/child.h"
#include "loader/base/clock.h"
#include "loader/base/mem.h"

#define MAX_S     10.0  /* time limit of a lookup */
#define HOLDS_S   600.0 /* validity of an answer */
#define AGAIN_S   30.0  /* delay of a lookup after a failure */
#define MAX_NAMES 1024  /* users; for more, the numbers are shown */
#define TEXT      40

struct name {
    uid_t uid;
    bool wanted;       /* to be looked up */
    bool is_name;      /* else text is the number */
    uint64_t until_ns; /* end of validity */
    char text[TEXT];
};

struct np_names {
    struct name *names;
    size_t room;
    int nr;
    int epoll_fd;
    np_name_fn *look_up;
    struct np_child child;
    uid_t asked;     /* the user whom the child looks up */
    char number[16]; /* of a user beyond MAX_NAMES */
};

struct lookup {
    uid_t uid;
    np_name_fn *look_up;
};

static int look_up(uid_t uid, char *name, size_t bytes)
{
    const struct passwd *user;
    const int code = np_user_find(uid, &user);

    if (code == 0)
        snprintf(name, bytes, "%s", user ? user->pw_name : "");
    return code;
}

static int be_lookup(const void *context, int out_fd)
{
    const struct lookup *lookup = context;
    char text[TEXT + 1] = "-";

    if (lookup->look_up(lookup->uid, text + 1, TEXT) < 0)
        return 1;
    text[0] = text[1] ? '+' : '-';
    return np_child_write(out_fd, text, strlen(text)) < 0;
}

struct np_names *np_names_new(int epoll_fd, np_name_fn *look_up_)
{
    struct np_names *names = np_alloc(sizeof(*names));

    names->child = NP_NO_CHILD;
    names->epoll_fd = epoll_fd;
    names->look_up = look_up_ ? look_up_ : look_up;
    return names;
}

void np_names_free(struct np_names *names)
{
    if (!names)
        return;
    np_child_stop(&names->child);
    np_free(names->names);
    np_free(names);
}

static struct name *find(struct np_names *names, uid_t uid)
{
    for (int i = 0; i < names->nr; i++)
        if (names->names[i].uid == uid)
            return &names->names[i];
    return NULL;
}

static struct name *add(struct np_names *names, uid_t uid)
{
    if (names->nr == MAX_NAMES)
        return NULL;
    np_grow(&names->names, &names->room, (size_t)names->nr + 1, sizeof(*names->names));
    struct name *name = &names->names[names->nr++];
    *name = (struct name){.uid = uid};
    snprintf(name->text, sizeof(name->text), "%u", (unsigned)uid);
    return name;
}

static void look_up_next(struct np_names *names)
{
    for (int i = 0; i < names->nr && names->child.pid == 0; i++) {
        struct name *name = &names->names[i];
        const struct lookup lookup = {.uid = name->uid, .look_up = names->look_up};
        const struct np_child_start start = {.uid = geteuid(),
            .gid = getegid(),
            .work = be_lookup,
            .context = &lookup,
            .epoll_fd = names->epoll_fd,
            .max_s = MAX_S,
            .max_bytes = TEXT};

        if (!name->wanted)
            continue;
        name->wanted = false;
        name->until_ns = np_now_ns() + (uint64_t)(AGAIN_S * 1e9);
        names->asked = name->uid;
        np_child_start(&start, &names->child, NULL);
    }
}

const char *np_names_of(struct np_names *names, uid_t uid, bool *is_name)
{
    struct name *name = find(names, uid);

    if (!name && !(name = add(names, uid))) {
        snprintf(names->number, sizeof(names->number), "%u", (unsigned)uid);
        if (is_name)
            *is_name = false;
        return names->number;
    }
    if (np_now_ns() >= name->until_ns)
        name->wanted = true;
    look_up_next(names);
    if (is_name)
        *is_name = name->is_name;
    return name->text;
}

static bool take(struct name *name, const char *answer)
{
    char before[TEXT];

    memcpy(before, name->text, sizeof(before));
    name->is_name = *answer == '+';
    if (name->is_name)
        snprintf(name->text, sizeof(name->text), "%s", answer + 1);
    else
        snprintf(name->text, sizeof(name->text), "%u", (unsigned)name->uid);
    name->until_ns = np_now_ns() + (uint64_t)(HOLDS_S * 1e9);
    return strcmp(before, name->text) != 0;
}

bool np_names_turn(struct np_names *names)
{
    bool changed = false;

    if (names->child.pid > 0) {
        const int code = np_child_turn(&names->child);

        if (code == 1 && names->child.used > 0)
            changed = take(find(names, names->asked), names->child.text);
        if (code != 0)
            np_child_stop(&names->child);
    }
    look_up_next(names);
    return changed;
}
