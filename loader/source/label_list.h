/* ImageNet's ground truth: a file of numbers, one for each image of a folder in the order of names,
 * and the synsets that they number. For loader/source/source_folder.c. One thread. */
#ifndef NP_LABEL_LIST_H
#define NP_LABEL_LIST_H

#include "loader/base/err.h"

struct np_label_list;

/* Reads both files. labels: line i is the number of image i's class, 1 being the first line of
 * synsets. synsets: the first word of each line is a class, as in "n01440764 tench, Tinca tinca".
 * -EINVAL: err names the file and the line of the mistake, such as a number above that of the
 * synsets, or a synset that is in two lines. The caller frees the list. */
int np_label_list_read(
    const char *labels, const char *synsets, struct np_label_list **ret_list, struct np_err *err);
void np_label_list_free(struct np_label_list *list);
/* Returns the class of the next image, whose name is for err. The text lives as long as the list.
 * NULL: there are more images than lines, -EINVAL. */
const char *np_label_list_next(struct np_label_list *list, const char *image, struct np_err *err);
/* Call after the last image. -EINVAL: there are fewer images than lines. */
int np_label_list_check(const struct np_label_list *list, const char *folder, struct np_err *err);

#endif
