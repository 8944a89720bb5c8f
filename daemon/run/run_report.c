/* A run's reports at its start and end, as text and as JSON. */
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/run/run_parts.h"
#include "loader/base/clock.h"
#include "trainer/checkpoint/weights.h"

#define MIN_CHECKPOINTS (64ull << 20) /* bytes of all checkpoints; fewer are not reported */

static void say_checkpoints(struct np_run *run)
{
    const struct np_checkpoint_options *options = &run->config->checkpoint;
    const uint64_t nr_states = (uint64_t)run->nr_states + np_run_averages(run);
    const bool newest = options->optimizer == NP_OPTIMIZER_NEWEST && nr_states > 0;
    const uint64_t each = np_run_checkpoint_bytes(run), kept = (uint64_t)options->keep + 1,
                   older = newest ? each / (1 + nr_states) : each, all = each + (kept - 1) * older;

    if (all < MIN_CHECKPOINTS)
        return;
    np_run_say(run,
        "checkpoints: %.0f MiB each%s, up to %llu kept, including the best: %.0f MiB in all "
        "(checkpoint.keep, checkpoint.optimizer)",
        (double)each / (1 << 20), newest ? " (older ones: weights only)" : "",
        (unsigned long long)kept, (double)all / (1 << 20));
}

static void say_other_cache(struct np_run *run, const char *cache)
{
    const struct np_loader_options *loader = &run->config->loader;

    if ((loader->augment && np_chain_touches(loader->augment)) ||
        (loader->test_augment && np_chain_touches(loader->test_augment)))
        np_run_say(run,
            "loader.cache: device: the device makes rows of crops, resizes and flips alone; using "
            "cache: %s",
            cache);
    else
        np_run_say(run,
            "loader.cache: device: the device '%s' has no memory for samples; using cache: %s",
            run->device->name, cache);
}

static const char *way_of_sums(const struct np_run *run)
{
    return !run->device->plan_ops->step_lanes           ? np_comm_way(run->comm)
           : strncmp(run->device->name, "cuda", 4) == 0 ? "NCCL"
                                                        : "nothing: they are simulated";
}

static const char *number_text(int processes, char text[32])
{
    snprintf(text, 32, processes > 1 ? "%d processes" : "one process", processes);
    return text;
}

/* The weights depend on the number of processes, or did so far. */
static void say_sums(struct np_run *run)
{
    const int lanes = (int)run->config->run.lanes, world = np_comm_world(run->comm);
    char text[400], now[32], before[32];

    number_text(run->sums_of, now);
    if (run->sums_before != run->sums_of)
        snprintf(text, sizeof(text),
            "sums round as with %s from step %llu on, and as with %s before: no other run has the "
            "bits of this one (train.lanes: %d)",
            now, (unsigned long long)run->position.step, number_text(run->sums_before, before),
            lanes);
    else if (run->sums_of > 1)
        snprintf(text, sizeof(text),
            "sums of %d lanes in each process round as with %s only: the weights are not those of "
            "one process; with 1, 2, 4 ... lanes in each they would be (train.lanes: %d)",
            lanes / world, now, lanes);
    else
        return;
    np_run_warn(run, text);
}

void np_run_report_start(struct np_run *run)
{
    const struct np_run_options *options = run->options;
    struct np_json *line = &run->line;
    const char *cache = run->loader ? run->loader->cache : "none";
    const uint64_t test = run->setup.sets.test ? np_index_samples(run->setup.sets.test) : 0;
    const uint64_t val = np_run_has_val(run) ? run->nr_eval : 0;
    const struct np_row_sizes *size = &run->setup.sets.size;
    char images[96];

    if (val)
        snprintf(images, sizeof(images), "%llu training and %llu validation images",
            (unsigned long long)run->nr_train, (unsigned long long)val);
    else
        snprintf(images, sizeof(images), "%llu images", (unsigned long long)run->nr_train);
    if (run->loader && *run->loader->disk_note)
        np_run_say(run, "%s", run->loader->disk_note);
    np_json_begin(line, "start");
    np_json_text(line, "run_dir", np_run_name(run, run->dir));
    np_json_text(line, "device", run->device->name);
    if (*run->device->passed_over)
        np_json_text(line, "device_reason", run->device->passed_over);
    np_json_text(line, "precision", np_precision_names[run->precision]);
    np_json_int(line, "parameters", (int64_t)run->setup.graph->nr_params);
    np_json_int(line, "train_images", (int64_t)run->nr_train);
    np_json_int(line, "val_images", (int64_t)val);
    np_json_int(line, "test_images", (int64_t)test);
    np_json_int(line, "readers", run->loader ? run->loader->nr_readers : 0);
    np_json_text(line, "io", run->loader ? run->loader->io : "");
    np_json_text(line, "cache", cache);
    np_json_int(line, "step", (int64_t)run->position.step);
    np_json_int(line, "steps", (int64_t)run->nr_steps);
    np_json_int(line, "classes", run->setup.sets.classes->nr_items);
    np_json_int(line, "lanes", run->lanes);
    np_json_int(line, "threads", run->threads);
    if (run->comm) {
        np_json_int(line, "processes", np_comm_world(run->comm));
        np_json_text(line, "sums", way_of_sums(run));
    }
    if (run->sums_of > 1)
        np_json_int(line, "sums_of", run->sums_of);
    np_json_ints(line, "size", (const int[]){size->height, size->width}, 2);
    np_json_ints(line, "eval_size", (const int[]){size->eval_height, size->eval_width}, 2);
    np_json_text(line, "tta", np_tta_names[run->config->run.tta]);
    np_ui_event(&run->ui, np_json_end(line));
    np_run_say(run,
        "%s %s: %s of %d %s, %llu parameters, %s on %s, %d readers, %s, "
        "cache %s",
        run->position.step || (options->resume && run->saved_step != UINT64_MAX) ? "resuming"
                                                                                 : "training",
        np_run_name(run, run->dir), images, run->setup.sets.classes->nr_items,
        np_classes_word(run->config), (unsigned long long)run->setup.graph->nr_params,
        np_precision_names[run->precision], run->device->name,
        run->loader ? run->loader->nr_readers : 0, run->loader ? run->loader->io : "no", cache);
    if (run->comm)
        np_run_say(run, "%d processes (%s), gradients are summed over %s", np_comm_world(run->comm),
            options->launch->by, way_of_sums(run));
    say_sums(run);
    if (size->eval_width != size->width || size->eval_height != size->height)
        np_run_say(run, "training sees images of %dx%d, evaluations of %dx%d (test_augment)",
            size->width, size->height, size->eval_width, size->eval_height);
    if (run->config->run.tta != NP_TTA_NONE)
        np_run_say(run, "evaluations take the mean of %d views of each image (train.tta: %s)",
            np_tta_views(run->config->run.tta), np_tta_names[run->config->run.tta]);
    say_checkpoints(run);
    if (*run->device->passed_over)
        np_run_warn(run, run->device->passed_over);
    if (run->config->loader.cache == NP_CACHE_DEVICE && run->loader && strcmp(cache, "device") != 0)
        say_other_cache(run, cache);
    if (run->saved_step != UINT64_MAX)
        np_run_say(run, "resuming from the checkpoint of step %llu of %llu",
            (unsigned long long)run->position.step, (unsigned long long)run->nr_steps);
}

void np_run_report_shared(struct np_run *run)
{
    const struct np_exchanged exchanged = np_loader_exchanged(run->loader);
    const struct np_cache_shared pictures = np_loader_cache_shared(run->loader);

    run->exchanged = exchanged;
    run->pictures = pictures;
    if (exchanged.taken > 0)
        np_run_say(run, "shared: %llu of %llu batches were made by other jobs (loader.share)",
            (unsigned long long)exchanged.taken,
            (unsigned long long)(exchanged.taken + exchanged.made));
    if (pictures.found > 0)
        np_run_say(run,
            "shared: %llu images were found in the caches of other jobs, %llu were decoded here "
            "(loader.share)",
            (unsigned long long)pictures.found, (unsigned long long)pictures.decoded);
}

/* "val loss 0.6931, accuracy 97.80%, test loss ..., "; "" if nothing was evaluated. */
static void evals_text(const struct np_run *run, char *text, size_t room)
{
    const bool val = np_run_has_val(run);
    const struct np_eval_report *evals[] = {val ? &run->eval : NULL, val ? &run->test : &run->eval};

    char words[NP_EVAL_TEXT];

    text[0] = '\0';
    for (int i = 0; i < 2; i++)
        if (evals[i] && evals[i]->images) {
            np_run_eval_text(run, evals[i], words);
            snprintf(
                text + strlen(text), room - strlen(text), "%s %s, ", i ? "test" : "val", words);
        }
}

/* For comparing runs: the best evaluation, the learning rate, the changed values. */
static void put_facts(struct np_run *run)
{
    const uint64_t best = run->position.best_step;
    struct np_json *line = &run->line;
    char *data = run->config->data.train.path ? np_strdup(run->config->data.train.path) : NULL;

    if (best > 0) {
        np_json_text(line, "best_set", np_run_has_val(run) ? "val" : "test");
        np_json_int(line, "best_step", (int64_t)best);
        np_json_real(line, "best_epoch", np_run_epoch_at(run, best));
        np_json_real(line, "best_accuracy", run->position.best_accuracy);
    }
    np_json_text(line, "name", run->config->name);
    if (data)
        np_text_hide(data);
    np_json_text(line, "data", data);
    np_free(data);
    np_json_real(line, "lr", run->config->optim.lr);
    np_json_real(line, "last_lr", run->lr);
    np_json_node(line, "overrides", run->overrides);
    if (run->changes.list && run->changes.list->nr_items)
        np_json_node(line, "changes", run->changes.list);
}

int np_run_report_done(struct np_run *run, struct np_err *err)
{
    double seconds = (double)(np_now_ns() - run->start_ns) * 1e-9;
    struct np_json *line = &run->line;
    const uint64_t steps = np_run_last_step(run);
    char hex[65], text[32], evals[160], why[NP_EARLY_TEXT];
    int code = 0;

    const int arrays[] = {np_run_averages(run) ? NP_ARRAY_AVERAGE : NP_ARRAY_PARAMS,
        np_run_averages(run) ? NP_ARRAY_AVERAGE_BUFFERS : NP_ARRAY_BUFFERS};
    for (int i = 0; code == 0 && i < 2; i++)
        code = run->device->plan_ops->read(run->plan, arrays[i], run->arrays[arrays[i]], err);
    if (code < 0)
        return code;
    np_weights_sha256(run->setup.graph, run->arrays[arrays[0]], run->arrays[arrays[1]], hex);
    np_json_begin(line, "done");
    np_json_int(line, "steps", (int64_t)steps);
    np_json_real(line, "epochs", np_run_epoch_at(run, steps));
    np_json_int(line, "images", (int64_t)steps * run->config->loader.batch);
    np_json_real(line, "seconds", seconds);
    np_json_real(line, "train_seconds", run->position.train_seconds);
    np_json_real(line, "images_per_second",
        run->total.seconds > 0 ? (double)run->total.rows / run->total.seconds : 0);
    np_json_real(line, "stall_ratio",
        run->total.seconds > 0 ? run->total.stall_seconds / run->total.seconds : 0);
    np_json_int(line, "made_batches", (int64_t)run->exchanged.made);
    np_json_int(line, "taken_batches", (int64_t)run->exchanged.taken);
    np_json_int(line, "decoded_pictures", (int64_t)run->pictures.decoded);
    np_json_int(line, "found_pictures", (int64_t)run->pictures.found);
    np_run_put_evals(run, &run->eval, &run->test);
    put_facts(run);
    if (run->position.early.stopped) {
        np_run_early_text(run, why, sizeof(why));
        np_json_text(line, "reason", why);
    }
    np_json_text(line, "weights_sha256", hex);
    np_json_text(line, "run_dir", np_run_name(run, run->dir));
    const char *object = np_json_end(line);
    np_duration_text(seconds, text, sizeof(text));
    evals_text(run, evals, sizeof(evals));
    if (run->position.early.stopped)
        np_run_say(run, "%s", why);
    np_run_say(
        run, "done in %s: %sweights %.16s, %s", text, evals, hex, np_run_name(run, run->dir));
    np_ui_event(&run->ui, object);
    np_track_line(run->track, object);
    char *path = np_format("%s/result.json", run->dir);
    if (object)
        code = np_io_replace(&run->io, path, object, strlen(object), err);
    np_free(path);
    return code;
}
