/* The box's token: made once, whole on the disk, and private; and SHA-256, as which users' tokens are kept. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/token.h"
#include "tests/test.h"

static char dir[64], path[96];

static void set_up(void)
{
    snprintf(dir, sizeof(dir), "/tmp/nnpipe-token-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/token", dir);
}

static void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

static void put(const char *text, mode_t mode)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    cr_assert_eq(fchmod(fd, mode), 0);
    close(fd);
}

Test(token, is_made_once_and_only_the_user_can_read_it, .init = set_up, .fini = tear_down)
{
    char first[NP_TOKEN_CHARS + 1], again[NP_TOKEN_CHARS + 1];
    struct np_err err = {0};
    struct stat stat_;

    cr_assert_eq(np_token_read(dir, first, &err), 0, "%s", err.text);
    cr_assert_eq(strlen(first), NP_TOKEN_CHARS);
    cr_assert_eq(stat(path, &stat_), 0);
    cr_assert(stat_.st_size == NP_TOKEN_CHARS && (stat_.st_mode & 0777) == 0600);
    cr_assert_eq(np_token_read(dir, again, &err), 0);
    cr_assert_str_eq(first, again);
    cr_assert_eq(np_token_replace(dir, again, &err), 0);
    cr_assert_str_neq(first, again);
    cr_assert_eq(np_token_read(dir, first, &err), 0);
    cr_assert_str_eq(first, again);
}

Test(token, an_empty_one_is_replaced_and_a_wrong_one_is_refused, .init = set_up, .fini = tear_down)
{
    char token[NP_TOKEN_CHARS + 1], other[96];
    struct np_err err = {0};

    put("", 0600); /* the power was cut when it was made */
    cr_assert_eq(np_token_read(dir, token, &err), 0, "%s", err.text);
    put("0123", 0600);
    cr_assert_eq(np_token_read(dir, token, &err), -EBADMSG);
    err = (struct np_err){0};
    put("", 0644);
    cr_assert_eq(np_token_read(dir, token, &err), -EPERM);
    err = (struct np_err){0};
    snprintf(other, sizeof(other), "%s/elsewhere", dir);
    cr_assert_eq(rename(path, other), 0);
    cr_assert_eq(symlink(other, path), 0);
    cr_assert_eq(np_token_read(dir, token, &err), -ELOOP);
}

Test(token, the_rest_of_an_interrupted_write_is_replaced, .init = set_up, .fini = tear_down)
{
    char token[NP_TOKEN_CHARS + 1], made[104];
    struct np_err err = {0};

    snprintf(made, sizeof(made), "%s.new", path);
    cr_assert_eq(symlink("/nowhere/at/all", made), 0);
    cr_assert_eq(np_token_read(dir, token, &err), 0, "%s", err.text);
    cr_assert_eq(access(made, F_OK), -1);
}

/* The examples of FIPS 180-4, and lengths about a block's. */
Test(token, is_kept_as_its_sha256)
{
    static char letters[1000000 + 1];
    static const struct {
        const char *text, *hash;
    } cases[] = {
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
    };
    char hex[65];

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        np_token_hash(cases[i].text, hex);
        cr_expect_str_eq(hex, cases[i].hash);
    }
    memset(letters, 'a', sizeof(letters) - 1);
    np_token_hash(letters, hex);
    cr_expect_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
