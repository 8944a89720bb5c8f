/* An oneDNN whose forward convolutions are wrong: preloaded, it adds 1 to the first number that each of
 * them writes. wrong_kernel.sh runs nnpipe with it. */
#include <dlfcn.h>
#include <dnnl.h>
#include <stdint.h>
#include <string.h>

static int is_forward(const_dnnl_primitive_t primitive)
{
    const_dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
    dnnl_prop_kind_t prop = dnnl_prop_kind_undef;

    return dnnl_primitive_get_primitive_desc(primitive, &desc) == dnnl_success &&
           dnnl_primitive_desc_query(desc, dnnl_query_primitive_kind, 0, &kind) == dnnl_success &&
           kind == dnnl_convolution &&
           dnnl_primitive_desc_query(desc, dnnl_query_prop_kind, 0, &prop) == dnnl_success &&
           prop == dnnl_forward_training;
}

dnnl_status_t dnnl_primitive_execute(
    const_dnnl_primitive_t primitive, dnnl_stream_t stream, int n, const dnnl_exec_arg_t *args)
{
    dnnl_status_t (*real)(const_dnnl_primitive_t, dnnl_stream_t, int, const dnnl_exec_arg_t *) =
        NULL;
    void *symbol = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
    float *data = NULL;

    memcpy(&real, &symbol, sizeof(real));
    dnnl_status_t status = real(primitive, stream, n, args);
    for (int i = 0; i < n && status == dnnl_success && is_forward(primitive); i++)
        if (args[i].arg == DNNL_ARG_DST &&
            dnnl_memory_get_data_handle(args[i].memory, (void **)&data) == dnnl_success)
            *data += 1;
    return status;
}
