/* tally.c - writes tallies as bytes, and reads and checks them. */
#include "tally.h"

#include "most_shards.h"
#include "text.h"

#include <math.h>
#include <string.h>

enum { VERSION = 1, SKIPPED = 1, SEEN = 2, INFINITE = 4, NOT_A_NUMBER = 8, ALL_FLAGS = 15 };

/* Largest value of the highest word of a sum. No sum of squares comes near it, and 64 sums of that size can be
 * joined. */
#define HIGHEST_WORD_MOST ((uint64_t)1 << 40)

static void put(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void pd_tally_put_refusal(uint8_t *refusals, size_t i, pd_tally_refusal refusal)
{
    uint8_t *at = refusals + i * PD_TALLY_REFUSAL;

    put(at, refusal.rule, 2);
    put(at + 2, refusal.declared, 4);
    put(at + 6, refusal.origin, 8);
}

pd_tally_refusal pd_tally_refusal_at(const uint8_t *refusals, size_t i)
{
    const uint8_t *at = refusals + i * PD_TALLY_REFUSAL;

    return (pd_tally_refusal){ .rule = (uint16_t)get(at, 2),
                               .declared = (uint32_t)get(at + 2, 4),
                               .origin = get(at + 6, 8) };
}

void pd_tally_put_largest(uint8_t *list, size_t i, pd_tally_largest largest)
{
    uint32_t bits;

    memcpy(&bits, &largest.value, sizeof bits);
    put(list + i * PD_TALLY_LARGEST, largest.rule, 2);
    put(list + i * PD_TALLY_LARGEST + 2, bits, 4);
}

pd_tally_largest pd_tally_largest_at(const uint8_t *list, size_t i)
{
    pd_tally_largest largest = { .rule = (uint16_t)get(list + i * PD_TALLY_LARGEST, 2) };
    uint32_t bits = (uint32_t)get(list + i * PD_TALLY_LARGEST + 2, 4);

    memcpy(&largest.value, &bits, sizeof bits);
    return largest;
}

/* Finds the words of a sum from the first to the last one that is not 0. Returns their number. */
static size_t find_words(const pd_exact_sum *sum, size_t *first)
{
    size_t end = PD_EXACT_WORDS;

    *first = 0;
    while (end > 0 && sum->word[end - 1] == 0) end--;
    while (*first < end && sum->word[*first] == 0) ++*first;
    if (end == 0) *first = 0;
    return end - *first;
}

static size_t cut_bytes(const pd_tally *tally)
{
    return PD_TALLY_CUT_SETS * pd_tally_bits(tally->n_cuts);
}

static size_t list_bytes(const pd_tally *tally)
{
    return pd_tally_bits(tally->n_rules) + PD_TALLY_LARGEST * (size_t)tally->n_largest + cut_bytes(tally) +
           PD_TALLY_REFUSAL * (size_t)tally->n_refusals + tally->reason_bytes;
}

size_t pd_tally_bytes(const pd_tally *tally)
{
    size_t first;

    return PD_TALLY_HEAD + 8 * find_words(&tally->sum, &first) + list_bytes(tally);
}

static uint8_t *copy(uint8_t *to, const void *from, size_t bytes)
{
    if (bytes > 0) memcpy(to, from, bytes);
    return to + bytes;
}

size_t pd_tally_write(const pd_tally *tally, uint8_t *out)
{
    size_t first, n = find_words(&tally->sum, &first);
    uint8_t *at = out + PD_TALLY_HEAD;

    out[0] = VERSION;
    out[1] = (uint8_t)tally->kind;
    out[2] = (uint8_t)((tally->skipped ? SKIPPED : 0) | (tally->seen ? SEEN : 0) |
                       (tally->sum.infinite ? INFINITE : 0) | (tally->sum.nan ? NOT_A_NUMBER : 0));
    out[3] = 0;
    put(out + 4, tally->shard, 2);
    put(out + 6, tally->shards, 2);
    put(out + 8, tally->phase, 4);
    put(out + 12, tally->step, 8);
    out[20] = (uint8_t)first;
    out[21] = (uint8_t)n;
    put(out + 22, tally->n_rules, 2);
    put(out + 24, tally->n_largest, 2);
    put(out + 26, tally->n_refusals, 2);
    put(out + 28, tally->reason_bytes, 2);
    put(out + 30, tally->n_cuts, 2);
    for (size_t w = 0; w < n; w++, at += 8) put(at, tally->sum.word[first + w], 8);
    at = copy(at, tally->stepping, pd_tally_bits(tally->n_rules));
    at = copy(at, tally->largest, PD_TALLY_LARGEST * (size_t)tally->n_largest);
    at = copy(at, tally->cuts, cut_bytes(tally));
    at = copy(at, tally->refusals, PD_TALLY_REFUSAL * (size_t)tally->n_refusals);
    at = copy(at, tally->reason, tally->reason_bytes);
    return (size_t)(at - out);
}

/* ---- reading ---- */

static void read_head(pd_tally *out, const uint8_t *at)
{
    *out = (pd_tally){ .kind = (pd_tally_kind)at[1],
                       .skipped = (at[2] & SKIPPED) != 0,
                       .seen = (at[2] & SEEN) != 0,
                       .sum = { .infinite = (at[2] & INFINITE) != 0, .nan = (at[2] & NOT_A_NUMBER) != 0 },
                       .shard = (uint16_t)get(at + 4, 2),
                       .shards = (uint16_t)get(at + 6, 2),
                       .phase = (uint32_t)get(at + 8, 4),
                       .step = get(at + 12, 8),
                       .n_rules = (uint16_t)get(at + 22, 2),
                       .n_largest = (uint16_t)get(at + 24, 2),
                       .n_refusals = (uint16_t)get(at + 26, 2),
                       .reason_bytes = (uint16_t)get(at + 28, 2),
                       .n_cuts = (uint16_t)get(at + 30, 2) };
}

/* Returns whether the header is one that pd_tally_write writes, for a tally of n bytes. */
static bool is_head(const pd_tally *tally, const uint8_t *at, size_t n)
{
    bool outcomes = tally->kind == PD_TALLY_OUTCOMES, refusals = tally->kind == PD_TALLY_REFUSALS;
    size_t first = at[20], words = at[21];

    if (at[0] != VERSION || at[1] > PD_TALLY_REFUSALS || (at[2] & ~ALL_FLAGS) != 0 || at[3] != 0) return false;
    if (tally->shards < 2 || tally->shards > PD_MAX_SHARDS || tally->shard >= tally->shards || tally->step == 0)
        return false;
    if (first + words > PD_EXACT_WORDS || (words == 0 && first > 0)) return false;
    if (tally->n_rules > PD_TALLY_RULES_MOST || tally->n_refusals > PD_TALLY_RULES_MOST ||
        tally->reason_bytes > PD_TALLY_REASON || tally->n_largest > tally->n_rules)
        return false;
    if (!outcomes && (tally->skipped || tally->n_rules > 0 || tally->n_cuts > 0)) return false;
    if (!refusals && tally->n_refusals > 0) return false;
    if (refusals && (tally->seen || words > 0 || (at[2] & (INFINITE | NOT_A_NUMBER)) != 0)) return false;
    return n == PD_TALLY_HEAD + 8 * words + list_bytes(tally);
}

/* Reads the words of the sum. Returns false if they are not those of the shortest form, or too large. */
static bool read_words(pd_exact_sum *sum, const uint8_t *words, size_t first, size_t n)
{
    for (size_t w = 0; w < n; w++) sum->word[first + w] = get(words + 8 * w, 8);
    if (n > 0 && (sum->word[first] == 0 || sum->word[first + n - 1] == 0)) return false;
    return sum->word[PD_EXACT_WORDS - 1] <= HIGHEST_WORD_MOST;
}

/* Returns whether no bits are set after the first n. */
static bool are_bits(const uint8_t *bits, size_t n)
{
    return n % 8 == 0 || bits[n / 8] >> n % 8 == 0;
}

static bool are_rules(const pd_tally *tally)
{
    if (!are_bits(tally->stepping, tally->n_rules)) return false;
    for (size_t i = 0; i < tally->n_largest; i++) {
        pd_tally_largest largest = pd_tally_largest_at(tally->largest, i);
        if (!(largest.value > 0) || largest.rule >= tally->n_rules) return false;
        if (i > 0 && pd_tally_largest_at(tally->largest, i - 1).rule >= largest.rule) return false;
    }
    return true;
}

static bool are_cuts(const pd_tally *tally)
{
    const uint8_t *have = pd_tally_cut_set(tally->cuts, tally->n_cuts, PD_CUTS_HAVE),
                  *skip = pd_tally_cut_set(tally->cuts, tally->n_cuts, PD_CUTS_SKIP);

    for (int set = 0; set < PD_TALLY_CUT_SETS; set++)
        if (!are_bits(pd_tally_cut_set(tally->cuts, tally->n_cuts, (pd_tally_cuts)set), tally->n_cuts)) return false;
    for (size_t i = 0; i < pd_tally_bits(tally->n_cuts); i++)
        if ((skip[i] & ~have[i]) != 0) return false;
    return true;
}

static bool are_refusals(const pd_tally *tally)
{
    for (size_t i = 0; i < tally->n_refusals; i++) {
        pd_tally_refusal refusal = pd_tally_refusal_at(tally->refusals, i);
        if (refusal.rule >= PD_TALLY_RULES_MOST || refusal.origin > INT64_MAX) return false;
        if (i > 0 && pd_tally_refusal_at(tally->refusals, i - 1).rule >= refusal.rule) return false;
    }
    return true;
}

static void find_lists(pd_tally *out, const uint8_t *at)
{
    out->stepping = at;
    out->largest = out->stepping + pd_tally_bits(out->n_rules);
    out->cuts = out->largest + PD_TALLY_LARGEST * (size_t)out->n_largest;
    out->refusals = out->cuts + cut_bytes(out);
    out->reason = (const char *)(out->refusals + PD_TALLY_REFUSAL * (size_t)out->n_refusals);
}

int pd_tally_open(pd_tally *out, const uint8_t *at, size_t n, pd_error *err)
{
    const char *what = NULL;

    if (n < PD_TALLY_HEAD)
        return pd_fail(err, PD_INVALID_ARGUMENT, "tally of %zu bytes: expected at least %d", n, PD_TALLY_HEAD);
    if (at[0] != VERSION)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "tally of version %u, expected %d: all shards must run the same version of paramd", at[0],
                       VERSION);
    read_head(out, at);
    if (!is_head(out, at, n)) return pd_fail(err, PD_INVALID_ARGUMENT, "tally of %zu bytes: invalid header", n);
    find_lists(out, at + PD_TALLY_HEAD + 8 * (size_t)at[21]);
    if (!read_words(&out->sum, at + PD_TALLY_HEAD, at[20], at[21])) what = "sum of squares";
    if (!are_rules(out)) what = "rules";
    if (!are_cuts(out)) what = "cut parameters";
    if (!are_refusals(out)) what = "refusals";
    if (pd_text_printable(out->reason, out->reason_bytes) != out->reason_bytes) what = "reason";
    if (what == NULL) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "tally of shard %u: invalid %s", out->shard, what);
}
