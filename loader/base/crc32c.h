/* CRC-32C (Castagnoli), with AVX-512 and VPCLMULQDQ or with SSE4.2 and PCLMULQDQ, if the CPU has
 * them. Start with np_crc32c(0, ...), and pass its result with the next bytes. Any thread. */
#ifndef NP_CRC32C_H
#define NP_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t np_crc32c(uint32_t crc, const void *data, size_t bytes);
/* In plain C; for tests. */
uint32_t np_crc32c_plain(uint32_t crc, const void *data, size_t bytes);

#endif
