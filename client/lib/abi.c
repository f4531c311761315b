/* abi.c - tells programs in other languages how the structs of the public headers lie in memory. */
#include <stddef.h>

#include "paramd/client.h"

#define COUNT(...) (sizeof(const size_t[]){ __VA_ARGS__ } / sizeof(size_t))
/* The entry of a struct: its size, the number of its fields, and their offsets. */
#define ENTRY(type, ...) sizeof(type), COUNT(__VA_ARGS__), __VA_ARGS__
#define AT(type, field) offsetof(type, field)

static const size_t abi[] = {
    ENTRY(pd_error, AT(pd_error, code), AT(pd_error, text)),
    ENTRY(pd_shape, AT(pd_shape, rank), AT(pd_shape, dim)),
    ENTRY(pd_client_options, AT(pd_client_options, urls), AT(pd_client_options, job), AT(pd_client_options, rank),
          AT(pd_client_options, world_size), AT(pd_client_options, options), AT(pd_client_options, rules),
          AT(pd_client_options, label), AT(pd_client_options, deadline), AT(pd_client_options, checksum),
          AT(pd_client_options, impatient), AT(pd_client_options, nonce), AT(pd_client_options, notice),
          AT(pd_client_options, notice_arg), AT(pd_client_options, quiet), AT(pd_client_options, no_shared_memory),
          AT(pd_client_options, join_later), AT(pd_client_options, slice), AT(pd_client_options, window),
          AT(pd_client_options, token_file), AT(pd_client_options, ca_file), AT(pd_client_options, cert_file),
          AT(pd_client_options, key_file), AT(pd_client_options, run), AT(pd_client_options, resume),
          AT(pd_client_options, joins)),
    ENTRY(pd_welcome, AT(pd_welcome, seed), AT(pd_welcome, created), AT(pd_welcome, rank), AT(pd_welcome, world_size),
          AT(pd_welcome, chunk_elements), AT(pd_welcome, max_payload), AT(pd_welcome, server),
          AT(pd_welcome, blas_core), AT(pd_welcome, step), AT(pd_welcome, linger)),
    ENTRY(pd_client_param, AT(pd_client_param, name), AT(pd_client_param, shape), AT(pd_client_param, push_dtype),
          AT(pd_client_param, pull_dtype), AT(pd_client_param, update_dtype), AT(pd_client_param, ranged),
          AT(pd_client_param, start), AT(pd_client_param, end), AT(pd_client_param, axes),
          AT(pd_client_param, model_state)),
    ENTRY(pd_item, AT(pd_item, param), AT(pd_item, gradient), AT(pd_item, weights), AT(pd_item, outcome),
          AT(pd_item, step), AT(pd_item, version)),
    ENTRY(pd_scalar, AT(pd_scalar, name), AT(pd_scalar, value), AT(pd_scalar, mean), AT(pd_scalar, weight)),
    ENTRY(pd_push_options, AT(pd_push_options, weight), AT(pd_push_options, zero_weight),
          AT(pd_push_options, presummed), AT(pd_push_options, hypers), AT(pd_push_options, scalars),
          AT(pd_push_options, n_scalars), AT(pd_push_options, sparse), AT(pd_push_options, note),
          AT(pd_push_options, note_bytes), AT(pd_push_options, replaces)),
    ENTRY(pd_client_stats, AT(pd_client_stats, bytes_out), AT(pd_client_stats, bytes_in),
          AT(pd_client_stats, payload_out), AT(pd_client_stats, payload_in), AT(pd_client_stats, connects),
          AT(pd_client_stats, resent), AT(pd_client_stats, shared_out), AT(pd_client_stats, shared_in),
          AT(pd_client_stats, rewinds), AT(pd_client_stats, replayed)),
};

size_t pd_client_abi(size_t *out, size_t n)
{
    size_t all = sizeof abi / sizeof *abi;

    for (size_t i = 0; i < n && i < all; i++) out[i] = abi[i];
    return all;
}
