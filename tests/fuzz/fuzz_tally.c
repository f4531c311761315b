/* Reads any bytes as a tally of a shard. They are refused with a reason, or writing the tally gives the same bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seed.h"
#include "tally.h"
#include "most_shards.h"

static void make_seeds(const char *folder)
{
    uint8_t bytes[512], stepping[2] = { 5, 0 }, largest[PD_TALLY_LARGEST], cuts[PD_TALLY_CUT_SETS] = { 5, 2, 4 };
    uint8_t refusals[PD_TALLY_REFUSAL];
    pd_tally outcomes = { .step = 7, .shard = 1, .shards = 3, .seen = true, .n_rules = 9, .n_largest = 1, .n_cuts = 3 };
    pd_tally refused = { .step = 7, .phase = 1, .shards = 2, .kind = PD_TALLY_REFUSALS, .n_refusals = 1 };

    pd_exact_sum_add(&outcomes.sum, 0.1);
    pd_exact_sum_add(&outcomes.sum, 1e30);
    pd_tally_put_largest(largest, 0, (pd_tally_largest){ 2, 7.5f });
    outcomes.stepping = stepping;
    outcomes.largest = largest;
    outcomes.cuts = cuts;
    write_seed(folder, "tally_outcomes", bytes, pd_tally_write(&outcomes, bytes));
    pd_tally_put_refusal(refusals, 0, (pd_tally_refusal){ 2, 5, 65536 });
    refused.refusals = refusals;
    refused.reason = "NaN";
    refused.reason_bytes = 3;
    write_seed(folder, "tally_refusals", bytes, pd_tally_write(&refused, bytes));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return seed_if_asked(make_seeds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pd_tally tally;
    pd_error err;
    pd_exact_sum sum = { 0 };
    uint8_t *again;

    if (pd_tally_open(&tally, data, size, &err) != PD_OK) {
        MUST(err.code == PD_INVALID_ARGUMENT && err.text[0] != '\0');
        return 0;
    }
    again = malloc(size);
    MUST(again != NULL && pd_tally_bytes(&tally) == size && pd_tally_write(&tally, again) == size);
    MUST(memcmp(again, data, size) == 0);
    for (size_t i = 0; i < PD_MAX_SHARDS; i++) pd_exact_sum_join(&sum, &tally.sum);
    MUST(!(pd_exact_sum_round(&sum) < 0));
    free(again);
    return 0;
}
