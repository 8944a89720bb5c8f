/* Finds the arithmetic that a table of values was made with. Private to format*.c. */
#ifndef NP_FORMAT_FIT_H
#define NP_FORMAT_FIT_H

#include <stdbool.h>

/* As np_format_run has it, by channel. */
struct np_format_fit {
    float unit, unit_low;
    float mean[4], inverse[4], inverse_low[4];
};
/* values: (channels, 256), channels <= 4. True: each value is (pixel * unit - mean) / std, rounded
 * to float32 after each operation, where `pixel * unit` is pixel / 255, pixel * (1 / 255) or the
 * pixel. Any thread. */
bool np_format_fit(const float values[][256], int channels, struct np_format_fit *ret_fit);

#endif
