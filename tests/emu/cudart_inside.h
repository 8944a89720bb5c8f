/* The emulated runtime's inside, shared by cudart*.c. All of it is under the one lock that
 * np_emu_enter() takes. */
#ifndef NP_EMU_CUDART_INSIDE_H
#define NP_EMU_CUDART_INSIDE_H

#include "tests/emu/cudart.h"

struct work { /* a closure, held by queues and graphs */
    int holders;
    void (*run)(void *job), (*drop)(void *job);
    void *job;
    bool (*uses)(const void *job, const void *memory, size_t bytes); /* NULL: the device's alone */
    bool (*ready)(void *job); /* moves what it can; true: run() may be called. NULL: always */
    uint64_t device_ns;       /* in the modelled clock */
};
struct record { /* one cudaEventRecord(): an event is recorded repeatedly, a record is used once */
    int holders;
    bool passed;
    uint64_t passed_ns;
};
enum op_kind { OP_WORK, OP_RECORD, OP_WAIT, OP_GRAPH };
struct op {
    enum op_kind kind;
    struct work *work;       /* OP_WORK */
    struct record *record;   /* OP_RECORD: passes; OP_WAIT: is waited for */
    struct graph_run *graph; /* OP_GRAPH */
    uint64_t queued_ns;      /* in the modelled clock */
    struct op *next;
};
struct CUstream_st {
    bool blocking;  /* ordered with the default stream */
    bool destroyed; /* queued operations still run */
    struct op *first, *last;
    bool is_ready;           /* of np_emu_advance() */
    struct capture *capture; /* NULL: not capturing */
    int lane;                /* of the capture */
    int last_node;           /* of the lane; -1: none */
    uint64_t busy_until_ns;  /* in the modelled clock */
    struct CUstream_st *next;
};
struct CUevent_st {
    bool timed;
    struct record *record;   /* the newest; NULL: never recorded */
    struct capture *capture; /* recorded in one: after its node */
    int node;
    struct CUevent_st *next;
};

/* A captured graph: nodes in lanes (one a stream), in order within a lane, each after the nodes that
 * it waits for. */
struct node {
    struct work *work; /* NULL: it waits only */
    int lane, after;   /* after: a node of another lane; -1: none */
};
struct nodes {
    int holders, nr, room, nr_lanes;
    struct node *list;
};
struct capture {
    int holders; /* streams and events */
    bool broken, ended;
    enum cudaStreamCaptureMode mode;
    struct CUstream_st *origin;
    struct nodes *nodes;
};
struct graph_run {
    struct nodes *nodes;
    bool *done; /* (nr) */
    int nr_done;
    int *next; /* (nr_lanes) the node that may run; of np_emu_graph_ready() */
};
struct CUgraph_st {
    struct nodes *nodes;
    struct CUgraph_st *next;
};
struct CUgraphExec_st {
    struct nodes *nodes;
    struct CUgraphExec_st *next;
};

/* cudart.c: the lock and the last error of a thread. enter() returns false if the call must fail;
 * every call ends with leave(). */
bool np_emu_enter(const char *call);
cudaError_t np_emu_leave(cudaError_t status);
void np_emu_lock(void); /* for calls that are never made to fail */
void np_emu_unlock(void);
bool np_emu_dead(void);                        /* queued operations no longer run */
void np_emu_refuse_launch(cudaError_t status); /* becomes the last error */
void *np_emu_new(size_t bytes);                /* zeroed; never NULL */
void np_emu_run(struct work *work);
bool np_emu_ready(struct work *work); /* NULL: true */
/* No operation can run: false, unless one of them waits for another process, which then gets time. */
bool np_emu_await_others(void);
uint64_t np_emu_memory_bytes(void);
void np_emu_load_kernel(void *stream, const void *kernel); /* at a launch */
bool np_emu_models_clock(void);                            /* as NNPIPE_EMU_CLOCK says */
bool np_emu_drops_wait(void);                              /* as NNPIPE_EMU_DROP says */
void np_emu_launched(void); /* a graph was launched: the run is steady from the first batch's on */
void np_emu_check_steady(const char *call, const char *what);
uint64_t np_emu_calls(void);

/* cudart_stream.c */
void np_emu_launch_kernel(void *handle, void (*run)(void *job), void (*drop)(void *job), void *job);
struct CUstream_st *np_emu_stream(cudaStream_t stream, const char *call);
void np_emu_push(struct CUstream_st *stream, struct op op);
/* Runs one operation of one stream that can proceed; false if no stream can. */
bool np_emu_advance(void);
/* Runs until the stream (NULL: all of them) is empty, or the record has passed. */
void np_emu_finish_stream(struct CUstream_st *stream, const char *call);
void np_emu_finish_record(const struct record *record, const char *call);
struct work *np_emu_work(void (*run)(void *job), void (*drop)(void *job), void *job);
void np_emu_drop_work(struct work *work);
void np_emu_drop_record(struct record *record);
bool np_emu_capturing(void); /* any stream, in a mode that forbids unsafe calls */
void np_emu_queue_work(struct CUstream_st *stream, struct work *work);
void np_emu_queue_graph(struct CUstream_st *stream, struct graph_run *run);
void np_emu_leave_capture(struct capture *capture); /* every stream in it */
uint64_t np_emu_ran(void);
/* Is there work queued, of launched graphs too, that uses host memory among these bytes? */
bool np_emu_queue_uses(const void *memory, size_t bytes);

/* cudart_graph.c */
void np_emu_capture_work(struct CUstream_st *stream, struct work *work);
void np_emu_capture_record(struct CUstream_st *stream, struct CUevent_st *event);
cudaError_t np_emu_capture_wait(struct CUstream_st *stream, struct CUevent_st *event);
void np_emu_drop_capture(struct capture *capture);
bool np_emu_graph_ready(const struct graph_run *run); /* a node may run, or all have */
/* false: nothing is ready, or all is done. Adds the node's time to *device_ns. */
bool np_emu_advance_graph(struct graph_run *run, uint64_t *device_ns);
void np_emu_drop_run(struct graph_run *run);
bool np_emu_graph_uses(const struct graph_run *run, const void *memory, size_t bytes);

/* cudart_memory.c. The host can access the device's memory only between show and hide. */
void np_emu_check_guards(const char *call);
void np_emu_show_memory(void);
void np_emu_hide_memory(void);
void np_emu_check_argument(const char *kernel, uint64_t word, int is_pointer);

#endif
