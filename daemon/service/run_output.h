/* A run's output: numbered segments in output/ of its folder. Paths are relative to the working
 * directory, which is the run's folder (run_enter.h). All calls block on the disk. */
#ifndef NP_RUN_OUTPUT_H
#define NP_RUN_OUTPUT_H

/* The number of the newest segment; 0: none. */
int np_output_last(void);
/* Opens a segment for appending, and creates it if missing; follows no link. Returns the
 * descriptor or -errno. */
int np_output_open(int segment);
/* Removes the segment, if it exists. */
void np_output_remove(int segment);

#endif
