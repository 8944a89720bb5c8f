/* The list of a zip file whose entries are stored, as torch.save() writes it: which bytes of the
 * file each entry is. With zip64. Nothing is ever decompressed. (libzip would give the content; a reader of weights
 * wants the places, and no compression.) Any thread. */
#ifndef NP_ZIP_STORED_H
#define NP_ZIP_STORED_H

#include "trainer/checkpoint/tensor_file.h"

struct np_zip_entry {
    const char *name;
    uint64_t offset, bytes; /* of its content, from the file's start */
    uint32_t crc32;         /* of its content; torch writes 0 where it was told to compute none */
    const char *packed;     /* "compressed", "encrypted": not to be read; NULL: stored */
};
struct np_zip {
    struct np_zip_entry *entries; /* (n) in the order of their bytes */
    int n;
    char *directory; /* the names lie in it */
};

/* Lists the entries. Checked: every entry has its local header where the list says, lies before the
 * list and overlaps no other. -EBADMSG: damaged, or truncated; -E2BIG: too many entries. np_zip_fini(), also after an error. */
int np_zip_open(const struct np_st_file *file, struct np_zip *zip, struct np_err *err);
void np_zip_fini(struct np_zip *zip);
const struct np_zip_entry *np_zip_find(const struct np_zip *zip, const char *name); /* or NULL */

#endif
