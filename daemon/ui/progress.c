#include "daemon/ui/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ui/terminal.h"
#include "loader/base/clock.h"

#define LIVE_NS  100000000ull   /* between two drawings of the live line */
#define PLAIN_NS 10000000000ull /* between two lines in a pipe */
#define BAR      20             /* columns */

void np_ui_init(struct np_ui *ui, bool json)
{
    const char *term = getenv("TERM");

    memset(ui, 0, sizeof(*ui));
    pthread_mutex_init(&ui->lock, NULL);
    ui->json = json;
    ui->text = json ? stderr : stdout;
    ui->live = !json && isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    ui->colour = ui->live && np_terminal_colour(STDOUT_FILENO);
    ui->last_ns = np_now_ns();
}

void np_ui_hush(struct np_ui *ui)
{
    ui->hushed = true;
    ui->json = ui->live = false;
}

/* Under the lock: the next line does not continue the live line. */
static void erase(struct np_ui *ui, const char *how)
{
    if (ui->drawn)
        fputs(how, ui->text);
    ui->drawn = false;
}

void np_ui_fini(struct np_ui *ui)
{
    erase(ui, "\n");
    fflush(ui->text);
    np_json_fini(&ui->object);
    pthread_mutex_destroy(&ui->lock);
}

static void print_line(struct np_ui *ui, FILE *out, char *text)
{
    np_text_clean(text);
    pthread_mutex_lock(&ui->lock);
    erase(ui, "\r\033[K");
    fflush(ui->text);
    fprintf(out, "%s\n", text);
    fflush(out);
    pthread_mutex_unlock(&ui->lock);
}

void np_ui_say(struct np_ui *ui, const char *format, ...)
{
    char text[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (!ui->hushed)
        print_line(ui, ui->text, text);
}

void np_ui_note(void *ui, const char *text)
{
    np_ui_say(ui, "%s", text);
}

void np_ui_warn(struct np_ui *ui, const char *text)
{
    char copy[2048];

    snprintf(copy, sizeof(copy), "%s", text);
    print_line(ui, stderr, copy);
}

void np_ui_event(struct np_ui *ui, const char *line)
{
    if (!ui->json || !line)
        return;
    fputs(line, stdout);
    fflush(stdout);
}

void np_ui_error(struct np_ui *ui, const struct np_err *err)
{
    char text[1100];

    np_err_format(err, text, sizeof(text));
    pthread_mutex_lock(&ui->lock);
    erase(ui, "\n");
    fflush(ui->text);
    pthread_mutex_unlock(&ui->lock);
    np_json_begin(&ui->object, "error");
    np_json_text(&ui->object, "message", text);
    np_ui_event(ui, np_json_end(&ui->object));
    fprintf(stderr, "nnpipe: %s\n", text);
}

void np_duration_text(double seconds, char *text, size_t text_bytes)
{
    long long s = seconds > 0 && seconds < 1e12 ? (long long)(seconds + 0.5) : 0;

    if (s >= 3600)
        snprintf(text, text_bytes, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, text_bytes, "%lld:%02lld", s / 60, s % 60);
}

struct line {
    char *text;
    size_t room;
    int width;
};

/* Leaves out a piece that does not fit. */
__attribute__((format(printf, 2, 3))) static void append(
    const struct line *line, const char *format, ...)
{
    const size_t used = strlen(line->text);
    char piece[80];
    va_list args;

    va_start(args, format);
    vsnprintf(piece, sizeof(piece), format, args);
    va_end(args);
    if ((int)(used + strlen(piece)) <= line->width && used + strlen(piece) < line->room)
        strcpy(line->text + used, piece);
}

void np_progress_text(const struct np_progress *p, int width, char *text, size_t text_bytes)
{
    const struct line line = {text, text_bytes, width};
    const double done = p->total_steps > 0 ? p->step / p->total_steps : 0;
    char eta[32], bar[BAR + 1];

    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)(done * BAR));
    bar[BAR] = '\0';
    text[0] = '\0';
    append(&line, "epoch %.2f/%g", p->epoch, p->total_epochs);
    if (width >= 100)
        append(&line, " [%s]", bar);
    append(&line, " %3.0f%%", 100 * done);
    append(&line, "  %.0f img/s", p->images_per_second);
    append(&line, "  stall %.0f%%%s%s", 100 * p->stall_ratio, *p->cause ? " " : "", p->cause);
    append(&line, "  loss %.4f", p->loss);
    if (!isnan(p->accuracy))
        append(&line, "  %s%saccuracy %.2f%%", p->evaluated ? p->evaluated : "",
            p->evaluated ? " " : "", 100 * p->accuracy);
    np_duration_text(p->eta_seconds, eta, sizeof(eta));
    if (!isnan(p->eta_seconds))
        append(&line, "  ETA %s", eta);
}

/* The usable width of a line: all but the terminal's last column. */
static int width_of(const struct np_ui *ui)
{
    const int columns = ui->live ? np_terminal_columns(STDOUT_FILENO) : 161;

    return columns > 20 ? columns - 1 : 79;
}

static void show(struct np_ui *ui, const char *text)
{
    if (!ui->live) {
        np_ui_say(ui, "%s", text);
        return;
    }
    pthread_mutex_lock(&ui->lock);
    fprintf(ui->text, "\r%s%s%s\033[K", ui->colour ? "\033[36m" : "", text,
        ui->colour ? "\033[0m" : "");
    ui->drawn = true;
    fflush(ui->text);
    pthread_mutex_unlock(&ui->lock);
}

void np_ui_progress(struct np_ui *ui, const struct np_progress *progress)
{
    uint64_t now = np_now_ns();
    char text[256];

    if (ui->json || ui->hushed || now - ui->last_ns < (ui->live ? LIVE_NS : PLAIN_NS))
        return;
    ui->last_ns = now;
    np_progress_text(progress, width_of(ui), text, sizeof(text));
    show(ui, text);
}

void np_ui_listing(void *context, const char *path, uint64_t samples)
{
    struct np_ui *ui = context;
    const int width = width_of(ui);
    uint64_t now = np_now_ns();
    char count[40], text[256];
    int room;

    if (samples == 0)
        ui->listing_ns = now; /* prints nothing for a short listing */
    if (ui->json || ui->hushed || now - ui->listing_ns < (ui->live ? LIVE_NS : PLAIN_NS))
        return;
    ui->listing_ns = now;
    snprintf(count, sizeof(count), ": %llu files", (unsigned long long)samples);
    room = width - (int)strlen(count) - (int)strlen("listing ");
    room = room > 200 ? 200 : room < 0 ? 0 : room;
    snprintf(text, sizeof(text), "listing %.*s%s", room, path, count);
    np_text_clean(text);
    show(ui, text);
}
