#include "daemon/service/systemd/systemd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

#include "loader/base/mem.h"

#define SYSTEMD "org.freedesktop.systemd1"
#define MAX_US  10000000u /* time limit of a call */

static int open_private(const char *below, sd_bus **ret_bus)
{
    char *address = np_format("unix:path=%s/systemd/private", below);
    sd_bus *bus = NULL;
    int code = sd_bus_new(&bus);

    if (code >= 0)
        code = sd_bus_set_address(bus, address);
    if (code >= 0)
        code = sd_bus_start(bus);
    np_free(address);
    if (code < 0)
        sd_bus_unref(bus);
    else
        *ret_bus = bus;
    return code;
}

int np_systemd_open(const char *private_below, sd_bus **ret_bus, struct np_err *err)
{
    const int code =
        private_below ? open_private(private_below, ret_bus) : sd_bus_open_user(ret_bus);

    if (code < 0)
        return np_err_set(
            err, -EHOSTDOWN, "the user's systemd cannot be reached: %s", strerror(-code));
    sd_bus_set_method_call_timeout(*ret_bus, MAX_US);
    return 0;
}

void np_systemd_close(sd_bus *bus)
{
    sd_bus_flush_close_unref(bus);
}

static int call(sd_bus *bus, const char *method, const char *unit, const char *mode,
    sd_bus_message **ret_reply, struct np_err *err)
{
    sd_bus_error error = SD_BUS_ERROR_NULL;
    const int code = sd_bus_call_method(bus, SYSTEMD, "/org/freedesktop/systemd1",
        SYSTEMD ".Manager", method, &error, ret_reply,
        mode   ? "ss"
        : unit ? "s"
               : "",
        unit, mode);

    if (code < 0)
        np_err_set(err, code, "systemd: %s %s: %s", method, unit ? unit : "",
            error.message ? error.message : strerror(-code));
    sd_bus_error_free(&error);
    return code < 0 ? code : 0;
}

int np_systemd_call(
    sd_bus *bus, const char *method, const char *unit, const char *mode, struct np_err *err)
{
    return call(bus, method, unit, mode, NULL, err);
}

int np_systemd_load(sd_bus *bus, const char *unit, char **ret_path, struct np_err *err)
{
    sd_bus_message *reply = NULL;
    const char *path = NULL;
    int code = call(bus, "LoadUnit", unit, NULL, &reply, err);

    if (code == 0 && (code = sd_bus_message_read(reply, "o", &path)) < 0)
        np_err_set(err, code, "systemd: LoadUnit %s: %s", unit, strerror(-code));
    if (code >= 0)
        *ret_path = np_strdup(path);
    sd_bus_message_unref(reply);
    return code < 0 ? code : 0;
}

void np_systemd_text(
    sd_bus *bus, const char *path, const char *of, const char *key, char *text, size_t bytes)
{
    sd_bus_error error = SD_BUS_ERROR_NULL;
    char *value = NULL;

    text[0] = '\0';
    if (sd_bus_get_property_string(bus, SYSTEMD, path, of, key, &error, &value) >= 0)
        snprintf(text, bytes, "%s", value);
    free(value);
    sd_bus_error_free(&error);
}

int64_t np_systemd_number(sd_bus *bus, const char *path, const char *of, const char *key, char type)
{
    sd_bus_error error = SD_BUS_ERROR_NULL;
    union {
        int32_t i;
        uint32_t u;
        uint64_t t;
    } value = {.t = 0};
    const int code = sd_bus_get_property_trivial(bus, SYSTEMD, path, of, key, &error, type, &value);

    sd_bus_error_free(&error);
    return code < 0 ? 0 : type == 't' ? (int64_t)value.t : type == 'u' ? (int64_t)value.u : value.i;
}

bool np_systemd_has_dropin(sd_bus *bus, const char *path, const char *folder)
{
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message *reply = NULL;
    char **paths = NULL;
    bool has = false;

    if (sd_bus_get_property(
            bus, SYSTEMD, path, NP_SYSTEMD_UNIT, "DropInPaths", &error, &reply, "as") >= 0 &&
        sd_bus_message_read_strv(reply, &paths) >= 0)
        for (char **at = paths; at && *at; at++) {
            has |= strncmp(*at, folder, strlen(folder)) == 0;
            free(*at);
        }
    free(paths);
    sd_bus_message_unref(reply);
    sd_bus_error_free(&error);
    return has;
}
