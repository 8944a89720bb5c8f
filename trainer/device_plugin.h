/* Finds and loads libnnpipe-cuda.so, so that the program itself needs no NVIDIA library. */
#ifndef NP_DEVICE_PLUGIN_H
#define NP_DEVICE_PLUGIN_H

#include "trainer/device.h"

#define NP_PLUGIN_FILE "libnnpipe-cuda.so"

/* The plugin of this path. -ENOENT: not there. -ENOEXEC: does not load, or has not the symbol.
 * -EPROTO: made for another nnpipe. *ret_library: dlclose() when the device is closed. */
int np_plugin_load(
    const char *path, void **ret_library, const struct np_plugin **ret_plugin, struct np_err *err);
/* The first of: beside the program, ../lib/nnpipe from there, the library path. */
int np_plugin_find(void **ret_library, const struct np_plugin **ret_plugin, struct np_err *err);

#endif
