#include "daemon/service/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <openssl/sha.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/base/io.h"
#include "loader/base/mem.h"

int np_token_make(char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err)
{
    unsigned char bytes[NP_TOKEN_CHARS / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return np_err_set(err, -EIO, "cannot get random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(ret_token + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

int np_token_replace(const char *dir, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err)
{
    char *path = np_format("%s/token", dir), token[NP_TOKEN_CHARS + 1];
    int code = np_token_make(token, err);

    if (code == 0)
        code = np_write_file(path, token, NP_TOKEN_CHARS, NP_WRITE_PRIVATE | NP_WRITE_DURABLE, err);
    if (code == 0)
        memcpy(ret_token, token, sizeof(token));
    np_free(path);
    return code;
}

/* Reads the token if no other user can have read or written it. Returns 1: the file is empty. */
static int take(const char *path, int fd, char token[NP_TOKEN_CHARS + 1], struct np_err *err)
{
    struct stat stat_;

    if (fstat(fd, &stat_) < 0 || !S_ISREG(stat_.st_mode) || stat_.st_uid != geteuid() ||
        (stat_.st_mode & 077))
        return np_err_set(err, -EPERM,
            "%s: others may read it, or it belongs to another user; remove it to get a new token",
            path);
    if (stat_.st_size == 0)
        return 1;
    if (read(fd, token, NP_TOKEN_CHARS) != NP_TOKEN_CHARS ||
        strspn(token, "0123456789abcdef") != NP_TOKEN_CHARS)
        return np_err_set(err, -EBADMSG,
            "%s: not a token of %d hex digits; remove it to get a new one", path, NP_TOKEN_CHARS);
    return 0;
}

int np_token_read(const char *dir, char ret_token[NP_TOKEN_CHARS + 1], struct np_err *err)
{
    char *path = np_format("%s/token", dir), token[NP_TOKEN_CHARS + 1] = "";
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int code;

    if (fd >= 0)
        code = take(path, fd, token, err);
    else if (errno == ENOENT)
        code = 1;
    else
        code = np_err_set(err, -errno, "%s: cannot read it: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    np_free(path);
    if (code == 1)
        return np_token_replace(dir, ret_token, err);
    if (code == 0)
        memcpy(ret_token, token, sizeof(token));
    return code;
}

void np_token_hash(const char *token, char ret_hex[NP_TOKEN_CHARS + 1])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)token, strlen(token),
        digest); /* cannot fail: it allocates nothing */
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(ret_hex + 2 * i, 3, "%02x", digest[i]);
}
