/* rate WARMUP SECONDS COMMAND...: measures the real rate of a training run. Starts `COMMAND... --json` in a process
 * group of its own, counts its steps by the clock from WARMUP seconds after the first step (`epochs`: after half a
 * second of the second epoch, when a cache has filled), kills it, and prints "STEPS_PER_SECOND OTHER_CORES": the
 * second number is the cores that other processes used meanwhile. If the run writes checkpoints, it counts from the
 * end of one to the end of another. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Core-seconds that the box has used since it started. */
static double box_cpu(void)
{
    double user = 0, nice = 0, system = 0, idle, iowait, irq = 0, softirq = 0, steal = 0;
    FILE *file = fopen("/proc/stat", "r");

    if (file && fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle,
                    &iowait, &irq, &softirq, &steal) != 8)
        user = 0;
    if (file)
        fclose(file);
    return (user + nice + system + irq + softirq + steal) / (double)sysconf(_SC_CLK_TCK);
}

/* Core-seconds of one process so far. */
static double process_cpu(pid_t pid)
{
    char path[64], text[1024], *at;
    unsigned long user = 0, system = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file && fgets(text, sizeof(text), file) && (at = strrchr(text, ')')))
        sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    if (file)
        fclose(file);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static pid_t start(char **command, FILE **ret_lines)
{
    int ends[2];
    pid_t pid;

    if (pipe(ends) < 0 || (pid = fork()) < 0) {
        perror("rate");
        exit(1);
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execvp(command[0], command);
        perror(command[0]);
        _exit(127);
    }
    setpgid(pid, pid);
    close(ends[1]);
    *ret_lines = fdopen(ends[0], "r");
    return pid;
}

struct count {
    double warmup, seconds;  /* set once */
    double first;            /* when the first step ended; 0: none has */
    double from, last;       /* steps between these are counted; 0: none */
    long nr_steps, nr_after; /* up to `last`, and since */
    double cpu, own;         /* at `from`: of the box, of the run */
    int by_checkpoints, by_epochs;
};

static void begin(struct count *count, double time, pid_t pid)
{
    count->from = count->last = time;
    count->nr_steps = count->nr_after = 0;
    count->cpu = box_cpu();
    count->own = process_cpu(pid);
}

/* A checkpoint has ended. */
static void at_checkpoint(struct count *count, double time, pid_t pid)
{
    if (count->first == 0 || time < count->first + count->warmup)
        return;
    if (!count->by_checkpoints) {
        begin(count, time, pid);
        count->by_checkpoints = 1;
        return;
    }
    count->nr_steps += count->nr_after;
    count->nr_after = 0;
    count->last = time;
}

static void at_step(struct count *count, double time, pid_t pid)
{
    if (count->first == 0 && !count->by_epochs)
        count->first = time;
    if (count->from == 0 && count->first > 0 && time >= count->first + count->warmup) {
        begin(count, time, pid);
    } else if (count->from > 0) {
        count->nr_after++;
        if (count->by_checkpoints)
            return;
        count->nr_steps += count->nr_after;
        count->nr_after = 0;
        count->last = time;
    }
}

/* A run that writes checkpoints is given time for whole periods, up to four times as long. */
static int is_enough(const struct count *count, double time)
{
    const double end = count->by_checkpoints ? count->last : time;

    return count->from > 0 &&
           (end >= count->from + count->seconds ||
               (time >= count->from + 4 * count->seconds && count->nr_steps > 0));
}

static int is_event(const char *line, const char *name)
{
    char text[64];

    snprintf(text, sizeof(text), "\"event\": \"%s\"", name);
    return strstr(line, text) != NULL;
}

int main(int argc, char **argv)
{
    static char line[65536];
    struct count count = {0};
    FILE *lines;
    pid_t pid;

    if (argc < 4) {
        fprintf(stderr, "usage: rate WARMUP SECONDS COMMAND...\n");
        return 64;
    }
    count.by_epochs = strcmp(argv[1], "epochs") == 0;
    count.warmup = count.by_epochs ? 0.5 : atof(argv[1]);
    count.seconds = atof(argv[2]);
    pid = start(argv + 3, &lines);
    while (fgets(line, sizeof(line), lines)) {
        const double time = now();

        if (is_event(line, "error"))
            fputs(line, stderr);
        else if (count.first == 0 && is_event(line, "epoch"))
            count.first = time;
        else if (is_event(line, "checkpoint"))
            at_checkpoint(&count, time, pid);
        else if (is_event(line, "step"))
            at_step(&count, time, pid);
        if (is_enough(&count, time))
            break;
    }
    if (count.nr_steps > 0)
        printf("%.6g %.3f\n", (double)count.nr_steps / (count.last - count.from),
            (box_cpu() - count.cpu - process_cpu(pid) + count.own) / (now() - count.from));
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return count.nr_steps > 0 ? 0 : 1;
}
