/* The environment that launchers give to a process. */
#ifndef MADE_LAUNCH_H
#define MADE_LAUNCH_H

/* As if nothing had started this process. */
void made_launch_clear(void);
/* A port of this machine that was free. */
int made_launch_port(void);

#endif
