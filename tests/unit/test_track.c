/* The trackers' files: bytes against TensorBoard's own writer, what a resume cuts off, a full disk. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/track/tfevents.h"
#include "daemon/track/track.h"
#include "daemon/track/wandblog.h"
#include "loader/base/io.h"
#include "loader/base/mem.h"
#include "loader/base/yaml.h"
#include "tests/test.h"

enum { TENSORBOARD = 1, MLFLOW = 2, WANDB = 4 };

static char *new_folder(void)
{
    char path[] = "/tmp/nnpipe-track-XXXXXX";

    return np_format("%s", mkdtemp(path));
}

static void drop(char *path)
{
    char *command = np_format("rm -rf '%s'", path);

    if (system(command) != 0)
        fprintf(stderr, "%s stays\n", path);
    np_free(command);
    np_free(path);
}

/* --- bytes --------------------------------------------------------------------------------- */

/* Written by tensorboard 2.21's RecordWriter from its Event messages. */
static const uint8_t version[] = {0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22, 0x09, 0, 0, 0,
    0, 0, 0, 0xf8, 0x3f, 0x1a, 0x0d, 'b', 'r', 'a', 'i', 'n', '.', 'E', 'v', 'e', 'n', 't', ':',
    '2', 0x2a, 0x28, 0x64, 0x6c};
static const uint8_t scalars[] = {0x32, 0, 0, 0, 0, 0, 0, 0, 0x24, 0x19, 0x56, 0xec, 0x09, 0, 0,
    0x50, 0x3b, 0xe0, 0xc0, 0xda, 0x41, 0x10, 0xac, 0x02, 0x2a, 0x24, 0x0a, 0x11, 0x0a, 0x0a, 't',
    'r', 'a', 'i', 'n', '/', 'l', 'o', 's', 's', 0x15, 0, 0, 0, 0x3f, 0x0a, 0x0f, 0x0a, 0x08, 't',
    'r', 'a', 'i', 'n', '/', 'l', 'r', 0x15, 0xcd, 0xcc, 0xcc, 0x3d, 0x50, 0xeb, 0x5b, 0xf1};
static const uint8_t restart[] = {0x0f, 0, 0, 0, 0, 0, 0, 0, 0x6d, 0x53, 0x2b, 0x09, 0x09, 0, 0, 0,
    0, 0, 0, 0, 0x40, 0x10, 0x08, 0x3a, 0x02, 0x08, 0x01, 0xb3, 0x47, 0xf3, 0xc5};

Test(track, records_are_those_of_tensorboards_writer)
{
    const struct np_scalar two[] = {{"train/loss", 0.5}, {"train/lr", 0.1}};
    struct np_pb record = {0};

    np_tfrecord_version(&record, 1.5);
    cr_assert(np_tfrecord_end(&record) == sizeof(version));
    cr_assert(memcmp(record.bytes, version, sizeof(version)) == 0);
    np_tfrecord_scalars(&record, 1795391725.25, 300, two, 2);
    cr_assert(np_tfrecord_end(&record) == sizeof(scalars));
    cr_assert(memcmp(record.bytes, scalars, sizeof(scalars)) == 0);
    np_tfrecord_restart(&record, 2, 8);
    cr_assert(np_tfrecord_end(&record) == sizeof(restart));
    cr_assert(memcmp(record.bytes, restart, sizeof(restart)) == 0);
    np_free(record.bytes);
}

/* --- a reader of its own: frames and checksums, bit by bit --------------------------------- */

static uint32_t crc_of(const uint8_t *bytes, size_t n)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static uint64_t le(const uint8_t *at, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

/* The number of records; all bytes of the file must belong to one. */
static int whole_records(const uint8_t *bytes, uint64_t n)
{
    int nr = 0;

    for (uint64_t at = 0; at < n; nr++) {
        cr_assert(n - at >= 16);
        const uint64_t length = le(bytes + at, 8);
        cr_assert(length <= n - at - 16);
        cr_assert(crc_of(bytes + at, 8) == le(bytes + at + 8, 4));
        cr_assert(crc_of(bytes + at + 12, length) == le(bytes + at + 12 + length, 4));
        at += 16 + length;
    }
    return nr;
}

struct series {
    char text[4000]; /* "tag@step=value " of each record's first scalar */
};

static bool note(void *context, const struct np_tfevent *event, uint64_t end)
{
    struct series *series = context;
    const size_t used = strlen(series->text);

    if (*event->tag)
        snprintf(series->text + used, sizeof(series->text) - used, "%s@%d=%g ", event->tag,
            (int)event->step, event->value);
    return true;
}

static int is_events(const struct dirent *entry)
{
    return strstr(entry->d_name, "tfevents") != NULL;
}

/* Reads all event files of a run, in the order of their names. */
static void read_board(const char *run, struct series *series)
{
    char *folder = np_format("%s/tensorboard", run);
    struct dirent **entries;
    const int n = scandir(folder, &entries, is_events, alphasort);

    series->text[0] = '\0';
    for (int i = 0; i < n; i++) {
        char *path = np_format("%s/%s", folder, entries[i]->d_name), *bytes;
        uint64_t nr_bytes;

        cr_assert(np_read_file(path, 1 << 20, &bytes, &nr_bytes, NULL) == 0);
        cr_assert(whole_records((const uint8_t *)bytes, nr_bytes) > 0);
        np_tfevents_read((const uint8_t *)bytes, nr_bytes, note, series);
        np_free(bytes);
        np_free(path);
        free(entries[i]);
    }
    free(entries);
    np_free(folder);
}

/* --- runs ---------------------------------------------------------------------------------- */

static void no_warning(void *context, const char *text)
{
    fprintf(stderr, "%s\n", text);
    (*(int *)context)++;
}

static struct np_track *begin(
    unsigned which, const char *run, uint64_t step, bool eval_due, int *warnings)
{
    struct np_node *config = np_node_new(NP_NODE_MAP, 0, 0);
    const struct np_tracked_run tracked = {
        .dir = run, .name = "net", .config = config, .step = step, .eval_due = eval_due};

    mkdir(run, 0777);
    np_node_add(config, "seed", np_node_scalar("7", 0, 0));
    struct np_track *track = np_track_open(which, &tracked, no_warning, warnings);
    np_node_free(config);
    return track;
}

static void write_steps(struct np_track *track, int from, int to)
{
    char line[200];

    for (int step = from; step <= to; step++) {
        snprintf(line, sizeof(line),
            "{\"event\": \"step\", \"step\": %d, \"loss\": %d.5, \"lr\": null}\n", step, step);
        np_track_line(track, line);
    }
}

static void write_eval(struct np_track *track, int step, const char *loss)
{
    char line[200];

    snprintf(line, sizeof(line),
        "{\"event\": \"eval\", \"step\": %d, \"set\": \"val\", \"val_loss\": %s}\n", step, loss);
    np_track_line(track, line);
}

static char *mlflow_file(const char *run, const char *name)
{
    char *command = np_format("cat '%s'/../mlruns/*/*/%s", run, name), text[4000] = "";
    FILE *pipe = popen(command, "r");
    const size_t n = fread(text, 1, sizeof(text) - 1, pipe);

    text[n] = '\0';
    pclose(pipe);
    np_free(command);
    return np_format("%s", text);
}

/* Steps and values of a metric, without the times. */
static void read_flow(const char *run, const char *tag, char *out, size_t bytes)
{
    char *name = np_format("metrics/%s", tag), *text = mlflow_file(run, name), value[64];
    int step, used, all = 0;

    out[0] = '\0';
    for (const char *at = text; sscanf(at, "%*d %63s %d\n%n", value, &step, &used) == 2;
         at += used, all += used)
        snprintf(out + strlen(out), bytes - strlen(out), "%d=%s ", step, value);
    cr_assert(text[all] == '\0');
    np_free(text);
    np_free(name);
}

Test(track, a_resume_writes_each_number_once)
{
    char *top = new_folder(), *run = np_format("%s/net-1", top), losses[400];
    struct series series;
    int warnings = 0;

    struct np_track *track = begin(TENSORBOARD | MLFLOW, run, 0, false, &warnings);
    write_steps(track, 1, 4);
    write_eval(track, 4, "0.25");
    write_steps(track, 5, 6);
    np_track_close(track, NP_TRACK_FAILED);
    track = begin(TENSORBOARD | MLFLOW, run, 4, true, &warnings); /* the evaluation is repeated */
    write_eval(track, 4, "0.75");
    write_steps(track, 5, 5);
    np_track_close(track, NP_TRACK_STOPPED);
    track = begin(TENSORBOARD | MLFLOW, run, 4, false, &warnings); /* it is not */
    write_steps(track, 5, 6);
    np_track_line(track, "{\"event\": \"done\", \"steps\": 6, \"test_loss\": 0.5}\n");
    np_track_close(track, NP_TRACK_DONE);

    read_board(run, &series);
    cr_assert_str_eq(series.text,
        "train/loss@1=1.5 train/loss@2=2.5 train/loss@3=3.5 train/loss@4=4.5 "
        "val/loss@4=0.75 train/loss@5=5.5 train/loss@6=6.5 final/test_loss@6=0.5 ");
    read_flow(run, "train/loss", losses, sizeof(losses));
    cr_assert_str_eq(losses, "1=1.5 2=2.5 3=3.5 4=4.5 5=5.5 6=6.5 ");
    read_flow(run, "val/loss", losses, sizeof(losses));
    cr_assert_str_eq(losses, "4=0.75 ");
    cr_assert(warnings == 0);
    np_free(run);
    drop(top);
}

static void spoil(const char *run, const char *what)
{
    char *command = np_format(what, run);

    cr_assert(system(command) == 0);
    np_free(command);
}

Test(track, a_torn_record_is_cut_off)
{
    char *top = new_folder(), *run = np_format("%s/net-1", top), losses[400];
    struct series series;
    int warnings = 0;

    struct np_track *track = begin(TENSORBOARD | MLFLOW, run, 0, false, &warnings);
    write_steps(track, 1, 3);
    np_track_close(track, NP_TRACK_FAILED);
    spoil(run, "truncate -s -5 '%s'/tensorboard/*");
    spoil(run, "printf '1795391725111 0.' >>\"$(ls '%s'/../mlruns/*/*/metrics/train/loss)\"");
    track = begin(TENSORBOARD | MLFLOW, run, 3, false, &warnings);
    write_steps(track, 4, 4);
    np_track_close(track, NP_TRACK_DONE);
    read_board(run, &series);
    cr_assert_str_eq(series.text, "train/loss@1=1.5 train/loss@2=2.5 train/loss@4=4.5 ");
    read_flow(run, "train/loss", losses, sizeof(losses));
    cr_assert_str_eq(losses, "1=1.5 2=2.5 3=3.5 4=4.5 ");
    cr_assert(warnings == 0);
    np_free(run);
    drop(top);
}

Test(track, mlflow_has_parameters_and_the_state)
{
    char *top = new_folder(), *run = np_format("%s/net-1", top);
    int warnings = 0;

    struct np_track *track = begin(MLFLOW, run, 0, false, &warnings);
    char *seed = mlflow_file(run, "params/seed"), *running = mlflow_file(run, "meta.yaml");
    np_track_close(track, NP_TRACK_STOPPED);
    char *stopped = mlflow_file(run, "meta.yaml");
    cr_assert_str_eq(seed, "7");
    cr_assert(strstr(running, "\nend_time: null\n") && strstr(running, "\nstatus: 1\n"));
    cr_assert(!strstr(stopped, "\nend_time: null\n") && strstr(stopped, "\nstatus: 5\n"));
    cr_assert(strstr(stopped, "\nrun_name: 'net-1'\n") != NULL);
    np_free(seed);
    np_free(running);
    np_free(stopped);
    np_free(run);
    drop(top);
}

Test(track, a_full_disk_ends_the_tracker_not_the_run)
{
    char *top = new_folder(), *run = np_format("%s/net-1", top);
    struct rlimit before, limit;
    int warnings = 0;

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 4096;
    struct np_track *track = begin(TENSORBOARD | MLFLOW, run, 0, false, &warnings);
    setrlimit(RLIMIT_FSIZE, &limit);
    write_steps(track, 1, 500);
    np_track_flush(track);
    setrlimit(RLIMIT_FSIZE, &before);
    cr_assert(warnings == 2);
    write_steps(track, 501, 502);
    np_track_close(track, NP_TRACK_DONE);
    cr_assert(warnings == 2);
    np_free(run);
    drop(top);
}

Test(track, a_folder_that_cannot_be_made_is_reported)
{
    int warnings = 0;
    struct np_track *track = begin(TENSORBOARD | MLFLOW, "/dev/null/net-1", 0, false, &warnings);

    write_steps(track, 1, 2);
    np_track_close(track, NP_TRACK_DONE);
    cr_assert(warnings == 2);
}

/* --- wandb --------------------------------------------------------------------------------- */

struct told {
    int nr;
    uint64_t bytes; /* of message i: 1 + its number */
};

static bool count(void *context, const uint8_t *message, const uint8_t *end)
{
    struct told *told = context;

    for (const uint8_t *at = message; at < end; at++)
        cr_assert(*at == (uint8_t)told->nr);
    told->bytes += (uint64_t)(end - message);
    told->nr++;
    return true;
}

/* Each remainder of a block before a message, so that heads and empty first parts stand at its end. */
Test(track, a_wandb_log_is_read_as_it_was_written)
{
    for (size_t first = 32768 - 40; first < 32768 + 10; first++) {
        static const size_t more[] = {0, 1, 100, 40000, 70000, 3};
        struct np_pb out = {0}, message = {0};
        struct told told = {0};
        uint64_t bytes = 0, before = 0;

        np_wandblog_head(&out);
        for (int i = 0; i < 6; i++) {
            const size_t n = i == 0 ? first : more[i];

            message.used = 0;
            np_grow(&message.bytes, &message.room, n + 1, 1);
            memset(message.bytes, i, n);
            message.used = n;
            before = out.used;
            np_wandblog_put(&out, out.used, &message);
            bytes += n;
        }
        cr_assert(np_wandblog_read(out.bytes, out.used, count, &told) == out.used);
        cr_assert(told.nr == 6 && told.bytes == bytes);
        told = (struct told){0};
        cr_assert(np_wandblog_read(out.bytes, out.used - 1, count, &told) == before);
        cr_assert(told.nr == 5);
        np_free(out.bytes);
        np_free(message.bytes);
    }
}

/* "steps of the rows with a train/loss; of those with a val/loss; the summary's and exit's number" */
static bool note_record(void *context, const uint8_t *message, const uint8_t *end)
{
    struct series *series = context;
    struct np_pb_field field, item, key;

    while (np_pb_next(&message, end, &field)) {
        const size_t used = strlen(series->text);
        char tags[300] = "", tag[96];
        uint64_t step = 0;

        if (field.number != 2) {
            if (field.number != 1)
                snprintf(series->text + used, sizeof(series->text) - used, "%d ", field.number);
            continue;
        }
        while (np_pb_next(&field.inside, field.end, &item)) {
            cr_assert(np_pb_next(&item.inside, item.end, &key));
            np_pb_copy(&key, tag, sizeof(tag));
            if (item.number == 2)
                step = key.bits;
            else if (*tag != '_')
                snprintf(tags + strlen(tags), sizeof(tags) - strlen(tags), "%s,", tag);
        }
        snprintf(series->text + used, sizeof(series->text) - used, "%s@%d ", tags, (int)step);
    }
    return true;
}

Test(track, a_wandb_file_has_one_row_a_step_also_after_a_resume)
{
    char *top = new_folder(), *run = np_format("%s/net-1", top), *bytes;
    struct series series = {""};
    uint64_t nr_bytes;
    int warnings = 0;

    struct np_track *track = begin(WANDB, run, 0, false, &warnings);
    write_steps(track, 1, 4);
    write_eval(track, 4, "0.25");
    write_steps(track, 5, 6);
    np_track_close(track, NP_TRACK_STOPPED);
    track = begin(WANDB, run, 4, false, &warnings);
    write_steps(track, 5, 5);
    np_track_flush(track);
    np_track_line(track, "{\"event\": \"done\", \"steps\": 5, \"test_loss\": 0.5}\n");
    np_track_close(track, NP_TRACK_DONE);

    char *command = np_format("cat '%s'/wandb/offline-run-*/run-*.wandb >'%s/one'", run, top), *one;
    cr_assert(system(command) == 0);
    one = np_format("%s/one", top);
    cr_assert(np_read_file(one, 1 << 20, &bytes, &nr_bytes, NULL) == 0);
    cr_assert(np_wandblog_read((const uint8_t *)bytes, nr_bytes, note_record, &series) == nr_bytes);
    cr_assert_str_eq(series.text,
        "17 train/loss,@1 train/loss,@2 train/loss,@3 train/loss,val/loss,@4 "
        "train/loss,@5 3 18 ");
    cr_assert(warnings == 0);
    np_free(bytes);
    np_free(one);
    np_free(command);
    np_free(run);
    drop(top);
}

/* --- the key ------------------------------------------------------------------------------- */

static int parse(const char *text, unsigned *ret_which, char mistake[200])
{
    struct np_report report;
    struct np_node *node = NULL;

    np_report_init(&report, NULL);
    cr_assert(np_yaml_parse(text, strlen(text), &node, &report) == 0);
    const int code = np_track_parse(node, ret_which, &report);
    snprintf(mistake, 200, "%d: %s", report.nr_errs ? report.errs[0].line : 0,
        report.nr_errs ? report.errs[0].text : "");
    np_report_fini(&report);
    np_node_free(node);
    return code;
}

Test(track, the_key_takes_a_name_or_a_list)
{
    unsigned which = 9;
    char mistake[200];

    cr_assert(parse("[]", &which, mistake) == 0 && which == 0);
    cr_assert(parse("mlflow", &which, mistake) == 0 && which == MLFLOW);
    cr_assert(
        parse("[mlflow, tensorboard]", &which, mistake) == 0 && which == (TENSORBOARD | MLFLOW));
    cr_assert(parse("\n- mlflow\n- tensor\n", &which, mistake) < 0);
    cr_assert_str_eq(
        mistake, "3: track: 'tensor' is no tracker; there are: tensorboard, mlflow, wandb");
    cr_assert(parse("{mlflow: 1}", &which, mistake) < 0);
    struct np_node *list = np_track_node(TENSORBOARD | MLFLOW);
    cr_assert(list->nr_items == 2 && np_node_is(list->items[1], "mlflow"));
    np_node_free(list);
}
