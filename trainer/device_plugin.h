/* Finds and loads libnnpipe-cuda.so, so that the program itself needs no NVIDIA library. */
#ifndef NP_DEVICE_PLUGIN_H
#define NP_DEVICE_PLUGIN_H

#include "trainer/device.h"

#define NP_PLUGIN_FILE "libnnpipe-cuda.so"

/* Loads the plugin at this path. -ENOENT: no such file. -ENOEXEC: it does not load, or lacks the
 * symbol. -EPROTO: built for another nnpipe. *ret_library: dlclose() when the device is closed. */
int np_plugin_load(
    const char *path, void **ret_library, const struct np_plugin **ret_plugin, struct np_err *err);
/* Loads the first plugin found: beside the program, in ../lib/nnpipe from there, on the library
 * path. */
int np_plugin_find(void **ret_library, const struct np_plugin **ret_plugin, struct np_err *err);

#endif
