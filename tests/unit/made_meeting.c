#include "tests/unit/made_meeting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/test.h"

static char folder[64];

void own_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/nnpipe-share-XXXXXX");
    cr_assert(mkdtemp(folder));
    setenv("XDG_RUNTIME_DIR", folder, 1);
}

const char *own_folder_path(void)
{
    return folder;
}

void remove_folder(void)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/nnpipe-share", folder);
    cr_expect(rmdir(path) == 0 || errno == ENOENT, "%s: %s", path, strerror(errno)); /* empty */
    cr_expect_eq(rmdir(folder), 0);
}
