/* A common interface to oneDNN 2.x and 3.x: 3.x made memory descriptors opaque and turned
 * operation descriptors into arguments. Internal to kernels_onednn*.c. */
#ifndef NP_KERNELS_ONEDNN_API_H
#define NP_KERNELS_ONEDNN_API_H

#include <assert.h>
#include <dnnl.h>
#include <omp.h>
#include <stdbool.h>

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t np_md;
#else
typedef const dnnl_memory_desc_t *np_md;
#endif

/* A descriptor owned by this program. */
struct np_md_own {
    dnnl_memory_desc_t md;
#if DNNL_VERSION_MAJOR < 3
    bool made;
#endif
};

static inline dnnl_status_t np_md_make(struct np_md_own *own, int nr_dims, const dnnl_dim_t *dims,
    dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_dims_t all = {0};

    for (int i = 0; i < nr_dims; i++)
        all[i] = dims[i];
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_tag(&own->md, nr_dims, all, type, tag);
#else
    own->made = true;
    return dnnl_memory_desc_init_by_tag(&own->md, nr_dims, all, type, tag);
#endif
}

static inline np_md np_md_get(const struct np_md_own *own) /* NULL: never made */
{
#if DNNL_VERSION_MAJOR >= 3
    return own->md;
#else
    return own->made ? &own->md : NULL;
#endif
}

static inline void np_md_drop(struct np_md_own *own)
{
#if DNNL_VERSION_MAJOR >= 3
    if (own->md)
        dnnl_memory_desc_destroy(own->md);
#endif
}

static inline size_t np_md_bytes(np_md md)
{
    return md ? dnnl_memory_desc_get_size(md) : 0;
}

static inline np_md np_md_of(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

/* c (m, n) = factor a (m, k) b (k, n) + beta c on this thread; ta, tb: 'T' if a, b are stored
 * transposed, else 'N'; ld: elements from row to row, as stored. A failure means lack of memory. */
static inline void np_sgemm(char ta, char tb, size_t m, size_t n, size_t k, float factor,
    const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    dnnl_status_t status;

    omp_set_num_threads(1); /* of this thread */
    status = dnnl_sgemm(ta, tb, (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, factor, a,
        (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, beta, c, (dnnl_dim_t)ldc);
    assert(status == dnnl_success);
}

/* The parameters of a convolution, forward and backward. */
struct np_conv_desc {
    np_md x, weights, bias /* NULL: none */, y;
    dnnl_dims_t strides, dilates, pad_low, pad_high;
    const_dnnl_primitive_attr_t attr;
};

static inline dnnl_status_t np_conv_forward(
    dnnl_primitive_desc_t *ret_pd, dnnl_engine_t engine, const struct np_conv_desc *d)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_convolution_forward_primitive_desc_create(ret_pd, engine, dnnl_forward_training,
        dnnl_convolution_direct, d->x, d->weights, d->bias, d->y, d->strides, d->dilates,
        d->pad_low, d->pad_high, d->attr);
#else
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training,
        dnnl_convolution_direct, d->x, d->weights, d->bias, d->y, d->strides, d->dilates,
        d->pad_low, d->pad_high);

    return status != dnnl_success
               ? status
               : dnnl_primitive_desc_create(ret_pd, &desc, d->attr, engine, NULL);
#endif
}

static inline dnnl_status_t np_conv_backward_data(dnnl_primitive_desc_t *ret_pd,
    dnnl_engine_t engine, const struct np_conv_desc *d, const_dnnl_primitive_desc_t forward)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_convolution_backward_data_primitive_desc_create(ret_pd, engine,
        dnnl_convolution_direct, d->x, d->weights, d->y, d->strides, d->dilates, d->pad_low,
        d->pad_high, forward, d->attr);
#else
    dnnl_convolution_desc_t desc;
    dnnl_status_t status =
        dnnl_dilated_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, d->x,
            d->weights, d->y, d->strides, d->dilates, d->pad_low, d->pad_high);

    return status != dnnl_success
               ? status
               : dnnl_primitive_desc_create(ret_pd, &desc, d->attr, engine, forward);
#endif
}

static inline dnnl_status_t np_conv_backward_weights(dnnl_primitive_desc_t *ret_pd,
    dnnl_engine_t engine, const struct np_conv_desc *d, const_dnnl_primitive_desc_t forward)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_convolution_backward_weights_primitive_desc_create(ret_pd, engine,
        dnnl_convolution_direct, d->x, d->weights, d->bias, d->y, d->strides, d->dilates,
        d->pad_low, d->pad_high, forward, d->attr);
#else
    dnnl_convolution_desc_t desc;
    dnnl_status_t status =
        dnnl_dilated_convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, d->x,
            d->weights, d->bias, d->y, d->strides, d->dilates, d->pad_low, d->pad_high);

    return status != dnnl_success
               ? status
               : dnnl_primitive_desc_create(ret_pd, &desc, d->attr, engine, forward);
#endif
}

#endif
