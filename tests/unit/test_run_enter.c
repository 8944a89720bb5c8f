/* The folder of a run below a folder that others may write to: files of other users are not used. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/run_enter.h"
#include "loader/base/mem.h"
#include "tests/test.h"

static char base[64], was[512];
static const uid_t stranger = 65534;

static const char *in_base(const char *name)
{
    static char path[4][200];
    static int next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), "%s/%s", base, name);
    return path[next];
}

static void begin(void)
{
    strcpy(base, "/tmp/np_enter.XXXXXX");
    cr_assert_not_null(mkdtemp(base));
    cr_assert_not_null(getcwd(was, sizeof(was)));
}

static void end(void)
{
    char *command = np_format("rm -rf %s", base);

    cr_assert_eq(chdir(was), 0);
    cr_assert_eq(system(command), 0);
    np_free(command);
}

static void put_file(const char *name)
{
    const int fd = open(in_base(name), O_WRONLY | O_CREAT | O_EXCL, 0644);

    cr_assert(fd >= 0, "%s", name);
    close(fd);
}

static void put_folder(const char *name, mode_t mode)
{
    cr_assert_eq(mkdir(in_base(name), 0755), 0);
    cr_assert_eq(chmod(in_base(name), mode), 0);
}

static int entered(const char *name, const char *text)
{
    struct np_err err = {0};
    const int code = np_folder_enter(in_base(name), &err);

    if (text)
        cr_assert(strstr(err.text, text), "%s", err.text);
    return code;
}

Test(run_enter, a_first_attempt_makes_the_folder_and_refuses_an_existing_one)
{
    struct np_err err = {0};
    struct stat stat_;
    const mode_t mask = umask(0);

    begin();
    cr_assert_eq(np_folder_make(in_base("runs/a/cnn-1"), true, &err), 0, "%s", err.text);
    umask(mask);
    cr_assert_eq(stat(in_base("runs/a/cnn-1"), &stat_), 0);
    cr_assert_eq(stat_.st_mode & 07777, 0755, "no other user may write there, with any umask");
    cr_assert_eq(np_folder_make(in_base("runs/a/cnn-1"), true, &err), -EEXIST);
    cr_assert(strstr(err.text, "is not this run's"), "%s", err.text);
    cr_assert_eq(np_folder_make(in_base("runs/a/cnn-1"), false, NULL), 0);
    end();
}

Test(run_enter, files_opened_later_lie_in_the_checked_folder)
{
    begin();
    put_folder("cnn-1", 0755);
    cr_assert_eq(entered("cnn-1", NULL), 0);
    cr_assert_eq(
        rename(in_base("cnn-1"), in_base("away")), 0); /* any user may write to the folder above */
    put_folder("cnn-1", 0777);
    close(open("lock", O_WRONLY | O_CREAT, 0644));
    cr_assert_eq(access(in_base("away/lock"), F_OK), 0);
    cr_assert_neq(access(in_base("cnn-1/lock"), F_OK), 0);
    end();
}

Test(run_enter, a_link_instead_of_the_folder_is_refused)
{
    begin();
    put_folder("elsewhere", 0755);
    cr_assert_eq(symlink(in_base("elsewhere"), in_base("cnn-1")), 0);
    cr_assert_eq(entered("cnn-1", "is a link"), -EPERM);
    end();
}

Test(run_enter, a_folder_becomes_unwritable_for_others)
{
    struct stat stat_;

    begin();
    put_folder("cnn-1", 02775);
    put_folder("cnn-1/checkpoints", 0777);
    cr_assert_eq(entered("cnn-1", NULL), 0);
    cr_assert_eq(stat(in_base("cnn-1"), &stat_), 0);
    cr_assert_eq(stat_.st_mode & 07777, 02755);
    cr_assert_eq(stat(in_base("cnn-1/checkpoints"), &stat_), 0);
    cr_assert_eq(stat_.st_mode & 07777, 0755);
    end();
}

Test(run_enter, links_to_what_a_run_writes_to_are_refused_and_those_of_checkpoints_taken)
{
    const char *const files[] = {"lock", "output/000001", "exit.json", "metrics.jsonl"};

    begin();
    put_file("bashrc");
    for (int i = 0; i < 4; i++) {
        char name[64];

        snprintf(name, sizeof(name), "cnn-%d", i);
        put_folder(name, 0755);
        snprintf(name, sizeof(name), "cnn-%d/output", i);
        put_folder(name, 0755);
        snprintf(name, sizeof(name), "cnn-%d/%s", i, files[i]);
        cr_assert_eq(symlink(in_base("bashrc"), in_base(name)), 0);
        snprintf(name, sizeof(name), "cnn-%d", i);
        cr_assert_eq(entered(name, "is a link"), -EPERM);
        snprintf(name, sizeof(name), "cnn-%d/%s", i, files[i]);
        cr_assert_eq(unlink(in_base(name)), 0);
        cr_assert_eq(link(in_base("bashrc"), in_base(name)), 0);
        snprintf(name, sizeof(name), "cnn-%d", i);
        cr_assert_eq(entered(name, "second name"), -EPERM);
    }
    put_folder("cnn-9", 0755);
    put_folder("cnn-9/checkpoints", 0755);
    put_folder("cnn-9/checkpoints/step-9", 0755);
    put_file("cnn-9/checkpoints/step-9/manifest.json");
    cr_assert_eq(symlink("step-9", in_base("cnn-9/checkpoints/best")), 0);
    cr_assert_eq(link(in_base("cnn-9/checkpoints/step-9/manifest.json"), in_base("backup")), 0);
    cr_assert_eq(entered("cnn-9", NULL), 0);
    end();
}

Test(run_enter, files_of_another_user_are_refused_anywhere)
{
    const char *const planted[] = {"", "/lock", "/config.yaml", "/checkpoints",
        "/checkpoints/step-9", "/checkpoints/step-9/manifest.json"};

    if (geteuid() != 0)
        return; /* only root can give a file away */
    begin();
    put_folder("cnn-1", 0755);
    put_folder("cnn-1/checkpoints", 0755);
    put_folder("cnn-1/checkpoints/step-9", 0755);
    put_file("cnn-1/checkpoints/step-9/manifest.json");
    put_file("cnn-1/lock");
    put_file("cnn-1/config.yaml");
    cr_assert_eq(entered("cnn-1", NULL), 0);
    for (int i = 0; i < 6; i++) {
        char name[64];

        snprintf(name, sizeof(name), "cnn-1%s", planted[i]);
        cr_assert_eq(chown(in_base(name), stranger, (gid_t)-1), 0);
        cr_assert_eq(entered("cnn-1", "another user"), -EPERM, "%s", planted[i]);
        cr_assert_eq(chown(in_base(name), 0, (gid_t)-1), 0);
    }
    end();
}
