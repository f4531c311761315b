/* Reads any bytes as a list of shards. It is refused with a reason, or every shard has addresses, within the limits,
 * and no two shards have the same one. */
#include <stdlib.h>
#include <string.h>

#include "seed.h"
#include "shard_list.h"

static void look_at(const pd_shard_list *list)
{
    MUST(list->n >= 1 && list->n <= PD_MAX_SHARDS && list->first[list->n] <= PD_MOST_ADDRESSES);
    for (size_t s = 0; s < list->n; s++) {
        char *text = pd_shard_list_text(list, s);
        pd_address *again;
        size_t n;

        MUST(pd_shard_list_count(list, s) >= 1);
        MUST(text == NULL || pd_addresses_parse(&again, &n, text, PD_TO_CONNECT, NULL) == PD_OK);
        if (text != NULL) free(again);
        free(text);
    }
}

static void make_seeds(const char *folder)
{
    static const char *const seeds[] = {
        "tcp://a:7070",
        "tls://a tls://b:7070,tls://b2",
        "tls://paramd-{0..3}.paramd:7070",
        "unix:///run/my dir/{00..09}",
        "[::1]:{1..5}",
        "a:1, b:2 c",
    };

    write_texts(folder, "list", seeds, sizeof seeds / sizeof *seeds);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return seed_if_asked(make_seeds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    pd_shard_list list;
    pd_error err = { 0 };

    MUST(text != NULL);
    if (pd_shard_list_parse(&list, text, &err) == PD_OK) {
        look_at(&list);
        pd_shard_list_free(&list);
    } else {
        MUST(err.text[0] != '\0' && list.addresses == NULL);
    }
    free(text);
    return 0;
}
