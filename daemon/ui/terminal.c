#include "daemon/ui/terminal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define ESCAPE_MS 20 /* the rest of an escape sequence arrives within this time */

int np_terminal_columns(int fd)
{
    struct winsize size;

    if (!isatty(fd))
        return 0;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool np_terminal_colour(int fd)
{
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(fd) && !(no_colour && *no_colour) && !(term && strcmp(term, "dumb") == 0);
}

static void measure(struct np_terminal *screen)
{
    struct winsize size;
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;

    screen->columns = known && size.ws_col > 0 ? size.ws_col : 80;
    screen->lines = known && size.ws_row > 0 ? size.ws_row : 24;
}

int np_terminal_open(struct np_terminal *screen, struct np_err *err)
{
    sigset_t signals;

    *screen = (struct np_terminal){.signal_fd = -1};
    screen->keyboard = tcgetattr(STDIN_FILENO, &screen->before) == 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGWINCH);
    sigprocmask(SIG_BLOCK, &signals, &screen->mask);
    screen->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (screen->signal_fd < 0) {
        sigprocmask(SIG_SETMASK, &screen->mask, NULL);
        return np_err_set(err, -errno, "signals cannot be received: %s", strerror(errno));
    }
    if (screen->keyboard) {
        struct termios raw = screen->before;

        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l\033[?7l", stdout); /* alternate screen, no cursor, no wrapping */
    fflush(stdout);
    measure(screen);
    return 0;
}

void np_terminal_close(struct np_terminal *screen)
{
    if (screen->frame)
        fclose(screen->frame);
    free(screen->text);
    fputs("\033[?7h\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (screen->keyboard)
        tcsetattr(STDIN_FILENO, TCSANOW, &screen->before);
    close(screen->signal_fd);
    sigprocmask(SIG_SETMASK, &screen->mask, NULL);
    screen->frame = NULL;
    screen->text = NULL;
}

FILE *np_terminal_begin(struct np_terminal *screen)
{
    measure(screen);
    if (screen->frame) /* not shown yet */
        fclose(screen->frame);
    free(screen->text);
    screen->text = NULL;
    screen->frame = open_memstream(&screen->text, &screen->bytes);
    return screen->frame;
}

/* Clears each line before writing it: after a line of full width the cursor is not on that line
 * any more. */
int np_terminal_show(struct np_terminal *screen, const char *bottom)
{
    const char *at;
    int line = 0;

    fclose(screen->frame);
    screen->frame = NULL;
    at = screen->text;
    fputs("\033[H", stdout);
    for (const char *end; line < screen->lines - 1 && at && (end = strchr(at, '\n')); line++) {
        fputs("\033[K", stdout);
        fwrite(at, 1, (size_t)(end - at), stdout);
        fputs("\033[0m\r\n", stdout);
        at = end + 1;
    }
    printf("\033[J\033[%d;1H\033[K%s\033[0m", screen->lines, bottom);
    return fflush(stdout) == 0 ? 0 : -EPIPE;
}

/* "\033[A": an arrow key; "\033" alone: the escape key. */
static int key_of(const char *bytes, ssize_t nr)
{
    if (nr <= 0)
        return NP_KEY_NONE;
    if (bytes[0] != '\033')
        return bytes[0] == 3 ? NP_KEY_END : (unsigned char)bytes[0];
    if (nr == 1)
        return NP_KEY_ESCAPE;
    if (nr >= 3 && (bytes[1] == '[' || bytes[1] == 'O'))
        return bytes[2] == 'A' ? NP_KEY_UP : bytes[2] == 'B' ? NP_KEY_DOWN : NP_KEY_NONE;
    return NP_KEY_NONE;
}

int np_terminal_key(struct np_terminal *screen, int ms)
{
    struct pollfd fds[2] = {
        {screen->signal_fd, POLLIN, 0}, {screen->keyboard ? STDIN_FILENO : -1, POLLIN, 0}};
    struct signalfd_siginfo info;
    char bytes[8];

    if (poll(fds, 2, ms) <= 0)
        return NP_KEY_NONE;
    if (fds[0].revents && read(screen->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        return info.ssi_signo == SIGWINCH ? NP_KEY_SIZE : NP_KEY_END;
    if (!fds[1].revents)
        return NP_KEY_NONE;
    ssize_t nr = read(STDIN_FILENO, bytes, 1); /* one key per call */
    if (nr == 1 && bytes[0] == '\033' && poll(&fds[1], 1, ESCAPE_MS) == 1)
        nr += read(STDIN_FILENO, bytes + 1, sizeof(bytes) - 1);
    return nr <= 0 ? NP_KEY_END : key_of(bytes, nr); /* the terminal is closed */
}
