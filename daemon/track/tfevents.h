/* Records of TensorBoard's event files: track_tensorboard.c describes the format. Pure; any
 * thread. */
#ifndef NP_TFEVENTS_H
#define NP_TFEVENTS_H

#include "daemon/track/protobuf.h"
#include "daemon/track/tracker.h"

/* Each begins a record with one Event. time: seconds since 1970. */
void np_tfrecord_version(struct np_pb *record, double time); /* the first one of a file */
/* A run continues: earlier records at this step or behind it do not count. */
void np_tfrecord_restart(struct np_pb *record, double time, uint64_t step);
void np_tfrecord_scalars(
    struct np_pb *record, double time, uint64_t step, const struct np_scalar *scalars, int n);
/* Adds length and checksums; returns the number of bytes to write. */
size_t np_tfrecord_end(struct np_pb *record);

struct np_tfevent {
    uint64_t step;
    double time;
    char tag[96]; /* of the first scalar, truncated; "": none */
    double value; /* of the first scalar */
};
/* Calls each(context, event, end) for the records at the start of a file: end is the offset behind
 * the record. Stops when each() returns false, and at the first record that is truncated or
 * damaged. */
void np_tfevents_read(const uint8_t *bytes, uint64_t nr_bytes,
    bool (*each)(void *context, const struct np_tfevent *event, uint64_t end), void *context);

#endif
