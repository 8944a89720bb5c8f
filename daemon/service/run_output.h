/* What a run of the service prints: output/ in its folder, in numbered segments. Relative to the working directory,
 * which is the run's folder (run_enter.h). */
#ifndef NP_RUN_OUTPUT_H
#define NP_RUN_OUTPUT_H

/* The number of the newest segment; 0: there is none. Blocks on the disk. */
int np_output_last(void);
/* A descriptor that appends to the segment, which is made where it is not there; or -errno. Follows no link. */
int np_output_open(int segment);
/* Removes the segment, where it is there. */
void np_output_remove(int segment);

#endif
