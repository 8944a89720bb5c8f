/* systemd's D-Bus API (org.freedesktop.systemd1(5)), over the user's bus, or systemd's private
 * socket if there is no bus. Each call blocks, usually for milliseconds, at most ten seconds. */
#ifndef NP_SYSTEMD_H
#define NP_SYSTEMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

#define NP_SYSTEMD_UNIT    "org.freedesktop.systemd1.Unit"
#define NP_SYSTEMD_SERVICE "org.freedesktop.systemd1.Service"

struct sd_bus; /* of libsystemd */
/* private_below: $XDG_RUNTIME_DIR, for systemd's private socket; NULL: the user's bus. -EHOSTDOWN:
 * no connection. */
int np_systemd_open(const char *private_below, struct sd_bus **ret_bus, struct np_err *err);
void np_systemd_close(struct sd_bus *bus); /* NULL: does nothing */
/* Calls a method of the manager; unit and mode, if not NULL, are its arguments. -errno of
 * sd-bus. */
int np_systemd_call(
    struct sd_bus *bus, const char *method, const char *unit, const char *mode, struct np_err *err);
/* Loads a unit; np_free *ret_path, its object. */
int np_systemd_load(struct sd_bus *bus, const char *unit, char **ret_path, struct np_err *err);
/* Reads a text property; "" if it cannot be read. */
void np_systemd_text(struct sd_bus *bus, const char *path, const char *of, const char *key,
    char *text, size_t bytes);
/* Reads a number property of type 'i', 'u', 't' or 'b'; 0 if it cannot be read. */
int64_t np_systemd_number(
    struct sd_bus *bus, const char *path, const char *of, const char *key, char type);
bool np_systemd_has_dropin(struct sd_bus *bus, const char *path, const char *folder);

#endif
