/* Which groups a child has that becomes a user. As root alone. */
#include "daemon/service/as_user.h"

#include <stdbool.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

#define NO_GROUP_OF_THEIRS 4000000001u
#define NO_USER            4000000002u

/* The group of a child that becomes uid with gid; *ret_among: is gid among its groups? */
static gid_t group_of(uid_t uid, gid_t gid, bool *ret_among)
{
    struct {
        gid_t gid;
        bool among;
    } said = {0};
    int fds[2];

    cr_assert_eq(pipe(fds), 0);
    if (fork() == 0) {
        gid_t groups[256];
        const int code = np_become(uid, gid, NULL), nr = code < 0 ? 0 : getgroups(256, groups);

        said.gid = code < 0 ? (gid_t)-1 : getgid();
        for (int i = 0; i < nr; i++)
            said.among |= groups[i] == gid;
        _exit(write(fds[1], &said, sizeof(said)) != sizeof(said));
    }
    cr_assert_eq(read(fds[0], &said, sizeof(said)), (ssize_t)sizeof(said));
    wait(NULL);
    close(fds[0]);
    close(fds[1]);
    *ret_among = said.among;
    return said.gid;
}

Test(as_user, a_group_that_the_user_has_left_is_not_taken)
{
    const struct passwd *user = getpwnam("nobody");
    bool among;

    if (geteuid() != 0 || !user)
        cr_skip_test("not root, or no user nobody");
    const uid_t uid = user->pw_uid;
    const gid_t gid = user->pw_gid;
    cr_expect_eq(group_of(uid, NO_GROUP_OF_THEIRS, &among), gid);
    cr_expect(!among);
    cr_expect_eq(group_of(uid, gid, &among), gid);
    cr_expect(among);
}

Test(as_user, a_user_without_a_name_gets_the_requested_group)
{
    bool among;

    if (geteuid() != 0)
        cr_skip_test("not root");
    cr_expect_eq(group_of(NO_USER, NO_GROUP_OF_THEIRS, &among), NO_GROUP_OF_THEIRS);
    cr_expect(among);
}
