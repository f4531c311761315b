/* block_codec.c - encodes, decodes and sums the quantized element types int8 and int4. */
#include "block_codec.h"

#include "convert.h"

/* The parts of a piece. */
typedef struct piece_parts {
    const float *scales;
    const uint8_t *codes;
} piece_parts;

static piece_parts parts_of(const void *piece, int64_t of)
{
    const float *scales = piece;

    return (piece_parts){ scales, (const uint8_t *)(scales + (of + PD_BLOCK - 1) / PD_BLOCK) };
}

/* Returns the bits of the largest magnitude of n <= PD_BLOCK elements. Read as integers, they have the order of the
 * magnitudes, with infinity and NaN last. */
PD_INLINE int32_t largest_of(const float *x, int64_t n)
{
    int32_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        int32_t bits = (int32_t)(pd_f32_bits(x[i]) & 0x7fffffffu);
        most = bits > most ? bits : most;
    }
    return most;
}

PD_INLINE float scale_of(int32_t largest, float codes)
{
    return largest >= 0x7f800000 ? pd_f32_from_bits(0x7fc00000u) : pd_f32_from_bits((uint32_t)largest) / codes;
}

/* Encodes a block of n <= PD_BLOCK elements. Writes a code to each of the PD_BLOCK bytes of `code`, zeros after the
 * n-th one, and returns the scale. */
PD_INLINE float encode_block(int8_t *code, const float *x, int64_t n, float codes)
{
    float scale = scale_of(largest_of(x, n), codes), divisor = scale == 0 ? 1 : scale;

    if (n < PD_BLOCK) memset(code, 0, PD_BLOCK);
    for (int64_t i = 0; i < n; i++) code[i] = (int8_t)pd_code_from_f32(x[i], divisor, codes);
    return scale;
}

PD_CLONES(void, encode_8, (float *restrict scales, int8_t *restrict codes, const float *restrict x, int64_t n),
          (scales, codes, x, n))
{
    int8_t code[PD_BLOCK];

    for (; n >= PD_BLOCK; n -= PD_BLOCK, x += PD_BLOCK, codes += PD_BLOCK)
        *scales++ = encode_block(codes, x, PD_BLOCK, 127);
    if (n == 0) return;
    *scales = encode_block(code, x, n, 127);
    memcpy(codes, code, (size_t)n);
}

/* Packs the codes of n elements, two in a byte. `code` is 0 after the n-th one. */
PD_INLINE void pack(uint8_t *restrict to, const int8_t *restrict code, int64_t n)
{
    for (int64_t k = 0; k < (n + 1) / 2; k++)
        to[k] = (uint8_t)((uint8_t)code[2 * k + 1] << 4 | ((uint8_t)code[2 * k] & 15));
}

PD_CLONES(void, encode_4, (float *restrict scales, uint8_t *restrict codes, const float *restrict x, int64_t n),
          (scales, codes, x, n))
{
    int8_t code[PD_BLOCK];

    for (; n >= PD_BLOCK; n -= PD_BLOCK, x += PD_BLOCK, codes += PD_BLOCK / 2) {
        *scales++ = encode_block(code, x, PD_BLOCK, 7);
        pack(codes, code, PD_BLOCK);
    }
    if (n == 0) return;
    *scales = encode_block(code, x, n, 7);
    pack(codes, code, n);
}

void pd_blocks_encode(void *piece, pd_dtype dtype, const float *x, int64_t n)
{
    float *scales = piece;
    void *codes = scales + (n + PD_BLOCK - 1) / PD_BLOCK;
    int mode = pd_round_to_nearest();

    if (dtype == PD_INT8)
        encode_8(scales, codes, x, n);
    else
        encode_4(scales, codes, x, n);
    pd_round_by(mode);
}

PD_INLINE int8_t code_4(const uint8_t *codes, int64_t i)
{
    return (int8_t)(i % 2 == 0 ? (int8_t)(uint8_t)(codes[i / 2] << 4) >> 4 : (int8_t)codes[i / 2] >> 4);
}

/* Unpacks the PD_BLOCK codes of a whole block. */
PD_INLINE void unpack(int8_t *restrict code, const uint8_t *restrict codes)
{
    for (int k = 0; k < PD_BLOCK / 2; k++) {
        code[2 * k] = (int8_t)((int8_t)(uint8_t)(codes[k] << 4) >> 4);
        code[2 * k + 1] = (int8_t)((int8_t)codes[k] >> 4);
    }
}

PD_INLINE void whole_8(int8_t *code, const uint8_t *codes, int64_t block)
{
    memcpy(code, codes + block * PD_BLOCK, PD_BLOCK);
}

PD_INLINE int8_t one_8(const uint8_t *codes, int64_t i)
{
    return (int8_t)codes[i];
}

PD_INLINE void whole_4(int8_t *code, const uint8_t *codes, int64_t block)
{
    unpack(code, codes + block * (PD_BLOCK / 2));
}

/* Defines a function that adds elements [first, first + n) of a piece to `acc`, or sets `acc` to them: whole blocks in
 * loops of fixed length, which the compiler vectorizes, and the parts of blocks at both ends code by code. */
#define SUM_BLOCKS(name, whole, one, op)                                                                               \
    PD_CLONES(void, name, (float *restrict acc, const piece_parts *piece, int64_t first, int64_t n, float weight),     \
              (acc, piece, first, n, weight))                                                                          \
    {                                                                                                                  \
        int8_t code[PD_BLOCK];                                                                                         \
        for (int64_t i = 0, some; i < n; i += some) {                                                                  \
            int64_t block = (first + i) / PD_BLOCK, end = (block + 1) * PD_BLOCK - first;                              \
            float scale = piece->scales[block];                                                                        \
            some = (end < n ? end : n) - i;                                                                            \
            if (some == PD_BLOCK) {                                                                                    \
                whole(code, piece->codes, block);                                                                      \
                for (int k = 0; k < PD_BLOCK; k++) acc[i + k] op weight *((float)code[k] * scale);                     \
            } else {                                                                                                   \
                for (int64_t k = i; k < i + some; k++)                                                                 \
                    acc[k] op weight *((float)one(piece->codes, first + k) * scale);                                   \
            }                                                                                                          \
        }                                                                                                              \
    }
SUM_BLOCKS(set_8, whole_8, one_8, =)
SUM_BLOCKS(add_8, whole_8, one_8, +=)
SUM_BLOCKS(set_4, whole_4, code_4, =)
SUM_BLOCKS(add_4, whole_4, code_4, +=)

void pd_blocks_add(float *acc, pd_dtype dtype, const void *piece, int64_t of, int64_t first, int64_t n, float weight,
                   bool set)
{
    piece_parts parts = parts_of(piece, of);

    if (dtype == PD_INT8)
        (set ? set_8 : add_8)(acc, &parts, first, n, weight);
    else
        (set ? set_4 : add_4)(acc, &parts, first, n, weight);
}

void pd_blocks_decode(float *x, pd_dtype dtype, const void *piece, int64_t of, int64_t first, int64_t n)
{
    /* A product with 1 changes no bit. */
    pd_blocks_add(x, dtype, piece, of, first, n, 1, true);
}

PD_CLONES(void, subtract, (float *restrict rest, const float *restrict x, const float *restrict value, int64_t n),
          (rest, x, value, n))
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = pd_f32_bits(x[i] - value[i]);
        rest[i] = pd_f32_from_bits(pd_choose((bits & 0x7fffffffu) < 0x7f800000u, bits, pd_f32_bits(rest[i])));
    }
}

void pd_blocks_rest(float *rest, const float *x, pd_dtype dtype, const void *piece, int64_t n)
{
    float value[16 * PD_BLOCK];
    const int64_t room = sizeof value / sizeof *value;

    for (int64_t first = 0; first < n; first += room) {
        int64_t some = n - first < room ? n - first : room;
        pd_blocks_decode(value, dtype, piece, n, first, some);
        subtract(rest + first, x + first, value, some);
    }
}
