/* The folder in which jobs that share meet: one of the test's own. */
#ifndef NP_MADE_MEETING_H
#define NP_MADE_MEETING_H

void own_folder(void);
const char *own_folder_path(void);
/* Nothing may be left in it. */
void remove_folder(void);

#endif
