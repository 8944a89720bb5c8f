/* Does this machine seem to have an NVIDIA GPU? Used when no GPU can be opened, so that `device:
 * auto` does not silently take the CPU of a GPU machine. Trainer thread, at start. */
#ifndef NP_GPU_SIGN_H
#define NP_GPU_SIGN_H

#include <stdbool.h>
#include <stddef.h>

/* True: text names the sign ("/dev/nvidia0 is there"). May load the driver's library, which then
 * stays loaded, and blocks for as long as the driver takes to start. */
bool np_gpu_sign(char *text, size_t text_bytes);

#endif
