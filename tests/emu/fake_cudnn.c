/* The emulated cuDNN's interface: handles, descriptors and their attributes. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emu/fake_cudnn.h"

#define DESCRIPTOR 0xde5c0000u
#define HANDLE     0x4a4d1e00u

struct cudnnContext { /* a handle */
    uint32_t magic;
    cudaStream_t stream;
};

static __thread char last_error[400];

cudnnStatus_t fake_error(cudnnStatus_t status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(last_error, sizeof(last_error), format, args);
    va_end(args);
    return status;
}

static cudnnStatus_t planted(const char *call)
{
    return np_emu_fails(call)
               ? fake_error(CUDNN_STATUS_INTERNAL_ERROR, "%s fails as NNPIPE_EMU_FAIL says", call)
               : CUDNN_STATUS_SUCCESS;
}

/* --- handles --------------------------------------------------------------------------------- */

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

size_t cudnnGetCudartVersion(void)
{
    return CUDART_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (CUDNN_STATUS_CATEGORY((int)status)) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "CUDNN_STATUS_NOT_INITIALIZED";
    }
}

void cudnnGetLastErrorString(char *message, size_t room)
{
    snprintf(message, room, "%s", last_error);
    last_error[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *ret_handle)
{
    cudnnHandle_t handle;

    if (planted(__func__))
        return CUDNN_STATUS_INTERNAL_ERROR;
    handle = calloc(1, sizeof(*handle));
    if (!handle)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    handle->magic = HANDLE;
    *ret_handle = handle;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnHandle_t check_handle(cudnnHandle_t handle, const char *call)
{
    if (!handle || handle->magic != HANDLE)
        np_emu_die(call, "%p is no handle of cuDNN", (void *)handle);
    return handle;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    check_handle(handle, __func__)->magic = 0;
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    check_handle(handle, __func__)->stream = stream;
    return planted(__func__);
}

/* --- descriptors ----------------------------------------------------------------------------- */

struct descriptor *fake_descriptor(const void *pointer, const char *call)
{
    struct descriptor *descriptor = (struct descriptor *)(uintptr_t)pointer;

    if (!descriptor || descriptor->magic != DESCRIPTOR)
        np_emu_die(call, "%p is no descriptor of cuDNN", pointer);
    return descriptor;
}

struct descriptor *fake_new(cudnnBackendDescriptorType_t type)
{
    struct descriptor *descriptor = calloc(1, sizeof(*descriptor));

    if (!descriptor)
        np_emu_die("cuDNN", "no memory for a descriptor");
    *descriptor = (struct descriptor){.magic = DESCRIPTOR, .holders = 1, .type = type};
    return descriptor;
}

static void free_attribute(struct attribute *attribute)
{
    void **parts = attribute->values;

    for (int64_t i = 0; attribute->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < attribute->count;
         i++)
        fake_drop(parts[i]);
    free(attribute->values);
    free(attribute);
}

static void clear(struct descriptor *descriptor)
{
    while (descriptor->attributes) {
        struct attribute *first = descriptor->attributes;

        descriptor->attributes = first->next;
        free_attribute(first);
    }
}

void fake_drop(struct descriptor *descriptor)
{
    if (!descriptor || --descriptor->holders > 0)
        return;
    clear(descriptor);
    descriptor->magic = 0;
    free(descriptor);
}

static size_t type_bytes(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_CHAR: return sizeof(char);
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_FLOAT: return sizeof(float);
    case CUDNN_TYPE_DOUBLE: return sizeof(double);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
    default: return sizeof(int); /* the enumerations */
    }
}

void fake_put(struct descriptor *descriptor, cudnnBackendAttributeName_t name,
    cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    struct attribute **at = &descriptor->attributes, *attribute = calloc(1, sizeof(*attribute));
    size_t bytes = (size_t)count * type_bytes(type);

    if (!attribute)
        np_emu_die("cuDNN", "no memory for an attribute");
    *attribute = (struct attribute){name, type, count, malloc(bytes + 1), NULL};
    if (!attribute->values)
        np_emu_die("cuDNN", "no memory for an attribute");
    memcpy(attribute->values, values, bytes);
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++)
        fake_descriptor(((void **)attribute->values)[i], "cudnnBackendSetAttribute")->holders++;
    while (*at && (*at)->name != name)
        at = &(*at)->next;
    if (*at) {
        attribute->next = (*at)->next;
        free_attribute(*at);
    }
    *at = attribute;
}

const struct attribute *fake_get(
    const struct descriptor *descriptor, cudnnBackendAttributeName_t name)
{
    for (const struct attribute *a = descriptor->attributes; a; a = a->next)
        if (a->name == name)
            return a;
    return NULL;
}

int64_t fake_int(const struct descriptor *d, cudnnBackendAttributeName_t name, int64_t otherwise)
{
    const struct attribute *a = fake_get(d, name);

    if (!a || a->count < 1)
        return otherwise;
    return a->type == CUDNN_TYPE_INT64     ? *(const int64_t *)a->values
           : a->type == CUDNN_TYPE_BOOLEAN ? *(const bool *)a->values
                                           : *(const int *)a->values;
}

struct descriptor *fake_part(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    const struct attribute *a = fake_get(d, name);

    return a && a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && a->count ? *(void **)a->values : NULL;
}

/* --- the interface --------------------------------------------------------------------------- */

cudnnStatus_t cudnnBackendCreateDescriptor(
    cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *ret_descriptor)
{
    if (planted(__func__))
        return CUDNN_STATUS_INTERNAL_ERROR;
    *ret_descriptor = fake_new(type);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    if (descriptor)
        fake_drop(fake_descriptor(descriptor, __func__));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t pointer,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
    const void *values)
{
    struct descriptor *descriptor = fake_descriptor(pointer, __func__);

    if (planted(__func__))
        return CUDNN_STATUS_INTERNAL_ERROR;
    if (descriptor->finalized)
        return fake_error(CUDNN_STATUS_BAD_PARAM, "attribute %d of a finalized descriptor", name);
    if (count < 0 || (!values && count > 0))
        return fake_error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute %d has no values", name);
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++)
        if (!fake_descriptor(((void *const *)values)[i], __func__)->finalized)
            return fake_error(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                "attribute %d takes a descriptor that is not finalized", name);
    fake_put(descriptor, name, type, count, values);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finish(struct descriptor *descriptor)
{
    struct fake_program program;

    switch ((int)descriptor->type) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return fake_lower(descriptor, &program);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return fake_plan_finish(descriptor);
    default: return CUDNN_STATUS_SUCCESS; /* their readers check them */
    }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t pointer)
{
    struct descriptor *descriptor = fake_descriptor(pointer, __func__);
    cudnnStatus_t status = planted(__func__);

    if (status == CUDNN_STATUS_SUCCESS && descriptor->finalized)
        status = fake_error(CUDNN_STATUS_BAD_PARAM, "a descriptor is finalized twice");
    if (status == CUDNN_STATUS_SUCCESS)
        status = finish(descriptor);
    descriptor->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* Descriptors that a descriptor has are written into the caller's own ones. */
static cudnnStatus_t get_parts(const struct descriptor *of, cudnnBackendAttributeName_t name,
    int64_t room, int64_t *ret_count, void **ret_parts)
{
    const struct attribute *parts = fake_get(of, name);

    *ret_count = parts ? parts->count : 0;
    for (int64_t i = 0; i < *ret_count && i < room; i++) {
        const struct descriptor *part = ((void **)parts->values)[i];
        struct descriptor *to = fake_descriptor(ret_parts[i], "cudnnBackendGetAttribute");

        if (to->type != part->type)
            return fake_error(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a part of another type");
        for (const struct attribute *a = part->attributes; a; a = a->next)
            fake_put(to, a->name, a->type, a->count, a->values);
        to->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_stored(const struct descriptor *descriptor,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
    int64_t *ret_count, void *ret_values)
{
    const struct attribute *a = fake_get(descriptor, name);

    if (!a)
        return fake_error(CUDNN_STATUS_NOT_SUPPORTED, "attribute %d is not set", name);
    if (a->type != type)
        return fake_error(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d: its type", name);
    *ret_count = a->count;
    if (room > a->count)
        room = a->count;
    if (room > 0)
        memcpy(ret_values, a->values, (size_t)room * type_bytes(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const pointer,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
    int64_t *ret_count, void *ret_values)
{
    struct descriptor *descriptor = fake_descriptor(pointer, __func__);
    int64_t count = 0, *counted = ret_count ? ret_count : &count;

    if (planted(__func__))
        return CUDNN_STATUS_INTERNAL_ERROR;
    if (!descriptor->finalized)
        return fake_error(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is not finalized");
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
        return fake_heuristics(descriptor, room, counted, ret_values);
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE || name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)
        return get_parts(descriptor, name, room, counted, ret_values);
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE || name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE)
        return fake_notes(descriptor, name, room, counted, ret_values);
    return get_stored(descriptor, name, type, room, counted, ret_values);
}

cudnnStatus_t cudnnBackendExecute(
    cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    if (planted(__func__))
        return CUDNN_STATUS_INTERNAL_ERROR;
    return fake_execute(check_handle(handle, __func__)->stream, fake_descriptor(plan, __func__),
        fake_descriptor(pack, __func__));
}
