/* What all devices share: notes, faults, and the libraries that they name. */
#include "trainer/device.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

void np_device_note(const struct np_device *device, const char *format, ...)
{
    char text[700];
    va_list args;

    if (!device->note)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    device->note(device->note_context, text);
}

int np_device_blame(const struct np_device *device, struct np_err *err)
{
    if (*device->fault)
        np_err_context(err, "%s: %s", device->name, device->fault);
    return err ? err->code : 0;
}

void np_device_add_library(
    struct np_device_info *info, const char *name, const char *version, const char *path)
{
    struct np_library *library = &info->libraries[info->nr_libraries];

    if (!*version)
        return;
    assert(info->nr_libraries < NP_MAX_LIBRARIES);
    info->nr_libraries++;
    snprintf(library->name, sizeof(library->name), "%s", name);
    snprintf(library->version, sizeof(library->version), "%s", version);
    snprintf(library->path, sizeof(library->path), "%s", path);
}
