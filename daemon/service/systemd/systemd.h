/* The D-Bus API of systemd (org.freedesktop.systemd1(5)), as far as a run needs it: over the user's bus, or where
 * there is none over systemd's own socket. Each call blocks, milliseconds as a rule, at most ten seconds. */
#ifndef NP_SYSTEMD_H
#define NP_SYSTEMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/base/err.h"

#define NP_SYSTEMD_UNIT    "org.freedesktop.systemd1.Unit"
#define NP_SYSTEMD_SERVICE "org.freedesktop.systemd1.Service"

struct sd_bus; /* libsystemd's */
/* private_below: $XDG_RUNTIME_DIR, for systemd's own socket; NULL: the user's bus. -EHOSTDOWN: nobody is there. */
int np_systemd_open(const char *private_below, struct sd_bus **ret_bus, struct np_err *err);
void np_systemd_close(struct sd_bus *bus); /* NULL: nothing */
/* A call of the manager's with a unit's name, and with a mode where it takes one. */
int np_systemd_call(
    struct sd_bus *bus, const char *method, const char *unit, const char *mode, struct np_err *err);
int np_systemd_reload(struct sd_bus *bus, struct np_err *err);
/* The unit's object, loaded; np_free. */
int np_systemd_load(struct sd_bus *bus, const char *unit, char **ret_path, struct np_err *err);
/* A text of the object's; "" where it cannot be had. */
void np_systemd_text(struct sd_bus *bus, const char *path, const char *of, const char *key,
    char *text, size_t bytes);
/* A number: type 'i', 'u', 't' or 'b'; 0 where it cannot be had. */
int64_t np_systemd_number(
    struct sd_bus *bus, const char *path, const char *of, const char *key, char type);
/* Has the unit, as it is loaded, a drop-in of this folder? */
bool np_systemd_has_dropin(struct sd_bus *bus, const char *path, const char *folder);

#endif
