/* CRC-32C (Castagnoli), SSE4.2 where the CPU has it. np_crc32c(0, ...) starts; its result with
 * the bytes that follow goes on. */
#ifndef NP_CRC32C_H
#define NP_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t np_crc32c(uint32_t crc, const void *data, size_t bytes);
/* The same on any CPU, slower; for tests. */
uint32_t np_crc32c_plain(uint32_t crc, const void *data, size_t bytes);

#endif
