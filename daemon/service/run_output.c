/* See run_output.h. */
#include "daemon/service/run_output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void name_segment(char name[32], int number)
{
    snprintf(name, 32, "output/%06d", number);
}

int np_output_last(void)
{
    DIR *folder = opendir("output");
    int last = 0;

    for (const struct dirent *item; folder && (item = readdir(folder));) {
        const int number = atoi(item->d_name);

        last = number > last ? number : last;
    }
    if (folder)
        closedir(folder);
    return last;
}

int np_output_open(int segment)
{
    char name[32];

    name_segment(name, segment);
    const int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    return fd < 0 ? -errno : fd;
}

void np_output_remove(int segment)
{
    char name[32];

    name_segment(name, segment);
    unlink(name);
}
