/* shard_list.c - parses the addresses of a cluster: cuts the list into shards, and expands ranges of numbers. */
#include "shard_list.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char blanks[] = " \t\n\r";

/* A section of the list. */
typedef struct pd_span {
    const char *at;
    size_t n;
} pd_span;

/* A range of numbers in an address: `{first..last}`, which takes the place of text.at[0] to text.at[text.n - 1]. */
typedef struct pd_number_range {
    pd_span text; /* at NULL: the address has no range */
    uint32_t first, count;
    int digits; /* least number of digits */
} pd_number_range;

static bool is_blank(char c)
{
    return c != '\0' && strchr(blanks, c) != NULL;
}

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool begins_address(const char *text)
{
    return begins_with(text, "tcp://") || begins_with(text, "tls://") || begins_with(text, "unix://");
}

/* Returns whether the blanks at `at` end the text of a shard. `address`: its last address. */
static bool ends_shard(const char *address, const char *at)
{
    const char *next = at + strspn(at, blanks);

    if (*next == ',' || *next == '\0') return *next == '\0';
    return !begins_with(address, "unix://") || begins_address(next);
}

/* Returns the text of the shard that begins at `at`, which is no blank: up to the blanks that separate it from the next
 * one. */
static pd_span shard_at(const char *at)
{
    const char *address = at, *end = at;

    while (*end != '\0' && !(is_blank(*end) && ends_shard(address, end))) {
        if (*end++ != ',') continue;
        end += strspn(end, blanks);
        address = end;
    }
    return (pd_span){ at, (size_t)(end - at) };
}

/* Reads the decimal digits at the begin of a text, at most nine. Returns their number. */
static size_t read_number(pd_span text, uint32_t *number)
{
    size_t n = 0;

    for (*number = 0; n < text.n && n < 9 && text.at[n] >= '0' && text.at[n] <= '9'; n++)
        *number = *number * 10 + (uint32_t)(text.at[n] - '0');
    return n;
}

static pd_span skip(pd_span text, size_t n)
{
    return (pd_span){ text.at + n, text.n - n };
}

static int bad_range(pd_span text, const char *why, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "address \"%.*s\": %s; expected {first..last}, for example tcp://node{0..3}:7070",
                   (int)(text.n < 200 ? text.n : 200), text.at, why);
}

/* Reads a range that begins at text.at[0], a brace. Returns false if there are no two numbers in the braces. */
static bool read_range(pd_span text, pd_number_range *range, uint32_t *last, size_t *last_digits)
{
    pd_span rest = skip(text, 1);
    size_t digits = read_number(rest, &range->first);

    rest = skip(rest, digits);
    if (digits == 0 || rest.n < 2 || memcmp(rest.at, "..", 2) != 0) return false;
    rest = skip(rest, 2);
    *last_digits = read_number(rest, last);
    rest = skip(rest, *last_digits);
    if (*last_digits == 0 || rest.n == 0 || rest.at[0] != '}') return false;
    range->digits = (int)digits;
    range->text = (pd_span){ text.at, (size_t)(rest.at + 1 - text.at) };
    return true;
}

static const char *check_range(pd_number_range *range, uint32_t last, size_t last_digits)
{
    bool padded = range->digits > 1 && range->text.at[1] == '0';
    bool last_padded = last_digits > 1 && range->text.at[range->text.n - 1 - last_digits] == '0';

    if (last < range->first) return "the first number is larger than the last one";
    if ((padded || last_padded) && (size_t)range->digits != last_digits)
        return "a number begins with 0, and the other one has another number of digits";
    if (last - range->first >= PD_MAX_SHARDS) return "more than 64 shards";
    if (!padded) range->digits = 1;
    range->count = last - range->first + 1;
    return NULL;
}

/* Finds the range of an address. *range has no text if there is none. */
static int find_range(pd_span address, pd_number_range *range, pd_error *err)
{
    bool path = begins_with(address.at + strspn(address.at, blanks), "unix://");

    *range = (pd_number_range){ .count = 1 };
    for (size_t i = 0; i < address.n; i++) {
        pd_number_range found = { 0 };
        size_t last_digits;
        uint32_t last;
        const char *why;

        if (address.at[i] != '{') continue;
        if (!read_range(skip(address, i), &found, &last, &last_digits)) {
            if (path) continue;
            return bad_range(address, "the braces have no two numbers", err);
        }
        if (range->text.at != NULL)
            return bad_range(address,
                             "it has two ranges, so the order of the shards is not clear: write the shards "
                             "one by one, separated by blanks",
                             err);
        if ((why = check_range(&found, last, last_digits)) != NULL) return bad_range(address, why, err);
        *range = found;
        i += found.text.n - 1;
    }
    return PD_OK;
}

/* Returns the address at the begin of a shard's text: up to a comma, or to the end. */
static pd_span address_at(pd_span shard)
{
    const char *comma = memchr(shard.at, ',', shard.n);

    return (pd_span){ shard.at, comma != NULL ? (size_t)(comma - shard.at) : shard.n };
}

/* Sets *count to the number of shards that a text with ranges stands for. */
static int count_shards(pd_span shard, uint32_t *count, pd_error *err)
{
    pd_span rest = shard;

    for (bool more = true, begun = false; more; begun = true) {
        pd_span address = address_at(rest);
        pd_number_range range;
        int rc = find_range(address, &range, err);

        if (rc != PD_OK) return rc;
        if (begun && range.count != *count)
            return bad_range(shard, "its addresses stand for different numbers of shards", err);
        *count = range.count;
        more = address.n < rest.n;
        rest = skip(rest, address.n + more);
    }
    return PD_OK;
}

/* Writes the text of shard number `index` of those for which a text with ranges stands. `out` has room for as
 * many bytes as the text, and one more: a range is longer than each of its numbers. */
static void expand(pd_span shard, uint32_t index, char *out)
{
    pd_span rest = shard;

    for (bool more = true; more;) {
        pd_span address = address_at(rest);
        pd_number_range range;

        find_range(address, &range, NULL);
        if (range.text.at == NULL) {
            out = (char *)memcpy(out, address.at, address.n) + address.n;
        } else {
            size_t before = (size_t)(range.text.at - address.at), after = address.n - before - range.text.n;

            out = (char *)memcpy(out, address.at, before) + before;
            out += sprintf(out, "%0*u", range.digits, (unsigned)(range.first + index));
            out = (char *)memcpy(out, range.text.at + range.text.n, after) + after;
        }
        more = address.n < rest.n;
        if (more) *out++ = ',';
        rest = skip(rest, address.n + more);
    }
    *out = '\0';
}

/* Appends the addresses of one shard, given as text, to the list. */
static int append(pd_shard_list *list, const char *text, pd_error *err)
{
    size_t n, had = list->first[list->n];
    pd_address *more, *grown;
    int rc;

    if (list->n == PD_MAX_SHARDS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "more than %d shards in a list of addresses", PD_MAX_SHARDS);
    if ((rc = pd_addresses_parse(&more, &n, text, PD_TO_CONNECT, err)) != PD_OK) return rc;
    if (had + n > PD_MOST_ADDRESSES) {
        rc = pd_fail(err, PD_INVALID_ARGUMENT, "more than %d addresses in a list of shards", PD_MOST_ADDRESSES);
    } else if ((grown = realloc(list->addresses, (had + n) * sizeof *grown)) == NULL) {
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    } else {
        memcpy(grown + had, more, n * sizeof *more);
        list->addresses = grown;
        list->first[++list->n] = had + n;
    }
    free(more);
    return rc;
}

static int append_all(pd_shard_list *list, pd_span shard, pd_error *err)
{
    char *text = malloc(shard.n + 1);
    uint32_t count = 0;
    int rc = text != NULL ? count_shards(shard, &count, err) : pd_fail(err, PD_NO_MEMORY, "out of memory");

    for (uint32_t i = 0; rc == PD_OK && i < count; i++) {
        expand(shard, i, text);
        rc = append(list, text, err);
    }
    free(text);
    return rc;
}

/* An address of the list, to find those that are in it twice. */
typedef struct pd_listed {
    const pd_address *address;
    size_t shard;
} pd_listed;

/* Compares by the daemon's place, then by shard. Host names are equal in upper and lower case, paths are not. */
static int compare(const void *a, const void *b)
{
    const pd_listed *x = a, *y = b;
    int order = (int)x->address->local - (int)y->address->local;

    if (order == 0)
        order = x->address->local ? strcmp(x->address->host, y->address->host)
                                  : strcasecmp(x->address->host, y->address->host);
    if (order == 0) order = strcmp(x->address->port, y->address->port);
    if (order != 0) return order;
    return x->shard < y->shard ? -1 : x->shard > y->shard;
}

static int check_sorted(const pd_listed *all, size_t n, pd_error *err)
{
    for (size_t i = 1; i < n; i++) {
        pd_listed before = { all[i - 1].address, all[i].shard };
        char text[PD_ADDRESS_TEXT];

        if (all[i - 1].shard == all[i].shard || compare(&before, &all[i]) != 0) continue;
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s is the address of shard %zu and of shard %zu: every shard is a daemon of its own (commas "
                       "separate the addresses of one shard, blanks separate shards)",
                       pd_address_text(all[i].address, text), all[i - 1].shard, all[i].shard);
    }
    return PD_OK;
}

/* Checks that no two shards have the same address. */
static int check_distinct(const pd_shard_list *list, pd_error *err)
{
    size_t n = list->first[list->n];
    pd_listed *all = malloc(n * sizeof *all);
    int rc;

    if (all == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t s = 0; s < list->n; s++)
        for (size_t i = list->first[s]; i < list->first[s + 1]; i++) all[i] = (pd_listed){ &list->addresses[i], s };
    qsort(all, n, sizeof *all, compare);
    rc = check_sorted(all, n, err);
    free(all);
    return rc;
}

int pd_shard_list_parse(pd_shard_list *out, const char *text, pd_error *err)
{
    int rc = PD_OK;

    *out = (pd_shard_list){ 0 };
    do {
        pd_span shard = shard_at(text + strspn(text, blanks));
        rc = append_all(out, shard, err);
        text = shard.at + shard.n;
    } while (rc == PD_OK && text[strspn(text, blanks)] != '\0');
    if (rc == PD_OK && out->n > 1) rc = check_distinct(out, err);
    if (rc != PD_OK) pd_shard_list_free(out);
    return rc;
}

void pd_shard_list_free(pd_shard_list *list)
{
    free(list->addresses);
    *list = (pd_shard_list){ 0 };
}

char *pd_shard_list_text(const pd_shard_list *list, size_t shard)
{
    size_t n = pd_shard_list_count(list, shard);
    char *text = malloc(n * (PD_ADDRESS_TEXT + 1)), *at = text;

    for (size_t i = 0; text != NULL && i < n; i++) {
        if (i > 0) *at++ = ',';
        at += strlen(pd_address_text(&list->addresses[list->first[shard] + i], at));
    }
    return text;
}
