/* rate WARMUP SECONDS COMMAND...: what a training run really does. Starts `COMMAND... --json` in a group
 * of its own, counts its steps by the clock from WARMUP seconds after the first one on, kills it, and
 * prints "STEPS_PER_SECOND OTHER_CORES": the second is what other processes used meanwhile. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_STEPS 4000000

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

int main(int argc, char **argv)
{
    static char line[65536];
    double first = 0, from = 0, last = 0, cpu = 0, own = 0;
    long nr_steps = 0;
    FILE *lines;
    pid_t pid;

    if (argc < 4) {
        fprintf(stderr, "usage: rate WARMUP SECONDS COMMAND...\n");
        return 64;
    }
    pid = start(argv + 3, &lines);
    while (fgets(line, sizeof(line), lines)) {
        double time = now();

        if (strstr(line, "\"error\""))
            fputs(line, stderr);
        if (!strstr(line, "\"event\": \"step\"") && !strstr(line, "\"event\":\"step\""))
            continue;
        if (first == 0)
            first = time;
        if (from == 0 && time >= first + atof(argv[1])) {
            from = last = time;
            cpu = box_cpu();
            own = process_cpu(pid);
        } else if (from > 0) {
            nr_steps++;
            last = time;
        }
        if (from > 0 && time >= from + atof(argv[2]))
            break;
    }
    if (last > from)
        printf("%.6g %.3f\n", (double)nr_steps / (last - from),
            (box_cpu() - cpu - process_cpu(pid) + own) / (last - from));
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return last > from ? 0 : 1;
}
