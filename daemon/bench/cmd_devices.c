/* `nnpipe devices`: what this machine could train on, and why not. */
#include <stdio.h>
#include <string.h>

#include "daemon/cmd.h"
#include "loader/base/json.h"
#include "trainer/device.h"

static const char *text_of(const struct np_node *map, const char *key)
{
    const struct np_node *node = np_node_get(map, key);

    return node && node->kind == NP_NODE_SCALAR ? node->text : "";
}

/* {"a": "1", "b": "2"} as "a 1, b 2". */
static void print_pairs(const struct np_node *node)
{
    for (int i = 0; node && node->kind == NP_NODE_MAP && i < node->nr_items; i++)
        if (node->items[i]->kind == NP_NODE_SCALAR)
            printf("%s%s %s", i ? ", " : "  ", node->items[i]->key, node->items[i]->text);
}

/* A line each: "cudnn  9.19.0  /usr/lib/libcudnn.so.9". */
static void print_libraries(const struct np_node *versions, const struct np_node *paths)
{
    for (int i = 0; versions && i < versions->nr_items; i++)
        printf("\n%15s %-9s %-14s %s", "", versions->items[i]->key,
            text_of(versions, versions->items[i]->key), text_of(paths, versions->items[i]->key));
}

static void print_text(void *context, const char *json)
{
    struct np_node *node = NULL;

    (void)context;
    if (np_json_parse(json, strlen(json), &node, NULL) < 0)
        return;
    bool usable = np_node_is(np_node_get(node, "usable"), "true");
    const struct np_node *versions = np_node_get(node, "versions"),
                         *paths = np_node_get(node, "paths");
    printf("%-8s %-6s %s", text_of(node, "name"), text_of(node, "kind"),
        usable ? "usable" : "not usable");
    if (*text_of(node, "gpu"))
        printf("  %s, %s, %.1f GiB", text_of(node, "gpu"), text_of(node, "arch"),
            np_node_number(node, "memory_bytes", 0) / (1 << 30));
    if (!usable)
        printf(": %s", text_of(node, "reason"));
    if (paths)
        print_libraries(versions, paths);
    else if (usable)
        print_pairs(versions);
    putchar('\n');
    np_node_free(node);
}

static void print_json(void *context, const char *json)
{
    struct np_json line = {0};
    struct np_node *node = NULL;

    (void)context;
    if (np_json_parse(json, strlen(json), &node, NULL) < 0)
        return;
    np_json_begin(&line, "device");
    for (int i = 0; i < node->nr_items; i++)
        np_json_node(&line, node->items[i]->key, node->items[i]);
    const char *text = np_json_end(&line);
    fputs(text ? text : "", stdout);
    np_json_fini(&line);
    np_node_free(node);
}

int np_cmd_devices(int argc, char **argv)
{
    bool json = false;
    const struct np_flag flags[] = {{"--json", NULL, &json, NULL}, {NULL, NULL, NULL, NULL}};
    int nr, code = np_flags_parse(argc, argv, flags, NULL, &nr);

    if (code == 0 && nr != 0) {
        fprintf(stderr, "nnpipe devices: it takes no operands\n");
        code = NP_EXIT_USAGE;
    }
    if (code)
        return code;
    np_device_list(NULL, json ? print_json : print_text, NULL);
    return NP_EXIT_DONE;
}
