/* The next state of a run whose worker has ended: every way to end, with every request. */
#include <string.h>

#include "daemon/cmd.h"
#include "daemon/service/decide.h"
#include "tests/test.h"

static struct np_worker_exit left;
static struct np_entry run;
static struct np_end end;
static int waits;

static void fresh(enum np_entry_state state, int code, const char *reason)
{
    left = (struct np_worker_exit){.code = code, .begun = code >= 0};
    strcpy(left.reason, reason);
    run = (struct np_entry){.state = state, .max_retries = 3};
    strcpy(run.assigned, "cuda:0");
    end = (struct np_end){.left = &left, .now = 1000, .retry_first_s = 10, .retry_cap_s = 100};
    waits = 0;
}

static void again(void)
{
    run.state = NP_ENTRY_RUNNING;
    np_decide(&end, &run, &waits);
}

Test(decide, a_finished_run_stays_done_whatever_was_requested)
{
    for (int wish = NP_ENTRY_RUNNING; wish <= NP_ENTRY_STOPPING; wish++) {
        fresh((enum np_entry_state)wish, NP_EXIT_DONE, "");
        run.retries = 2;
        np_decide(&end, &run, &waits);
        cr_assert_eq(run.state, NP_ENTRY_DONE);
        cr_assert_eq(run.retries, 0);
        cr_assert_eq(run.ended, 1000);
        cr_assert_str_eq(run.assigned, "");
    }
}

Test(decide, a_run_that_ended_early_keeps_its_reason)
{
    fresh(NP_ENTRY_RUNNING, NP_EXIT_DONE, "ended early at step 16 of 80");
    strcpy(run.reason, "it yields to run 7");
    np_decide(&end, &run, &waits);
    cr_assert_eq(run.state, NP_ENTRY_DONE);
    cr_assert_str_eq(run.reason, "ended early at step 16 of 80");
}

Test(decide, a_requested_stop_costs_no_attempt_and_resumes_at_once)
{
    fresh(NP_ENTRY_RUNNING, NP_EXIT_STOPPED, "stopped");
    run.retries = 2;
    np_decide(&end, &run, &waits);
    cr_assert_eq(run.state, NP_ENTRY_QUEUED);
    cr_assert_eq(run.not_before, 0);
    cr_assert_eq(run.retries, 0);
    cr_assert_str_eq(run.reason, "");
    fresh(NP_ENTRY_STOPPING, NP_EXIT_STOPPED, "stopped");
    np_decide(&end, &run, &waits);
    cr_assert_eq(run.state, NP_ENTRY_STOPPED);
    cr_assert_eq(run.ended, 1000);
    fresh(NP_ENTRY_PAUSING, NP_EXIT_STOPPED, "stopped");
    np_decide(&end, &run, &waits);
    cr_assert_eq(run.state, NP_ENTRY_PAUSED);
    cr_assert_eq(run.ended, 0);
}

Test(decide, temporary_failures_wait_longer_each_time_and_then_fail)
{
    const double waits_s[] = {10, 20, 40};

    fresh(NP_ENTRY_RUNNING, NP_EXIT_GAVE_UP, "cannot read a.jpg: Input/output error");
    for (int i = 0; i < 3; i++) {
        again();
        cr_assert_eq(run.state, NP_ENTRY_QUEUED);
        cr_assert_eq(run.retries, i + 1);
        cr_assert_eq(run.not_before, 1000 + waits_s[i]);
        cr_assert(
            strstr(run.reason, "cannot read a.jpg: Input/output error; retry "), "%s", run.reason);
    }
    again();
    cr_assert_eq(run.state, NP_ENTRY_FAILED);
    cr_assert_eq(run.exit_code, NP_EXIT_GAVE_UP);
    cr_assert_str_eq(run.reason, "cannot read a.jpg: Input/output error");
}

Test(decide, errors_with_a_checkpoint_between_them_never_fail_a_run)
{
    fresh(NP_ENTRY_RUNNING, NP_EXIT_GAVE_UP, "cannot read a.jpg");
    left.saved = true;
    for (int i = 0; i < 100; i++) {
        again();
        cr_assert_eq(run.state, NP_ENTRY_QUEUED);
        cr_assert_eq(run.retries, 1);
        cr_assert_eq(run.not_before, 1010);
    }
}

Test(decide, a_request_is_carried_out_and_errors_on_the_way_are_kept)
{
    const enum np_entry_state wishes[] = {NP_ENTRY_STOPPING, NP_ENTRY_PAUSING, NP_ENTRY_YIELDING},
                              gone[] = {NP_ENTRY_STOPPED, NP_ENTRY_PAUSED, NP_ENTRY_QUEUED};

    for (int i = 0; i < 3; i++) {
        fresh(wishes[i], NP_EXIT_GAVE_UP, "the checkpoint could not be written");
        np_decide(&end, &run, &waits);
        cr_assert_eq(run.state, gone[i]);
        cr_assert_str_eq(run.reason, "the checkpoint could not be written");
    }
    fresh(NP_ENTRY_RUNNING, NP_EXIT_GAVE_UP, "the checkpoint could not be written");
    end.stop_asked = true; /* the service is going down */
    np_decide(&end, &run, &waits);
    cr_assert_eq(run.state, NP_ENTRY_QUEUED);
    cr_assert_eq(run.not_before, 0);
    cr_assert_str_eq(run.reason, "the checkpoint could not be written");
}

Test(decide, a_full_disk_is_retried_at_growing_intervals_without_counting)
{
    const double waits_s[] = {10, 20, 40, 80, 100, 100};

    fresh(NP_ENTRY_RUNNING, NP_EXIT_GAVE_UP, "cannot write /a/b: your disk quota is used up");
    left.disk_full = true;
    for (int i = 0; i < 6; i++) {
        again();
        cr_assert_eq(run.state, NP_ENTRY_QUEUED);
        cr_assert_eq(run.retries, 0);
        cr_assert_eq(run.not_before, 1000 + waits_s[i], "%g", run.not_before);
        cr_assert(strstr(run.reason, "/a/b: your disk quota is used up; "), "%s", run.reason);
    }
    left.saved = true; /* there was room for a while */
    again();
    cr_assert_eq(run.not_before, 1010);
    left = (struct np_worker_exit){.code = NP_EXIT_FAILED};
    again();
    cr_assert_eq(waits, 0);
}

Test(decide, a_process_that_could_not_start_does_not_count)
{
    fresh(NP_ENTRY_RUNNING, -1, "cannot start a worker: Resource temporarily unavailable");
    end.unstarted = true;
    for (int i = 0; i < 20; i++)
        again();
    cr_assert_eq(run.state, NP_ENTRY_QUEUED);
    cr_assert_eq(run.retries, 0);
    cr_assert_eq(run.not_before, 1100);
    fresh(NP_ENTRY_RUNNING, NP_EXIT_FAILED, "cuda:0: out of order");
    left.no_device = true;
    for (int i = 0; i < 20; i++)
        again();
    cr_assert_eq(run.state, NP_ENTRY_QUEUED);
    cr_assert_eq(run.retries, 0);
    cr_assert_eq(run.not_before, 1100);
    cr_assert(strstr(run.reason, "cuda:0: out of order; that does not count"), "%s", run.reason);
}

Test(decide, a_wrong_config_fails_without_a_retry)
{
    fresh(NP_ENTRY_RUNNING, NP_EXIT_USAGE, "this config would not give the same weights");
    np_decide(&end, &run, &waits);
    cr_assert_eq(run.state, NP_ENTRY_FAILED);
    cr_assert_eq(run.retries, 0);
    cr_assert_str_eq(run.reason, "this config would not give the same weights");
}

Test(decide, a_process_that_died_is_named_and_counted)
{
    fresh(NP_ENTRY_RUNNING, -1, "");
    left.signal = 9;
    np_decide(&end, &run, &waits);
    cr_assert(strstr(run.reason, "SIGKILL; retry 1 of 3 in 10 s"), "%s", run.reason);
    fresh(NP_ENTRY_RUNNING, -1, "");
    end.hung = true;
    np_decide(&end, &run, &waits);
    cr_assert(strstr(run.reason, "no progress"), "%s", run.reason);
    fresh(NP_ENTRY_RUNNING, -1, "");
    np_decide(&end, &run, &waits);
    cr_assert(strstr(run.reason, "another process uses the folder"), "%s", run.reason);
    cr_assert_eq(run.retries, 1);
    fresh(NP_ENTRY_RUNNING, -1, "");
    end.never_began = true;
    np_decide(&end, &run, &waits);
    cr_assert_eq(run.retries, 0);
    cr_assert_eq(run.not_before, 0);
}

Test(decide, a_folder_of_another_owner_fails_the_run_at_once_and_is_named)
{
    const int statuses[] = {NP_WORKER_TAKEN, NP_WORKER_UNSAFE};
    const char *const texts[] = {"/runs/cnn-1 exists already", "/runs/cnn-1 is a link, or"};

    for (int i = 0; i < 2; i++) {
        fresh(NP_ENTRY_RUNNING, -1, "");
        run.dir = (char *)"/runs/cnn-1";
        left.status = statuses[i];
        np_decide(&end, &run, &waits);
        cr_assert_eq(run.state, NP_ENTRY_FAILED);
        cr_assert_eq(run.retries, 0);
        cr_assert(strstr(run.reason, texts[i]), "%s", run.reason);
    }
}

Test(decide, a_worker_without_space_for_its_record_waits_for_space)
{
    fresh(NP_ENTRY_RUNNING, -1, "");
    run.dir = (char *)"/runs/cnn-1";
    left.status = NP_WORKER_FULL;
    np_decide(&end, &run, &waits);
    cr_assert_eq(run.state, NP_ENTRY_QUEUED);
    cr_assert_eq(run.retries, 0);
    cr_assert_eq(run.not_before, 1010);
    cr_assert(
        strstr(run.reason, "the disk of /runs/cnn-1 is full, or its quota"), "%s", run.reason);
}
